//! Drops an account's oldest events when events are too old, too many or too large in total.
//!
//! After a commit that writes events, further commits drop old events before the call is answered. If the process dies
//! in between, the account has too many events until its next event is written.

use domain::event::Event;
use records::{Answer, Committed, Failure, Order, Question, Revision, Write};
use shared::{clock::random_bytes, ids::EventId, time::Timestamp};

use crate::{
    batch::written::{ID, WrittenEvents, size},
    kept::EventBounds,
    lanes::lane::{Lane, Lanes},
    names,
    stored::EventsKept,
    view::{OldestEvent, View},
};

/// Maximum number of events that one commit drops: more events than most commits write, so that events do not
/// accumulate.
const DROPPED_AT_ONCE: usize = 64;
/// Maximum number of commits that drop events after a commit that writes events. If more events must be dropped, the
/// account's next event continues.
const MOST_ROUNDS: u32 = 16;
/// The limits that an account's events must meet at one moment.
struct EventsOverBound {
    kept: EventBounds,
    /// Events from before this time are dropped.
    begins: Timestamp,
    /// Number of the last event, which always stays.
    last: u64,
}

/// What a look at the oldest events has found.
struct OldestEvents {
    kept: EventsKept,
    /// The oldest event to keep; `None` if all events that were looked at must be dropped.
    oldest: Option<OldestEvent>,
    /// Events to drop: their numbers, and their values in the log.
    dropped: Vec<(u64, Vec<u8>)>,
}

impl EventsOverBound {
    /// Returns whether to keep the event with this number and time. `bytes` is the total size of this and all later
    /// events.
    fn keep(&self, number: u64, at: Timestamp, bytes: i64) -> bool {
        number >= self.last || at >= self.begins && self.fit(number, bytes)
    }

    fn fit(&self, first: u64, bytes: i64) -> bool {
        self.last.saturating_sub(first) < self.kept.count
            && u64::try_from(bytes).unwrap_or_default() <= self.kept.bytes
    }

    /// Returns `true` if it is certain, without reading any events, that no event must be dropped.
    fn hold(&self, EventsKept { first, bytes }: EventsKept, oldest: Option<OldestEvent>) -> bool {
        let is_young = oldest.is_some_and(|oldest| oldest.number == first && oldest.at >= self.begins);
        first >= self.last || is_young && self.fit(first, bytes)
    }

    /// Finds out which of the oldest events to drop, and which is the first event to keep.
    fn look(&self, kept: EventsKept, values: Vec<(u64, Vec<u8>)>) -> OldestEvents {
        let mut look = OldestEvents { kept, oldest: None, dropped: Vec::new() };
        for (number, value) in values {
            // An event without a readable time counts as the oldest.
            let id = value.get(..ID).and_then(EventId::from_slice);
            let at = id.map_or(Timestamp::from_millis(0), |id| id.created_at());
            look.kept.first = number;
            if self.keep(number, at, look.kept.bytes) {
                look.oldest = Some(OldestEvent { number, at });
                break;
            }
            look.kept.first = number + 1;
            look.kept.bytes = look.kept.bytes.saturating_sub(size(&value)).max(0);
            look.dropped.push((number, value));
        }
        look
    }
}

impl OldestEvents {
    /// Returns the writes that drop the events, except for the write to the record of kept events. `told` has the index
    /// entries of the thresholds that these events reported.
    fn writes(&self, told: &[Vec<u8>]) -> Vec<Write> {
        let mut writes = vec![Write::Trim { log: names::EVENTS, first: self.kept.first }];
        for (number, value) in &self.dropped {
            let (id, json) = value.split_at_checked(ID).unwrap_or_default();
            if let Some(id) = EventId::from_slice(id) {
                writes.push(Write::Leave(names::EVENT_IDS, names::event_id(id, *number)));
            }
            // Some index entries of an unreadable event stay. This is harmless, because readers skip numbers without an
            // event.
            let event = std::str::from_utf8(json).ok().and_then(Event::from_json);
            let entries = event.iter().flat_map(|event| names::events_of(event, *number));
            writes.extend(entries.map(|entry| Write::Leave(names::EVENTS_OF, entry)));
        }
        for entry in told {
            writes.push(Write::Leave(names::TOLD_AT, entry.clone()));
            writes.extend(names::told_name(entry).map(|once| Write::Remove(names::told(once).into())));
        }
        writes
    }
}

impl Lanes {
    /// Drops events beyond the limits after a commit that wrote events. A failure does not change the commit's answer.
    pub(crate) async fn trim(&self, lane: &Lane, view: &mut View, written: WrittenEvents) {
        if let Err(failure) = self.try_trim(lane, view, written).await {
            // The stored events may differ from the copies.
            *view = View::of(&lane.space);
            tracing::warn!(
                account = %lane.account,
                error = %failure,
                "cannot drop an account's old events; the account's next event tries again"
            );
        }
    }

    async fn try_trim(&self, lane: &Lane, view: &mut View, written: WrittenEvents) -> Result<(), Failure> {
        let mut kept = self.kept.events;
        if self.records.is_nearly_full().await.unwrap_or(false) {
            // In a nearly full store, events must not take more space. So the events of changes that are still
            // accepted, such as a revocation, displace the oldest events.
            let events = view.peek(&names::events());
            let bytes = events.map_or(0, |events| events.bytes.saturating_sub(written.bytes));
            kept.bytes = kept.bytes.min(u64::try_from(bytes).unwrap_or_default());
        }
        for _ in 0..MOST_ROUNDS {
            let Some(events) = view.peek(&names::events()).copied() else { return Ok(()) };
            let Some(account) = view.peek(&names::account()) else { return Ok(()) };
            let bounds = EventsOverBound { kept, begins: written.at.minus(kept.life), last: account.events };
            if bounds.hold(events, view.oldest_event) || self.drop_oldest(lane, view, &bounds, events).await?
            {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Drops some of the oldest events. Returns whether there was nothing to drop.
    async fn drop_oldest(
        &self,
        lane: &Lane,
        view: &mut View,
        bounds: &EventsOverBound,
        events: EventsKept,
    ) -> Result<bool, Failure> {
        let (values, mut told) = self.oldest_events(lane, events.first).await?;
        let look = bounds.look(events, values);
        view.oldest_event = look.oldest;
        if look.kept == events {
            return Ok(true);
        }
        told.retain(|entry| names::told_number(entry).is_some_and(|number| number < look.kept.first));
        view.put(&names::events(), look.kept);
        let revision = Revision(random_bytes(&*self.clock));
        match self.records.commit(&lane.space, view.commit(revision, Vec::new(), look.writes(&told))).await? {
            Committed::Written => {
                view.settle(revision);
                for once in told.iter().filter_map(|entry| names::told_name(entry)) {
                    view.forget(&names::told(once));
                }
            }
            Committed::Conflict(present) => view.replace(present),
        }
        Ok(false)
    }

    /// Reads the oldest events, and the index entries of the thresholds that they reported.
    async fn oldest_events(
        &self,
        lane: &Lane,
        first: u64,
    ) -> Result<(Vec<(u64, Vec<u8>)>, Vec<Vec<u8>>), Failure> {
        let (order, limit) = (Order::Ascending, DROPPED_AT_ONCE);
        let to = first.saturating_add(limit as u64 - 1);
        let values = Question::Values { log: names::EVENTS, from: first, to, order, limit };
        let from = first.to_be_bytes().to_vec();
        // An event reports at most one threshold, so the same limit is enough for both.
        let told = Question::Entries { index: names::TOLD_AT, from, to: None, order, limit };
        let answers = self.records.read(&lane.space, vec![values, told]).await?;
        match <[Answer; 2]>::try_from(answers) {
            Ok([Answer::Values(values), Answer::Entries(told)]) => Ok((values, told)),
            Ok(_) | Err(_) => Err(Failure::Damaged("no events in an answer".into())),
        }
    }
}
