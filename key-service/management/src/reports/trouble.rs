//! Finds keys that cannot spend or soon will not, and refused calls.
//!
//! The store has no list of such keys. In an account or group with few keys, all are checked. Otherwise only a bounded
//! number of keys are checked: keys refused today, keys that recently crossed a threshold, and keys that expire next.
//! So other keys may be in trouble too. A key's current state decides, both here and in the filter of the key list.

use std::collections::HashMap;

use shared::ids::{AccountId, GroupId, KeyId};

use crate::{
    history::limits::ReachedLimits,
    management::Management,
    nouns::{
        listing::{READ_TOGETHER, keys_of_groups},
        reach::AccountReach,
    },
    reports::books::RefusedLately,
};
use domain::key::{ApiKey, KeyTrouble, SOON};
use key_service_store::store::{Order, Page, StoreError};

/// Up to this number of keys, all keys are checked.
const ALL_KEYS: usize = 300;
/// With more keys, only this number of those with the most refused calls are checked.
const REFUSED_KEYS: usize = 100;
/// Number of latest threshold events to read, for keys and groups.
const THRESHOLDS: usize = 200;
/// Number of keys to check among those that expire next.
const EXPIRING: usize = 50;

/// What is currently wrong with the keys of an account, or of a group and its child groups.
#[derive(Debug)]
pub struct Trouble {
    /// Keys that cannot spend because a limit of the key or of its groups is reached.
    pub limited: Vec<TroubledKey>,
    /// Keys that were refused today because they are revoked, disabled or expired.
    pub ended: Vec<TroubledKey>,
    /// Keys that have used four fifths of a limit.
    pub nearly: Vec<TroubledKey>,
    /// Keys that expire within a week.
    pub expiring: Vec<TroubledKey>,
    /// All refused calls of the account; empty for a group, because calls are not counted by group.
    pub refused: RefusedLately,
    /// Reached limits of these keys.
    pub limits: ReachedLimits,
    /// Whether no other key is in trouble.
    pub has_all: bool,
    /// The group of these keys; some may be in its child groups.
    pub group: Option<GroupId>,
}

/// A key in trouble, with its refused calls.
#[derive(Clone, Debug)]
pub struct TroubledKey {
    pub key: ApiKey,
    /// Number of calls refused today.
    pub refused: u64,
}

impl Management {
    /// Finds the keys in trouble within reach.
    pub async fn trouble(&self, reach: AccountReach) -> Result<Trouble, StoreError> {
        let (account, now) = (reach.account, self.clock.now());
        let refused = self.refused_lately(account, None).await?;
        let counts = self.keys_refused_today(account).await?;
        let groups = self.groups_in(reach).await?;
        let few = self.few_keys(account, groups.as_deref()).await?;
        // For a group, more of the account's keys are read, and the group's keys are selected from them.
        let most = |of: usize| if reach.group.is_some() { 3 * of } else { of };
        let mut ids: Vec<KeyId> = counts.iter().map(|(id, _)| *id).take(most(REFUSED_KEYS)).collect();
        ids.extend(self.store.last_told_keys(account, most(THRESHOLDS)).await?);
        ids.extend(self.store.keys_expiring(account, now..=now.plus(SOON), most(EXPIRING)).await?);
        let has_all = few.is_some();
        let keys = match few {
            Some(keys) => {
                ids.extend(keys.iter().map(|key| key.id));
                keys.into_iter().map(|key| (key.id, key)).collect()
            }
            None => self.keys_by_id(reach, ids.clone()).await?,
        };
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
            has_all,
            group: reach.group.filter(|_| groups.is_some_and(|groups| groups.len() == 1)),
        };
        for troubled in found {
            let key = &troubled.key;
            let is_limited = trouble.limits.of_key(key).is_some();
            match key.trouble(is_limited, troubled.refused > 0, now) {
                Some(KeyTrouble::Limited) => trouble.limited.push(troubled),
                Some(KeyTrouble::Ended) => trouble.ended.push(troubled),
                Some(KeyTrouble::Expiring) => trouble.expiring.push(troubled),
                Some(KeyTrouble::Nearly) => trouble.nearly.push(troubled),
                None => {}
            }
        }
        Ok(trouble)
    }

    /// Returns the account's keys with calls refused today and their counts, largest first.
    pub(crate) async fn keys_refused_today(
        &self,
        account: AccountId,
    ) -> Result<Vec<(KeyId, u64)>, StoreError> {
        self.store.refused_keys(account, self.today(), usize::MAX).await
    }

    /// Reads all keys of the account or of these groups; `None` if there are too many.
    async fn few_keys(
        &self,
        account: AccountId,
        groups: Option<&[GroupId]>,
    ) -> Result<Option<Vec<ApiKey>>, StoreError> {
        let counted = match groups {
            None => self.store.funds(account).await?.map_or(0, |funds| funds.keys),
            Some(groups) if groups.len() > READ_TOGETHER => return Ok(None),
            Some(groups) => {
                self.store.groups_by_id(account, groups).await?.iter().map(|group| group.keys).sum()
            }
        };
        if counted > ALL_KEYS as u64 {
            return Ok(None);
        }
        let page = Page { after: None, order: Order::Descending, status: None, limit: ALL_KEYS + 1 };
        let keys = match groups {
            None => self.store.keys(account, page).await?,
            Some(groups) => keys_of_groups(&self.store, account, groups, page).await?,
        };
        Ok(Some(keys).filter(|keys| keys.len() <= ALL_KEYS))
    }
}

/// Arranges the keys in the order of these ids.
fn in_order(ids: Vec<KeyId>, mut keys: HashMap<KeyId, ApiKey>) -> impl Iterator<Item = ApiKey> {
    ids.into_iter().filter_map(move |id| keys.remove(&id))
}
