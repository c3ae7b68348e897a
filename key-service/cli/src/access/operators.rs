//! The commands about the operators of the installation, who sign in to the pages at `/operator`.

use std::io::Write;

use crate::{
    arguments::{name, operator},
    failure::store_error,
};
use anyhow::anyhow;
use clap::Subcommand;
use key_service_management::{Error, Management, members::MemberRefused, operators::link};
use shared::table;

#[derive(Debug, Subcommand)]
pub enum OperatorsCommand {
    /// Create an operator, and print a link that signs in once, within 15 minutes
    ///
    /// At `/operator`, operators see every account, create accounts and add credit. They are not members of any
    /// account. They set up a second factor at the first sign-in, and enter a code from it at every later sign-in.
    Create {
        /// Name of the operator, as shown in the events of accounts
        #[arg(long, value_name = "WHO", value_parser = name)]
        name: String,
    },
    /// List the operators, oldest first
    List,
    /// Print a link that signs an operator in once, within 15 minutes
    ///
    /// The operator's earlier links stop working. If phone and recovery codes are lost, remove the operator, and create
    /// an operator of this name again.
    SignInLink {
        /// The operator's name
        #[arg(long, value_name = "WHO")]
        name: String,
    },
    /// Remove an operator; its sessions end at once
    Remove {
        /// The operator's name
        #[arg(long, value_name = "WHO")]
        name: String,
    },
}

pub(crate) async fn run(
    command: OperatorsCommand,
    management: &Management,
    public: &str,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    match command {
        OperatorsCommand::Create { name } => {
            let token = management.create_operator(&name, operator()).await.map_err(refused)?;
            writeln!(out, "{}", link(public, &token))?;
        }
        OperatorsCommand::List => {
            let rows = management.operators().await?.into_iter().map(|operator| {
                let has_factor = if operator.second_factor.is_some() { "yes" } else { "-" };
                [operator.name, has_factor.to_owned(), operator.created_at.to_string()]
            });
            table::write(out, &["NAME", "SECOND FACTOR", "CREATED"], rows)?;
        }
        OperatorsCommand::SignInLink { name } => {
            let token = management.operator_link(&name).await.map_err(refused)?;
            writeln!(out, "{}", link(public, &token))?;
            tracing::info!(operator = name, "the earlier sign-in link of this operator no longer works");
        }
        OperatorsCommand::Remove { name } => {
            management.remove_operator(&name, operator()).await.map_err(refused)?;
            writeln!(out, "{name} is removed; its sessions have ended")?;
        }
    }
    Ok(())
}

/// Turns an error into a message for the operator. A refusal names the flag that caused it.
fn refused(error: Error<MemberRefused>) -> anyhow::Error {
    match error {
        Error::Refused(MemberRefused::NotFound) => anyhow!("--name: there is no such operator"),
        Error::Refused(MemberRefused::NameTaken) => {
            anyhow!("--name: an operator with this name already exists")
        }
        Error::Refused(other) => anyhow!("--name: {other}"),
        Error::Store(cause) => store_error(&cause, "operators list"),
    }
}
