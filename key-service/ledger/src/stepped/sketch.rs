//! Describes copies without the random bits of revisions, so that a model recognises states it has already visited.

use records::{Name, Record, maps::SpaceMaps};

use crate::view::{Copy, View};

impl View {
    /// Appends each copy in the order of names: whether the record was absent, is unchanged, or has changed since it
    /// was read. In the last case its value does not matter, since a commit that guards the copy is never written.
    pub(crate) fn sketch(&self, records: &SpaceMaps, sketch: &mut Vec<u8>) {
        let mut all: Vec<_> = self.copies().map(|(name, copy)| (name, state(name, copy, records))).collect();
        all.sort_unstable();
        for (name, copy) in all {
            sketch.push(name.set.table);
            sketch.extend(name.set.part.to_be_bytes());
            sketch.extend(&name.key[..]);
            sketch.push(copy);
        }
    }
}

fn state(name: &Name, copy: &Copy, records: &SpaceMaps) -> u8 {
    match copy.seen {
        None => 0,
        seen if seen == records.record(name).map(Record::revision) => 1,
        Some(_) => 2,
    }
}
