//! Records of one space while a change is decided. Records that were read are guarded, and those that changed are
//! written.
//!
//! A decision is a function that may run several times. A record that was not read yet looks absent to it. Its answer
//! then does not count, the record is read, and the function runs again.

pub mod reading;

use std::{collections::HashMap, sync::Arc};

use foldhash::fast::RandomState;
use prost::Message;
use records::{
    Answer, Commit, Committed, Durability, Failure, Guard, Index, Name, Question, Record, Records, Revision,
    Set, Space, Write,
};
use shared::clock::{Clock, random_bytes};

pub use self::reading::{FORM, tell_damage};
use crate::error::StoreError;

/// Attempts at a change of a space that others change too.
const MOST_ATTEMPTS: u32 = 100;

/// A record cannot be read, so nothing can be decided on it.
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
    /// The space, for messages about records that cannot be read.
    space: Option<Space>,
    records: HashMap<Name, ReadRecord, RandomState>,
    /// Names that the decision has read, in this order, which the commit guards.
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

    /// Begins to decide anew, with the records that were read.
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

    /// Returns the record of this name as the change has left it; `None` if there is none.
    pub fn get<M: Message + Default>(&mut self, name: &Name) -> Result<Option<M>, Unreadable> {
        let Some(seen) = self.look(name) else { return Ok(None) };
        let message = match (&seen.next, &seen.record) {
            (Some(Next::Put(message)), _) => Ok(Some(&message[..])),
            (Some(Next::Removed), _) | (None, None) => Ok(None),
            (None, Some(record)) if record.form() > FORM => Err(()),
            (None, Some(record)) => Ok(Some(record.message())),
        };
        let read = |message: Option<&[u8]>| message.map(M::decode).transpose().map_err(|_| ());
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

    /// Writes a record. It reads the record first, so that the commit guards it and none is overwritten unread.
    pub fn put(&mut self, name: &Name, message: &impl Message) {
        if let Some(seen) = self.look(name) {
            seen.next = Some(Next::Put(message.encode_to_vec()));
        }
    }

    /// Removes a record, if there is one.
    pub fn remove(&mut self, name: &Name) {
        if let Some(seen) = self.look(name) {
            seen.next = Some(Next::Removed);
        }
    }

    /// Presumes that there is no record of this name. The commit guards this, and a conflict brings the record if there
    /// is one.
    pub fn presume_absent(&mut self, name: &Name) {
        if !self.records.contains_key(name) {
            self.keep(name.clone(), None);
        }
    }

    /// Sets which loss the answered change must survive. Housekeeping asks for as little as possible, so as not to wait
    /// for the disk.
    pub fn survive(&mut self, durability: Durability) {
        self.durability = durability;
    }

    /// Puts an entry into an index.
    pub fn enter(&mut self, index: Index, entry: Vec<u8>) {
        self.others.push(Write::Enter(index, entry));
    }

    /// Takes an entry out of an index, if it is there.
    pub fn leave(&mut self, index: Index, entry: Vec<u8>) {
        self.others.push(Write::Leave(index, entry));
    }

    pub fn drop_set(&mut self, set: Set) {
        self.others.push(Write::Drop(set));
    }

    /// Adds any other write, which has no guard of its own.
    pub fn write(&mut self, write: Write) {
        self.others.push(write);
    }

    /// Lists the records that must be read before the change can be decided.
    pub(crate) fn missing(&self) -> &[Name] {
        &self.missing
    }

    /// Keeps a record that was read.
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
        // Appends come first, so that nothing is written if one of them is refused.
        let (mut appends, others): (Vec<_>, Vec<_>) =
            self.others.iter().cloned().partition(|write| matches!(write, Write::Append { .. }));
        appends.extend(writes);
        appends.extend(others);
        (guards, appends)
    }

    /// Takes over the records that a conflict brought, by their places among the guards.
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

/// Changes a space that has no money, as `decide` says. `decide` runs again after a conflict, and while it has read
/// records that were not there yet. If it refuses, nothing changes.
pub async fn change<T>(
    records: &Arc<dyn Records>,
    clock: &dyn Clock,
    space: &Space,
    mut decide: impl FnMut(&mut View) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let mut view = View::of(space);
    for _ in 0..MOST_ATTEMPTS {
        let term = records.term().await;
        view.begin();
        let decided = decide(&mut view);
        if !view.missing.is_empty() {
            read(records, space, &mut view).await?;
            continue;
        }
        let answer = decided?;
        let revision = Revision(random_bytes(clock));
        let (guards, writes) = view.changes(revision);
        // If one record was only read, it is as of the moment at which it was read.
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

/// Reads the records that a decision needed and did not have.
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
