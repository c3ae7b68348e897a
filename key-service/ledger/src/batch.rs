//! Decides calls of an account together, over copies of its records.

pub(crate) mod commands;
mod missing;
pub(crate) mod written;

use domain::{
    event::Event,
    ledger::{
        self, CallEvents, Command, EntriesBefore, Outcome, Record, RecordId, Refused, State, Told as ToldOnce,
    },
    usage::{self, counting_groups, part_of_user},
};
use records::{Commit, Revision, Write};
use shared::{
    ids::{AccountId, DepositId, GenerationId, KeyId},
    stored,
    time::Timestamp,
};

use self::missing::Missing;
use crate::{
    batch::{commands::Commands, written::WrittenEvents},
    copies::{
        Copies, Expired, GroupSum, ModelSum, PayerSum, PayersOf, Slot, TheAccount, TheEvents, TheHouse,
        TheTurn, ToldName, UserSum,
    },
    kept::{Retention, dropped},
    names::{self, PayerName},
    stored::{AccountRecord, Balance, EntryRecord, EventsKept, Told},
};

/// Outcomes of the commands of a call.
pub type Outcomes = Vec<Result<Outcome, Refused>>;

pub(crate) struct Batch<'a> {
    copies: &'a mut Copies,
    account: AccountId,
    kept: Retention,
    /// Time of the call under way.
    now: Timestamp,
    effects: Effects,
    /// Records that turned out to be needed but have not been read yet.
    missing: Vec<Slot>,
}

/// A batch's effects besides changed records.
#[derive(Default)]
pub(crate) struct Effects {
    /// Numbers of entries and of events before the batch.
    numbers: (u64, u64),
    entries: Vec<Vec<u8>>,
    events: Vec<Event>,
    /// Thresholds that the batch reports: number of the event, and name.
    told: Vec<(u64, Vec<u8>)>,
    deposits: Vec<(Timestamp, DepositId)>,
}

pub(crate) enum Decided {
    /// Outcomes of each call, and what to commit with the records.
    Outcomes(Vec<Outcomes>, Effects),
    /// These records must be read first.
    Missing(Vec<Slot>),
}

impl<'a> Batch<'a> {
    pub(crate) fn new(copies: &'a mut Copies, account: AccountId, kept: Retention) -> Self {
        let (now, effects, missing) = (Timestamp::from_millis(0), Effects::default(), Vec::new());
        Self { copies, account, kept, now, effects, missing }
    }

    /// Applies the commands of all calls in order.
    pub(crate) fn decide(mut self, calls: &[Commands<'_>]) -> Decided {
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
        let was_ordered = account.money.billed_at.is_some();
        let outcomes = calls.iter().map(|call| self.call(&mut account, *call)).collect();
        if !self.missing.is_empty() {
            self.copies.roll_back();
            return Decided::Missing(self.missing);
        }
        if !was_ordered && account.entries > 0 {
            // Earlier programs may have written entries out of order.
            account.ordered_since = account.money.billed_at;
        }
        account.entries += self.effects.entries.len() as u64;
        account.events += self.effects.events.len() as u64;
        self.copies.set_account(&TheAccount, Some(account));
        self.effects.weigh_events(self.copies);
        Decided::Outcomes(outcomes, self.effects)
    }

    /// Outcomes if the account is absent or cannot be read.
    fn without_account(&self, call: &[Command]) -> Outcomes {
        let is_damaged = self.copies.account.get(&TheAccount).is_none();
        let refused = if is_damaged { Refused::Damaged } else { Refused::UnknownKey };
        call.iter().map(|_| Err(refused.clone())).collect()
    }

    fn call(&mut self, account: &mut AccountRecord, Commands { all, now }: Commands<'_>) -> Outcomes {
        self.now = now;
        let mut events = CallEvents::new(self.account, &account.money, now);
        let outcomes = all.iter().map(|command| self.apply(account, command, &mut events)).collect();
        for told in events.finish(&account.money) {
            self.needs(Slot::Events);
            self.effects.tell(self.copies, account.events, told);
        }
        outcomes
    }

    /// Applies a command and records what it changed.
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
            let last_entry = account.entries + self.effects.entries.len() as u64 + 1;
            let mut written = EntryRecord::of(id, entry, balances);
            if after.account.billed_at < account.money.billed_at {
                written.went_back = std::mem::replace(&mut account.went_back, last_entry);
            }
            self.effects.entries.push(stored::write(&written));
            number = Some(last_entry);
            self.count(usage::added(&before.record, entry), last_entry);
        }
        account.money = after.account;
        self.write(account, command, &before.record, after, EntryNumbers { before: balances, own: number });
        Ok(outcome)
    }

    /// Loads the state that a command reads, with the numbers of the last entries of key and groups.
    fn load(
        &mut self,
        account: &AccountRecord,
        command: &Command,
    ) -> Result<(State, EntriesBefore), Refused> {
        let (mut record, mut is_forgotten) = (Record::None, false);
        match (command.record(), command) {
            (None, _) => {}
            (Some(RecordId::Deposit(id)), _) => record = self.copies.deposit(&id).ok_or(Refused::Damaged)?,
            (Some(RecordId::Generation(id)), Command::Capture { .. }) => {
                (record, is_forgotten) = self.captured(account, id)?;
            }
            (Some(RecordId::Generation(id)), _) => record = self.generation(account, id)?,
        }
        let mut last = EntriesBefore::default();
        let key = match command.key() {
            None => None,
            Some(id) => self.copies.key(&id).ok_or(Refused::Damaged)?.map(|balance| {
                last.key = balance.last_entry;
                balance.of
            }),
        };
        // The parent comes after the group.
        let mut groups = last.groups.iter_mut();
        let mut state = State::load(account.money, key, record, |id| {
            let last = groups.next();
            let Some(found) = self.copies.group(&id) else {
                // An earlier command of the batch may have ended the record that the groups were read for.
                self.needs(Slot::Group(id));
                return Err(Refused::Damaged);
            };
            Ok::<_, Refused>(found.map(|Balance { of, last_entry }| {
                if let Some(last) = last {
                    *last = last_entry;
                }
                of
            }))
        })?;
        state.is_forgotten = is_forgotten;
        Ok((state, last))
    }

    /// Finds the record of a captured generation, and whether the store may have dropped it. The record of what was
    /// dropped decides whether it may have been billed before, not a clock.
    fn captured(&mut self, account: &AccountRecord, id: GenerationId) -> Result<(Record, bool), Refused> {
        let record = self.generation(account, id)?;
        if record != Record::None {
            return Ok((record, false));
        }
        self.needs(Slot::Expired(id));
        self.needs(Slot::House);
        if !self.missing.is_empty() {
            return Err(Refused::Damaged);
        }
        let record = self.copies.expired(&Expired(id)).ok_or(Refused::Damaged)?;
        let account = self.account;
        let has_dropped = |house: &mut Option<_>| {
            house.as_ref().is_some_and(|house| dropped::may_have_dropped(house, account, id))
        };
        let is_forgotten = self.copies.change_house(&TheHouse, has_dropped).ok_or(Refused::Damaged)?;
        Ok((record, is_forgotten))
    }

    fn generation(&mut self, account: &AccountRecord, id: GenerationId) -> Result<Record, Refused> {
        let record = self.copies.generation(&id).ok_or(Refused::Damaged)?;
        let is_remembered =
            account.remembers_expiries(self.kept.expired, self.now) || self.copies.expired.has(&Expired(id));
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
        EntryNumbers { before: last, own: number }: EntryNumbers,
    ) {
        if let (Some(id), Some(key)) = (command.key(), after.key) {
            let last_entry = number.unwrap_or(last.key);
            self.copies.set_key(&id, Some(Balance { of: key, last_entry }));
        }
        for (found, last) in after.groups.into_iter().zip(last.groups) {
            let Some((id, group)) = found else { continue };
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

    /// Bills of expiries are stored separately, since they are remembered longer.
    fn write_generation(&mut self, account: &mut AccountRecord, id: GenerationId, record: Record) {
        if let Record::Closed(bill) = &record
            && bill.ending == ledger::Ending::Expired
        {
            account.last_expiry = account.last_expiry.max(Some(bill.at));
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

    /// Adds an entry with this number to the sums of its day. A sum that cannot be read stays unchanged and does not
    /// block the bill.
    fn count(&mut self, added: usage::Added, last_entry: u64) {
        let usage::Added { payer, user, day, hour, counts } = added;
        let of_payer = PayerSum(day, PayerName::of(&payer));
        if !self.copies.payers.has(&of_payer) {
            self.needs(Slot::OfPayer(of_payer.clone()));
        }
        let had_none = self.copies.change_of_payer(&of_payer, |sums| {
            sums.of.add(hour, counts);
            std::mem::replace(&mut sums.last_entry, last_entry) == 0
        });
        if had_none == Some(true) {
            let payers_of = PayersOf(payer.key);
            self.needs(Slot::PayersOf(payers_of));
            let kept = self.kept.usage_days.map(|days| day.plus(-i64::from(days)));
            self.copies.change_payers_of(&payers_of, |payers| payers.list(&of_payer.1, day, kept));
        }
        for (group, keys) in counting_groups(payer.groups) {
            let sum = GroupSum(day, group);
            self.needs(Slot::OfGroup(sum));
            self.copies.change_of_group(&sum, |sums| {
                sums.of.add(&payer.model, keys, hour, counts);
                sums.last_entry = last_entry;
            });
        }
        if let Some(user) = user {
            let sum = UserSum(day, part_of_user(&user));
            self.needs(Slot::OfUsers(sum));
            self.copies.change_of_users(&sum, |sums| {
                sums.of.add(&user, counts.into());
                sums.last_entry = last_entry;
            });
        }
        let of_model = ModelSum(day, payer.model);
        if !self.copies.models.has(&of_model) {
            self.needs(Slot::OfModel(of_model.clone()));
        }
        self.copies.change_of_model(&of_model, |sums| {
            sums.of.add(hour, counts);
            sums.last_entry = last_entry;
        });
    }

    /// Notes that a record without a copy is needed. The commands are decided again once it has been read.
    fn needs(&mut self, slot: Slot) {
        if !self.copies.has(&slot) && !self.missing.contains(&slot) {
            self.missing.push(slot);
        }
    }
}

impl Effects {
    /// Takes the numbers before the batch from the account.
    pub(crate) fn numbered(self, account: &AccountRecord) -> Self {
        Self { numbers: (account.entries, account.events), ..self }
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Adds an event, unless its threshold was reported before. `last` is the number of the account's last event before
    /// the change.
    pub(crate) fn tell(&mut self, copies: &mut Copies, last: u64, ToldOnce { once, event }: ToldOnce) {
        if let Some(name) = once.map(ToldName) {
            copies.told.presume_absent(&name);
            if copies.told(&name) != Some(None) {
                return;
            }
            let number = last + self.events_len() + 1;
            copies.set_told(&name, Some(Told { event: number }));
            self.told.push((number, name.0));
        }
        self.events.push(event);
    }

    pub(crate) fn events_len(&self) -> u64 {
        self.events.len() as u64
    }

    pub(crate) fn written_events(&self) -> Option<WrittenEvents> {
        let at = self.events.last()?.at;
        let bytes = self.events.iter().map(|event| written::size(&event_value(event))).sum();
        Some(WrittenEvents { at, bytes })
    }

    /// Counts the bytes of the events.
    pub(crate) fn weigh_events(&self, copies: &mut Copies) {
        let Some(written) = self.written_events() else { return };
        let Some(kept) = copies.events(&TheEvents) else { return };
        let bytes = kept.bytes.saturating_add(written.bytes);
        copies.set_events(&TheEvents, EventsKept { bytes, ..kept });
    }

    /// Makes the commit of the decisions.
    pub(crate) fn commit(self, copies: &Copies, revision: Revision, kept: Retention) -> Commit {
        let (guards, records) = copies.changes(revision);
        let (entries, events) = self.numbers;
        let mut writes = Vec::with_capacity(records.len() + 8);
        if !self.entries.is_empty() {
            let (first, kept) = (entries + 1, kept.journal_entries);
            writes.push(Write::Append { log: names::JOURNAL, first, values: self.entries, kept });
        }
        if !self.events.is_empty() {
            let (first, values) = (events + 1, self.events.iter().map(event_value).collect());
            writes.push(Write::Append { log: names::EVENTS, first, values, kept: u64::MAX });
        }
        writes.extend(records);
        for (number, event) in (events + 1..).zip(&self.events) {
            let entries = names::events_of(event, number);
            writes.extend(entries.map(|entry| Write::Enter(names::EVENTS_OF, entry)));
            writes.push(Write::Enter(names::EVENT_IDS, names::event_id(event.id, number)));
        }
        let told = self.told.iter().map(|(number, once)| names::told_at(*number, once));
        writes.extend(told.map(|entry| Write::Enter(names::TOLD_AT, entry)));
        let deposited = self.deposits.into_iter().map(|(at, id)| names::deposited(at, id));
        writes.extend(deposited.map(|entry| Write::Enter(names::DEPOSITED, entry)));
        index(copies, &mut writes);
        Commit { guards, writes }
    }
}

/// Encodes an event for the log.
fn event_value(event: &Event) -> Vec<u8> {
    [event.id.as_bytes(), event.to_json().as_bytes()].concat()
}

/// The number of an entry, and the numbers of the entries before it.
struct EntryNumbers {
    before: EntriesBefore,
    /// `None` if the command wrote no entry.
    own: Option<u64>,
}

/// Updates the index entries of changed records.
fn index(copies: &Copies, writes: &mut Vec<Write>) {
    let mut moved = |index, before: Option<Vec<u8>>, after: Option<Vec<u8>>| {
        if before != after {
            writes.extend(before.map(|entry| Write::Leave(index, entry)));
            writes.extend(after.map(|entry| Write::Enter(index, entry)));
        }
    };
    let due = |id, record: &Record| match record {
        Record::Open(hold) => Some(names::due(id, hold)),
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
            | Slot::Events
            | Slot::House
            | Slot::Group(_)
            | Slot::Expired(_)
            | Slot::Deposit(_)
            | Slot::OfPayer(_)
            | Slot::PayersOf(_)
            | Slot::OfModel(_)
            | Slot::OfGroup(_)
            | Slot::OfUsers(_)
            | Slot::Told(_) => {}
        }
    }
}

fn spender(key: &Balance<ledger::Key>, id: KeyId) -> Option<Vec<u8>> {
    names::spender(key.of.budget.used, id)
}
