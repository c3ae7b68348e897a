//! Reached limits: the money limits that make requests fail.
//!
//! A limit is hardly ever used up to the last billionth of a dollar, so the remaining amount does not show whether the
//! limit is reached. The limit's event does: it is written when the limit causes a refusal or is used up exactly. The
//! event's name contains the amount and, for a window, the window's beginning. Stores keep these names. A raised limit
//! and the next window have different names. After a raise, a limit has its earlier name again.

use std::collections::{HashMap, HashSet};

use shared::{calendar::Per, ids::GroupId, money::NanoUsd, time::Timestamp, wire::Raise};

use crate::{management::Management, nouns::reach::AccountReach};
use domain::{
    group::Group,
    key::ApiKey,
    ledger::{Budget, Holder, is_nearly_used},
};
use key_service_store::store::StoreError;

/// The reached limits of some keys and groups, with their parents.
#[derive(Debug)]
pub struct ReachedLimits {
    /// Groups of the keys and groups, with their parents.
    pub groups: HashMap<GroupId, Group>,
    /// Names of the thresholds that were reported.
    told: HashSet<Vec<u8>>,
    /// The only group shown in full, with its child groups. Only the name of its parent is shown.
    within: Option<GroupId>,
    now: Timestamp,
}

/// Owner of a limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOf<'a> {
    /// The key or the group itself.
    Own,
    /// A group that contains the key or group.
    Group(&'a Group),
}

/// A money limit and the amount spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoneyLimit {
    /// Maximum amount that may be spent now.
    pub amount: NanoUsd,
    /// End of the raise, and the amount after it; `None` if the limit is not raised.
    pub after_raise: Option<(Timestamp, NanoUsd)>,
    /// Amount spent; for a window, within the current window.
    pub used: NanoUsd,
    /// Length of the window, and end of the current window; `None` for a lifetime limit.
    pub window: Option<(Per, Timestamp)>,
    /// Whether this limit makes requests fail.
    pub is_reached: bool,
}

impl MoneyLimit {
    pub const fn left(&self) -> NanoUsd {
        self.amount.left_after(self.used)
    }

    /// Returns whether the limit is reached or four fifths used.
    pub fn is_nearly_used(&self) -> bool {
        self.is_reached || is_nearly_used(self.amount, self.used)
    }
}

impl ReachedLimits {
    /// Returns an empty set of limits as of this time.
    pub fn none(now: Timestamp) -> Self {
        Self { groups: HashMap::new(), told: HashSet::new(), within: None, now }
    }

    /// Returns the time as of which the limits were read.
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns the visible groups whose limits apply to a key, nearest first.
    pub fn groups_of(&self, key: &ApiKey) -> Vec<&Group> {
        let group = key.spend.group.and_then(|id| self.groups.get(&id));
        group.into_iter().chain(group.and_then(|group| self.parent_of(group))).collect()
    }

    /// Returns the parent of a group, if it is visible.
    pub fn parent_of(&self, group: &Group) -> Option<&Group> {
        self.above(group).filter(|_| self.within != Some(group.id))
    }

    fn above(&self, group: &Group) -> Option<&Group> {
        group.spend.parent.and_then(|id| self.groups.get(&id))
    }

    /// Returns the nearest limit that makes a key's requests fail.
    pub fn of_key(&self, key: &ApiKey) -> Option<LimitOf<'_>> {
        if self.is_reached(Holder::Key(key.id, None), &key.spend.budget) {
            return Some(LimitOf::Own);
        }
        let group = key.spend.group.and_then(|id| self.groups.get(&id));
        self.first_of(group.into_iter().chain(group.and_then(|group| self.above(group))))
    }

    /// Returns the nearest money limit that makes a key's requests fail, with its holder.
    pub fn first_reached(&self, key: &ApiKey) -> Option<(Holder, MoneyLimit)> {
        let own = (Holder::Key(key.id, None), &key.spend.budget);
        let groups = self.groups_of(key);
        let of_groups = groups.iter().map(|group| (Holder::Group(group.id), &group.spend.budget));
        let mut limits = std::iter::once(own).chain(of_groups).flat_map(|(holder, budget)| {
            self.limits(holder, budget).into_iter().map(move |limit| (holder, limit))
        });
        limits.find(|(_, limit)| limit.is_reached)
    }

    /// Returns the nearest limit that makes the requests of a group's keys fail.
    pub fn of_group(&self, group: &Group) -> Option<LimitOf<'_>> {
        if self.is_reached(Holder::Group(group.id), &group.spend.budget) {
            return Some(LimitOf::Own);
        }
        self.first_of(self.above(group).into_iter())
    }

    /// Returns a budget's money limits, the lifetime limit first.
    pub fn limits(&self, holder: Holder, budget: &Budget) -> Vec<MoneyLimit> {
        let is_told = |name: &Vec<u8>| self.told.contains(name);
        let limit = |(plain, raised): (NanoUsd, Option<Raise>), used, window, name| {
            let amount = raised.map_or(plain, |raise| raise.amount);
            let is_reached = amount.left_after(used) <= NanoUsd::ZERO || is_told(&name);
            let after_raise = raised.map(|raise| (raise.until, plain));
            MoneyLimit { amount, after_raise, used, window, is_reached }
        };
        let lifetime = budget.limit.zip(budget.limit_at(self.now)).map(|(plain, amount)| {
            let name = holder.name_of_reached_limit(amount);
            limit((plain, budget.limit_raised(self.now)), budget.used, None, name)
        });
        let windows = budget.bounds.iter().flat_map(|bounds| &bounds.windows).map(|window| {
            let name = holder.name_of_reached_window(window, self.now);
            let window = window.at(self.now);
            let ends = Some((window.per, window.resets_at()));
            limit((window.amount, window.raised), window.used, ends, name)
        });
        lifetime.into_iter().chain(windows).collect()
    }

    fn is_reached(&self, holder: Holder, budget: &Budget) -> bool {
        self.limits(holder, budget).iter().any(|limit| limit.is_reached)
    }

    fn first_of<'a>(&self, mut groups: impl Iterator<Item = &'a Group>) -> Option<LimitOf<'a>> {
        groups.find(|group| self.is_reached(Holder::Group(group.id), &group.spend.budget)).map(LimitOf::Group)
    }

    /// Returns the names of the events that report a budget's limits as reached.
    fn names(&self, holder: Holder, budget: &Budget) -> Vec<Vec<u8>> {
        let lifetime = budget.limit_at(self.now).map(|amount| holder.name_of_reached_limit(amount));
        let windows = budget.bounds.iter().flat_map(|bounds| &bounds.windows);
        let windows = windows.map(|window| holder.name_of_reached_window(window, self.now));
        lifetime.into_iter().chain(windows).collect()
    }
}

impl Management {
    /// Finds the limits of these keys and groups that make requests fail.
    pub async fn reached_limits(
        &self,
        AccountReach { account, group }: AccountReach,
        keys: &[ApiKey],
        groups: &[Group],
    ) -> Result<ReachedLimits, StoreError> {
        let mut reached = ReachedLimits { within: group, ..ReachedLimits::none(self.clock.now()) };
        // The parent's limits apply too, even if it is out of reach.
        let all = AccountReach::whole(account);
        reached.groups.extend(groups.iter().map(|group| (group.id, group.clone())));
        let ids = keys.iter().filter_map(|key| key.spend.group).filter(|id| !reached.groups.contains_key(id));
        let found = self.groups_by_id(all, ids.collect()).await?;
        reached.groups.extend(found);
        let parents = reached.groups.values().filter_map(|group| group.spend.parent);
        let parents = parents.filter(|id| !reached.groups.contains_key(id)).collect();
        let found = self.groups_by_id(all, parents).await?;
        reached.groups.extend(found);
        let of_keys = keys.iter().map(|key| (Holder::Key(key.id, None), &key.spend.budget));
        let of_groups = reached.groups.values().map(|group| (Holder::Group(group.id), &group.spend.budget));
        let names: Vec<Vec<u8>> =
            of_keys.chain(of_groups).flat_map(|(holder, budget)| reached.names(holder, budget)).collect();
        let are_told = self.store.are_told(account, names.clone()).await?;
        reached.told =
            names.into_iter().zip(are_told).filter(|(_, is_told)| *is_told).map(|(name, _)| name).collect();
        Ok(reached)
    }
}
