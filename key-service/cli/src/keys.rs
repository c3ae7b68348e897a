//! The commands about API keys.

use std::{io::Write, time::Duration};

use anyhow::bail;
use clap::Subcommand;
use shared::{ids::KeyId, secret::ExposeSecret, wire::MAX_GRACE_SECONDS};

use super::{operator, operator_error, refused};
use key_service_management::{Management, governed::Made, rotation::RotationTerms};

/// Commands on API keys.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Give an API key a new plaintext, and print it: it cannot be shown again
    Rotate {
        /// The account's name
        #[arg(long, value_name = "NAME")]
        account: String,
        /// Its id: ak_…
        #[arg(long)]
        id: KeyId,
        /// Seconds for which the previous plaintext works too; 30 days at most
        #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=MAX_GRACE_SECONDS))]
        grace_seconds: u64,
        /// Rotate even while the plaintext before the last rotation works, which ends then
        #[arg(long)]
        force: bool,
    },
}

pub(super) async fn run(
    command: KeyCommand,
    management: &Management,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let KeyCommand::Rotate { account, id, grace_seconds, force } = command;
    let account = management.account(&account).await.map_err(operator_error)?;
    let terms = RotationTerms { grace: Duration::from_secs(grace_seconds), is_forced: force };
    let rotated = management.rotate((account, id), terms, None, operator()).await;
    match rotated.map_err(refused("GET /v1/management/keys/{id}"))? {
        Made::New(_, Some(plaintext)) => writeln!(out, "{}", plaintext.expose_secret())?,
        Made::New(_, None) | Made::Existing(_) | Made::Replayed(_) => bail!("the key was rotated before"),
    }
    Ok(())
}
