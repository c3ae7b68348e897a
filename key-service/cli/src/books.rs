//! The commands that read the books: `journal export` and `usage`. `audit.rs` checks the books.

use std::io::{BufWriter, Write};

use anyhow::ensure;
use clap::{Args, Subcommand};
use shared::ids::KeyId;

mod against;
pub(crate) mod audit;
pub(crate) mod events;
mod lines;
mod parts;
pub(crate) mod refusals;
mod sequence;

use lines::{EntryLine, UsageLineJson};
use parts::UsageBy;
use sequence::read_on;

use crate::{
    failure::operator_error,
    output::{EXPORTED_AT_ONCE, write_json},
};
use domain::usage::{Counts, Day};
use key_service_management::Management;
use key_service_store::store::UsageLine;
use shared::table;

/// Default number of days, including today.
const DAYS: i64 = 30;
/// Maximum number of days in a listing, because the whole listing is in memory.
const MOST_DAYS: i64 = 366;

#[derive(Debug, Subcommand)]
pub enum Journal {
    /// Write an account's journal as JSON lines, in billing order
    ///
    /// To continue later, pass the last `seq` with --after. Entries never change. After `restore`, and after a failover
    /// of Redis, numbers continue far above the earlier ones, so that you miss no entry. If the failover may have lost
    /// the entry with this `seq`, the export fails and says where to continue.
    ///
    /// A capture after the expiry of its hold is a correction: another entry with the same `generation_id` that
    /// replaces `charged` and the tokens of the entry before. Either import entries by `generation_id`, let later
    /// entries replace earlier ones, and add up `charged`; or keep all entries and add up `charged_change`, which is
    /// negative when money is refunded. `key_used` is what the key has spent in total after the entry.
    ///
    /// A capture that comes hours late, after the bills of its time have been dropped, bills nothing: its
    /// `generation_id` is null, `late_generation_id` names the generation, and `charged` is 0.
    Export {
        /// The account's name
        #[arg(long, value_name = "NAME")]
        account: String,
        /// Only entries after this `seq`
        #[arg(long, value_name = "SEQ", default_value_t = 0)]
        after: u64,
    },
}

#[derive(Args, Debug)]
pub struct UsageQuery {
    /// The account's name
    #[arg(long, value_name = "NAME")]
    account: String,
    /// First day, in UTC [default: 29 days before the last]
    #[arg(long, value_name = "DAY", value_parser = day)]
    from: Option<Day>,
    /// Last day, in UTC [default: today]
    #[arg(long, value_name = "DAY", value_parser = day)]
    to: Option<Day>,
    /// Only usage of this key: ak_…
    #[arg(long, value_name = "ID")]
    key: Option<KeyId>,
    /// List by hour instead of by day; or by day and user, as callers name them, instead of by key and model
    #[arg(long, value_enum, conflicts_with = "margin")]
    by: Option<UsageBy>,
    /// Add upstream costs, and the margin between charges and upstream costs, where costs are known
    #[arg(long)]
    margin: bool,
    /// Print a JSON array, with margins
    #[arg(long)]
    json: bool,
}

/// Exports a journal page by page, in constant memory.
pub(crate) async fn journal(
    command: Journal,
    management: &Management,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let Journal::Export { account, after } = command;
    let id = management.account(&account).await.map_err(operator_error)?;
    let (sequence, _) = management.sequences(id).await?;
    let last = management.latest_entries(id, None, 1).await?.first().map_or(0, |entry| entry.number);
    let mut after = read_on(&sequence, after, last, "the journal ends")?;
    let mut out = BufWriter::new(out);
    loop {
        let page = management.journal(id, after, EXPORTED_AT_ONCE).await?;
        if page.gone_until > after {
            tracing::warn!(
                account,
                up_to = page.gone_until,
                "the store has dropped entries that had not been exported"
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
        ensure!(by != UsageBy::User || key.is_none(), "--by user: usage by user has no breakdown by key");
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

/// Columns of a usage listing, followed by those that `--margin` adds.
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

fn day(text: &str) -> Result<Day, String> {
    Day::parse(text).ok_or_else(|| "must be a date such as 2026-11-21".into())
}
