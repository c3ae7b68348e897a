//! Records of members that expire, and counts of attempts, in one table.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};
use shared::{
    ids::{AccountId, MemberId},
    time::Timestamp,
};

use super::{
    Sqlite,
    members::member,
    tables::{events::ActLog, id as column_id, time},
};
use crate::store::{Expiring, ExpiringRecord, RecordKind, StoreError};
use domain::{
    digest::Digest,
    event::{Act, EventKind},
    member::Member,
};

#[async_trait]
impl Expiring for Sqlite {
    async fn put_record(
        &self,
        account: AccountId,
        record: ExpiringRecord,
        act: &Act,
    ) -> Result<(), StoreError> {
        let work = move |connection: &Connection, log: &ActLog| {
            remove_expired(connection, log.act.at)?;
            let ExpiringRecord { kind, name, member: member_id, expires_at, value } = &record;
            let (of, member) = (account.as_bytes(), member_id.as_bytes());
            if *kind == RecordKind::Link {
                let before = "DELETE FROM expiring INDEXED BY expiring_by_member
                              WHERE account = ?1 AND member = ?2 AND kind = ?3";
                connection.prepare_cached(before)?.execute(params![of, member, kind.as_str()])?;
            }
            let sql = "INSERT INTO expiring (account, kind, name, member, expires_at, value)
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING";
            let row = params![of, kind.as_str(), name.as_bytes(), member, expires_at.millis(), value];
            let written = connection.prepare_cached(sql)?.execute(row)?;
            if *kind == RecordKind::Session && written > 0 {
                let signed_in = EventKind::MemberSignedIn { member_id: *member_id };
                log.write(connection, account, (None, None), signed_in)?;
            }
            Ok(())
        };
        self.govern(act, work).await
    }

    async fn record(
        &self,
        account: AccountId,
        kind: RecordKind,
        name: Digest,
        now: Timestamp,
    ) -> Result<Option<(ExpiringRecord, Member)>, StoreError> {
        self.read(move |connection| find(connection, account, kind, name, now)).await
    }

    async fn take_record(
        &self,
        account: AccountId,
        kind: RecordKind,
        name: Digest,
        now: Timestamp,
    ) -> Result<Option<(ExpiringRecord, Member)>, StoreError> {
        let work = move |connection: &Connection| {
            let taken = find(connection, account, kind, name, now)?;
            remove(connection, account.as_bytes(), kind.as_str(), name)?;
            Ok(taken)
        };
        self.writer.write(work).await
    }

    async fn replace_record(
        &self,
        account: AccountId,
        record: ExpiringRecord,
        _: Timestamp,
    ) -> Result<(), StoreError> {
        let work = move |connection: &Connection| {
            let ExpiringRecord { kind, name, member: _, expires_at, value } = &record;
            let sql = "UPDATE expiring SET expires_at = ?4, value = ?5
                       WHERE account = ?1 AND kind = ?2 AND name = ?3";
            let row = params![account.as_bytes(), kind.as_str(), name.as_bytes(), expires_at.millis(), value];
            connection.prepare_cached(sql)?.execute(row)?;
            Ok(())
        };
        self.writer.write(work).await
    }

    async fn records(
        &self,
        account: AccountId,
        kind: RecordKind,
        member: MemberId,
        now: Timestamp,
    ) -> Result<Vec<ExpiringRecord>, StoreError> {
        let work = move |connection: &Connection| {
            let sql = "SELECT name, member, expires_at, value FROM expiring INDEXED BY expiring_by_member
                       WHERE account = ?1 AND member = ?2 AND kind = ?3 AND expires_at > ?4";
            let row = params![account.as_bytes(), member.as_bytes(), kind.as_str(), now.millis()];
            connection.prepare_cached(sql)?.query_map(row, |row| record(row, kind))?.collect()
        };
        self.read(work).await
    }

    async fn remove_record(
        &self,
        account: AccountId,
        kind: RecordKind,
        name: Digest,
    ) -> Result<(), StoreError> {
        self.writer.write(move |connection| remove(connection, account.as_bytes(), kind.as_str(), name)).await
    }

    async fn count_attempt(&self, name: Digest, now: Timestamp, until: Timestamp) -> Result<u64, StoreError> {
        let work = move |connection: &Connection| {
            remove_expired(connection, now)?;
            let sql =
                "INSERT INTO expiring (account, kind, name, expires_at, value) VALUES (x'', ?1, ?2, ?3, 1)
                       ON CONFLICT DO UPDATE SET value = value + 1 RETURNING CAST(value AS INTEGER)";
            let row = params![ATTEMPTS, name.as_bytes(), until.millis()];
            connection.prepare_cached(sql)?.query_row(row, |row| Ok(row.get::<_, i64>(0)?.unsigned_abs()))
        };
        self.writer.write(work).await
    }

    async fn take_attempt_back(&self, name: Digest) -> Result<(), StoreError> {
        let work = move |connection: &Connection| {
            let sql = "UPDATE expiring SET value = value - 1
                       WHERE account = x'' AND kind = ?1 AND name = ?2 AND CAST(value AS INTEGER) > 0";
            connection.prepare_cached(sql)?.execute(params![ATTEMPTS, name.as_bytes()])?;
            Ok(())
        };
        self.writer.write(work).await
    }

    async fn forget_attempts(&self, name: Digest) -> Result<(), StoreError> {
        self.writer.write(move |connection| remove(connection, &[], ATTEMPTS, name)).await
    }
}

/// Kind of the counts of attempts.
const ATTEMPTS: &str = "attempts";

fn remove_expired(connection: &Connection, now: Timestamp) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM expiring WHERE expires_at <= ?1")?.execute([now.millis()])?;
    Ok(())
}

fn remove(connection: &Connection, account: &[u8], kind: &str, name: Digest) -> rusqlite::Result<()> {
    let sql = "DELETE FROM expiring WHERE account = ?1 AND kind = ?2 AND name = ?3";
    connection.prepare_cached(sql)?.execute(params![account, kind, name.as_bytes()])?;
    Ok(())
}

/// A record that has not expired, with its member.
fn find(
    connection: &Connection,
    account: AccountId,
    kind: RecordKind,
    name: Digest,
    now: Timestamp,
) -> rusqlite::Result<Option<(ExpiringRecord, Member)>> {
    let sql = "SELECT e.name, e.member, e.expires_at, e.value,
                      m.id, m.name, m.role, m.password, m.created_at, m.last_link_by, m.last_link_at,
                      m.second_factor
               FROM expiring e JOIN members m ON m.account = e.account AND m.id = e.member
               WHERE e.account = ?1 AND e.kind = ?2 AND e.name = ?3 AND e.expires_at > ?4";
    let row = params![account.as_bytes(), kind.as_str(), name.as_bytes(), now.millis()];
    let found = |row: &Row<'_>| Ok((record(row, kind)?, member(row, 4)?));
    connection.prepare_cached(sql)?.query_row(row, found).optional()
}

fn record(row: &Row<'_>, kind: RecordKind) -> rusqlite::Result<ExpiringRecord> {
    Ok(ExpiringRecord {
        kind,
        name: Digest::from_bytes(row.get(0)?),
        member: column_id(row, 1, MemberId::from_slice)?,
        expires_at: time(row, 2)?,
        value: row.get(3)?,
    })
}
