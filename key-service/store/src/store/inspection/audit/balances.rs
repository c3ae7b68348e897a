//! Balances of keys and groups, with the open holds of the same moment.

use std::collections::HashMap;

use domain::{
    audit::{Auditor, EntriesOf, Figure},
    ledger::{Budget, Group, Key},
};
use key_service_ledger::{
    StoreError, codec, messages,
    names::{self, DueMoney},
};
use records::{Answer, Index, Order, Question, Record, Space};
use shared::{
    ids::{GroupId, KeyId},
    money::NanoUsd,
};

use crate::store::{
    base::{Store, message, no_answer},
    books::{AT_ONCE, damaged},
    inspection::audit::{bounds::ALL, numbers::LastNumbers},
    layout,
};

/// A balance, with what it is compared with.
pub(super) struct Balanced {
    /// Number of the last entry that the balance counts.
    pub(super) last_entry: u64,
    of: BalanceOwner,
    /// Amount that was spent before an import, with which `used` began.
    opening: NanoUsd,
    holds: Held,
}

enum BalanceOwner {
    Key(KeyId, Key),
    Group(GroupId, Group),
}

/// Keys or groups of a page.
#[derive(Clone, Copy)]
pub(super) enum Ids<'a> {
    Keys(&'a [KeyId]),
    Groups(&'a [GroupId]),
}

/// Open holds of a key or a group.
#[derive(Clone, Copy, Default)]
struct Held {
    nanos: i64,
    /// Holds that count as requests in flight.
    in_flight: u64,
}

/// Open holds of an account.
#[derive(Default)]
pub(super) struct Holds {
    nanos: i64,
    of: HashMap<HoldPayer, Held>,
}

/// A key or a group that pays for a hold.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum HoldPayer {
    Key(KeyId),
    Group(GroupId),
}

impl Holds {
    /// Adds up entries of the index of open holds. An entry that cannot be read proves nothing, and is skipped.
    pub(super) fn read(due: &[Vec<u8>]) -> Self {
        let mut holds = Self::default();
        for DueMoney { key, groups: [group, parent], amount, levels } in
            due.iter().filter_map(|entry| DueMoney::read(entry))
        {
            holds.nanos += amount.nanos();
            let payers =
                [Some(HoldPayer::Key(key)), group.map(HoldPayer::Group), parent.map(HoldPayer::Group)];
            for (payer, counts) in payers.into_iter().zip(levels) {
                let Some(payer) = payer else { continue };
                let held = holds.of.entry(payer).or_default();
                held.nanos += amount.nanos();
                held.in_flight += u64::from(counts);
            }
        }
        holds
    }

    pub(super) const fn all(&self) -> NanoUsd {
        NanoUsd::from_nanos(self.nanos)
    }

    fn of(&self, payer: HoldPayer) -> Held {
        self.of.get(&payer).copied().unwrap_or_default()
    }
}

impl Balanced {
    /// Gives an audit the bounds, before it has any entry.
    pub(super) fn tell_bounds(&self, auditor: &mut Auditor) {
        match &self.of {
            BalanceOwner::Key(id, key) => auditor.key_bounds(*id, &key.budget),
            BalanceOwner::Group(id, group) => auditor.group_bounds(*id, &group.budget),
        }
    }

    /// Adds the balance to an audit that has all entries up to the balance's last one.
    pub(super) fn add_to(self, auditor: &mut Auditor, numbers: &LastNumbers) {
        let Self { of, opening, holds: Held { nanos, in_flight }, last_entry } = self;
        let held = NanoUsd::from_nanos(nanos);
        let counted = |budget: &Budget| budget.bounds.as_ref().map_or(0, |bounds| bounds.in_flight);
        match of {
            BalanceOwner::Key(id, key) => {
                numbers.last(auditor, EntriesOf::Key(id), last_entry);
                auditor.key(id, &key, opening, held);
                auditor.in_flight(Figure::InFlight(id), counted(&key.budget), in_flight);
            }
            BalanceOwner::Group(id, group) => {
                numbers.last(auditor, EntriesOf::Group(id), last_entry);
                auditor.group(id, &group, opening, held);
                auditor.in_flight(Figure::GroupInFlight(id), counted(&group.budget), in_flight);
            }
        }
    }
}

impl Store {
    /// Reads the balances of all groups and keys, each page at one moment.
    pub(super) async fn all_balances(&self, space: &Space) -> Result<Vec<Balanced>, StoreError> {
        let mut balances = Vec::new();
        let mut after = None;
        while let Some(ids) = self.ids_behind(space, layout::GROUPS, after.take()).await? {
            let ids: Vec<GroupId> = ids.iter().filter_map(|id| GroupId::from_slice(id)).collect();
            after = ids.last().map(|id| *id.as_bytes());
            balances.extend(self.balances_of(space, Ids::Groups(&ids)).await?);
        }
        let mut after = None;
        while let Some(ids) = self.ids_behind(space, layout::KEYS, after.take()).await? {
            let ids: Vec<KeyId> = ids.iter().filter_map(|id| KeyId::from_slice(id)).collect();
            after = ids.last().map(|id| *id.as_bytes());
            balances.extend(self.balances_of(space, Ids::Keys(&ids)).await?);
        }
        Ok(balances)
    }

    /// Lists the ids after an id with which entries of an index begin; `None` if there are no more.
    async fn ids_behind(
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
        let entries = self.entries(space, index, (from, None), Order::Ascending, AT_ONCE).await?;
        let id = |entry: &Vec<u8>| entry.first_chunk().copied().ok_or_else(|| damaged("an index of keys"));
        let mut ids = entries.iter().map(id).collect::<Result<Vec<_>, _>>()?;
        // An entry moves when its key's label changes, so an id may come twice.
        ids.dedup();
        Ok(Some(ids).filter(|ids| !ids.is_empty()))
    }

    /// Reads the balances of these keys or groups, as far as they exist.
    pub(super) async fn balances_of(&self, space: &Space, ids: Ids<'_>) -> Result<Vec<Balanced>, StoreError> {
        let (money, profiles) = match ids {
            Ids::Keys(ids) => (
                ids.iter().map(|id| names::key(*id)).collect(),
                ids.iter().map(|id| layout::key_profile(*id)).collect(),
            ),
            Ids::Groups(ids) => (
                ids.iter().map(|id| names::group(*id)).collect(),
                ids.iter().map(|id| layout::group_profile(*id)).collect(),
            ),
        };
        let (index, from, order) = (names::DUE, Vec::new(), Order::Ascending);
        let due = Question::Entries { index, from, to: None, order, limit: ALL };
        let questions = vec![Question::Records(money), Question::Records(profiles), due];
        let answers: [Answer; 3] = self.ask(space, questions).await?.try_into().map_err(|_| no_answer())?;
        let [Answer::Records(money), Answer::Records(profiles), Answer::Entries(due)] = answers else {
            return Err(no_answer());
        };
        let holds = Holds::read(&due);
        let records = money.iter().zip(&profiles);
        match ids {
            Ids::Keys(ids) => ids
                .iter()
                .zip(records)
                .filter_map(|(id, (money, profile))| {
                    money.as_ref().map(|money| key(*id, money, profile.as_ref(), &holds))
                })
                .collect(),
            Ids::Groups(ids) => ids
                .iter()
                .zip(records)
                .filter_map(|(id, (money, profile))| {
                    money.as_ref().map(|money| group(*id, money, profile.as_ref(), &holds))
                })
                .collect(),
        }
    }
}

fn key(id: KeyId, money: &Record, profile: Option<&Record>, holds: &Holds) -> Result<Balanced, StoreError> {
    let read = codec::read_key(message(money)?).ok_or_else(|| damaged("a key"))?;
    let opening = profile.map(message::<messages::KeyProfile>).transpose()?;
    let opening = opening.map_or(NanoUsd::ZERO, |profile| codec::usd(profile.opening));
    let holds = holds.of(HoldPayer::Key(id));
    Ok(Balanced { last_entry: read.last_entry, of: BalanceOwner::Key(id, read.of), opening, holds })
}

fn group(
    id: GroupId,
    money: &Record,
    profile: Option<&Record>,
    holds: &Holds,
) -> Result<Balanced, StoreError> {
    let read = codec::read_group(message(money)?).ok_or_else(|| damaged("a group"))?;
    let opening = profile.map(message::<messages::GroupProfile>).transpose()?;
    let opening = opening.map_or(NanoUsd::ZERO, |profile| codec::usd(profile.opening));
    let holds = holds.of(HoldPayer::Group(id));
    Ok(Balanced { last_entry: read.last_entry, of: BalanceOwner::Group(id, read.of), opening, holds })
}
