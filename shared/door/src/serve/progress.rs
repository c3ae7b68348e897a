//! Reports writes that make no progress, and reads that find nothing.

use std::{io, sync::Arc, task::Context};

use shared_client::watched_stream::StreamWatch;
use tokio::task::coop::has_budget_remaining;

use super::connection::Connection;

/// Reports a stream's reads and writes to its connection.
pub(super) struct ProgressReport(pub(super) Arc<Connection>);

/// Returns whether a wait is caused by the peer, not by the task's own budget.
fn waits_for_peer(waits: bool) -> bool {
    waits && has_budget_remaining()
}

impl StreamWatch for ProgressReport {
    fn after_read(&mut self, _: &mut Context<'_>, waits: bool, _: &[u8]) -> io::Result<()> {
        if waits_for_peer(waits) {
            self.0.note_silence();
        }
        Ok(())
    }

    fn after_write(&mut self, waits: bool) {
        self.0.note_write(waits_for_peer(waits));
    }
}
