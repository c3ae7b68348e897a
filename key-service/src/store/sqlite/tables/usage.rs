//! Counters by payer and day.

use std::ops::RangeInclusive;

use rusqlite::{Connection, Row, params};
use shared::{
    ids::{AccountId, GroupId, KeyId},
    tokens::{Usage, UsageDetails},
};

use super::{money, payer, tokens};
use crate::store::UsageLine;
use domain::{
    ledger::Payer,
    usage::{Added, COUNTED, Counts, Day},
};

/// Columns of a line in the order of [`line`], of a table named `u`.
const COLUMNS: &str = "u.key, u.model, u.group_id, u.parent, u.requests, u.prompt, u.cached, u.completion,
    u.cache_write, u.cache_write_long, u.audio_input, u.images, u.reasoning, u.audio_output,
    u.charged, u.upstream_cost, u.charged_at_known_cost, u.day";

/// Adds to a counter.
pub(crate) fn add(connection: &Connection, account: AccountId, added: &Added) -> rusqlite::Result<()> {
    let sql = "INSERT INTO usage VALUES
                   (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)
               ON CONFLICT DO UPDATE
               SET requests = min(requests + ?7, ?20), prompt = min(prompt + ?8, ?20),
                   cached = min(cached + ?9, ?20), completion = min(completion + ?10, ?20),
                   cache_write = min(cache_write + ?11, ?20), cache_write_long = min(cache_write_long + ?12, ?20),
                   audio_input = min(audio_input + ?13, ?20), images = min(images + ?14, ?20),
                   reasoning = min(reasoning + ?15, ?20), audio_output = min(audio_output + ?16, ?20),
                   charged = min(charged + ?17, ?20), upstream_cost = min(upstream_cost + ?18, ?20),
                   charged_at_known_cost = min(charged_at_known_cost + ?19, ?20)";
    let Added { payer: Payer { key, model, groups: [group_id, parent] }, day, counts } = added;
    let Counts { requests, usage, charged, upstream_cost, charged_at_known_cost } = counts;
    let group = |group: &Option<GroupId>| group.map_or_else(Vec::new, |group| group.as_bytes().to_vec());
    connection.prepare_cached(sql)?.execute(params![
        account.as_bytes(),
        day.number(),
        key.as_bytes(),
        model,
        group(group_id),
        group(parent),
        requests.cast_signed(),
        usage.prompt.cast_signed(),
        usage.cached.cast_signed(),
        usage.completion.cast_signed(),
        usage.details.cache_write.cast_signed(),
        usage.details.cache_write_long.cast_signed(),
        usage.details.audio_input.cast_signed(),
        usage.details.images.cast_signed(),
        usage.details.reasoning.cast_signed(),
        usage.details.audio_output.cast_signed(),
        charged.nanos(),
        upstream_cost.nanos(),
        charged_at_known_cost.nanos(),
        COUNTED.cast_signed(),
    ])?;
    Ok(())
}

/// The counters of these days, of all keys or of some.
pub(crate) fn list(
    connection: &Connection,
    account: AccountId,
    days: &RangeInclusive<Day>,
    keys: Option<&[KeyId]>,
) -> rusqlite::Result<Vec<UsageLine>> {
    let (from, to) = (days.start().number(), days.end().number());
    let Some(keys) = keys else {
        let sql = format!(
            "SELECT {COLUMNS} FROM usage u WHERE account = ?1 AND day BETWEEN ?2 AND ?3
             ORDER BY day, key, model, group_id, parent"
        );
        return connection
            .prepare_cached(&sql)?
            .query_map(params![account.as_bytes(), from, to], line)?
            .collect();
    };
    // Behind a range of days SQLite would go through all keys: each key is looked up day by day.
    let sql = format!(
        "WITH RECURSIVE days (day) AS (SELECT ?2 UNION ALL SELECT day + 1 FROM days WHERE day < ?3)
         SELECT {COLUMNS} FROM days CROSS JOIN usage u WHERE u.account = ?1 AND u.day = days.day AND u.key = ?4"
    );
    let (mut of_keys, mut lines) = (connection.prepare_cached(&sql)?, Vec::new());
    for key in keys {
        for found in of_keys.query_map(params![account.as_bytes(), from, to, key.as_bytes()], line)? {
            lines.push(found?);
        }
    }
    lines.sort_by(|a: &UsageLine, b| (a.day, &a.payer).cmp(&(b.day, &b.payer)));
    Ok(lines)
}

fn line(row: &Row<'_>) -> rusqlite::Result<UsageLine> {
    let details = UsageDetails {
        cache_write: tokens(row, 8)?,
        cache_write_long: tokens(row, 9)?,
        audio_input: tokens(row, 10)?,
        images: tokens(row, 11)?,
        reasoning: tokens(row, 12)?,
        audio_output: tokens(row, 13)?,
    };
    let usage =
        Usage { prompt: tokens(row, 5)?, cached: tokens(row, 6)?, completion: tokens(row, 7)?, details };
    Ok(UsageLine {
        day: Day::from_number(row.get(17)?),
        payer: payer(row, 0)?,
        counts: Counts {
            requests: tokens(row, 4)?,
            usage,
            charged: money(row, 14)?,
            upstream_cost: money(row, 15)?,
            charged_at_known_cost: money(row, 16)?,
        },
    })
}
