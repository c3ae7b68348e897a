//! Trouble: keys that cannot spend, or soon cannot, and calls that are refused.
//!
//! Nothing counts such keys. They are searched among a bounded number of keys: those that were refused today, those
//! that crossed a threshold last, and those that expire next. Their present state decides.

use std::collections::HashMap;

use shared::ids::{AccountId, KeyId};

use crate::{
    history::reached::ReachedLimits,
    management::Management,
    reports::books::{RefusedKey, RefusedLately},
};
use domain::key::{ApiKey, Condition, SOON, Status};
use key_service_store::store::StoreError;

/// Latest thresholds that are read, whether of keys or of others.
const THRESHOLDS: usize = 100;
/// Keys read of those that expire next.
const EXPIRING: usize = 20;

/// What is wrong with the keys of an account right now.
#[derive(Debug)]
pub struct Trouble {
    /// Keys that cannot spend, since a limit of the key or of its groups is reached.
    pub limited: Vec<TroubledKey>,
    /// Keys that were refused today, since they are revoked, disabled or expired.
    pub ended: Vec<TroubledKey>,
    /// Keys that have used four fifths of a limit.
    pub nearly: Vec<TroubledKey>,
    /// Keys that expire within a week.
    pub expiring: Vec<TroubledKey>,
    pub refused: RefusedLately,
    /// Reached limits of these keys.
    pub limits: ReachedLimits,
}

/// A key in trouble, with its refused calls.
#[derive(Clone, Debug)]
pub struct TroubledKey {
    pub key: ApiKey,
    /// Number of calls refused today.
    pub refused: u64,
}

impl Management {
    /// Finds what is wrong with the keys of the account.
    pub async fn trouble(&self, account: AccountId) -> Result<Trouble, StoreError> {
        let now = self.clock.now();
        let refused = self.refused_lately(account, None).await?;
        // Without a refused call, no key was refused.
        let refused_keys =
            if refused.today.is_empty() { Vec::new() } else { self.refused_keys(account).await? };
        let mut ids = self.store.last_told_keys(account, THRESHOLDS).await?;
        ids.extend(self.store.keys_expiring(account, (now, now.plus(SOON)), EXPIRING).await?);
        let mut keys = self.keys_by_id(account, ids.clone()).await?;
        let mut found = Vec::new();
        for RefusedKey { key, count, reasons: _ } in refused_keys {
            keys.remove(&key.id);
            found.push(TroubledKey { key, refused: count });
        }
        found.extend(in_order(ids, keys).map(|key| TroubledKey { key, refused: 0 }));
        let all: Vec<ApiKey> = found.iter().map(|troubled| troubled.key.clone()).collect();
        let limits = self.reached_limits(account, &all, &[]).await?;
        let mut trouble = Trouble {
            limited: Vec::new(),
            ended: Vec::new(),
            nearly: Vec::new(),
            expiring: Vec::new(),
            refused,
            limits,
        };
        for troubled in found {
            let key = &troubled.key;
            let is_limited = trouble.limits.of_key(key).is_some();
            if key.is_in(Condition::LimitReached, is_limited, now) {
                trouble.limited.push(troubled);
            } else if key.status(now) != Status::Active {
                if troubled.refused > 0 {
                    trouble.ended.push(troubled);
                }
            } else if key.is_in(Condition::ExpiresSoon, false, now) {
                trouble.expiring.push(troubled);
            } else if key.spend.budget.is_nearly_used(now) {
                trouble.nearly.push(troubled);
            }
        }
        Ok(trouble)
    }
}

/// Returns the keys in the order in which a list has their ids.
fn in_order(ids: Vec<KeyId>, mut keys: HashMap<KeyId, ApiKey>) -> impl Iterator<Item = ApiKey> {
    ids.into_iter().filter_map(move |id| keys.remove(&id))
}
