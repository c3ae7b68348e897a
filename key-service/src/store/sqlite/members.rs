//! Members.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params, types::Type};
use shared::{
    ids::{AccountId, MemberId},
    time::Timestamp,
};

use super::{
    Sqlite,
    tables::{damaged, events::ActLog, id as column_id, time},
};
use crate::store::{MemberCreated, Members, StoreError};
use domain::{
    event::{Act, EventKind},
    member::{LinkMaker, MadeLink, Member, MemberChange, PasswordHash, Role},
    second_factor::SecondFactor,
};

#[async_trait]
impl Members for Sqlite {
    async fn create_member(
        &self,
        account: AccountId,
        member: Member,
        most: u64,
        act: &Act,
    ) -> Result<MemberCreated, StoreError> {
        let work = move |connection: &Connection, log: &ActLog| {
            let Member { id, name, role, password, created_at, last_link, second_factor } = &member;
            match named(connection, account, name)? {
                // Made by an earlier attempt of the same caller.
                Some(member) if member.id == *id => return Ok(MemberCreated::Made),
                Some(_) => return Ok(MemberCreated::NameTaken),
                None => {}
            }
            let sql = "SELECT count(*) FROM members WHERE account = ?1";
            let members: i64 =
                connection.prepare_cached(sql)?.query_row([account.as_bytes()], |row| row.get(0))?;
            if members.unsigned_abs() >= most {
                return Ok(MemberCreated::TooMany);
            }
            let sql = "INSERT INTO members (account, id, name, role, password, created_at, last_link_by, last_link_at, second_factor)
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
            let hash = password.as_ref().map(|PasswordHash(hash)| hash);
            let (by, at) = last_link_columns(last_link.as_ref());
            let ids = (account.as_bytes(), id.as_bytes());
            let factor = second_factor.as_ref().map(SecondFactor::to_string);
            let row = params![ids.0, ids.1, name, role.as_str(), hash, created_at.millis(), by, at, factor];
            connection.prepare_cached(sql)?.execute(row)?;
            log.write(connection, account, (None, None), member.invitation())?;
            Ok(MemberCreated::Made)
        };
        self.govern(act, work).await
    }

    async fn members(&self, account: AccountId) -> Result<Vec<Member>, StoreError> {
        let work = move |connection: &Connection| {
            let sql = "SELECT id, name, role, password, created_at, last_link_by, last_link_at, second_factor
                       FROM members WHERE account = ?1 ORDER BY id";
            connection.prepare_cached(sql)?.query_map([account.as_bytes()], |row| member(row, 0))?.collect()
        };
        self.read(work).await
    }

    async fn member_named(&self, account: AccountId, name: &str) -> Result<Option<Member>, StoreError> {
        let name = name.to_owned();
        self.read(move |connection| named(connection, account, &name)).await
    }

    async fn update_member(
        &self,
        account: AccountId,
        id: MemberId,
        change: MemberChange,
    ) -> Result<bool, StoreError> {
        let work = move |connection: &Connection| {
            let sql = "UPDATE members SET role = coalesce(?3, role), password = coalesce(?4, password),
                              last_link_by = coalesce(?5, last_link_by), last_link_at = coalesce(?6, last_link_at)
                       WHERE account = ?1 AND id = ?2";
            let MemberChange { role, password, last_link } = &change;
            let hash = password.as_ref().map(|PasswordHash(hash)| hash);
            let (by, at) = last_link_columns(last_link.as_ref());
            let row = params![account.as_bytes(), id.as_bytes(), role.map(Role::as_str), hash, by, at];
            Ok(connection.prepare_cached(sql)?.execute(row)? > 0)
        };
        self.writer.write(work).await
    }

    async fn replace_second_factor(
        &self,
        account: AccountId,
        member: &Member,
        after: Option<SecondFactor>,
        act: &Act,
    ) -> Result<bool, StoreError> {
        let event = member.second_factor_event(after.as_ref());
        let (id, before) = (member.id, member.second_factor.as_ref().map(SecondFactor::to_string));
        let work = move |connection: &Connection, log: &ActLog| {
            let sql = "UPDATE members SET second_factor = ?4 WHERE account = ?1 AND id = ?2 AND second_factor IS ?3";
            let after = after.as_ref().map(SecondFactor::to_string);
            let row = params![account.as_bytes(), id.as_bytes(), before, after];
            let is_replaced = connection.prepare_cached(sql)?.execute(row)? > 0;
            if let Some(kind) = event.filter(|_| is_replaced) {
                log.write(connection, account, (None, None), kind)?;
            }
            Ok(is_replaced)
        };
        self.govern(act, work).await
    }

    async fn remove_member(&self, account: AccountId, id: MemberId, act: &Act) -> Result<bool, StoreError> {
        let work = move |connection: &Connection, log: &ActLog| {
            let sql = "DELETE FROM members WHERE account = ?1 AND id = ?2 RETURNING name";
            let row = [account.as_bytes(), id.as_bytes()];
            let name: Option<String> =
                connection.prepare_cached(sql)?.query_row(row, |row| row.get(0)).optional()?;
            let Some(name) = name else { return Ok(false) };
            let removed = EventKind::MemberRemoved { member_id: id, name };
            log.write(connection, account, (None, None), removed)?;
            Ok(true)
        };
        self.govern(act, work).await
    }
}

/// The member of this name, by the index that keeps names unique.
fn named(connection: &Connection, account: AccountId, name: &str) -> rusqlite::Result<Option<Member>> {
    let sql = "SELECT id, name, role, password, created_at, last_link_by, last_link_at, second_factor FROM members WHERE account = ?1 AND name = ?2";
    let row = params![account.as_bytes(), name];
    connection.prepare_cached(sql)?.query_row(row, |row| member(row, 0)).optional()
}

/// The columns of a last link.
fn last_link_columns(link: Option<&MadeLink>) -> (Option<String>, Option<i64>) {
    (link.map(|link| link.by.to_string()), link.map(|link| link.at.millis()))
}

/// A member whose columns begin with this one.
pub(super) fn member(row: &Row<'_>, first: usize) -> rusqlite::Result<Member> {
    let role = Role::parse(row.get_ref(first + 2)?.as_str()?);
    Ok(Member {
        id: column_id(row, first, MemberId::from_slice)?,
        name: row.get(first + 1)?,
        role: role.ok_or_else(|| damaged(first + 2, Type::Text, "a role is not known"))?,
        password: row.get::<_, Option<String>>(first + 3)?.map(PasswordHash),
        created_at: time(row, first + 4)?,
        last_link: last_link(row, first + 5)?,
        second_factor: second_factor(row, first + 7)?,
    })
}

fn second_factor(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<SecondFactor>> {
    let Some(stored) = row.get::<_, Option<String>>(column)? else { return Ok(None) };
    let factor = SecondFactor::parse(&stored);
    Ok(Some(factor.ok_or_else(|| damaged(column, Type::Text, "a second factor cannot be read"))?))
}

/// A last link whose columns begin with this one.
fn last_link(row: &Row<'_>, first: usize) -> rusqlite::Result<Option<MadeLink>> {
    let (by, at): (Option<String>, Option<i64>) = (row.get(first)?, row.get(first + 1)?);
    let Some((by, at)) = by.zip(at) else { return Ok(None) };
    let by = LinkMaker::parse(&by);
    let by = by.ok_or_else(|| damaged(first, Type::Text, "the maker of a link is not known"))?;
    Ok(Some(MadeLink { by, at: Timestamp::from_millis(at) }))
}
