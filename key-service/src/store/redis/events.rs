//! Events: a stream, and the number of each by its id.

use async_trait::async_trait;
use redis::cmd;
use shared::{
    ids::{AccountId, EventId, GroupId, KeyId},
    time::Timestamp,
};

use super::{
    Redis,
    records::{Reader, damaged},
    script::Arguments,
};
use crate::store::{
    Events, EventsPage, Found, NumberedEvent, StoreError,
    search::{READ_AT_ONCE, Scan},
};
use domain::{
    event::{Act, Event, EventSearch, MoneyBound, Threshold},
    ledger::{Holder, Passed},
};

/// An entry of the stream: its id, and names and values of its fields.
type Entry = (String, Vec<(String, Vec<u8>)>);

#[async_trait]
impl Events for Redis {
    async fn events(
        &self,
        account: AccountId,
        search: EventSearch,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Found<NumberedEvent, u64>, StoreError> {
        let mut scan = Scan::new(before, limit);
        while scan.goes_on() {
            let mut question = cmd("XREVRANGE");
            question.arg(self.key_space.events(account));
            question
                .arg(scan.place().map_or_else(|| "+".to_owned(), |before| format!("({before}-0")))
                .arg("-");
            let events = numbered(self.client.ask(question.arg("COUNT").arg(READ_AT_ONCE)).await?)?;
            let matching =
                |event: NumberedEvent| (event.number, search.matches(&event.event).then_some(event));
            scan.add(events.into_iter().map(matching), READ_AT_ONCE);
        }
        Ok(scan.page())
    }

    async fn events_after(
        &self,
        account: AccountId,
        after: u64,
        limit: usize,
    ) -> Result<EventsPage, StoreError> {
        let events = self.key_space.events(account);
        let mut question = cmd("XRANGE");
        question.arg(&events).arg(format!("({after}")).arg("+").arg("COUNT").arg(limit);
        let page = numbered(self.client.ask(&question).await?)?;
        let mut first = cmd("XRANGE");
        let first =
            numbered(self.client.ask(first.arg(&events).arg("-").arg("+").arg("COUNT").arg(1)).await?)?;
        Ok(EventsPage { events: page, gone_until: first.first().map_or(0, |event| event.number - 1) })
    }

    async fn event_number(&self, account: AccountId, id: EventId) -> Result<Option<u64>, StoreError> {
        let mut question = cmd("HGET");
        question.arg(self.key_space.event_numbers(account)).arg(id.as_bytes());
        Ok(self.client.ask(&question).await?)
    }
}

impl Redis {
    /// Adds the arguments of `scripts/events.lua`: the event of an act, if the act changes something.
    pub(super) fn with_event(
        &self,
        mut arguments: Arguments,
        account: AccountId,
        event: Option<&Event>,
    ) -> Arguments {
        arguments.key(self.key_space.events(account));
        arguments.key(self.key_space.event_numbers(account));
        let id = event.map_or_else(Vec::new, |event| event.id.as_bytes().to_vec());
        let arguments = arguments.with(event.map_or_else(String::new, Event::to_json)).with(id);
        arguments.with(event.map_or(0, |event| self.events_begin(event.at)).to_string())
    }

    /// Adds the arguments of `scripts/events.lua` for an act whose events are among the other arguments.
    pub(super) fn with_act(&self, mut arguments: Arguments, account: AccountId, act: &Act) -> Arguments {
        arguments.key(self.key_space.events(account));
        arguments.key(self.key_space.event_numbers(account));
        arguments.with("").with("").with(self.events_begin(act.at).to_string())
    }

    /// Time in milliseconds before which events are dropped.
    fn events_begin(&self, now: Timestamp) -> i64 {
        now.minus(self.kept.events).millis()
    }
}

fn numbered(entries: Vec<Entry>) -> Result<Vec<NumberedEvent>, StoreError> {
    let event = |(id, fields): Entry| {
        let number = id.split_once('-').and_then(|(number, _)| number.parse().ok());
        let event = fields.iter().find_map(|(name, value)| match name.as_str() {
            "event" => Event::from_json(std::str::from_utf8(value).ok()?),
            "threshold" => threshold(value),
            _ => None,
        });
        number
            .zip(event)
            .map(|(number, event)| NumberedEvent { number, event })
            .ok_or_else(|| damaged("an event"))
    };
    entries.into_iter().map(event).collect()
}

/// Reads a threshold, as `scripts/ledger/thresholds.lua` writes it.
fn threshold(record: &[u8]) -> Option<Event> {
    let mut reader = Reader(record);
    let [holder] = reader.bytes()?;
    let (amount, used, at) = (reader.money()?, reader.money()?, reader.time()?);
    let [bound, percent] = reader.bytes()?;
    let id: [u8; 16] = reader.bytes()?;
    let holder = match holder {
        1 => Holder::Key(KeyId::from_slice(&id)?, GroupId::from_slice(reader.0)),
        2 => Holder::Group(GroupId::from_slice(&id)?),
        3 => Holder::Account(AccountId::from_slice(&id)?),
        _ => return None,
    };
    let bound = *MoneyBound::ALL.get(usize::from(bound))?;
    let threshold = Threshold { bound, percent, amount, used };
    Passed { holder, start: at, threshold }.event(at)
}
