//! The copy of a record: its value as read, and its next value.

use std::any::Any;

use domain::ledger::Record as GenerationRecord;
use minicbor::{Decode, Encode};
use records::{Guard, Name, Record, Revision, Space, Write};

use crate::{
    names,
    view::{
        form,
        reading::{tell_damage, value},
    },
};

/// A type that can be stored as a record's value.
pub trait Stored: Encode<()> + for<'b> Decode<'b, ()> + Clone + PartialEq + Send + Sync + 'static {}

impl<T: Encode<()> + for<'b> Decode<'b, ()> + Clone + PartialEq + Send + Sync + 'static> Stored for T {}

/// A record as read, and its next value.
pub(crate) struct Copy {
    pub(crate) name: Name,
    /// Revision of the record; `None` if it is absent.
    pub(crate) seen: Option<Revision>,
    pub(super) is_touched: bool,
    state: State,
}

enum State {
    Absent,
    /// Nobody has asked for the value yet.
    Unread(Record),
    /// The decoded value, a [`Values`] of the record's type.
    Read(Box<dyn AnyValues>),
}

/// The values of a record before and after the running change.
#[derive(Clone)]
pub(super) struct Values<T> {
    /// `None` if the record is absent or damaged.
    value: Option<T>,
    /// The record exists but cannot be read.
    is_damaged: bool,
    next: Next<T>,
}

/// How the change affects a record.
#[derive(Clone)]
enum Next<T> {
    Same,
    Put(T),
    Removed,
}

/// A record cannot be read, or has not been read yet.
pub(crate) struct NotRead;

/// [`Values`] of any type.
trait AnyValues: Any + Send + Sync {
    /// Returns whether the record exists after the change.
    fn exist(&self) -> bool;
    /// Returns the write for the record, if the record has changed.
    fn write(&self, name: &Name, revision: Revision) -> Option<Write>;
    /// Makes the new value current. `seen` is the record's revision, which changes with it.
    fn settle(&mut self, revision: Revision, seen: &mut Option<Revision>);
    fn roll_back(&mut self);
    fn copied(&self) -> Box<dyn AnyValues>;
}

impl Copy {
    pub(super) fn of(name: Name, record: Option<Record>) -> Self {
        let seen = record.as_ref().map(Record::revision);
        Self { name, seen, is_touched: false, state: record.map_or(State::Absent, State::Unread) }
    }

    /// Takes over the current record.
    pub(super) fn replace(&mut self, record: Option<Record>) {
        *self = Self::of(self.name.clone(), record);
    }

    /// Returns the value, including the changes so far; `None` if the record does not exist.
    pub(super) fn get<T: Stored>(&mut self, space: &Space) -> Result<Option<&T>, NotRead> {
        match self.state {
            State::Absent => Ok(None),
            State::Unread(_) | State::Read(_) => self.values(space).ok_or(NotRead)?.get(),
        }
    }

    /// Returns the values of the record; `None` if they have another type. A record that cannot be read is logged once.
    pub(super) fn values<T: Stored>(&mut self, space: &Space) -> Option<&mut Values<T>> {
        let read = match &self.state {
            State::Absent => Some(Values { value: None, is_damaged: false, next: Next::Same }),
            State::Unread(record) => {
                let value = value::<T>(record).ok();
                Some(Values { is_damaged: value.is_none(), value, next: Next::Same })
            }
            State::Read(_) => None,
        };
        if let Some(values) = read {
            if values.is_damaged {
                tell_damage(space, &self.name);
            }
            self.state = State::Read(Box::new(values));
        }
        let State::Read(values) = &mut self.state else { return None };
        let values = &mut **values as &mut dyn Any;
        debug_assert!(values.is::<Values<T>>(), "a record of this name has another type");
        values.downcast_mut()
    }

    /// Returns the values before and after the change; `None` if it has not changed them or the record is damaged.
    pub(crate) fn change<T: Stored>(&self) -> Option<(Option<&T>, Option<&T>)> {
        let State::Read(values) = &self.state else { return None };
        let values =
            (&**values as &dyn Any).downcast_ref::<Values<T>>().filter(|values| !values.is_damaged)?;
        match &values.next {
            Next::Same => None,
            Next::Put(next) => Some((values.value.as_ref(), Some(next))),
            Next::Removed => Some((values.value.as_ref(), None)),
        }
    }

    /// Returns whether the record exists after the change, even if it cannot be read.
    pub(super) fn exists(&self) -> bool {
        match &self.state {
            State::Absent => false,
            State::Unread(_) => true,
            State::Read(values) => values.exist(),
        }
    }

    pub(super) fn guard(&self) -> Guard {
        Guard { name: self.name.clone(), seen: self.seen }
    }

    /// Returns the write for the record, if the record has changed.
    pub(super) fn write(&self, revision: Revision) -> Option<Write> {
        match &self.state {
            State::Absent | State::Unread(_) => None,
            State::Read(values) => values.write(&self.name, revision),
        }
    }

    /// Makes the new value current after it has been written.
    pub(super) fn settle(&mut self, revision: Revision) {
        self.is_touched = false;
        if let State::Read(values) = &mut self.state {
            values.settle(revision, &mut self.seen);
        }
    }

    /// Discards the new value because it was not written.
    pub(super) fn roll_back(&mut self) {
        self.is_touched = false;
        if let State::Read(values) = &mut self.state {
            values.roll_back();
        }
    }

    /// Returns whether later commands read the record again.
    pub(super) fn is_read_again(&self) -> bool {
        names::READ_AGAIN.contains(&self.name.set.table) || self.is_open()
    }

    /// Returns whether this is an open hold.
    pub(super) fn is_open(&self) -> bool {
        let State::Read(values) = &self.state else { return false };
        let values = (&**values as &dyn Any).downcast_ref::<Values<GenerationRecord>>();
        values.is_some_and(|values| matches!(values.value, Some(GenerationRecord::Open(_))))
    }
}

impl Clone for Copy {
    fn clone(&self) -> Self {
        let state = match &self.state {
            State::Absent => State::Absent,
            State::Unread(record) => State::Unread(record.clone()),
            State::Read(values) => State::Read(values.copied()),
        };
        Self { name: self.name.clone(), seen: self.seen, is_touched: self.is_touched, state }
    }
}

impl<T: Stored> Values<T> {
    fn get(&self) -> Result<Option<&T>, NotRead> {
        match &self.next {
            Next::Same if self.is_damaged => Err(NotRead),
            Next::Same => Ok(self.value.as_ref()),
            Next::Put(next) => Ok(Some(next)),
            Next::Removed => Ok(None),
        }
    }

    pub(super) fn put(&mut self, next: T) {
        self.next = Next::Put(next);
    }

    pub(super) fn remove(&mut self) {
        self.next = Next::Removed;
    }

    /// Returns the next value, to be changed in place; `None` if the record cannot be read.
    pub(super) fn next_mut(&mut self) -> Option<&mut T>
    where
        T: Default,
    {
        match &self.next {
            Next::Same if self.is_damaged => return None,
            Next::Same => self.next = Next::Put(self.value.clone().unwrap_or_default()),
            Next::Put(_) => {}
            Next::Removed => self.next = Next::Put(T::default()),
        }
        match &mut self.next {
            Next::Put(next) => Some(next),
            Next::Same | Next::Removed => None,
        }
    }

    fn is_changed(&self) -> bool {
        match &self.next {
            Next::Same => false,
            Next::Put(next) => self.value.as_ref() != Some(next),
            Next::Removed => self.is_damaged || self.value.is_some(),
        }
    }
}

impl<T: Stored> AnyValues for Values<T> {
    fn exist(&self) -> bool {
        match &self.next {
            Next::Same => self.is_damaged || self.value.is_some(),
            Next::Put(_) => true,
            Next::Removed => false,
        }
    }

    fn write(&self, name: &Name, revision: Revision) -> Option<Write> {
        match &self.next {
            Next::Put(next) if self.is_changed() => {
                Some(Write::Put(name.clone(), Record::of(revision, form::of(next), next)))
            }
            Next::Removed if self.is_changed() => Some(Write::Remove(name.clone())),
            Next::Same | Next::Put(_) | Next::Removed => None,
        }
    }

    fn settle(&mut self, revision: Revision, seen: &mut Option<Revision>) {
        let is_changed = self.is_changed();
        let next = std::mem::replace(&mut self.next, Next::Same);
        if !is_changed {
            return;
        }
        self.value = match next {
            Next::Put(next) => Some(next),
            Next::Same | Next::Removed => None,
        };
        self.is_damaged = false;
        *seen = self.value.as_ref().map(|_| revision);
    }

    fn roll_back(&mut self) {
        self.next = Next::Same;
    }

    fn copied(&self) -> Box<dyn AnyValues> {
        Box::new(self.clone())
    }
}
