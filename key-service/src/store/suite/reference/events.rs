//! Events in memory.

use async_trait::async_trait;
use shared::ids::{AccountId, EventId};

use super::{AccountBook, Reference};
use crate::store::{
    EventBounds, EventSlice, Events, EventsPage, Found, NumberedEvent, Order, StoreError, suite::SUITE_EVENTS,
};
use domain::event::{Event, EventSearch};

impl AccountBook {
    /// Writes an event, and drops the oldest that are not kept.
    pub(super) fn tell(&mut self, event: Event) {
        let EventBounds { life, count, bytes } = SUITE_EVENTS;
        let begins = event.at.minus(life);
        self.told += 1;
        self.events.push(NumberedEvent { number: self.told, event });
        let size = |event: &NumberedEvent| event.event.to_json().len() as u64;
        let mut left: u64 = self.events.iter().map(size).sum();
        let is_dropped = |event: &&NumberedEvent| {
            let is_kept = event.event.at >= begins && self.told - event.number < count && left <= bytes;
            left -= size(event);
            !is_kept && event.number < self.told
        };
        let dropped = self.events.iter().take_while(is_dropped).count();
        self.events.drain(..dropped);
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
