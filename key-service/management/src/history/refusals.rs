//! The latest refused calls of an account, listed by filters.

use async_trait::async_trait;
use shared::ids::{AccountId, GroupId, RefusalId};

use crate::{
    management::Management,
    nouns::{
        listing::{Completeness, Listed, Listing, Page, Paged, UnknownCursor},
        reach::AccountReach,
    },
};
use domain::refused::{RefusedCall, RefusedSearch};
use key_service_store::store::{Error, Order, REFUSED_CALLS_KEPT, StoreError};

#[derive(Clone, Debug, Default)]
pub struct RefusedFilter {
    /// Key, reason, model, user, request and time.
    pub search: RefusedSearch,
    /// Current group of the keys, or its parent.
    pub group: Option<GroupId>,
    /// The group that the caller is limited to.
    pub within: Option<GroupId>,
}

impl Management {
    /// Lists the account's matching latest refused calls, newest first. Key-services add them to the store every ten
    /// seconds.
    pub async fn refused_calls(
        &self,
        account: AccountId,
        filter: &RefusedFilter,
    ) -> Result<Vec<RefusedCall>, StoreError> {
        let mut calls = self.store.refused_calls(account).await?;
        calls.retain(|call| filter.search.matches(call));
        for group in [filter.group, filter.within].into_iter().flatten() {
            let reach = AccountReach { account, group: Some(group) };
            let keys = self.keys_by_id(reach, calls.iter().map(|call| call.key).collect()).await?;
            calls.retain(|call| keys.contains_key(&call.key));
        }
        Ok(calls)
    }
}

#[async_trait]
impl Listed for RefusedCall {
    type Id = RefusalId;
    type Filter = RefusedFilter;
    const NAME: &'static str = "a refused call";

    fn id(&self) -> RefusalId {
        self.id
    }

    async fn completeness(management: &Management, account: AccountId) -> Result<Completeness, StoreError> {
        let calls = management.store.refused_calls(account).await?;
        let oldest = calls.last().filter(|_| calls.len() >= REFUSED_CALLS_KEPT);
        Ok(Completeness::Since(oldest.map(RefusedCall::at)))
    }

    async fn page(management: &Management, account: AccountId, listing: &Listing<Self>) -> Paged<Self> {
        let mut calls = management.refused_calls(account, &listing.filter).await?;
        if listing.order == Order::Ascending {
            calls.reverse();
        }
        if let Some(after) = listing.after {
            // If the call has been dropped since the previous page, the cursor is unknown.
            let place = calls.iter().position(|call| call.id == after);
            let place = place.ok_or(Error::Refused(UnknownCursor))?;
            calls.drain(..=place);
        }
        Ok(Page::of(calls, listing.limit))
    }
}
