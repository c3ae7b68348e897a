//! The journal: how every generation was billed.

use rusqlite::{Connection, OptionalExtension, Row, params, types::Type};
use shared::{
    ids::{AccountId, GenerationId, KeyId},
    money::NanoUsd,
};

use super::{damaged, id as column_id, money, time, usage_from};
use crate::{
    domain::ledger::{Ending, Settlement},
    store::JournalEntry,
};

/// Entries behind a number, in the order of their numbers.
pub(crate) fn page(
    connection: &Connection,
    account: AccountId,
    after: u64,
    limit: usize,
) -> rusqlite::Result<Vec<JournalEntry>> {
    let sql = "SELECT key, model, prompt, cached, completion, cost, charged, ending, estimated, at,
                      number, generation
               FROM journal WHERE account = ?1 AND number > ?2 ORDER BY number LIMIT ?3";
    let entry = |row: &Row<'_>| {
        Ok(JournalEntry {
            number: row.get::<_, i64>(10)?.unsigned_abs(),
            generation: column_id(row, 11, GenerationId::from_slice)?,
            settlement: settlement_from(row)?,
        })
    };
    let (after, limit) = (i64::try_from(after).unwrap_or(i64::MAX), i64::try_from(limit).unwrap_or(i64::MAX));
    connection.prepare_cached(sql)?.query_map(params![account.as_bytes(), after, limit], entry)?.collect()
}

/// Tells every charge, one by one.
pub(crate) fn charges(
    connection: &Connection,
    account: AccountId,
    mut tell: impl FnMut(KeyId, NanoUsd),
) -> rusqlite::Result<()> {
    let sql = "SELECT key, charged FROM journal WHERE account = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([account.as_bytes()])?;
    while let Some(row) = rows.next()? {
        tell(column_id(row, 0, KeyId::from_slice)?, money(row, 1)?);
    }
    Ok(())
}

/// How a generation was billed.
pub(crate) fn settlement(
    connection: &Connection,
    account: AccountId,
    id: GenerationId,
) -> rusqlite::Result<Option<Settlement>> {
    let sql = "SELECT key, model, prompt, cached, completion, cost, charged, ending, estimated, at
               FROM journal WHERE account = ?1 AND generation = ?2";
    let params = [account.as_bytes(), id.as_bytes()];
    connection.prepare_cached(sql)?.query_row(params, settlement_from).optional()
}

/// Puts a settlement under a new number; there is one entry for each generation.
pub(crate) fn put(
    connection: &Connection,
    account: AccountId,
    id: GenerationId,
    settlement: &Settlement,
    number: u64,
) -> rusqlite::Result<()> {
    // Key and model of a generation never change.
    let sql = "INSERT INTO journal (account, generation, key, model, prompt, cached, completion,
                                    cost, charged, ending, estimated, at, number)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
               ON CONFLICT (account, generation) DO UPDATE
               SET prompt = ?5, cached = ?6, completion = ?7,
                   cost = ?8, charged = ?9, ending = ?10, estimated = ?11, at = ?12, number = ?13";
    let Settlement { key, model, usage, cost, charged, ending, estimated, at } = settlement;
    connection.prepare_cached(sql)?.execute(params![
        account.as_bytes(),
        id.as_bytes(),
        key.as_bytes(),
        model,
        usage.prompt.cast_signed(),
        usage.cached.cast_signed(),
        usage.completion.cast_signed(),
        cost.nanos(),
        charged.nanos(),
        match ending {
            Ending::Captured => CAPTURED,
            Ending::Expired => EXPIRED,
        },
        estimated,
        at.millis(),
        number.cast_signed(),
    ])?;
    Ok(())
}

fn settlement_from(row: &Row<'_>) -> rusqlite::Result<Settlement> {
    Ok(Settlement {
        key: column_id(row, 0, KeyId::from_slice)?,
        model: row.get(1)?,
        usage: usage_from(row, 2)?,
        cost: money(row, 5)?,
        charged: money(row, 6)?,
        ending: match row.get_ref(7)?.as_str()? {
            CAPTURED => Ending::Captured,
            EXPIRED => Ending::Expired,
            _ => return Err(damaged(7, Type::Text, "an ending is not known")),
        },
        estimated: row.get(8)?,
        at: time(row, 9)?,
    })
}

const CAPTURED: &str = "captured";
const EXPIRED: &str = "expired";
