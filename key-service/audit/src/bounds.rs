use std::time::Duration;

/// Limit for reading all deposits or open holds: more than any account has.
pub(crate) const ALL: usize = 10_000_000;
/// How long before and after midnight the journal may mix entries of both days. The clocks of key-services differ by
/// seconds at most.
pub(crate) const LATE: Duration = Duration::from_mins(10);
/// Number of log values, index entries or records that are read at once: a few hundred kilobytes.
pub(crate) const AT_ONCE: usize = 500;
