//! Events in memory.

use async_trait::async_trait;
use shared::ids::{AccountId, EventId};

use super::{AccountBook, Reference};
use crate::store::{EVENTS_KEPT, EventSlice, Events, EventsPage, Found, NumberedEvent, Order, StoreError};
use domain::event::{Event, EventSearch};

impl AccountBook {
    /// Writes an event, and drops those that are too old.
    pub(super) fn tell(&mut self, event: Event) {
        let begins = event.at.minus(EVENTS_KEPT);
        let old = self.events.iter().take_while(|event| event.event.at < begins).count();
        self.events.drain(..old);
        self.told += 1;
        self.events.push(NumberedEvent { number: self.told, event });
    }
}

#[async_trait]
impl Events for Reference {
    async fn events(
        &self,
        account: AccountId,
        search: EventSearch,
        EventSlice { order, behind, limit }: EventSlice,
    ) -> Result<Found<NumberedEvent, u64>, StoreError> {
        let books = self.books()?;
        let events = books.accounts.get(&account).into_iter().flat_map(|book| &book.events);
        let mut found: Vec<_> = events.filter(|event| search.matches(&event.event)).cloned().collect();
        if order == Order::Descending {
            found.reverse();
        }
        let is_behind = |number: u64, behind: u64| match order {
            Order::Ascending => number > behind,
            Order::Descending => number < behind,
        };
        found.retain(|event| behind.is_none_or(|behind| is_behind(event.number, behind)));
        let has_more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().map(|last| last.number).filter(|_| has_more);
        Ok(Found { found, next })
    }

    async fn events_after(
        &self,
        account: AccountId,
        after: u64,
        limit: usize,
    ) -> Result<EventsPage, StoreError> {
        let books = self.books()?;
        let Some(book) = books.accounts.get(&account) else { return Ok(EventsPage::default()) };
        let events = book.events.iter().filter(|event| event.number > after).take(limit).cloned().collect();
        Ok(EventsPage { events, gone_until: book.told - book.events.len() as u64 })
    }

    async fn are_told(&self, account: AccountId, names: Vec<Vec<u8>>) -> Result<Vec<bool>, StoreError> {
        let books = self.books()?;
        let book = books.accounts.get(&account);
        Ok(names.iter().map(|name| book.is_some_and(|book| book.told_once.contains(name))).collect())
    }

    async fn event_number(&self, account: AccountId, id: EventId) -> Result<Option<u64>, StoreError> {
        let books = self.books()?;
        let mut events = books.accounts.get(&account).into_iter().flat_map(|book| &book.events);
        Ok(events.find(|event| event.event.id == id).map(|event| event.number))
    }
}
