//! The ledger over stored records. [`domain::ledger::apply`] decides on copies of the records, and the commit succeeds
//! only if the records still equal the copies.

mod batch;
mod error;
mod kept;
mod lanes;
pub mod names;
#[cfg(feature = "testing")]
pub mod stepped;
pub mod stored;
pub mod sums;
pub mod view;

pub use self::{
    batch::Outcomes,
    error::StoreError,
    kept::{EVENTS_KEPT, EventBounds, Retention},
    lanes::{change::Change, house, lane::Lanes},
    sums::journal,
    view::reading,
};

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests;
