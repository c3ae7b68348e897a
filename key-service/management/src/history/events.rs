//! Events of an account, listed by filters or read in order.

use async_trait::async_trait;
use shared::{
    ids::{AccountId, EventId},
    time::Timestamp,
};

use crate::{
    management::Management,
    nouns::{
        listing::{Completeness, Listed, Listing, Page, Paged, UnknownCursor},
        reach::AccountReach,
    },
};
use domain::event::{Event, EventSearch};
use key_service_store::store::{Error, EventSlice, EventsPage, Found, NumberedEvent, StoreError};

/// Number of events read at a time, to bound a request's memory.
const READ_AT_ONCE: usize = 500;

impl Management {
    /// Finds the latest matching events within reach, or the latest before a number, newest first. A page may end
    /// before it is full.
    pub async fn find_events(
        &self,
        reach: AccountReach,
        search: &EventSearch,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Found<NumberedEvent, u64>, StoreError> {
        let account = reach.account;
        let _permit = self.read_permit(account).await?;
        let search = EventSearch { within: self.groups_in(reach).await?, ..search.clone() };
        let slice = EventSlice { behind: before, ..EventSlice::latest(limit) };
        self.store.events(account, search, slice).await
    }

    /// Returns the number of the account's last event, or zero.
    pub async fn last_event(&self, account: AccountId) -> Result<u64, StoreError> {
        let found = self.store.events(account, EventSearch::default(), EventSlice::latest(1)).await?;
        Ok(found.found.first().map_or(0, |event| event.number))
    }

    /// Returns the number of an event; `None` if it is not kept.
    pub async fn event_number(&self, account: AccountId, id: EventId) -> Result<Option<u64>, StoreError> {
        self.store.event_number(account, id).await
    }

    /// Returns the time since which all events of the account are kept; `None` if none was dropped.
    pub async fn events_complete_since(&self, account: AccountId) -> Result<Option<Timestamp>, StoreError> {
        let first = self.store.events_after(account, 0, 1).await?;
        let at = |event: &NumberedEvent| event.event.at;
        Ok(first.events.first().map(at).filter(|_| first.gone_until > 0))
    }

    /// Returns at most `limit` of the account's events after this number.
    pub async fn events_after(
        &self,
        account: AccountId,
        after: u64,
        limit: usize,
    ) -> Result<EventsPage, StoreError> {
        self.store.events_after(account, after, limit).await
    }
}

#[async_trait]
impl Listed for Event {
    type Id = EventId;
    type Filter = EventSearch;
    const NAME: &'static str = "an event";

    fn id(&self) -> EventId {
        self.id
    }

    async fn completeness(management: &Management, account: AccountId) -> Result<Completeness, StoreError> {
        management.events_complete_since(account).await.map(Completeness::Since)
    }

    async fn page(management: &Management, account: AccountId, listing: &Listing<Self>) -> Paged<Self> {
        let mut behind = match listing.after {
            Some(id) => {
                let number = management.store.event_number(account, id).await?;
                Some(number.ok_or(Error::Refused(UnknownCursor))?)
            }
            None => None,
        };
        // One event more than requested is read, to see whether more events follow.
        let (order, limit) = (listing.order, listing.limit.saturating_add(1).min(READ_AT_ONCE));
        let mut items = Vec::new();
        loop {
            let slice = EventSlice { order, behind, limit };
            let Found { found, next } =
                management.store.events(account, listing.filter.clone(), slice).await?;
            items.extend(found.into_iter().map(|numbered| numbered.event));
            behind = next;
            if behind.is_none() || items.len() > listing.limit {
                return Ok(Page::of(items, listing.limit));
            }
        }
    }
}
