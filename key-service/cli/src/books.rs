//! The commands that read the books: `journal export`, `usage` and `audit`.

use std::{
    io::{BufWriter, Write},
    path::PathBuf,
    time::Duration,
};

use anyhow::{anyhow, bail, ensure};
use clap::{Args, Subcommand};
use serde::Serialize;
use shared::{
    ids::{AccountId, GroupId, KeyId},
    money::NanoUsd,
};

mod against;
pub(crate) mod events;
mod lines;
mod parts;
pub(crate) mod refusals;

use lines::{EntryLine, UsageLineJson};
use parts::UsageBy;

use crate::{
    failure::operator_error,
    output::{EXPORTED_AT_ONCE, write_json},
};
use domain::{
    audit::{Audit, BudgetOwner, Figure, Quantity, SumOwner, Wrong},
    usage::{Counts, Day},
};
use key_service_management::Management;
use key_service_store::store::UsageLine;
use shared::table;

/// Days listed by default, today included.
const DAYS: i64 = 30;
/// Most days of a listing, since all of it is in memory.
const MOST_DAYS: i64 = 366;

/// Commands on the journal.
#[derive(Debug, Subcommand)]
pub enum Journal {
    /// Write the entries of an account's journal as JSON lines, in the order in which generations were billed
    ///
    /// To go on later, pass the last `seq` with --after. Entries never change. After `restore`, numbers go on far above
    /// those before, so that no entry is missed. A capture after the expiry of its hold
    /// is a correction: another entry of the same `generation_id`, whose `charged` and tokens replace those of the
    /// entry before. So either import entries by `generation_id`, the later over the earlier, and add up `charged`;
    /// or keep all entries and add up `charged_change`, which is below zero where money was given back. `key_used` is
    /// the balance of the key after the entry. A capture that comes hours late, after the bills of its time were
    /// dropped, is no bill: its `generation_id` is null, `late_generation_id` names the generation, and `charged` is 0.
    Export {
        /// The account's name
        #[arg(long, value_name = "NAME")]
        account: String,
        /// Only entries after this `seq`
        #[arg(long, value_name = "SEQ", default_value_t = 0)]
        after: u64,
    },
}

/// The usage to list.
#[derive(Args, Debug)]
pub struct UsageQuery {
    /// The account's name
    #[arg(long, value_name = "NAME")]
    account: String,
    /// The first day, in UTC [default: 29 days before the last]
    #[arg(long, value_name = "DAY", value_parser = day)]
    from: Option<Day>,
    /// The last day, in UTC [default: today]
    #[arg(long, value_name = "DAY", value_parser = day)]
    to: Option<Day>,
    /// Only of this key: ak_…
    #[arg(long, value_name = "ID")]
    key: Option<KeyId>,
    /// By hour in place of day, or by the user that callers name, in place of key and model
    #[arg(long, value_enum, conflicts_with = "margin")]
    by: Option<UsageBy>,
    /// With the upstreams' charges, and the margin between charges and the upstreams' charges, where these are known
    #[arg(long)]
    margin: bool,
    /// As a JSON array, margins included
    #[arg(long)]
    json: bool,
}

/// The books to prove.
#[derive(Args, Debug)]
pub struct AuditOf {
    /// The account's name [default: all accounts]
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Compare the journal with an upstream's own record of requests, in place of proving sums
    ///
    /// JSON lines with `id` (the generation, gen_…) or `time` (RFC 3339, while the request was served), and
    /// `prompt_tokens` and `completion_tokens`. A line without a generation is found by time and equal tokens.
    /// Generations that were billed between the first and the last line, and are in no line, are listed as billed and
    /// not served.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Seconds by which an upstream's times may be off
    #[arg(long, value_name = "SECONDS", default_value_t = 5, requires = "against")]
    tolerance: u32,
    /// As JSON: an array of accounts, or the comparison
    #[arg(long)]
    json: bool,
}

impl AuditOf {
    /// Makes the query for the books of all accounts, by their sums.
    pub(crate) fn all() -> Self {
        Self { account: None, against: None, tolerance: 0, json: false }
    }
}

/// Exports a journal page by page, in memory that does not grow with the journal.
pub(crate) async fn journal(
    command: Journal,
    management: &Management,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let Journal::Export { account, after } = command;
    let id = management.account(&account).await.map_err(operator_error)?;
    let (sequence, _) = management.sequences(id).await?;
    let last = management.latest_entries(id, None, 1).await?.first().map_or(0, |entry| entry.number);
    let mut after = sequence.after(after, last).ok_or_else(|| {
        let last = sequence.exported(last);
        anyhow!(
            "--after: the journal ends at {last}, so {after} is of another store, or was lost when the store was restored; \
             import everything again, with --after 0"
        )
    })?;
    let mut out = BufWriter::new(out);
    loop {
        let page = management.journal(id, after, EXPORTED_AT_ONCE).await?;
        if page.gone_until > after {
            tracing::warn!(
                account,
                up_to = page.gone_until,
                "the store has dropped entries that were not exported yet"
            );
        }
        for entry in &page.entries {
            serde_json::to_writer(&mut out, &EntryLine::of(entry, sequence.exported(entry.number)))?;
            out.write_all(b"\n")?;
            after = entry.number;
        }
        out.flush()?;
        if page.entries.len() < EXPORTED_AT_ONCE {
            return Ok(());
        }
    }
}

/// Lists the counters of usage.
pub(crate) async fn usage(
    command: UsageQuery,
    management: &Management,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let UsageQuery { account, from, to, key, by, margin: with_margin, json } = command;
    let to = to.unwrap_or_else(|| management.today());
    let from = from.unwrap_or_else(|| Day::from_number(to.number() - DAYS + 1));
    ensure!(from <= to, "--from: {from} is after {to}");
    ensure!(to.number() - from.number() < MOST_DAYS, "--from: more than {MOST_DAYS} days before {to}");
    let id = management.account(&account).await.map_err(operator_error)?;
    if let Some(by) = by {
        ensure!(by != UsageBy::User || key.is_none(), "--by user: users are not counted by key");
        let sums = management.sums_of_usage(id, &by.search(from..=to, key)).await?;
        return by.write(&sums, json, out);
    }
    let lines = management.usage(id, from..=to, key).await?;
    if json {
        return write_json(out, lines.iter().map(UsageLineJson::of));
    }
    if with_margin {
        table::write(
            out,
            &[&COLUMNS[..], &MARGIN_COLUMNS].concat(),
            lines.iter().map(|line| row(line, true)),
        )?;
    } else {
        table::write(out, &COLUMNS, lines.iter().map(|line| row(line, false)))?;
    }
    Ok(())
}

/// Columns of a listing of usage, and those that operators who ask for margins see beside them.
const COLUMNS: [&str; 8] = ["DAY", "KEY", "MODEL", "REQUESTS", "PROMPT", "CACHED", "COMPLETION", "CHARGED"];
const MARGIN_COLUMNS: [&str; 2] = ["UPSTREAM", "MARGIN"];

fn row(UsageLine { day, payer, counts }: &UsageLine, with_margin: bool) -> Vec<String> {
    let Counts { requests, usage, charged, .. } = &counts.of;
    let mut row = vec![
        day.to_string(),
        payer.key.to_string(),
        payer.model.clone(),
        requests.to_string(),
        usage.prompt.to_string(),
        usage.cached.to_string(),
        usage.completion.to_string(),
        charged.to_string(),
    ];
    if with_margin {
        let known = counts.of.margin();
        row.extend(
            [known.map(|_| counts.of.upstream_cost), known]
                .map(|amount| amount.map_or_else(|| "-".to_owned(), |amount| amount.to_string())),
        );
    }
    row
}

/// Audits an account, or all accounts in turn. Returns an error if the books do not add up.
pub(crate) async fn audit(
    command: AuditOf,
    management: &Management,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let AuditOf { account, against, tolerance, json } = command;
    if let Some(name) = &account {
        // An unknown name is the operator's mistake, and must not pass as an account without faults.
        management.account(name).await.map_err(operator_error)?;
    }
    let accounts = management.accounts().await?.into_iter();
    let accounts = accounts.filter(|a| account.as_ref().is_none_or(|name| a.name == *name));
    if let Some(file) = against {
        let tolerance = Duration::from_secs(tolerance.into());
        return against::run(&file, accounts.collect(), tolerance, json, management, out).await;
    }
    let mut audits = Vec::new();
    for account in accounts {
        if let Some(audit) = management.audit(account.id).await? {
            audits.push((account.id, account.name, audit));
        }
    }
    if json {
        write_json(out, audits.iter().map(|(id, name, audit)| AuditJson::of(*id, name, audit)))?;
    } else {
        for (_, name, audit) in &audits {
            for wrong in &audit.wrong {
                writeln!(out, "{name}: {}", sentence(wrong))?;
            }
        }
    }
    let sum = |figure: fn(&Audit) -> u64| audits.iter().map(|(.., audit)| figure(audit)).sum::<u64>();
    let wrong = sum(|audit| audit.wrong.len() as u64);
    if wrong > 0 {
        bail!("the books do not balance (wrong figures: {wrong})");
    }
    if !json {
        let (accounts, keys, entries) = (audits.len(), sum(|audit| audit.keys), sum(|audit| audit.entries));
        writeln!(out, "the books balance (accounts: {accounts}, keys: {keys}, journal entries: {entries})")?;
    }
    Ok(())
}

fn day(text: &str) -> Result<Day, String> {
    Day::parse(text).ok_or_else(|| "must be a date such as 2026-11-21".into())
}

/// Sentence about a wrong figure and the difference.
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
            (format!("{of} used in the {}", per.as_str()), "its journal allows at the nearest")
        }
        Figure::Held => ("held".to_owned(), "the open holds add up to"),
        Figure::Credit => ("credit".to_owned(), "deposits less what keys used are"),
        Figure::InFlight(of) => (format!("{of} requests in flight"), "its open holds that count are"),
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
            (format!("{key} list of sums of {day} for {model}"), "the sums that there are, are")
        }
        Figure::Hold(generation) => (format!("the hold of {generation}"), "the index of open holds has"),
        Figure::HoldLease(generation) => {
            (format!("the lease of the hold of {generation}"), "the index of open holds has")
        }
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

/// FigureDifference of two figures: above zero if too much is recorded. An amount is a number of USD.
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

/// The number of a figure; an amount counts as its nano-USD.
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

/// An account's audit in JSON. Scripts rely on the names: add, never rename.
#[derive(Serialize)]
struct AuditJson<'a> {
    account_id: AccountId,
    account: &'a str,
    balanced: bool,
    keys: u64,
    entries: u64,
    wrong: Vec<WrongJson>,
}

/// A wrong figure. Key and group are null for a figure of the account.
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
    fn of(account_id: AccountId, account: &'a str, audit: &Audit) -> Self {
        let wrong = audit.wrong.iter().map(|Wrong { figure, recorded, proven }| {
            let (key_id, group_id) = match figure.owner() {
                Some(BudgetOwner::Key(key)) => (Some(key), None),
                Some(BudgetOwner::Group(group)) => (None, Some(group)),
                None => (None, None),
            };
            let (off_by, figure) = (off_by(*recorded, *proven), figure.name());
            WrongJson { figure, key_id, group_id, recorded: value(*recorded), proven: value(*proven), off_by }
        });
        let balanced = audit.wrong.is_empty();
        Self {
            account_id,
            account,
            balanced,
            keys: audit.keys,
            entries: audit.entries,
            wrong: wrong.collect(),
        }
    }
}
