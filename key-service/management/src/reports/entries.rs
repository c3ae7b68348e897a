//! Sums over the requests that a search finds.

use std::ops::{Range, RangeInclusive};

use shared::{
    ids::{AccountId, GroupId, KeyId},
    time::Timestamp,
};

use crate::{
    management::Management,
    nouns::reach::AccountReach,
    reports::{spend::DAYS, usage::MAX_DAYS},
};
use domain::{
    ledger::Payer,
    search::EntrySearch,
    usage::{Day, Hour, HoursOfDay, PartCounts, Sums, part_of_user},
};
use key_service_store::store::{AccountDay, OtherSums, StoreError, UsageLine};

const HOUR_MILLIS: i64 = 3_600_000;

/// The sums of a search's entries.
#[derive(Clone, Debug)]
pub struct EntrySums {
    /// First instant of the summed period: where the search begins or, by default, [`DAYS`] days before the end, but
    /// never more than [`MAX_DAYS`] days before the end.
    pub begins: Timestamp,
    /// End of the summed period. This instant is not part of the period.
    pub ends: Timestamp,
    pub sums: Sums,
}

/// Hours to sum. An hour belongs to a search that contains its first instant.
#[derive(Clone, Debug)]
struct SummedHours(Range<Hour>);

impl SummedHours {
    fn of(search: &EntrySearch, today: Day) -> Self {
        let from = |at: Timestamp| Hour::of(Timestamp::from_millis(at.millis() + HOUR_MILLIS - 1));
        // In another zone, the end of the current day may be as much as 24 hours later than in UTC.
        let latest = Hour::in_day(today.plus(2), 0);
        let end = search.ends.map_or_else(|| Hour::in_day(today.plus(1), 0), |ends| from(ends).min(latest));
        let last = Hour(end.0 - 1).day();
        let first = search.begins.map_or_else(|| Hour::in_day(last.plus(1 - DAYS), 0), from);
        Self(first.max(Hour::in_day(last.plus(1 - MAX_DAYS), 0))..end)
    }

    /// Returns these hours as whole days, up to the current day.
    fn in_whole_days(&self, today: Day) -> Self {
        let days = self.days();
        let last = today.min(*days.end());
        Self(Hour::in_day(*days.start(), 0)..Hour::in_day(last.plus(1), 0))
    }

    fn days(&self) -> RangeInclusive<Day> {
        self.0.start.day()..=Hour(self.0.end.0 - 1).day()
    }

    /// Returns the part of a day's sums that belongs to these hours.
    fn part(&self, day: Day, whole: Sums, hours: &HoursOfDay) -> Sums {
        if self.0.start <= Hour::in_day(day, 0) && Hour::in_day(day.plus(1), 0) <= self.0.end {
            return whole;
        }
        let within = hours.iter().filter(|(hour, _)| self.0.contains(&Hour::in_day(day, *hour)));
        within.fold(Sums::default(), |all, (_, counts)| all.plus(counts.into()))
    }

    fn with(&self, sums: Sums) -> EntrySums {
        EntrySums { begins: self.0.start.begins(), ends: self.0.end.begins(), sums }
    }
}

impl Management {
    /// Sums the counters for a search's time, key, group and model. Counters are kept by the hour, and for users by the
    /// day in UTC. Returns `None` if the search has no time, or if there are no counters for it: for an outcome, a
    /// request, an upstream, or a user without separate counters. Users are counted for the whole account, so a caller
    /// limited to a group gets no sums by user.
    pub async fn sums_of_entries(
        &self,
        reach: AccountReach,
        search: &EntrySearch,
    ) -> Result<Option<EntrySums>, StoreError> {
        let account = reach.account;
        let today = self.today();
        let hours = SummedHours::of(search, today);
        let is_counted = search.outcome.is_none()
            && search.ending.is_none()
            && search.request.is_none()
            && search.upstream.is_none();
        if !is_counted || hours.0.is_empty() {
            return Ok(None);
        }
        let _permit = self.read_permit(account).await?;
        if let Some(user) = &search.user {
            let is_of_all = search.key.is_none() && search.group.is_none() && reach.group.is_none();
            let is_alone = is_of_all && search.model.is_none();
            let days = hours.in_whole_days(today);
            let is_alone = is_alone && !days.0.is_empty();
            return if is_alone { self.sums_of_user(account, user, days).await } else { Ok(None) };
        }
        if let Some(group) = search.group.or(reach.group) {
            return self.sums_of_group(reach, search, group, hours).await.map(Some);
        }
        let is_wanted = |model: &str| search.model.as_ref().is_none_or(|wanted| wanted == model);
        let sums = if let Some(key) = search.key {
            self.sums_of_key(account, key, &hours, |payer| is_wanted(&payer.model)).await?
        } else {
            let days = self.store.account_days(account, hours.days(), OtherSums::default()).await?;
            let models = days.into_iter().flat_map(|AccountDay { day, models, .. }| {
                models.into_iter().map(move |(model, total)| (day, model, total))
            });
            let wanted = models.filter(|(_, model, _)| is_wanted(model));
            wanted.fold(Sums::default(), |all, (day, _, total)| {
                all.plus(hours.part(day, total.of.sums, &total.hours))
            })
        };
        Ok(Some(hours.with(sums)))
    }

    async fn sums_of_key(
        &self,
        account: AccountId,
        key: KeyId,
        hours: &SummedHours,
        is_wanted: impl Fn(&Payer) -> bool,
    ) -> Result<Sums, StoreError> {
        let lines = self.store.usage(account, hours.days(), Some(&[key])).await?.into_iter();
        let wanted = lines.filter(|line| is_wanted(&line.payer));
        Ok(wanted.fold(Sums::default(), |all, UsageLine { day, counts, .. }| {
            all.plus(hours.part(day, counts.of.into(), &counts.hours))
        }))
    }

    /// Sums the counters of a user; `None` if the user may be counted among the other users on one of the days.
    async fn sums_of_user(
        &self,
        account: AccountId,
        user: &str,
        hours: SummedHours,
    ) -> Result<Option<EntrySums>, StoreError> {
        let (mut sums, part) = (Sums::default(), usize::from(part_of_user(user)));
        let others = OtherSums { groups: &[], users: true };
        for of_day in self.store.account_days(account, hours.days(), others).await? {
            let Some(users) = of_day.users.get(part) else { continue };
            match users.named().find(|(named, _)| ***named == *user) {
                Some((_, counts)) => sums = sums.plus(counts.into()),
                None if users.others() == PartCounts::default() => {}
                None => return Ok(None),
            }
        }
        Ok(Some(hours.with(sums)))
    }

    async fn sums_of_group(
        &self,
        reach: AccountReach,
        search: &EntrySearch,
        group: GroupId,
        hours: SummedHours,
    ) -> Result<EntrySums, StoreError> {
        let is_wanted = |model: &str| search.model.as_ref().is_none_or(|wanted| wanted == model);
        let sums = if let Some(key) = search.key {
            let is_wanted =
                |payer: &Payer| payer.is_in(group) && reach.has(payer.groups) && is_wanted(&payer.model);
            self.sums_of_key(reach.account, key, &hours, is_wanted).await?
        } else {
            let mut all = Sums::default();
            let add = |day, model: &str, sums, of_day: &HoursOfDay| {
                if is_wanted(model) {
                    all = all.plus(hours.part(day, sums, of_day));
                }
            };
            self.add_group(reach, group, hours.days(), add).await?;
            all
        };
        Ok(hours.with(sums))
    }
}
