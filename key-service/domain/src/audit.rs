//! Audit of an account: compares recorded figures with the sums of entries, holds and deposits.

mod replay;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, hash::Hash};

use shared::{
    calendar::Per,
    ids::{GroupId, KeyId},
    money::NanoUsd,
    time::Timestamp,
};

use self::replay::Replay;
use super::ledger::{Account, Budget, Entry, Group, GroupChain, Key, Payer, Settlement};

/// Adds up the books of an account: takes every entry of the journal in the order of numbers, then every key and group,
/// then the account.
///
/// Compared figures must be of one moment: a key's or a group's, with the entries passed in until then. Memory is the
/// balances of each key and group, however long the journal is.
#[derive(Debug)]
pub struct Auditor {
    /// True if the journal still has the first entries.
    complete: bool,
    keys: HashMap<KeyId, Balance>,
    groups: HashMap<GroupId, Balance>,
    entries: u64,
    /// Keys and groups that were passed in.
    checked: (u64, u64),
    used: i128,
    wrong: Vec<Wrong>,
}

/// Fields of a journal entry that audits read.
#[derive(Clone, Copy, Debug)]
pub struct AuditedEntry {
    /// Number of the entry.
    pub number: u64,
    /// The key that paid.
    pub key: KeyId,
    /// The groups that paid along.
    pub groups: GroupChain,
    /// Time of the bill.
    pub at: Timestamp,
    /// Change of the amount billed.
    pub delta: NanoUsd,
    /// The key's balance after the entry.
    pub used_after: NanoUsd,
}

/// Sums of the entries so far of a key or a group.
#[derive(Debug)]
struct Balance {
    /// A key's balance after the last entry, or the sum of a group's entries.
    used: NanoUsd,
    /// The first entry of a complete journal, which the opening balance proves.
    first: Option<AuditedEntry>,
    windows: Replay,
    /// The key or group itself has been passed in.
    known: bool,
}

/// Findings of an audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Entries of the journal that were read.
    pub entries: u64,
    /// Keys that were checked.
    pub keys: u64,
    /// Groups that were checked.
    pub groups: u64,
    /// Figures that do not add up; empty where all do.
    pub wrong: Vec<Wrong>,
}

/// A recorded figure that differs from the proven value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The figure.
    pub figure: Figure,
    /// Recorded value.
    pub recorded: NanoUsd,
    /// The value that entries, holds and deposits add up to.
    pub proven: NanoUsd,
}

/// A figure that can be proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// The balance of a key after the entry of this number: the balance before and the entry's change.
    Entry(KeyId, u64),
    /// A key's `used`: the balance after the last entry. A key that does not exist has a recorded zero.
    Used(KeyId),
    /// A key's `held`: the sum of open holds.
    KeyHeld(KeyId),
    /// The spend in a window of a key: the sum of the entries in the window, as far as entries can tell.
    Window(KeyId, Per),
    /// A group's `used`: the sum of its entries. A group that does not exist has a recorded zero.
    GroupUsed(GroupId),
    /// A group's `held`: the sum of open holds.
    GroupHeld(GroupId),
    /// The spend in a window of a group: the sum of the entries in the window, as far as entries can tell.
    GroupWindow(GroupId, Per),
    /// The account's `held`: the sum of all open holds.
    Held,
    /// The account's credit: deposits less the `used` of all keys.
    Credit,
}

impl AuditedEntry {
    /// The entry under this number.
    pub const fn of(number: u64, entry: &Entry) -> Self {
        let Entry { settlement: Settlement { payer, at, .. }, delta, used_after } = entry;
        let Payer { key, groups, .. } = payer;
        Self { number, key: *key, groups: *groups, at: *at, delta: *delta, used_after: *used_after }
    }
}

impl Figure {
    /// Name of the figure in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Entry(..) => "used_after",
            Self::Used(_) | Self::GroupUsed(_) => "used",
            Self::KeyHeld(_) | Self::GroupHeld(_) | Self::Held => "held",
            Self::Window(_, per) | Self::GroupWindow(_, per) => match per {
                Per::Hour => "used_in_hour",
                Per::Day => "used_in_day",
                Per::Week => "used_in_week",
                Per::Month => "used_in_month",
            },
            Self::Credit => "credit",
        }
    }

    /// The key that the figure belongs to; `None` for a figure of a group or of the account.
    pub const fn key(self) -> Option<KeyId> {
        match self {
            Self::Entry(key, _) | Self::Used(key) | Self::KeyHeld(key) | Self::Window(key, _) => Some(key),
            Self::GroupUsed(_) | Self::GroupHeld(_) | Self::GroupWindow(..) | Self::Held | Self::Credit => {
                None
            }
        }
    }

    /// The group that the figure belongs to; `None` for a figure of a key or of the account.
    pub const fn group(self) -> Option<GroupId> {
        match self {
            Self::GroupUsed(group) | Self::GroupHeld(group) | Self::GroupWindow(group, _) => Some(group),
            Self::Entry(..)
            | Self::Used(_)
            | Self::KeyHeld(_)
            | Self::Window(..)
            | Self::Held
            | Self::Credit => None,
        }
    }
}

impl Auditor {
    /// Starts an audit of a journal, which is `complete` if no entries were dropped at the beginning.
    pub fn new(complete: bool) -> Self {
        let (keys, groups) = (HashMap::new(), HashMap::new());
        Self { complete, keys, groups, entries: 0, checked: (0, 0), used: 0, wrong: Vec::new() }
    }

    /// Adds an entry of the journal.
    pub fn entry(&mut self, entry: AuditedEntry) {
        self.entries += 1;
        if let Some(before) = self.keys.get(&entry.key).map(|balance| balance.used) {
            self.follow(before, entry);
        }
        balance(&mut self.keys, entry.key, entry).used = entry.used_after;
        for group in entry.groups.into_iter().flatten() {
            let balance = balance(&mut self.groups, group, entry);
            balance.used = NanoUsd::from_nanos(balance.used.nanos().saturating_add(entry.delta.nanos()));
        }
    }

    /// Adds a key, the key's opening balance, which an import brought, and the sum of the key's open holds.
    pub fn key(&mut self, id: KeyId, key: &Key, opening: NanoUsd, holds: NanoUsd) {
        self.checked.0 += 1;
        self.open(id, opening);
        // Where all entries of the key may have been dropped, nothing is proven.
        let nothing = if self.complete { opening } else { key.budget.used };
        let proven = proven(&mut self.keys, &id).unwrap_or(nothing);
        self.used += i128::from(proven.nanos()) - i128::from(opening.nanos());
        self.compare(Figure::Used(id), key.budget.used, i128::from(proven.nanos()));
        self.compare(Figure::KeyHeld(id), key.budget.held, i128::from(holds.nanos()));
        let windows = wrong_windows(&key.budget, self.keys.get(&id), self.complete);
        self.windows(windows, |per| Figure::Window(id, per));
    }

    /// Adds a group, the group's opening balance, and the sum of the group's open holds.
    pub fn group(&mut self, id: GroupId, group: &Group, opening: NanoUsd, holds: NanoUsd) {
        self.checked.1 += 1;
        let entries = proven(&mut self.groups, &id).unwrap_or(NanoUsd::ZERO);
        let proven = i128::from(entries.nanos()) + i128::from(opening.nanos());
        let recorded = group.budget.used;
        self.compare(
            Figure::GroupUsed(id),
            recorded,
            if self.complete { proven } else { recorded.nanos().into() },
        );
        self.compare(Figure::GroupHeld(id), group.budget.held, i128::from(holds.nanos()));
        let windows = wrong_windows(&group.budget, self.groups.get(&id), self.complete);
        self.windows(windows, |per| Figure::GroupWindow(id, per));
    }

    /// Keys that have entries but have not been passed in so far.
    pub fn unknown(&self) -> impl Iterator<Item = KeyId> {
        self.keys.iter().filter(|(_, balance)| !balance.known).map(|(id, _)| *id)
    }

    /// Groups that have entries but have not been passed in so far.
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
        self.compare(Figure::Held, account.held, i128::from(holds.nanos()));
        let deposited: i128 = deposits.map(|amount| i128::from(amount.nanos())).sum();
        self.compare(Figure::Credit, account.credit, deposited - self.used);
        let (keys, groups) = self.checked;
        Audit { entries: self.entries, keys, groups, wrong: self.wrong }
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
            // A sum beyond every amount is reported as the nearest amount, and is wrong in any case.
            let bounds = (i128::from(i64::MIN), i128::from(i64::MAX));
            let proven = i64::try_from(proven.clamp(bounds.0, bounds.1)).unwrap_or(i64::MAX);
            self.wrong.push(Wrong { figure, recorded, proven: NanoUsd::from_nanos(proven) });
        }
    }
}

/// Adds an entry to the windows of a key or a group, and returns the balance.
fn balance<Id: Eq + Hash>(balances: &mut HashMap<Id, Balance>, id: Id, entry: AuditedEntry) -> &mut Balance {
    let new = || Balance { used: NanoUsd::ZERO, first: Some(entry), windows: Replay::new(), known: false };
    let balance = balances.entry(id).or_insert_with(new);
    balance.known = false;
    balance.windows.add(entry.at, entry.delta);
    balance
}

/// Marks a key or a group as known, and returns the amount that entries prove; `None` where there are no entries.
fn proven<Id: Eq + Hash>(balances: &mut HashMap<Id, Balance>, id: &Id) -> Option<NanoUsd> {
    let balance = balances.get_mut(id)?;
    balance.known = true;
    Some(balance.used)
}

/// The windows that entries disprove: recorded and proven spend of each.
fn wrong_windows(budget: &Budget, balance: Option<&Balance>, complete: bool) -> Vec<(Per, NanoUsd, NanoUsd)> {
    let nothing = Replay::new();
    let replay = balance.map_or(&nothing, |balance| &balance.windows);
    let windows = budget.bounds.iter().flat_map(|bounds| &bounds.windows);
    windows
        .filter_map(|window| Some((window.per, window.used, replay.disproves(window, complete)?)))
        .collect()
}
