//! Whether the books of an account add up: what is recorded against what entries, holds and deposits prove.

use std::collections::HashMap;

use shared::{ids::KeyId, money::NanoUsd};

use super::ledger::{Account, Key};

/// Adds up the books of one account. A store feeds it every entry of the journal, then every key, then the account.
///
/// What is compared must be of one moment: a key's figures with the charges that were fed until then. It keeps a sum per
/// key, however long the journal is.
#[derive(Debug, Default)]
pub struct Auditor {
    charges: HashMap<KeyId, Charges>,
    charged: i128,
    entries: u64,
    keys: u64,
    wrong: Vec<Wrong>,
}

/// What the journal says that a key was charged.
#[derive(Debug, Default)]
struct Charges {
    sum: i128,
    /// Whether the key itself was seen.
    known: bool,
}

/// What an audit found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Entries of the journal that were read one by one.
    pub entries: u64,
    /// Keys that were checked.
    pub keys: u64,
    /// Where the books do not add up; empty where they do.
    pub wrong: Vec<Wrong>,
}

/// A figure that is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Which figure.
    pub figure: Figure,
    /// What is recorded.
    pub recorded: NanoUsd,
    /// What the entries, holds and deposits add up to.
    pub proven: NanoUsd,
}

/// A figure that can be proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// A key's `used`: the sum of its charges in the journal. Zero is recorded for a key that does not exist.
    Used(KeyId),
    /// A key's `held`: the sum of its open holds.
    KeyHeld(KeyId),
    /// The account's `held`: the sum of all open holds.
    Held,
    /// The account's credit: its deposits less all charges.
    Credit,
}

impl Figure {
    /// The figure's name, as reports have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Used(_) => "used",
            Self::KeyHeld(_) | Self::Held => "held",
            Self::Credit => "credit",
        }
    }

    /// Whose it is; `None` where it is the account's.
    pub const fn key(self) -> Option<KeyId> {
        match self {
            Self::Used(key) | Self::KeyHeld(key) => Some(key),
            Self::Held | Self::Credit => None,
        }
    }
}

impl Auditor {
    /// An entry of the journal.
    pub fn entry(&mut self, key: KeyId, charged: NanoUsd) {
        self.entries += 1;
        self.archived(key, charged);
    }

    /// The sum of entries that the journal no longer has.
    pub fn archived(&mut self, key: KeyId, charged: NanoUsd) {
        let charged = i128::from(charged.nanos());
        self.charges.entry(key).or_default().sum += charged;
        self.charged += charged;
    }

    /// A key, and the sum of its open holds.
    pub fn key(&mut self, id: KeyId, key: &Key, holds: NanoUsd) {
        let charges = self.charges.entry(id).or_default();
        charges.known = true;
        let proven = charges.sum;
        self.keys += 1;
        self.compare(Figure::Used(id), key.used, proven);
        self.compare(Figure::KeyHeld(id), key.held, i128::from(holds.nanos()));
    }

    /// Keys that were charged, and that nobody has seen so far.
    pub fn unknown(&self) -> impl Iterator<Item = KeyId> {
        self.charges.iter().filter(|(_, charges)| !charges.known).map(|(id, _)| *id)
    }

    /// The account, the sum of its open holds, and its deposits: the end.
    pub fn account(
        mut self,
        account: Account,
        holds: NanoUsd,
        deposits: impl Iterator<Item = NanoUsd>,
    ) -> Audit {
        let unknown: Vec<_> = self.unknown().map(|id| (id, self.charges[&id].sum)).collect();
        for (id, charged) in unknown {
            self.compare(Figure::Used(id), NanoUsd::ZERO, charged);
        }
        self.compare(Figure::Held, account.held, i128::from(holds.nanos()));
        let deposited: i128 = deposits.map(|amount| i128::from(amount.nanos())).sum();
        self.compare(Figure::Credit, account.credit, deposited - self.charged);
        Audit { entries: self.entries, keys: self.keys, wrong: self.wrong }
    }

    fn compare(&mut self, figure: Figure, recorded: NanoUsd, proven: i128) {
        if i128::from(recorded.nanos()) != proven {
            // What no amount can say is said as the nearest one: it is wrong all the same.
            let bounds = (i128::from(i64::MIN), i128::from(i64::MAX));
            let proven = i64::try_from(proven.clamp(bounds.0, bounds.1)).unwrap_or(i64::MAX);
            self.wrong.push(Wrong { figure, recorded, proven: NanoUsd::from_nanos(proven) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ledger::script::key;

    fn nanos(n: i64) -> NanoUsd {
        NanoUsd::from_nanos(n)
    }

    fn spent(used: i64, held: i64) -> Key {
        Key { used: nanos(used), held: nanos(held), ..Key::default() }
    }

    /// Two keys that were charged 5 + 2 and 3, of a deposit of 100; the first holds 9.
    fn audit(first: &Key, second: &Key, account: Account) -> Audit {
        let mut auditor = Auditor::default();
        auditor.archived(key(1), nanos(5));
        auditor.entry(key(2), nanos(3));
        auditor.entry(key(1), nanos(2));
        auditor.key(key(1), first, nanos(9));
        auditor.key(key(2), second, nanos(0));
        auditor.account(account, nanos(9), [nanos(60), nanos(40)].into_iter())
    }

    const SOUND: Account = Account { credit: NanoUsd::from_nanos(90), held: NanoUsd::from_nanos(9) };

    #[test]
    fn books_that_add_up_are_sound() {
        let sound = Audit { entries: 2, keys: 2, wrong: Vec::new() };
        assert_eq!(audit(&spent(7, 9), &spent(3, 0), SOUND), sound);
    }

    #[test]
    fn what_is_wrong_is_named_with_what_it_should_be() {
        let wrong =
            |figure, recorded, proven| Wrong { figure, recorded: nanos(recorded), proven: nanos(proven) };
        let found = audit(&spent(8, 9), &spent(3, 1), SOUND).wrong;
        assert_eq!(found, [wrong(Figure::Used(key(1)), 8, 7), wrong(Figure::KeyHeld(key(2)), 1, 0)]);
        let account = Account { credit: nanos(91), held: nanos(0) };
        let found = audit(&spent(7, 9), &spent(3, 0), account).wrong;
        assert_eq!(found, [wrong(Figure::Held, 0, 9), wrong(Figure::Credit, 91, 90)]);
    }

    #[test]
    fn charges_of_a_key_that_is_not_there_are_found() {
        let mut auditor = Auditor::default();
        auditor.entry(key(1), nanos(4));
        assert_eq!(auditor.unknown().collect::<Vec<_>>(), [key(1)]);
        let account = Account { credit: nanos(6), held: nanos(0) };
        let found = auditor.account(account, nanos(0), [nanos(10)].into_iter()).wrong;
        assert_eq!(found, [Wrong { figure: Figure::Used(key(1)), recorded: nanos(0), proven: nanos(4) }]);
    }
}
