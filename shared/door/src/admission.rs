//! Admission: who may take how much of a resource that many callers share.
//!
//! `owner`, `quota` and `eviction` decide, without clock, lock or I/O. `permit` is the edge at which callers wait.

mod eviction;
mod owner;
mod permit;
mod quota;

pub(crate) use eviction::{Connections, PassedBound, Snapshot, choose};
pub use owner::{Network, Owner};
pub use permit::{Permit, Quota};
