//! Copies of records by name and by slot.

use std::{collections::HashMap, marker::PhantomData};

use foldhash::fast::RandomState;
use records::Name;

use crate::view::copy::Copy;

/// Where a copy is kept. Removing the copy frees its slot for another one, so a slot is used only within the decision
/// that found it.
pub(crate) struct Slot<T> {
    pub(super) number: usize,
    of: PhantomData<fn() -> T>,
}

impl<T> Slot<T> {
    pub(super) const fn new(number: usize) -> Self {
        Self { number, of: PhantomData }
    }
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> std::marker::Copy for Slot<T> {}

/// Copies of records, at most one for each name.
#[derive(Clone, Default)]
pub(super) struct Copies {
    by_name: HashMap<Name, usize, RandomState>,
    slots: Vec<Option<Copy>>,
    free: Vec<usize>,
}

impl Copies {
    pub(super) fn slot(&self, name: &Name) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    pub(super) fn get(&self, slot: usize) -> Option<&Copy> {
        self.slots.get(slot)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: usize) -> Option<&mut Copy> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// Keeps a copy, and drops an earlier one of the same record. Returns the slot.
    pub(super) fn insert(&mut self, copy: Copy) -> usize {
        let slot = *self.by_name.entry(copy.name.clone()).or_insert_with(|| {
            self.free.pop().unwrap_or_else(|| {
                self.slots.push(None);
                self.slots.len() - 1
            })
        });
        self.slots[slot] = Some(copy);
        slot
    }

    /// Drops the copy in a slot, if there is one.
    pub(super) fn remove(&mut self, slot: usize) {
        if let Some(copy) = self.slots.get_mut(slot).and_then(Option::take) {
            self.by_name.remove(&copy.name);
            self.free.push(slot);
        }
    }

    pub(super) fn retain(&mut self, is_kept: impl Fn(&Copy) -> bool) {
        for slot in 0..self.slots.len() {
            if self.get(slot).is_some_and(|copy| !is_kept(copy)) {
                self.remove(slot);
            }
        }
    }

    #[cfg(feature = "testing")]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Copy> {
        self.slots.iter().flatten()
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }
}
