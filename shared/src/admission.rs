//! Admission: who may take how much of a resource that many callers share.
//!
//! `owner`, `quota` and `eviction` decide, without clock, lock or I/O; `permit` is the edge on which callers wait.

mod owner;
mod permit;
mod quota;

pub use owner::{Network, Owner};
pub use permit::{Permit, Quota};
