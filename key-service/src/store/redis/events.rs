//! Events: a stream, the numbers of events by their ids, and an index by key and group.
//!
//! Scripts write the stream, the numbers and the index together, and drop an event from all of them. What a version without
//! the index has left is added to it by the first search for events of a key or a group (`scripts/find_events.lua`).

use async_trait::async_trait;
use redis::cmd;
use shared::{
    ids::{AccountId, EventId, GroupId, KeyId},
    time::Timestamp,
};

use super::{
    Redis,
    records::{Reader, damaged, double},
    script::Arguments,
};
use crate::store::{
    EventBounds, EventSlice, Events, EventsPage, Found, NumberedEvent, Order, StoreError,
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
        EventSlice { order, behind, limit }: EventSlice,
    ) -> Result<Found<NumberedEvent, u64>, StoreError> {
        // An event more than wanted shows that there are more.
        let at_once = if search.kind.is_none() { limit.min(READ_AT_ONCE) + 1 } else { READ_AT_ONCE };
        let mut scan = Scan::new(behind, limit);
        while scan.goes_on() {
            let slice = EventSlice { order, behind: scan.place(), limit: at_once };
            let events = match search.subject() {
                Some(subject) => self.events_of(account, subject, slice).await?,
                None => self.events_of_all(account, slice).await?,
            };
            let matching =
                |event: NumberedEvent| (event.number, search.matches(&event.event).then_some(event));
            scan.add(events.into_iter().map(matching), at_once);
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

    async fn are_told(&self, account: AccountId, names: Vec<Vec<u8>>) -> Result<Vec<bool>, StoreError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut question = cmd("HMGET");
        question.arg(self.key_space.event_numbers(account)).arg(names);
        let numbers: Vec<Option<u64>> = self.client.ask(&question).await?;
        Ok(numbers.into_iter().map(|number| number.is_some()).collect())
    }

    async fn event_number(&self, account: AccountId, id: EventId) -> Result<Option<u64>, StoreError> {
        let mut question = cmd("HGET");
        question.arg(self.key_space.event_numbers(account)).arg(id.as_bytes());
        Ok(self.client.ask(&question).await?)
    }
}

impl Redis {
    /// Reads events of any subject.
    async fn events_of_all(
        &self,
        account: AccountId,
        EventSlice { order, behind, limit }: EventSlice,
    ) -> Result<Vec<NumberedEvent>, StoreError> {
        let (name, first, last) = match order {
            Order::Ascending => ("XRANGE", "-", "+"),
            Order::Descending => ("XREVRANGE", "+", "-"),
        };
        let first = behind.map_or_else(|| first.to_owned(), |behind| format!("({behind}-0"));
        let mut question = cmd(name);
        question.arg(self.key_space.events(account)).arg(first).arg(last).arg("COUNT").arg(limit);
        numbered(self.client.ask(&question).await?)
    }

    /// Reads events of a key or a group by the index. An index that is not complete gets complete first: some hundred
    /// milliseconds for ten thousand events.
    async fn events_of(
        &self,
        account: AccountId,
        subject: &[u8; 16],
        EventSlice { order, behind, limit }: EventSlice,
    ) -> Result<Vec<NumberedEvent>, StoreError> {
        let entry = |number: u64| [b"(", subject.as_slice(), &number.to_be_bytes()[2..]].concat();
        let mut arguments = Arguments::keys(self.key_space.all_events(account));
        arguments = match order {
            Order::Ascending => {
                arguments.with(entry(behind.unwrap_or(0))).with(entry(u64::MAX)).with("BYLEX")
            }
            Order::Descending => {
                let first = entry(behind.unwrap_or(u64::MAX));
                arguments.with(first).with(entry(0)).with("BYLEX").with("REV")
            }
        };
        let arguments = arguments.with("LIMIT").with("0").with(limit.to_string());
        loop {
            let events: Option<Vec<Entry>> = self.client.run(&self.scripts.find_events, &arguments).await?;
            if let Some(events) = events {
                return numbered(events);
            }
        }
    }

    /// Adds the arguments of `scripts/events.lua`: the event of an act, if the act changes something.
    pub(super) fn with_event(
        &self,
        arguments: Arguments,
        account: AccountId,
        event: Option<&Event>,
    ) -> Arguments {
        let id = event.map_or_else(Vec::new, |event| event.id.as_bytes().to_vec());
        let arguments = self.with_events(arguments, account);
        let arguments = arguments.with(event.map_or_else(String::new, Event::to_json)).with(id);
        arguments.with(event.map_or_else(Vec::new, |event| self.event_bounds(event.at)))
    }

    /// Adds the arguments of `scripts/events.lua` for an act whose events are among the other arguments.
    pub(super) fn with_act(&self, arguments: Arguments, account: AccountId, act: &Act) -> Arguments {
        let arguments = self.with_events(arguments, account);
        arguments.with("").with("").with(self.event_bounds(act.at))
    }

    fn with_events(&self, mut arguments: Arguments, account: AccountId) -> Arguments {
        for name in self.key_space.all_events(account) {
            arguments.key(name);
        }
        arguments
    }

    /// Bounds of events, as `scripts/act_arguments.lua` has them. In a store that was nearly full at the last look, the
    /// events of an account grow no more: what is not refused there, such as revocations, replaces the oldest.
    pub(super) fn event_bounds(&self, now: Timestamp) -> Vec<u8> {
        let EventBounds { life, count, bytes } = self.kept.events;
        let most = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let is_nearly_full = i64::from(self.memory.was_nearly_full());
        let numbers = [now.minus(life).millis(), most(count), most(bytes), is_nearly_full];
        numbers.into_iter().flat_map(double).collect()
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
