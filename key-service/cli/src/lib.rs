//! The operator's commands: accounts, credit, management keys, and the books.

/// Commands that manage access: members, operators and management keys.
mod access {
    pub(crate) mod management_keys;
    pub(crate) mod members;
    pub(crate) mod operators;
}
mod accounts;
mod arguments;
mod backup_place;
mod books;
mod catalogue;
mod credits;
mod failure;
mod import;
/// Commands for keys, groups and webhooks.
mod nouns {
    pub(crate) mod groups;
    pub(crate) mod keys;
    pub(crate) mod object;
    pub(crate) mod webhooks;
}
mod output;
mod store_place;

use std::io::Write;

use clap::Subcommand;
use shared_process::{doctor::DoctorOptions, log_level::LogLevel};
use shared_rpc::spool_list::SpoolCommand;

use key_service_management::Management;

use access::{
    management_keys::{self, ManagementKeyCommand},
    members::{self, MemberCommand},
    operators::{self, OperatorsCommand},
};
use accounts::Accounts;
pub use backup_place::{BackupTo, RestoreFrom};
use books::{events, refusals};
pub use catalogue::{Catalogue, CatalogueEntry, ListedModel, PriceList, catalogue};
use credits::Credits;
use nouns::{
    groups::{self, GroupCommand},
    keys::{self, KeyCommand},
    object::ObjectCommand,
    webhooks::{self, WebhookCommand},
};
use output::unless_read_enough;
pub use store_place::{StoreCommand, StoreCopy, StoreShow};

/// The operator's commands, which are the same in every program with a store.
#[derive(Debug, Subcommand)]
pub enum OperatorCommand {
    #[command(flatten)]
    Stored(Command),
    /// Charges (captures) that a gateway has not delivered yet
    #[command(subcommand)]
    Spool(SpoolCommand),
    /// Show or replace the log filter of the running process
    LogLevel(LogLevel),
    /// Check the catalogue of models, or print entries for it from a public price list
    #[command(subcommand)]
    Catalogue(Catalogue),
    /// Check the whole installation and report what works and what to fix
    ///
    /// Checks settings, secrets, catalogue, store (connection, space, persistence), clock, limits, certificates and
    /// every upstream. Changes no setting, no key and no money. Exit status: 0 if all is well, 1 with warnings, 2 with
    /// errors.
    Doctor(DoctorOptions),
    /// Copy an SQLite file while it is in use, check the copy, and replace the previous backup with it
    ///
    /// Not for Redis: use `redis-cli --rdb` there, as docs/backup.md explains.
    Backup(BackupTo),
    /// Restore an SQLite file from a backup; the replaced file is kept under another name
    ///
    /// The command refuses to run while a program has the file open. Not for Redis.
    Restore(RestoreFrom),
    /// Copy everything to another store, or show records
    #[command(subcommand)]
    Store(StoreCommand),
}

/// Commands that need the store.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Accounts, which own keys and credit
    #[command(subcommand)]
    Accounts(Accounts),
    /// Prepaid credit
    #[command(subcommand)]
    Credits(Credits),
    /// Management keys, which manage the API keys of an account
    #[command(subcommand)]
    ManagementKeys(ManagementKeyCommand),
    /// API keys, which make model calls
    #[command(subcommand)]
    Keys(KeyCommand),
    /// Groups of API keys with shared limits, such as teams, courses or customers
    #[command(subcommand)]
    Groups(GroupCommand),
    /// Import keys, with what they have spent, from another gateway; callers keep their keys
    #[command(subcommand)]
    Import(import::ImportCommand),
    /// The people who sign in to the dashboard of an account
    #[command(subcommand)]
    Members(MemberCommand),
    /// Print a link that signs a member in to the dashboard once, within 15 minutes
    ///
    /// The member's earlier links stop working. A member with a second factor also has to enter a code. If the member
    /// has lost both phone and recovery codes, remove the second factor first, with `members remove-second-factor`.
    SignInLink(members::SignInLink),
    /// The people who run the installation and sign in at `/operator`
    #[command(subcommand)]
    Operators(OperatorsCommand),
    /// The bills of all generations
    #[command(subcommand)]
    Journal(books::Journal),
    /// An account's refused calls
    #[command(subcommand)]
    Refusals(refusals::RefusalCommand),
    /// Who changed what in an account, and which thresholds were crossed
    #[command(subcommand)]
    Events(events::EventCommand),
    /// Addresses that receive an account's events
    #[command(subcommand)]
    Webhooks(WebhookCommand),
    /// List usage by day, key and model
    Usage(books::UsageQuery),
    /// Check that balances, usage, remembered bills and indexes agree with the journal, the open holds and the deposits
    ///
    /// Safe to run on a busy server. Lists every figure that is off, and by how much. Exit status: 0 if the books
    /// balance, 1 if they do not balance or cannot be read.
    Audit(books::audit::AuditOf),
}

impl Command {
    pub fn audit() -> Self {
        Self::Audit(books::audit::AuditOf::all())
    }

    /// Returns whether the command may create an installation. All other commands need an existing installation.
    pub const fn begins_installation(&self) -> bool {
        matches!(self, Self::Accounts(Accounts::Create { .. }))
    }

    /// Returns whether the command changes the store.
    pub fn writes(&self) -> bool {
        match self {
            Self::Accounts(Accounts::Create { .. })
            | Self::Credits(Credits::Add { .. })
            | Self::ManagementKeys(
                ManagementKeyCommand::Create { .. } | ManagementKeyCommand::Revoke { .. },
            )
            | Self::Keys(
                KeyCommand::Create { .. }
                | KeyCommand::Object(ObjectCommand::Update { .. })
                | KeyCommand::Rotate { .. }
                | KeyCommand::Revoke(_),
            )
            | Self::Groups(
                GroupCommand::Create { .. }
                | GroupCommand::Object(ObjectCommand::Update { .. })
                | GroupCommand::Archive(_),
            )
            | Self::Members(
                MemberCommand::Invite { .. }
                | MemberCommand::RemoveSecondFactor { .. }
                | MemberCommand::Remove { .. },
            )
            | Self::SignInLink(_)
            | Self::Operators(
                OperatorsCommand::Create { .. }
                | OperatorsCommand::SignInLink { .. }
                | OperatorsCommand::Remove { .. },
            )
            | Self::Webhooks(
                WebhookCommand::Create { .. }
                | WebhookCommand::Object(ObjectCommand::Update { .. })
                | WebhookCommand::Test(_)
                | WebhookCommand::Delete(_),
            ) => true,
            Self::Import(command) => command.writes(),
            Self::Accounts(Accounts::List { .. })
            | Self::ManagementKeys(ManagementKeyCommand::List { .. })
            | Self::Keys(KeyCommand::Object(ObjectCommand::List { .. } | ObjectCommand::Show(_)))
            | Self::Groups(GroupCommand::Object(ObjectCommand::List { .. } | ObjectCommand::Show(_)))
            | Self::Members(MemberCommand::List { .. })
            | Self::Operators(OperatorsCommand::List)
            | Self::Webhooks(WebhookCommand::Object(ObjectCommand::List { .. } | ObjectCommand::Show(_)))
            | Self::Journal(books::Journal::Export { .. })
            | Self::Refusals(refusals::RefusalCommand::List { .. })
            | Self::Events(events::EventCommand::Export { .. })
            | Self::Usage(_)
            | Self::Audit(_) => false,
        }
    }
}

impl Command {
    /// Returns whether the command may name models. Such a command needs the catalogue, which has the models' aliases.
    pub const fn names_models(&self) -> bool {
        matches!(
            self,
            Self::Keys(KeyCommand::Create { .. } | KeyCommand::Object(ObjectCommand::Update { .. }))
                | Self::Groups(
                    GroupCommand::Create { .. } | GroupCommand::Object(ObjectCommand::Update { .. })
                )
                | Self::Import(_)
        )
    }
}

/// Runs a command, and writes only its result to `out`.
///
/// Links begin with `public`, the address that clients use.
pub async fn run(
    command: Command,
    management: &Management,
    public: &str,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    match command {
        Command::Accounts(command) => accounts::run(command, management, out).await,
        Command::Credits(command) => credits::run(command, management, out).await,
        Command::ManagementKeys(command) => management_keys::run(command, management, out).await,
        Command::Keys(command) => keys::run(command, management, out).await,
        Command::Groups(command) => groups::run(command, management, out).await,
        Command::Import(command) => import::run(command, management, out).await,
        Command::Members(command) => members::run(command, management, public, out).await,
        Command::SignInLink(command) => members::sign_in_link(command, management, public, out).await,
        Command::Operators(command) => operators::run(command, management, public, out).await,
        Command::Journal(command) => {
            books::journal(command, management, out).await.or_else(unless_read_enough)
        }
        Command::Events(command) => events::run(command, management, out).await.or_else(unless_read_enough),
        Command::Refusals(command) => {
            refusals::run(command, management, out).await.or_else(unless_read_enough)
        }
        Command::Webhooks(command) => webhooks::run(command, management, out).await,
        Command::Usage(command) => books::usage(command, management, out).await.or_else(unless_read_enough),
        Command::Audit(command) => books::audit::audit(command, management, out).await,
    }
}

#[cfg(test)]
mod tests;
