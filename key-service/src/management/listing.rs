//! Listings of API keys, by status where that is asked for.

use shared::ids::{AccountId, KeyId};

use super::{Error, KeyRefused, Management};
use crate::store::{Order, Page};
use domain::key::{ApiKey, Status};

/// The keys to list.
#[derive(Clone, Copy, Debug)]
pub struct Listing {
    /// Key to start behind.
    pub after: Option<KeyId>,
    /// The end that comes first.
    pub order: Order,
    /// Present status of the keys.
    pub status: Option<Status>,
    /// Largest number of keys.
    pub limit: usize,
}

/// Some of an account's keys.
#[derive(Debug)]
pub struct KeyPage {
    /// The keys, in the order that was asked for.
    pub keys: Vec<ApiKey>,
    /// More keys follow in the same listing.
    pub has_more: bool,
}

impl Management {
    /// Some of the account's keys.
    pub async fn list(&self, account: AccountId, listing: Listing) -> Result<KeyPage, Error<KeyRefused>> {
        let Listing { after, order, status, limit } = listing;
        let _turn = self.reading_turn(account).await?;
        if let Some(id) = after
            && self.store.key(account, id).await?.is_none()
        {
            return Err(Error::Refused(KeyRefused::UnknownCursor));
        }
        let status = status.map(|status| (status, self.clock.now()));
        // A key more than requested shows that there are more.
        let page = Page { after, order, status, limit: limit.saturating_add(1) };
        let mut keys = self.store.keys(account, page).await?;
        let has_more = keys.len() > limit;
        keys.truncate(limit);
        Ok(KeyPage { keys, has_more })
    }
}
