//! The records of one space while changes are decided. A commit has guards on the records that were read, and writes
//! the records that have changed.
//!
//! A decision is a function that may run several times. It sees a record that has not been read yet as absent. The
//! answer is then discarded, the record is read, and the function runs again.

mod copies;
mod copy;
mod form;
pub mod reading;

use std::{mem, sync::Arc};

use domain::usage::Day;
use records::{
    Answer, Commit, Durability, Failure, Guard, Index, Name, Question, Record, Records, Revision, Set, Space,
    Write,
};
use shared::time::Timestamp;

use self::{
    copies::Copies,
    copy::{NotRead, Values},
};
pub(crate) use self::{copies::Slot, copy::Copy};
pub use self::{
    copy::Stored,
    form::{FORM, LATER_FORM},
    reading::tell_damage,
};
use crate::{
    error::StoreError,
    names::{self, RecordName},
};

/// A record cannot be read, so nothing can be decided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record cannot be read: {0}")]
pub struct Unreadable(pub String);

impl From<Unreadable> for StoreError {
    fn from(unreadable: Unreadable) -> Self {
        Self::Damaged(unreadable.to_string())
    }
}

/// Records of a space while changes are decided. In the lane of an account, copies of some records stay for the next
/// change.
#[derive(Clone)]
pub struct View {
    space: Space,
    copies: Copies,
    /// Slots of the copies that the decision has read, in order. The commit has a guard on each of them.
    touched: Vec<usize>,
    missing: Vec<Name>,
    /// Slots of the copies that were added since the last commit.
    added: Vec<usize>,
    /// Changes of indexes, logs and sets.
    others: Vec<Write>,
    pub(crate) durability: Durability,
    /// The account's oldest kept event, if it has been looked up.
    pub(crate) oldest_event: Option<OldestEvent>,
}

/// The oldest event that an account keeps, as of the last look-up.
#[derive(Clone, Copy)]
pub(crate) struct OldestEvent {
    pub(crate) number: u64,
    pub(crate) at: Timestamp,
}

impl View {
    pub fn of(space: &Space) -> Self {
        Self {
            space: space.clone(),
            copies: Copies::default(),
            touched: Vec::new(),
            missing: Vec::new(),
            added: Vec::new(),
            others: Vec::new(),
            durability: Durability::default(),
            oldest_event: None,
        }
    }

    /// Returns the value under this name, including the changes so far; `None` if the record does not exist.
    pub fn get<T: Stored>(&mut self, name: &RecordName<T>) -> Result<Option<T>, Unreadable> {
        Ok(self.look(name)?.cloned())
    }

    /// Returns a value like [`View::get`], without cloning it.
    pub fn look<T: Stored>(&mut self, name: &RecordName<T>) -> Result<Option<&T>, Unreadable> {
        let Some(slot) = self.find(name) else { return Ok(None) };
        self.value_at(slot).map_err(|NotRead| unreadable(name))
    }

    /// Returns a value like [`View::look`], but also fails if the record has not been read yet.
    pub(crate) fn found<T: Stored>(&mut self, name: &RecordName<T>) -> Result<Option<&T>, NotRead> {
        let slot = self.find(name).ok_or(NotRead)?;
        self.value_at(slot)
    }

    /// Finds a copy, so that the decision can read and change the record several times. `None` if the record has not
    /// been read yet.
    pub(crate) fn find<T>(&mut self, name: &RecordName<T>) -> Option<Slot<T>> {
        self.touch(name).map(Slot::new)
    }

    /// Finds a copy like [`View::find`]. A record without a copy is presumed absent.
    pub(crate) fn find_new<T>(&mut self, name: &RecordName<T>) -> Slot<T> {
        let slot = self.copies.slot(name).unwrap_or_else(|| self.keep(name.clone().into(), None));
        self.guard(slot);
        Slot::new(slot)
    }

    /// Returns the value of a copy that this decision has found.
    pub(crate) fn value_at<T: Stored>(&mut self, slot: Slot<T>) -> Result<Option<&T>, NotRead> {
        self.copies.get_mut(slot.number).ok_or(NotRead)?.get(&self.space)
    }

    /// Returns the value of a copy without guarding it; `None` if there is no copy.
    pub(crate) fn peek<T: Stored>(&mut self, name: &RecordName<T>) -> Option<&T> {
        let slot = self.copies.slot(name)?;
        self.copies.get_mut(slot)?.get(&self.space).ok()?
    }

    /// Returns whether there is a record with this name.
    pub fn has(&mut self, name: &Name) -> bool {
        self.touch(name).and_then(|slot| self.copies.get(slot)).is_some_and(Copy::exists)
    }

    /// Writes a record. The record is read first and guarded, so that no unread record is overwritten.
    pub fn put<T: Stored>(&mut self, name: &RecordName<T>, value: T) {
        if let Some(slot) = self.find(name) {
            self.put_at(slot, value);
        }
    }

    pub(crate) fn put_at<T: Stored>(&mut self, slot: Slot<T>, value: T) {
        if let Some(values) = self.values(slot) {
            values.put(value);
        }
    }

    /// Changes a value in place, since it may be large. An absent record begins with the default. `None` if the record
    /// cannot be read or has not been read yet.
    pub(crate) fn update<T: Stored + Default, R>(
        &mut self,
        name: &RecordName<T>,
        change: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        let slot = self.find(name)?;
        self.values(slot)?.next_mut().map(change)
    }

    /// Removes a record, if there is one.
    pub fn remove<T: Stored>(&mut self, name: &RecordName<T>) {
        if let Some(slot) = self.find(name) {
            self.remove_at(slot);
        }
    }

    pub(crate) fn remove_at<T: Stored>(&mut self, slot: Slot<T>) {
        if let Some(values) = self.values(slot) {
            values.remove();
        }
    }

    /// Assumes that no record with this name exists. The commit has a guard that checks this, and a conflict returns
    /// the record if it does exist.
    pub fn presume_absent(&mut self, name: &Name) {
        if !self.has_copy(name) {
            self.keep(name.clone(), None);
        }
    }

    /// Sets which failures the change must be able to survive once it is answered. Housekeeping asks for little
    /// durability, so that it does not wait for the disk.
    pub fn survive(&mut self, durability: Durability) {
        self.durability = durability;
    }

    /// Puts an entry into an index.
    pub fn enter(&mut self, index: Index, entry: Vec<u8>) {
        self.others.push(Write::Enter(index, entry));
    }

    pub fn leave(&mut self, index: Index, entry: Vec<u8>) {
        self.others.push(Write::Leave(index, entry));
    }

    pub fn drop_set(&mut self, set: Set) {
        self.others.push(Write::Drop(set));
    }

    /// Adds any other write, without a guard.
    pub fn write(&mut self, write: Write) {
        self.others.push(write);
    }

    /// Requests a record unless there is a copy. It is then read before the decision runs again.
    pub(crate) fn need(&mut self, name: &Name) {
        if !self.has_copy(name) && !self.missing.contains(name) {
            self.missing.push(name.clone());
        }
    }

    /// Drops the copy of a record, if any, and requests the record again.
    pub(crate) fn need_again(&mut self, name: &Name) {
        self.forget(name);
        self.need(name);
    }

    pub(crate) fn has_copy(&self, name: &Name) -> bool {
        self.copies.slot(name).is_some()
    }

    /// Returns whether records must be read before the change can be decided.
    pub(crate) const fn is_missing_some(&self) -> bool {
        !self.missing.is_empty()
    }

    /// Takes the names of the records that must be read.
    pub(crate) fn take_missing(&mut self) -> Vec<Name> {
        std::mem::take(&mut self.missing)
    }

    /// Keeps a copy of a record that was read. Returns its slot.
    pub(crate) fn keep(&mut self, name: Name, record: Option<Record>) -> usize {
        let slot = self.copies.insert(Copy::of(name, record));
        self.added.push(slot);
        slot
    }

    /// Returns the copies that the decision has read.
    pub(crate) fn touched(&self) -> impl Iterator<Item = &Copy> {
        self.touched.iter().filter_map(|slot| self.copies.get(*slot))
    }

    /// Returns guards for all records that the decision has read.
    pub(crate) fn guards(&self) -> Vec<Guard> {
        self.touched().map(Copy::guard).collect()
    }

    /// Returns a commit with the writes in `before`, the changed records, and the writes in `after`. Appends come
    /// first, so that nothing is written if one is refused.
    pub(crate) fn commit(&self, revision: Revision, before: Vec<Write>, after: Vec<Write>) -> Commit {
        let is_append = |write: &&Write| matches!(write, Write::Append { .. });
        let (mut guards, mut writes) = (Vec::with_capacity(self.touched.len()), before);
        writes.reserve(self.touched.len() + after.len() + self.others.len());
        writes.extend(self.others.iter().filter(is_append).cloned());
        for copy in self.touched() {
            guards.push(copy.guard());
            writes.extend(copy.write(revision));
        }
        writes.extend(after);
        writes.extend(self.others.iter().filter(|write| !is_append(write)).cloned());
        Commit { guards, writes }
    }

    /// Makes the new values current after they have been written.
    pub(crate) fn settle(&mut self, revision: Revision) {
        self.end(|copy| copy.settle(revision));
    }

    /// Makes the turn current, and keeps what has been read for the decision under way.
    pub(crate) fn settle_turn(&mut self, revision: Revision) {
        let added = mem::take(&mut self.added);
        self.settle(revision);
        self.added = added;
    }

    /// Discards a refused change, and keeps the copies.
    pub(crate) fn refuse(&mut self) {
        self.end(Copy::roll_back);
    }

    /// Ends a change, and drops the copies that few changes read again.
    fn end(&mut self, mut end: impl FnMut(&mut Copy)) {
        for slot in &self.touched {
            if let Some(copy) = self.copies.get_mut(*slot) {
                end(copy);
            }
        }
        for slot in self.touched.drain(..).chain(self.added.drain(..)) {
            if self.copies.get(slot).is_some_and(|copy| !copy.is_read_again()) {
                self.copies.remove(slot);
            }
        }
        self.begin();
    }

    /// Discards the changes, and starts the decision over with the records read so far.
    pub(crate) fn begin(&mut self) {
        for slot in self.touched.drain(..) {
            if let Some(copy) = self.copies.get_mut(slot) {
                copy.roll_back();
            }
        }
        self.missing.clear();
        self.others.clear();
        self.durability = Durability::default();
    }

    /// Takes over the records from a conflict, by the indexes of their guards, and discards the changes.
    pub(crate) fn replace(&mut self, present: impl IntoIterator<Item = (usize, Option<Record>)>) {
        for (guard, record) in present {
            if let Some(copy) = self.touched.get(guard).and_then(|slot| self.copies.get_mut(*slot)) {
                copy.replace(record);
            }
        }
        self.begin();
    }

    /// Drops the copy of a record. The changes are discarded first, since they may depend on it.
    pub(crate) fn forget(&mut self, name: &Name) {
        self.begin();
        if let Some(slot) = self.copies.slot(name) {
            self.copies.remove(slot);
        }
    }

    #[cfg(feature = "testing")]
    pub(crate) fn copies(&self) -> impl Iterator<Item = &Copy> {
        self.copies.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.copies.len()
    }

    /// Drops copies if there are more than `most`: sums of earlier days first, and open holds last. The changes are
    /// discarded first, since they may depend on the copies.
    pub(crate) fn shrink(&mut self, most: usize, today: Day) {
        if self.copies.len() <= most {
            return;
        }
        self.begin();
        let today = names::day_part(today);
        self.copies.retain(|Copy { name: Name { set, .. }, .. }| {
            !names::SETS_OF_DAYS.contains(&set.table) || set.part >= today
        });
        if self.copies.len() <= most / 2 {
            return;
        }
        self.copies.retain(Copy::is_open);
        if self.copies.len() > most / 2 {
            self.copies = Copies::default();
        }
    }

    fn values<T: Stored>(&mut self, slot: Slot<T>) -> Option<&mut Values<T>> {
        self.copies.get_mut(slot.number)?.values(&self.space)
    }

    /// Finds a copy, on which the commit then has a guard. Without a copy, the record is read before the decision runs
    /// again.
    fn touch(&mut self, name: &Name) -> Option<usize> {
        let Some(slot) = self.copies.slot(name) else {
            if !self.missing.contains(name) {
                self.missing.push(name.clone());
            }
            return None;
        };
        self.guard(slot);
        Some(slot)
    }

    /// Gives the commit a guard on a copy.
    fn guard(&mut self, slot: usize) {
        if let Some(copy) = self.copies.get_mut(slot)
            && !mem::replace(&mut copy.is_touched, true)
        {
            self.touched.push(slot);
        }
    }
}

fn unreadable(name: &Name) -> Unreadable {
    let Name { set: Set { table, part }, key } = name;
    Unreadable(format!("table {table}, part {part}, {}", hex::encode(key)))
}

/// Reads the records that a decision still needs.
pub(crate) async fn read(records: &Arc<dyn Records>, view: &mut View) -> Result<(), Failure> {
    let names = view.take_missing();
    if names.is_empty() {
        return Ok(());
    }
    let mut answers = records.read(&view.space, vec![Question::Records(names.clone())]).await?;
    let Some(Answer::Records(found)) = answers.pop() else {
        return Err(Failure::Damaged("no records in an answer".into()));
    };
    for (name, record) in names.into_iter().zip(found) {
        view.keep(name, record);
    }
    Ok(())
}
