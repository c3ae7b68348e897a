//! Management keys.

use rusqlite::{Connection, OptionalExtension, Row, params};
use shared::{
    ids::{AccountId, ManagementKeyId},
    rpc::Principal,
    time::Timestamp,
};

use super::{accounts, id as column_id, time, time_if_any};
use crate::store::{ManagementKey, NewManagementKey};

/// Makes a management key unless the account has as many as it may; repeating it changes nothing. Returns whether there is one.
pub(crate) fn create(connection: &Connection, new: &NewManagementKey) -> rusqlite::Result<bool> {
    let NewManagementKey { account, key, digest, most } = new;
    let ManagementKey { id, name, hint, created_at, revoked_at } = key;
    let sql = "SELECT count(*) FROM management_keys WHERE account = ?1";
    let keys: i64 = connection.prepare_cached(sql)?.query_row([account.as_bytes()], |row| row.get(0))?;
    if keys.unsigned_abs() >= *most && get(connection, *account, *id)?.is_none() {
        return Ok(false);
    }
    let sql = "INSERT INTO management_keys (account, id, name, hint, created_at, revoked_at)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6)
               ON CONFLICT (account, id) DO NOTHING";
    connection.prepare_cached(sql)?.execute(params![
        account.as_bytes(),
        id.as_bytes(),
        name,
        hint,
        created_at.millis(),
        revoked_at.map(Timestamp::millis),
    ])?;
    accounts::put_owner(connection, digest, Principal::ManagementKey(*account, *id))?;
    Ok(true)
}

/// The account's management keys, oldest first.
pub(crate) fn list(connection: &Connection, account: AccountId) -> rusqlite::Result<Vec<ManagementKey>> {
    let sql = "SELECT id, name, hint, created_at, revoked_at
               FROM management_keys WHERE account = ?1 ORDER BY id";
    connection.prepare_cached(sql)?.query_map([account.as_bytes()], management_key)?.collect()
}

/// Finds a management key of the account.
pub(crate) fn get(
    connection: &Connection,
    account: AccountId,
    id: ManagementKeyId,
) -> rusqlite::Result<Option<ManagementKey>> {
    let sql = "SELECT id, name, hint, created_at, revoked_at
               FROM management_keys WHERE account = ?1 AND id = ?2";
    let (account, id) = (account.as_bytes(), id.as_bytes());
    connection.prepare_cached(sql)?.query_row([account, id], management_key).optional()
}

/// Revokes a management key of any account, unless already revoked, and returns the result.
pub(crate) fn revoke(
    connection: &Connection,
    id: ManagementKeyId,
    now: Timestamp,
) -> rusqlite::Result<Option<ManagementKey>> {
    let sql = "UPDATE management_keys SET revoked_at = coalesce(revoked_at, ?2) WHERE id = ?1
               RETURNING id, name, hint, created_at, revoked_at";
    let params = params![id.as_bytes(), now.millis()];
    connection.prepare_cached(sql)?.query_row(params, management_key).optional()
}

fn management_key(row: &Row<'_>) -> rusqlite::Result<ManagementKey> {
    Ok(ManagementKey {
        id: column_id(row, 0, ManagementKeyId::from_slice)?,
        name: row.get(1)?,
        hint: row.get(2)?,
        created_at: time(row, 3)?,
        revoked_at: time_if_any(row, 4)?,
    })
}
