//! Events in memory, kept for good.

use async_trait::async_trait;
use shared::ids::{AccountId, EventId};

use super::{AccountBook, Reference};
use crate::store::{Events, EventsPage, Found, NumberedEvent, StoreError};
use domain::event::EventSearch;

impl AccountBook {
    fn numbered(&self) -> impl DoubleEndedIterator<Item = NumberedEvent> {
        (1..)
            .zip(&self.events)
            .map(|(number, event)| NumberedEvent { number, event: event.clone() })
            .collect::<Vec<_>>()
            .into_iter()
    }
}

#[async_trait]
impl Events for Reference {
    async fn events(
        &self,
        account: AccountId,
        search: EventSearch,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Found<NumberedEvent, u64>, StoreError> {
        let books = self.books()?;
        let events = books.accounts.get(&account).into_iter().flat_map(AccountBook::numbered);
        let mut found: Vec<_> = events.filter(|event| search.matches(&event.event)).collect();
        found.retain(|event| before.is_none_or(|before| event.number < before));
        found.reverse();
        let next = found.get(limit).map(|next| next.number + 1);
        found.truncate(limit);
        Ok(Found { found, next })
    }

    async fn events_after(
        &self,
        account: AccountId,
        after: u64,
        limit: usize,
    ) -> Result<EventsPage, StoreError> {
        let books = self.books()?;
        let events = books.accounts.get(&account).into_iter().flat_map(AccountBook::numbered);
        let events = events.filter(|event| event.number > after).take(limit).collect();
        Ok(EventsPage { events, gone_until: 0 })
    }

    async fn event_number(&self, account: AccountId, id: EventId) -> Result<Option<u64>, StoreError> {
        let books = self.books()?;
        let mut events = books.accounts.get(&account).into_iter().flat_map(AccountBook::numbered);
        Ok(events.find(|event| event.event.id == id).map(|event| event.number))
    }
}
