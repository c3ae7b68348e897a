//! Counters by key, model and day.

use std::ops::RangeInclusive;

use rusqlite::{Connection, Row, params};
use shared::ids::{AccountId, KeyId};

use super::{id as column_id, money, usage_from};
use crate::store::UsageLine;
use domain::{
    ledger::Payer,
    usage::{Added, COUNTED, Counts, Day},
};

/// Adds to a counter.
pub(crate) fn add(connection: &Connection, account: AccountId, added: &Added) -> rusqlite::Result<()> {
    let sql = "INSERT INTO usage (account, day, key, model, requests, prompt, cached, completion, charged)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
               ON CONFLICT (account, day, key, model) DO UPDATE
               SET requests = min(requests + ?5, ?10), prompt = min(prompt + ?6, ?10),
                   cached = min(cached + ?7, ?10), completion = min(completion + ?8, ?10),
                   charged = min(charged + ?9, ?10)";
    let Added { payer: Payer { key, model, .. }, day, counts: Counts { requests, usage, charged, .. } } =
        added;
    connection.prepare_cached(sql)?.execute(params![
        account.as_bytes(),
        day.number(),
        key.as_bytes(),
        model,
        requests.cast_signed(),
        usage.prompt.cast_signed(),
        usage.cached.cast_signed(),
        usage.completion.cast_signed(),
        charged.nanos(),
        COUNTED.cast_signed(),
    ])?;
    Ok(())
}

/// The counters of these days, of all keys or of a single key.
pub(crate) fn list(
    connection: &Connection,
    account: AccountId,
    days: &RangeInclusive<Day>,
    key: Option<KeyId>,
) -> rusqlite::Result<Vec<UsageLine>> {
    // Behind a range of days SQLite would go through all keys: a single key is looked up day by day.
    let sql = match key {
        Some(_) => {
            "WITH RECURSIVE days (day) AS (SELECT ?2 UNION ALL SELECT day + 1 FROM days WHERE day < ?3)
             SELECT u.day, u.key, u.model, u.requests, u.prompt, u.cached, u.completion, u.charged
             FROM days CROSS JOIN usage u WHERE u.account = ?1 AND u.day = days.day AND u.key = ?4
             ORDER BY u.day, u.key, u.model"
        }
        None => {
            "SELECT day, key, model, requests, prompt, cached, completion, charged
             FROM usage WHERE account = ?1 AND day BETWEEN ?2 AND ?3 AND ?4 IS NULL
             ORDER BY day, key, model"
        }
    };
    let line = |row: &Row<'_>| {
        Ok(UsageLine {
            day: Day::from_number(row.get(0)?),
            payer: Payer::alone(column_id(row, 1, KeyId::from_slice)?, row.get(2)?),
            counts: Counts {
                requests: row.get::<_, i64>(3)?.unsigned_abs(),
                usage: usage_from(row, 4)?,
                charged: money(row, 7)?,
                ..Counts::default()
            },
        })
    };
    let (from, to) = (days.start().number(), days.end().number());
    let params = params![account.as_bytes(), from, to, key.as_ref().map(KeyId::as_bytes)];
    connection.prepare_cached(sql)?.query_map(params, line)?.collect()
}
