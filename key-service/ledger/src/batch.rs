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

use crate::{
    batch::{commands::Commands, missing::need_records, written::WrittenEvents},
    kept::{Retention, dropped},
    names::{self, PayerName, RecordName},
    stored::{AccountRecord, Balance, EntryRecord, EventsKept, Told},
    view::{Stored, View},
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

/// A batch's effects besides changed records.
#[derive(Default)]
pub(crate) struct Effects {
    /// Numbers of the last entry and the last event before the batch.
    numbers: (u64, u64),
    entries: Vec<Vec<u8>>,
    events: Vec<Event>,
    /// Thresholds that the batch reports: event number and threshold name.
    told: Vec<(u64, Vec<u8>)>,
    deposits: Vec<(Timestamp, DepositId)>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(view: &'a mut View, account: AccountId, kept: Retention) -> Self {
        Self { view, account, kept, now: Timestamp::from_millis(0), effects: Effects::default() }
    }

    /// Applies the commands of all calls in order. Returns the outcomes of each call, and what to commit with the
    /// records; `None` if records must be read first.
    pub(crate) fn decide(mut self, calls: &[Commands<'_>]) -> Option<(Vec<Outcomes>, Effects)> {
        self.view.begin();
        need_records(self.view, self.kept, calls);
        if self.view.is_missing_some() {
            return None;
        }
        self.view.has(&names::turn());
        let mut account = match self.view.found(&names::account()) {
            Ok(Some(account)) => *account,
            Ok(None) => return Some((refuse(calls, &Refused::UnknownKey), self.effects)),
            Err(_) => return Some((refuse(calls, &Refused::Damaged), self.effects)),
        };
        self.effects.numbers = (account.entries, account.events);
        let was_ordered = account.money.billed_at.is_some();
        let outcomes = calls.iter().map(|call| self.call(&mut account, *call)).collect();
        if self.view.is_missing_some() {
            return None;
        }
        if !was_ordered && account.entries > 0 {
            // Earlier programs may have written entries out of order.
            account.ordered_since = account.money.billed_at;
        }
        account.entries += self.effects.entries.len() as u64;
        account.events += self.effects.events.len() as u64;
        self.view.put(&names::account(), account);
        self.effects.weigh_events(self.view);
        Some((outcomes, self.effects))
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

    /// Loads the state that a command reads, with the numbers of the last entries of its key and groups.
    fn load(
        &mut self,
        account: &AccountRecord,
        command: &Command,
    ) -> Result<(State, EntriesBefore), Refused> {
        let (mut record, mut is_forgotten) = (Record::None, false);
        match (command.record(), command) {
            (None, _) => {}
            (Some(RecordId::Deposit(id)), _) => record = self.record(&names::deposit(id))?,
            (Some(RecordId::Generation(id)), Command::Capture { .. }) => {
                (record, is_forgotten) = self.captured(account, id)?;
            }
            (Some(RecordId::Generation(id)), _) => record = self.generation(account, id)?,
        }
        let mut last = EntriesBefore::default();
        let key = match command.key() {
            None => None,
            Some(id) => self.find(&names::key(id))?.map(|balance| {
                last.key = balance.last_entry;
                balance.of.clone()
            }),
        };
        // The group comes first, then its parent.
        let mut groups = last.groups.iter_mut();
        let mut state = State::load(account.money, key, record, command.wallet(), |id| {
            let last = groups.next();
            // An earlier command of the batch may have ended the record that the groups were read for.
            Ok::<_, Refused>(self.find(&names::group(id))?.map(|Balance { of, last_entry }| {
                if let Some(last) = last {
                    *last = *last_entry;
                }
                of.clone()
            }))
        })?;
        state.is_forgotten = is_forgotten;
        Ok((state, last))
    }

    /// Finds the record of a captured generation, and whether the store may have dropped it. Whether the generation may
    /// have been billed before depends on the record of dropped sets, not on a clock.
    fn captured(&mut self, account: &AccountRecord, id: GenerationId) -> Result<(Record, bool), Refused> {
        let record = self.generation(account, id)?;
        if record != Record::None {
            return Ok((record, false));
        }
        // Both are requested first, so that one round trip reads them.
        let (record, of) = (self.record(&names::expired(id)), self.account);
        let is_forgotten =
            self.find(&names::house())?.is_some_and(|house| dropped::may_have_dropped(house, of, id));
        Ok((record?, is_forgotten))
    }

    fn generation(&mut self, account: &AccountRecord, id: GenerationId) -> Result<Record, Refused> {
        let (record, expired) = (self.record(&names::generation(id))?, names::expired(id));
        let is_remembered =
            account.remembers_expiries(self.kept.expired, self.now) || self.view.has_copy(&expired);
        if record == Record::None && is_remembered { self.record(&expired) } else { Ok(record) }
    }

    /// Finds the record under an idempotency id. No program writes [`Record::None`].
    fn record(&mut self, name: &RecordName<Record>) -> Result<Record, Refused> {
        match self.find(name)? {
            Some(Record::None) => Err(Refused::Damaged),
            Some(record) => Ok(record.clone()),
            None => Ok(Record::None),
        }
    }

    /// Finds a value. If the record has not been read yet, the commands are decided again.
    fn find<T: Stored>(&mut self, name: &RecordName<T>) -> Result<Option<&T>, Refused> {
        self.view.found(name).map_err(|_| Refused::Damaged)
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
            self.view.put(&names::key(id), Balance { of: key, last_entry });
        }
        for (found, last) in after.groups.into_iter().zip(last.groups) {
            let Some((id, group)) = found else { continue };
            let last_entry = number.unwrap_or(last);
            self.view.put(&names::group(id), Balance { of: group, last_entry });
        }
        if after.record == *before {
            return;
        }
        match command.record() {
            None => {}
            Some(RecordId::Deposit(id)) => {
                self.effects.deposits.push((self.now, id));
                self.view.put(&names::deposit(id), after.record);
            }
            Some(RecordId::Generation(id)) => self.write_generation(account, id, after.record),
        }
    }

    /// Stores bills of expiries separately, since they are remembered longer.
    fn write_generation(&mut self, account: &mut AccountRecord, id: GenerationId, record: Record) {
        let (generation, expired) = (names::generation(id), names::expired(id));
        if let Record::Closed(bill) = &record
            && bill.ending == ledger::Ending::Expired
        {
            account.last_expiry = account.last_expiry.max(Some(bill.at));
            self.view.presume_absent(&expired);
            self.view.put(&expired, record);
            self.view.remove(&generation);
            return;
        }
        if self.view.peek(&expired).is_some() {
            self.view.remove(&expired);
        }
        if record == Record::None {
            self.view.remove(&generation);
        } else {
            self.view.put(&generation, record);
        }
    }

    /// Adds an entry with this number to the sums of its day. A sum that cannot be read stays unchanged and does not
    /// block the bill.
    fn count(&mut self, added: usage::Added, last_entry: u64) {
        let usage::Added { payer, user, day, hour, counts } = added;
        let name = PayerName::of(&payer);
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
            self.view.update(&names::of_users(day, part_of_user(&user)), |sums| {
                sums.of.add(&user, counts.into());
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

impl Effects {
    /// Makes the batch continue the account's numbers of entries and events.
    pub(crate) fn numbered(self, account: &AccountRecord) -> Self {
        Self { numbers: (account.entries, account.events), ..self }
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Adds an event, unless its threshold was reported before. `last` is the number of the account's last event before
    /// the change.
    pub(crate) fn tell(&mut self, view: &mut View, last: u64, ToldOnce { once, event }: ToldOnce) {
        if let Some(once) = once {
            let name = names::told(&once);
            view.presume_absent(&name);
            if !matches!(view.found(&name), Ok(None)) {
                return;
            }
            let number = last + self.events_len() + 1;
            view.put(&name, Told { event: number });
            self.told.push((number, once));
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

    /// Adds the events' bytes to the account's total.
    pub(crate) fn weigh_events(&self, view: &mut View) {
        let Some(written) = self.written_events() else { return };
        let Ok(kept) = view.found(&names::events()) else { return };
        let kept = kept.copied().unwrap_or_default();
        let bytes = kept.bytes.saturating_add(written.bytes);
        view.put(&names::events(), EventsKept { bytes, ..kept });
    }

    /// Builds the commit for the decisions.
    pub(crate) fn commit(self, view: &View, revision: Revision, kept: Retention) -> Commit {
        let (entries, events) = self.numbers;
        let (mut appends, mut writes) = (Vec::new(), Vec::new());
        if !self.entries.is_empty() {
            let (first, kept) = (entries + 1, kept.journal_entries);
            appends.push(Write::Append { log: names::JOURNAL, first, values: self.entries, kept });
        }
        if !self.events.is_empty() {
            let (first, values) = (events + 1, self.events.iter().map(event_value).collect());
            appends.push(Write::Append { log: names::EVENTS, first, values, kept: u64::MAX });
        }
        for (number, event) in (events + 1..).zip(&self.events) {
            let entries = names::events_of(event, number);
            writes.extend(entries.map(|entry| Write::Enter(names::EVENTS_OF, entry)));
            writes.push(Write::Enter(names::EVENT_IDS, names::event_id(event.id, number)));
        }
        let told = self.told.iter().map(|(number, once)| names::told_at(*number, once));
        writes.extend(told.map(|entry| Write::Enter(names::TOLD_AT, entry)));
        let deposited = self.deposits.into_iter().map(|(at, id)| names::deposited(at, id));
        writes.extend(deposited.map(|entry| Write::Enter(names::DEPOSITED, entry)));
        index(view, &mut writes);
        view.commit(revision, appends, writes)
    }
}

/// Encodes an event for the log.
fn event_value(event: &Event) -> Vec<u8> {
    [event.id.as_bytes(), event.to_json().as_bytes()].concat()
}

/// Number of an entry, and the numbers of the entries before it.
struct EntryNumbers {
    before: EntriesBefore,
    /// `None` if the command wrote no entry.
    own: Option<u64>,
}

/// Updates the index entries of changed records.
fn index(view: &View, writes: &mut Vec<Write>) {
    let mut moved = |index, before: Option<Vec<u8>>, after: Option<Vec<u8>>| {
        if before != after {
            writes.extend(before.map(|entry| Write::Leave(index, entry)));
            writes.extend(after.map(|entry| Write::Enter(index, entry)));
        }
    };
    for (name, copy) in view.touched() {
        if let Some(id) = names::of_generation(name)
            && let Some((before, after)) = copy.change()
        {
            moved(names::DUE, due(id, before), due(id, after));
        } else if let Some(id) = names::of_key(name)
            && let Some((Some(before), Some(after))) = copy.change()
        {
            moved(names::SPENDERS, spender(before, id), spender(after, id));
        }
    }
}

fn due(id: GenerationId, record: Option<&Record>) -> Option<Vec<u8>> {
    match record {
        Some(Record::Open(hold)) => Some(names::due(id, hold)),
        Some(Record::None | Record::Closed(_) | Record::Deposited(_)) | None => None,
    }
}

fn spender(key: &Balance<ledger::Key>, id: KeyId) -> Option<Vec<u8>> {
    names::spender(key.of.budget.used, id)
}
