use std::time::Duration;

/// Maximum number of entries for reads of all deposits or all open holds: more than any account has.
pub(crate) const ALL: usize = 10_000_000;
/// For this long before and after midnight, entries of both days may alternate in the journal. The clocks of
/// key-services differ by seconds at most.
pub(crate) const LATE: Duration = Duration::from_mins(10);
/// Number of log values, index entries or records that are read at once: a few hundred kilobytes.
pub(crate) const AT_ONCE: usize = 500;
