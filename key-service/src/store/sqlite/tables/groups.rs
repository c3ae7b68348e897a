//! Groups of API keys.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};
use shared::{
    ids::{AccountId, GroupId},
    money::NanoUsd,
    time::Timestamp,
};

use super::{
    accounts, bounds, budget, budgets,
    events::ActLog,
    id as column_id,
    idempotency::{self, Earlier, missing},
    keys, metadata, metadata_column, rows, time,
};
use crate::store::{
    GroupCreated, GroupPage, GroupUpdated, Groups, Idempotency, Order, Page, StoreError, sqlite::Sqlite,
};
use domain::{
    event::{Act, EventKind},
    group::{self, BadGroup, Group, GroupPatch, KeyDefaults, NewGroup},
    key::ApiKey,
    ledger,
};

/// Columns of a group in the order of [`group`], of a table named `g`.
const COLUMNS: &str = "g.id, g.name, g.external_id, g.metadata, g.created_at,
    (SELECT count(*) FROM api_keys k WHERE k.account = g.account AND k.group_id = g.id),
    g.default_limit, 0, 0, g.default_bounds, g.default_lifetime, g.default_metadata,
    g.spend_limit, g.used, g.held, g.bounds, g.parent, g.archived_at";

#[async_trait]
impl Groups for Sqlite {
    async fn create_group(
        &self,
        new: NewGroup,
        idempotency: Option<Idempotency>,
        act: &Act,
    ) -> Result<GroupCreated, StoreError> {
        let work =
            move |connection: &Connection, log: &ActLog| create(connection, &new, idempotency.as_ref(), log);
        self.govern(act, work).await
    }

    async fn group(&self, account: AccountId, id: GroupId) -> Result<Option<Group>, StoreError> {
        self.read(move |connection| get(connection, account, id)).await
    }

    async fn group_with_external_id(
        &self,
        account: AccountId,
        external_id: &str,
    ) -> Result<Option<Group>, StoreError> {
        let external_id = external_id.to_owned();
        self.read(move |connection| with_external_id(connection, account, &external_id)).await
    }

    async fn child_groups(&self, account: AccountId, parent: GroupId) -> Result<Vec<GroupId>, StoreError> {
        let work = move |connection: &Connection| {
            let sql = "SELECT id FROM groups WHERE account = ?1 AND parent = ?2 ORDER BY id";
            let row = [account.as_bytes(), parent.as_bytes()];
            let id = |row: &Row<'_>| column_id(row, 0, GroupId::from_slice);
            connection.prepare_cached(sql)?.query_map(row, id)?.collect()
        };
        self.read(work).await
    }

    async fn groups(&self, account: AccountId, page: GroupPage) -> Result<Vec<Group>, StoreError> {
        let work = move |connection: &Connection| {
            // The empty value sorts before every id.
            let (behind, order, end): (_, _, &[u8]) = match page.order {
                Order::Ascending => (">", "ASC", &[]),
                Order::Descending => ("<", "DESC", keys::BEHIND_ALL_IDS),
            };
            let sql = format!(
                "SELECT {COLUMNS} FROM groups g
                 WHERE account = ?1 AND id {behind} ?2 ORDER BY id {order} LIMIT ?3"
            );
            let after = page.after.as_ref().map_or(end, |id| id.as_bytes().as_slice());
            let row = params![account.as_bytes(), after, rows(page.limit)];
            connection.prepare_cached(&sql)?.query_map(row, group)?.collect()
        };
        self.read(work).await
    }

    async fn keys_of_group(
        &self,
        account: AccountId,
        group: GroupId,
        page: Page,
    ) -> Result<Vec<ApiKey>, StoreError> {
        self.read(move |connection| keys::list(connection, account, Some(group), page)).await
    }

    async fn update_group(
        &self,
        account: AccountId,
        id: GroupId,
        patch: GroupPatch,
        act: &Act,
    ) -> Result<GroupUpdated, StoreError> {
        let work = move |connection: &Connection, log: &ActLog| {
            let Some(before) = get(connection, account, id)? else { return Ok(GroupUpdated::NotFound) };
            let parent = may_have_parent(connection, account, id, patch.parent.flatten())?;
            match before.clone().updated(&patch, parent, log.act.at) {
                Ok(group) => {
                    put_terms(connection, account, &group)?;
                    if let Some(updated) = group.change(&before, log.act.at) {
                        log.write(connection, account, (None, Some(id)), updated)?;
                    }
                    Ok(GroupUpdated::Group(group))
                }
                Err(reason) => Ok(GroupUpdated::NotChanged(reason)),
            }
        };
        self.govern(act, work).await
    }

    async fn archive_group(
        &self,
        account: AccountId,
        id: GroupId,
        act: &Act,
    ) -> Result<Option<Group>, StoreError> {
        let work = move |connection: &Connection, log: &ActLog| {
            let Some(group) = get(connection, account, id)? else { return Ok(None) };
            if group.spend.archived_at.is_some() {
                return Ok(Some(group));
            }
            let archived = group.archived(log.act.at);
            put_terms(connection, account, &archived)?;
            log.write(connection, account, (None, Some(id)), EventKind::GroupArchived {})?;
            Ok(Some(archived))
        };
        self.govern(act, work).await
    }
}

/// Creates a group unless the idempotency key is taken or another one has the external id; repeating it changes nothing.
fn create(
    connection: &Connection,
    new: &NewGroup,
    attempt: Option<&Idempotency>,
    log: &ActLog,
) -> rusqlite::Result<GroupCreated> {
    let NewGroup { account, group, most } = new;
    match idempotency::earlier(connection, *account, attempt, GroupId::from_slice)? {
        Some(Earlier::OtherRequest) => return Ok(GroupCreated::Reused),
        Some(Earlier::Made(id)) => {
            let made = get(connection, *account, id)?.ok_or_else(missing)?;
            return Ok(if id == group.id { GroupCreated::New(made) } else { GroupCreated::Replayed(made) });
        }
        None => {}
    }
    let external_id = group.external_id.as_deref();
    let named = external_id.map(|id| with_external_id(connection, *account, id)).transpose()?.flatten();
    if let Some(existing) = named {
        return Ok(GroupCreated::Existing(existing));
    }
    if let Err(bad) = may_have_parent(connection, *account, group.id, group.spend.parent)? {
        return Ok(GroupCreated::BadParent(bad));
    }
    if accounts::numbers(connection, *account)?.groups >= *most
        && get(connection, *account, group.id)?.is_none()
    {
        return Ok(GroupCreated::TooMany);
    }
    if insert(connection, *account, group)? {
        let created = group.creation(log.act.at);
        log.write(connection, *account, (None, Some(group.id)), created)?;
    }
    idempotency::keep(connection, *account, attempt, group.id.as_bytes())?;
    let made = get(connection, *account, group.id)?;
    Ok(made.map_or_else(|| GroupCreated::New(group.clone()), GroupCreated::New))
}

/// Writes and counts a group, unless the id exists. Returns whether the group was written. Money that the group has spent
/// is an opening balance.
pub(crate) fn insert(connection: &Connection, account: AccountId, group: &Group) -> rusqlite::Result<bool> {
    let sql = "INSERT INTO groups (account, id, name, external_id, created_at, used, held, opening)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?6) ON CONFLICT (account, id) DO NOTHING";
    let row = params![
        account.as_bytes(),
        group.id.as_bytes(),
        group.name,
        group.external_id,
        group.created_at.millis(),
        group.spend.budget.used.nanos(),
    ];
    let is_new = connection.prepare_cached(sql)?.execute(row)? > 0;
    if is_new {
        put_terms(connection, account, group)?;
        let sql = "UPDATE accounts SET groups = groups + 1 WHERE id = ?1";
        connection.prepare_cached(sql)?.execute([account.as_bytes()])?;
    }
    Ok(is_new)
}

/// Judges whether a group, which may not exist yet, may have this parent, if any.
fn may_have_parent(
    connection: &Connection,
    account: AccountId,
    id: GroupId,
    parent: Option<GroupId>,
) -> rusqlite::Result<Result<(), BadGroup>> {
    let Some(parent) = parent else { return Ok(Ok(())) };
    let sql = "SELECT EXISTS (SELECT 1 FROM groups WHERE account = ?1 AND parent = ?2)";
    let has_children =
        connection.prepare_cached(sql)?.query_row([account.as_bytes(), id.as_bytes()], |row| row.get(0))?;
    let found = budgets::group(connection, account, parent)?;
    Ok(group::may_be_parent((parent, found.as_ref()), id, has_children))
}

fn get(connection: &Connection, account: AccountId, id: GroupId) -> rusqlite::Result<Option<Group>> {
    let sql = format!("SELECT {COLUMNS} FROM groups g WHERE account = ?1 AND id = ?2");
    connection.prepare_cached(&sql)?.query_row([account.as_bytes(), id.as_bytes()], group).optional()
}

pub(crate) fn with_external_id(
    connection: &Connection,
    account: AccountId,
    external_id: &str,
) -> rusqlite::Result<Option<Group>> {
    let sql = format!("SELECT {COLUMNS} FROM groups g WHERE account = ?1 AND external_id = ?2");
    let row = params![account.as_bytes(), external_id];
    connection.prepare_cached(&sql)?.query_row(row, group).optional()
}

/// Writes the fields that owners change, and none that the ledger changes.
fn put_terms(connection: &Connection, account: AccountId, group: &Group) -> rusqlite::Result<()> {
    let sql = "UPDATE groups SET name = ?3, metadata = ?4, parent = ?5, spend_limit = ?6, bounds = ?7,
                      archived_at = ?8, default_limit = ?9, default_bounds = ?10, default_lifetime = ?11,
                      default_metadata = ?12
               WHERE account = ?1 AND id = ?2";
    let ledger::Group { budget, parent, archived_at } = &group.spend;
    let KeyDefaults { budget: default, expires_in_seconds, metadata } = &group.key_defaults;
    connection.prepare_cached(sql)?.execute(params![
        account.as_bytes(),
        group.id.as_bytes(),
        group.name,
        metadata_column(&group.metadata),
        parent.as_ref().map(GroupId::as_bytes),
        budget.limit.map(NanoUsd::nanos),
        bounds(budget),
        archived_at.map(Timestamp::millis),
        default.limit.map(NanoUsd::nanos),
        bounds(default),
        expires_in_seconds.map(u64::cast_signed),
        metadata_column(metadata),
    ])?;
    Ok(())
}

fn group(row: &Row<'_>) -> rusqlite::Result<Group> {
    let expires_in_seconds = row.get::<_, Option<i64>>(10)?.map(i64::unsigned_abs);
    let key_defaults =
        KeyDefaults { budget: budget(row, 6)?, expires_in_seconds, metadata: metadata(row, 11)? };
    Ok(Group {
        id: column_id(row, 0, GroupId::from_slice)?,
        name: row.get(1)?,
        external_id: row.get(2)?,
        metadata: metadata(row, 3)?,
        created_at: time(row, 4)?,
        keys: row.get::<_, i64>(5)?.unsigned_abs(),
        key_defaults,
        spend: budgets::group_from(row, 12)?,
    })
}
