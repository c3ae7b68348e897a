//! Charges by day and model.

use std::ops::RangeInclusive;

use rusqlite::{Connection, Row, params};
use shared::{ids::AccountId, money::NanoUsd};

use super::money;
use crate::store::SpendLine;
use domain::usage::{COUNTED, Day};

/// Adds to the charges of a day and a model.
pub(crate) fn add(
    connection: &Connection,
    account: AccountId,
    day: Day,
    model: &str,
    charged: NanoUsd,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO spend (account, day, model, charged) VALUES (?1, ?2, ?3, ?4)
               ON CONFLICT (account, day, model) DO UPDATE SET charged = min(charged + ?4, ?5)";
    connection.prepare_cached(sql)?.execute(params![
        account.as_bytes(),
        day.number(),
        model,
        charged.nanos(),
        COUNTED.cast_signed(),
    ])?;
    Ok(())
}

/// The charges of these days.
pub(crate) fn list(
    connection: &Connection,
    account: AccountId,
    days: &RangeInclusive<Day>,
) -> rusqlite::Result<Vec<SpendLine>> {
    let sql = "SELECT day, model, charged FROM spend
               WHERE account = ?1 AND day BETWEEN ?2 AND ?3 ORDER BY day, model";
    let line = |row: &Row<'_>| {
        Ok(SpendLine { day: Day::from_number(row.get(0)?), model: row.get(1)?, charged: money(row, 2)? })
    };
    let (from, to) = (days.start().number(), days.end().number());
    connection.prepare_cached(sql)?.query_map(params![account.as_bytes(), from, to], line)?.collect()
}
