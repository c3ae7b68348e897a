//! Admission: how much of a shared resource each caller may take.
//!
//! `owner`, `quota` and `eviction` make the decisions, without clock, lock or I/O. In `permit`, callers wait for their
//! turn.

mod eviction;
mod owner;
mod permit;
mod quota;

pub(crate) use eviction::{Connections, PassedBound, Snapshot, choose};
pub use owner::{Network, Owner};
pub use permit::{Permit, Quota};
