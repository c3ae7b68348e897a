//! Trouble: keys that cannot spend, or soon cannot, and calls that are refused.
//!
//! Nothing counts such keys. They are searched among a bounded number of keys: those that were refused today, those
//! that crossed a threshold last, and those that expire next. Their present state decides.

use std::collections::HashMap;

use shared::ids::KeyId;

use crate::{
    history::reached::ReachedLimits, management::Management, nouns::reach::AccountReach,
    reports::books::RefusedLately,
};
use domain::key::{ApiKey, Condition, SOON, Status};
use key_service_store::store::StoreError;

/// Keys with the most refused calls that are named.
const REFUSED_KEYS: usize = 10;
/// Latest thresholds that are read, whether of keys or of others.
const THRESHOLDS: usize = 100;
/// Keys read of those that expire next.
const EXPIRING: usize = 20;
/// Times as many keys are read for those of one group, since they are among those of the account.
const FOR_A_GROUP: usize = 3;

/// What is wrong with the keys of an account, or of a group and its child groups, right now.
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
    /// All refused calls of the account; none for a group, by which they are not counted.
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
    /// Finds what is wrong with the keys that are reached.
    pub async fn trouble(&self, reach: AccountReach) -> Result<Trouble, StoreError> {
        let (account, now) = (reach.account, self.clock.now());
        let refused = self.refused_lately(account, None).await?;
        let times = if reach.group.is_some() { FOR_A_GROUP } else { 1 };
        // Without a refused call, no key was refused.
        let counts = if refused.today.is_empty() {
            Vec::new()
        } else {
            self.store.refused_keys(account, self.today(), REFUSED_KEYS * times).await?
        };
        let mut ids: Vec<KeyId> = counts.iter().map(|(id, _)| *id).collect();
        ids.extend(self.store.last_told_keys(account, THRESHOLDS * times).await?);
        ids.extend(self.store.keys_expiring(account, now..=now.plus(SOON), EXPIRING * times).await?);
        let keys = self.keys_by_id(reach, ids.clone()).await?;
        let counts: HashMap<KeyId, u64> = counts.into_iter().collect();
        let refused_today = |key: &ApiKey| counts.get(&key.id).copied().unwrap_or_default();
        let found: Vec<TroubledKey> =
            in_order(ids, keys).map(|key| TroubledKey { refused: refused_today(&key), key }).collect();
        let all: Vec<ApiKey> = found.iter().map(|troubled| troubled.key.clone()).collect();
        let limits = self.reached_limits(reach, &all, &[]).await?;
        let mut trouble = Trouble {
            limited: Vec::new(),
            ended: Vec::new(),
            nearly: Vec::new(),
            expiring: Vec::new(),
            refused: if reach.group.is_some() { RefusedLately::default() } else { refused },
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
