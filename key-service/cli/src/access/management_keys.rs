//! The commands about management keys.

use std::io::Write;

use anyhow::anyhow;
use clap::Subcommand;
use serde::Serialize;
use shared::{
    ids::{GroupId, ManagementKeyId},
    secret::ExposeSecret,
    table,
    time::Timestamp,
};

use crate::{
    arguments::{name, operator, time},
    failure::{operator_error, store_error},
    output::write_json,
};
use domain::access::{Access, Scope};
use key_service_management::{
    Error, Management,
    management_keys::{ManagementKeyRefused, ManagementKeySettings},
};
use key_service_store::store::ManagementKey;

#[derive(Debug, Subcommand)]
pub enum ManagementKeyCommand {
    /// Create a management key, and print it; it cannot be shown again
    Create {
        /// Name of the account whose API keys the key manages
        #[arg(long, value_name = "NAME")]
        account: String,
        /// Name of the key
        #[arg(long, value_parser = name)]
        name: String,
        /// What the key may do: full, or read (which changes nothing)
        #[arg(long, value_parser = scope, default_value = Scope::Full.as_str())]
        scope: Scope,
        /// Limit the key to the API keys of this group and its child groups: grp_…
        #[arg(long, value_name = "ID")]
        group: Option<GroupId>,
        /// Time of expiry, such as 2027-12-31T23:59:59Z
        #[arg(long, value_name = "TIME", value_parser = time)]
        expires_at: Option<Timestamp>,
    },
    /// List the management keys of an account, oldest first
    List {
        /// The account's name
        #[arg(long, value_name = "NAME")]
        account: String,
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Revoke a management key permanently
    Revoke {
        /// Id of the key: mk_…
        #[arg(long)]
        id: ManagementKeyId,
    },
}

pub(crate) async fn run(
    command: ManagementKeyCommand,
    management: &Management,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    match command {
        ManagementKeyCommand::Create { account, name, scope, group, expires_at } => {
            let account = management.account(&account).await.map_err(operator_error)?;
            let settings = ManagementKeySettings { name, access: Access { scope, group }, expires_at };
            let plaintext =
                management.create_management_key(account, settings, operator()).await.map_err(refused)?;
            writeln!(out, "{}", plaintext.expose_secret())?;
        }
        ManagementKeyCommand::List { account, json } => {
            let account = management.account(&account).await.map_err(operator_error)?;
            let keys = management.management_keys(account).await?;
            if json {
                return write_json(out, keys.iter().map(Line::of));
            }
            let head = ["ID", "NAME", "KEY", "SCOPE", "GROUP", "CREATED", "EXPIRES", "LAST USED", "REVOKED"];
            table::write(out, &head, keys.iter().map(row))?;
        }
        ManagementKeyCommand::Revoke { id } => {
            let revoked = management.revoke_management_key(id, operator()).await.map_err(refused)?;
            let at = revoked.revoked_at.map_or_else(String::new, |at| format!(" since {at}"));
            writeln!(out, "{id} ({}) is revoked{at}", revoked.name)?;
        }
    }
    Ok(())
}

/// A management key in JSON. Scripts rely on the names: add names, but never rename one.
#[derive(Serialize)]
struct Line<'a> {
    id: ManagementKeyId,
    name: &'a str,
    key_hint: &'a str,
    scope: &'static str,
    group_id: Option<GroupId>,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    last_used_at: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
}

impl<'a> Line<'a> {
    fn of(key: &'a ManagementKey) -> Self {
        let ManagementKey { id, name, hint, access, created_at, expires_at, last_used_at, revoked_at } = key;
        Self {
            id: *id,
            name,
            key_hint: hint,
            scope: access.scope.as_str(),
            group_id: access.group,
            created_at: *created_at,
            expires_at: *expires_at,
            last_used_at: *last_used_at,
            revoked_at: *revoked_at,
        }
    }
}

fn row(key: &ManagementKey) -> [String; 9] {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let time = |at: Option<Timestamp>| or_none(at.map(|at| at.to_string()));
    [
        key.id.to_string(),
        key.name.clone(),
        key.hint.clone(),
        key.access.scope.as_str().to_owned(),
        or_none(key.access.group.map(|group| group.to_string())),
        key.created_at.to_string(),
        time(key.expires_at),
        time(key.last_used_at),
        time(key.revoked_at),
    ]
}

fn scope(text: &str) -> Result<Scope, String> {
    Scope::parse(text).ok_or_else(|| format!("must be {} or {}", Scope::Full.as_str(), Scope::Read.as_str()))
}

/// Turns an error into a message for the operator. A refusal names the flag that caused it.
fn refused(error: Error<ManagementKeyRefused>) -> anyhow::Error {
    let flag = match error {
        Error::Refused(ManagementKeyRefused::NotFound) => "--id",
        Error::Refused(ManagementKeyRefused::UnknownGroup) => "--group",
        Error::Refused(ManagementKeyRefused::TooMany) => "--account",
        // Commands send no idempotency key, so this does not happen.
        Error::Refused(ManagementKeyRefused::Reused) => "management-keys",
        Error::Store(cause) => return store_error(&cause, "management-keys list"),
    };
    anyhow!("{flag}: {error}")
}
