//! Trouble: keys that cannot spend, or soon cannot, and calls that are refused.
//!
//! Nothing counts such keys. They are found among those that were refused today, whose thresholds were told last, and that
//! expire next: a bounded number of each, of which the present state decides.

use std::collections::HashMap;

use shared::ids::{AccountId, KeyId};

use super::{
    Management,
    books::{RefusedKey, RefusedLately},
    reached::ReachedLimits,
};
use domain::key::{ApiKey, Condition, SOON, Status};
use key_service_store::store::StoreError;

/// Thresholds that are looked at, of keys and of others.
const THRESHOLDS: usize = 100;
/// Keys that expire next, of those that are looked at.
const EXPIRING: usize = 20;

/// What is wrong with the keys of an account right now.
#[derive(Debug)]
pub struct Trouble {
    /// Keys that cannot spend, since a limit of theirs or of a group is reached.
    pub limited: Vec<TroubledKey>,
    /// Keys that were refused today, since they are revoked, disabled or expired.
    pub ended: Vec<TroubledKey>,
    /// Keys that have used four fifths of a limit.
    pub nearly: Vec<TroubledKey>,
    /// Keys that expire within a week.
    pub expiring: Vec<TroubledKey>,
    /// Refused calls of all keys.
    pub refused: RefusedLately,
    /// The limits of these keys.
    pub limits: ReachedLimits,
}

/// A key in trouble.
#[derive(Clone, Debug)]
pub struct TroubledKey {
    /// The key.
    pub key: ApiKey,
    /// Number of calls that were refused today.
    pub refused: u64,
}

impl Management {
    /// What is wrong with the keys of the account.
    pub async fn trouble(&self, account: AccountId) -> Result<Trouble, StoreError> {
        let now = self.clock.now();
        let refused = self.refused_lately(account, None).await?;
        // Where no call was refused, no key has.
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

/// The keys in the order of their ids in a list.
fn in_order(ids: Vec<KeyId>, mut keys: HashMap<KeyId, ApiKey>) -> impl Iterator<Item = ApiKey> {
    ids.into_iter().filter_map(move |id| keys.remove(&id))
}
