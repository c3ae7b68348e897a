//! Describes copies without the random bits of revisions, so that a model recognises states it has already visited.

use records::{Name, Record, maps::SpaceMaps};

use crate::copies::{
    Copies, RecordKind,
    table::{Copy, CopyTable},
};

impl Copies {
    /// Appends each copy in the order of names: whether the record was absent, is unchanged, or has changed since it
    /// was read. In the last case its value does not matter, since a commit that guards the copy is never written.
    pub(crate) fn sketch(&self, records: &SpaceMaps, sketch: &mut Vec<u8>) {
        let mut all = Vec::new();
        self.account.sketch(records, &mut all);
        self.turn.sketch(records, &mut all);
        self.events.sketch(records, &mut all);
        self.house.sketch(records, &mut all);
        self.keys.sketch(records, &mut all);
        self.groups.sketch(records, &mut all);
        self.generations.sketch(records, &mut all);
        self.expired.sketch(records, &mut all);
        self.deposits.sketch(records, &mut all);
        self.payers.sketch(records, &mut all);
        self.payers_of.sketch(records, &mut all);
        self.models.sketch(records, &mut all);
        self.group_sums.sketch(records, &mut all);
        self.users.sketch(records, &mut all);
        self.told.sketch(records, &mut all);
        all.sort_unstable();
        for (name, copy) in all {
            sketch.push(name.set.table);
            sketch.extend(name.set.part.to_be_bytes());
            sketch.extend(&name.key[..]);
            sketch.push(copy);
        }
    }
}

impl<K: RecordKind> CopyTable<K> {
    fn sketch<'a>(&'a self, records: &SpaceMaps, all: &mut Vec<(&'a Name, u8)>) {
        all.extend(self.0.values().map(|copy| (&copy.name, copy.sketch(records))));
    }
}

impl<K: RecordKind> Copy<K> {
    fn sketch(&self, records: &SpaceMaps) -> u8 {
        match self.seen {
            None => 0,
            seen if seen == records.record(&self.name).map(Record::revision) => 1,
            Some(_) => 2,
        }
    }
}
