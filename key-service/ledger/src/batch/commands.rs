//! Commands that are decided together.

use domain::ledger::Command;
use shared::time::Timestamp;

/// Commands of one call, all applied with the same time.
#[derive(Clone, Copy)]
pub(crate) struct Commands<'a> {
    pub(crate) all: &'a [Command],
    pub(crate) now: Timestamp,
}

/// Skips the first `done` commands of all calls, and takes at most `most` of the following commands. The result has one
/// part for every call, even if that part is empty.
pub(crate) fn part<'a>(calls: &[Commands<'a>], mut done: usize, mut most: usize) -> Vec<Commands<'a>> {
    let of_call = |Commands { all, now }: &Commands<'a>| {
        let (skipped, rest) = all.split_at(done.min(all.len()));
        let all = &rest[..most.min(rest.len())];
        done -= skipped.len();
        most -= all.len();
        Commands { all, now: *now }
    };
    calls.iter().map(of_call).collect()
}
