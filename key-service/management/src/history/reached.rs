//! Reached limits: the bounds on money for which requests of keys are refused.
//!
//! A limit of tokens' prices is hardly ever used to the last billionth, so what is left does not show that it is
//! reached. The event does. A refusal for a bound, or its last billionth, writes one, under a name with the amount and,
//! for a window, its beginning. Stores keep these names. A raised limit and the next window have another name. A
//! limit whose raise has ended has its earlier name again.

use std::collections::{HashMap, HashSet};

use shared::{calendar::Per, ids::GroupId, money::NanoUsd, time::Timestamp, wire::Raise};

use crate::{management::Management, nouns::reach::AccountReach};
use domain::{
    group::Group,
    key::ApiKey,
    ledger::{Budget, Holder, is_nearly_used},
};
use key_service_store::store::StoreError;

/// Reached limits of some keys and groups, with the groups above them.
#[derive(Debug)]
pub struct ReachedLimits {
    /// Groups of the keys and groups, with their parents.
    pub groups: HashMap<GroupId, Group>,
    /// Names of the thresholds that were told.
    told: HashSet<Vec<u8>>,
    /// The only group of which all is shown, with its child groups. Of the one above it, its name alone.
    within: Option<GroupId>,
    now: Timestamp,
}

/// Owner of a limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOf<'a> {
    /// The key or the group itself.
    Own,
    /// A group that it is in.
    Group(&'a Group),
}

/// A bound on money and what was spent of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoneyLimit {
    /// Largest amount that may be spent now.
    pub amount: NanoUsd,
    /// End of the raise by which the amount holds, and the amount from then on; `None` if the limit is not raised.
    pub after_raise: Option<(Timestamp, NanoUsd)>,
    /// Amount spent; for a window, within the window that runs.
    pub used: NanoUsd,
    /// Length of the window, and the end of the one that runs; `None` for a lifetime limit.
    pub window: Option<(Per, Timestamp)>,
    /// Requests are refused for this bound.
    pub is_reached: bool,
}

impl MoneyLimit {
    pub const fn left(&self) -> NanoUsd {
        self.amount.left_after(self.used)
    }

    /// Returns whether the limit is reached, or four fifths of it are used.
    pub fn is_nearly_used(&self) -> bool {
        self.is_reached || is_nearly_used(self.amount, self.used)
    }
}

impl ReachedLimits {
    /// Makes an empty set of limits as of this time.
    pub fn none(now: Timestamp) -> Self {
        Self { groups: HashMap::new(), told: HashSet::new(), within: None, now }
    }

    /// The time of these limits.
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns the reached groups whose bounds hold for a key, the nearest first.
    pub fn groups_of(&self, key: &ApiKey) -> Vec<&Group> {
        let group = key.spend.group.and_then(|id| self.groups.get(&id));
        group.into_iter().chain(group.and_then(|group| self.parent_of(group))).collect()
    }

    /// The group that a group is in, if it is reached.
    pub fn parent_of(&self, group: &Group) -> Option<&Group> {
        self.above(group).filter(|_| self.within != Some(group.id))
    }

    fn above(&self, group: &Group) -> Option<&Group> {
        group.spend.parent.and_then(|id| self.groups.get(&id))
    }

    /// Returns the nearest limit for which requests of a key are refused.
    pub fn of_key(&self, key: &ApiKey) -> Option<LimitOf<'_>> {
        if self.is_reached(Holder::Key(key.id, None), &key.spend.budget) {
            return Some(LimitOf::Own);
        }
        let group = key.spend.group.and_then(|id| self.groups.get(&id));
        self.first_of(group.into_iter().chain(group.and_then(|group| self.above(group))))
    }

    /// Returns the nearest limit on money for which requests of a key are refused, with its holder.
    pub fn first_reached(&self, key: &ApiKey) -> Option<(Holder, MoneyLimit)> {
        let own = (Holder::Key(key.id, None), &key.spend.budget);
        let groups = self.groups_of(key);
        let of_groups = groups.iter().map(|group| (Holder::Group(group.id), &group.spend.budget));
        let mut limits = std::iter::once(own).chain(of_groups).flat_map(|(holder, budget)| {
            self.limits(holder, budget).into_iter().map(move |limit| (holder, limit))
        });
        limits.find(|(_, limit)| limit.is_reached)
    }

    /// Returns the nearest limit for which requests of a group's keys are refused.
    pub fn of_group(&self, group: &Group) -> Option<LimitOf<'_>> {
        if self.is_reached(Holder::Group(group.id), &group.spend.budget) {
            return Some(LimitOf::Own);
        }
        self.first_of(self.above(group).into_iter())
    }

    /// Returns the bounds on money of a budget, the lifetime limit first.
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

    /// Returns the names under which events tell that bounds of a budget are reached.
    fn names(&self, holder: Holder, budget: &Budget) -> Vec<Vec<u8>> {
        let lifetime = budget.limit_at(self.now).map(|amount| holder.name_of_reached_limit(amount));
        let windows = budget.bounds.iter().flat_map(|bounds| &bounds.windows);
        let windows = windows.map(|window| holder.name_of_reached_window(window, self.now));
        lifetime.into_iter().chain(windows).collect()
    }
}

impl Management {
    /// Finds the limits of these keys and groups for which requests are refused.
    pub async fn reached_limits(
        &self,
        AccountReach { account, group }: AccountReach,
        keys: &[ApiKey],
        groups: &[Group],
    ) -> Result<ReachedLimits, StoreError> {
        let mut reached = ReachedLimits { within: group, ..ReachedLimits::none(self.clock.now()) };
        // The bounds of the group above hold too, even if it is out of reach.
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
