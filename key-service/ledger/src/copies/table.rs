//! Copies of one kind of record, each with its new value in the running batch.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use records::{Guard, Name, Record, Revision, Write};

use crate::{
    copies::kinds::RecordKind,
    view::{FORM, reading},
};

#[derive(Clone, Debug)]
pub(crate) struct Copy<K: RecordKind> {
    pub(crate) name: Name,
    /// Revision of the record; `None` if it is absent.
    pub(crate) seen: Option<Revision>,
    /// Value of the record; `None` if it cannot be read.
    pub(super) value: Option<K::Value>,
    /// New value, if the batch has changed the record.
    pub(super) next: Option<K::Value>,
    pub(super) is_touched: bool,
}

/// A copy of any kind that the running batch has read.
pub(crate) trait Touched {
    fn guard(&self) -> Guard;
    /// Returns the write of the record, if the batch has changed it.
    fn write(&self, revision: Revision) -> Option<Write>;
    /// Makes the new value current, since the batch has been written.
    fn settle(&mut self, revision: Revision);
    /// Discards the new value, since the batch was not written.
    fn roll_back(&mut self);
    /// Takes over the current record, since another process has changed it.
    fn replace(&mut self, record: Option<&Record>);
    /// Returns whether the record exists but cannot be read.
    fn is_damaged(&self) -> bool;
}

#[derive(Clone)]
pub(crate) struct CopyTable<K: RecordKind>(pub(crate) HashMap<K, Copy<K>, RandomState>);

impl<K: RecordKind> Default for CopyTable<K> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: RecordKind> CopyTable<K> {
    pub(crate) fn has(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the value after the batch so far; `None` if it cannot be read or has no copy.
    pub(crate) fn get(&self, key: &K) -> Option<&K::Value> {
        let copy = self.0.get(key)?;
        copy.next.as_ref().or(copy.value.as_ref())
    }

    /// Returns the value before the batch and after it, if the batch has changed it.
    pub(crate) fn change(&self, key: &K) -> Option<(&K::Value, &K::Value)> {
        let copy = self.0.get(key)?;
        Some((copy.value.as_ref()?, copy.next.as_ref()?))
    }

    /// Stores a record that was read.
    pub(super) fn keep(&mut self, key: K, record: Option<&Record>) {
        let mut copy = Copy::<K> { name: key.name(), seen: None, value: None, next: None, is_touched: false };
        copy.replace(record);
        self.0.insert(key, copy);
    }

    /// Presumes that the record does not exist. The commit guards this, and a conflict returns the record if it does
    /// exist.
    pub(crate) fn presume_absent(&mut self, key: &K) {
        if !self.has(key) {
            self.keep(key.clone(), None);
        }
    }

    pub(crate) fn forget(&mut self, key: &K) {
        self.0.remove(key);
    }

    pub(super) fn retain(&mut self, is_kept: impl Fn(&K, &K::Value) -> bool) {
        self.0.retain(|key, copy| copy.value.as_ref().is_some_and(|value| is_kept(key, value)));
    }
}

impl<K: RecordKind> Touched for Copy<K> {
    fn guard(&self) -> Guard {
        Guard { name: self.name.clone(), seen: self.seen }
    }

    fn write(&self, revision: Revision) -> Option<Write> {
        let next = self.next.as_ref().filter(|next| Some(*next) != self.value.as_ref())?;
        let name = self.name.clone();
        let is_absent = *next == K::Value::default();
        Some(if is_absent { Write::Remove(name) } else { Write::Put(name, Record::of(revision, FORM, next)) })
    }

    fn settle(&mut self, revision: Revision) {
        self.is_touched = false;
        let Some(next) = self.next.take() else { return };
        if Some(&next) != self.value.as_ref() {
            self.seen = (next != K::Value::default()).then_some(revision);
            self.value = Some(next);
        }
    }

    fn roll_back(&mut self) {
        self.is_touched = false;
        self.next = None;
    }

    fn is_damaged(&self) -> bool {
        self.value.is_none()
    }

    fn replace(&mut self, record: Option<&Record>) {
        self.next = None;
        self.seen = record.map(Record::revision);
        self.value = match record {
            None => Some(K::Value::default()),
            Some(record) => reading::value(record).ok().filter(|value| *value != K::Value::default()),
        };
    }
}
