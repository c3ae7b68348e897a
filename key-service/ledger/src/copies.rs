//! Copies of an account's records. Each has the revision that was read and the running batch's new value.

mod kinds;
pub(crate) mod table;

use domain::{ledger::Record as GenerationRecord, usage::Day};
use records::{Guard, Name, Record, Revision, Write};
use shared::{
    ids::{DepositId, GenerationId, GroupId, KeyId},
    time::Timestamp,
};

pub(crate) use self::kinds::{
    Expired, GroupSum, ModelSum, PayerSum, PayersOf, RecordKind, TheAccount, TheEvents, TheHouse, TheTurn,
    ToldName, UserSum,
};
use self::table::{CopyTable, Touched};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Slot {
    Account,
    Turn,
    Events,
    House,
    Key(KeyId),
    Group(GroupId),
    Generation(GenerationId),
    Expired(GenerationId),
    Deposit(DepositId),
    OfPayer(PayerSum),
    PayersOf(PayersOf),
    OfModel(ModelSum),
    OfGroup(GroupSum),
    OfUsers(UserSum),
    Told(ToldName),
}

/// The oldest event that an account keeps, as of the last check.
#[derive(Clone, Copy)]
pub(crate) struct OldestEvent {
    pub(crate) number: u64,
    pub(crate) at: Timestamp,
}

#[derive(Clone, Default)]
pub(crate) struct Copies {
    pub(crate) account: CopyTable<TheAccount>,
    pub(crate) turn: CopyTable<TheTurn>,
    pub(crate) events: CopyTable<TheEvents>,
    pub(crate) house: CopyTable<TheHouse>,
    pub(crate) keys: CopyTable<KeyId>,
    pub(crate) groups: CopyTable<GroupId>,
    pub(crate) generations: CopyTable<GenerationId>,
    pub(crate) expired: CopyTable<Expired>,
    pub(crate) deposits: CopyTable<DepositId>,
    pub(crate) payers: CopyTable<PayerSum>,
    pub(crate) payers_of: CopyTable<PayersOf>,
    pub(crate) models: CopyTable<ModelSum>,
    pub(crate) group_sums: CopyTable<GroupSum>,
    pub(crate) users: CopyTable<UserSum>,
    pub(crate) told: CopyTable<ToldName>,
    /// The oldest event that is kept, if somebody has checked.
    pub(crate) oldest_event: Option<OldestEvent>,
    /// Copies that the running batch has read, in this order.
    touched: Vec<Slot>,
}

/// Getter and setter of a value in the running batch. `$slot` names it among the copies.
macro_rules! touching {
    ($($get:ident, $set:ident, $table:ident: $key:ty as $slot:expr;)*) => {
        $(
            /// Returns the value after the batch so far; `None` if the record cannot be read. The commit guards the
            /// record.
            pub(crate) fn $get(&mut self, key: &$key) -> Option<<$key as RecordKind>::Value> {
                let copy = self.$table.0.get_mut(key)?;
                if !copy.is_touched {
                    copy.is_touched = true;
                    self.touched.push($slot(key));
                }
                copy.next.as_ref().or(copy.value.as_ref()).cloned()
            }

            /// Changes a value, if there is a copy. The commit guards the record.
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

/// Changes a value in place, since it may be large. `$slot` names it among the copies.
macro_rules! changing {
    ($($change:ident, $table:ident: $key:ty as $slot:expr;)*) => {
        $(
            /// Changes a value and returns the result of `change`; `None` if the record cannot be read or has no copy.
            /// The commit guards the record.
            pub(crate) fn $change<T>(
                &mut self,
                key: &$key,
                change: impl FnOnce(&mut <$key as RecordKind>::Value) -> T,
            ) -> Option<T> {
                let copy = self.$table.0.get_mut(key)?;
                if !copy.is_touched {
                    copy.is_touched = true;
                    self.touched.push($slot(key));
                }
                if copy.next.is_none() {
                    copy.next = copy.value.clone();
                }
                copy.next.as_mut().map(change)
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
            Self::House => TheHouse.name(),
            Self::Key(id) => id.name(),
            Self::Group(id) => id.name(),
            Self::Generation(id) => id.name(),
            Self::Expired(id) => Expired(*id).name(),
            Self::Deposit(id) => id.name(),
            Self::OfPayer(sum) => sum.name(),
            Self::PayersOf(key) => key.name(),
            Self::OfModel(sum) => sum.name(),
            Self::OfGroup(sum) => sum.name(),
            Self::OfUsers(sum) => sum.name(),
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
        told, set_told, told: ToldName as |name: &ToldName| Slot::Told(name.clone());
    }

    changing! {
        change_house, house: TheHouse as |_: &TheHouse| Slot::House;
        change_of_payer, payers: PayerSum as |sum: &PayerSum| Slot::OfPayer(sum.clone());
        change_payers_of, payers_of: PayersOf as |key: &PayersOf| Slot::PayersOf(*key);
        change_of_model, models: ModelSum as |sum: &ModelSum| Slot::OfModel(sum.clone());
        change_of_group, group_sums: GroupSum as |sum: &GroupSum| Slot::OfGroup(*sum);
        change_of_users, users: UserSum as |sum: &UserSum| Slot::OfUsers(*sum);
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
            Slot::House => self.house.has(&TheHouse),
            Slot::Key(id) => self.keys.has(id),
            Slot::Group(id) => self.groups.has(id),
            Slot::Generation(id) => self.generations.has(id),
            Slot::Expired(id) => self.expired.has(&Expired(*id)),
            Slot::Deposit(id) => self.deposits.has(id),
            Slot::OfPayer(sum) => self.payers.has(sum),
            Slot::PayersOf(key) => self.payers_of.has(key),
            Slot::OfModel(sum) => self.models.has(sum),
            Slot::OfGroup(sum) => self.group_sums.has(sum),
            Slot::OfUsers(sum) => self.users.has(sum),
            Slot::Told(name) => self.told.has(name),
        }
    }

    /// Stores a record that was read.
    pub(crate) fn keep(&mut self, slot: Slot, record: Option<&Record>) {
        match slot {
            Slot::Account => self.account.keep(TheAccount, record),
            Slot::Turn => self.turn.keep(TheTurn, record),
            Slot::Events => self.events.keep(TheEvents, record),
            Slot::House => self.house.keep(TheHouse, record),
            Slot::Key(id) => self.keys.keep(id, record),
            Slot::Group(id) => self.groups.keep(id, record),
            Slot::Generation(id) => self.generations.keep(id, record),
            Slot::Expired(id) => self.expired.keep(Expired(id), record),
            Slot::Deposit(id) => self.deposits.keep(id, record),
            Slot::OfPayer(sum) => self.payers.keep(sum, record),
            Slot::PayersOf(key) => self.payers_of.keep(key, record),
            Slot::OfModel(sum) => self.models.keep(sum, record),
            Slot::OfGroup(sum) => self.group_sums.keep(sum, record),
            Slot::OfUsers(sum) => self.users.keep(sum, record),
            Slot::Told(name) => self.told.keep(name, record),
        }
    }

    fn copy(&self, slot: &Slot) -> Option<&dyn Touched> {
        Some(match slot {
            Slot::Account => self.account.0.get(&TheAccount)?,
            Slot::Turn => self.turn.0.get(&TheTurn)?,
            Slot::Events => self.events.0.get(&TheEvents)?,
            Slot::House => self.house.0.get(&TheHouse)?,
            Slot::Key(id) => self.keys.0.get(id)?,
            Slot::Group(id) => self.groups.0.get(id)?,
            Slot::Generation(id) => self.generations.0.get(id)?,
            Slot::Expired(id) => self.expired.0.get(&Expired(*id))?,
            Slot::Deposit(id) => self.deposits.0.get(id)?,
            Slot::OfPayer(sum) => self.payers.0.get(sum)?,
            Slot::PayersOf(key) => self.payers_of.0.get(key)?,
            Slot::OfModel(sum) => self.models.0.get(sum)?,
            Slot::OfGroup(sum) => self.group_sums.0.get(sum)?,
            Slot::OfUsers(sum) => self.users.0.get(sum)?,
            Slot::Told(name) => self.told.0.get(name)?,
        })
    }

    fn copy_mut(&mut self, slot: &Slot) -> Option<&mut dyn Touched> {
        Some(match slot {
            Slot::Account => self.account.0.get_mut(&TheAccount)?,
            Slot::Turn => self.turn.0.get_mut(&TheTurn)?,
            Slot::Events => self.events.0.get_mut(&TheEvents)?,
            Slot::House => self.house.0.get_mut(&TheHouse)?,
            Slot::Key(id) => self.keys.0.get_mut(id)?,
            Slot::Group(id) => self.groups.0.get_mut(id)?,
            Slot::Generation(id) => self.generations.0.get_mut(id)?,
            Slot::Expired(id) => self.expired.0.get_mut(&Expired(*id))?,
            Slot::Deposit(id) => self.deposits.0.get_mut(id)?,
            Slot::OfPayer(sum) => self.payers.0.get_mut(sum)?,
            Slot::PayersOf(key) => self.payers_of.0.get_mut(key)?,
            Slot::OfModel(sum) => self.models.0.get_mut(sum)?,
            Slot::OfGroup(sum) => self.group_sums.0.get_mut(sum)?,
            Slot::OfUsers(sum) => self.users.0.get_mut(sum)?,
            Slot::Told(name) => self.told.0.get_mut(name)?,
        })
    }

    /// Returns whether the record exists but cannot be read.
    pub(crate) fn is_damaged(&self, slot: &Slot) -> bool {
        self.copy(slot).is_some_and(Touched::is_damaged)
    }

    /// Returns guards for all records that the batch has read, and writes for those it has changed.
    pub(crate) fn changes(&self, revision: Revision) -> (Vec<Guard>, Vec<Write>) {
        let copies = self.touched.iter().filter_map(|slot| self.copy(slot));
        let (mut guards, mut writes) = (Vec::with_capacity(self.touched.len()), Vec::new());
        for copy in copies {
            guards.push(copy.guard());
            writes.extend(copy.write(revision));
        }
        (guards, writes)
    }

    /// Makes the new values current, since the batch has been written.
    pub(crate) fn settle(&mut self, revision: Revision) {
        for slot in std::mem::take(&mut self.touched) {
            if let Some(copy) = self.copy_mut(&slot) {
                copy.settle(revision);
            }
            self.forget_settled(&slot);
        }
    }

    /// Drops copies that few commands read again.
    fn forget_settled(&mut self, slot: &Slot) {
        match slot {
            Slot::Generation(id) if !matches!(self.generations.get(id), Some(GenerationRecord::Open(_))) => {
                self.generations.forget(id);
            }
            Slot::Expired(id) => self.expired.forget(&Expired(*id)),
            Slot::Deposit(id) => self.deposits.forget(id),
            Slot::PayersOf(key) => self.payers_of.forget(key),
            Slot::House => self.house.forget(&TheHouse),
            Slot::Account
            | Slot::Turn
            | Slot::Events
            | Slot::Key(_)
            | Slot::Group(_)
            | Slot::Generation(_)
            | Slot::OfPayer(_)
            | Slot::OfModel(_)
            | Slot::OfGroup(_)
            | Slot::OfUsers(_)
            | Slot::Told(_) => {}
        }
    }

    /// Discards the new values, since the batch was not written.
    pub(crate) fn roll_back(&mut self) {
        for slot in std::mem::take(&mut self.touched) {
            if let Some(copy) = self.copy_mut(&slot) {
                copy.roll_back();
            }
        }
    }

    /// Takes over the records from a conflict, each with the index of its guard, and undoes the batch. Returns the
    /// number of guards for copies; guards of other records follow them.
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
        let Self { keys, groups, generations, expired, deposits, told, .. } = self;
        let Self { payers, payers_of, models, group_sums, users, .. } = self;
        let of_money = keys.len() + groups.len() + generations.len() + expired.len() + deposits.len();
        let of_days = payers.len() + payers_of.len() + models.len() + group_sums.len() + users.len();
        of_money + of_days + told.len()
    }

    /// Drops copies that few commands read again, if there are many.
    pub(crate) fn shrink(&mut self, most: usize, today: Day) {
        let Self { generations, keys, payers, group_sums, told, expired, deposits, .. } = self;
        let of_money = generations.len().max(keys.len()).max(expired.len()).max(deposits.len());
        if of_money.max(payers.len()).max(group_sums.len()).max(told.len()) <= most {
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
        if self.group_sums.len() > most {
            self.group_sums.0.clear();
        }
        self.payers_of.0.clear();
        self.payers.0.retain(|PayerSum(day, _), _| *day == today);
        self.models.0.retain(|ModelSum(day, _), _| *day == today);
        self.group_sums.0.retain(|GroupSum(day, _), _| *day == today);
        self.users.0.retain(|UserSum(day, _), _| *day == today);
    }
}
