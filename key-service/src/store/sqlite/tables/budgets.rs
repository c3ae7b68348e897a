//! The ledger's part of keys and groups.

use rusqlite::{Connection, OptionalExtension, Row, params};
use shared::{
    ids::{AccountId, GroupId, KeyId},
    money::NanoUsd,
    time::Timestamp,
};

use super::{bounds, budget, group_if_any, id, money, time_if_any};
use domain::ledger::{self, Rotation};

/// The ledger's part of a key; `None` where the account does not have the key.
pub(crate) fn key(
    connection: &Connection,
    account: AccountId,
    id: KeyId,
) -> rusqlite::Result<Option<ledger::Key>> {
    let sql = "SELECT spend_limit, used, held, bounds, group_id, credential, previous_until, expires_at, revoked_at,
                      last_used_at
               FROM api_keys WHERE account = ?1 AND id = ?2";
    let (account, id) = (account.as_bytes(), id.as_bytes());
    connection.prepare_cached(sql)?.query_row([account, id], |row| key_from(row, 0)).optional()
}

/// Writes the fields that the ledger changed. Bounds have the settings of owners along with the ledger's state.
pub(crate) fn put_key(
    connection: &Connection,
    account: AccountId,
    id: KeyId,
    before: &ledger::Key,
    ledger::Key { budget, last_used_at, .. }: &ledger::Key,
) -> rusqlite::Result<()> {
    let (account, id, last_used_at) =
        (account.as_bytes(), id.as_bytes(), last_used_at.map(Timestamp::millis));
    let sql = "UPDATE api_keys SET used = ?3, held = ?4, last_used_at = ?5 WHERE account = ?1 AND id = ?2";
    let row = params![account, id, budget.used.nanos(), budget.held.nanos(), last_used_at];
    connection.prepare_cached(sql)?.execute(row)?;
    if budget.bounds != before.budget.bounds {
        let sql = "UPDATE api_keys SET bounds = ?3 WHERE account = ?1 AND id = ?2";
        connection.prepare_cached(sql)?.execute(params![account, id, bounds(budget)])?;
    }
    Ok(())
}

/// The ledger's part of a group; `None` where the account does not have the group.
pub(crate) fn group(
    connection: &Connection,
    account: AccountId,
    id: GroupId,
) -> rusqlite::Result<Option<ledger::Group>> {
    let sql = "SELECT spend_limit, used, held, bounds, parent, archived_at
               FROM groups WHERE account = ?1 AND id = ?2";
    let (account, id) = (account.as_bytes(), id.as_bytes());
    connection.prepare_cached(sql)?.query_row([account, id], |row| group_from(row, 0)).optional()
}

/// Writes the fields that the ledger changes.
pub(crate) fn put_group(
    connection: &Connection,
    account: AccountId,
    id: GroupId,
    ledger::Group { budget, .. }: &ledger::Group,
) -> rusqlite::Result<()> {
    let sql = "UPDATE groups SET used = ?3, held = ?4, bounds = ?5 WHERE account = ?1 AND id = ?2";
    let (used, held) = (budget.used.nanos(), budget.held.nanos());
    let row = params![account.as_bytes(), id.as_bytes(), used, held, bounds(budget)];
    connection.prepare_cached(sql)?.execute(row)?;
    Ok(())
}

/// Reads every key of an account, with its opening balance.
pub(crate) fn each_key(
    connection: &Connection,
    account: AccountId,
    mut take: impl FnMut(KeyId, &ledger::Key, NanoUsd),
) -> rusqlite::Result<()> {
    let sql = "SELECT id, opening, spend_limit, used, held, bounds, group_id, credential, previous_until, expires_at, revoked_at,
                      last_used_at
               FROM api_keys WHERE account = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([account.as_bytes()])?;
    while let Some(row) = rows.next()? {
        take(id(row, 0, KeyId::from_slice)?, &key_from(row, 2)?, money(row, 1)?);
    }
    Ok(())
}

/// Reads every group of an account, with its opening balance.
pub(crate) fn each_group(
    connection: &Connection,
    account: AccountId,
    mut take: impl FnMut(GroupId, &ledger::Group, NanoUsd),
) -> rusqlite::Result<()> {
    let sql = "SELECT id, opening, spend_limit, used, held, bounds, parent, archived_at
               FROM groups WHERE account = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([account.as_bytes()])?;
    while let Some(row) = rows.next()? {
        take(id(row, 0, GroupId::from_slice)?, &group_from(row, 2)?, money(row, 1)?);
    }
    Ok(())
}

/// The ledger's part of a key whose columns begin with this one.
pub(super) fn key_from(row: &Row<'_>, first: usize) -> rusqlite::Result<ledger::Key> {
    Ok(ledger::Key {
        budget: budget(row, first)?,
        group: group_if_any(row, first + 4)?,
        rotation: Rotation {
            current: row.get::<_, i64>(first + 5)?.unsigned_abs(),
            previous_until: time_if_any(row, first + 6)?,
        },
        expires_at: time_if_any(row, first + 7)?,
        revoked_at: time_if_any(row, first + 8)?,
        last_used_at: time_if_any(row, first + 9)?,
    })
}

/// The ledger's part of a group whose columns begin with this one.
pub(super) fn group_from(row: &Row<'_>, first: usize) -> rusqlite::Result<ledger::Group> {
    Ok(ledger::Group {
        budget: budget(row, first)?,
        parent: group_if_any(row, first + 4)?,
        archived_at: time_if_any(row, first + 5)?,
    })
}
