//! Records under idempotency ids: open holds, settlements and deposits.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, Row, params};
use shared::{
    ids::{AccountId, DepositId, GenerationId, KeyId},
    money::NanoUsd,
    time::Timestamp,
};

use super::{id as column_id, journal, money, usage_from};
use crate::store::{Deposit, DueHold};
use domain::ledger::{Counted, Hold, Payer, Progress, Record, RecordId};

/// The record under the id.
pub(crate) fn record(connection: &Connection, account: AccountId, id: RecordId) -> rusqlite::Result<Record> {
    match id {
        RecordId::Deposit(id) => {
            Ok(deposit(connection, account, id)?.map_or(Record::None, Record::Deposited))
        }
        RecordId::Generation(id) => Ok(match hold(connection, account, id)? {
            Some(hold) => Record::Open(hold),
            None => journal::settlement(connection, account, id)?.map_or(Record::None, Record::Closed),
        }),
    }
}

/// Replaces the record under the id. Settlements are stored in the journal only.
pub(crate) fn put(
    connection: &Connection,
    account: AccountId,
    id: RecordId,
    record: &Record,
    now: Timestamp,
) -> rusqlite::Result<()> {
    match (id, record) {
        (RecordId::Generation(id), Record::Open(hold)) => put_hold(connection, account, id, hold),
        (RecordId::Generation(id), Record::None | Record::Closed(_)) => delete_hold(connection, account, id),
        (RecordId::Deposit(id), Record::Deposited(amount)) => {
            put_deposit(connection, account, id, *amount, now)
        }
        // The ledger records deposits under deposit ids only, and never removes a deposit.
        (RecordId::Generation(_), Record::Deposited(_))
        | (RecordId::Deposit(_), Record::None | Record::Open(_) | Record::Closed(_)) => Ok(()),
    }
}

/// Holds of the account whose lease has run out, behind a generation in the order of generations.
pub(crate) fn due(
    connection: &Connection,
    account: AccountId,
    behind: Option<GenerationId>,
    limit: usize,
) -> rusqlite::Result<Vec<DueHold>> {
    let sql = "SELECT key, generation FROM holds
               WHERE account = ?1 AND generation > ?2
                 AND lease_until <= (SELECT tick FROM accounts WHERE id = ?1)
               ORDER BY generation LIMIT ?3";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let due_hold = |row: &Row<'_>| {
        Ok(DueHold {
            key: column_id(row, 0, KeyId::from_slice)?,
            generation: column_id(row, 1, GenerationId::from_slice)?,
        })
    };
    // A shorter value sorts before every id.
    let behind = behind.as_ref().map_or(&[][..], |id| id.as_bytes());
    connection.prepare_cached(sql)?.query_map(params![account.as_bytes(), behind, limit], due_hold)?.collect()
}

/// The accounts with open holds, by a look-up for each account, independent of the number of holds.
pub(crate) fn holders(connection: &Connection) -> rusqlite::Result<Vec<AccountId>> {
    let sql = "WITH RECURSIVE holders (account) AS (
                   SELECT min(account) FROM holds
                   UNION ALL
                   SELECT (SELECT min(account) FROM holds WHERE holds.account > holders.account)
                   FROM holders WHERE account IS NOT NULL)
               SELECT account FROM holders WHERE account IS NOT NULL";
    let holder = |row: &Row<'_>| column_id(row, 0, AccountId::from_slice);
    connection.prepare_cached(sql)?.query_map([], holder)?.collect()
}

/// Sums of open holds, by key.
pub(crate) fn held(connection: &Connection, account: AccountId) -> rusqlite::Result<HashMap<KeyId, NanoUsd>> {
    let sql = "SELECT key, sum(amount) FROM holds WHERE account = ?1 GROUP BY key";
    let held = |row: &Row<'_>| Ok((column_id(row, 0, KeyId::from_slice)?, money(row, 1)?));
    connection.prepare_cached(sql)?.query_map([account.as_bytes()], held)?.collect()
}

/// Number of open holds of a key. Reads all holds of the account, which are as many as requests in flight.
pub(crate) fn holds_of(connection: &Connection, account: AccountId, key: KeyId) -> rusqlite::Result<u64> {
    let sql = "SELECT count(*) FROM holds WHERE account = ?1 AND key = ?2";
    let count = |row: &Row<'_>| row.get::<_, i64>(0).map(i64::unsigned_abs);
    connection.prepare_cached(sql)?.query_row([account.as_bytes(), key.as_bytes()], count)
}

/// The latest deposits of the account, newest first.
pub(crate) fn latest_deposits(
    connection: &Connection,
    account: AccountId,
    limit: usize,
) -> rusqlite::Result<Vec<Deposit>> {
    let sql = "SELECT id, amount FROM deposits WHERE account = ?1 ORDER BY id DESC LIMIT ?2";
    let deposit =
        |row: &Row<'_>| Ok(Deposit { id: column_id(row, 0, DepositId::from_slice)?, amount: money(row, 1)? });
    let row = params![account.as_bytes(), i64::try_from(limit).unwrap_or(i64::MAX)];
    connection.prepare_cached(sql)?.query_map(row, deposit)?.collect()
}

/// All deposits of the account.
pub(crate) fn deposits(connection: &Connection, account: AccountId) -> rusqlite::Result<Vec<NanoUsd>> {
    let sql = "SELECT amount FROM deposits WHERE account = ?1";
    connection.prepare_cached(sql)?.query_map([account.as_bytes()], |row| money(row, 0))?.collect()
}

fn hold(connection: &Connection, account: AccountId, id: GenerationId) -> rusqlite::Result<Option<Hold>> {
    let sql = "SELECT key, model, amount, prompt, cached, completion, cost, lease_until
               FROM holds WHERE account = ?1 AND generation = ?2";
    let hold = |row: &Row<'_>| {
        Ok(Hold {
            payer: Payer::alone(column_id(row, 0, KeyId::from_slice)?, row.get(1)?),
            amount: money(row, 2)?,
            reported: Progress { usage: usage_from(row, 3)?, cost: money(row, 6)?, upstream_cost: None },
            counted: Counted::default(),
            lease_until: row.get::<_, i64>(7)?.unsigned_abs(),
        })
    };
    connection.prepare_cached(sql)?.query_row([account.as_bytes(), id.as_bytes()], hold).optional()
}

fn put_hold(
    connection: &Connection,
    account: AccountId,
    id: GenerationId,
    hold: &Hold,
) -> rusqlite::Result<()> {
    // Key and model of a generation never change.
    let sql = "INSERT INTO holds (account, generation, key, model, amount,
                                  prompt, cached, completion, cost, lease_until)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
               ON CONFLICT (account, generation) DO UPDATE
               SET amount = ?5, prompt = ?6, cached = ?7, completion = ?8, cost = ?9, lease_until = ?10";
    let Progress { usage, cost, upstream_cost: _ } = hold.reported;
    connection.prepare_cached(sql)?.execute(params![
        account.as_bytes(),
        id.as_bytes(),
        hold.payer.key.as_bytes(),
        hold.payer.model,
        hold.amount.nanos(),
        usage.prompt.cast_signed(),
        usage.cached.cast_signed(),
        usage.completion.cast_signed(),
        cost.nanos(),
        hold.lease_until.cast_signed(),
    ])?;
    Ok(())
}

fn delete_hold(connection: &Connection, account: AccountId, id: GenerationId) -> rusqlite::Result<()> {
    let sql = "DELETE FROM holds WHERE account = ?1 AND generation = ?2";
    connection.prepare_cached(sql)?.execute([account.as_bytes(), id.as_bytes()])?;
    Ok(())
}

fn deposit(connection: &Connection, account: AccountId, id: DepositId) -> rusqlite::Result<Option<NanoUsd>> {
    let sql = "SELECT amount FROM deposits WHERE account = ?1 AND id = ?2";
    let params = [account.as_bytes(), id.as_bytes()];
    connection.prepare_cached(sql)?.query_row(params, |row| money(row, 0)).optional()
}

fn put_deposit(
    connection: &Connection,
    account: AccountId,
    id: DepositId,
    amount: NanoUsd,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO deposits (account, id, amount, at) VALUES (?1, ?2, ?3, ?4)";
    let row = params![account.as_bytes(), id.as_bytes(), amount.nanos(), now.millis()];
    connection.prepare_cached(sql)?.execute(row)?;
    Ok(())
}
