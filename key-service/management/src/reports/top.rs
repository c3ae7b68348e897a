//! The keys and groups with the largest sums of a range.
//!
//! They have no index, so the sums of the range are read and compared. A page reads a bounded number of sums. If there
//! are more, it shows candidates: the largest payers in a sample of the range's bills, and the largest spenders of all
//! time. The candidates' sums are exact. All other keys or groups form one further part, which says that not all of
//! them were compared.

use std::{collections::BTreeMap, ops::RangeInclusive};

use futures_util::future::try_join_all;
use shared::ids::{AccountId, GroupId, KeyId};

use crate::{
    management::Management,
    nouns::{
        listing::{READ_TOGETHER, keys_of_groups},
        reach::is_in,
    },
};
use domain::{
    key::ApiKey,
    ledger::{Entry, Payer},
    usage::{Day, Sums, ranked},
};
use key_service_store::store::{Order, OtherSums, Page, StoreError, TopGroups, UsageLine};

/// Number of keys listed separately if not all can be compared, most of them from the sample.
const CANDIDATES: usize = 10;
const FROM_SAMPLE: usize = 7;

/// Minimum number of groups listed separately if the account has more groups than can be compared.
const TOP_GROUPS: usize = 40;
/// Number of newest groups among which the largest spenders are looked for.
const GROUPS_LOOKED_AT: usize = 2_000;

/// Number of the account's top keys, and of the group's newest keys, among which a group's candidates are looked for.
const KEYS_LOOKED_AT: usize = 100;

/// Number of positions in the range from which bills are sampled.
const PLACES: u64 = 8;
const BILLS_AT_A_PLACE: usize = 64;

/// How many sums are compared to find the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// Sums of keys by day, group and model.
    pub key_sums: usize,
    /// Sums of groups by day.
    pub group_sums: usize,
    /// Bills, for sums by upstream.
    pub bills: usize,
}

impl Depth {
    /// Maximum number of sums that a page reads.
    pub const PAGE: Self = Self { key_sums: 5_000, group_sums: 1_500, bills: 2_000 };
    /// Maximum number of sums that a list or a file reads.
    pub const LIST: Self = Self { key_sums: 100_000, group_sums: 15_000, bills: 50_000 };
}

impl Management {
    /// Lists the account's keys with the largest spend of all time, largest first.
    pub async fn top_keys(&self, account: AccountId, limit: usize) -> Result<Vec<ApiKey>, StoreError> {
        self.store.top_spending(account, None, limit).await
    }

    /// Reads the sums of all keys on these days; `None` if there are too many sums to compare.
    pub(super) async fn compared_lines(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        depth: Depth,
    ) -> Result<Option<Vec<UsageLine>>, StoreError> {
        self.store.usage_of_few(account, days, depth.key_sums).await
    }

    /// Lists keys that probably have the largest sums of these days, optionally within a group.
    pub(super) async fn candidate_keys(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        group: Option<GroupId>,
    ) -> Result<Vec<KeyId>, StoreError> {
        let sample = self.sample(account, days).await?;
        let wanted = sample.iter().filter(|(payer, _)| group.is_none_or(|group| payer.is_in(group)));
        let sampled = ranked(wanted.map(|(payer, sums)| (payer.key, *sums)), |sums| sums.charged.nanos());
        let mut keys: Vec<KeyId> = sampled.into_iter().map(|(key, _)| key).take(FROM_SAMPLE).collect();
        let top = match group {
            None => self.top_keys(account, CANDIDATES).await?.into_iter().map(|key| key.id).collect(),
            Some(group) => self.top_keys_of(account, group).await?,
        };
        let more: Vec<KeyId> = top.into_iter().filter(|key| !keys.contains(key)).collect();
        keys.extend(more);
        keys.truncate(CANDIDATES);
        Ok(keys)
    }

    /// Finds the keys with the largest spend in a group and its child groups, among the account's top keys and the
    /// newest keys of these groups. A key that came from another group is ranked by its whole spend; this only decides
    /// which sums are listed separately.
    async fn top_keys_of(&self, account: AccountId, group: GroupId) -> Result<Vec<KeyId>, StoreError> {
        let top = self.top_keys(account, KEYS_LOOKED_AT).await?;
        let mut groups = vec![group];
        groups.extend(self.store.child_groups(account, group).await?);
        let top = top.into_iter().filter(|key| is_in(key.spend.group, Some(&groups[..])));
        let page = Page { after: None, order: Order::Descending, status: None, limit: KEYS_LOOKED_AT };
        let read = &groups[..groups.len().min(READ_TOGETHER)];
        let found = top.chain(keys_of_groups(&self.store, account, read, page).await?);
        let mut by_use: Vec<_> =
            found.map(|key| (std::cmp::Reverse(key.spend.budget.used), key.id)).collect();
        by_use.sort_unstable();
        by_use.dedup();
        Ok(by_use.into_iter().take(CANDIDATES).map(|(_, id)| id).collect())
    }

    /// Lists all groups or, if there are too many to compare, those that probably have the largest sums of these days.
    pub(super) async fn groups_apart(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        depth: Depth,
    ) -> Result<TopGroups, StoreError> {
        let length = usize::try_from(days.end().number() - days.start().number() + 1).unwrap_or(1);
        let most = (depth.group_sums / length.max(1)).max(TOP_GROUPS);
        let mut top = self.store.groups_by_use(account, most, GROUPS_LOOKED_AT).await?;
        if !top.are_all {
            let sample = self.sample(account, days).await?;
            let groups = sample.iter().filter_map(|(payer, sums)| Some((payer.groups[0]?, *sums)));
            let sampled = ranked(groups, |sums| sums.charged.nanos());
            let more: Vec<GroupId> =
                sampled.into_iter().map(|(id, _)| id).filter(|id| !top.ids.contains(id)).collect();
            top.ids.extend(more.into_iter().take(TOP_GROUPS / 2));
        }
        Ok(top)
    }

    /// Samples bills evenly over these days: their payers and charges.
    async fn sample(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<Vec<(Payer, Sums)>, StoreError> {
        let Some(newest) = self.store.latest_entries(account, None, 1).await?.pop() else {
            return Ok(Vec::new());
        };
        let (mut within, mut behind) = (0_u64, 0_u64);
        let until_now = *days.start()..=self.today().max(*days.end());
        for of_day in self.store.account_days(account, until_now, OtherSums::default()).await? {
            let requests: u64 = of_day.models.values().map(|total| total.of.sums.requests).sum();
            let counted = if days.contains(&of_day.day) { &mut within } else { &mut behind };
            *counted = counted.saturating_add(requests);
        }
        // Nearly every bill is one journal entry, so the number of requests shows which entries the range contains.
        let end = newest.number.saturating_add(1).saturating_sub(behind);
        let places = (0..PLACES).map(|place| end.saturating_sub(within * place / PLACES));
        let read = places.map(|place| self.store.latest_entries(account, Some(place), BILLS_AT_A_PLACE));
        let mut bills = BTreeMap::new();
        for found in try_join_all(read).await?.into_iter().flatten() {
            let Entry { settlement, delta, .. } = found.entry;
            if days.contains(&Day::of(settlement.at)) {
                let sums = Sums { requests: 1, charged: delta, ..Sums::default() };
                bills.insert(found.number, (settlement.payer, sums));
            }
        }
        Ok(bills.into_values().collect())
    }
}
