//! The records of one space while changes are decided. Records that were read are guarded, and changed ones are
//! written.
//!
//! A decision is a function that may run several times. It sees a record that has not been read yet as absent. The
//! answer is then discarded, the record is read, and the function runs again.

mod copy;
mod form;
pub mod reading;

use std::{
    collections::{HashMap, hash_map::Entry},
    mem,
    sync::Arc,
};

use domain::usage::Day;

use foldhash::fast::RandomState;
use records::{
    Answer, Commit, Committed, Durability, Failure, Guard, Index, Name, Question, Record, Records, Revision,
    Set, Space, Write,
};
use shared::{
    clock::{Clock, random_bytes},
    time::Timestamp,
};

pub(crate) use self::copy::Copy;
use self::copy::{NotRead, Values};
pub use self::{
    copy::Stored,
    form::{FORM, LATER_FORM},
    reading::tell_damage,
};
use crate::{
    error::StoreError,
    names::{self, RecordName},
};

/// Maximum number of attempts at a change while others change the same space.
const MOST_ATTEMPTS: u32 = 100;

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
    copies: HashMap<Name, Copy, RandomState>,
    /// Names that the decision has read, in order. The commit guards them.
    touched: Vec<Name>,
    missing: Vec<Name>,
    /// Names that were read since the last commit.
    read: Vec<Name>,
    /// Changes of indexes, logs and sets.
    others: Vec<Write>,
    durability: Durability,
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
            copies: HashMap::default(),
            touched: Vec::new(),
            missing: Vec::new(),
            read: Vec::new(),
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
        let Some((space, copy)) = self.touch(name) else { return Ok(None) };
        copy.get(|| tell_damage(space, name)).map_err(|NotRead| unreadable(name))
    }

    /// Returns a value like [`View::look`], but also fails if the record has not been read yet.
    pub(crate) fn found<T: Stored>(&mut self, name: &RecordName<T>) -> Result<Option<&T>, NotRead> {
        let (space, copy) = self.touch(name).ok_or(NotRead)?;
        copy.get(|| tell_damage(space, name))
    }

    /// Returns the value of a copy without guarding it; `None` if there is no copy.
    pub(crate) fn peek<T: Stored>(&mut self, name: &RecordName<T>) -> Option<&T> {
        let space = &self.space;
        self.copies.get_mut(&**name)?.get(|| tell_damage(space, name)).ok()?
    }

    /// Returns whether there is a record with this name.
    pub fn has(&mut self, name: &Name) -> bool {
        self.touch(name).is_some_and(|(_, copy)| copy.exists())
    }

    /// Writes a record. The record is read first and guarded, so that no unread record is overwritten.
    pub fn put<T: Stored>(&mut self, name: &RecordName<T>, value: T) {
        if let Some(values) = self.values(name) {
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
        self.values(name)?.next_mut().map(change)
    }

    /// Removes a record, if there is one.
    pub fn remove<T: Stored>(&mut self, name: &RecordName<T>) {
        if let Some(values) = self.values(name) {
            values.remove();
        }
    }

    /// Presumes that no record with this name exists. The commit guards this, and a conflict returns the record if it
    /// does exist.
    pub fn presume_absent(&mut self, name: &Name) {
        if !self.copies.contains_key(name) {
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
        if !self.copies.contains_key(name) && !self.missing.contains(name) {
            self.missing.push(name.clone());
        }
    }

    /// Drops the copy of a record, if any, and requests the record again.
    pub(crate) fn need_again(&mut self, name: &Name) {
        self.copies.remove(name);
        self.need(name);
    }

    pub(crate) fn has_copy(&self, name: &Name) -> bool {
        self.copies.contains_key(name)
    }

    /// Returns whether records must be read before the change can be decided.
    pub(crate) const fn is_missing_some(&self) -> bool {
        !self.missing.is_empty()
    }

    /// Takes the names of the records that must be read.
    pub(crate) fn take_missing(&mut self) -> Vec<Name> {
        std::mem::take(&mut self.missing)
    }

    /// Stores a record that was read.
    pub(crate) fn keep(&mut self, name: Name, record: Option<Record>) {
        self.read.push(name.clone());
        self.copies.insert(name, Copy::of(record));
    }

    /// Returns the copies that the decision has read.
    pub(crate) fn touched(&self) -> impl Iterator<Item = (&Name, &Copy)> {
        self.touched.iter().filter_map(|name| Some((name, self.copies.get(name)?)))
    }

    /// Returns guards for all records that the decision has read.
    pub(crate) fn guards(&self) -> Vec<Guard> {
        self.touched().map(|(name, copy)| copy.guard(name)).collect()
    }

    /// Returns a commit with the writes in `before`, the changed records, and the writes in `after`. Appends come
    /// first, so that nothing is written if one is refused.
    pub(crate) fn commit(&self, revision: Revision, before: Vec<Write>, after: Vec<Write>) -> Commit {
        let is_append = |write: &&Write| matches!(write, Write::Append { .. });
        let (mut guards, mut writes) = (Vec::with_capacity(self.touched.len()), before);
        writes.reserve(self.touched.len() + after.len() + self.others.len());
        writes.extend(self.others.iter().filter(is_append).cloned());
        for (name, copy) in self.touched() {
            guards.push(copy.guard(name));
            writes.extend(copy.write(name, revision));
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
        let read = mem::take(&mut self.read);
        self.settle(revision);
        self.read = read;
    }

    /// Discards a refused change, and keeps the copies.
    pub(crate) fn refuse(&mut self) {
        self.end(Copy::roll_back);
    }

    /// Ends a change, and drops the copies that few changes read again.
    fn end(&mut self, mut end: impl FnMut(&mut Copy)) {
        for name in self.touched.drain(..) {
            if let Entry::Occupied(mut copy) = self.copies.entry(name) {
                end(copy.get_mut());
                if !copy.get().is_read_again(copy.key()) {
                    copy.remove();
                }
            }
        }
        for name in self.read.drain(..) {
            if self.copies.get(&name).is_some_and(|copy| !copy.is_read_again(&name)) {
                self.copies.remove(&name);
            }
        }
        self.begin();
    }

    /// Discards the changes, and starts the decision over with the records read so far.
    pub(crate) fn begin(&mut self) {
        for name in self.touched.drain(..) {
            if let Some(copy) = self.copies.get_mut(&name) {
                copy.roll_back();
            }
        }
        self.missing.clear();
        self.others.clear();
        self.durability = Durability::default();
    }

    /// Takes over the records from a conflict, by the indexes of their guards, and discards the changes.
    pub(crate) fn replace(&mut self, present: impl IntoIterator<Item = (usize, Option<Record>)>) {
        for (place, record) in present {
            if let Some(name) = self.touched.get(place) {
                self.copies.insert(name.clone(), Copy::of(record));
            }
        }
        self.begin();
    }

    pub(crate) fn forget(&mut self, name: &Name) {
        self.copies.remove(name);
    }

    #[cfg(feature = "testing")]
    pub(crate) fn copies(&self) -> impl Iterator<Item = (&Name, &Copy)> {
        self.copies.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.copies.len()
    }

    /// Drops copies if there are more than `most`: sums of earlier days first, and open holds last.
    pub(crate) fn shrink(&mut self, most: usize, today: Day) {
        if self.copies.len() <= most {
            return;
        }
        let today = names::day_part(today);
        self.copies
            .retain(|Name { set, .. }, _| !names::SETS_OF_DAYS.contains(&set.table) || set.part >= today);
        if self.copies.len() <= most / 2 {
            return;
        }
        self.copies.retain(|_, copy| copy.is_open());
        if self.copies.len() > most / 2 {
            self.copies.clear();
        }
    }

    fn values<T: Stored>(&mut self, name: &RecordName<T>) -> Option<&mut Values<T>> {
        let (space, copy) = self.touch(name)?;
        copy.values(|| tell_damage(space, name))
    }

    /// Finds a copy, which the commit then guards. Without one, the record is read before the decision runs again.
    fn touch(&mut self, name: &Name) -> Option<(&Space, &mut Copy)> {
        let Some(copy) = self.copies.get_mut(name) else {
            if !self.missing.contains(name) {
                self.missing.push(name.clone());
            }
            return None;
        };
        if !copy.is_touched {
            copy.is_touched = true;
            self.touched.push(name.clone());
        }
        Some((&self.space, copy))
    }
}

fn unreadable(name: &Name) -> Unreadable {
    let Name { set: Set { table, part }, key } = name;
    Unreadable(format!("table {table}, part {part}, {}", hex::encode(key)))
}

/// Changes a space that holds no money. `decide` runs again after a conflict, and whenever it needed records that had
/// not been read. If it refuses, nothing changes.
pub async fn change<T>(
    records: &Arc<dyn Records>,
    clock: &dyn Clock,
    space: &Space,
    mut decide: impl FnMut(&mut View) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let mut view = View::of(space);
    for _ in 0..MOST_ATTEMPTS {
        let term = records.term(space).await;
        view.begin();
        let decided = decide(&mut view);
        if view.is_missing_some() {
            read(records, &mut view).await?;
            continue;
        }
        let answer = decided?;
        let revision = Revision(random_bytes(clock));
        let commit = view.commit(revision, Vec::new(), Vec::new());
        // A single record that was only read needs no commit to confirm it.
        if !commit.writes.is_empty() || commit.guards.len() > 1 {
            let committed = records.commit(space, commit).await?;
            if let Committed::Conflict(present) = committed {
                view.replace(present);
                continue;
            }
        }
        records.settle(space, view.durability, term).await?;
        return Ok(answer);
    }
    Err(Failure::NotDone("others change the same records".into()).into())
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
