//! One commit within the writer's transaction: its guards, then its writes.

use rusqlite::{Connection, types::ValueRef};

use super::{
    questions::{end_of_log, look_up, record},
    revisions::Revisions,
    transaction::CallError,
};
use crate::records::{Commit, Committed, Failure, Guard, Log, Name, Order, Record, Set, Space, Write};

const PUT: &str = "INSERT INTO records (space, tab, part, name, value) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT DO UPDATE SET value = excluded.value";
const REMOVE: &str = "DELETE FROM records WHERE space = ?1 AND tab = ?2 AND part = ?3 AND name = ?4";
const DROP: &str = "DELETE FROM records WHERE space = ?1 AND tab = ?2 AND part = ?3";
const ENTER: &str = "INSERT OR IGNORE INTO entries (space, idx, entry) VALUES (?1, ?2, ?3)";
const LEAVE: &str = "DELETE FROM entries WHERE space = ?1 AND idx = ?2 AND entry = ?3";
const APPEND: &str = "INSERT INTO logs (space, log, number, value) VALUES (?1, ?2, ?3, ?4)";
const TRIM: &str = "DELETE FROM logs WHERE space = ?1 AND log = ?2 AND number < ?3";

/// A log is trimmed once for so many values, so that most commits write to its end alone.
const TRIMMED_EVERY: i64 = 64;

/// Values that are trimmed together, where a log is to be shorter than before: a fraction of a millisecond.
const MOST_TRIMMED: i64 = 16 * TRIMMED_EVERY;

/// A space within the writer's transaction.
pub(super) struct Changes<'a> {
    pub(super) connection: &'a Connection,
    pub(super) space: &'a Space,
    pub(super) revisions: &'a mut Revisions,
}

impl Changes<'_> {
    /// Carries a commit out. After an error some of its writes may be made.
    pub(super) fn commit(&mut self, commit: &Commit) -> Result<Committed, CallError> {
        let present = self.present(&commit.guards)?;
        if !present.is_empty() {
            return Ok(Committed::Conflict(present));
        }
        let mut sum = None;
        for write in &commit.writes {
            sum = self.write(write)?.or(sum);
        }
        Ok(Committed::Written(sum))
    }

    /// The records whose guards do not hold.
    fn present(&mut self, guards: &[Guard]) -> Result<Vec<(usize, Option<Record>)>, CallError> {
        let mut stale = Vec::new();
        for (place, guard) in guards.iter().enumerate() {
            if self.revisions.has(self.space, guard) {
                continue;
            }
            let present = record(self.connection, self.space, &guard.name)?;
            let revision = present.as_ref().map(Record::revision);
            self.revisions.put(self.space, &guard.name, revision);
            if revision != guard.seen {
                stale.push((place, present));
            }
        }
        Ok(stale)
    }

    /// Makes a change; the sum of a counter.
    fn write(&mut self, write: &Write) -> Result<Option<i64>, CallError> {
        let space = self.space.as_str();
        match write {
            Write::Append { log, first, values, kept } => self.append(*log, *first, values, *kept)?,
            Write::Put(name, record) => {
                let (Name { set, key }, value) = (name, record.as_bytes());
                let row = (space, set.table, set.part, key, value);
                self.connection.prepare_cached(PUT)?.execute(row)?;
                self.revisions.put(self.space, name, Some(record.revision()));
            }
            Write::Remove(name) => {
                let Name { set, key } = name;
                self.connection.prepare_cached(REMOVE)?.execute((space, set.table, set.part, key))?;
                self.revisions.put(self.space, name, None);
            }
            Write::Drop(set) => {
                let Set { table, part } = set;
                self.connection.prepare_cached(DROP)?.execute((space, table, part))?;
                self.revisions.forget_set(self.space, *set);
            }
            Write::Enter(index, entry) => {
                self.connection.prepare_cached(ENTER)?.execute((space, index.0, entry))?;
            }
            Write::Leave(index, entry) => {
                self.connection.prepare_cached(LEAVE)?.execute((space, index.0, entry))?;
            }
            Write::Add(name, amount) => return self.add(name, *amount).map(Some),
        }
        Ok(None)
    }

    /// Adds to a counter. SQL would make a sum that overflows a floating-point number.
    fn add(&mut self, name: &Name, amount: i64) -> Result<i64, CallError> {
        let counter = |value: ValueRef<'_>| Ok(value.as_i64().ok());
        let sum = match look_up(self.connection, self.space, name, counter)? {
            None => Ok(amount),
            Some(Some(sum)) => sum.checked_add(amount).ok_or("the sum of a counter is too large"),
            Some(None) => Err("a record is no counter"),
        };
        let sum = sum.map_err(|reason| CallError::Own(Failure::NotDone(reason.into())))?;
        let Name { set, key } = name;
        let row = (self.space.as_str(), set.table, set.part, key, sum);
        self.connection.prepare_cached(PUT)?.execute(row)?;
        self.revisions.forget(self.space, name);
        Ok(sum)
    }

    fn append(&self, log: Log, first: u64, values: &[Vec<u8>], kept: u64) -> Result<(), CallError> {
        let refused = || CallError::Own(Failure::NotDone(format!("a log cannot go on with number {first}")));
        let count = i64::try_from(values.len()).map_err(|_| refused())?;
        let first = i64::try_from(first).map_err(|_| refused())?;
        let end = first.checked_add(count).ok_or_else(refused)?;
        if end_of_log(self.connection, self.space, log, Order::Descending)?.is_some_and(|last| last >= first)
        {
            return Err(refused());
        }
        let mut append = self.connection.prepare_cached(APPEND)?;
        for (number, value) in (first..).zip(values) {
            append.execute((self.space.as_str(), log.0, number, value))?;
        }
        if first / TRIMMED_EVERY != end / TRIMMED_EVERY {
            self.trim(log, end.saturating_sub(i64::try_from(kept).unwrap_or(i64::MAX)))?;
        }
        Ok(())
    }

    /// Removes values before a number, the first of them if they are many.
    fn trim(&self, log: Log, first_kept: i64) -> rusqlite::Result<()> {
        let Some(lowest) = end_of_log(self.connection, self.space, log, Order::Ascending)? else {
            return Ok(());
        };
        if lowest < first_kept {
            let end = first_kept.min(lowest.saturating_add(MOST_TRIMMED));
            self.connection.prepare_cached(TRIM)?.execute((self.space.as_str(), log.0, end))?;
        }
        Ok(())
    }
}
