//! Reports writes that make no progress, and reads for which no bytes have arrived.

use std::{io, sync::Arc, task::Context};

use shared_client::watched_stream::StreamWatch;
use tokio::task::coop::has_budget_remaining;

use super::connection::Connection;

/// Reports the reads and writes of a stream to its connection.
pub(super) struct ProgressReport(pub(super) Arc<Connection>);

/// Returns whether a read or write waits because of the client, and not because the task has used up its steps.
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
