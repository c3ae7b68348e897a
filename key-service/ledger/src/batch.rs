//! Decides calls of an account together, over copies of its records.

pub(crate) mod commands;
pub(crate) mod effects;
mod missing;
pub(crate) mod written;

use domain::{
    ledger::{self, CallEvents, Command, Ending, EntriesBefore, Outcome, Record, RecordId, Refused, State},
    usage::{self, counting_groups, part_of_user},
};
use shared::{
    ids::{AccountId, GenerationId},
    time::Timestamp,
};

use crate::{
    batch::{commands::Commands, effects::Effects, missing::need_records},
    kept::{Retention, dropped},
    names::{self, PayerName, RecordName},
    stored::{AccountRecord, Balance, EntryRecord},
    view::{Slot, Stored, View},
};

/// Outcomes of a call's commands.
pub type Outcomes = Vec<Result<Outcome, Refused>>;

pub(crate) struct Batch<'a> {
    view: &'a mut View,
    account: AccountId,
    kept: Retention,
    /// Time of the current call.
    now: Timestamp,
    effects: Effects,
}

/// What a command reads: the state, the numbers of the last entries, and where the view keeps the records.
struct Loaded {
    state: State,
    /// Numbers of the last entries of the command's key and groups.
    entries: EntriesBefore,
    slots: Slots,
}

/// Where the view keeps what a command reads, so that changes need not look it up again.
#[derive(Default)]
struct Slots {
    key: Option<Slot<Balance<ledger::Key>>>,
    /// The group comes first, then its parent.
    groups: [Option<Slot<Balance<ledger::Group>>>; 2],
    /// The deposit or generation.
    record: Option<Slot<Record>>,
    /// The bill of an expiry, if this is the generation's record.
    expired: Option<Slot<Record>>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(view: &'a mut View, account: AccountId, kept: Retention) -> Self {
        Self { view, account, kept, now: Timestamp::from_millis(0), effects: Effects::default() }
    }

    /// Applies the commands of all calls in order. Returns the outcomes of each call, and what to commit with the
    /// records; `None` if records must be read first.
    pub(crate) fn decide(mut self, calls: &[Commands<'_>]) -> Option<(Vec<Outcomes>, Effects)> {
        self.view.begin();
        let outcomes = self.outcomes(calls);
        if self.view.is_missing_some() {
            need_records(self.view, self.kept, calls);
            return None;
        }
        Some((outcomes, self.effects))
    }

    fn outcomes(&mut self, calls: &[Commands<'_>]) -> Vec<Outcomes> {
        self.view.has(&names::turn());
        let mut account = match self.view.found(&names::account()) {
            Ok(Some(account)) => *account,
            Ok(None) => return refuse(calls, &Refused::UnknownKey),
            Err(_) => return refuse(calls, &Refused::Damaged),
        };
        self.effects = Effects::default().numbered(&account);
        let was_ordered = account.money.billed_at.is_some();
        let outcomes = calls.iter().map(|call| self.call(&mut account, *call)).collect();
        if !was_ordered && account.entries > 0 {
            // Earlier programs may have written entries out of order.
            account.ordered_since = account.money.billed_at;
        }
        account.entries += self.effects.entries_len();
        account.events += self.effects.events_len();
        self.view.put(&names::account(), account);
        self.effects.weigh_events(self.view);
        outcomes
    }

    fn call(&mut self, account: &mut AccountRecord, Commands { all, now }: Commands<'_>) -> Outcomes {
        self.now = now;
        let mut events = CallEvents::new(self.account, &account.money, now);
        let outcomes = all.iter().map(|command| self.apply(account, command, &mut events)).collect();
        for told in events.finish(&account.money) {
            self.view.need(&names::events());
            self.effects.tell(self.view, account.events, told);
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
        let loaded = self.load(account, command)?;
        let before = &loaded.state;
        let (after, outcome) = ledger::apply(before.clone(), command, self.now)
            .inspect_err(|refused| events.refused(command, before, refused))?;
        events.applied(command, before, &after);
        let entry = ledger::entry(&before.record, &after);
        let mut number = None;
        if let (Some(RecordId::Generation(id)), Some(entry)) = (command.record(), &entry) {
            let last_entry = account.entries + self.effects.entries_len() + 1;
            let mut written = EntryRecord::of(id, entry, loaded.entries);
            if after.account.billed_at < account.money.billed_at {
                written.went_back = std::mem::replace(&mut account.went_back, last_entry);
            }
            self.effects.entry(&written);
            number = Some(last_entry);
            self.count(&usage::added(&before.record, entry), last_entry);
        }
        account.money = after.account;
        self.write(account, command, &loaded, after, number);
        Ok(outcome)
    }

    /// Loads what a command reads.
    fn load(&mut self, account: &AccountRecord, command: &Command) -> Result<Loaded, Refused> {
        let (mut slots, mut entries) = (Slots::default(), EntriesBefore::default());
        let (mut record, mut is_forgotten) = (Record::None, false);
        match command.record() {
            None => {}
            Some(RecordId::Deposit(id)) => {
                let slot = self.view.find_new(&names::deposit(id));
                record = self.record(slot)?;
                slots.record = Some(slot);
            }
            Some(RecordId::Generation(id)) => {
                (record, is_forgotten) = self.generation(account, command, id, &mut slots)?;
            }
        }
        let mut key = None;
        if let Some(id) = command.key() {
            let slot = self.slot(&names::key(id))?;
            slots.key = Some(slot);
            if let Some(balance) = self.value(slot)? {
                entries.key = balance.last_entry;
                key = Some(balance.of.clone());
            }
        }
        let mut groups = slots.groups.iter_mut().zip(&mut entries.groups);
        let mut state = State::load(account.money, key, record, command.wallet(), |id| {
            let place = groups.next();
            // An earlier command of the batch may have ended the record that the groups were read for.
            let slot = self.slot(&names::group(id))?;
            Ok::<_, Refused>(self.value(slot)?.map(|Balance { of, last_entry }| {
                if let Some((found, last)) = place {
                    *found = Some(slot);
                    *last = *last_entry;
                }
                of.clone()
            }))
        })?;
        state.is_forgotten = is_forgotten;
        Ok(Loaded { state, entries, slots })
    }

    /// Finds a generation's record, and whether the store may have dropped it before a capture. Whether the generation
    /// may have been billed before depends on the record of dropped sets, not on a clock.
    fn generation(
        &mut self,
        account: &AccountRecord,
        command: &Command,
        id: GenerationId,
        slots: &mut Slots,
    ) -> Result<(Record, bool), Refused> {
        let is_capture = matches!(command, Command::Capture { .. });
        let slot = self.slot_for(command, &names::generation(id))?;
        slots.record = Some(slot);
        let (record, expired) = (self.record(slot)?, names::expired(id));
        if record != Record::None {
            return Ok((record, false));
        }
        let is_remembered =
            account.remembers_expiries(self.kept.expired, self.now) || self.view.has_copy(&expired);
        if !is_remembered && !is_capture {
            return Ok((Record::None, false));
        }
        // Both are requested first, so that one round trip reads them.
        let (expired, of) = (self.slot_for(command, &expired), self.account);
        let is_forgotten = is_capture
            && self
                .view
                .found(&names::house())
                .map_err(|_| Refused::Damaged)?
                .is_some_and(|house| dropped::may_have_dropped(house, of, id));
        let slot = expired?;
        let record = self.record(slot)?;
        slots.expired = (record != Record::None).then_some(slot);
        Ok((record, is_forgotten))
    }

    /// Finds the record of a command's generation. For a hold, assumes that there is no record; if there is one, the
    /// commit fails.
    fn slot_for(&mut self, command: &Command, name: &RecordName<Record>) -> Result<Slot<Record>, Refused> {
        if let Command::Hold(_) = command { Ok(self.view.find_new(name)) } else { self.slot(name) }
    }

    /// Reads the record under an idempotency id. No program writes [`Record::None`].
    fn record(&mut self, slot: Slot<Record>) -> Result<Record, Refused> {
        match self.value(slot)? {
            Some(Record::None) => Err(Refused::Damaged),
            Some(record) => Ok(record.clone()),
            None => Ok(Record::None),
        }
    }

    /// Finds a record. If it has not been read yet, the commands are decided again.
    fn slot<T>(&mut self, name: &RecordName<T>) -> Result<Slot<T>, Refused> {
        self.view.find(name).ok_or(Refused::Damaged)
    }

    fn value<T: Stored>(&mut self, slot: Slot<T>) -> Result<Option<&T>, Refused> {
        self.view.value_at(slot).map_err(|_| Refused::Damaged)
    }

    /// Writes what a command has changed. `number` is the number of its entry, if it wrote one.
    fn write(
        &mut self,
        account: &mut AccountRecord,
        command: &Command,
        Loaded { state: before, entries, slots }: &Loaded,
        after: State,
        number: Option<u64>,
    ) {
        if let (Some(of), Some(slot)) = (after.key, slots.key) {
            let last_entry = number.unwrap_or(entries.key);
            self.view.put_at(slot, Balance { of, last_entry });
        }
        for ((group, slot), last) in after.groups.into_iter().zip(slots.groups).zip(entries.groups) {
            let (Some((_, of)), Some(slot)) = (group, slot) else { continue };
            let last_entry = number.unwrap_or(last);
            self.view.put_at(slot, Balance { of, last_entry });
        }
        let Some(slot) = slots.record.filter(|_| after.record != before.record) else { return };
        match command.record() {
            None => {}
            Some(RecordId::Deposit(id)) => {
                self.effects.deposit(self.now, id);
                self.view.put_at(slot, after.record);
            }
            Some(RecordId::Generation(id)) => {
                if let Some(expired) = slots.expired {
                    self.view.remove_at(expired);
                }
                self.write_generation(account, id, slot, after.record);
            }
        }
    }

    /// Stores bills of expiries separately, since they are remembered longer.
    fn write_generation(
        &mut self,
        account: &mut AccountRecord,
        id: GenerationId,
        slot: Slot<Record>,
        record: Record,
    ) {
        if let Record::Closed(bill) = &record
            && bill.ending == Ending::Expired
        {
            account.last_expiry = account.last_expiry.max(Some(bill.at));
            let expired = self.view.find_new(&names::expired(id));
            self.view.put_at(expired, record);
            self.view.remove_at(slot);
        } else if record == Record::None {
            self.view.remove_at(slot);
        } else {
            self.view.put_at(slot, record);
        }
    }

    /// Adds an entry with this number to the sums of its day. A sum that cannot be read stays unchanged and does not
    /// block the bill.
    fn count(&mut self, added: &usage::Added<'_>, last_entry: u64) {
        let usage::Added { payer, user, day, hour, counts } = *added;
        let name = PayerName::of(payer);
        let had_none = self.view.update(&names::of_payer(day, &name), |sums| {
            sums.of.add(hour, counts);
            std::mem::replace(&mut sums.last_entry, last_entry) == 0
        });
        if had_none == Some(true) {
            let kept = self.kept.usage_days.map(|days| day.plus(-i64::from(days)));
            self.view.update(&names::payers(payer.key), |payers| payers.list(&name, day, kept));
        }
        for (group, keys) in counting_groups(payer.groups) {
            self.view.update(&names::of_group(day, group), |sums| {
                sums.of.add(&payer.model, keys, hour, counts);
                sums.last_entry = last_entry;
            });
        }
        if let Some(user) = user {
            self.view.update(&names::of_users(day, part_of_user(user)), |sums| {
                sums.of.add(user, counts.into());
                sums.last_entry = last_entry;
            });
        }
        self.view.update(&names::of_model(day, &payer.model), |sums| {
            sums.of.add(hour, counts);
            sums.last_entry = last_entry;
        });
    }
}

fn refuse(calls: &[Commands<'_>], refused: &Refused) -> Vec<Outcomes> {
    calls.iter().map(|call| call.all.iter().map(|_| Err(refused.clone())).collect()).collect()
}
