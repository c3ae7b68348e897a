use std::time::Duration;

/// More deposits or open holds than any account has.
pub(crate) const ALL: usize = 10_000_000;
/// Time around midnight in which the journal may mix entries of both days. The clocks of key-services differ by seconds
/// at most.
pub(crate) const LATE: Duration = Duration::from_mins(10);
/// Log values, index entries or records that are read at once: a few hundred kilobytes.
pub(crate) const AT_ONCE: usize = 500;
