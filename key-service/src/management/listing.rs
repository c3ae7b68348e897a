//! Listings of API keys, by status where that is asked for.

use std::collections::HashSet;

use parking_lot::{Mutex, MutexGuard};
use shared::ids::{AccountId, KeyId};

use super::{Error, KeyRefused, Management};
use crate::{
    domain::key::{ApiKey, Status},
    store::{Order, Page},
};

/// Keys read from the store at a time while a listing looks for those of one status.
const FILTERED_READ: usize = 500;

/// Keys that a page of one status looks at before it ends with those that it found: some ten milliseconds of the store.
const MAX_FILTERED_READ: usize = 5_000;

/// The keys to list.
#[derive(Clone, Copy, Debug)]
pub struct Listing {
    /// Only those behind this key.
    pub after: Option<KeyId>,
    /// The end that comes first.
    pub order: Order,
    /// Only those whose status is this now.
    pub status: Option<Status>,
    /// At most so many.
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

/// The accounts of which a long listing is read now.
#[derive(Default)]
pub(super) struct LongListings(Mutex<HashSet<AccountId>>);

/// A listing that reads more keys than a page may; one an account at a time.
struct LongListing<'a>(&'a LongListings, AccountId);

impl LongListings {
    fn accounts(&self) -> MutexGuard<'_, HashSet<AccountId>> {
        self.0.lock()
    }

    fn begin(&self, account: AccountId) -> Result<LongListing<'_>, Error<KeyRefused>> {
        let is_first = self.accounts().insert(account);
        is_first.then(|| LongListing(self, account)).ok_or(Error::Refused(KeyRefused::Busy))
    }
}

impl Drop for LongListing<'_> {
    fn drop(&mut self) {
        self.0.accounts().remove(&self.1);
    }
}

impl Management {
    /// Some of the account's keys. Statuses are looked for here, so that stores need not interpret them.
    ///
    /// A page of one status ends early once it read many keys and found some: SDKs go on behind its last one. Where it found none
    /// it reads on, as SDKs take an empty page for the end; then only one of these listings of an account is read at a time.
    pub async fn list(&self, account: AccountId, listing: Listing) -> Result<KeyPage, Error<KeyRefused>> {
        let Listing { mut after, order, status, limit } = listing;
        if let Some(id) = after
            && self.store.key(account, id).await?.is_none()
        {
            return Err(Error::Refused(KeyRefused::UnknownCursor));
        }
        let now = self.clock.now();
        // One more than is answered shows that there are more.
        let wanted = limit.saturating_add(1);
        let read = if status.is_some() { FILTERED_READ } else { wanted };
        let (mut keys, mut looked_at, mut long) = (Vec::new(), 0, None);
        while keys.len() < wanted {
            if status.is_some() && looked_at >= MAX_FILTERED_READ {
                if !keys.is_empty() {
                    keys.truncate(limit);
                    return Ok(KeyPage { keys, has_more: true });
                }
                if long.is_none() {
                    long = Some(self.reading.begin(account)?);
                }
            }
            let page = self.store.keys(account, Page { after, order, limit: read }).await?;
            let was_last = page.len() < read;
            looked_at += page.len();
            after = page.last().map(|key| key.id);
            keys.extend(page.into_iter().filter(|key| status.is_none_or(|status| key.status(now) == status)));
            if was_last {
                break;
            }
        }
        let has_more = keys.len() > limit;
        keys.truncate(limit);
        Ok(KeyPage { keys, has_more })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::management::{KeyDraft, testing::Office};

    const KEYS: usize = MAX_FILTERED_READ + 2 * FILTERED_READ;

    /// An account with keys, the newest and the oldest of which are revoked.
    async fn filled() -> (Office, AccountId) {
        let office = Office::open();
        let (account, _) = office.account("acme").await;
        for number in 0..KEYS {
            let draft = KeyDraft { label: number.to_string(), limit: None, expires_at: None };
            let made = office.management.create(account, draft, None).await.unwrap();
            let super::super::Created::New { key, .. } = made else { panic!("a key is made") };
            if number == 0 || number == KEYS - 1 {
                office.management.revoke(account, key.id).await.unwrap();
            }
        }
        (office, account)
    }

    fn listing(status: Status, after: Option<KeyId>, limit: usize) -> Listing {
        Listing { after, order: Order::Descending, status: Some(status), limit }
    }

    #[tokio::test]
    async fn a_page_of_one_status_ends_with_what_it_found_rather_than_read_all() {
        let (office, account) = filled().await;
        // One more read than a page may do would fail.
        office.store.outage.fail_after((MAX_FILTERED_READ / FILTERED_READ) as u64);
        let page = office.management.list(account, listing(Status::Revoked, None, 100)).await.unwrap();
        assert_eq!((page.keys[0].label.as_str(), page.keys.len(), page.has_more), ("5999", 1, true));
        office.store.outage.recover();
        let after = Some(page.keys[0].id);
        let page = office.management.list(account, listing(Status::Revoked, after, 100)).await.unwrap();
        assert_eq!((page.keys[0].label.as_str(), page.keys.len(), page.has_more), ("0", 1, false));
        let page = office.management.list(account, listing(Status::Expired, None, 1)).await.unwrap();
        assert!(page.keys.is_empty() && !page.has_more, "an empty page is the end, and the truth");
    }

    #[tokio::test]
    async fn of_an_account_one_long_listing_is_read_at_a_time() {
        let (office, account) = filled().await;
        let long = office.management.reading.begin(account).unwrap();
        let listed = office.management.list(account, listing(Status::Expired, None, 1)).await;
        assert!(matches!(listed, Err(Error::Refused(KeyRefused::Busy))));
        assert!(office.management.list(account, listing(Status::Active, None, 1)).await.is_ok());
        drop(long);
        assert!(office.management.list(account, listing(Status::Expired, None, 1)).await.is_ok());
    }
}
