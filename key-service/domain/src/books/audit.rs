//! Audit of an account: compares recorded figures with the sums of entries, holds and deposits.

mod bills;
mod day_counters;
mod figure;
mod owner;
mod replay;
mod stored;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use shared::{
    calendar::Per,
    ids::{GenerationId, GroupId, KeyId},
    money::NanoUsd,
    time::Timestamp,
};

pub use self::day_counters::DayCounters;
pub use self::figure::{Counter, DayPart, Figure, Quantity, SumOwner, Wrong};
pub use self::owner::BudgetOwner;
pub use self::stored::{Listing, Stored};
use self::{
    bills::Bills,
    replay::{KnownEntries, Replay, Since},
};
use crate::{
    books::usage::Day,
    ledger::{Account, Budget, Entry, Group, GroupChain, Payer, Settlement},
};

/// Adds up the books of an account. The caller passes every journal entry in order. Between the entries, the caller
/// passes each key and group, right after the last entry that the recorded balance includes. Finally, the caller passes
/// the account.
///
/// So the figures may come from different moments. Memory grows with keys and groups, not with the journal.
#[derive(Debug)]
pub struct Auditor {
    /// Whether the journal still has its first entries.
    complete: bool,
    /// Number of the first entry; `None` if the number of entries is not checked.
    first: Option<u64>,
    /// Number of the last entry whose amount was deducted from the account's credit.
    paid: u64,
    balances: HashMap<BudgetOwner, SumsOfEntries>,
    /// For each key and group, when the bounds of its windows were set, if that was within the recorded windows.
    bound_since: HashMap<BudgetOwner, Since>,
    begins_at: Option<Timestamp>,
    bills: Bills,
    entries: u64,
    /// Number of entries whose amounts were deducted from the account's credit.
    paid_entries: u64,
    /// How many keys and how many groups were passed so far.
    checked: (u64, u64),
    /// Sum of what all keys have used up to and including entry `paid`.
    used: i128,
    wrong: Vec<Wrong>,
}

/// The fields of a journal entry that an audit reads.
#[derive(Clone, Copy, Debug)]
pub struct AuditedEntry {
    pub number: u64,
    pub key: KeyId,
    pub groups: GroupChain,
    pub at: Timestamp,
    /// By how much the entry changes the billed amount.
    pub delta: NanoUsd,
    /// The key's balance after the entry.
    pub used_after: NanoUsd,
}

/// Sums of a key's or group's entries so far.
#[derive(Debug)]
struct SumsOfEntries {
    /// A key's balance after the last entry, or the sum of a group's entries.
    used: NanoUsd,
    /// The first entry of a complete journal, to be compared with the opening balance.
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
    /// Starts the audit of a journal. It is `complete` if no entries were dropped at its beginning.
    pub fn new(complete: bool) -> Self {
        Self {
            complete,
            first: None,
            paid: u64::MAX,
            balances: HashMap::new(),
            bound_since: HashMap::new(),
            begins_at: None,
            bills: Bills::new(complete),
            entries: 0,
            paid_entries: 0,
            checked: (0, 0),
            used: 0,
            wrong: Vec::new(),
        }
    }

    /// Sets the last entry that was deducted from the account's credit. Without this call, all entries count as
    /// deducted.
    #[must_use]
    pub fn paid(self, paid: u64) -> Self {
        Self { paid, ..self }
    }

    /// Passes the bounds of a key or group. This must happen before its entries are passed, because a window counts
    /// entries only from the time when its bound was set.
    pub fn bounds(&mut self, of: BudgetOwner, budget: &Budget) {
        self.bound_since.extend(replay::since(budget).map(|since| (of, since)));
    }

    pub fn entry(&mut self, entry: AuditedEntry) {
        self.entries += 1;
        self.begins_at.get_or_insert(entry.at);
        let is_paid = entry.number <= self.paid;
        self.paid_entries += u64::from(is_paid);
        let key = BudgetOwner::Key(entry.key);
        let known = self.balances.get(&key).map(|balance| (balance.used, balance.known));
        if let Some((before, _)) = known {
            self.follow(before, entry);
        }
        // The key's balance may have been read before or after the account's credit.
        match (known.is_some_and(|(_, known)| known), is_paid) {
            (true, true) => self.used += i128::from(entry.delta.nanos()),
            (false, false) => self.used -= i128::from(entry.delta.nanos()),
            (true, false) | (false, true) => {}
        }
        self.balance(key, entry).used = entry.used_after;
        for group in entry.groups.into_iter().flatten() {
            let balance = self.balance(BudgetOwner::Group(group), entry);
            balance.used = NanoUsd::from_nanos(balance.used.nanos().saturating_add(entry.delta.nanos()));
        }
    }

    /// Compares a generation's bill with its earlier entries.
    pub fn bill(&mut self, generation: GenerationId, entry: &Entry) {
        if let Some(proven) = self.bills.disproves(generation, entry) {
            self.compare(Figure::Bill(generation), entry.settlement.charged, proven);
        }
    }

    /// Compares a recorded figure of any other kind with the proven value.
    pub fn quantity(&mut self, figure: Figure, recorded: Quantity, proven: Quantity) {
        if recorded != proven {
            self.wrong.push(Wrong { figure, recorded, proven });
        }
    }

    /// Reports a record or index entry that is missing, or that differs from what other records imply.
    pub fn missing(&mut self, what: Stored) {
        self.count(Figure::Stored(what), 0, 1);
    }

    /// Reports a record or index entry that must not exist.
    pub fn unfounded(&mut self, what: Stored) {
        self.count(Figure::Stored(what), 1, 0);
    }

    /// Compares the recorded counters of a day with the sums of the entries.
    pub fn counters(&mut self, day: Day, of: &SumOwner, recorded: &DayCounters, proven: &DayCounters) {
        self.wrong.extend(day_counters::compare(day, of, recorded, proven));
    }

    /// Compares the amount charged on a day with the sum of the entries.
    pub fn sum(&mut self, day: Day, of: &SumOwner, recorded: NanoUsd, entries: i128) {
        self.compare(Figure::Sum(of.clone(), day), recorded, entries);
    }

    /// Compares the recorded requests in flight of a key or group with the number of its open holds that count as such.
    pub fn in_flight(&mut self, of: BudgetOwner, recorded: u64, holds: u64) {
        self.count(Figure::InFlight(of), recorded, holds);
    }

    /// Sets the number of the journal's first entry. The audit then checks that no entry is missing between that entry
    /// and the account's last entry.
    pub const fn begins(&mut self, first: u64) {
        self.first = Some(first);
    }

    /// Passes a key or a group, with its opening balance from an import and the sum of its open holds.
    pub fn budget(&mut self, of: BudgetOwner, budget: &Budget, opening: NanoUsd, holds: NanoUsd) {
        let proven = match of {
            BudgetOwner::Key(id) => {
                self.checked.0 += 1;
                self.open(id, opening);
                // If all entries of the key may have been dropped, its balance cannot be checked.
                let nothing = if self.complete { opening } else { budget.used };
                let proven = i128::from(self.proven(of, nothing).nanos());
                self.used += proven - i128::from(opening.nanos());
                proven
            }
            BudgetOwner::Group(_) => {
                self.checked.1 += 1;
                let entries = self.proven(of, NanoUsd::ZERO);
                let proven = i128::from(entries.nanos()) + i128::from(opening.nanos());
                if self.complete { proven } else { budget.used.nanos().into() }
            }
        };
        self.compare(Figure::Used(of), budget.used, proven);
        self.compare(Figure::BudgetHeld(of), budget.held, i128::from(holds.nanos()));
        let windows = wrong_windows(budget, self.balances.get(&of), self.known());
        for (per, recorded, proven) in windows {
            self.compare(Figure::Window(of, per), recorded, i128::from(proven.nanos()));
        }
    }

    /// Compares a group's wallet with the sum of the changes by its payments and refunds, and with the group's limit.
    pub fn wallet(&mut self, id: GroupId, group: &Group, changes: i128) {
        let paid = group.wallet.map_or(NanoUsd::ZERO, |wallet| wallet.paid);
        self.compare(Figure::Paid(id), paid, changes);
        if let Some(wallet) = group.wallet {
            // A wallet always has a limit, so a missing one counts as a limit that no wallet has.
            let limit = group.budget.limit.unwrap_or(NanoUsd::MAX);
            let proven = i128::from(wallet.opening.nanos()) + i128::from(paid.nanos());
            self.compare(Figure::WalletLimit(id), limit, proven);
        }
    }

    /// Lists the keys and groups that have entries but have not been passed yet.
    pub fn unknown(&self) -> impl Iterator<Item = BudgetOwner> {
        self.balances.iter().filter(|(_, balance)| !balance.known).map(|(of, _)| *of)
    }

    /// Passes the account, the sum of all open holds and the deposits. This ends the audit.
    pub fn account(
        mut self,
        account: Account,
        holds: NanoUsd,
        deposits: impl Iterator<Item = NanoUsd>,
    ) -> Audit {
        let mut unknown: Vec<_> = self.unknown().map(|of| (of, self.balances[&of].used)).collect();
        unknown.sort_unstable_by_key(|(of, _)| *of);
        for (of, used) in unknown {
            if let BudgetOwner::Key(id) = of {
                self.open(id, NanoUsd::ZERO);
                self.used += i128::from(used.nanos());
            }
            self.compare(Figure::Used(of), NanoUsd::ZERO, i128::from(used.nanos()));
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

    const fn known(&self) -> KnownEntries {
        KnownEntries { complete: self.complete, begins_at: self.begins_at }
    }

    /// Checks that the first entry of a key starts from the opening balance.
    fn open(&mut self, id: KeyId, opening: NanoUsd) {
        let first = self.balances.get_mut(&BudgetOwner::Key(id)).and_then(|balance| balance.first.take());
        if let Some(first) = first.filter(|_| self.complete) {
            self.follow(opening, first);
        }
    }

    /// Checks that the balance after an entry is the balance before it plus the entry's change.
    fn follow(&mut self, before: NanoUsd, entry: AuditedEntry) {
        let proven = i128::from(before.nanos()) + i128::from(entry.delta.nanos());
        self.compare(Figure::Entry(entry.key, entry.number), entry.used_after, proven);
    }

    /// Adds an entry to the windows of a key or a group. Returns the sums of the key or group.
    fn balance(&mut self, of: BudgetOwner, entry: AuditedEntry) -> &mut SumsOfEntries {
        let balance = self.balances.entry(of).or_insert_with(|| {
            let windows = Replay::new(self.bound_since.get(&of).copied().unwrap_or_default());
            SumsOfEntries { used: NanoUsd::ZERO, first: Some(entry), windows, known: false }
        });
        balance.windows.add(entry.at, entry.delta);
        balance
    }

    /// Marks a key or a group as existing in the store. Returns the amount that its entries prove, or `nothing` if it
    /// has no entries.
    fn proven(&mut self, of: BudgetOwner, nothing: NanoUsd) -> NanoUsd {
        let new = || SumsOfEntries { used: nothing, first: None, windows: Replay::default(), known: false };
        let balance = self.balances.entry(of).or_insert_with(new);
        balance.known = true;
        balance.used
    }

    fn compare(&mut self, figure: Figure, recorded: NanoUsd, proven: i128) {
        if i128::from(recorded.nanos()) != proven {
            // A sum beyond the range of amounts is reported as the nearest amount; it is wrong in any case.
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

/// Finds the windows that contradict the entries, each with its recorded and proven spend.
fn wrong_windows(
    budget: &Budget,
    balance: Option<&SumsOfEntries>,
    known: KnownEntries,
) -> Vec<(Per, NanoUsd, NanoUsd)> {
    let nothing = Replay::default();
    let replay = balance.map_or(&nothing, |balance| &balance.windows);
    let windows = budget.bounds.iter().flat_map(|bounds| &bounds.windows);
    windows.filter_map(|window| Some((window.per, window.used, replay.disproves(window, known)?))).collect()
}
