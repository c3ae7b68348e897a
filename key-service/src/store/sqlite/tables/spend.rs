//! Sums of all keys by day and model.

use std::ops::RangeInclusive;

use rusqlite::{Connection, Row, params};
use shared::ids::AccountId;

use super::{money, tokens};
use crate::store::SpendLine;
use domain::usage::{COUNTED, Day, Sums};

/// Adds to the sums of a day and a model.
pub(crate) fn add(
    connection: &Connection,
    account: AccountId,
    day: Day,
    model: &str,
    sums: Sums,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO spend (account, day, model, charged, requests, tokens) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
               ON CONFLICT (account, day, model) DO UPDATE
               SET charged = min(charged + ?4, ?7), requests = min(requests + ?5, ?7), tokens = min(tokens + ?6, ?7)";
    connection.prepare_cached(sql)?.execute(params![
        account.as_bytes(),
        day.number(),
        model,
        sums.charged.nanos(),
        sums.requests.cast_signed(),
        sums.tokens.cast_signed(),
        COUNTED.cast_signed(),
    ])?;
    Ok(())
}

/// The sums of these days.
pub(crate) fn list(
    connection: &Connection,
    account: AccountId,
    days: &RangeInclusive<Day>,
) -> rusqlite::Result<Vec<SpendLine>> {
    let sql = "SELECT day, model, charged, requests, tokens FROM spend
               WHERE account = ?1 AND day BETWEEN ?2 AND ?3 ORDER BY day, model";
    let line = |row: &Row<'_>| {
        let sums = Sums { charged: money(row, 2)?, requests: tokens(row, 3)?, tokens: tokens(row, 4)? };
        Ok(SpendLine { day: Day::from_number(row.get(0)?), model: row.get(1)?, sums })
    };
    let (from, to) = (days.start().number(), days.end().number());
    connection.prepare_cached(sql)?.query_map(params![account.as_bytes(), from, to], line)?.collect()
}
