//! Events of accounts. Each account numbers its events and keeps them within
//! [`EventBounds`](key_service_ledger::EventBounds).

use key_service_ledger::{
    StoreError, names,
    stored::{EventsKept, Told},
};
use records::{Answer, Question, Space};
use shared::ids::{AccountId, EventId, KeyId};

use crate::{
    data::{EventSlice, EventsPage, Found, NumberedEvent, Order},
    store::{
        base::{Store, no_answer, value},
        books::search::{READ_AT_ONCE, Scan},
        layout,
    },
};
use domain::event::{Event, EventSearch};

/// Length in bytes of the event's id, which precedes its JSON in the log.
const ID: usize = 16;

/// Maximum number of events that are read for a page of matches: about 10 ms of work.
const MOST_READ: usize = 2_000;

/// Which event numbers to read.
#[derive(Clone, Copy)]
struct Range {
    from: u64,
    to: u64,
    order: records::Order,
    limit: usize,
}

impl Store {
    /// Finds matching events. Events of a key or group are found by an index. Only a limited number of events is read,
    /// so the page may end before it is full.
    pub async fn events(
        &self,
        account: AccountId,
        search: EventSearch,
        EventSlice { order, behind, limit }: EventSlice,
    ) -> Result<Found<NumberedEvent, u64>, StoreError> {
        let space = layout::space(account);
        let kept = self.read().get::<EventsKept>(&space, names::events()).await?;
        let first = kept.map_or(1, |kept| kept.first);
        // One event more than fits on the page is read, to see whether there are more.
        let at_once = if search.is_whole() { limit.min(READ_AT_ONCE) + 1 } else { READ_AT_ONCE };
        let mut scan = Scan::new(behind, limit).reading(MOST_READ);
        while scan.goes_on() {
            let range = Range::behind(scan.place(), order, first, at_once);
            let events = match search.subject() {
                Some(subject) => self.events_of(&space, subject, range).await?,
                None => self.events_of_all(&space, range).await?,
            };
            let matching = |(number, event): (u64, Option<NumberedEvent>)| {
                (number, event.filter(|event| search.matches(&event.event)))
            };
            scan.add(events.into_iter().map(matching), at_once);
        }
        Ok(scan.page())
    }

    /// Reads at most `limit` events of the account after number `after`, in order. Numbers start at one and have no
    /// gaps, in the order in which events were written.
    pub async fn events_after(
        &self,
        account: AccountId,
        after: u64,
        limit: usize,
    ) -> Result<EventsPage, StoreError> {
        let space = layout::space(account);
        let mut from = after.saturating_add(1);
        loop {
            let (log, order) = (names::EVENTS, records::Order::Ascending);
            let to = from.saturating_add(limit as u64).saturating_sub(1);
            let questions = vec![
                Question::Records(vec![names::events().into()]),
                Question::Values { log, from, to, order, limit },
            ];
            let answers = self.read().ask(&space, questions).await?;
            let Ok([Answer::Records(kept), Answer::Values(values)]) = <[Answer; 2]>::try_from(answers) else {
                return Err(no_answer());
            };
            let kept = kept.into_iter().next().flatten();
            let kept: Option<EventsKept> = kept.as_ref().map(value).transpose()?;
            let first = kept.map_or(1, |kept| kept.first);
            // The log may still contain values of events that no longer count as kept.
            if from < first {
                from = first;
                continue;
            }
            let events = values.into_iter().map(|(number, value)| event(number, &value));
            let events = events.collect::<Result<_, _>>()?;
            return Ok(EventsPage { events, gone_until: first.saturating_sub(1) });
        }
    }

    /// Returns for each of these names of thresholds whether there is a kept event that reports the threshold.
    pub async fn are_told(&self, account: AccountId, names: Vec<Vec<u8>>) -> Result<Vec<bool>, StoreError> {
        let names = names.iter().map(|name| names::told(name)).collect();
        let told = self.read().get_all::<Told>(&layout::space(account), names).await?;
        Ok(told.into_iter().map(|told| told.is_some()).collect())
    }

    /// Lists the keys to which the latest `limit` reported thresholds belong, newest first. Thresholds of groups and
    /// accounts are left out.
    pub async fn last_told_keys(&self, account: AccountId, limit: usize) -> Result<Vec<KeyId>, StoreError> {
        let (space, all) = (layout::space(account), (Vec::new(), None));
        let entries =
            self.read().entries(&space, names::TOLD_AT, all, records::Order::Descending, limit).await?;
        let mut keys = Vec::new();
        for entry in entries {
            // The name begins with the id of a key, a group or an account.
            let holder = names::told_name(&entry).and_then(|name| KeyId::from_slice(name.get(..16)?));
            keys.extend(holder.filter(|holder| !keys.contains(holder)));
        }
        Ok(keys)
    }

    /// Returns the number of an event; `None` if it is not kept.
    pub async fn event_number(&self, account: AccountId, id: EventId) -> Result<Option<u64>, StoreError> {
        let range = (id.as_bytes().to_vec(), layout::behind(id.as_bytes()));
        let space = layout::space(account);
        let entries =
            self.read().entries(&space, names::EVENT_IDS, range, records::Order::Descending, 1).await?;
        Ok(entries.first().and_then(|entry| names::event_number(entry)))
    }

    /// Uses the index to read the events of a key or group. An event that was dropped in the meantime is `None`.
    async fn events_of(
        &self,
        space: &Space,
        subject: &[u8; 16],
        Range { from, to, order, limit }: Range,
    ) -> Result<Vec<(u64, Option<NumberedEvent>)>, StoreError> {
        let range = (names::event_of(subject, from), Some(names::event_of(subject, to.saturating_add(1))));
        let entries = self.read().entries(space, names::EVENTS_OF, range, order, limit).await?;
        let numbers: Vec<u64> = entries.iter().filter_map(|entry| names::event_number(entry)).collect();
        let value = |number: &u64| Question::Values {
            log: names::EVENTS,
            from: *number,
            to: *number,
            order: records::Order::Ascending,
            limit: 1,
        };
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let answers = self.read().ask(space, numbers.iter().map(value).collect()).await?;
        let event = |(number, answer): (u64, Answer)| match answer {
            Answer::Values(values) => {
                let event = values.first().map(|(_, value)| event(number, value)).transpose()?;
                Ok((number, event))
            }
            Answer::Records(_) | Answer::Set(..) | Answer::Entries(_) => Err(no_answer()),
        };
        numbers.into_iter().zip(answers).map(event).collect()
    }

    /// Reads events of all subjects, without an index.
    async fn events_of_all(
        &self,
        space: &Space,
        Range { from, to, order, limit }: Range,
    ) -> Result<Vec<(u64, Option<NumberedEvent>)>, StoreError> {
        // Numbers have no gaps, so this range contains exactly the wanted number of events.
        let (from, to) = match order {
            records::Order::Ascending => (from, to.min(from.saturating_add(limit as u64).saturating_sub(1))),
            records::Order::Descending if to < u64::MAX => {
                (from.max(to.saturating_sub(limit as u64).saturating_add(1)), to)
            }
            records::Order::Descending => (from, to),
        };
        let values = self.read().values(space, names::EVENTS, from..=to, order, limit).await?;
        values.into_iter().map(|(number, value)| Ok((number, Some(event(number, &value)?)))).collect()
    }
}

impl Range {
    /// Returns the numbers of events after a position, without numbers below the number of the first kept event.
    fn behind(place: Option<u64>, order: Order, first: u64, limit: usize) -> Self {
        match (order, place) {
            (Order::Ascending, place) => {
                let from = place.unwrap_or(0).saturating_add(1).max(first);
                Self { from, to: u64::MAX, order: records::Order::Ascending, limit }
            }
            (Order::Descending, place) => {
                let to = place.map_or(u64::MAX, |place| place.saturating_sub(1));
                Self { from: first, to, order: records::Order::Descending, limit }
            }
        }
    }
}

/// Decodes an event from the log.
pub(crate) fn event(number: u64, value: &[u8]) -> Result<NumberedEvent, StoreError> {
    let json = value.get(ID..).and_then(|json| std::str::from_utf8(json).ok());
    let event = json.and_then(Event::from_json);
    let event = event.ok_or_else(|| StoreError::Damaged(format!("event {number} cannot be read")))?;
    Ok(NumberedEvent { number, event })
}
