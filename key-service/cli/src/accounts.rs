//! The commands about accounts.

use std::io::Write;

use clap::Subcommand;
use serde::Serialize;
use shared::{ids::AccountId, money::NanoUsd, table, time::Timestamp};

use crate::{
    arguments::{name, operator, usd},
    failure::operator_error,
    output::write_json,
};
use key_service_management::Management;
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

/// An account in JSON. Scripts rely on the names: add names, but never rename one.
#[derive(Serialize)]
struct AccountLine<'a> {
    id: AccountId,
    name: &'a str,
    credit: NanoUsd,
    held: NanoUsd,
    keys: u64,
    created_at: Timestamp,
}

impl<'a> AccountLine<'a> {
    fn of(account: &'a AccountSummary) -> Self {
        let AccountSummary { id, ref name, credit, held, keys, created_at, .. } = *account;
        Self { id, name, credit, held, keys, created_at }
    }
}

fn credit(text: &str) -> Result<NanoUsd, String> {
    usd(text, NanoUsd::ZERO)
}
