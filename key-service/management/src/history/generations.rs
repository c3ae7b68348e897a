//! Bills of generations, listed by filters or found by id.

use async_trait::async_trait;
use shared::ids::{AccountId, GenerationId};

use crate::{
    management::Management,
    nouns::{
        listing::{Listed, Listing, Page, Paged, UnknownCursor},
        reach::AccountReach,
    },
};
use domain::{
    ledger::{Ending, Settlement},
    search::EntrySearch,
};
use key_service_store::store::{Error, Found, JournalEntry, Order, StoreError};

/// Number of entries read at a time, to bound a request's memory.
const READ_AT_ONCE: usize = 500;

/// The bill of a generation: its last entry in the journal.
#[derive(Debug)]
pub struct Bill {
    pub generation: GenerationId,
    pub settlement: Settlement,
}

impl Management {
    /// Finds the bill of a generation of the account; `None` if it does not exist or the store has dropped it.
    pub async fn bill(&self, account: AccountId, id: GenerationId) -> Result<Option<Bill>, StoreError> {
        let found = self.store.entry_of(account, id).await?;
        Ok(found.map(|entry| Bill { generation: id, settlement: entry.entry.settlement }))
    }

    /// Finds the bill of a generation, if its key was within reach when it was billed.
    pub async fn bill_in(&self, reach: AccountReach, id: GenerationId) -> Result<Option<Bill>, StoreError> {
        let bill = self.bill(reach.account, id).await?;
        Ok(bill.filter(|bill| reach.has(bill.settlement.payer.groups)))
    }

    /// Reads about `wanted` entries from a position, in this order. Also returns the number of the entry to continue
    /// from, if any.
    async fn entries(
        &self,
        account: AccountId,
        listing: &Listing<Bill>,
        behind: Option<u64>,
        wanted: usize,
    ) -> Result<Found<JournalEntry, u64>, StoreError> {
        let Listing { order, filter, .. } = listing;
        match order {
            Order::Descending => self.store.find_entries(account, filter.clone(), behind, wanted).await,
            Order::Ascending => {
                let page = self.store.journal(account, behind.unwrap_or(0), READ_AT_ONCE).await?;
                let is_full = page.entries.len() == READ_AT_ONCE;
                let next = page.entries.last().map(|entry| entry.number).filter(|_| is_full);
                Ok(Found { found: page.entries, next })
            }
        }
    }

    /// Returns the number of the entry after which a page begins.
    async fn place(
        &self,
        account: AccountId,
        listing: &Listing<Bill>,
        id: GenerationId,
    ) -> Result<u64, Error<UnknownCursor>> {
        let is_in_reach = |found: &JournalEntry| {
            let payer = &found.entry.settlement.payer;
            listing.filter.within.is_none_or(|group| payer.is_in(group))
        };
        if let Some(found) = self.store.entry_of(account, id).await?.filter(is_in_reach) {
            return Ok(found.number);
        }
        // The store may have dropped the entry since the previous page.
        let kept = self.store.journal(account, 0, 1).await?;
        let is_older = |first: &JournalEntry| id.created_at() <= first.entry.settlement.at;
        if kept.gone_until == 0 || !kept.entries.first().is_none_or(is_older) {
            return Err(Error::Refused(UnknownCursor));
        }
        Ok(kept.gone_until)
    }

    /// Returns whether a later entry corrects this one.
    async fn is_corrected(&self, account: AccountId, entry: &JournalEntry) -> Result<bool, StoreError> {
        if entry.entry.settlement.ending != Ending::Expired {
            return Ok(false);
        }
        let last = self.store.entry_of(account, entry.generation).await?;
        Ok(last.is_some_and(|last| last.number != entry.number))
    }
}

#[async_trait]
impl Listed for Bill {
    type Id = GenerationId;
    type Filter = EntrySearch;
    const NAME: &'static str = "a billed generation";

    fn id(&self) -> GenerationId {
        self.generation
    }

    async fn page(management: &Management, account: AccountId, listing: &Listing<Self>) -> Paged<Self> {
        let mut behind = match listing.after {
            Some(id) => Some(management.place(account, listing, id).await?),
            None => None,
        };
        // In ascending order, all entries after this time can be skipped, so the page can stop there. In descending
        // order, the store itself ends the page.
        let ends = match (listing.order, listing.filter.ends) {
            (Order::Ascending, Some(ends)) => {
                Some(ends.plus(management.store.disorder(account, ends).await?))
            }
            (Order::Ascending, None) | (Order::Descending, _) => None,
        };
        let mut items = Vec::new();
        loop {
            // One entry more than fits on the page is read, to see whether more entries follow.
            let wanted = READ_AT_ONCE.min(listing.limit - items.len() + 1);
            let Found { found: entries, next } = management.entries(account, listing, behind, wanted).await?;
            for entry in entries {
                let settlement = &entry.entry.settlement;
                if ends.is_some_and(|ends| settlement.at >= ends) {
                    return Ok(Page { items, has_more: false });
                }
                let is_wanted = settlement.ending.is_bill() && listing.filter.matches(settlement);
                if !is_wanted || management.is_corrected(account, &entry).await? {
                    continue;
                }
                if items.len() == listing.limit {
                    return Ok(Page { items, has_more: true });
                }
                items.push(Self { generation: entry.generation, settlement: entry.entry.settlement });
            }
            behind = next;
            if behind.is_none() {
                return Ok(Page { items, has_more: false });
            }
        }
    }
}
