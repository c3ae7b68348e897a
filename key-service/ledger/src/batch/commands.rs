//! Commands that are decided together.

use domain::ledger::Command;
use shared::time::Timestamp;

/// Commands of one call, which are applied at one time.
#[derive(Clone, Copy)]
pub(crate) struct Commands<'a> {
    pub(crate) all: &'a [Command],
    pub(crate) now: Timestamp,
}
