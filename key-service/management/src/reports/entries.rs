//! Sums over the requests that a search finds.

use std::ops::RangeInclusive;

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
    usage::{Day, HoursOfDay, PartCounts, Sums, part_of_user},
};
use key_service_store::store::{OtherSums, StoreError};

/// The sums of a search's entries.
#[derive(Clone, Debug)]
pub struct EntrySums {
    /// The days that are summed: the search's days, or the last [`DAYS`]; at most [`MAX_DAYS`].
    pub days: RangeInclusive<Day>,
    pub sums: Sums,
}

impl Management {
    /// Sums the counters for a search's days, key, group and model. Counters cover whole days in UTC, so a day counts
    /// completely if the search touches it. Returns `None` if the search has no days, or if there are no counters for
    /// it: for an outcome, a request, an upstream, or a user without separate counters. Users are counted for the whole
    /// account, so a caller limited to a group gets no sums by user.
    pub async fn sums_of_entries(
        &self,
        reach: AccountReach,
        search: &EntrySearch,
    ) -> Result<Option<EntrySums>, StoreError> {
        let account = reach.account;
        let last = search.ends.map(|ends| Day::of(Timestamp::from_millis(ends.millis() - 1)));
        let last = last.map_or(self.today(), |last| last.min(self.today()));
        let first = search.begins.map_or_else(|| last.plus(1 - DAYS), Day::of).max(last.plus(1 - MAX_DAYS));
        let is_counted = search.outcome.is_none()
            && search.ending.is_none()
            && search.request.is_none()
            && search.upstream.is_none();
        if !is_counted || first > last {
            return Ok(None);
        }
        let _permit = self.read_permit(account).await?;
        if let Some(user) = &search.user {
            let is_of_all = search.key.is_none() && search.group.is_none() && reach.group.is_none();
            let is_alone = is_of_all && search.model.is_none();
            return if is_alone { self.sums_of_user(account, user, first..=last).await } else { Ok(None) };
        }
        if let Some(group) = search.group.or(reach.group) {
            return self.sums_of_group(reach, search, group, first..=last).await.map(Some);
        }
        let is_wanted = |model: &str| search.model.as_ref().is_none_or(|wanted| wanted == model);
        let sums = if let Some(key) = search.key {
            self.sums_of_key(account, key, first..=last, |payer| is_wanted(&payer.model)).await?
        } else {
            let models = self.spend(account, first..=last).await?.into_values().flatten();
            let wanted = models.filter(|(model, _)| is_wanted(model));
            wanted.fold(Sums::default(), |all, (_, sums)| all.plus(sums))
        };
        Ok(Some(EntrySums { days: first..=last, sums }))
    }

    async fn sums_of_key(
        &self,
        account: AccountId,
        key: KeyId,
        days: RangeInclusive<Day>,
        is_wanted: impl Fn(&Payer) -> bool,
    ) -> Result<Sums, StoreError> {
        let lines = self.store.usage(account, days, Some(&[key])).await?.into_iter();
        let wanted = lines.filter(|line| is_wanted(&line.payer));
        Ok(wanted.fold(Sums::default(), |all, line| all.plus(line.counts.of.into())))
    }

    /// Sums the counters of a user; `None` if the user may be counted among the other users on one of the days.
    async fn sums_of_user(
        &self,
        account: AccountId,
        user: &str,
        days: RangeInclusive<Day>,
    ) -> Result<Option<EntrySums>, StoreError> {
        let (mut sums, part) = (Sums::default(), usize::from(part_of_user(user)));
        let others = OtherSums { groups: &[], users: true };
        for of_day in self.store.account_days(account, days.clone(), others).await? {
            let Some(users) = of_day.users.get(part) else { continue };
            match users.named().find(|(named, _)| ***named == *user) {
                Some((_, counts)) => sums = sums.plus(counts.into()),
                None if users.others() == PartCounts::default() => {}
                None => return Ok(None),
            }
        }
        Ok(Some(EntrySums { days, sums }))
    }

    async fn sums_of_group(
        &self,
        reach: AccountReach,
        search: &EntrySearch,
        group: GroupId,
        days: RangeInclusive<Day>,
    ) -> Result<EntrySums, StoreError> {
        let is_wanted = |model: &str| search.model.as_ref().is_none_or(|wanted| wanted == model);
        let sums = if let Some(key) = search.key {
            let is_wanted =
                |payer: &Payer| payer.is_in(group) && reach.has(payer.groups) && is_wanted(&payer.model);
            self.sums_of_key(reach.account, key, days.clone(), is_wanted).await?
        } else {
            let mut all = Sums::default();
            let add = |_, model: &str, sums, _: &HoursOfDay| {
                if is_wanted(model) {
                    all = all.plus(sums);
                }
            };
            self.add_group(reach, group, days.clone(), add).await?;
            all
        };
        Ok(EntrySums { days, sums })
    }
}
