//! Index of the accounts with open holds. It includes every account that has one.
//!
//! A hold and the index are in different spaces and cannot change together. So an account is listed *before* its first
//! hold, and again every minute while it has holds. It is removed only if it has no holds and its last listing is so
//! old that no command can still be on its way.
//!
//! In a Redis cluster, a part of the index may be unavailable while the account is available. Then another part lists
//! the account.

use std::{collections::BTreeSet, time::Duration};

use futures_util::{StreamExt, stream};
use key_service_ledger::{
    StoreError, names,
    stored::{AccountRecord, HolderRecord},
};
use records::{Order, Space};
use shared::{clock::random_bytes, ids::AccountId, time::Timestamp};
use tokio::time::{Instant, timeout};

use crate::{
    data::HoldIndex,
    store::{
        base::{Listings, Store, value},
        layout,
    },
};

/// Time after which an account that still opens holds is listed again.
const LISTED_FOR: Duration = Duration::from_mins(1);
/// An account without holds is removed once its last listing is this old. This is far longer than [`LISTED_FOR`], than
/// calls take, and than clocks may differ.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(10);
/// Of 256 listings, this many also do the account's housekeeping: about one per hour.
const HOUSE_KEPT_OF_256: u8 = 4;
/// Number of parts read, and of accounts checked, concurrently.
const ASKED_AT_ONCE: usize = 64;

/// Number of parts tried before a hold is refused, and the time after which the next part tried is the last.
pub(crate) const PARTS_TRIED: usize = 6;
const TRYING: Duration = Duration::from_millis(600);
/// Timeout for every part but the last one tried: a part whose master hangs leaves time for another.
const ANSWERING: Duration = Duration::from_millis(300);

/// An account, the part that lists it, and the time of the last listing.
struct ListedAccount {
    part: Space,
    account: AccountId,
    at: Timestamp,
}

impl Store {
    /// Lists an account that is about to have holds.
    pub(crate) async fn list_holder(&self, account: AccountId) -> Result<(), StoreError> {
        let began = Instant::now();
        let Listings(listings) = &self.listings;
        if listings.get(&account).is_some_and(|at| began.saturating_duration_since(at) < LISTED_FOR) {
            return Ok(());
        }
        // An account that does not exist has no holds.
        let there = self.read().get::<AccountRecord>(&layout::space(account), names::account()).await;
        if matches!(there, Ok(None)) {
            return Ok(());
        }
        let mut listed = Ok(());
        for part in layout::holders(account).take(PARTS_TRIED) {
            let is_last = began.elapsed() >= TRYING;
            let listing = self.list_in(&part, account);
            listed = if is_last {
                listing.await
            } else {
                let late = || Err(StoreError::Unavailable("the list of holders did not answer".into()));
                timeout(ANSWERING, listing).await.unwrap_or_else(|_| late())
            };
            if is_last || !matches!(listed, Err(StoreError::Unavailable(_))) {
                break;
            }
        }
        listed?;
        listings.insert(account, began);
        // Lanes do housekeeping too, but not if there are so many accounts that lanes do not stay in memory.
        let [drawn] = random_bytes(&*self.clock);
        if drawn < HOUSE_KEPT_OF_256
            && let Err(error) = self.keep_house(account).await
        {
            tracing::debug!(%account, %error, "housekeeping of an account failed; it will be tried again");
        }
        Ok(())
    }

    async fn list_in(&self, part: &Space, account: AccountId) -> Result<(), StoreError> {
        let (now, name) = (self.clock.now(), layout::name(layout::HOLDERS, *account.as_bytes()));
        self.note(part, |view| {
            let before = view.get::<HolderRecord>(&name)?;
            if before.is_none_or(|holder| holder.listed_at < now) {
                view.put(&name, HolderRecord { listed_at: now });
            }
            Ok(())
        })
        .await
    }

    /// Lists the accounts in all parts of the index that can be reached.
    pub(crate) async fn holders(&self) -> HoldIndex {
        let parts = layout::parts("holders").map(|part| self.listed(part));
        let parts: Vec<_> = stream::iter(parts).buffered(ASKED_AT_ONCE).collect().await;
        let (mut missing, mut all) = (None, Vec::new());
        for part in parts {
            match part {
                Ok(listed) => all.extend(listed),
                Err(e) => missing = Some(e),
            }
        }
        let kept = stream::iter(all).map(|listed| self.keep_holder(listed));
        let kept: Vec<_> = kept.buffer_unordered(ASKED_AT_ONCE).collect().await;
        let accounts: BTreeSet<_> = kept.into_iter().flatten().collect();
        HoldIndex { accounts: accounts.into_iter().collect(), missing }
    }

    async fn listed(&self, part: Space) -> Result<Vec<ListedAccount>, StoreError> {
        let records = self.all_of_set(&part, layout::HOLDERS).await?;
        let listed = records.into_iter().filter_map(|(account, record)| {
            // An unreadable listing stays.
            let at = value::<HolderRecord>(&record)
                .map_or(Timestamp::from_millis(i64::MAX), |holder| holder.listed_at);
            let part = part.clone();
            Some(ListedAccount { part, account: AccountId::from_slice(&account)?, at })
        });
        Ok(listed.collect())
    }

    /// Returns the account if it has holds, and removes it from the index otherwise. If the store cannot be read, the
    /// account is returned too.
    async fn keep_holder(&self, ListedAccount { part, account, at }: ListedAccount) -> Option<AccountId> {
        // A clock that is briefly ahead must not hide the holds of an account that was just listed.
        let steady = self.lanes.steady_time();
        if steady.is_none_or(|now| at >= now.minus(FORGOTTEN_AFTER)) {
            return Some(account);
        }
        let space = layout::space(account);
        let open = self.read().entries(&space, names::DUE, (Vec::new(), None), Order::Ascending, 1).await;
        if !open.is_ok_and(|open| open.is_empty()) {
            return Some(account);
        }
        let name = layout::name(layout::HOLDERS, *account.as_bytes());
        let forgotten = self.note(&part, |view| {
            let is_old = view.get::<HolderRecord>(&name)?.is_none_or(|holder| holder.listed_at <= at);
            if is_old {
                view.remove(&name);
            }
            Ok(is_old)
        });
        match forgotten.await {
            Ok(true) => None,
            Ok(false) | Err(_) => Some(account),
        }
    }
}
