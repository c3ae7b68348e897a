//! The commands about API keys.

use std::{io::Write, time::Duration};

use anyhow::anyhow;
use clap::Subcommand;
use shared::{error::ApiError, ids::KeyId, secret::ExposeSecret, wire::MAX_GRACE_SECONDS};

use super::{operator, operator_error, store_error};
use key_service_management::{Error, Issued, Management, rotation::RotationTerms};

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
    match management.rotate((account, id), terms, None, operator()).await {
        Ok(Issued::New { plaintext, .. }) => writeln!(out, "{}", plaintext.expose_secret())?,
        Ok(Issued::Replayed(_)) => return Err(anyhow!("the key was rotated before")),
        Err(Error::Refused(refused)) => return Err(anyhow!("{}", ApiError::from(refused).message)),
        Err(Error::Store(cause)) => return Err(store_error(&cause, "GET /v1/management/keys/{id}")),
    }
    Ok(())
}
