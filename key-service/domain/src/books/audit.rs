//! Audit of an account: compares recorded figures with the sums of entries, holds and deposits.

mod bills;
mod day_counters;
mod figure;
mod replay;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, hash_map::Entry as Slot},
    hash::Hash,
};

use shared::{
    calendar::Per,
    ids::{GenerationId, GroupId, KeyId},
    money::NanoUsd,
    time::Timestamp,
};

pub use self::day_counters::{DayCounters, SumOwner};
pub use self::figure::{Counter, DayPart, EntriesOf, Figure, Quantity, Wrong};
use self::{
    bills::Bills,
    replay::{Known, Replay, Since},
};
use crate::{
    books::usage::Day,
    ledger::{Account, Budget, Entry, Group, GroupChain, Key, Payer, Settlement},
};

/// Adds up the books of an account. It takes every entry of the journal in order, each key and group after the last
/// entry that its recorded balance counts, and then the account.
///
/// The figures may therefore be of different moments. Memory grows with the keys and groups, not with the journal.
#[derive(Debug)]
pub struct Auditor {
    /// True if the journal still has the first entries.
    complete: bool,
    /// Number of the first entry; `None` if numbers are not compared.
    first: Option<u64>,
    /// Number of the last entry that the account's credit has paid.
    paid: u64,
    keys: HashMap<KeyId, SumsOfEntries>,
    groups: HashMap<GroupId, SumsOfEntries>,
    /// Times at which windows got their bounds, for bounds set within the recorded window.
    bound_since: (HashMap<KeyId, Since>, HashMap<GroupId, Since>),
    begins_at: Option<Timestamp>,
    bills: Bills,
    entries: u64,
    /// Entries that the account's credit has paid.
    paid_entries: u64,
    /// Keys and groups passed in so far.
    checked: (u64, u64),
    /// Sum of what keys used up to the entry `paid`.
    used: i128,
    wrong: Vec<Wrong>,
}

/// Fields of a journal entry that audits read.
#[derive(Clone, Copy, Debug)]
pub struct AuditedEntry {
    pub number: u64,
    pub key: KeyId,
    pub groups: GroupChain,
    pub at: Timestamp,
    /// Change of the amount billed.
    pub delta: NanoUsd,
    /// The key's balance after the entry.
    pub used_after: NanoUsd,
}

/// Sums of the entries so far of a key or a group.
#[derive(Debug)]
struct SumsOfEntries {
    /// A key's balance after the last entry, or the sum of a group's entries.
    used: NanoUsd,
    /// The first entry of a complete journal, which the opening balance proves.
    first: Option<AuditedEntry>,
    windows: Replay,
    known: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    pub entries: u64,
    pub keys: u64,
    pub groups: u64,
    /// Figures that do not add up; empty if all do.
    pub wrong: Vec<Wrong>,
}

impl AuditedEntry {
    pub const fn of(number: u64, entry: &Entry) -> Self {
        let Entry { settlement: Settlement { payer, at, .. }, delta, used_after } = entry;
        let Payer { key, groups, .. } = payer;
        Self { number, key: *key, groups: *groups, at: *at, delta: *delta, used_after: *used_after }
    }
}

impl Auditor {
    /// Starts an audit of a journal, which is `complete` if no entries were dropped at the beginning.
    pub fn new(complete: bool) -> Self {
        Self {
            complete,
            first: None,
            paid: u64::MAX,
            keys: HashMap::new(),
            groups: HashMap::new(),
            bound_since: (HashMap::new(), HashMap::new()),
            begins_at: None,
            bills: Bills::new(complete),
            entries: 0,
            paid_entries: 0,
            checked: (0, 0),
            used: 0,
            wrong: Vec::new(),
        }
    }

    /// Sets the number of the last entry that the account's credit has paid. Without this call, the credit has paid
    /// all.
    #[must_use]
    pub fn paid(self, paid: u64) -> Self {
        Self { paid, ..self }
    }

    /// Takes the bounds of a key before its entries, so that these are added up from the time at which a window's bound
    /// was set.
    pub fn key_bounds(&mut self, id: KeyId, budget: &Budget) {
        self.bound_since.0.extend(replay::since(budget).map(|since| (id, since)));
    }

    /// Takes the bounds of a group before its entries, as [`Self::key_bounds`] does for a key.
    pub fn group_bounds(&mut self, id: GroupId, budget: &Budget) {
        self.bound_since.1.extend(replay::since(budget).map(|since| (id, since)));
    }

    pub fn entry(&mut self, entry: AuditedEntry) {
        self.entries += 1;
        self.begins_at.get_or_insert(entry.at);
        let is_paid = entry.number <= self.paid;
        self.paid_entries += u64::from(is_paid);
        let known = self.keys.get(&entry.key).map(|balance| (balance.used, balance.known));
        if let Some((before, _)) = known {
            self.follow(before, entry);
        }
        // The key's balance may be of an earlier or a later moment than the account's credit.
        match (known.is_some_and(|(_, known)| known), is_paid) {
            (true, true) => self.used += i128::from(entry.delta.nanos()),
            (false, false) => self.used -= i128::from(entry.delta.nanos()),
            (true, false) | (false, true) => {}
        }
        balance(&mut self.keys, &self.bound_since.0, entry.key, entry).used = entry.used_after;
        for group in entry.groups.into_iter().flatten() {
            let balance = balance(&mut self.groups, &self.bound_since.1, group, entry);
            balance.used = NanoUsd::from_nanos(balance.used.nanos().saturating_add(entry.delta.nanos()));
        }
    }

    /// Compares the bill of a generation with the entries before it.
    pub fn bill(&mut self, generation: GenerationId, entry: &Entry) {
        if let Some(proven) = self.bills.disproves(generation, entry) {
            self.compare(Figure::Bill(generation), entry.settlement.charged, proven);
        }
    }

    /// Compares any other recorded figure with what proves it.
    pub fn quantity(&mut self, figure: Figure, recorded: Quantity, proven: Quantity) {
        if recorded != proven {
            self.wrong.push(Wrong { figure, recorded, proven });
        }
    }

    /// Compares the counters of a day that are recorded with those that entries add up to.
    pub fn counters(&mut self, day: Day, of: &SumOwner, recorded: &DayCounters, proven: &DayCounters) {
        self.wrong.extend(day_counters::compare(day, of, recorded, proven));
    }

    /// Compares what was charged on a day with the sum of the entries.
    pub fn sum(&mut self, figure: Figure, recorded: NanoUsd, entries: i128) {
        self.compare(figure, recorded, entries);
    }

    /// Compares the requests in flight of a key or a group with the open holds that count.
    pub fn in_flight(&mut self, figure: Figure, recorded: u64, holds: u64) {
        self.count(figure, recorded, holds);
    }

    /// Sets the number of the first entry of the journal. The audit then checks that no entry is missing between this
    /// number and the account's last one.
    pub const fn begins(&mut self, first: u64) {
        self.first = Some(first);
    }

    /// Adds a key, its opening balance from an import, and the sum of its open holds.
    pub fn key(&mut self, id: KeyId, key: &Key, opening: NanoUsd, holds: NanoUsd) {
        self.checked.0 += 1;
        self.open(id, opening);
        // Nothing is proven if all entries of the key may have been dropped.
        let nothing = if self.complete { opening } else { key.budget.used };
        let proven = proven(&mut self.keys, id, nothing);
        self.used += i128::from(proven.nanos()) - i128::from(opening.nanos());
        self.compare(Figure::Used(id), key.budget.used, i128::from(proven.nanos()));
        self.compare(Figure::KeyHeld(id), key.budget.held, i128::from(holds.nanos()));
        let windows = wrong_windows(&key.budget, self.keys.get(&id), self.known());
        self.windows(windows, |per| Figure::Window(id, per));
    }

    /// Adds a group, its opening balance, and the sum of its open holds.
    pub fn group(&mut self, id: GroupId, group: &Group, opening: NanoUsd, holds: NanoUsd) {
        self.checked.1 += 1;
        let entries = proven(&mut self.groups, id, NanoUsd::ZERO);
        let proven = i128::from(entries.nanos()) + i128::from(opening.nanos());
        let recorded = group.budget.used;
        self.compare(
            Figure::GroupUsed(id),
            recorded,
            if self.complete { proven } else { recorded.nanos().into() },
        );
        self.compare(Figure::GroupHeld(id), group.budget.held, i128::from(holds.nanos()));
        let windows = wrong_windows(&group.budget, self.groups.get(&id), self.known());
        self.windows(windows, |per| Figure::GroupWindow(id, per));
    }

    /// Keys that have entries but were not passed in so far.
    pub fn unknown(&self) -> impl Iterator<Item = KeyId> {
        self.keys.iter().filter(|(_, balance)| !balance.known).map(|(id, _)| *id)
    }

    /// Groups that have entries but were not passed in so far.
    pub fn unknown_groups(&self) -> impl Iterator<Item = GroupId> {
        self.groups.iter().filter(|(_, balance)| !balance.known).map(|(id, _)| *id)
    }

    /// Ends the audit with the account, the sum of all open holds, and the deposits.
    pub fn account(
        mut self,
        account: Account,
        holds: NanoUsd,
        deposits: impl Iterator<Item = NanoUsd>,
    ) -> Audit {
        let unknown: Vec<_> = self.unknown().map(|id| (id, self.keys[&id].used)).collect();
        for (id, used) in unknown {
            self.open(id, NanoUsd::ZERO);
            self.used += i128::from(used.nanos());
            self.compare(Figure::Used(id), NanoUsd::ZERO, i128::from(used.nanos()));
        }
        let unknown: Vec<_> = self.unknown_groups().map(|id| (id, self.groups[&id].used)).collect();
        for (id, used) in unknown {
            self.compare(Figure::GroupUsed(id), NanoUsd::ZERO, i128::from(used.nanos()));
        }
        if let Some(first) = self.first {
            let recorded = self.paid.saturating_add(1).saturating_sub(first);
            self.count(Figure::Entries, recorded, self.paid_entries);
        }
        self.compare(Figure::Held, account.held, i128::from(holds.nanos()));
        let deposited: i128 = deposits.map(|amount| i128::from(amount.nanos())).sum();
        self.compare(Figure::Credit, account.credit, deposited - self.used);
        let (keys, groups) = self.checked;
        Audit { entries: self.entries, keys, groups, wrong: self.wrong }
    }

    const fn known(&self) -> Known {
        Known { complete: self.complete, begins_at: self.begins_at }
    }

    /// Compares the first entry of a key with the opening balance.
    fn open(&mut self, id: KeyId, opening: NanoUsd) {
        let first = self.keys.get_mut(&id).and_then(|balance| balance.first.take());
        if let Some(first) = first.filter(|_| self.complete) {
            self.follow(opening, first);
        }
    }

    /// Compares the balance after an entry with the balance before.
    fn follow(&mut self, before: NanoUsd, entry: AuditedEntry) {
        let proven = i128::from(before.nanos()) + i128::from(entry.delta.nanos());
        self.compare(Figure::Entry(entry.key, entry.number), entry.used_after, proven);
    }

    fn windows(&mut self, wrong: Vec<(Per, NanoUsd, NanoUsd)>, figure: impl Fn(Per) -> Figure) {
        for (per, recorded, proven) in wrong {
            self.compare(figure(per), recorded, i128::from(proven.nanos()));
        }
    }

    fn compare(&mut self, figure: Figure, recorded: NanoUsd, proven: i128) {
        if i128::from(recorded.nanos()) != proven {
            // A sum that no amount can hold is reported as the nearest amount; it is wrong in any case.
            let bounds = (i128::from(i64::MIN), i128::from(i64::MAX));
            let proven = i64::try_from(proven.clamp(bounds.0, bounds.1)).unwrap_or(i64::MAX);
            let proven = Quantity::Usd(NanoUsd::from_nanos(proven));
            self.wrong.push(Wrong { figure, recorded: Quantity::Usd(recorded), proven });
        }
    }

    fn count(&mut self, figure: Figure, recorded: u64, proven: u64) {
        self.quantity(figure, Quantity::Count(recorded), Quantity::Count(proven));
    }
}

/// Adds an entry to the windows of a key or a group, and returns the balance.
fn balance<'a, Id: Eq + Hash>(
    balances: &'a mut HashMap<Id, SumsOfEntries>,
    since: &HashMap<Id, Since>,
    id: Id,
    entry: AuditedEntry,
) -> &'a mut SumsOfEntries {
    let balance = match balances.entry(id) {
        Slot::Occupied(balance) => balance.into_mut(),
        Slot::Vacant(vacant) => {
            let windows = Replay::new(since.get(vacant.key()).copied().unwrap_or_default());
            vacant.insert(SumsOfEntries { used: NanoUsd::ZERO, first: Some(entry), windows, known: false })
        }
    };
    balance.windows.add(entry.at, entry.delta);
    balance
}

/// Marks a key or a group as known, and returns the amount that entries prove, or `nothing` if there are no entries.
fn proven<Id: Eq + Hash>(balances: &mut HashMap<Id, SumsOfEntries>, id: Id, nothing: NanoUsd) -> NanoUsd {
    let new = || SumsOfEntries { used: nothing, first: None, windows: Replay::default(), known: false };
    let balance = balances.entry(id).or_insert_with(new);
    balance.known = true;
    balance.used
}

/// Finds the windows that entries disprove, each with its recorded and proven spend.
fn wrong_windows(
    budget: &Budget,
    balance: Option<&SumsOfEntries>,
    known: Known,
) -> Vec<(Per, NanoUsd, NanoUsd)> {
    let nothing = Replay::default();
    let replay = balance.map_or(&nothing, |balance| &balance.windows);
    let windows = budget.bounds.iter().flat_map(|bounds| &bounds.windows);
    windows.filter_map(|window| Some((window.per, window.used, replay.disproves(window, known)?))).collect()
}
