//! The three tables. They all have the same form: keys in the order of their bytes, each with a value.
//!
//! A key consists of the space, the number of the set, index or log, and a name in this set, index or log: the name of
//! a record, an entry, or the number of a value. So everything that is queried together is a range of keys. There is
//! only one column for the whole key, because one column is compared faster than several.

use std::ops::Range;

use rusqlite::{
    Connection, PrepFlags, Statement, ToSql,
    types::{Null, ValueRef},
};

use super::failures::CallError;
use crate::records::{Index, Log, Name, Order, Place, Set, Space};

/// In a row of `entries`, `value` is null; in the other tables it is a blob. Sets, indexes and logs have separate
/// tables, so that the small tables have shallow trees.
pub(super) const TABLES: &str = "
    CREATE TABLE records (key BLOB PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;
    CREATE TABLE entries (key BLOB PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;
    CREATE TABLE logs (key BLOB PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransactionKind {
    /// The transaction only reads, and everything that it reads is from the same moment.
    Read,
    /// The transaction reads and writes; no other process can write meanwhile.
    Write,
}

/// The tables on a connection, with their compiled statements.
pub(super) struct Tables<'c> {
    pub(super) connection: &'c Connection,
    begin: Statement<'c>,
    begin_writing: Statement<'c>,
    commit: Statement<'c>,
    data_version: Statement<'c>,
    pub(super) records: SqlTable<'c>,
    pub(super) entries: SqlTable<'c>,
    pub(super) logs: SqlTable<'c>,
}

pub(super) struct SqlTable<'c> {
    get: Statement<'c>,
    put: Statement<'c>,
    remove: Statement<'c>,
    remove_range: Statement<'c>,
    up: Statement<'c>,
    down: Statement<'c>,
}

impl<'c> Tables<'c> {
    pub(super) fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            connection,
            begin: prepare(connection, "BEGIN")?,
            begin_writing: prepare(connection, "BEGIN IMMEDIATE")?,
            commit: prepare(connection, "COMMIT")?,
            data_version: prepare(connection, "PRAGMA data_version")?,
            records: SqlTable::new(connection, "records")?,
            entries: SqlTable::new(connection, "entries")?,
            logs: SqlTable::new(connection, "logs")?,
        })
    }

    /// Runs work within a transaction, and rolls it back if the work fails.
    pub(super) fn transact<T>(
        &mut self,
        access: TransactionKind,
        work: impl FnOnce(&mut Self) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        match access {
            TransactionKind::Read => self.begin.execute([])?,
            TransactionKind::Write => self.begin_writing.execute([])?,
        };
        let done = work(self).and_then(|done| match self.commit.execute([]) {
            Ok(_) => Ok(done),
            Err(e) => Err(CallError::at_commit(e)),
        });
        // If the disk is full or broken, SQLite has already rolled back the transaction.
        if done.is_err()
            && !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "cannot roll back");
        }
        done
    }

    /// Lists all places. Each search starts after the last place found.
    pub(super) fn places(&mut self) -> Result<Vec<(Space, Place)>, CallError> {
        let mut places = Vec::new();
        let kinds = [
            (&mut self.records, Place::Set(Set { table: 0, part: 0 })),
            (&mut self.entries, Place::Index(Index(0))),
            (&mut self.logs, Place::Log(Log(0))),
        ];
        for (table, kind) in kinds {
            let mut from = Vec::new();
            loop {
                let behind = from..vec![u8::MAX];
                let first = table.scan(&behind, Order::Ascending, 1, |key, _| Ok(key.to_vec()))?.pop();
                let Some(first) = first else { break };
                let (place, length) = place_of(&first, kind).ok_or_else(CallError::no_record)?;
                places.push(place);
                from = end_of(&first[..length]);
            }
        }
        Ok(places)
    }

    /// Returns a number that changes when another connection writes.
    pub(super) fn data_version(&mut self) -> rusqlite::Result<i64> {
        self.data_version.query_row([], |row| row.get(0))
    }
}

impl<'c> SqlTable<'c> {
    fn new(connection: &'c Connection, name: &str) -> rusqlite::Result<Self> {
        let range = "key >= ?1 AND key < ?2";
        let scan =
            |order| format!("SELECT key, value FROM {name} WHERE {range} ORDER BY key {order} LIMIT ?3");
        Ok(Self {
            get: prepare(connection, &format!("SELECT value FROM {name} WHERE key = ?1"))?,
            // In a table without another index, SQLite replaces a row without looking it up first, and in place if the
            // new row has the same length. A statement with `ON CONFLICT` would take longer.
            put: prepare(connection, &format!("REPLACE INTO {name} (key, value) VALUES (?1, ?2)"))?,
            remove: prepare(connection, &format!("DELETE FROM {name} WHERE key = ?1"))?,
            remove_range: prepare(connection, &format!("DELETE FROM {name} WHERE {range}"))?,
            up: prepare(connection, &scan("ASC"))?,
            down: prepare(connection, &scan("DESC"))?,
        })
    }

    pub(super) fn get<T>(
        &mut self,
        key: &[u8],
        read: impl FnOnce(ValueRef<'_>) -> Result<T, CallError>,
    ) -> Result<Option<T>, CallError> {
        let mut rows = self.get.query([key])?;
        rows.next()?.map(|row| read(row.get_ref(0)?)).transpose()
    }

    pub(super) fn put(&mut self, key: &[u8], value: impl ToSql) -> rusqlite::Result<()> {
        self.put.execute((key, value)).map(drop)
    }

    /// Puts a key without a value.
    pub(super) fn enter(&mut self, key: &[u8]) -> rusqlite::Result<()> {
        self.put(key, Null)
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> rusqlite::Result<()> {
        self.remove.execute([key]).map(drop)
    }

    pub(super) fn remove_range(&mut self, Range { start, end }: &Range<Vec<u8>>) -> rusqlite::Result<()> {
        self.remove_range.execute([start, end]).map(drop)
    }

    /// Finds at most `limit` keys in a range, in this order, with their values.
    pub(super) fn scan<T>(
        &mut self,
        Range { start, end }: &Range<Vec<u8>>,
        order: Order,
        limit: usize,
        read: impl Fn(&[u8], ValueRef<'_>) -> Result<T, CallError>,
    ) -> Result<Vec<T>, CallError> {
        let statement = match order {
            Order::Ascending => &mut self.up,
            Order::Descending => &mut self.down,
        };
        let mut rows = statement.query((start, end, i64::try_from(limit).unwrap_or(i64::MAX)))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(read(row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?, row.get_ref(1)?)?);
        }
        Ok(found)
    }
}

/// Compiles a statement that will be used for long, so that SQLite does not put it into the memory for short-lived
/// statements.
fn prepare<'c>(connection: &'c Connection, sql: &str) -> rusqlite::Result<Statement<'c>> {
    connection.prepare_with_flags(sql, PrepFlags::SQLITE_PREPARE_PERSISTENT)
}

/// Finds out to which set, index or log a key in the table of this kind belongs. Also returns the length of the prefix
/// that all keys of this set, index or log have in common.
fn place_of(key: &[u8], kind: Place) -> Option<((Space, Place), usize)> {
    let (space, end) = if key.first() == Some(&b'u') {
        (uuid_of(key.get(1..17)?), 17)
    } else {
        let end = key.iter().position(|byte| *byte == b'}')?;
        (std::str::from_utf8(key.get(1..end)?).ok()?.to_owned(), end + 1)
    };
    let number = *key.get(end)?;
    let (place, length) = match kind {
        Place::Set(_) => {
            let part = u32::from_be_bytes(key.get(end + 1..end + 5)?.try_into().ok()?);
            (Place::Set(Set { table: number, part }), end + 5)
        }
        Place::Index(_) => (Place::Index(Index(number)), end + 1),
        Place::Log(_) => (Place::Log(Log(number)), end + 1),
    };
    Some(((Space::new(space), place), length))
}

/// Writes keys for a space. All keys are written into the same buffer.
pub(super) struct Keys {
    key: Vec<u8>,
    /// Length of the prefix that all keys of the space have in common.
    space: usize,
}

impl Keys {
    /// Prepares keys for this space, whose name has no `}`. Most names are UUIDs, for which a key has only sixteen
    /// bytes.
    pub(super) fn of(space: &Space) -> Self {
        let name = space.as_str();
        let mut key = Vec::with_capacity(name.len() + 64);
        if let Some(id) = uuid(name) {
            key.push(b'u');
            key.extend(id);
        } else {
            key.push(b't');
            key.extend(name.as_bytes());
            key.push(b'}');
        }
        Self { space: key.len(), key }
    }

    pub(super) fn record(&mut self, Name { set, key }: &Name) -> &[u8] {
        self.record_of(*set, key)
    }

    fn record_of(&mut self, Set { table, part }: Set, key: &[u8]) -> &[u8] {
        self.begin(table);
        self.key.extend(part.to_be_bytes());
        self.key.extend(key);
        &self.key
    }

    pub(super) fn entry(&mut self, Index(index): Index, entry: &[u8]) -> &[u8] {
        self.begin(index);
        self.key.extend(entry);
        &self.key
    }

    pub(super) fn value(&mut self, Log(log): Log, number: u64) -> &[u8] {
        self.begin(log);
        self.key.extend(number.to_be_bytes());
        &self.key
    }

    /// Returns the range of a set's records, starting at this name.
    pub(super) fn records_from(&mut self, set: Set, from: &[u8]) -> Range<Vec<u8>> {
        self.record_of(set, from).to_vec()..end_of(self.record_of(set, b""))
    }

    /// Returns the range of an index's entries from `from` (inclusive) to `to` (exclusive).
    pub(super) fn entries(&mut self, index: Index, from: &[u8], to: Option<&[u8]>) -> Range<Vec<u8>> {
        let start = self.entry(index, from).to_vec();
        let end = match to {
            Some(to) => self.entry(index, to).to_vec(),
            None => end_of(self.entry(index, b"")),
        };
        start..end
    }

    /// Returns the range of a log's values with numbers from `from` to `to`.
    pub(super) fn values(&mut self, log: Log, from: u64, to: u64) -> Range<Vec<u8>> {
        let start = self.value(log, from).to_vec();
        let end = match to.checked_add(1) {
            Some(end) => self.value(log, end).to_vec(),
            None => end_of(self.value(log, u64::MAX)),
        };
        start..end
    }

    /// Returns the part of a key after the number of its set, index or log.
    pub(super) fn within<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        key.get(self.space + 1..).unwrap_or_default()
    }

    fn begin(&mut self, number: u8) {
        self.key.truncate(self.space);
        self.key.push(number);
    }
}

/// Returns the lowest key that comes after all keys with this prefix.
fn end_of(beginning: &[u8]) -> Vec<u8> {
    let mut end = beginning.to_vec();
    while end.pop_if(|last| *last == u8::MAX).is_some() {}
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// Parses a UUID in the usual form: with hyphens, in lower case.
fn uuid(name: &str) -> Option<Vec<u8>> {
    let is_well_placed = |(place, byte): (usize, u8)| match place {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    };
    let is_uuid = name.len() == 36 && name.bytes().enumerate().all(is_well_placed);
    is_uuid.then(|| hex::decode(name.replace('-', "")).ok()).flatten()
}

/// Writes a UUID as [`uuid`] reads it.
fn uuid_of(bytes: &[u8]) -> String {
    let digits = hex::encode(bytes);
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}
