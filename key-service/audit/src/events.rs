//! Events and thresholds, compared with their indexes.

use std::collections::HashSet;

use domain::{
    audit::{Auditor, Figure, Quantity, Stored},
    event::Event,
};
use key_service_ledger::{
    StoreError, names,
    reading::{no_answer, value},
    stored::{AccountRecord, EventsKept, Told},
};
use records::{Answer, Cursor, Index, Order, Question, Set, Space};
use shared::ids::EventId;

use crate::{bounds::AT_ONCE, reading::Books};

/// Length of an event's id in bytes. In the log, the id precedes the event's JSON.
const ID: usize = 16;
/// Indexes of events and of thresholds.
const INDEXES: [Index; 3] = [names::EVENT_IDS, names::EVENTS_OF, names::TOLD_AT];

/// The indexes, all as of one moment.
struct EventIndexes {
    /// Number of the first event that is still kept.
    first: u64,
    last: u64,
    entries: [HashSet<Vec<u8>>; 3],
}

impl Books<'_> {
    /// Compares events and reported thresholds with their indexes. Ignores events that are dropped meanwhile.
    pub(super) async fn prove_events(&self, space: &Space, auditor: &mut Auditor) -> Result<(), StoreError> {
        let mut indexes = self.event_indexes(space).await?;
        let mut thresholds = indexes.entries[2].clone();
        let (events, unlisted) = self.read_events(space, &mut indexes).await?;
        let untold = self.read_thresholds(space, indexes.last, &mut thresholds).await?;
        // Read last, so that events dropped in the meantime are ignored.
        let first = self.first_event(space).await?;
        let kept = |number: &u64| (first..=indexes.last).contains(number);
        for number in unlisted.into_iter().filter(kept) {
            auditor.missing(Stored::Event(number));
        }
        let expected = (indexes.last + 1).saturating_sub(first.max(1));
        let found = events.iter().filter(|number| kept(number)).count() as u64;
        auditor.quantity(Figure::Events, Quantity::Count(expected), Quantity::Count(found));
        let [ids, subjects, _] = &indexes.entries;
        let extra = ids.iter().chain(subjects).filter_map(|entry| names::event_number(entry));
        for number in extra.filter(|number| *number < indexes.first || *number >= first) {
            auditor.unfounded(Stored::Event(number));
        }
        for number in untold.into_iter().filter(|number| *number >= first) {
            auditor.missing(Stored::Threshold(number));
        }
        let extra = thresholds.iter().filter_map(|entry| names::told_number(entry));
        for number in extra.filter(|number| *number < indexes.first || *number >= first) {
            auditor.unfounded(Stored::Threshold(number));
        }
        Ok(())
    }

    async fn event_indexes(&self, space: &Space) -> Result<EventIndexes, StoreError> {
        let [ids, subjects, told] = INDEXES.map(Question::whole);
        let records = Question::Records(vec![names::account().into(), names::events().into()]);
        let answers = self.read().ask(space, vec![records, ids, subjects, told]).await?;
        let answers: [Answer; 4] = answers.try_into().map_err(|_| no_answer())?;
        let [
            Answer::Records(records),
            Answer::Entries(ids),
            Answer::Entries(subjects),
            Answer::Entries(told),
        ] = answers
        else {
            return Err(no_answer());
        };
        let [account, kept] = &records[..] else { return Err(no_answer()) };
        let account = account.as_ref().map(value::<AccountRecord>).transpose()?.unwrap_or_default();
        let kept = kept.as_ref().map(value::<EventsKept>).transpose()?;
        Ok(EventIndexes {
            first: kept.map_or(1, |kept| kept.first),
            last: account.events.min(u64::MAX - 1),
            entries: [ids, subjects, told].map(|entries| entries.into_iter().collect()),
        })
    }

    async fn first_event(&self, space: &Space) -> Result<u64, StoreError> {
        let kept = self.read().get::<EventsKept>(space, names::events()).await?;
        Ok(kept.map_or(1, |kept| kept.first))
    }

    /// Reads the events and removes their entries from the indexes. Returns the numbers of all events, and of the
    /// events without entries.
    async fn read_events(
        &self,
        space: &Space,
        EventIndexes { first, last, entries: [ids, subjects, _] }: &mut EventIndexes,
    ) -> Result<(HashSet<u64>, Vec<u64>), StoreError> {
        let (mut events, mut unlisted, mut next) = (HashSet::new(), Vec::new(), *first);
        while next <= *last {
            let range = next..=*last;
            let values = self.read().values(space, names::EVENTS, range, Order::Ascending, AT_ONCE).await?;
            let Some((highest, _)) = values.last() else { break };
            next = highest.saturating_add(1);
            for (number, value) in values {
                events.insert(number);
                let (id, json) = value.split_at_checked(ID).unwrap_or_default();
                let has_id =
                    EventId::from_slice(id).is_some_and(|id| ids.remove(&names::event_id(id, number)));
                let event = std::str::from_utf8(json).ok().and_then(Event::from_json);
                let of_subjects: HashSet<_> =
                    event.iter().flat_map(|event| names::events_of(event, number)).collect();
                let missing = of_subjects.iter().filter(|entry| !subjects.remove(*entry)).count();
                if !has_id || missing > 0 {
                    unlisted.push(number);
                }
            }
        }
        Ok((events, unlisted))
    }

    /// Reads the reported thresholds and removes their entries. Returns the events of thresholds without an entry.
    async fn read_thresholds(
        &self,
        space: &Space,
        last: u64,
        entries: &mut HashSet<Vec<u8>>,
    ) -> Result<Vec<u64>, StoreError> {
        let (mut untold, mut seen) = (Vec::new(), HashSet::new());
        let mut page: Option<Option<Cursor>> = Some(None);
        while let Some(place) = page {
            let question = Question::Set(Set { table: names::TOLD, part: 0 }, place);
            let Some(Answer::Set(records, next)) = self.read().ask(space, vec![question]).await?.pop() else {
                return Err(no_answer());
            };
            for (name, record) in records {
                let Told { event } = value(&record)?;
                // A page may repeat a record of the previous one.
                let entry = names::told_at(event, &name);
                if event <= last && seen.insert(name) && !entries.remove(&entry) {
                    untold.push(event);
                }
            }
            page = next.map(Some);
        }
        Ok(untold)
    }
}
