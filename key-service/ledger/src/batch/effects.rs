//! What a change writes in addition to records: entries, events and indexes.

use domain::{
    event::Event,
    ledger::{self, Record, Settlement, Told as ToldOnce},
};
use records::{Commit, Revision, Write};
use shared::{
    ids::{DepositId, GenerationId, KeyId},
    stored,
    time::Timestamp,
};

use crate::{
    batch::written::{self, WrittenEvents},
    kept::Retention,
    names,
    stored::{AccountRecord, Balance, EntryRecord, EventsKept, Told},
    view::View,
};

/// Effects of a change in addition to changed records.
#[derive(Default)]
pub(crate) struct Effects {
    /// Numbers of the last entry and the last event before the change.
    numbers: (u64, u64),
    entries: Vec<Vec<u8>>,
    events: Vec<Event>,
    /// Thresholds that the change reports: event number and threshold name.
    told: Vec<(u64, Vec<u8>)>,
    deposits: Vec<(Timestamp, DepositId)>,
}

impl Effects {
    /// Continues the account's numbers of entries and events.
    pub(crate) fn numbered(self, account: &AccountRecord) -> Self {
        Self { numbers: (account.entries, account.events), ..self }
    }

    pub(super) fn entry(&mut self, entry: &EntryRecord<&Settlement>) {
        self.entries.push(stored::write(entry));
    }

    pub(super) const fn entries_len(&self) -> u64 {
        self.entries.len() as u64
    }

    pub(super) fn deposit(&mut self, at: Timestamp, id: DepositId) {
        self.deposits.push((at, id));
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Adds an event, unless its threshold was reported before. `last` is the number of the account's last event before
    /// the change.
    pub(crate) fn tell(&mut self, view: &mut View, last: u64, ToldOnce { once, event }: ToldOnce) {
        if let Some(once) = once {
            let slot = view.find_new(&names::told(&once));
            if !matches!(view.value_at(slot), Ok(None)) {
                return;
            }
            let number = last + self.events_len() + 1;
            view.put_at(slot, Told { event: number });
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

/// Updates the index entries of changed records.
fn index(view: &View, writes: &mut Vec<Write>) {
    let mut moved = |index, before: Option<Vec<u8>>, after: Option<Vec<u8>>| {
        if before != after {
            writes.extend(before.map(|entry| Write::Leave(index, entry)));
            writes.extend(after.map(|entry| Write::Enter(index, entry)));
        }
    };
    for copy in view.touched() {
        if let Some(id) = names::of_generation(&copy.name)
            && let Some((before, after)) = copy.change()
        {
            moved(names::DUE, due(id, before), due(id, after));
        } else if let Some(id) = names::of_key(&copy.name)
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
