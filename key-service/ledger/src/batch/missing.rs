//! Finds the records that commands will read, as far as this is known before they are applied.

use domain::{
    ledger::{Command, Payer, Record, RecordId},
    usage::{Day, part_of_user},
};
use shared::ids::{GenerationId, GroupId, KeyId};

use crate::{
    batch::commands::Commands,
    copies::{Copies, Expired, GroupSum, ModelSum, PayerSum, PayersOf, Slot, TheAccount, UserSum},
    kept::Retention,
    names::PayerName,
};

pub(crate) struct Missing<'a> {
    copies: &'a mut Copies,
    slots: Vec<Slot>,
}

impl<'a> Missing<'a> {
    /// Finds the records that the calls will read and that have no copies. A new generation is presumed absent.
    pub(crate) fn of_calls(copies: &'a mut Copies, kept: Retention, calls: &[Commands<'_>]) -> Vec<Slot> {
        let mut missing = Self { copies, slots: Vec::new() };
        missing.need(Slot::Turn);
        missing.need(Slot::Account);
        let account = missing.copies.account.get(&TheAccount).copied().flatten();
        for Commands { all, now } in calls {
            let remembers = account.is_some_and(|account| account.remembers_expiries(kept.expired, *now));
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

    /// Needs the groups that pay for the command and the sums that its bill changes. If a record that names them is
    /// missing itself, they follow in the next attempt.
    fn payers_of(&mut self, command: &Command, today: Day) {
        let Some(key) = command.key() else { return };
        let record = match command.record() {
            Some(RecordId::Generation(id)) => self.record(id),
            Some(RecordId::Deposit(_)) | None => None,
        };
        let (payer, user) = (record.and_then(payer), record.and_then(part_of_users));
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
            if let Some(part) = user {
                self.need(Slot::OfUsers(UserSum(today, part)));
            }
        }
    }

    fn sums_of(&mut self, payer: Payer, today: Day) {
        let of_payer = PayerSum(today, PayerName::of(&payer));
        if !self.copies.payers.has(&of_payer) {
            // The first bill of a day lists the payer.
            self.need(Slot::PayersOf(PayersOf(payer.key)));
        }
        self.need(Slot::OfPayer(of_payer));
        self.need(Slot::OfModel(ModelSum(today, payer.model)));
        for group in payer.groups.into_iter().flatten() {
            self.need(Slot::OfGroup(GroupSum(today, group)));
        }
    }

    /// Finds the record of a generation, if there is a copy.
    fn record(&self, id: GenerationId) -> Option<&Record> {
        match self.copies.generations.get(&id) {
            Some(Record::None) | None => self.copies.expired.get(&Expired(id)),
            record => record,
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

/// Returns which part of the users a generation's user belongs to.
fn part_of_users(record: &Record) -> Option<u8> {
    let origin = match record {
        Record::None | Record::Deposited(_) => None,
        Record::Open(hold) => hold.origin.as_ref(),
        Record::Closed(bill) => bill.origin.as_ref(),
    };
    origin?.user.as_deref().map(part_of_user)
}
