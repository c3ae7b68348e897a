//! The command that exports events.

use std::io::{BufWriter, Write};

use clap::Subcommand;
use serde::Serialize;
use shared::wire::EventObject;

use super::sequence::read_on;
use crate::{failure::operator_error, output::EXPORTED_AT_ONCE};
use key_service_management::Management;

#[derive(Debug, Subcommand)]
pub enum EventCommand {
    /// Write an account's events as JSON lines, oldest first
    ///
    /// To continue later, pass the last `seq` with --after: no event is missed or repeated. Events never change. If a
    /// failover of Redis may have lost the event with this `seq`, the export fails and says where to continue. Events
    /// are kept for FAREGATE_EVENT_DAYS, but at most the last 100,000 events and 64 MiB.
    Export {
        /// The account's name
        #[arg(long, value_name = "NAME")]
        account: String,
        /// Only events after this `seq`
        #[arg(long, value_name = "SEQ", default_value_t = 0)]
        after: u64,
    },
}

/// An event in an export. Scripts rely on the names: add names, but never rename one.
#[derive(Serialize)]
struct EventLine {
    seq: u64,
    #[serde(flatten)]
    event: EventObject,
}

/// Exports events page by page, in constant memory.
pub(crate) async fn run(
    EventCommand::Export { account, after }: EventCommand,
    management: &Management,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let id = management.account(&account).await.map_err(operator_error)?;
    let (_, sequence) = management.sequences(id).await?;
    let last = management.last_event(id).await?;
    let mut after = read_on(&sequence, after, last, "the events end")?;
    let mut out = BufWriter::new(out);
    loop {
        let page = management.events_after(id, after, EXPORTED_AT_ONCE).await?;
        if page.gone_until > after {
            tracing::warn!(
                account,
                up_to = page.gone_until,
                "the store has dropped events that had not been exported"
            );
        }
        for numbered in &page.events {
            let line = EventLine { seq: sequence.exported(numbered.number), event: numbered.event.object() };
            serde_json::to_writer(&mut out, &line)?;
            out.write_all(b"\n")?;
            after = numbered.number;
        }
        out.flush()?;
        if page.events.len() < EXPORTED_AT_ONCE {
            return Ok(());
        }
    }
}
