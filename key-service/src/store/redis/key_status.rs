//! API keys by status: sorted sets beside the set of all keys, so that the keys of a status are found without reading
//! all.
//!
//! The sets follow from the keys. An expired key stays listed as active until keys of a status are read after its
//! expiry. Keys made by a version without these sets are listed at that time as well.

use redis::RedisResult;
use shared::{ids::AccountId, time::Timestamp};

use super::{Redis, script::Arguments};
use crate::store::{Order, Page};
use domain::key::Status;

/// Most keys that a run of `expire_keys.lua` moves.
const MOVED_AT_ONCE: usize = 1000;
/// Keys listed in a run of a script: a millisecond of Redis.
const LISTED_AT_ONCE: usize = 500;

impl Redis {
    /// Names of the sets of active, expired and revoked keys, and of the keys with an expiry.
    pub(super) fn status_sets(&self, account: AccountId) -> [String; 4] {
        let [active, expired, revoked] = [Status::Active, Status::Expired, Status::Revoked]
            .map(|status| self.key_space.keys_of(account, status));
        [active, expired, revoked, self.key_space.expiring(account)]
    }

    /// Brings the sets up to date.
    pub(super) async fn list_statuses(&self, account: AccountId, now: Timestamp) -> RedisResult<()> {
        let mut arguments = Arguments::keys([self.key_space.keys(account)]);
        for set in self.status_sets(account) {
            arguments.key(set);
        }
        arguments.value(now.millis().to_string());
        let mut is_first = true;
        loop {
            let (moved, is_complete): (usize, bool) =
                self.client.run(&self.scripts.expire_keys, &arguments).await?;
            if !is_complete && is_first {
                self.list_all(account).await?;
            } else if moved < MOVED_AT_ONCE {
                return Ok(());
            }
            is_first = false;
        }
    }

    /// Lists every key, once after a version without these sets: some hundred milliseconds for a hundred thousand keys.
    async fn list_all(&self, account: AccountId) -> RedisResult<()> {
        let mut after = None;
        loop {
            let page = Page { after, order: Order::Ascending, status: None, limit: LISTED_AT_ONCE };
            let ids = self.key_ids(account, page).await?;
            let mut arguments = Arguments::keys([self.key_space.account(account)]);
            for set in self.status_sets(account) {
                arguments.key(set);
            }
            for id in &ids {
                arguments.value(*id.as_bytes());
                arguments.value(id.to_string());
            }
            self.client.run::<()>(&self.scripts.list_keys, &arguments).await?;
            after = ids.last().copied();
            if ids.len() < LISTED_AT_ONCE {
                return Ok(());
            }
        }
    }
}
