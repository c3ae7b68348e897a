//! The records of one space while a change is decided. Records that were read are guarded, and changed ones are
//! written.
//!
//! A decision is a function that may run several times. A record that has not been read yet looks absent to it. The
//! answer is then discarded, the record is read, and the function runs again.

pub mod reading;

use std::{collections::HashMap, sync::Arc};

use foldhash::fast::RandomState;
use minicbor::{Decode, Encode};
use records::{
    Answer, Commit, Committed, Durability, Failure, Guard, Index, Name, Question, Record, Records, Revision,
    Set, Space, Write,
};
use shared::{
    clock::{Clock, random_bytes},
    stored,
};

pub use self::reading::{FORM, tell_damage};
use crate::error::StoreError;

/// Most attempts at a change while others change the same space.
const MOST_ATTEMPTS: u32 = 100;

/// A record that cannot be read, so that nothing can be decided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record cannot be read: {0}")]
pub struct Unreadable(pub String);

impl From<Unreadable> for StoreError {
    fn from(unreadable: Unreadable) -> Self {
        Self::Damaged(unreadable.to_string())
    }
}

/// Records of a space while a change is decided.
#[derive(Debug, Default)]
pub struct View {
    /// The space, for messages about unreadable records.
    space: Option<Space>,
    records: HashMap<Name, ReadRecord, RandomState>,
    /// Names that the decision has read, in order. The commit guards them.
    looked_at: Vec<Name>,
    missing: Vec<Name>,
    /// Changes of indexes, logs and sets.
    others: Vec<Write>,
    durability: Durability,
}

/// A record as read, and its next state.
#[derive(Debug)]
struct ReadRecord {
    record: Option<Record>,
    next: Option<Next>,
    is_looked_at: bool,
}

#[derive(Debug)]
enum Next {
    Put(Vec<u8>),
    Removed,
}

impl View {
    pub fn of(space: &Space) -> Self {
        Self { space: Some(space.clone()), ..Self::default() }
    }

    /// Starts the decision over with the records read so far.
    pub(crate) fn begin(&mut self) {
        self.looked_at.clear();
        self.missing.clear();
        self.others.clear();
        self.durability = Durability::default();
        for seen in self.records.values_mut() {
            seen.next = None;
            seen.is_looked_at = false;
        }
    }

    /// Returns the record of this name after the change so far; `None` if it does not exist.
    pub fn get<T: for<'b> Decode<'b, ()>>(&mut self, name: &Name) -> Result<Option<T>, Unreadable> {
        let Some(seen) = self.look(name) else { return Ok(None) };
        let message = match (&seen.next, &seen.record) {
            (Some(Next::Put(message)), _) => Ok(Some(&message[..])),
            (Some(Next::Removed), _) | (None, None) => Ok(None),
            (None, Some(record)) if record.form() > FORM => Err(()),
            (None, Some(record)) => Ok(Some(record.message())),
        };
        let read = |message: Option<&[u8]>| message.map(stored::read).transpose().map_err(|_| ());
        message.and_then(read).map_err(|()| {
            if let Some(space) = &self.space {
                tell_damage(space, name);
            }
            unreadable(name)
        })
    }

    /// Returns whether there is a record of this name.
    pub fn has(&mut self, name: &Name) -> bool {
        self.look(name).is_some_and(|seen| match seen.next {
            Some(Next::Put(_)) => true,
            Some(Next::Removed) => false,
            None => seen.record.is_some(),
        })
    }

    /// Writes a record. The record is read first and guarded, so that no unread record is overwritten.
    pub fn put(&mut self, name: &Name, value: &impl Encode<()>) {
        if let Some(seen) = self.look(name) {
            seen.next = Some(Next::Put(stored::write(value)));
        }
    }

    /// Removes a record, if there is one.
    pub fn remove(&mut self, name: &Name) {
        if let Some(seen) = self.look(name) {
            seen.next = Some(Next::Removed);
        }
    }

    /// Presumes that no record of this name exists. The commit guards this, and a conflict returns the record if it
    /// does exist.
    pub fn presume_absent(&mut self, name: &Name) {
        if !self.records.contains_key(name) {
            self.keep(name.clone(), None);
        }
    }

    /// Sets which failures the answered change must survive. Housekeeping asks for little, so that it does not wait for
    /// the disk.
    pub fn survive(&mut self, durability: Durability) {
        self.durability = durability;
    }

    /// Puts an entry into an index.
    pub fn enter(&mut self, index: Index, entry: Vec<u8>) {
        self.others.push(Write::Enter(index, entry));
    }

    /// Removes an entry from an index, if it is there.
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

    /// Lists the records that must be read before the change can be decided.
    pub(crate) fn missing(&self) -> &[Name] {
        &self.missing
    }

    /// Stores a record that was read.
    pub(crate) fn keep(&mut self, name: Name, record: Option<Record>) {
        self.records.insert(name, ReadRecord { record, next: None, is_looked_at: false });
    }

    /// Returns guards of the records that were read, and the changes.
    pub(crate) fn changes(&self, revision: Revision) -> (Vec<Guard>, Vec<Write>) {
        let (mut guards, mut writes) = (Vec::new(), Vec::new());
        for name in &self.looked_at {
            let Some(seen) = self.records.get(name) else { continue };
            guards.push(Guard { name: name.clone(), seen: seen.record.as_ref().map(Record::revision) });
            match &seen.next {
                None => {}
                Some(Next::Removed) if seen.record.is_none() => {}
                Some(Next::Removed) => writes.push(Write::Remove(name.clone())),
                Some(Next::Put(message)) if seen.record.as_ref().map(Record::message) == Some(message) => {}
                Some(Next::Put(message)) => {
                    writes.push(Write::Put(name.clone(), Record::new(revision, FORM, message)));
                }
            }
        }
        // Appends come first, so that nothing is written if one is refused.
        let (mut appends, others): (Vec<_>, Vec<_>) =
            self.others.iter().cloned().partition(|write| matches!(write, Write::Append { .. }));
        appends.extend(writes);
        appends.extend(others);
        (guards, appends)
    }

    /// Takes over the records from a conflict, by the indexes of their guards.
    pub(crate) fn replace(&mut self, present: impl IntoIterator<Item = (usize, Option<Record>)>) {
        for (place, record) in present {
            if let Some(name) = self.looked_at.get(place).cloned() {
                self.keep(name, record);
            }
        }
    }

    fn look(&mut self, name: &Name) -> Option<&mut ReadRecord> {
        let Some(seen) = self.records.get_mut(name) else {
            if !self.missing.contains(name) {
                self.missing.push(name.clone());
            }
            return None;
        };
        if !seen.is_looked_at {
            seen.is_looked_at = true;
            self.looked_at.push(name.clone());
        }
        Some(seen)
    }
}

fn unreadable(name: &Name) -> Unreadable {
    let Name { set: Set { table, part }, key } = name;
    Unreadable(format!("table {table}, part {part}, {}", hex::encode(key)))
}

/// Changes a space without money as `decide` says. `decide` runs again after a conflict, and whenever it needed records
/// that had not been read. If it refuses, nothing changes.
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
        if !view.missing.is_empty() {
            read(records, space, &mut view).await?;
            continue;
        }
        let answer = decided?;
        let revision = Revision(random_bytes(clock));
        let (guards, writes) = view.changes(revision);
        // A single record that was only read needs no commit to confirm it.
        if !writes.is_empty() || guards.len() > 1 {
            let committed = records.commit(space, Commit { guards, writes }).await?;
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

/// Reads the records that a decision needs and lacks.
pub(crate) async fn read(records: &Arc<dyn Records>, space: &Space, view: &mut View) -> Result<(), Failure> {
    let names = std::mem::take(&mut view.missing);
    let mut answers = records.read(space, vec![Question::Records(names.clone())]).await?;
    let Some(Answer::Records(found)) = answers.pop() else {
        return Err(Failure::Damaged("no records in an answer".into()));
    };
    for (name, record) in names.into_iter().zip(found) {
        view.keep(name, record);
    }
    Ok(())
}
