//! The `audit` command.

use std::{io::Write, path::PathBuf, time::Duration};

use anyhow::{bail, ensure};
use clap::Args;
use serde::Serialize;
use shared::{
    ids::{AccountId, GroupId, KeyId},
    money::NanoUsd,
};

use crate::{books::against, output::write_json};
use domain::audit::{Audit, BudgetOwner, Figure, Quantity, SumOwner, Wrong};
use key_service_management::Management;
use key_service_store::store::StoreError;

#[derive(Args, Debug)]
pub struct AuditOf {
    /// The account's name [default: all accounts]
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Compare the journal with an upstream's own record of requests instead of checking sums
    ///
    /// The file has JSON lines with `id` (the generation, gen_…) or `time` (RFC 3339, during the request), and with
    /// `prompt_tokens` and `completion_tokens`. A line without an id is matched by time and equal tokens.
    /// Generations that were billed between the file's first and last line but match no line are listed as billed but
    /// not served.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Tolerance for the upstream's times, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, requires = "against")]
    tolerance: u32,
    /// Print JSON: an array of accounts, or the comparison
    #[arg(long)]
    json: bool,
}

impl AuditOf {
    pub(crate) fn all() -> Self {
        Self { account: None, against: None, tolerance: 0, json: false }
    }
}

type Audited = (AccountId, String, Result<Audit, StoreError>);

/// Audits an account, or all accounts in turn. Fails if the books do not balance.
pub(crate) async fn audit(
    command: AuditOf,
    management: &Management,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let AuditOf { account, against, tolerance, json } = command;
    let mut accounts = management.audited_accounts().await?;
    if let Some(name) = &account {
        accounts.retain(|(_, of)| of == name);
        // Otherwise a mistyped name would look like an account without faults.
        ensure!(!accounts.is_empty(), "--account: there is no account of this name");
    }
    if let Some(file) = against {
        let tolerance = Duration::from_secs(tolerance.into());
        let accounts = accounts.into_iter().map(|(id, _)| id).collect();
        return against::run(&file, accounts, tolerance, json, management, out).await;
    }
    let mut audits: Vec<Audited> = Vec::new();
    for (id, name) in accounts {
        match management.audit(id).await {
            Ok(Some(audit)) => audits.push((id, name, Ok(audit))),
            // While an account is being created, the store has only its name.
            Ok(None) => {
                ensure!(
                    account.is_none(),
                    "--account: this account has no records yet, so it was not audited"
                );
            }
            // The audit continues with the other accounts.
            Err(damaged @ StoreError::Damaged(_)) => audits.push((id, name, Err(damaged))),
            Err(
                e @ (StoreError::Unavailable(_)
                | StoreError::Busy(_)
                | StoreError::Full
                | StoreError::Conflict(_)),
            ) => {
                return Err(e.into());
            }
        }
    }
    if json {
        write_json(out, audits.iter().map(AuditJson::of))?;
    } else {
        for (_, name, audit) in &audits {
            match audit {
                Ok(audit) => {
                    for wrong in &audit.wrong {
                        writeln!(out, "{name}: {}", sentence(wrong))?;
                    }
                }
                Err(damaged) => writeln!(out, "{name}: {damaged}")?,
            }
        }
    }
    let sum = |figure: fn(&Audit) -> u64| {
        audits.iter().filter_map(|(.., audit)| audit.as_ref().ok()).map(figure).sum::<u64>()
    };
    let unread = audits.iter().filter(|(.., audit)| audit.is_err()).count();
    let wrong = sum(|audit| audit.wrong.len() as u64);
    match (wrong, unread) {
        (0, 0) => {}
        (_, 0) => bail!("the books do not balance (wrong figures: {wrong})"),
        (_, _) => {
            bail!("the books do not balance (wrong figures: {wrong}, accounts that cannot be read: {unread})")
        }
    }
    if !json {
        let (accounts, keys, entries) = (audits.len(), sum(|audit| audit.keys), sum(|audit| audit.entries));
        writeln!(out, "the books balance (accounts: {accounts}, keys: {keys}, journal entries: {entries})")?;
    }
    Ok(())
}

/// Describes a wrong figure, and by how much it is wrong.
fn sentence(Wrong { figure, recorded, proven }: &Wrong) -> String {
    let (whose, proof) = match figure {
        Figure::Entry(key, number) => {
            (format!("{key} used after journal entry {number}"), "the entries before it add up to")
        }
        Figure::Previous(of, number) => {
            (format!("{of} number of the entry before journal entry {number}"), "its journal has")
        }
        Figure::Last(of) => (format!("{of} number of the last entry"), "its journal has"),
        Figure::Used(of) => (format!("{of} used"), "its journal adds up to"),
        Figure::BudgetHeld(of) => (format!("{of} held"), "its open holds add up to"),
        Figure::Window(of, per) => {
            (format!("{of} used in the {}", per.as_str()), "the closest value that its journal allows is")
        }
        Figure::Held => ("held".to_owned(), "the open holds add up to"),
        Figure::Credit => ("credit".to_owned(), "deposits minus charges are"),
        Figure::InFlight(of) => (format!("{of} requests in flight"), "the open holds in flight are"),
        Figure::Entries => ("number of journal entries".to_owned(), "there are"),
        Figure::Bill(generation) => (format!("{generation} charged"), "its journal entries add up to"),
        Figure::Sum(SumOwner::Payer(key, model), day) => {
            (format!("{key} charged on {day} for {model}"), "its journal adds up to")
        }
        Figure::Sum(SumOwner::Model(model), day) => {
            (format!("charged on {day} for {model}"), "the journal adds up to")
        }
        Figure::Sum(SumOwner::Group(group), day) => {
            (format!("{group} charged on {day}"), "its journal adds up to")
        }
        Figure::Sum(SumOwner::Users(part), day) => {
            (format!("charged on {day} for users of record {part}"), "the journal adds up to")
        }
        Figure::KeyCount(key, day, model, counter) => {
            (format!("{key} {} on {day} for {model}", counter.as_words()), "its journal adds up to")
        }
        Figure::ModelCount(day, model, counter) => {
            (format!("{} on {day} for {model}", counter.as_words()), "the journal adds up to")
        }
        Figure::Part(part, day, counter) => {
            (format!("{part}: {} on {day}", counter.as_words()), "the journal adds up to")
        }
        Figure::Listed(key, day, model) => {
            (format!("{key} list of sums of {day} for {model}"), "the existing sums are")
        }
        Figure::Hold(generation) => (format!("the hold of {generation}"), "the index of open holds has"),
        Figure::HoldLease(generation) => {
            (format!("the lease of the hold of {generation}"), "the index of open holds has")
        }
        Figure::FirstEntry => ("number of the first journal entry".to_owned(), "it may be at most"),
        Figure::LastEvent => ("number of the last event".to_owned(), "the log of events has"),
        Figure::Events => ("number of events".to_owned(), "there are"),
        Figure::LastExpiry => {
            ("time of the last expiry, in milliseconds,".to_owned(), "the last expiry in the journal has")
        }
        Figure::LastOfDay(of, day) => {
            (format!("number of the last entry in the sums of {day} {}", whose_sum(of)), "the journal has")
        }
        Figure::Stored(stored) if *proven == Quantity::Count(0) => {
            return format!("{stored} exists, although no other record refers to it");
        }
        Figure::Stored(stored) => return format!("{stored} is missing, or does not fit the other records"),
        Figure::Keys => ("number of keys".to_owned(), "the list has"),
        Figure::Groups => ("number of groups".to_owned(), "the list has"),
        Figure::KeysOfGroup(group) => (format!("{group} number of keys"), "the list has"),
        Figure::ChildGroups(group) => (format!("{group} number of child groups"), "the list has"),
    };
    let off = match off_by(*recorded, *proven) {
        FigureDifference::Usd(amount) => format!("{amount} USD"),
        FigureDifference::Count(count) => count.to_string(),
    };
    format!("{whose} is {recorded}, but {proof} {proven} (off by {off})")
}

/// Describes whose daily sum this is.
fn whose_sum(of: &SumOwner) -> String {
    match of {
        SumOwner::Payer(key, model) => format!("of {key} for {model}"),
        SumOwner::Model(model) => format!("for {model}"),
        SumOwner::Group(group) => format!("of {group}"),
        SumOwner::Users(part) => format!("of users of record {part}"),
    }
}

/// By how much a recorded figure is too high, or, if negative, too low. Amounts are in USD.
#[derive(Serialize)]
#[serde(untagged)]
enum FigureDifference {
    Usd(NanoUsd),
    Count(i64),
}

fn off_by(recorded: Quantity, proven: Quantity) -> FigureDifference {
    match (recorded, proven) {
        (Quantity::Usd(recorded), Quantity::Usd(proven)) => {
            FigureDifference::Usd(NanoUsd::from_nanos(recorded.nanos().saturating_sub(proven.nanos())))
        }
        (Quantity::Count(_), _) | (_, Quantity::Count(_)) => {
            FigureDifference::Count(count(recorded).saturating_sub(count(proven)))
        }
    }
}

/// Returns a quantity as a number. An amount is in nano-USD.
fn count(quantity: Quantity) -> i64 {
    match quantity {
        Quantity::Usd(amount) => amount.nanos(),
        Quantity::Count(count) => i64::try_from(count).unwrap_or(i64::MAX),
    }
}

fn value(quantity: Quantity) -> FigureDifference {
    match quantity {
        Quantity::Usd(amount) => FigureDifference::Usd(amount),
        Quantity::Count(_) => FigureDifference::Count(count(quantity)),
    }
}

/// An account's audit in JSON. Scripts rely on the names: add names, but never rename one.
#[derive(Serialize)]
struct AuditJson<'a> {
    account_id: AccountId,
    account: &'a str,
    balanced: bool,
    keys: u64,
    entries: u64,
    wrong: Vec<WrongJson>,
    /// The reason why the account's records cannot be read; null if they can be read.
    error: Option<String>,
}

/// A wrong figure. Key and group are null if the figure belongs to the account.
#[derive(Serialize)]
struct WrongJson {
    figure: &'static str,
    key_id: Option<KeyId>,
    group_id: Option<GroupId>,
    recorded: FigureDifference,
    proven: FigureDifference,
    off_by: FigureDifference,
}

impl<'a> AuditJson<'a> {
    fn of((account_id, account, audit): &'a Audited) -> Self {
        let wrong = audit.iter().flat_map(|audit| &audit.wrong).map(|Wrong { figure, recorded, proven }| {
            let (key_id, group_id) = match figure.owner() {
                Some(BudgetOwner::Key(key)) => (Some(key), None),
                Some(BudgetOwner::Group(group)) => (None, Some(group)),
                None => (None, None),
            };
            let (off_by, figure) = (off_by(*recorded, *proven), figure.name());
            WrongJson { figure, key_id, group_id, recorded: value(*recorded), proven: value(*proven), off_by }
        });
        let figure = |figure: fn(&Audit) -> u64| audit.as_ref().map_or(0, figure);
        Self {
            account_id: *account_id,
            account,
            balanced: audit.as_ref().is_ok_and(|audit| audit.wrong.is_empty()),
            keys: figure(|audit| audit.keys),
            entries: figure(|audit| audit.entries),
            wrong: wrong.collect(),
            error: audit.as_ref().err().map(ToString::to_string),
        }
    }
}
