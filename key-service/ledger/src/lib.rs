//! The ledger over records. [`domain::ledger::apply`] decides on copies of the records, and the commit succeeds only if
//! the records still equal the copies.

mod batch;
pub mod codec;
mod copies;
mod error;
mod kept;
mod lanes;
/// Messages generated from `proto/store/v1`, which documents them. `make generate` writes them.
#[allow(missing_docs, clippy::pedantic, reason = "generated code")]
#[rustfmt::skip]
pub mod messages;
pub mod names;
mod show;
#[cfg(feature = "testing")]
pub mod stepped;
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
