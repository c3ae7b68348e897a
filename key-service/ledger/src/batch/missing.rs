//! Finds the records that commands read, as far as this is known before they are applied.

use domain::{
    ledger::{Command, Payer, Record, RecordId},
    usage::Day,
};
use shared::ids::{GenerationId, GroupId, KeyId};

use crate::{
    batch::commands::Commands,
    copies::{Copies, Expired, PayerSum, Slot, Sum, SumOf, TheAccount},
    kept::Retention,
    names::PayerName,
};

pub(crate) struct Missing<'a> {
    copies: &'a mut Copies,
    slots: Vec<Slot>,
}

impl<'a> Missing<'a> {
    /// Finds the records that the calls read first, and that have no copies. A new generation is presumed absent.
    pub(crate) fn of_calls(copies: &'a mut Copies, kept: Retention, calls: &[Commands<'_>]) -> Vec<Slot> {
        let mut missing = Self { copies, slots: Vec::new() };
        missing.need(Slot::Turn);
        missing.need(Slot::Account);
        let account = missing.copies.account.get(&TheAccount).copied().flatten();
        for Commands { all, now } in calls {
            let remembers = account.is_some_and(|account| account.remembers_expiries(kept, *now));
            for command in *all {
                missing.of(command, remembers);
                missing.payers_of(command, Day::of(*now));
            }
        }
        missing.slots
    }

    fn of(&mut self, command: &Command, remembers_expiries: bool) {
        if let Some(id) = command.key() {
            self.need(Slot::Key(id));
        }
        match (command, command.record()) {
            (_, None) => {}
            (_, Some(RecordId::Deposit(id))) => self.copies.deposits.presume_absent(&id),
            (Command::Hold(_), Some(RecordId::Generation(id))) => {
                self.copies.generations.presume_absent(&id);
                if remembers_expiries {
                    self.copies.expired.presume_absent(&Expired(id));
                }
            }
            (_, Some(RecordId::Generation(id))) => {
                self.need(Slot::Generation(id));
                if remembers_expiries {
                    self.need(Slot::Expired(id));
                }
            }
        }
    }

    fn need(&mut self, slot: Slot) {
        if !self.copies.has(&slot) && !self.slots.contains(&slot) {
            self.slots.push(slot);
        }
    }

    /// Needs the groups that pay for the command, and the sums that its bill changes. If a record on the way is missing
    /// itself, they come with the next attempt.
    fn payers_of(&mut self, command: &Command, today: Day) {
        let Some(key) = command.key() else { return };
        let payer = match command.record() {
            Some(RecordId::Generation(id)) => self.payer(id),
            Some(RecordId::Deposit(_)) | None => None,
        };
        let groups = payer.map_or_else(|| self.chain(key), |payer| payer.groups);
        let billed = match (command, payer) {
            (Command::Capture { .. } | Command::Expire { .. }, Some(payer)) => Some(payer.clone()),
            (Command::Capture { model, .. }, None) => Some(Payer { key, model: model.clone(), groups }),
            (Command::Expire { .. }, None)
            | (
                Command::Deposit { .. }
                | Command::Tick { .. }
                | Command::Check { .. }
                | Command::Hold(_)
                | Command::Extend { .. }
                | Command::Release { .. },
                _,
            ) => None,
        };
        for group in groups.into_iter().flatten() {
            self.need(Slot::Group(group));
        }
        if let Some(payer) = billed {
            self.sums_of(payer, today);
        }
    }

    fn sums_of(&mut self, payer: Payer, today: Day) {
        self.need(Slot::OfPayer(PayerSum(today, PayerName::of(&payer))));
        let [group, _] = payer.groups;
        self.need(Slot::Sum(Sum(today, SumOf::Model(payer.model))));
        if let Some(group) = group {
            self.need(Slot::Sum(Sum(today, SumOf::Group(group))));
        }
    }

    /// Finds who pays for a generation, if there is a copy.
    fn payer(&self, id: GenerationId) -> Option<&Payer> {
        match self.copies.generations.get(&id) {
            Some(Record::None) | None => payer(self.copies.expired.get(&Expired(id))?),
            Some(record) => payer(record),
        }
    }

    /// Finds group and parent of a key, as far as there are copies.
    fn chain(&self, key: KeyId) -> [Option<GroupId>; 2] {
        let group = self.copies.keys.get(&key).and_then(Option::as_ref).and_then(|key| key.of.group);
        let parent = group.and_then(|id| self.copies.groups.get(&id)).and_then(Option::as_ref);
        [group, parent.and_then(|group| group.of.parent)]
    }
}

const fn payer(record: &Record) -> Option<&Payer> {
    match record {
        Record::None | Record::Deposited(_) => None,
        Record::Open(hold) => Some(&hold.payer),
        Record::Closed(bill) => Some(&bill.payer),
    }
}
