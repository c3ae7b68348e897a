//! Audit of an account: compares recorded figures with the sums of entries, holds and deposits.

use std::collections::HashMap;

use shared::{ids::KeyId, money::NanoUsd};

use super::ledger::{Account, Key};

/// Adds up the books of an account: takes every entry of the journal in the order of numbers, then every key, then
/// the account.
///
/// Compared figures must be of one moment: a key's, with the entries passed in until then. Memory is a balance per
/// key, however long the journal is.
#[derive(Debug)]
pub struct Auditor {
    /// True if the journal still has the first entries.
    complete: bool,
    balances: HashMap<KeyId, Balance>,
    entries: u64,
    keys: u64,
    used: i128,
    wrong: Vec<Wrong>,
}

/// The running balance of a key after the last entry so far.
#[derive(Debug)]
struct Balance {
    used: NanoUsd,
    /// The key itself has been passed in.
    known: bool,
}

/// Findings of an audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Entries of the journal that were read.
    pub entries: u64,
    /// Keys that were checked.
    pub keys: u64,
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
    /// The account's `held`: the sum of all open holds.
    Held,
    /// The account's credit: deposits less the `used` of all keys.
    Credit,
}

impl Figure {
    /// Name of the figure in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Entry(..) => "used_after",
            Self::Used(_) => "used",
            Self::KeyHeld(_) | Self::Held => "held",
            Self::Credit => "credit",
        }
    }

    /// The key that the figure belongs to; `None` for a figure of the account.
    pub const fn key(self) -> Option<KeyId> {
        match self {
            Self::Entry(key, _) | Self::Used(key) | Self::KeyHeld(key) => Some(key),
            Self::Held | Self::Credit => None,
        }
    }
}

impl Auditor {
    /// Starts an audit of a journal, which is `complete` if no entries were dropped at the beginning.
    pub fn new(complete: bool) -> Self {
        Self { complete, balances: HashMap::new(), entries: 0, keys: 0, used: 0, wrong: Vec::new() }
    }

    /// Adds an entry of the journal: number, key, change, and the key's balance after the entry.
    pub fn entry(&mut self, number: u64, key: KeyId, delta: NanoUsd, used_after: NanoUsd) {
        self.entries += 1;
        let before = self.balances.insert(key, Balance { used: used_after, known: false });
        let before = before.map(|balance| balance.used).or(self.complete.then_some(NanoUsd::ZERO));
        if let Some(before) = before {
            let proven = i128::from(before.nanos()) + i128::from(delta.nanos());
            self.compare(Figure::Entry(key, number), used_after, proven);
        }
    }

    /// Adds a key and the sum of the key's open holds.
    pub fn key(&mut self, id: KeyId, key: &Key, holds: NanoUsd) {
        self.keys += 1;
        let proven = match self.balances.get_mut(&id) {
            Some(balance) => {
                balance.known = true;
                balance.used
            }
            None if self.complete => NanoUsd::ZERO,
            // All entries of the key were dropped.
            None => key.budget.used,
        };
        self.used += i128::from(proven.nanos());
        self.compare(Figure::Used(id), key.budget.used, i128::from(proven.nanos()));
        self.compare(Figure::KeyHeld(id), key.budget.held, i128::from(holds.nanos()));
    }

    /// Keys that have entries but have not been passed in so far.
    pub fn unknown(&self) -> impl Iterator<Item = KeyId> {
        self.balances.iter().filter(|(_, balance)| !balance.known).map(|(id, _)| *id)
    }

    /// Ends the audit with the account, the sum of all open holds, and the deposits.
    pub fn account(
        mut self,
        account: Account,
        holds: NanoUsd,
        deposits: impl Iterator<Item = NanoUsd>,
    ) -> Audit {
        let unknown: Vec<_> = self.unknown().map(|id| (id, self.balances[&id].used)).collect();
        for (id, used) in unknown {
            self.used += i128::from(used.nanos());
            self.compare(Figure::Used(id), NanoUsd::ZERO, i128::from(used.nanos()));
        }
        self.compare(Figure::Held, account.held, i128::from(holds.nanos()));
        let deposited: i128 = deposits.map(|amount| i128::from(amount.nanos())).sum();
        self.compare(Figure::Credit, account.credit, deposited - self.used);
        Audit { entries: self.entries, keys: self.keys, wrong: self.wrong }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Budget, histories::key};

    fn nanos(n: i64) -> NanoUsd {
        NanoUsd::from_nanos(n)
    }

    fn spent(used: i64, held: i64) -> Key {
        let budget = Budget { used: nanos(used), held: nanos(held), ..Budget::default() };
        Key { budget, ..Key::default() }
    }

    /// Two keys of an account with deposits of 100: one was charged 5 and 2 and holds 9, the other 8, of which 5 came back.
    fn audit(first: &Key, second: &Key, account: Account) -> Audit {
        let mut auditor = Auditor::new(true);
        for (number, id, delta, used_after) in [(1, 1, 5, 5), (2, 2, 8, 8), (3, 1, 2, 7), (4, 2, -5, 3)] {
            auditor.entry(number, key(id), nanos(delta), nanos(used_after));
        }
        auditor.key(key(1), first, nanos(9));
        auditor.key(key(2), second, nanos(0));
        auditor.account(account, nanos(9), [nanos(60), nanos(40)].into_iter())
    }

    const SOUND: Account = Account { credit: NanoUsd::from_nanos(90), held: NanoUsd::from_nanos(9), tick: 4 };

    fn wrong(figure: Figure, recorded: i64, proven: i64) -> Wrong {
        Wrong { figure, recorded: nanos(recorded), proven: nanos(proven) }
    }

    #[test]
    fn books_that_add_up_are_sound() {
        let sound = Audit { entries: 4, keys: 2, wrong: Vec::new() };
        assert_eq!(audit(&spent(7, 9), &spent(3, 0), SOUND), sound);
    }

    #[test]
    fn a_wrong_figure_is_named_with_its_proven_value() {
        let found = audit(&spent(8, 9), &spent(3, 1), SOUND).wrong;
        assert_eq!(found, [wrong(Figure::Used(key(1)), 8, 7), wrong(Figure::KeyHeld(key(2)), 1, 0)]);
        let account = Account { credit: nanos(91), held: nanos(0), tick: 4 };
        let found = audit(&spent(7, 9), &spent(3, 0), account).wrong;
        assert_eq!(found, [wrong(Figure::Held, 0, 9), wrong(Figure::Credit, 91, 90)]);
    }

    #[test]
    fn a_missing_entry_breaks_the_chain_of_balances() {
        let mut auditor = Auditor::new(true);
        auditor.entry(1, key(1), nanos(5), nanos(5));
        auditor.entry(3, key(1), nanos(2), nanos(10));
        auditor.key(key(1), &spent(10, 0), nanos(0));
        let account = Account { credit: nanos(90), ..Account::default() };
        let found = auditor.account(account, nanos(0), [nanos(100)].into_iter()).wrong;
        assert_eq!(found, [wrong(Figure::Entry(key(1), 3), 10, 7)]);
    }

    #[test]
    fn a_journal_without_its_beginning_proves_the_rest() {
        let books = |complete| {
            let mut auditor = Auditor::new(complete);
            auditor.entry(8, key(1), nanos(5), nanos(25));
            auditor.key(key(1), &spent(25, 0), nanos(0));
            auditor.key(key(2), &spent(30, 0), nanos(0));
            let account = Account { credit: nanos(45), ..Account::default() };
            auditor.account(account, nanos(0), [nanos(100)].into_iter()).wrong
        };
        assert_eq!(books(false), []);
        let unproven = [
            wrong(Figure::Entry(key(1), 8), 25, 5),
            wrong(Figure::Used(key(2)), 30, 0),
            wrong(Figure::Credit, 45, 75),
        ];
        assert_eq!(books(true), unproven);
    }

    #[test]
    fn entries_of_a_key_that_does_not_exist_are_found() {
        let mut auditor = Auditor::new(true);
        auditor.entry(1, key(1), nanos(4), nanos(4));
        assert_eq!(auditor.unknown().collect::<Vec<_>>(), [key(1)]);
        let account = Account { credit: nanos(6), ..Account::default() };
        let found = auditor.account(account, nanos(0), [nanos(10)].into_iter()).wrong;
        assert_eq!(found, [wrong(Figure::Used(key(1)), 0, 4)]);
    }
}
