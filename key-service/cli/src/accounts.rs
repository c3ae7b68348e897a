//! The commands about accounts.

use std::io::Write;

use anyhow::anyhow;
use clap::Subcommand;
use serde::Serialize;
use shared::{error::ApiError, ids::AccountId, money::NanoUsd, table, time::Timestamp};

use crate::{
    arguments::{name, operator, usd},
    failure::{operator_error, store_error},
    output::write_json,
};
use domain::ledger::StandingAct;
use key_service_management::{Error, Management};
use key_service_store::store::AccountSummary;

#[derive(Debug, Subcommand)]
pub enum Accounts {
    /// Create an account, and print its id
    Create {
        /// Name of the account, unique in the installation
        #[arg(long, value_parser = name)]
        name: String,
        /// Initial credit in USD
        #[arg(long, value_name = "USD", value_parser = credit, default_value = "0", allow_negative_numbers = true)]
        credit: NanoUsd,
    },
    /// Suspend an account: its API keys are refused, and only operators change it
    Suspend {
        /// The account's name
        #[arg(long, value_name = "NAME")]
        account: String,
        /// Why; the account's members see it
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Make a suspended account active again
    Restore {
        /// The account's name
        #[arg(long, value_name = "NAME")]
        account: String,
    },
    /// Close a suspended account permanently; its credit and what is held must be 0
    Close {
        /// The account's name
        #[arg(long, value_name = "NAME")]
        account: String,
    },
    /// List all accounts, oldest first
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
}

pub(crate) async fn run(
    command: Accounts,
    management: &Management,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    match command {
        Accounts::Create { name, credit } => {
            let id = management.create_account(&name, credit, operator()).await.map_err(operator_error)?;
            writeln!(out, "{id}")?;
        }
        Accounts::Suspend { account, reason } => {
            stand(&account, StandingAct::Suspend(reason), management, out).await?;
        }
        Accounts::Restore { account } => stand(&account, StandingAct::Restore, management, out).await?,
        Accounts::Close { account } => stand(&account, StandingAct::Close, management, out).await?,
        Accounts::List { json: true } => {
            let accounts = management.accounts().await?;
            write_json(out, accounts.iter().map(AccountLine::of))?;
        }
        Accounts::List { json: false } => {
            let accounts = management.accounts().await?;
            let rows = accounts.iter().map(|account| {
                let AccountSummary { id, name, credit, held, keys, created_at, .. } = account;
                [
                    id.to_string(),
                    name.clone(),
                    credit.to_string(),
                    held.to_string(),
                    keys.to_string(),
                    created_at.to_string(),
                ]
            });
            table::write(out, &["ID", "NAME", "CREDIT", "HELD", "KEYS", "CREATED"], rows)?;
        }
    }
    Ok(())
}

async fn stand(
    name: &str,
    to: StandingAct,
    management: &Management,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let id = management.account(name).await.map_err(operator_error)?;
    let account = management.change_standing(id, to, operator()).await.map_err(|error| match error {
        Error::Refused(refused) => anyhow!("{}", ApiError::from(refused).message),
        Error::Store(cause) => store_error(&cause, "accounts list --json"),
    })?;
    writeln!(out, "the account {name} is {}", account.status().as_str())?;
    Ok(())
}

/// An account in JSON. Scripts rely on the names: add names, but never rename one.
#[derive(Serialize)]
struct AccountLine<'a> {
    id: AccountId,
    name: &'a str,
    credit: NanoUsd,
    held: NanoUsd,
    keys: u64,
    created_at: Timestamp,
    status: &'static str,
}

impl<'a> AccountLine<'a> {
    fn of(account: &'a AccountSummary) -> Self {
        let AccountSummary { id, ref name, credit, held, keys, created_at, .. } = *account;
        Self { id, name, credit, held, keys, created_at, status: account.status().as_str() }
    }
}

fn credit(text: &str) -> Result<NanoUsd, String> {
    usd(text, NanoUsd::ZERO)
}
