//! Record names that carry the type of their record.

use std::{fmt, marker::PhantomData, ops::Deref};

use records::{Name, NameBytes, Set};

/// Name of a record whose value is a `T`.
pub struct RecordName<T> {
    name: Name,
    of: PhantomData<fn() -> T>,
}

impl<T> RecordName<T> {
    /// Names a record in a part of a set. Sets without parts use part zero.
    pub fn new(table: u8, part: u32, key: impl Into<NameBytes>) -> Self {
        Self { name: Name { set: Set { table, part }, key: key.into() }, of: PhantomData }
    }
}

impl<T> Deref for RecordName<T> {
    type Target = Name;

    fn deref(&self) -> &Name {
        &self.name
    }
}

impl<T> From<RecordName<T>> for Name {
    fn from(RecordName { name, of: _ }: RecordName<T>) -> Self {
        name
    }
}

impl<T> Clone for RecordName<T> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), of: PhantomData }
    }
}

impl<T> fmt::Debug for RecordName<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}
