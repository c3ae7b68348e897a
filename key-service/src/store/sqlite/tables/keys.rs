//! API keys.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};
use shared::{
    ids::{AccountId, GroupId, KeyId},
    money::NanoUsd,
    rpc::Principal,
    time::Timestamp,
};

use super::{
    accounts, bounds, budgets,
    events::ActLog,
    id as column_id,
    idempotency::{self, Earlier, missing},
    metadata, metadata_column, rows, time,
};
use crate::store::{
    Created, Credential, Idempotency, Keys, Order, Page, Rotated, StoreError, Updated, sqlite::Sqlite,
};
use domain::{
    event::{Act, EventKind},
    group::{self, BadGroup},
    key::{ApiKey, KeyPatch, NewCredential, NewKey, Status},
    ledger::{self, Rotation},
};

/// Columns of a key in the order of [`api_key`], of a table named `k`.
const COLUMNS: &str =
    "k.id, k.label, k.hint, k.created_at, k.metadata, k.spend_limit, k.used, k.held, k.bounds, k.group_id, k.credential,
    k.previous_until, k.expires_at, k.revoked_at, k.last_used_at";

/// Value that sorts behind every id.
pub(crate) const BEHIND_ALL_IDS: &[u8] = &[0xff; 17];

#[async_trait]
impl Keys for Sqlite {
    async fn create_key(
        &self,
        key: NewKey,
        idempotency: Option<Idempotency>,
        act: &Act,
    ) -> Result<Created, StoreError> {
        let work =
            move |connection: &Connection, log: &ActLog| create(connection, &key, idempotency.as_ref(), log);
        self.govern(act, work).await
    }

    async fn key(&self, account: AccountId, id: KeyId) -> Result<Option<ApiKey>, StoreError> {
        self.read(move |connection| get(connection, account, id)).await
    }

    async fn keys(&self, account: AccountId, page: Page) -> Result<Vec<ApiKey>, StoreError> {
        self.read(move |connection| list(connection, account, None, page)).await
    }

    async fn top_spending(
        &self,
        account: AccountId,
        after: Option<KeyId>,
        limit: usize,
    ) -> Result<Vec<ApiKey>, StoreError> {
        let work = move |connection: &Connection| {
            let sql = format!(
                "SELECT {COLUMNS} FROM api_keys k INDEXED BY keys_by_spend
                 WHERE account = ?1 AND used > 0
                   AND (used, id) < (coalesce((SELECT used FROM api_keys WHERE account = ?1 AND id = ?2), ?4), ?2)
                 ORDER BY used DESC, id DESC LIMIT ?3"
            );
            let after = after.as_ref().map_or(BEHIND_ALL_IDS, |id| id.as_bytes().as_slice());
            let row = params![account.as_bytes(), after, rows(limit), i64::MAX];
            connection.prepare_cached(&sql)?.query_map(row, api_key)?.collect()
        };
        self.read(work).await
    }

    async fn holds_of(&self, account: AccountId, key: KeyId) -> Result<u64, StoreError> {
        let work = move |connection: &Connection| {
            // Reads all holds of the account, which are as many as requests in flight.
            let sql = "SELECT count(*) FROM holds WHERE account = ?1 AND key = ?2";
            let count = |row: &Row<'_>| row.get::<_, i64>(0).map(i64::unsigned_abs);
            connection.prepare_cached(sql)?.query_row([account.as_bytes(), key.as_bytes()], count)
        };
        self.read(work).await
    }

    async fn update_key(
        &self,
        account: AccountId,
        id: KeyId,
        patch: KeyPatch,
        act: &Act,
    ) -> Result<Updated, StoreError> {
        let work = move |connection: &Connection, log: &ActLog| {
            let Some(before) = get(connection, account, id)? else { return Ok(Updated::NotFound) };
            let key = match before.clone().updated(&patch, log.act.at) {
                Ok(key) => key,
                Err(reason) => return Ok(Updated::NotChanged(reason)),
            };
            if let Err(bad) = takes_key(connection, account, patch.group.flatten())? {
                return Ok(Updated::BadGroup(bad));
            }
            put_terms(connection, account, &key)?;
            if let Some(updated) = key.change(&before, log.act.at) {
                log.write(connection, account, (Some(id), key.spend.group), updated)?;
            }
            Ok(Updated::Key(key))
        };
        self.govern(act, work).await
    }

    async fn rotate_key(
        &self,
        new: NewCredential,
        idempotency: Option<Idempotency>,
        act: &Act,
    ) -> Result<Rotated, StoreError> {
        let work =
            move |connection: &Connection, log: &ActLog| rotate(connection, &new, idempotency.as_ref(), log);
        self.govern(act, work).await
    }

    async fn revoke_key(
        &self,
        account: AccountId,
        id: KeyId,
        act: &Act,
    ) -> Result<Option<ApiKey>, StoreError> {
        let work = move |connection: &Connection, log: &ActLog| {
            let Some(key) = get(connection, account, id)? else { return Ok(None) };
            if key.spend.revoked_at.is_some() {
                return Ok(Some(key));
            }
            let revoked = key.revoked(log.act.at);
            put_terms(connection, account, &revoked)?;
            log.write(connection, account, (Some(id), revoked.spend.group), EventKind::KeyRevoked {})?;
            Ok(Some(revoked))
        };
        self.govern(act, work).await
    }
}

/// Creates a key unless the idempotency key is taken; repeating it changes nothing.
fn create(
    connection: &Connection,
    new: &NewKey,
    attempt: Option<&Idempotency>,
    log: &ActLog,
) -> rusqlite::Result<Created> {
    match idempotency::earlier(connection, new.account, attempt, KeyId::from_slice)? {
        Some(Earlier::OtherRequest) => return Ok(Created::Reused),
        Some(Earlier::Made(id)) => {
            let key = get(connection, new.account, id)?.ok_or_else(missing)?;
            return Ok(if id == new.key.id { Created::New(key) } else { Created::Replayed(key) });
        }
        None => {}
    }
    if accounts::numbers(connection, new.account)?.keys >= new.most
        && get(connection, new.account, new.key.id)?.is_none()
    {
        return Ok(Created::TooMany);
    }
    if let Err(bad) = takes_key(connection, new.account, new.key.spend.group)? {
        return Ok(Created::BadGroup(bad));
    }
    if insert(connection, new.account, &new.key)? {
        let created = new.key.creation(log.act.at);
        log.write(connection, new.account, (Some(new.key.id), new.key.spend.group), created)?;
    }
    let owner = Principal::ApiKey(new.account, new.key.id);
    accounts::put_credential(connection, &new.digest, Credential::first(owner))?;
    idempotency::keep(connection, new.account, attempt, new.key.id.as_bytes())?;
    get(connection, new.account, new.key.id)?.map(Created::New).ok_or_else(missing)
}

/// Gives a key a new credential; repeating it changes nothing.
fn rotate(
    connection: &Connection,
    new: &NewCredential,
    attempt: Option<&Idempotency>,
    log: &ActLog,
) -> rusqlite::Result<Rotated> {
    let Some(key) = get(connection, new.account, new.key)? else { return Ok(Rotated::NotFound) };
    let sql = "SELECT EXISTS (SELECT 1 FROM credentials WHERE digest = ?1)";
    if connection.prepare_cached(sql)?.query_row([new.digest.as_bytes()], |row| row.get(0))? {
        return Ok(Rotated::New(key));
    }
    match idempotency::earlier(connection, new.account, attempt, KeyId::from_slice)? {
        Some(Earlier::OtherRequest) => return Ok(Rotated::Reused),
        Some(Earlier::Made(_)) => return Ok(Rotated::Replayed(key)),
        None => {}
    }
    let key = match key.rotated(new, log.act.at) {
        Ok(key) => key,
        Err(reason) => return Ok(Rotated::Refused(reason)),
    };
    put_rotation(connection, new, &key)?;
    log.write(connection, new.account, (Some(new.key), key.spend.group), key.rotation_event(log.act.at))?;
    idempotency::keep(connection, new.account, attempt, new.key.as_bytes())?;
    Ok(Rotated::New(key))
}

/// Writes a key's new credential, and forgets those that the key accepts no more.
fn put_rotation(connection: &Connection, new: &NewCredential, key: &ApiKey) -> rusqlite::Result<()> {
    let (account, id) = (new.account.as_bytes(), new.key.as_bytes());
    let Rotation { current, previous_until } = key.spend.rotation;
    let sql =
        "UPDATE api_keys SET hint = ?3, credential = ?4, previous_until = ?5 WHERE account = ?1 AND id = ?2";
    let previous_until = previous_until.map(Timestamp::millis);
    let row = params![account, id, key.hint, current.cast_signed(), previous_until];
    connection.prepare_cached(sql)?.execute(row)?;
    // The first has no place in the index, and stays.
    let sql = "DELETE FROM credentials WHERE account = ?1 AND id = ?2 AND number > 0 AND number < ?3 - 1";
    connection.prepare_cached(sql)?.execute(params![account, id, current.cast_signed()])?;
    let owner = Principal::ApiKey(new.account, new.key);
    accounts::put_credential(connection, &new.digest, Credential { owner, number: current })?;
    Ok(())
}

/// Writes and counts a key, unless the id exists. Returns whether the key was written. Money that the key has spent is
/// an opening balance.
pub(crate) fn insert(connection: &Connection, account: AccountId, key: &ApiKey) -> rusqlite::Result<bool> {
    let ApiKey { id, label, hint, created_at, metadata, spend } = key;
    let ledger::Key { budget, group, rotation, expires_at, revoked_at, last_used_at } = spend;
    let sql = "INSERT INTO api_keys (account, id, label, hint, created_at, metadata, spend_limit, used, held, bounds,
                                     group_id, expires_at, revoked_at, last_used_at, credential, previous_until, opening)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?8)
               ON CONFLICT (account, id) DO NOTHING";
    let written = connection.prepare_cached(sql)?.execute(params![
        account.as_bytes(),
        id.as_bytes(),
        label,
        hint,
        created_at.millis(),
        metadata_column(metadata),
        budget.limit.map(NanoUsd::nanos),
        budget.used.nanos(),
        budget.held.nanos(),
        bounds(budget),
        group.as_ref().map(GroupId::as_bytes),
        expires_at.map(Timestamp::millis),
        revoked_at.map(Timestamp::millis),
        last_used_at.map(Timestamp::millis),
        rotation.current.cast_signed(),
        rotation.previous_until.map(Timestamp::millis),
    ])?;
    if written > 0 {
        let sql = "UPDATE accounts SET keys = keys + 1 WHERE id = ?1";
        connection.prepare_cached(sql)?.execute([account.as_bytes()])?;
    }
    Ok(written > 0)
}

/// Finds a key of the account.
fn get(connection: &Connection, account: AccountId, id: KeyId) -> rusqlite::Result<Option<ApiKey>> {
    let sql = format!("SELECT {COLUMNS} FROM api_keys k WHERE account = ?1 AND id = ?2");
    let (account, id) = (account.as_bytes(), id.as_bytes());
    connection.prepare_cached(&sql)?.query_row([account, id], api_key).optional()
}

/// Lists keys of the account, or of a group of the account, in the order of ids.
pub(crate) fn list(
    connection: &Connection,
    account: AccountId,
    group: Option<GroupId>,
    page: Page,
) -> rusqlite::Result<Vec<ApiKey>> {
    // The empty value sorts before every id.
    let (behind, order, end): (_, _, &[u8]) = match page.order {
        Order::Ascending => (">", "ASC", &[]),
        Order::Descending => ("<", "DESC", BEHIND_ALL_IDS),
    };
    let status = page.status.map(|(status, _)| status);
    let condition = match status {
        None => "?4 IS NULL",
        Some(Status::Revoked) => "revoked_at IS NOT NULL AND ?4 IS NOT NULL",
        Some(Status::Expired) => "revoked_at IS NULL AND expires_at <= ?4",
        Some(Status::Active) => "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?4)",
    };
    // The ids are read from an index alone: otherwise SQLite would look up every key on the way.
    let index = match (group, status) {
        (Some(_), _) => "INDEXED BY keys_by_group WHERE group_id = ?5",
        (None, None) => "WHERE ?5 IS NULL",
        (None, Some(Status::Revoked)) => "INDEXED BY keys_revoked WHERE ?5 IS NULL",
        (None, Some(Status::Expired | Status::Active)) => "INDEXED BY keys_not_revoked WHERE ?5 IS NULL",
    };
    let sql = format!(
        "SELECT {COLUMNS}
         FROM (SELECT id AS listed FROM api_keys {index}
                  AND account = ?1 AND id {behind} ?2 AND {condition} ORDER BY id {order} LIMIT ?3)
         CROSS JOIN api_keys k ON k.account = ?1 AND k.id = listed ORDER BY listed {order}"
    );
    let after = page.after.as_ref().map_or(end, |id| id.as_bytes().as_slice());
    let (limit, now) = (rows(page.limit), page.status.map(|(_, now)| now.millis()));
    let params = params![account.as_bytes(), after, limit, now, group.as_ref().map(GroupId::as_bytes)];
    connection.prepare_cached(&sql)?.query_map(params, api_key)?.collect()
}

/// Judges whether a key may be in this group, if any.
pub(crate) fn takes_key(
    connection: &Connection,
    account: AccountId,
    group: Option<GroupId>,
) -> rusqlite::Result<Result<(), BadGroup>> {
    let Some(id) = group else { return Ok(Ok(())) };
    let find = |id| budgets::group(connection, account, id);
    let found = find(id)?;
    let parent = found.as_ref().and_then(|group| group.parent).map(find).transpose()?.flatten();
    Ok(group::takes_keys(found.as_ref(), parent.as_ref()))
}

/// Writes the fields that owners change, and none that the ledger changes.
fn put_terms(connection: &Connection, account: AccountId, key: &ApiKey) -> rusqlite::Result<()> {
    let sql = "UPDATE api_keys SET label = ?3, spend_limit = ?4, bounds = ?5, group_id = ?6, expires_at = ?7,
                      revoked_at = ?8, metadata = ?9 WHERE account = ?1 AND id = ?2";
    connection.prepare_cached(sql)?.execute(params![
        account.as_bytes(),
        key.id.as_bytes(),
        key.label,
        key.spend.budget.limit.map(NanoUsd::nanos),
        bounds(&key.spend.budget),
        key.spend.group.as_ref().map(GroupId::as_bytes),
        key.spend.expires_at.map(Timestamp::millis),
        key.spend.revoked_at.map(Timestamp::millis),
        metadata_column(&key.metadata),
    ])?;
    Ok(())
}

fn api_key(row: &Row<'_>) -> rusqlite::Result<ApiKey> {
    Ok(ApiKey {
        id: column_id(row, 0, KeyId::from_slice)?,
        label: row.get(1)?,
        hint: row.get(2)?,
        created_at: time(row, 3)?,
        metadata: metadata(row, 4)?,
        spend: budgets::key_from(row, 5)?,
    })
}
