//! The commands that import keys from another gateway.

mod file;
#[cfg(test)]
mod fuzz;
mod jsonl;
mod litellm;

#[cfg(test)]
mod tests;

use std::{io::Write, path::PathBuf};

use anyhow::anyhow;
use clap::{Args, Subcommand};

use file::{name, open};

use crate::{
    arguments::operator,
    failure::{operator_error, store_error},
};
use domain::group::BadGroup;
use key_service_management::{Error, Management};
use key_service_moving::{Draft, ImportRefused, Plan, Report, Wrong};
use shared::table;

/// Maximum number of lines listed in an error.
const NAMED: usize = 20;

#[derive(Debug, Subcommand)]
pub enum ImportCommand {
    /// Import keys from JSON lines: {"sha256": "64 hexadecimal digits", "label": …, "limit": …}
    Keys {
        #[command(flatten)]
        into: Into,
        /// File with one key per line
        #[arg(long, value_name = "KEYS.jsonl")]
        file: PathBuf,
    },
    /// Import keys and teams from LiteLLM's tables, and report how each field was handled
    Litellm {
        #[command(flatten)]
        into: Into,
        /// Files with the tables: JSON, {"table": [row, …]}, or CSV with a header, one table per file
        #[arg(long, value_name = "EXPORT", num_args = 1.., required = true)]
        file: Vec<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub struct Into {
    /// The account's name
    #[arg(long, value_name = "NAME")]
    account: String,
    /// Report what would be imported, and change nothing
    #[arg(long)]
    dry_run: bool,
}

impl ImportCommand {
    /// Returns whether the import changes the store.
    pub(crate) fn writes(&self) -> bool {
        let (Self::Keys { into, .. } | Self::Litellm { into, .. }) = self;
        !into.dry_run
    }
}

pub(crate) async fn run(
    command: ImportCommand,
    management: &Management,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let (into, draft) = match command {
        ImportCommand::Keys { into, file } => {
            (into, jsonl::read(open(&file)?, &name(&file)).map_err(|rows| wrong(&rows))?)
        }
        ImportCommand::Litellm { into, file } => {
            let (draft, report) =
                key_service_moving::litellm::read(litellm::read(&file)?).map_err(|rows| wrong(&rows))?;
            write_report(out, &report)?;
            (into, draft)
        }
    };
    let account = management.account(&into.account).await.map_err(operator_error)?;
    let plan = management
        .import(account, &draft, into.dry_run, operator())
        .await
        .map_err(|error| refused(error, &draft))?;
    write_summary(out, &plan, &draft, into.dry_run)
}

fn write_report(out: &mut (dyn Write + Send), report: &Report) -> anyhow::Result<()> {
    let row = |line: key_service_moving::ReportLine<'_>| {
        [line.table, line.column, &line.rows.to_string(), line.became].map(str::to_owned)
    };
    table::write(out, &["TABLE", "COLUMN", "ROWS", "BECAME"], report.lines().map(row))?;
    writeln!(out)?;
    Ok(())
}

fn write_summary(
    out: &mut (dyn Write + Send),
    plan: &Plan,
    draft: &Draft,
    is_dry_run: bool,
) -> anyhow::Result<()> {
    let (made, ending) = if is_dry_run { ("would make", "; nothing was changed") } else { ("made", "") };
    let revoked = plan.keys.iter().filter(|(key, _)| key.spend.revoked_at.is_some()).count();
    let disabled = plan.keys.iter().filter(|(key, _)| key.spend.disabled).count();
    let (groups, keys) = (plan.groups.len(), plan.keys.len());
    writeln!(
        out,
        "{made} {groups} groups and {keys} keys, {disabled} of them disabled and {revoked} revoked{ending}"
    )?;
    let places = |places: Vec<&str>| {
        let more = if places.len() > NAMED { ", …" } else { "" };
        format!("{}{more}", places[..places.len().min(NAMED)].join(", "))
    };
    let existing: Vec<_> = plan.existing_groups.iter().map(|at| draft.groups[*at].place.as_str()).collect();
    if !existing.is_empty() {
        writeln!(out, "{} groups exist already and stay unchanged: {}", existing.len(), places(existing))?;
    }
    let existing: Vec<_> = plan.existing_keys.iter().map(|at| draft.keys[*at].place.as_str()).collect();
    if !existing.is_empty() {
        writeln!(out, "{} keys exist already and stay unchanged: {}", existing.len(), places(existing))?;
    }
    Ok(())
}

/// Returns the error for rows that cannot be imported.
fn wrong(rows: &[Wrong]) -> anyhow::Error {
    let mut message = "nothing was imported:".to_owned();
    for Wrong { place, reason } in rows.iter().take(NAMED) {
        message.extend(["\n  ", place, ": ", reason]);
    }
    let more = rows.len().saturating_sub(NAMED);
    if more > 0 { anyhow!("{message}\n  and {more} more") } else { anyhow!(message) }
}

fn refused(error: Error<ImportRefused>, draft: &Draft) -> anyhow::Error {
    let at = |key: usize, reason: &str| {
        let place = draft.keys[key].place.clone();
        wrong(&[Wrong { place, reason: reason.to_owned() }])
    };
    match error {
        Error::Refused(ImportRefused::Taken(key)) => at(key, "belongs to another account"),
        Error::Refused(ImportRefused::BadGroup(key, BadGroup::Archived)) => at(key, "its group is archived"),
        Error::Refused(ImportRefused::BadGroup(key, BadGroup::Unknown | BadGroup::TooDeep)) => {
            let group = draft.keys[key].group.as_deref().unwrap_or_default();
            at(
                key,
                &format!(
                    "no group of the account has the external_id `{group}`; import or create the group first"
                ),
            )
        }
        Error::Refused(ImportRefused::TooManyKeys) => {
            anyhow!(
                "--account: the import would exceed the account's maximum number of keys; nothing was imported"
            )
        }
        Error::Refused(ImportRefused::TooManyGroups) => {
            anyhow!(
                "--account: the import would exceed the account's maximum number of groups; nothing was imported"
            )
        }
        Error::Store(cause) => match store_error(&cause, "accounts list") {
            error if matches!(cause, key_service_store::store::StoreError::Unavailable(_)) => {
                error.context("part of the import may have been made: run it again to complete it")
            }
            error => error,
        },
    }
}
