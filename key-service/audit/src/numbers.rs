//! Checks the links between entries: each entry has the number of the previous entry of the same key or group.

use std::collections::HashMap;

use domain::{
    audit::{Auditor, BudgetOwner, Figure, Quantity},
    ledger::EntriesBefore,
};

use key_service_ledger::journal::JournalEntry;

/// Number of the last entry seen for each key and group.
#[derive(Default)]
pub(super) struct LastNumbers {
    /// Whether the journal still has its first entries.
    complete: bool,
    of: HashMap<BudgetOwner, u64>,
}

impl LastNumbers {
    pub(super) fn new(complete: bool) -> Self {
        Self { complete, of: HashMap::new() }
    }

    /// Checks that an entry names the previous entries of its key and groups, and remembers it as their last entry.
    pub(super) fn add(&mut self, auditor: &mut Auditor, entry: &JournalEntry) {
        let JournalEntry { number, before: EntriesBefore { key, groups }, .. } = *entry;
        let payer = &entry.entry.settlement.payer;
        let of_groups = payer.groups.into_iter().zip(groups);
        let of_groups = of_groups.filter_map(|(group, before)| Some((BudgetOwner::Group(group?), before)));
        for (of, before) in [(BudgetOwner::Key(payer.key), key)].into_iter().chain(of_groups) {
            self.compare(auditor, Figure::Previous(of, number), of, before);
            self.of.insert(of, number);
        }
    }

    /// Checks the number of the last entry that a balance includes. Call this when exactly the entries up to that
    /// number have been added.
    pub(super) fn last(&self, auditor: &mut Auditor, of: BudgetOwner, recorded: u64) {
        self.compare(auditor, Figure::Last(of), of, recorded);
    }

    fn compare(&self, auditor: &mut Auditor, figure: Figure, of: BudgetOwner, recorded: u64) {
        let none = self.complete.then_some(0);
        // If the journal's first entries were dropped, an owner without a known entry is not compared: its entries may
        // be among those that were dropped.
        if let Some(last) = self.of.get(&of).copied().or(none) {
            auditor.quantity(figure, Quantity::Count(recorded), Quantity::Count(last));
        }
    }
}
