//! The ledger on top of stored records. [`domain::ledger::apply`] decides with copies of the records. The commit
//! succeeds only if the records have not changed since they were copied.

mod batch;
mod error;
mod kept;
mod lanes;
pub mod names;
mod spaces;
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
    spaces::change_space,
    sums::journal,
    view::reading,
};

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests;
