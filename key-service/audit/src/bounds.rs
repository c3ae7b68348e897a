//! Bounds of what an audit reads.

use std::time::Duration;

/// Most deposits or open holds of an account, more than any has.
pub(crate) const ALL: usize = 10_000_000;
/// Time around midnight in which the journal may have entries of both days. Key-service clocks differ by seconds at
/// most.
pub(crate) const LATE: Duration = Duration::from_mins(10);
/// Values of a log, entries of an index or records requested at a time: a few hundred kilobytes.
pub(crate) const AT_ONCE: usize = 500;
