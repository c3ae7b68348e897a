//! Reads the balances of keys and groups, together with the holds that are open at that moment.

use std::collections::HashMap;

use domain::{
    audit::{Auditor, BudgetOwner},
    ledger::{Budget, Group, Key},
};
use key_service_ledger::{
    StoreError,
    names::{self, DueMoney, nouns as layout},
    reading::{no_answer, value},
    stored::{Balance, GroupProfile, KeyProfile},
};
use records::{Answer, Index, Order, Question, Record, Space};
use shared::{
    ids::{GroupId, KeyId},
    money::NanoUsd,
};

use crate::{
    bounds::AT_ONCE,
    indexes::ExpectedEntries,
    numbers::LastNumbers,
    reading::{Books, damaged},
};

/// The recorded balance of a key or a group, and the figures that an audit compares it with.
pub(super) struct Balanced {
    /// Number of the last journal entry that the balance includes.
    pub(super) last_entry: u64,
    of: BudgetOwner,
    budget: Budget,
    /// Amount that an imported key had spent before the import. `used` started from this amount.
    opening: NanoUsd,
    holds: Held,
}

/// Sums of the open holds of a key or a group.
#[derive(Clone, Copy, Default)]
struct Held {
    nanos: i64,
    /// Number of holds that count as requests in flight.
    in_flight: u64,
}

/// Sums of an account's open holds, in total and for each key and group.
#[derive(Default)]
pub(super) struct Holds {
    nanos: i64,
    of: HashMap<BudgetOwner, Held>,
}

impl Holds {
    /// Sums the entries of the index of open holds. Unreadable entries are skipped.
    pub(super) fn read(due: &[Vec<u8>]) -> Self {
        let mut holds = Self::default();
        for DueMoney { key, groups: [group, parent], amount, levels } in
            due.iter().filter_map(|entry| DueMoney::read(entry))
        {
            holds.nanos = holds.nanos.saturating_add(amount.nanos());
            let payers =
                [Some(BudgetOwner::Key(key)), group.map(BudgetOwner::Group), parent.map(BudgetOwner::Group)];
            for (payer, counts) in payers.into_iter().zip(levels) {
                let Some(payer) = payer else { continue };
                let held = holds.of.entry(payer).or_default();
                held.nanos = held.nanos.saturating_add(amount.nanos());
                held.in_flight += u64::from(counts);
            }
        }
        holds
    }

    pub(super) const fn all(&self) -> NanoUsd {
        NanoUsd::from_nanos(self.nanos)
    }

    fn of(&self, payer: BudgetOwner) -> Held {
        self.of.get(&payer).copied().unwrap_or_default()
    }
}

impl Balanced {
    fn read(
        of: BudgetOwner,
        money: &Record,
        profile: Option<&Record>,
        holds: &Holds,
    ) -> Result<Self, StoreError> {
        let (budget, last_entry, opening) = match of {
            BudgetOwner::Key(_) => {
                let read: Balance<Key> = value(money)?;
                let profile = profile.map(value::<KeyProfile>).transpose()?;
                (read.of.budget, read.last_entry, profile.map(|profile| profile.opening))
            }
            BudgetOwner::Group(_) => {
                let read: Balance<Group> = value(money)?;
                let profile = profile.map(value::<GroupProfile>).transpose()?;
                (read.of.budget, read.last_entry, profile.map(|profile| profile.opening))
            }
        };
        Ok(Self { last_entry, of, budget, opening: opening.unwrap_or(NanoUsd::ZERO), holds: holds.of(of) })
    }

    /// Passes the limits of the key or group to an audit. This must happen before the audit gets its first entry.
    pub(super) fn tell_bounds(&self, auditor: &mut Auditor) {
        auditor.bounds(self.of, &self.budget);
    }

    /// Passes the balance to an audit. Call this when the audit has got exactly the entries that the balance includes.
    pub(super) fn add_to(self, auditor: &mut Auditor, numbers: &LastNumbers) {
        let Self { of, budget, opening, holds: Held { nanos, in_flight }, last_entry } = self;
        numbers.last(auditor, of, last_entry);
        auditor.budget(of, &budget, opening, NanoUsd::from_nanos(nanos));
        auditor.in_flight(of, budget.bounds.map_or(0, |bounds| bounds.in_flight), in_flight);
    }
}

impl Books<'_> {
    /// Reads the balances of all groups and keys, page by page. Each page is read at one moment.
    pub(super) async fn all_balances(
        &self,
        space: &Space,
        expected: &mut ExpectedEntries,
    ) -> Result<Vec<Balanced>, StoreError> {
        let group = |id: &[u8; 16]| GroupId::from_slice(id).map(BudgetOwner::Group);
        let key = |id: &[u8; 16]| KeyId::from_slice(id).map(BudgetOwner::Key);
        let mut balances = self.listed_balances(space, layout::GROUPS, group, expected).await?;
        balances.extend(self.listed_balances(space, layout::KEYS, key, expected).await?);
        Ok(balances)
    }

    async fn listed_balances(
        &self,
        space: &Space,
        index: Index,
        owner: fn(&[u8; 16]) -> Option<BudgetOwner>,
        expected: &mut ExpectedEntries,
    ) -> Result<Vec<Balanced>, StoreError> {
        let (mut balances, mut after) = (Vec::new(), None);
        while let Some(ids) = self.ids_behind(space, index, after).await? {
            after = ids.last().copied();
            let owners: Vec<_> = ids.iter().filter_map(owner).collect();
            balances.extend(self.balances_of(space, &owners, Some(expected)).await?);
        }
        Ok(balances)
    }

    /// Lists the next page of an index: the ids after the given id. `None` if there are no more.
    pub(super) async fn ids_behind(
        &self,
        space: &Space,
        index: Index,
        after: Option<[u8; 16]>,
    ) -> Result<Option<Vec<[u8; 16]>>, StoreError> {
        let from = match after {
            None => Vec::new(),
            Some(after) => match layout::behind(&after) {
                None => return Ok(None),
                Some(from) => from,
            },
        };
        let entries = self.read().entries(space, index, (from, None), Order::Ascending, AT_ONCE).await?;
        let id = |entry: &Vec<u8>| entry.first_chunk().copied().ok_or_else(|| damaged("an index of keys"));
        let mut ids = entries.iter().map(id).collect::<Result<Vec<_>, _>>()?;
        // An index entry moves when its key's label changes, so an id may be read twice.
        ids.dedup();
        Ok(Some(ids).filter(|ids| !ids.is_empty()))
    }

    /// Reads the balances of those keys or groups that exist. Adds to `expected` the index entries that each of them
    /// must have.
    pub(super) async fn balances_of(
        &self,
        space: &Space,
        owners: &[BudgetOwner],
        mut expected: Option<&mut ExpectedEntries>,
    ) -> Result<Vec<Balanced>, StoreError> {
        let money = owners.iter().map(|of| match of {
            BudgetOwner::Key(id) => names::key(*id).into(),
            BudgetOwner::Group(id) => names::group(*id).into(),
        });
        let profiles = owners.iter().map(|of| match of {
            BudgetOwner::Key(id) => layout::key_profile(*id).into(),
            BudgetOwner::Group(id) => layout::group_profile(*id).into(),
        });
        let questions = vec![
            Question::Records(money.collect()),
            Question::Records(profiles.collect()),
            Question::whole(names::DUE),
        ];
        let answers: [Answer; 3] =
            self.read().ask(space, questions).await?.try_into().map_err(|_| no_answer())?;
        let [Answer::Records(money), Answer::Records(profiles), Answer::Entries(due)] = answers else {
            return Err(no_answer());
        };
        let holds = Holds::read(&due);
        let found = owners.iter().zip(money.iter().zip(&profiles));
        if let Some(expected) = &mut expected {
            for (of, (money, profile)) in found.clone() {
                expected.add(*of, money.as_ref(), profile.as_ref())?;
            }
        }
        let found = found.filter_map(|(of, (money, profile))| Some((*of, money.as_ref()?, profile.as_ref())));
        found.map(|(of, money, profile)| Balanced::read(of, money, profile, &holds)).collect()
    }
}
