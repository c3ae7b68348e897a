//! The command that lists refused calls.

use std::io::{BufWriter, Write};

use clap::Subcommand;

use crate::failure::operator_error;
use key_service_management::{Management, refusals::RefusedFilter};
use key_service_objects::Shown as _;

#[derive(Debug, Subcommand)]
pub enum RefusalCommand {
    /// Write an account's last 1,000 refused calls as JSON lines, newest first
    ///
    /// Key-services record refused calls every ten seconds. Calls with an unknown credential are not included.
    List {
        /// The account's name
        #[arg(long, value_name = "NAME")]
        account: String,
    },
}

/// Lists the refused calls in the same form as the management API.
pub(crate) async fn run(
    RefusalCommand::List { account }: RefusalCommand,
    management: &Management,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let id = management.account(&account).await.map_err(operator_error)?;
    let calls = management.refused_calls(id, &RefusedFilter::default()).await?;
    let (mut out, now) = (BufWriter::new(out), management.now());
    for call in &calls {
        serde_json::to_writer(&mut out, &call.shown(now))?;
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}
