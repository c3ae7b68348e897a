//! Calls of an account, decided together over copies.

mod missing;

use domain::{
    event::Event,
    ledger::{self, CallEvents, Command, Outcome, Record, RecordId, Refused, State, Told},
    usage::{self, Margin},
};
use shared::{
    ids::{AccountId, DepositId, GenerationId, KeyId},
    time::Timestamp,
};

use self::missing::Missing;
use super::{
    Kept,
    codec::{self, AccountRecord, Balance},
    copies::{Copies, Expired, PayerSum, Slot, Sum, SumOf, TheAccount, TheTurn, ToldName},
    names::{self, PayerName},
};
use crate::records::{Commit, Revision, Write};
use prost::Message;

/// Outcomes of the commands of a call.
pub type Outcomes = Vec<Result<Outcome, Refused>>;

/// Commands that are applied together, at a time.
#[derive(Clone, Copy)]
pub(super) struct Commands<'a> {
    pub(super) all: &'a [Command],
    pub(super) now: Timestamp,
}

/// A batch under way.
pub(super) struct Batch<'a> {
    copies: &'a mut Copies,
    account: AccountId,
    kept: Kept,
    /// Time of the call under way.
    now: Timestamp,
    effects: Effects,
    /// Records that turned out to be needed.
    missing: Vec<Slot>,
}

/// What a batch does beside changing records.
#[derive(Default)]
pub(super) struct Effects {
    /// Numbers of entries and of events before the batch.
    numbers: (u64, u64),
    entries: Vec<Vec<u8>>,
    events: Vec<Event>,
    deposits: Vec<(Timestamp, DepositId)>,
}

/// The decision on a batch.
pub(super) enum Decided {
    /// Outcomes of each call, and what is to be committed with the records.
    Outcomes(Vec<Outcomes>, Effects),
    /// These records have to be read first.
    Missing(Vec<Slot>),
}

impl<'a> Batch<'a> {
    pub(super) fn new(copies: &'a mut Copies, account: AccountId, kept: Kept) -> Self {
        let (now, effects, missing) = (Timestamp::from_millis(0), Effects::default(), Vec::new());
        Self { copies, account, kept, now, effects, missing }
    }

    /// Applies the commands of all calls in order.
    pub(super) fn decide(mut self, calls: &[Commands<'_>]) -> Decided {
        let missing = Missing::of_calls(self.copies, self.kept, calls);
        if !missing.is_empty() {
            return Decided::Missing(missing);
        }
        self.copies.turn(&TheTurn);
        let Some(Some(mut account)) = self.copies.account(&TheAccount) else {
            let outcomes = calls.iter().map(|call| self.without_account(call.all)).collect();
            return Decided::Outcomes(outcomes, self.effects);
        };
        self.effects.numbers = (account.entries, account.events);
        let outcomes = calls.iter().map(|call| self.call(&mut account, *call)).collect();
        if !self.missing.is_empty() {
            self.copies.roll_back();
            return Decided::Missing(self.missing);
        }
        account.entries += self.effects.entries.len() as u64;
        account.events += self.effects.events.len() as u64;
        self.copies.set_account(&TheAccount, Some(account));
        Decided::Outcomes(outcomes, self.effects)
    }

    /// Outcomes where the account is absent, or cannot be read.
    fn without_account(&self, call: &[Command]) -> Outcomes {
        let is_damaged = self.copies.account.get(&TheAccount).is_none();
        let refused = if is_damaged { Refused::Damaged } else { Refused::UnknownKey };
        call.iter().map(|_| Err(refused.clone())).collect()
    }

    fn call(&mut self, account: &mut AccountRecord, Commands { all, now }: Commands<'_>) -> Outcomes {
        self.now = now;
        let mut events = CallEvents::new(self.account, &account.money, now);
        let outcomes = all.iter().map(|command| self.apply(account, command, &mut events)).collect();
        for Told { once, event } in events.finish(&account.money) {
            self.tell(account, once, event);
        }
        outcomes
    }

    fn tell(&mut self, account: &AccountRecord, once: Option<Vec<u8>>, event: Event) {
        let number = account.events + self.effects.events.len() as u64 + 1;
        if let Some(name) = once.map(ToldName) {
            self.copies.told.presume_absent(&name);
            if self.copies.told(&name) != Some(None) {
                return;
            }
            self.copies.set_told(&name, Some(number));
        }
        self.effects.events.push(event);
    }

    /// Applies a command, and notes what it changed.
    fn apply(
        &mut self,
        account: &mut AccountRecord,
        command: &Command,
        events: &mut CallEvents,
    ) -> Result<Outcome, Refused> {
        let (state, balances) = self.load(account, command)?;
        let before = state.clone();
        let (after, outcome) = ledger::apply(state, command, self.now)
            .inspect_err(|refused| events.refused(command, &before, refused))?;
        events.applied(command, &before, &after);
        let entry = ledger::entry(&before.record, &after);
        let mut number = None;
        if let (Some(RecordId::Generation(id)), Some(entry)) = (command.record(), &entry) {
            self.effects.entries.push(codec::write_entry(id, entry).encode_to_vec());
            number = Some(account.entries + self.effects.entries.len() as u64);
            self.count(usage::added(&before.record, entry));
        }
        account.money = after.account;
        self.write(account, command, &before.record, after, (balances, number));
        Ok(outcome)
    }

    /// The state that a command reads, with the numbers of the last entries of key and groups.
    fn load(&mut self, account: &AccountRecord, command: &Command) -> Result<(State, LastEntries), Refused> {
        let record = match command.record() {
            None => Record::None,
            Some(RecordId::Deposit(id)) => self.copies.deposit(&id).ok_or(Refused::Damaged)?,
            Some(RecordId::Generation(id)) => self.generation(account, id)?,
        };
        let mut last = LastEntries::default();
        let key = match command.key() {
            None => None,
            Some(id) => self.copies.key(&id).ok_or(Refused::Damaged)?.map(|balance| {
                last.key = balance.last_entry;
                balance.of
            }),
        };
        let mut groups = last.groups.iter_mut();
        let state = State::load(account.money, key, record, |id| {
            let found = self.copies.group(&id).ok_or(Refused::Damaged)?;
            Ok::<_, Refused>(found.map(|Balance { of, last_entry }| {
                if let Some(last) = groups.next() {
                    *last = last_entry;
                }
                of
            }))
        })?;
        Ok((state, last))
    }

    fn generation(&mut self, account: &AccountRecord, id: GenerationId) -> Result<Record, Refused> {
        let record = self.copies.generation(&id).ok_or(Refused::Damaged)?;
        let is_remembered =
            account.remembers_expiries(self.kept, self.now) || self.copies.expired.has(&Expired(id));
        if record == Record::None && is_remembered {
            self.needs(Slot::Expired(id));
            return self.copies.expired(&Expired(id)).ok_or(Refused::Damaged);
        }
        Ok(record)
    }

    fn write(
        &mut self,
        account: &mut AccountRecord,
        command: &Command,
        before: &Record,
        after: State,
        (last, number): (LastEntries, Option<u64>),
    ) {
        if let (Some(id), Some(key)) = (command.key(), after.key) {
            let last_entry = number.unwrap_or(last.key);
            self.copies.set_key(&id, Some(Balance { of: key, last_entry }));
        }
        for ((id, group), last) in after.groups.into_iter().flatten().zip(last.groups) {
            let last_entry = number.unwrap_or(last);
            self.copies.set_group(&id, Some(Balance { of: group, last_entry }));
        }
        if after.record == *before {
            return;
        }
        match command.record() {
            None => {}
            Some(RecordId::Deposit(id)) => {
                self.effects.deposits.push((self.now, id));
                self.copies.set_deposit(&id, after.record);
            }
            Some(RecordId::Generation(id)) => self.write_generation(account, id, after.record),
        }
    }

    /// Bills of expiries lie apart, since they are remembered for longer.
    fn write_generation(&mut self, account: &mut AccountRecord, id: GenerationId, record: Record) {
        let is_expired = matches!(&record, Record::Closed(bill) if bill.ending == ledger::Ending::Expired);
        if is_expired {
            account.last_expiry = Some(self.now);
            self.copies.expired.presume_absent(&Expired(id));
            self.copies.expired(&Expired(id));
            self.copies.set_expired(&Expired(id), record);
            self.copies.set_generation(&id, Record::None);
            return;
        }
        if self.copies.expired.get(&Expired(id)).is_some_and(|record| *record != Record::None) {
            self.copies.set_expired(&Expired(id), Record::None);
        }
        self.copies.set_generation(&id, record);
    }

    fn count(&mut self, usage::Added { payer, day, counts }: usage::Added) {
        let of_payer = PayerSum(day, PayerName::of(&payer));
        if !self.copies.payers.has(&of_payer) {
            self.needs(Slot::OfPayer(of_payer.clone()));
        }
        let before = self.copies.of_payer(&of_payer).unwrap_or_default();
        self.copies.set_of_payer(&of_payer, before.plus(counts));
        let [group, _] = payer.groups;
        for of in std::iter::once(SumOf::Model(payer.model)).chain(group.map(SumOf::Group)) {
            let sum = Sum(day, of);
            if !self.copies.sums.has(&sum) {
                self.needs(Slot::Sum(sum.clone()));
            }
            let before = self.copies.sum(&sum).unwrap_or_default();
            self.copies.set_sum(&sum, before.plus(Margin::from(counts)));
        }
    }

    /// Notes a record that the commands turn out to need, if there is no copy: what they lead to is decided again.
    fn needs(&mut self, slot: Slot) {
        if !self.copies.has(&slot) && !self.missing.contains(&slot) {
            self.missing.push(slot);
        }
    }
}

impl Effects {
    /// The commit of what was decided.
    pub(super) fn commit(self, copies: &Copies, revision: Revision, kept: Kept) -> Commit {
        let (guards, records) = copies.changes(revision);
        let (entries, events) = self.numbers;
        let mut writes = Vec::with_capacity(records.len() + 8);
        if !self.entries.is_empty() {
            let (first, kept) = (entries + 1, kept.journal_entries);
            writes.push(Write::Append { log: names::JOURNAL, first, values: self.entries, kept });
        }
        if !self.events.is_empty() {
            let value = |event: &Event| [event.id.as_bytes(), event.to_json().as_bytes()].concat();
            let (first, values) = (events + 1, self.events.iter().map(value).collect());
            writes.push(Write::Append { log: names::EVENTS, first, values, kept: kept.events });
        }
        writes.extend(records);
        for (number, event) in (events + 1..).zip(&self.events) {
            let subjects = [event.key.map(|id| *id.as_bytes()), event.group.map(|id| *id.as_bytes())];
            let entries = subjects.into_iter().flatten().map(|id| names::event_of(&id, number));
            writes.extend(entries.map(|entry| Write::Enter(names::EVENTS_OF, entry)));
        }
        let deposited = self.deposits.into_iter().map(|(at, id)| names::deposited(at, id));
        writes.extend(deposited.map(|entry| Write::Enter(names::DEPOSITED, entry)));
        index(copies, &mut writes);
        Commit { guards, writes }
    }
}

/// Numbers of the last entries of a key and its groups.
#[derive(Default)]
struct LastEntries {
    key: u64,
    groups: [u64; 2],
}

/// Moves entries of indexes that follow from changed records.
fn index(copies: &Copies, writes: &mut Vec<Write>) {
    let mut moved = |index, before: Option<Vec<u8>>, after: Option<Vec<u8>>| {
        if before != after {
            writes.extend(before.map(|entry| Write::Leave(index, entry)));
            writes.extend(after.map(|entry| Write::Enter(index, entry)));
        }
    };
    let due = |id, record: &Record| match record {
        Record::Open(hold) => Some(names::due(hold.lease_until, id, hold.payer.key)),
        Record::None | Record::Closed(_) | Record::Deposited(_) => None,
    };
    for slot in copies.touched() {
        match slot {
            Slot::Generation(id) => {
                if let Some((before, after)) = copies.generations.change(id) {
                    moved(names::DUE, due(*id, before), due(*id, after));
                }
            }
            Slot::Key(id) => {
                if let Some((Some(before), Some(after))) = copies.keys.change(id) {
                    let entry = |key: &Balance<_>| spender(key, *id);
                    moved(names::SPENDERS, entry(before), entry(after));
                }
            }
            Slot::Account
            | Slot::Turn
            | Slot::Group(_)
            | Slot::Expired(_)
            | Slot::Deposit(_)
            | Slot::OfPayer(_)
            | Slot::Sum(_)
            | Slot::Told(_) => {}
        }
    }
}

fn spender(key: &Balance<ledger::Key>, id: KeyId) -> Option<Vec<u8>> {
    names::spender(key.of.budget.used, id)
}
