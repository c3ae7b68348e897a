//! Members, their sign-in links and sessions, and attempts to sign in.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params, types::Type};
use shared::{
    ids::{AccountId, MemberId, SessionId},
    time::Timestamp,
};

use super::{
    Sqlite,
    tables::{damaged, id as column_id, time},
};
use crate::store::{MemberCreated, Members, StoreError};
use domain::{
    digest::Digest,
    member::{Link, LinkMaker, MadeLink, Member, MemberChange, PasswordHash, Role, Session, SignInWay},
};

#[async_trait]
impl Members for Sqlite {
    async fn create_member(
        &self,
        account: AccountId,
        member: Member,
        most: u64,
    ) -> Result<MemberCreated, StoreError> {
        let work = move |connection: &Connection| {
            let Member { id, name, role, password, created_at, last_link } = &member;
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
            let sql = "INSERT INTO members (account, id, name, role, password, created_at, last_link_by, last_link_at)
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
            let hash = password.as_ref().map(|PasswordHash(hash)| hash);
            let (account, id) = (account.as_bytes(), id.as_bytes());
            let (by, at) = last_link_columns(last_link.as_ref());
            let row = params![account, id, name, role.as_str(), hash, created_at.millis(), by, at];
            connection.prepare_cached(sql)?.execute(row)?;
            Ok(MemberCreated::Made)
        };
        self.writer.write(work).await
    }

    async fn members(&self, account: AccountId) -> Result<Vec<Member>, StoreError> {
        let work = move |connection: &Connection| {
            let sql = "SELECT id, name, role, password, created_at, last_link_by, last_link_at
                       FROM members WHERE account = ?1 ORDER BY id";
            connection.prepare_cached(sql)?.query_map([account.as_bytes()], |row| member(row, 0))?.collect()
        };
        self.readers.read(work).await
    }

    async fn member_named(&self, account: AccountId, name: &str) -> Result<Option<Member>, StoreError> {
        let name = name.to_owned();
        self.readers.read(move |connection| named(connection, account, &name)).await
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

    async fn remove_member(&self, account: AccountId, id: MemberId) -> Result<bool, StoreError> {
        let work = move |connection: &Connection| {
            let sql = "DELETE FROM members WHERE account = ?1 AND id = ?2";
            Ok(connection.prepare_cached(sql)?.execute([account.as_bytes(), id.as_bytes()])? > 0)
        };
        self.writer.write(work).await
    }

    async fn create_link(&self, account: AccountId, link: Link, now: Timestamp) -> Result<(), StoreError> {
        let work = move |connection: &Connection| {
            connection.prepare_cached("DELETE FROM links WHERE expires_at <= ?1")?.execute([now.millis()])?;
            let Link { digest, member, expires_at, password, maker } = &link;
            let before = "DELETE FROM links WHERE account = ?1 AND member = ?2";
            connection.prepare_cached(before)?.execute([account.as_bytes(), member.as_bytes()])?;
            let sql = "INSERT INTO links (account, digest, member, expires_at, password, maker)
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING";
            connection.prepare_cached(sql)?.execute(params![
                account.as_bytes(),
                digest.as_bytes(),
                member.as_bytes(),
                expires_at.millis(),
                password.as_ref().map(Digest::as_bytes),
                maker.to_string(),
            ])?;
            Ok(())
        };
        self.writer.write(work).await
    }

    async fn link(
        &self,
        account: AccountId,
        digest: Digest,
        now: Timestamp,
    ) -> Result<Option<(Link, Member)>, StoreError> {
        self.readers.read(move |connection: &Connection| live_link(connection, account, digest, now)).await
    }

    async fn take_link(
        &self,
        account: AccountId,
        digest: Digest,
        now: Timestamp,
    ) -> Result<Option<(Link, Member)>, StoreError> {
        let work = move |connection: &Connection| {
            let taken = live_link(connection, account, digest, now)?;
            let sql = "DELETE FROM links WHERE account = ?1 AND digest = ?2";
            connection.prepare_cached(sql)?.execute(params![account.as_bytes(), digest.as_bytes()])?;
            Ok(taken)
        };
        self.writer.write(work).await
    }

    async fn create_session(&self, account: AccountId, session: Session) -> Result<(), StoreError> {
        let work = move |connection: &Connection| {
            let Session { digest, id, member, agent, created_at, seen_at, expires_at, way } = &session;
            let expired = "DELETE FROM sessions WHERE expires_at <= ?1";
            connection.prepare_cached(expired)?.execute([created_at.millis()])?;
            let sql =
                "INSERT INTO sessions (account, digest, id, member, agent, created_at, seen_at, expires_at, way)
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING";
            connection.prepare_cached(sql)?.execute(params![
                account.as_bytes(),
                digest.as_bytes(),
                id.as_bytes(),
                member.as_bytes(),
                agent,
                created_at.millis(),
                seen_at.millis(),
                expires_at.millis(),
                way.to_string(),
            ])?;
            Ok(())
        };
        self.writer.write(work).await
    }

    async fn session(
        &self,
        account: AccountId,
        digest: Digest,
        now: Timestamp,
    ) -> Result<Option<(Session, Member)>, StoreError> {
        let work = move |connection: &Connection| {
            let sql =
                "SELECT s.digest, s.id, s.member, s.agent, s.created_at, s.seen_at, s.expires_at, s.way,
                              m.id, m.name, m.role, m.password, m.created_at, m.last_link_by, m.last_link_at
                       FROM sessions s JOIN members m ON m.account = s.account AND m.id = s.member
                       WHERE s.account = ?1 AND s.digest = ?2 AND s.expires_at > ?3";
            let row = params![account.as_bytes(), digest.as_bytes(), now.millis()];
            let found = |row: &Row<'_>| Ok((session_from(row)?, member(row, 8)?));
            connection.prepare_cached(sql)?.query_row(row, found).optional()
        };
        self.readers.read(work).await
    }

    async fn touch_session(
        &self,
        account: AccountId,
        digest: Digest,
        seen_at: Timestamp,
        expires_at: Timestamp,
    ) -> Result<(), StoreError> {
        let work = move |connection: &Connection| {
            let sql = "UPDATE sessions SET seen_at = ?3, expires_at = ?4 WHERE account = ?1 AND digest = ?2";
            let row = params![account.as_bytes(), digest.as_bytes(), seen_at.millis(), expires_at.millis()];
            connection.prepare_cached(sql)?.execute(row)?;
            Ok(())
        };
        self.writer.write(work).await
    }

    async fn sessions(
        &self,
        account: AccountId,
        member: MemberId,
        now: Timestamp,
    ) -> Result<Vec<Session>, StoreError> {
        let work = move |connection: &Connection| {
            let sql = "SELECT digest, id, member, agent, created_at, seen_at, expires_at, way
                       FROM sessions WHERE account = ?1 AND member = ?2 AND expires_at > ?3 ORDER BY id";
            let row = params![account.as_bytes(), member.as_bytes(), now.millis()];
            connection.prepare_cached(sql)?.query_map(row, session_from)?.collect()
        };
        self.readers.read(work).await
    }

    async fn end_session(&self, account: AccountId, digest: Digest) -> Result<(), StoreError> {
        let work = move |connection: &Connection| {
            let sql = "DELETE FROM sessions WHERE account = ?1 AND digest = ?2";
            connection.prepare_cached(sql)?.execute(params![account.as_bytes(), digest.as_bytes()])?;
            Ok(())
        };
        self.writer.write(work).await
    }

    async fn count_attempt(&self, name: Digest, now: Timestamp, until: Timestamp) -> Result<u64, StoreError> {
        let work = move |connection: &Connection| {
            connection.prepare_cached("DELETE FROM attempts WHERE until <= ?1")?.execute([now.millis()])?;
            let sql = "INSERT INTO attempts (name, attempts, until) VALUES (?1, 1, ?2)
                       ON CONFLICT (name) DO UPDATE SET attempts = attempts + 1 RETURNING attempts";
            let row = params![name.as_bytes(), until.millis()];
            connection.prepare_cached(sql)?.query_row(row, |row| Ok(row.get::<_, i64>(0)?.unsigned_abs()))
        };
        self.writer.write(work).await
    }

    async fn take_attempt_back(&self, name: Digest) -> Result<(), StoreError> {
        let work = move |connection: &Connection| {
            let sql = "UPDATE attempts SET attempts = attempts - 1 WHERE name = ?1 AND attempts > 0";
            connection.prepare_cached(sql)?.execute([name.as_bytes()])?;
            Ok(())
        };
        self.writer.write(work).await
    }

    async fn forget_attempts(&self, name: Digest) -> Result<(), StoreError> {
        let work = move |connection: &Connection| {
            connection.prepare_cached("DELETE FROM attempts WHERE name = ?1")?.execute([name.as_bytes()])?;
            Ok(())
        };
        self.writer.write(work).await
    }
}

/// The member of this name, by the index that keeps names unique.
fn named(connection: &Connection, account: AccountId, name: &str) -> rusqlite::Result<Option<Member>> {
    let sql = "SELECT id, name, role, password, created_at, last_link_by, last_link_at FROM members WHERE account = ?1 AND name = ?2";
    let row = params![account.as_bytes(), name];
    connection.prepare_cached(sql)?.query_row(row, |row| member(row, 0)).optional()
}

/// A link that has not expired, with its member.
fn live_link(
    connection: &Connection,
    account: AccountId,
    digest: Digest,
    now: Timestamp,
) -> rusqlite::Result<Option<(Link, Member)>> {
    let sql = "SELECT l.expires_at, l.password, l.maker,
                      m.id, m.name, m.role, m.password, m.created_at, m.last_link_by, m.last_link_at
               FROM links l JOIN members m ON m.account = l.account AND m.id = l.member
               WHERE l.account = ?1 AND l.digest = ?2 AND l.expires_at > ?3";
    let row = params![account.as_bytes(), digest.as_bytes(), now.millis()];
    let found = |row: &Row<'_>| {
        let member = member(row, 3)?;
        let maker = LinkMaker::parse(row.get_ref(2)?.as_str()?);
        let link = Link {
            digest,
            member: member.id,
            expires_at: time(row, 0)?,
            password: row.get::<_, Option<[u8; 32]>>(1)?.map(Digest::from_bytes),
            maker: maker.ok_or_else(|| damaged(2, Type::Text, "the maker of a link is not known"))?,
        };
        Ok((link, member))
    };
    connection.prepare_cached(sql)?.query_row(row, found).optional()
}

/// The columns of a last link.
fn last_link_columns(link: Option<&MadeLink>) -> (Option<String>, Option<i64>) {
    (link.map(|link| link.by.to_string()), link.map(|link| link.at.millis()))
}

/// A member whose columns begin with this one.
fn member(row: &Row<'_>, first: usize) -> rusqlite::Result<Member> {
    let role = Role::parse(row.get_ref(first + 2)?.as_str()?);
    Ok(Member {
        id: column_id(row, first, MemberId::from_slice)?,
        name: row.get(first + 1)?,
        role: role.ok_or_else(|| damaged(first + 2, Type::Text, "a role is not known"))?,
        password: row.get::<_, Option<String>>(first + 3)?.map(PasswordHash),
        created_at: time(row, first + 4)?,
        last_link: last_link(row, first + 5)?,
    })
}

/// A last link whose columns begin with this one.
fn last_link(row: &Row<'_>, first: usize) -> rusqlite::Result<Option<MadeLink>> {
    let (by, at): (Option<String>, Option<i64>) = (row.get(first)?, row.get(first + 1)?);
    let Some((by, at)) = by.zip(at) else { return Ok(None) };
    let by = LinkMaker::parse(&by);
    let by = by.ok_or_else(|| damaged(first, Type::Text, "the maker of a link is not known"))?;
    Ok(Some(MadeLink { by, at: Timestamp::from_millis(at) }))
}

fn session_from(row: &Row<'_>) -> rusqlite::Result<Session> {
    let digest: [u8; 32] = row.get(0)?;
    Ok(Session {
        digest: Digest::from_bytes(digest),
        id: column_id(row, 1, SessionId::from_slice)?,
        member: column_id(row, 2, MemberId::from_slice)?,
        agent: row.get(3)?,
        created_at: time(row, 4)?,
        seen_at: time(row, 5)?,
        expires_at: time(row, 6)?,
        way: SignInWay::parse(row.get_ref(7)?.as_str()?)
            .ok_or_else(|| damaged(7, Type::Text, "the way of a sign-in is not known"))?,
    })
}
