//! Daily sums by model, key, group and user.

use std::{
    collections::{BTreeMap, HashMap},
    ops::RangeInclusive,
};

use shared::{
    ids::{AccountId, GroupId, KeyId},
    money::NanoUsd,
};

use crate::{
    management::Management,
    nouns::reach::AccountReach,
    reports::{local_days::LocalDays, top::Depth},
};
use domain::{
    ledger::Payer,
    usage::{Day, DayTotal, GroupKeys, Hour, HoursOfDay, Margin, RATE_DAYS, Sums},
};
use key_service_store::store::{AccountDay, OtherSums, StoreError, TopGroups, UsageLine};

/// Default number of days to sum.
pub const DAYS: i64 = RATE_DAYS;

/// How a spend is broken down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpendBy {
    Model,
    Key,
    /// The key's group at the time of the bill.
    Group,
    /// The parent of that group, or the group itself if it had no parent.
    TopGroup,
    /// The user that callers name.
    User,
    Upstream,
}

/// One part of a spend that is broken down.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpendPart {
    /// Id of a model in the catalogue.
    Model(String),
    Key(KeyId),
    /// A group; `None` for keys without a group.
    Group(Option<GroupId>),
    /// A user, under the name that callers send; `None` for requests without a user.
    User(Option<String>),
    /// An upstream, under its name in the catalogue; `None` for bills without an upstream.
    Upstream(Option<String>),
    /// Keys that were not compared because the range has too many keys.
    OtherKeys,
    /// Keys without a group, and groups that were not compared because the account has too many groups.
    OtherGroups,
    /// Users without separate sums: on a day with many users, later users are summed together.
    OtherUsers,
    /// Bills that were not read because the range has too many bills.
    OtherBills,
}

impl SpendPart {
    /// Returns whether the part is the sum of several parts that are not listed separately.
    pub const fn is_rest(&self) -> bool {
        match self {
            Self::OtherKeys | Self::OtherGroups | Self::OtherUsers | Self::OtherBills => true,
            Self::Model(_) | Self::Key(_) | Self::Group(_) | Self::User(_) | Self::Upstream(_) => false,
        }
    }
}

/// Step of the time axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChartStep {
    Day,
    Hour,
}

/// Which sums of a range to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpendSearch {
    /// Users are counted by days in UTC, whatever the zone.
    pub range: LocalDays,
    pub by: SpendBy,
    pub step: ChartStep,
    pub depth: Depth,
}

/// Sums by part and time, in the zone of the search. A daily sum is stored under the day's first hour.
pub type SpendParts = BTreeMap<SpendPart, BTreeMap<Hour, Sums>>;

/// Sums by day and model.
pub type Spend = BTreeMap<Day, BTreeMap<String, Sums>>;

/// Parts of a spend, and the total from which the rest is calculated.
struct PartsAndRest {
    step: ChartStep,
    range: LocalDays,
    parts: SpendParts,
    rest: BTreeMap<Hour, Sums>,
}

impl PartsAndRest {
    const fn new(step: ChartStep, range: LocalDays) -> Self {
        Self { step, range, parts: SpendParts::new(), rest: BTreeMap::new() }
    }

    /// Splits the sums of a day in UTC into the steps of the time axis.
    fn times(&self, day: Day, whole: Sums, hours: &HoursOfDay) -> Vec<(Hour, Sums)> {
        match self.step {
            ChartStep::Day if self.range.hours.are_utc() => vec![(Hour::in_day(day, 0), whole)],
            ChartStep::Day => self.range.days_of(day, whole, hours),
            ChartStep::Hour => self.range.hours_of(day, whole, hours),
        }
    }

    /// Adds the sums of a part.
    fn add(&mut self, part: &SpendPart, day: Day, whole: Sums, hours: &HoursOfDay) {
        let times = self.times(day, whole, hours);
        if times.is_empty() {
            return;
        }
        let of_part = self.parts.entry(part.clone()).or_default();
        for (time, sums) in times {
            let at_time = of_part.entry(time).or_default();
            *at_time = at_time.plus(sums);
        }
    }

    /// Adds the lines of the wanted keys.
    fn add_keys(&mut self, lines: Vec<UsageLine>, is_wanted: impl Fn(&Payer) -> bool) {
        for UsageLine { day, payer, counts } in lines.into_iter().filter(|line| is_wanted(&line.payer)) {
            self.add(&SpendPart::Key(payer.key), day, counts.of.into(), &counts.hours);
        }
    }

    /// Adds a total to the rest. At the end, the parts are subtracted from the rest.
    fn leave(&mut self, day: Day, whole: Sums, hours: &HoursOfDay) {
        for (time, sums) in self.times(day, whole, hours) {
            let rest = self.rest.entry(time).or_default();
            *rest = rest.plus(sums);
        }
    }

    fn leave_all(&mut self, of_day: &AccountDay) {
        for total in of_day.models.values() {
            self.leave(of_day.day, total.of.sums, &total.hours);
        }
    }

    /// Returns the parts, with the rest as one more part.
    fn with_rest(self, part: SpendPart) -> SpendParts {
        let Self { mut parts, mut rest, .. } = self;
        for (time, sums) in parts.values().flatten() {
            rest.entry(*time).and_modify(|left| *left = left.less(*sums));
        }
        rest.retain(|_, left| *left != Sums::default());
        if !rest.is_empty() {
            parts.insert(part, rest);
        }
        parts
    }
}

impl Management {
    /// Returns the account's sums on these days.
    pub async fn spend(&self, account: AccountId, days: RangeInclusive<Day>) -> Result<Spend, StoreError> {
        let days = self.store.account_days(account, days, OtherSums::default()).await?;
        let of_day = |AccountDay { day, models, .. }| {
            let models: BTreeMap<_, _> = models
                .into_iter()
                .map(|(model, total): (String, DayTotal<Margin>)| (model, total.of.sums))
                .collect();
            (!models.is_empty()).then_some((day, models))
        };
        Ok(days.into_iter().filter_map(of_day).collect())
    }

    /// Returns the account's sums by part. If there are too many keys, groups or bills to compare, the rest form one
    /// part. There are no hourly sums by user.
    pub async fn spend_parts(
        &self,
        account: AccountId,
        search: SpendSearch,
    ) -> Result<SpendParts, StoreError> {
        match search.by {
            SpendBy::Model => {
                let SpendSearch { range, step, .. } = search;
                let days = range.utc_days();
                let mut parts = PartsAndRest::new(step, range);
                for AccountDay { day, models, .. } in
                    self.store.account_days(account, days, OtherSums::default()).await?
                {
                    for (model, total) in models {
                        parts.add(&SpendPart::Model(model), day, total.of.sums, &total.hours);
                    }
                }
                Ok(parts.parts)
            }
            SpendBy::Key => self.spend_by_key(account, search).await,
            SpendBy::Group | SpendBy::TopGroup => self.spend_by_group(account, search).await,
            SpendBy::User => self.spend_by_user(account, search.range.days).await,
            SpendBy::Upstream => self.spend_by_upstream(account, search).await,
        }
    }

    async fn spend_by_key(
        &self,
        account: AccountId,
        SpendSearch { range, step, depth, .. }: SpendSearch,
    ) -> Result<SpendParts, StoreError> {
        let _permit = self.read_permit(account).await?;
        let days = range.utc_days();
        let mut parts = PartsAndRest::new(step, range);
        if let Some(lines) = self.compared_lines(account, days.clone(), depth).await? {
            parts.add_keys(lines, |_| true);
            return Ok(parts.parts);
        }
        let keys = self.candidate_keys(account, days.clone(), None).await?;
        for of_day in &self.store.account_days(account, days.clone(), OtherSums::default()).await? {
            parts.leave_all(of_day);
        }
        parts.add_keys(self.store.usage(account, days, Some(&keys)).await?, |_| true);
        Ok(parts.with_rest(SpendPart::OtherKeys))
    }

    /// Returns a key's sums on these days by model, for the time in which it was within reach.
    pub async fn spend_of_key(
        &self,
        reach: AccountReach,
        key: KeyId,
        SpendSearch { range, step, .. }: SpendSearch,
    ) -> Result<SpendParts, StoreError> {
        let _permit = self.read_permit(reach.account).await?;
        let days = range.utc_days();
        let mut parts = PartsAndRest::new(step, range);
        for UsageLine { day, payer, counts } in self.store.usage(reach.account, days, Some(&[key])).await? {
            // A key that changed groups has a line for each group.
            if reach.has(payer.groups) {
                parts.add(&SpendPart::Model(payer.model), day, counts.of.into(), &counts.hours);
            }
        }
        Ok(parts.parts)
    }

    /// Returns the sums of a group and its child groups by model or key, for the time in which they were within reach.
    /// If the account has too many keys to compare, most of them form one part.
    pub async fn spend_of_group(
        &self,
        reach: AccountReach,
        group: GroupId,
        SpendSearch { range, by, step, depth }: SpendSearch,
    ) -> Result<SpendParts, StoreError> {
        let _permit = self.read_permit(reach.account).await?;
        let days = range.utc_days();
        let (mut parts, mut rest) = (PartsAndRest::new(step, range.clone()), PartsAndRest::new(step, range));
        let is_wanted = |payer: &Payer| payer.is_in(group) && reach.has(payer.groups);
        if by == SpendBy::Key
            && let Some(lines) = self.compared_lines(reach.account, days.clone(), depth).await?
        {
            parts.add_keys(lines, is_wanted);
            return Ok(parts.parts);
        }
        let add = |day, model: &str, sums, hours: &HoursOfDay| {
            parts.add(&SpendPart::Model(model.to_owned()), day, sums, hours);
            rest.leave(day, sums, hours);
        };
        self.add_group(reach, group, days.clone(), add).await?;
        if by != SpendBy::Key {
            return Ok(parts.parts);
        }
        let keys = self.candidate_keys(reach.account, days.clone(), Some(group)).await?;
        rest.add_keys(self.store.usage(reach.account, days, Some(&keys)).await?, is_wanted);
        Ok(rest.with_rest(SpendPart::OtherKeys))
    }

    /// Adds the sums of a group and its child groups by day and model, for the time in which they were within reach.
    pub(super) async fn add_group(
        &self,
        reach: AccountReach,
        group: GroupId,
        days: RangeInclusive<Day>,
        mut add: impl FnMut(Day, &str, Sums, &HoursOfDay),
    ) -> Result<(), StoreError> {
        // If a bill counts in both groups, one of them was the parent of the other at the time.
        let of = match reach.group.filter(|reached| *reached != group) {
            None => vec![(group, None)],
            Some(reached) => vec![
                (group, Some(GroupKeys::Own(Some(reached)))),
                (reached, Some(GroupKeys::Own(Some(group)))),
            ],
        };
        for (group, keys) in of {
            for (day, sums) in self.store.group_days(reach.account, days.clone(), group).await? {
                for part in sums.parts().filter(|part| keys.is_none_or(|keys| part.keys == keys)) {
                    add(day, &part.model, part.total.of.sums, &part.total.hours);
                }
            }
        }
        Ok(())
    }

    /// Returns the sums of each of these keys on these days.
    pub async fn sums_of_keys(
        &self,
        account: AccountId,
        range: &LocalDays,
        keys: &[KeyId],
    ) -> Result<HashMap<KeyId, Sums>, StoreError> {
        let _permit = self.read_permit(account).await?;
        Ok(by_key(range, self.store.usage(account, range.utc_days(), Some(keys)).await?.into_iter()))
    }

    /// Returns each key's charges on these days while it was within reach and in a group or one of its child groups.
    pub async fn charged_in_group(
        &self,
        reach: AccountReach,
        group: GroupId,
        range: &LocalDays,
        keys: &[KeyId],
    ) -> Result<HashMap<KeyId, NanoUsd>, StoreError> {
        let _permit = self.read_permit(reach.account).await?;
        let lines = self.store.usage(reach.account, range.utc_days(), Some(keys)).await?.into_iter();
        let wanted = lines.filter(|line| line.payer.is_in(group) && reach.has(line.payer.groups));
        Ok(by_key(range, wanted).into_iter().map(|(key, sums)| (key, sums.charged)).collect())
    }

    async fn spend_by_group(
        &self,
        account: AccountId,
        SpendSearch { range, by, step, depth }: SpendSearch,
    ) -> Result<SpendParts, StoreError> {
        let _permit = self.read_permit(account).await?;
        let days = range.utc_days();
        let TopGroups { ids: groups, are_all } = self.groups_apart(account, days.clone(), depth).await?;
        let others = OtherSums { groups: &groups, users: false };
        let mut parts = PartsAndRest::new(step, range);
        for of_day in self.store.account_days(account, days, others).await? {
            parts.leave_all(&of_day);
            for (group, sums) in groups.iter().zip(&of_day.groups) {
                for part in sums.parts().filter(|part| counts_for(by, part.keys)) {
                    let (of, total) = (SpendPart::Group(Some(*group)), &part.total);
                    parts.add(&of, of_day.day, total.of.sums, &total.hours);
                }
            }
        }
        Ok(parts.with_rest(if are_all { SpendPart::Group(None) } else { SpendPart::OtherGroups }))
    }

    async fn spend_by_upstream(
        &self,
        account: AccountId,
        SpendSearch { range, step, depth, .. }: SpendSearch,
    ) -> Result<SpendParts, StoreError> {
        let _permit = self.read_permit(account).await?;
        let days = range.utc_days();
        let mut parts = PartsAndRest::new(step, range);
        let bills = self.bills_by_upstream(account, &days, depth.bills).await?;
        for of_day in &self.store.account_days(account, days, OtherSums::default()).await? {
            parts.leave_all(of_day);
        }
        for (hour, upstream, counts) in bills {
            let mut hours = HoursOfDay::default();
            hours.add(hour.of_day(), counts);
            parts.add(&SpendPart::Upstream(upstream), hour.day(), counts.into(), &hours);
        }
        Ok(parts.with_rest(SpendPart::OtherBills))
    }

    async fn spend_by_user(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<SpendParts, StoreError> {
        let _permit = self.read_permit(account).await?;
        let (others, none) = (OtherSums { groups: &[], users: true }, HoursOfDay::default());
        let mut parts = PartsAndRest::new(ChartStep::Day, LocalDays::utc(days.clone()));
        for of_day in self.store.account_days(account, days, others).await? {
            parts.leave_all(&of_day);
            for users in &of_day.users {
                for (user, counts) in users.named() {
                    let part = SpendPart::User(Some(user.to_string()));
                    parts.add(&part, of_day.day, counts.into(), &none);
                }
                let others = Sums::from(users.others());
                if others != Sums::default() {
                    parts.add(&SpendPart::OtherUsers, of_day.day, others, &none);
                }
            }
        }
        Ok(parts.with_rest(SpendPart::User(None)))
    }
}

/// Adds up each key's lines, counting only what belongs to these days.
fn by_key(range: &LocalDays, lines: impl Iterator<Item = UsageLine>) -> HashMap<KeyId, Sums> {
    lines.fold(HashMap::new(), |mut sums, line| {
        let sum: &mut Sums = sums.entry(line.payer.key).or_default();
        *sum = sum.plus(range.sums_of(&line));
        sums
    })
}

/// Returns whether a group's counts for these keys are added to the group's part. A top-level group's part includes its
/// child groups.
const fn counts_for(by: SpendBy, keys: GroupKeys) -> bool {
    match (by, keys) {
        (SpendBy::TopGroup, GroupKeys::Own(None) | GroupKeys::Below) => true,
        (SpendBy::TopGroup, GroupKeys::Own(Some(_))) => false,
        (SpendBy::Model | SpendBy::Key | SpendBy::Group | SpendBy::User | SpendBy::Upstream, _) => {
            !matches!(keys, GroupKeys::Below)
        }
    }
}
