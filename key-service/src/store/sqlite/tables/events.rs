//! Events, numbered by account, and dropped by age, number and bytes.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params, types::Type};
use shared::{
    ids::{AccountId, EventId, GroupId, KeyId},
    time::Timestamp,
};

use super::{damaged, journal::number, rows};
use crate::store::{
    EventBounds, EventSlice, Events, EventsPage, Found, NumberedEvent, Order, StoreError, sqlite::Sqlite,
};
use domain::{
    event::{Act, Event, EventKind, EventSearch},
    ledger::Told,
};

/// Number of old events that an addition may remove: more than it adds, so that none accumulate.
const PRUNED_AT_ONCE: i64 = 64;

/// The key and the group that an event is about.
pub(crate) type Subject = (Option<KeyId>, Option<GroupId>);

/// The events of an act.
pub(crate) struct ActLog {
    /// The act.
    pub(crate) act: Act,
    /// Bounds of the events of an account.
    pub(crate) kept: EventBounds,
}

impl ActLog {
    /// Writes the event of the act: its key and group, and its kind.
    pub(crate) fn write(
        &self,
        connection: &Connection,
        account: AccountId,
        subject: Subject,
        kind: EventKind,
    ) -> rusqlite::Result<()> {
        self.write_nth(connection, account, 0, (subject, kind))
    }

    /// Writes one of several events of the act, counted from zero.
    pub(crate) fn write_nth(
        &self,
        connection: &Connection,
        account: AccountId,
        n: u32,
        ((key, group), kind): (Subject, EventKind),
    ) -> rusqlite::Result<()> {
        append(connection, account, (&self.act.event(n, key, group, kind), None), self.kept)
    }
}

/// Appends the events of a call, without thresholds that were told before.
pub(crate) fn append_told(
    connection: &Connection,
    account: AccountId,
    told: Vec<Told>,
    kept: EventBounds,
) -> rusqlite::Result<()> {
    for Told { once, event } in told {
        let once = once.map(hex::encode);
        if !is_told(connection, account, once.as_deref())? {
            append(connection, account, (&event, once), kept)?;
        }
    }
    Ok(())
}

/// Returns whether a kept event tells the threshold of this name, in hexadecimal digits.
fn is_told(connection: &Connection, account: AccountId, once: Option<&str>) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM events WHERE account = ?1 AND once = ?2)";
    connection.prepare_cached(sql)?.query_row(params![account.as_bytes(), once], |row| row.get(0))
}

/// Appends an event, with the name of its threshold, and drops some that are not `kept`.
fn append(
    connection: &Connection,
    account: AccountId,
    (event, once): (&Event, Option<String>),
    kept: EventBounds,
) -> rusqlite::Result<()> {
    let json = event.to_json();
    let sql = "UPDATE accounts SET events = events + 1, event_bytes = event_bytes + ?2 WHERE id = ?1
               RETURNING events, event_bytes";
    let row = params![account.as_bytes(), i64::try_from(json.len()).unwrap_or(i64::MAX)];
    let (number, bytes): (i64, i64) =
        connection.prepare_cached(sql)?.query_row(row, |row| Ok((row.get(0)?, row.get(1)?)))?;
    let sql = "INSERT INTO events (account, number, id, at, type, key, group_id, event, once)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    let row = params![
        account.as_bytes(),
        number,
        event.id.as_bytes(),
        event.at.millis(),
        event.kind.as_str(),
        event.key.as_ref().map(KeyId::as_bytes),
        event.group.as_ref().map(GroupId::as_bytes),
        json,
        once,
    ];
    connection.prepare_cached(sql)?.execute(row)?;
    prune(connection, account, (number, bytes), (event.at.minus(kept.life), kept))
}

/// Removes the oldest events, up to the first that is within the bounds. The last one, of this number, stays. `bytes` are
/// those of all events.
fn prune(
    connection: &Connection,
    account: AccountId,
    (number, bytes): (i64, i64),
    (begins, kept): (Timestamp, EventBounds),
) -> rusqlite::Result<()> {
    let sql = "SELECT number, at, length(CAST(event AS BLOB)) FROM events
               WHERE account = ?1 AND number < ?2 ORDER BY number LIMIT ?3";
    let mut oldest = connection.prepare_cached(sql)?;
    let mut oldest = oldest.query(params![account.as_bytes(), number, PRUNED_AT_ONCE])?;
    let (mut left, mut last) = (bytes, None);
    while let Some(row) = oldest.next()? {
        let oldest: i64 = row.get(0)?;
        let is_kept = row.get::<_, i64>(1)? >= begins.millis()
            && (number - oldest).unsigned_abs() < kept.count
            && left.unsigned_abs() <= kept.bytes;
        if is_kept {
            break;
        }
        left = left.saturating_sub(row.get(2)?).max(0);
        last = Some(oldest);
    }
    if let Some(last) = last {
        let sql = "DELETE FROM events WHERE account = ?1 AND number <= ?2";
        connection.prepare_cached(sql)?.execute(params![account.as_bytes(), last])?;
        let sql = "UPDATE accounts SET event_bytes = ?2 WHERE id = ?1";
        connection.prepare_cached(sql)?.execute(params![account.as_bytes(), left])?;
    }
    Ok(())
}

#[async_trait]
impl Events for Sqlite {
    async fn events(
        &self,
        account: AccountId,
        search: EventSearch,
        EventSlice { order, behind, limit }: EventSlice,
    ) -> Result<Found<NumberedEvent, u64>, StoreError> {
        let work = move |connection: &Connection| {
            let EventSearch { kind, key, group } = &search;
            let (index, by): (_, Option<&dyn rusqlite::ToSql>) = match (key, group, kind) {
                (Some(key), _, _) => ("INDEXED BY events_by_key WHERE key = ?4", Some(key.as_bytes())),
                (None, Some(group), _) => {
                    ("INDEXED BY events_by_group WHERE group_id = ?4", Some(group.as_bytes()))
                }
                (None, None, Some(kind)) => ("INDEXED BY events_by_type WHERE type = ?4", Some(kind)),
                (None, None, None) => ("WHERE ?4 IS NULL", None),
            };
            let (is_behind, direction, first) = match order {
                Order::Ascending => (">", "ASC", 0),
                Order::Descending => ("<", "DESC", u64::MAX),
            };
            let sql = format!(
                "SELECT number, event FROM events {index} AND account = ?1 AND number {is_behind} ?2
                   AND (?5 IS NULL OR group_id = ?5) AND (?6 IS NULL OR type = ?6)
                 ORDER BY number {direction} LIMIT ?3"
            );
            let group = group.as_ref().map(GroupId::as_bytes);
            let row =
                params![account.as_bytes(), number(behind.unwrap_or(first)), rows(limit), by, group, kind];
            connection.prepare_cached(&sql)?.query_map(row, event)?.collect()
        };
        let found: Vec<NumberedEvent> = self.read(work).await?;
        let next = found.last().map(|last| last.number).filter(|_| found.len() == limit);
        Ok(Found { found, next })
    }

    async fn events_after(
        &self,
        account: AccountId,
        after: u64,
        limit: usize,
    ) -> Result<EventsPage, StoreError> {
        let work = move |connection: &Connection| {
            let sql = "SELECT number, event FROM events WHERE account = ?1 AND number > ?2 ORDER BY number LIMIT ?3";
            let row = params![account.as_bytes(), number(after), rows(limit)];
            let events =
                connection.prepare_cached(sql)?.query_map(row, event)?.collect::<rusqlite::Result<_>>()?;
            let sql = "SELECT coalesce((SELECT min(number) FROM events WHERE account = ?1) - 1,
                                       (SELECT events FROM accounts WHERE id = ?1), 0)";
            let gone = connection
                .prepare_cached(sql)?
                .query_row([account.as_bytes()], |row| row.get::<_, i64>(0))?;
            Ok(EventsPage { events, gone_until: gone.unsigned_abs() })
        };
        self.read(work).await
    }

    async fn are_told(&self, account: AccountId, names: Vec<Vec<u8>>) -> Result<Vec<bool>, StoreError> {
        let work = move |connection: &Connection| {
            names.iter().map(|name| is_told(connection, account, Some(&hex::encode(name)))).collect()
        };
        self.read(work).await
    }

    async fn event_number(&self, account: AccountId, id: EventId) -> Result<Option<u64>, StoreError> {
        let work = move |connection: &Connection| {
            let sql = "SELECT number FROM events WHERE account = ?1 AND id = ?2";
            let number = |row: &Row<'_>| row.get::<_, i64>(0).map(i64::unsigned_abs);
            connection.prepare_cached(sql)?.query_row([account.as_bytes(), id.as_bytes()], number).optional()
        };
        self.read(work).await
    }
}

fn event(row: &Row<'_>) -> rusqlite::Result<NumberedEvent> {
    let event = Event::from_json(row.get_ref(1)?.as_str()?);
    let event = event.ok_or_else(|| damaged(1, Type::Text, "an event cannot be read"))?;
    Ok(NumberedEvent { number: row.get::<_, i64>(0)?.unsigned_abs(), event })
}
