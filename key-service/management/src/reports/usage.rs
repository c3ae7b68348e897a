//! Sums of usage and money for programs.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use shared::{
    ids::{AccountId, GroupId, KeyId},
    money::NanoUsd,
};

use crate::{management::Management, reports::top::Depth};
use domain::usage::{Day, Hour, PartCounts};
use key_service_store::store::{AccountDay, OtherSums, StoreError, UsageLine};

/// Maximum number of days to sum: a year, plus the current month.
pub const MAX_DAYS: i64 = 400;

/// Maximum number of deposits to read: one a day for 270 years.
pub(crate) const MAX_DEPOSITS: usize = 100_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grouping {
    Day,
    Hour,
    Key,
    /// The key's group at the time of the bill.
    Group,
    /// The parent of that group, or the group itself if it had no parent.
    TopGroup,
    Model,
    /// The user that the caller sent.
    User,
    Upstream,
}

pub const GROUPINGS: [Grouping; 8] = [
    Grouping::Day,
    Grouping::Hour,
    Grouping::Key,
    Grouping::Group,
    Grouping::TopGroup,
    Grouping::Model,
    Grouping::User,
    Grouping::Upstream,
];

impl Grouping {
    /// Returns the grouping's name in queries.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Hour => "hour",
            Self::Key => "key",
            Self::Group => "group",
            Self::TopGroup => "top_group",
            Self::Model => "model",
            Self::User => "user",
            Self::Upstream => "upstream",
        }
    }
}

#[derive(Clone, Debug)]
pub struct UsageSearch {
    pub days: RangeInclusive<Day>,
    pub key: Option<KeyId>,
    /// Includes only keys while they were in this group or one of its child groups.
    pub group: Option<GroupId>,
    /// The group that the caller is limited to.
    pub within: Option<GroupId>,
    /// What the sums are grouped by.
    pub by: BTreeSet<Grouping>,
    /// Lists only this many sums, largest cost first, and adds up all others in one further sum.
    pub top: Option<usize>,
}

/// Values that a sum is grouped by.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Parts {
    pub day: Option<Day>,
    pub hour: Option<Hour>,
    pub key: Option<KeyId>,
    /// The key's group; inner `None` if the key was in no group.
    pub group: Option<Option<GroupId>>,
    /// The parent of that group; inner `None` if the key was in no group.
    pub top_group: Option<Option<GroupId>>,
    /// The model's id in the catalogue.
    pub model: Option<String>,
    pub user: Option<UserPart>,
    /// The upstream's name; inner `None` if the bill has none.
    pub upstream: Option<Option<String>>,
    /// Whether this is the sum of everything that is not listed separately.
    pub are_others: bool,
}

/// Which requests a sum by user covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UserPart {
    /// Requests of a user, under the name that the caller sent.
    Named(String),
    /// Requests without a user.
    Unnamed,
    /// Requests of users without separate sums: on a day with many users, later users are summed together.
    Others,
}

pub type UsageSum = (Parts, PartCounts);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Money {
    pub credit: NanoUsd,
    /// Part of the credit that open holds reserve.
    pub held: NanoUsd,
    pub deposited: NanoUsd,
    pub refunded: NanoUsd,
    pub used: NanoUsd,
}

impl UsageSearch {
    /// Returns whether sums for such a search exist. Users and upstreams are counted for the whole account and combine
    /// only with days: there are no sums by user for a key, a group, or a management key limited to a group.
    pub fn is_counted(&self) -> bool {
        let of_account = [Grouping::User, Grouping::Upstream].map(|by| self.by.contains(&by));
        let with_day = 1 + usize::from(self.by.contains(&Grouping::Day));
        let is_alone = self.by.len() == with_day;
        let is_of_account = self.key.is_none() && self.group.is_none() && self.within.is_none();
        !of_account.contains(&true) || is_alone && is_of_account
    }

    fn matches(&self, line: &UsageLine) -> bool {
        [self.group, self.within].into_iter().flatten().all(|group| line.payer.is_in(group))
    }

    fn parts(&self, line: &UsageLine) -> Parts {
        let payer = &line.payer;
        let [group, parent] = payer.groups;
        let is_by = |grouping| self.by.contains(&grouping);
        Parts {
            day: is_by(Grouping::Day).then_some(line.day),
            hour: None,
            user: None,
            upstream: None,
            are_others: false,
            key: is_by(Grouping::Key).then_some(payer.key),
            group: is_by(Grouping::Group).then_some(group),
            top_group: is_by(Grouping::TopGroup).then_some(parent.or(group)),
            model: is_by(Grouping::Model).then(|| payer.model.clone()),
        }
    }
}

impl Management {
    /// Sums the account's usage, ordered by the grouping. Reads a day at a time, so that only the sums and one day's
    /// counters are in memory. Empty if the search [is not counted](UsageSearch::is_counted).
    ///
    /// With `top`, the largest costs come first. By upstream, only the latest bills are read.
    pub async fn sums_of_usage(
        &self,
        account: AccountId,
        search: &UsageSearch,
    ) -> Result<Vec<UsageSum>, StoreError> {
        if !search.is_counted() {
            return Ok(Vec::new());
        }
        let sums = self.all_sums_of_usage(account, search).await?;
        Ok(match search.top {
            None => sums.into_iter().collect(),
            Some(top) => largest(sums, top),
        })
    }

    async fn all_sums_of_usage(
        &self,
        account: AccountId,
        search: &UsageSearch,
    ) -> Result<BTreeMap<Parts, PartCounts>, StoreError> {
        let _permit = self.read_permit(account).await?;
        let keys = search.key.as_ref().map(std::slice::from_ref);
        let mut sums: BTreeMap<Parts, PartCounts> = BTreeMap::new();
        let mut add = |parts: Parts, counts: PartCounts| {
            let sum = sums.entry(parts).or_default();
            *sum = sum.plus(counts);
        };
        if search.by.contains(&Grouping::User) {
            for of_day in self.account_users(account, search.days.clone()).await? {
                of_users(&of_day, search.by.contains(&Grouping::Day), &mut add);
            }
            return Ok(sums);
        }
        if search.by.contains(&Grouping::Upstream) {
            self.add_upstreams(account, search, &mut add).await?;
            return Ok(sums);
        }
        let mut day = *search.days.start();
        while day <= *search.days.end() {
            let lines = self.store.usage(account, day..=day, keys).await?;
            for line in lines.iter().filter(|line| search.matches(line)) {
                let parts = search.parts(line);
                if !search.by.contains(&Grouping::Hour) {
                    add(parts, line.counts.of.into());
                    continue;
                }
                for (hour, counts) in line.counts.hours.iter() {
                    add(Parts { hour: Some(Hour::in_day(line.day, hour)), ..parts.clone() }, counts);
                }
            }
            day = day.plus(1);
        }
        Ok(sums)
    }

    /// Adds the latest bills by upstream, and everything billed before them as others.
    async fn add_upstreams(
        &self,
        account: AccountId,
        search: &UsageSearch,
        add: &mut (impl FnMut(Parts, PartCounts) + Send),
    ) -> Result<(), StoreError> {
        let is_by_day = search.by.contains(&Grouping::Day);
        let day_of = |day: Day| is_by_day.then_some(day);
        let mut read: BTreeMap<Day, PartCounts> = BTreeMap::new();
        for (hour, upstream, counts) in
            self.bills_by_upstream(account, &search.days, Depth::LIST.bills).await?
        {
            let of_day = read.entry(hour.day()).or_default();
            *of_day = of_day.plus(counts);
            add(Parts { day: day_of(hour.day()), upstream: Some(upstream), ..Parts::default() }, counts);
        }
        for of_day in self.store.account_days(account, search.days.clone(), OtherSums::default()).await? {
            let all = of_day.models.values().map(|model| model.hours.total());
            let all = all.fold(PartCounts::default(), PartCounts::plus);
            let left = all.less(read.get(&of_day.day).copied().unwrap_or_default());
            if left != PartCounts::default() {
                add(Parts { day: day_of(of_day.day), are_others: true, ..Parts::default() }, left);
            }
        }
        Ok(())
    }

    async fn account_users(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<Vec<AccountDay>, StoreError> {
        self.store.account_days(account, days, OtherSums { groups: &[], users: true }).await
    }

    /// Returns the money of an account, which must exist.
    pub async fn money(&self, account: AccountId) -> Result<Money, StoreError> {
        loop {
            let deposits = self.store.deposits(account, MAX_DEPOSITS).await?;
            let funds = self.store.funds(account).await?.ok_or_else(|| StoreError::no_account(account))?;
            // A deposit in between would be in the credit but not in the sum of deposits.
            if self.store.deposits(account, 1).await?.first() != deposits.first() {
                continue;
            }
            let amounts = deposits.iter().map(|deposit| deposit.deposited.amount.nanos());
            let (deposited, refunded) = amounts.fold((0_i64, 0_i64), |(deposited, refunded), amount| {
                (deposited.saturating_add(amount.max(0)), refunded.saturating_sub(amount.min(0)))
            });
            let used = deposited.saturating_sub(refunded).saturating_sub(funds.credit.nanos());
            let [deposited, refunded, used] = [deposited, refunded, used].map(NanoUsd::from_nanos);
            return Ok(Money { credit: funds.credit, held: funds.held, deposited, refunded, used });
        }
    }
}

/// Returns the `top` sums with the largest costs, largest first, and the sum of all others.
fn largest(sums: BTreeMap<Parts, PartCounts>, top: usize) -> Vec<UsageSum> {
    let (others, mut sums): (Vec<_>, Vec<_>) = sums.into_iter().partition(|(parts, _)| parts.are_others);
    sums.sort_by_key(|(_, counts)| Reverse(counts.charged));
    let behind = sums.split_off(sums.len().min(top));
    let others = others.into_iter().chain(behind).map(|(_, counts)| counts);
    let others = others.fold(PartCounts::default(), PartCounts::plus);
    if others != PartCounts::default() {
        sums.push((Parts { are_others: true, ..Parts::default() }, others));
    }
    sums
}

/// Adds a day's sums by user. The rest belongs to requests without a user.
fn of_users(of_day: &AccountDay, is_by_day: bool, add: &mut impl FnMut(Parts, PartCounts)) {
    let parts = |user| Parts { day: is_by_day.then_some(of_day.day), user: Some(user), ..Parts::default() };
    let all = of_day.models.values().map(|model| model.hours.total());
    let mut unnamed = all.fold(PartCounts::default(), PartCounts::plus);
    for users in &of_day.users {
        let named = users.named().map(|(user, counts)| (UserPart::Named(user.to_string()), counts));
        for (user, counts) in named.chain([(UserPart::Others, users.others())]) {
            unnamed = unnamed.less(counts);
            if counts != PartCounts::default() {
                add(parts(user), counts);
            }
        }
    }
    if unnamed != PartCounts::default() {
        add(parts(UserPart::Unnamed), unnamed);
    }
}
