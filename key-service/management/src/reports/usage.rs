//! Sums of usage and of money for an account's programs.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use shared::{
    ids::{AccountId, GroupId, KeyId},
    money::NanoUsd,
};

use crate::management::Management;
use domain::usage::{Counts, Day};
use key_service_store::store::{StoreError, UsageLine};

/// Most days that are summed up: a year, and the month in which someone looks at it.
pub const MAX_DAYS: i64 = 400;

/// Number of deposits read at most; an account with one a day has as many in 270 years.
pub(crate) const MAX_DEPOSITS: usize = 100_000;

/// A part of the usage for which sums are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grouping {
    Day,
    Key,
    /// The group of the key.
    Group,
    Model,
}

/// All parts for which sums can be kept apart.
pub const GROUPINGS: [Grouping; 4] = [Grouping::Day, Grouping::Key, Grouping::Group, Grouping::Model];

impl Grouping {
    /// Name of the part in queries.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Key => "key",
            Self::Group => "group",
            Self::Model => "model",
        }
    }
}

/// The usage to sum up.
#[derive(Clone, Debug)]
pub struct UsageSearch {
    pub days: RangeInclusive<Day>,
    pub key: Option<KeyId>,
    /// Only of keys that were in this group, or in a child group of it.
    pub group: Option<GroupId>,
    /// Only of keys that were in this group, or in a child group of it. This is the reach of the caller.
    pub within: Option<GroupId>,
    /// Parts for which the sums are kept apart.
    pub by: BTreeSet<Grouping>,
}

/// Values of the parts for which a sum is kept apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Parts {
    pub day: Option<Day>,
    pub key: Option<KeyId>,
    /// Group of the key; inner `None` if the key was in no group.
    pub group: Option<Option<GroupId>>,
    /// The model's id in the catalogue.
    pub model: Option<String>,
}

pub type UsageSum = (Parts, Counts);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Money {
    /// Prepaid credit that is left.
    pub credit: NanoUsd,
    /// Part of the credit that open holds cover.
    pub held: NanoUsd,
    pub deposited: NanoUsd,
    pub used: NanoUsd,
}

impl UsageSearch {
    fn matches(&self, line: &UsageLine) -> bool {
        [self.group, self.within].into_iter().flatten().all(|group| line.payer.is_in(group))
    }

    fn parts(&self, line: &UsageLine) -> Parts {
        let payer = &line.payer;
        let [group, _] = payer.groups;
        let is_by = |grouping| self.by.contains(&grouping);
        Parts {
            day: is_by(Grouping::Day).then_some(line.day),
            key: is_by(Grouping::Key).then_some(payer.key),
            group: is_by(Grouping::Group).then_some(group),
            model: is_by(Grouping::Model).then(|| payer.model.clone()),
        }
    }
}

impl Management {
    /// Sums up the account's usage, in the order of the parts. It reads a day at a time, so that memory holds the sums
    /// and one day's counters.
    pub async fn sums_of_usage(
        &self,
        account: AccountId,
        search: &UsageSearch,
    ) -> Result<Vec<UsageSum>, StoreError> {
        let _permit = self.read_permit(account).await?;
        let keys = search.key.as_ref().map(std::slice::from_ref);
        let mut sums: BTreeMap<Parts, Counts> = BTreeMap::new();
        let mut day = *search.days.start();
        while day <= *search.days.end() {
            let lines = self.store.usage(account, day..=day, keys).await?;
            for line in lines.iter().filter(|line| search.matches(line)) {
                let sum = sums.entry(search.parts(line)).or_default();
                *sum = sum.plus(line.counts);
            }
            day = day.plus(1);
        }
        Ok(sums.into_iter().collect())
    }

    /// Returns the money of an account, which must exist.
    pub async fn money(&self, account: AccountId) -> Result<Money, StoreError> {
        loop {
            let deposits = self.store.deposits(account, MAX_DEPOSITS).await?;
            let funds = self.store.funds(account).await?.ok_or_else(|| StoreError::no_account(account))?;
            // A deposit in between would be missing in the sum, but not in the credit.
            if self.store.deposits(account, 1).await?.first() != deposits.first() {
                continue;
            }
            let deposited: i64 = deposits.iter().map(|deposit| deposit.deposited.amount.nanos()).sum();
            let used = deposited - funds.credit.nanos();
            let [deposited, used] = [deposited, used].map(NanoUsd::from_nanos);
            return Ok(Money { credit: funds.credit, held: funds.held, deposited, used });
        }
    }
}
