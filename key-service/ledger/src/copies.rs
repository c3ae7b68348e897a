//! Copies of an account's records. Each has the revision that was read, and the next value that the running batch
//! gives.

mod kinds;

use std::collections::HashMap;

use domain::{ledger::Record as GenerationRecord, usage::Day};
use foldhash::fast::RandomState;
use records::{Guard, Name, Record, Revision, Write};
use shared::ids::{DepositId, GenerationId, GroupId, KeyId};

pub(crate) use self::kinds::{
    Expired, PayerSum, RecordKind, Sum, SumOf, TheAccount, TheEvents, TheTurn, ToldName,
};
use super::codec::OldestEvent;
use crate::view::FORM;

#[derive(Clone, Debug)]
pub(crate) struct Copy<K: RecordKind> {
    pub(crate) name: Name,
    /// Revision of the record; `None` if it is absent.
    pub(crate) seen: Option<Revision>,
    /// Value of the record; `None` if it cannot be read.
    value: Option<K::Value>,
    /// Next value, if the batch has changed the record.
    next: Option<K::Value>,
    is_touched: bool,
}

/// A copy of any kind that the running batch has read.
pub(crate) trait Touched {
    fn guard(&self) -> Guard;
    /// Returns the write of the record, if the batch has changed it.
    fn write(&self, revision: Revision) -> Option<Write>;
    /// Takes over the next value, since the batch is written.
    fn settle(&mut self, revision: Revision);
    /// Forgets the next value, since the batch is not written.
    fn roll_back(&mut self);
    /// Takes over the record as it is now, since another process has changed it.
    fn replace(&mut self, record: Option<&Record>);
    /// Returns whether there is a record that cannot be read.
    fn is_damaged(&self) -> bool;
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Slot {
    Account,
    Turn,
    Events,
    Key(KeyId),
    Group(GroupId),
    Generation(GenerationId),
    Expired(GenerationId),
    Deposit(DepositId),
    OfPayer(PayerSum),
    Sum(Sum),
    Told(ToldName),
}

#[derive(Clone)]
pub(crate) struct CopyTable<K: RecordKind>(pub(crate) HashMap<K, Copy<K>, RandomState>);

#[derive(Clone, Default)]
pub(crate) struct Copies {
    pub(crate) account: CopyTable<TheAccount>,
    pub(crate) turn: CopyTable<TheTurn>,
    pub(crate) events: CopyTable<TheEvents>,
    pub(crate) keys: CopyTable<KeyId>,
    pub(crate) groups: CopyTable<GroupId>,
    pub(crate) generations: CopyTable<GenerationId>,
    pub(crate) expired: CopyTable<Expired>,
    pub(crate) deposits: CopyTable<DepositId>,
    pub(crate) payers: CopyTable<PayerSum>,
    pub(crate) sums: CopyTable<Sum>,
    pub(crate) told: CopyTable<ToldName>,
    /// The oldest event that is kept, if somebody has checked.
    pub(crate) oldest_event: Option<OldestEvent>,
    /// Copies that the running batch has read, in this order.
    touched: Vec<Slot>,
}

impl<K: RecordKind> Default for CopyTable<K> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: RecordKind> CopyTable<K> {
    pub(crate) fn has(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the value as the batch has left it; `None` if it cannot be read, or if there is no copy.
    pub(crate) fn get(&self, key: &K) -> Option<&K::Value> {
        let copy = self.0.get(key)?;
        copy.next.as_ref().or(copy.value.as_ref())
    }

    /// Returns the value before the batch and after it, if the batch has changed it.
    pub(crate) fn change(&self, key: &K) -> Option<(&K::Value, &K::Value)> {
        let copy = self.0.get(key)?;
        Some((copy.value.as_ref()?, copy.next.as_ref()?))
    }

    /// Keeps the record that was read.
    fn keep(&mut self, key: K, record: Option<&Record>) {
        let mut copy = Copy::<K> { name: key.name(), seen: None, value: None, next: None, is_touched: false };
        copy.replace(record);
        self.0.insert(key, copy);
    }

    /// Presumes that there is no record. The guard says so, and a conflict brings the record if there is one.
    pub(crate) fn presume_absent(&mut self, key: &K) {
        if !self.has(key) {
            self.keep(key.clone(), None);
        }
    }

    pub(crate) fn forget(&mut self, key: &K) {
        self.0.remove(key);
    }

    fn retain(&mut self, is_kept: impl Fn(&K, &K::Value) -> bool) {
        self.0.retain(|key, copy| copy.value.as_ref().is_some_and(|value| is_kept(key, value)));
    }
}

impl<K: RecordKind> Touched for Copy<K> {
    fn guard(&self) -> Guard {
        Guard { name: self.name.clone(), seen: self.seen }
    }

    fn write(&self, revision: Revision) -> Option<Write> {
        let next = self.next.as_ref().filter(|next| Some(*next) != self.value.as_ref())?;
        let name = self.name.clone();
        Some(match K::write(next) {
            Some(message) => Write::Put(name, Record::of(revision, FORM, &message)),
            None => Write::Remove(name),
        })
    }

    fn settle(&mut self, revision: Revision) {
        self.is_touched = false;
        let Some(next) = self.next.take() else { return };
        if Some(&next) != self.value.as_ref() {
            self.seen = K::write(&next).is_some().then_some(revision);
            self.value = Some(next);
        }
    }

    fn roll_back(&mut self) {
        self.is_touched = false;
        self.next = None;
    }

    fn is_damaged(&self) -> bool {
        self.value.is_none()
    }

    fn replace(&mut self, record: Option<&Record>) {
        self.next = None;
        self.seen = record.map(Record::revision);
        self.value = match record {
            None => Some(K::Value::default()),
            Some(record) if record.form() > FORM => None,
            Some(record) => K::read(record.message()),
        };
    }
}

/// Reads and changes a value in the running batch. `$slot` names it among the copies that were read.
macro_rules! touching {
    ($($get:ident, $set:ident, $table:ident: $key:ty as $slot:expr;)*) => {
        $(
            /// Returns the value after the batch so far; `None` if the record cannot be read. From now on, the commit
            /// guards the record.
            pub(crate) fn $get(&mut self, key: &$key) -> Option<<$key as RecordKind>::Value> {
                let copy = self.$table.0.get_mut(key)?;
                if !copy.is_touched {
                    copy.is_touched = true;
                    self.touched.push($slot(key));
                }
                copy.next.as_ref().or(copy.value.as_ref()).cloned()
            }

            /// Changes a value, if there is a copy. From now on, the commit guards the record.
            pub(crate) fn $set(&mut self, key: &$key, value: <$key as RecordKind>::Value) {
                let Some(copy) = self.$table.0.get_mut(key) else { return };
                copy.next = Some(value);
                if !copy.is_touched {
                    copy.is_touched = true;
                    self.touched.push($slot(key));
                }
            }
        )*
    };
}

impl Slot {
    pub(crate) fn name(&self) -> Name {
        match self {
            Self::Account => TheAccount.name(),
            Self::Turn => TheTurn.name(),
            Self::Events => TheEvents.name(),
            Self::Key(id) => id.name(),
            Self::Group(id) => id.name(),
            Self::Generation(id) => id.name(),
            Self::Expired(id) => Expired(*id).name(),
            Self::Deposit(id) => id.name(),
            Self::OfPayer(sum) => sum.name(),
            Self::Sum(sum) => sum.name(),
            Self::Told(name) => name.name(),
        }
    }
}

impl Copies {
    touching! {
        account, set_account, account: TheAccount as |_: &TheAccount| Slot::Account;
        turn, set_turn, turn: TheTurn as |_: &TheTurn| Slot::Turn;
        events, set_events, events: TheEvents as |_: &TheEvents| Slot::Events;
        key, set_key, keys: KeyId as |key: &KeyId| Slot::Key(*key);
        group, set_group, groups: GroupId as |group: &GroupId| Slot::Group(*group);
        generation, set_generation, generations: GenerationId as |id: &GenerationId| Slot::Generation(*id);
        expired, set_expired, expired: Expired as |Expired(id): &Expired| Slot::Expired(*id);
        deposit, set_deposit, deposits: DepositId as |id: &DepositId| Slot::Deposit(*id);
        of_payer, set_of_payer, payers: PayerSum as |sum: &PayerSum| Slot::OfPayer(sum.clone());
        sum, set_sum, sums: Sum as |sum: &Sum| Slot::Sum(sum.clone());
        told, set_told, told: ToldName as |name: &ToldName| Slot::Told(name.clone());
    }

    /// Names the copies that the running batch has read.
    pub(crate) fn touched(&self) -> &[Slot] {
        &self.touched
    }

    pub(crate) fn has(&self, slot: &Slot) -> bool {
        match slot {
            Slot::Account => self.account.has(&TheAccount),
            Slot::Turn => self.turn.has(&TheTurn),
            Slot::Events => self.events.has(&TheEvents),
            Slot::Key(id) => self.keys.has(id),
            Slot::Group(id) => self.groups.has(id),
            Slot::Generation(id) => self.generations.has(id),
            Slot::Expired(id) => self.expired.has(&Expired(*id)),
            Slot::Deposit(id) => self.deposits.has(id),
            Slot::OfPayer(sum) => self.payers.has(sum),
            Slot::Sum(sum) => self.sums.has(sum),
            Slot::Told(name) => self.told.has(name),
        }
    }

    /// Keeps the record that was read.
    pub(crate) fn keep(&mut self, slot: Slot, record: Option<&Record>) {
        match slot {
            Slot::Account => self.account.keep(TheAccount, record),
            Slot::Turn => self.turn.keep(TheTurn, record),
            Slot::Events => self.events.keep(TheEvents, record),
            Slot::Key(id) => self.keys.keep(id, record),
            Slot::Group(id) => self.groups.keep(id, record),
            Slot::Generation(id) => self.generations.keep(id, record),
            Slot::Expired(id) => self.expired.keep(Expired(id), record),
            Slot::Deposit(id) => self.deposits.keep(id, record),
            Slot::OfPayer(sum) => self.payers.keep(sum, record),
            Slot::Sum(sum) => self.sums.keep(sum, record),
            Slot::Told(name) => self.told.keep(name, record),
        }
    }

    fn copy(&self, slot: &Slot) -> Option<&dyn Touched> {
        Some(match slot {
            Slot::Account => self.account.0.get(&TheAccount)?,
            Slot::Turn => self.turn.0.get(&TheTurn)?,
            Slot::Events => self.events.0.get(&TheEvents)?,
            Slot::Key(id) => self.keys.0.get(id)?,
            Slot::Group(id) => self.groups.0.get(id)?,
            Slot::Generation(id) => self.generations.0.get(id)?,
            Slot::Expired(id) => self.expired.0.get(&Expired(*id))?,
            Slot::Deposit(id) => self.deposits.0.get(id)?,
            Slot::OfPayer(sum) => self.payers.0.get(sum)?,
            Slot::Sum(sum) => self.sums.0.get(sum)?,
            Slot::Told(name) => self.told.0.get(name)?,
        })
    }

    fn copy_mut(&mut self, slot: &Slot) -> Option<&mut dyn Touched> {
        Some(match slot {
            Slot::Account => self.account.0.get_mut(&TheAccount)?,
            Slot::Turn => self.turn.0.get_mut(&TheTurn)?,
            Slot::Events => self.events.0.get_mut(&TheEvents)?,
            Slot::Key(id) => self.keys.0.get_mut(id)?,
            Slot::Group(id) => self.groups.0.get_mut(id)?,
            Slot::Generation(id) => self.generations.0.get_mut(id)?,
            Slot::Expired(id) => self.expired.0.get_mut(&Expired(*id))?,
            Slot::Deposit(id) => self.deposits.0.get_mut(id)?,
            Slot::OfPayer(sum) => self.payers.0.get_mut(sum)?,
            Slot::Sum(sum) => self.sums.0.get_mut(sum)?,
            Slot::Told(name) => self.told.0.get_mut(name)?,
        })
    }

    /// Returns whether there is a record that cannot be read.
    pub(crate) fn is_damaged(&self, slot: &Slot) -> bool {
        self.copy(slot).is_some_and(Touched::is_damaged)
    }

    /// Returns guards of all records that the batch has read, and writes of those that it has changed.
    pub(crate) fn changes(&self, revision: Revision) -> (Vec<Guard>, Vec<Write>) {
        let copies = self.touched.iter().filter_map(|slot| self.copy(slot));
        let (mut guards, mut writes) = (Vec::with_capacity(self.touched.len()), Vec::new());
        for copy in copies {
            guards.push(copy.guard());
            writes.extend(copy.write(revision));
        }
        (guards, writes)
    }

    /// Takes over the next values, since the batch is written.
    pub(crate) fn settle(&mut self, revision: Revision) {
        for slot in std::mem::take(&mut self.touched) {
            if let Some(copy) = self.copy_mut(&slot) {
                copy.settle(revision);
            }
            self.forget_settled(&slot);
        }
    }

    /// Forgets copies that few commands read again.
    fn forget_settled(&mut self, slot: &Slot) {
        match slot {
            Slot::Generation(id) if !matches!(self.generations.get(id), Some(GenerationRecord::Open(_))) => {
                self.generations.forget(id);
            }
            Slot::Expired(id) => self.expired.forget(&Expired(*id)),
            Slot::Deposit(id) => self.deposits.forget(id),
            Slot::Account
            | Slot::Turn
            | Slot::Events
            | Slot::Key(_)
            | Slot::Group(_)
            | Slot::Generation(_)
            | Slot::OfPayer(_)
            | Slot::Sum(_)
            | Slot::Told(_) => {}
        }
    }

    /// Forgets the next values, since the batch is not written.
    pub(crate) fn roll_back(&mut self) {
        for slot in std::mem::take(&mut self.touched) {
            if let Some(copy) = self.copy_mut(&slot) {
                copy.roll_back();
            }
        }
    }

    /// Takes over the records that a conflict brought, each with the place of its guard, and undoes the batch. Returns
    /// the number of guards for copies; guards of other records come after them.
    pub(crate) fn replace(&mut self, present: &[(usize, Option<Record>)]) -> usize {
        let touched = std::mem::take(&mut self.touched);
        for (place, record) in present {
            if let Some(copy) = touched.get(*place).and_then(|slot| self.copy_mut(slot)) {
                copy.replace(record.as_ref());
            }
        }
        let guards = touched.len();
        self.touched = touched;
        self.roll_back();
        guards
    }

    pub(crate) fn len(&self) -> usize {
        let Self { keys, groups, generations, expired, deposits, payers, sums, told, .. } = self;
        let of_money = keys.len() + groups.len() + generations.len() + expired.len() + deposits.len();
        of_money + payers.len() + sums.len() + told.len()
    }

    /// Drops copies that few commands read again, if there are many.
    pub(crate) fn shrink(&mut self, most: usize, today: Day) {
        let Self { generations, keys, payers, told, expired, deposits, .. } = self;
        if [generations.len(), keys.len(), payers.len(), told.len(), expired.len(), deposits.len()]
            .iter()
            .max()
            <= Some(&most)
        {
            return;
        }
        let is_open =
            |_: &GenerationId, record: &GenerationRecord| matches!(record, GenerationRecord::Open(_));
        self.generations.retain(is_open);
        self.expired.0.clear();
        self.deposits.0.clear();
        if self.keys.len() > most || self.payers.len() > most {
            self.keys.0.clear();
            self.groups.0.clear();
            self.payers.0.clear();
            self.told.0.clear();
        }
        if self.generations.len() > 4 * most {
            self.generations.0.clear();
        }
        self.payers.0.retain(|PayerSum(day, _), _| *day == today);
        self.sums.0.retain(|Sum(day, _), _| *day == today);
    }
}
