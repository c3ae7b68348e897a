//! What a new installation needs so that its first request can be made: an account with credit, and a management key.

use key_service::management::{Error, Management, accounts::AccountRefused};
use shared::{money::NanoUsd, secret::SecretString};

/// The account of a first run.
pub(crate) const ACCOUNT: &str = "default";
/// Its credit.
pub(crate) const CREDIT: NanoUsd = NanoUsd::from_usd(10);

/// What was made on the first run.
pub(crate) struct FirstRun {
    /// The plaintext of the management key, to be shown once.
    pub(crate) management_key: SecretString,
}

/// Makes account and key where there is no account at all; `None` on every later run.
pub(crate) async fn prepare(management: &Management) -> anyhow::Result<Option<FirstRun>> {
    if !management.accounts().await?.is_empty() {
        return Ok(None);
    }
    let account = match management.create_account(ACCOUNT, CREDIT).await {
        Ok(account) => account,
        // Another process has its first run on the same store just now, and prints what it made.
        Err(Error::Refused(AccountRefused::NameTaken)) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let management_key = management.create_management_key(account, "first run").await?;
    Ok(Some(FirstRun { management_key }))
}
