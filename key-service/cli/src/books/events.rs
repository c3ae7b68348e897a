//! The command that exports events.

use std::io::{BufWriter, Write};

use clap::Subcommand;
use serde::Serialize;
use shared::wire::EventObject;

use super::sequence::read_on;
use crate::{failure::operator_error, output::EXPORTED_AT_ONCE};
use key_service_management::Management;

/// Commands on events.
#[derive(Debug, Subcommand)]
pub enum EventCommand {
    /// Write the events of an account as JSON lines, in the order in which they were written
    ///
    /// To go on later, pass the last `seq` with --after: nothing is missed, and nothing comes twice. Events never change.
    /// If a replica of Redis took over that may have lacked the event of `seq`, the export fails and says where to go on.
    /// They are kept for FAREGATE_EVENT_DAYS, the last 100,000 and 64 MiB of them.
    Export {
        /// The account's name
        #[arg(long, value_name = "NAME")]
        account: String,
        /// Only events after this `seq`
        #[arg(long, value_name = "SEQ", default_value_t = 0)]
        after: u64,
    },
}

/// An event in an export. Scripts rely on the names: add, never rename.
#[derive(Serialize)]
struct EventLine {
    seq: u64,
    #[serde(flatten)]
    event: EventObject,
}

/// Exports events page by page, in memory that does not grow with their number.
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
                "the store has dropped events that were not exported yet"
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
