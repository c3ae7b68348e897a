//! Revisions that the writer knows, so that guards need no read.

use std::mem;

use foldhash::{HashMap, HashMapExt};

use crate::records::{Guard, Name, Revision, Set, Space};

/// Records of a generation. Two generations take some 20 MiB at most, for names as long as a generation's.
const MOST: usize = 64 * 1024;

/// The revision of records as the writer has read or written them last; `None` for one that is absent.
///
/// There are two generations: a full one becomes the old one, and what is used again moves on, so that the records in use stay.
/// A revision in the young generation hides one in the old.
#[derive(Default)]
pub(super) struct Revisions {
    young: HashMap<Box<[u8]>, Option<Revision>>,
    old: HashMap<Box<[u8]>, Option<Revision>>,
    /// The name that is looked up, kept for its memory.
    key: Vec<u8>,
}

impl Revisions {
    /// Whether the writer knows that a record has the revision that a guard has seen.
    pub(super) fn has(&mut self, space: &Space, Guard { name, seen }: &Guard) -> bool {
        self.set_key(space, name);
        if let Some(known) = self.young.get(self.key.as_slice()) {
            return known == seen;
        }
        let Some(known) = self.old.get(self.key.as_slice()).copied() else { return false };
        self.insert(known);
        known == *seen
    }

    /// Keeps the revision of a record.
    pub(super) fn put(&mut self, space: &Space, name: &Name, revision: Option<Revision>) {
        self.set_key(space, name);
        match self.young.get_mut(self.key.as_slice()) {
            Some(known) => *known = revision,
            None => self.insert(revision),
        }
    }

    /// Forgets a record.
    pub(super) fn forget(&mut self, space: &Space, name: &Name) {
        self.set_key(space, name);
        for generation in [&mut self.young, &mut self.old] {
            generation.remove(self.key.as_slice());
        }
    }

    /// Forgets the records of a set.
    pub(super) fn forget_set(&mut self, space: &Space, set: Set) {
        self.set_key(space, &Name { set, key: [].into() });
        for generation in [&mut self.young, &mut self.old] {
            generation.retain(|key, _| !key.starts_with(&self.key));
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    fn insert(&mut self, revision: Option<Revision>) {
        if self.young.len() >= MOST {
            self.old = mem::replace(&mut self.young, HashMap::with_capacity(MOST));
        }
        self.young.insert(self.key.as_slice().into(), revision);
    }

    /// Names in full. The length of the space comes first, so that no two names are the same.
    fn set_key(&mut self, space: &Space, name: &Name) {
        self.key.clear();
        self.key.extend(space.as_str().len().to_be_bytes());
        self.key.extend(space.as_str().as_bytes());
        self.key.push(name.set.table);
        self.key.extend(name.set.part.to_be_bytes());
        self.key.extend(&name.key[..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(part: u32, n: usize) -> Name {
        Name { set: Set { table: 1, part }, key: n.to_be_bytes()[..].into() }
    }

    fn guard(name: Name, seen: Option<Revision>) -> Guard {
        Guard { name, seen }
    }

    #[test]
    fn records_in_use_stay_known_and_the_number_is_bounded() {
        let (mut revisions, space, seen) = (Revisions::default(), Space::new("s"), Some(Revision([7; 8])));
        revisions.put(&space, &name(0, 0), seen);
        for n in 1..5 * MOST {
            revisions.put(&space, &name(0, n), None);
            assert!(revisions.has(&space, &guard(name(0, 0), seen)));
        }
        assert!(revisions.young.len() + revisions.old.len() <= 2 * MOST);
        assert!(!revisions.has(&space, &guard(name(0, 1), None)));
    }

    #[test]
    fn a_later_revision_hides_an_earlier_one_and_a_set_is_forgotten_alone() {
        let (mut revisions, space, seen) = (Revisions::default(), Space::new("s"), Some(Revision([1; 8])));
        revisions.put(&space, &name(0, 0), None);
        revisions.old = mem::take(&mut revisions.young);
        revisions.put(&space, &name(0, 0), seen);
        revisions.put(&space, &name(1, 0), None);
        assert!(revisions.has(&space, &guard(name(0, 0), seen)));
        assert!(!revisions.has(&space, &guard(name(0, 0), None)));
        revisions.forget_set(&space, Set { table: 1, part: 0 });
        assert!(!revisions.has(&space, &guard(name(0, 0), seen)));
        assert!(revisions.has(&space, &guard(name(1, 0), None)));
    }
}
