//! What is recorded under idempotency ids: open holds, the journal of settlements, and deposits.

use rusqlite::{Connection, OptionalExtension, Row, params, types::Type};
use shared::{
    ids::{AccountId, DepositId, GenerationId, KeyId},
    money::NanoUsd,
    time::Timestamp,
    tokens::Usage,
};

use super::{damaged, id as column_id, money, time, tokens};
use crate::{
    domain::ledger::{Ending, Hold, Progress, Record, RecordId, Settlement},
    store::DueHold,
};

/// What is recorded under the id.
pub(crate) fn record(connection: &Connection, account: AccountId, id: RecordId) -> rusqlite::Result<Record> {
    match id {
        RecordId::Deposit(id) => {
            Ok(deposit(connection, account, id)?.map_or(Record::None, Record::Deposited))
        }
        RecordId::Generation(id) => Ok(match hold(connection, account, id)? {
            Some(hold) => Record::Open(hold),
            None => settlement(connection, account, id)?.map_or(Record::None, Record::Closed),
        }),
    }
}

/// Puts this in the place of what was recorded under the id.
pub(crate) fn put(
    connection: &Connection,
    account: AccountId,
    id: RecordId,
    record: &Record,
    now: Timestamp,
) -> rusqlite::Result<()> {
    match (id, record) {
        (RecordId::Generation(id), Record::Open(hold)) => put_hold(connection, account, id, hold),
        (RecordId::Generation(id), Record::Closed(settlement)) => {
            delete_hold(connection, account, id)?;
            put_settlement(connection, account, id, settlement)
        }
        (RecordId::Generation(id), Record::None) => delete_hold(connection, account, id),
        (RecordId::Deposit(id), Record::Deposited(amount)) => {
            put_deposit(connection, account, id, *amount, now)
        }
        // The ledger records deposits under ids of deposits alone, and never takes one back.
        (RecordId::Generation(_), Record::Deposited(_))
        | (RecordId::Deposit(_), Record::None | Record::Open(_) | Record::Closed(_)) => Ok(()),
    }
}

/// Holds whose lease has run out, those due longest first.
pub(crate) fn due(connection: &Connection, now: Timestamp, limit: usize) -> rusqlite::Result<Vec<DueHold>> {
    let sql = "SELECT account, key, generation FROM holds WHERE lease_until <= ?1
               ORDER BY lease_until, account, generation LIMIT ?2";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let due_hold = |row: &Row<'_>| {
        Ok(DueHold {
            account: column_id(row, 0, AccountId::from_slice)?,
            key: column_id(row, 1, KeyId::from_slice)?,
            generation: column_id(row, 2, GenerationId::from_slice)?,
        })
    };
    connection.prepare_cached(sql)?.query_map([now.millis(), limit], due_hold)?.collect()
}

fn hold(connection: &Connection, account: AccountId, id: GenerationId) -> rusqlite::Result<Option<Hold>> {
    let sql = "SELECT key, model, amount, prompt, cached, completion, cost, lease_until
               FROM holds WHERE account = ?1 AND generation = ?2";
    let hold = |row: &Row<'_>| {
        Ok(Hold {
            key: column_id(row, 0, KeyId::from_slice)?,
            model: row.get(1)?,
            amount: money(row, 2)?,
            reported: Progress { usage: usage(row, 3)?, cost: money(row, 6)? },
            lease_until: time(row, 7)?,
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
    let Progress { usage, cost } = hold.reported;
    connection.prepare_cached(sql)?.execute(params![
        account.as_bytes(),
        id.as_bytes(),
        hold.key.as_bytes(),
        hold.model,
        hold.amount.nanos(),
        usage.prompt.cast_signed(),
        usage.cached.cast_signed(),
        usage.completion.cast_signed(),
        cost.nanos(),
        hold.lease_until.millis(),
    ])?;
    Ok(())
}

fn delete_hold(connection: &Connection, account: AccountId, id: GenerationId) -> rusqlite::Result<()> {
    let sql = "DELETE FROM holds WHERE account = ?1 AND generation = ?2";
    connection.prepare_cached(sql)?.execute([account.as_bytes(), id.as_bytes()])?;
    Ok(())
}

fn settlement(
    connection: &Connection,
    account: AccountId,
    id: GenerationId,
) -> rusqlite::Result<Option<Settlement>> {
    let sql = "SELECT key, model, prompt, cached, completion, cost, charged, ending, estimated, at
               FROM journal WHERE account = ?1 AND generation = ?2";
    let settlement = |row: &Row<'_>| {
        Ok(Settlement {
            key: column_id(row, 0, KeyId::from_slice)?,
            model: row.get(1)?,
            usage: usage(row, 2)?,
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
    };
    connection.prepare_cached(sql)?.query_row([account.as_bytes(), id.as_bytes()], settlement).optional()
}

fn put_settlement(
    connection: &Connection,
    account: AccountId,
    id: GenerationId,
    settlement: &Settlement,
) -> rusqlite::Result<()> {
    // Key and model of a generation never change.
    let sql = "INSERT INTO journal (account, generation, key, model, prompt, cached, completion,
                                    cost, charged, ending, estimated, at)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
               ON CONFLICT (account, generation) DO UPDATE
               SET prompt = ?5, cached = ?6, completion = ?7,
                   cost = ?8, charged = ?9, ending = ?10, estimated = ?11, at = ?12";
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
    ])?;
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

fn usage(row: &Row<'_>, first: usize) -> rusqlite::Result<Usage> {
    Ok(Usage {
        prompt: tokens(row, first)?,
        cached: tokens(row, first + 1)?,
        completion: tokens(row, first + 2)?,
    })
}

const CAPTURED: &str = "captured";
const EXPIRED: &str = "expired";
