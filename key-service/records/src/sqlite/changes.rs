//! Carries out one commit within the writer's transaction: its guards, then its writes.

use rusqlite::types::ValueRef;

use super::{
    failures::CallError,
    questions::{number, record},
    revisions::Revisions,
    tables::{Keys, Tables},
};
use crate::records::{Commit, Committed, Guard, Log, Order, Record, Space, Write};

/// Number of values appended to a log between two trims, so that most commits write only at the log's end.
const TRIMMED_EVERY: u64 = 64;

/// Maximum number of values trimmed at once after `kept` was lowered: a fraction of a millisecond of work.
const MOST_TRIMMED: u64 = 16 * TRIMMED_EVERY;

/// A space within the writer's transaction.
pub(super) struct Changes<'a, 'c> {
    tables: &'a mut Tables<'c>,
    keys: Keys,
    revisions: &'a mut Revisions,
}

impl<'a, 'c> Changes<'a, 'c> {
    pub(super) fn of(space: &Space, tables: &'a mut Tables<'c>, revisions: &'a mut Revisions) -> Self {
        Self { tables, keys: Keys::of(space), revisions }
    }

    /// Carries out a commit. If it fails, it may have made some of its writes.
    pub(super) fn commit(&mut self, commit: &Commit) -> Result<Committed, CallError> {
        let present = self.present(&commit.guards)?;
        if !present.is_empty() {
            return Ok(Committed::Conflict(present));
        }
        for write in &commit.writes {
            self.write(write)?;
        }
        Ok(Committed::Written)
    }

    /// Finds the records whose guards do not hold.
    fn present(&mut self, guards: &[Guard]) -> Result<Vec<(usize, Option<Record>)>, CallError> {
        let mut stale = Vec::new();
        for (place, Guard { name, seen }) in guards.iter().enumerate() {
            let key = self.keys.record(name);
            if self.revisions.has(key, *seen) {
                continue;
            }
            let present = self.tables.records.get(key, record)?;
            let revision = present.as_ref().map(Record::revision);
            self.revisions.put(key, revision);
            if revision != *seen {
                stale.push((place, present));
            }
        }
        Ok(stale)
    }

    fn write(&mut self, write: &Write) -> Result<(), CallError> {
        let Self { tables, keys, revisions } = self;
        match write {
            Write::Append { log, first, values, kept } => self.append(*log, *first, values, *kept)?,
            Write::Trim { log, first } => self.trim(*log, *first)?,
            Write::Put(name, record) => {
                let key = keys.record(name);
                tables.records.put(key, record.as_bytes())?;
                revisions.put(key, Some(record.revision()));
            }
            Write::Remove(name) => {
                let key = keys.record(name);
                tables.records.remove(key)?;
                revisions.put(key, None);
            }
            Write::Drop(set) => {
                let range = keys.records_from(*set, b"");
                tables.records.remove_range(&range)?;
                revisions.forget_all(&range.start);
            }
            Write::Enter(index, entry) => tables.entries.enter(keys.entry(*index, entry))?,
            Write::Leave(index, entry) => tables.entries.remove(keys.entry(*index, entry))?,
        }
        Ok(())
    }

    fn append(&mut self, log: Log, first: u64, values: &[Vec<u8>], kept: u64) -> Result<(), CallError> {
        let refused = || CallError::refused(format!("a log cannot continue with number {first}"));
        let end = first.checked_add(values.len() as u64).ok_or_else(refused)?;
        if self.end(log, Order::Descending)?.is_some_and(|last| last >= first) {
            return Err(refused());
        }
        for (number, value) in (first..).zip(values) {
            self.tables.logs.put(self.keys.value(log, number), value)?;
        }
        if first / TRIMMED_EVERY != end / TRIMMED_EVERY {
            self.trim(log, end.saturating_sub(kept))?;
        }
        Ok(())
    }

    /// Removes values before a number; if there are many, only the first ones.
    fn trim(&mut self, log: Log, first_kept: u64) -> Result<(), CallError> {
        let Some(lowest) = self.end(log, Order::Ascending)? else { return Ok(()) };
        let end = first_kept.min(lowest.saturating_add(MOST_TRIMMED));
        if lowest < end {
            self.tables.logs.remove_range(&self.keys.values(log, lowest, end - 1))?;
        }
        Ok(())
    }

    /// Returns the lowest or the highest number in a log.
    fn end(&mut self, log: Log, order: Order) -> Result<Option<u64>, CallError> {
        let range = self.keys.values(log, 0, u64::MAX);
        let number = |key: &[u8], _: ValueRef<'_>| number(&self.keys, key);
        Ok(self.tables.logs.scan(&range, order, 1, number)?.pop())
    }
}
