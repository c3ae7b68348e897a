//! Margins: charges compared with upstream costs.

use std::{cmp::Reverse, collections::BTreeMap, ops::RangeInclusive};

use shared::ids::{AccountId, GroupId, KeyId};

use crate::{
    management::Management,
    nouns::reach::AccountReach,
    reports::{spend::SpendBy, top::Depth},
};
use domain::usage::{Day, Margin};
use key_service_store::store::{OtherSums, StoreError, TopGroups};

/// Number of keys listed with their margins: two pages of the list.
pub const MARGIN_KEYS: usize = 50;

/// What a margin was calculated for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarginOf {
    /// Id of a model in the catalogue.
    Model(String),
    /// Id and label of a key.
    Key(KeyId, String),
    /// A group; `None` for keys without a group.
    Group(Option<GroupId>),
    /// All keys except those with the largest charges.
    OtherKeys,
    /// Keys without a group, and groups that were not compared because the account has too many groups.
    OtherGroups,
}

/// Margins of an account and its parts.
pub struct Margins {
    pub parts: Vec<(MarginOf, Margin)>,
    pub total: Margin,
    /// Whether every listed part is at least as large as any omitted part.
    pub are_largest: bool,
}

impl Management {
    /// Returns the margins on these days. If margins are split by key, the [`MARGIN_KEYS`] keys with the largest
    /// charges are listed, and all others are summed.
    pub async fn margins(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        by: SpendBy,
    ) -> Result<Margins, StoreError> {
        let _permit = self.read_permit(account).await?;
        match by {
            SpendBy::Group | SpendBy::TopGroup => self.margins_of_groups(account, days).await,
            SpendBy::Model | SpendBy::Key | SpendBy::User | SpendBy::Upstream => {
                let mut models = BTreeMap::<String, Margin>::new();
                let of_days = self.store.account_days(account, days.clone(), OtherSums::default()).await?;
                for (model, total) in of_days.into_iter().flat_map(|of_day| of_day.models) {
                    let margin = models.entry(model).or_default();
                    *margin = margin.plus(total.of);
                }
                let total = total(models.values().copied());
                if by == SpendBy::Key {
                    return self.margins_of_keys(account, days, total).await;
                }
                let of_model = |(model, margin)| (MarginOf::Model(model), margin);
                let parts = models.into_iter().map(of_model).collect();
                Ok(Margins { parts, total, are_largest: true })
            }
        }
    }

    async fn margins_of_groups(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<Margins, StoreError> {
        let TopGroups { ids: groups, are_all } =
            self.groups_apart(account, days.clone(), Depth::PAGE).await?;
        let (mut margins, mut all) = (vec![Margin::default(); groups.len()], Margin::default());
        let others = OtherSums { groups: &groups, users: false };
        for of_day in self.store.account_days(account, days, others).await? {
            all = of_day.models.values().fold(all, |all, total| all.plus(total.of));
            for (margin, sums) in margins.iter_mut().zip(&of_day.groups) {
                *margin = sums.own().fold(*margin, |all, part| all.plus(part.total.of));
            }
        }
        let rest = all.less(total(margins.iter().copied()));
        let of_groups = groups.into_iter().map(|id| MarginOf::Group(Some(id))).zip(margins);
        let rest = (if are_all { MarginOf::Group(None) } else { MarginOf::OtherGroups }, rest);
        let of_all = of_groups.chain([rest]).filter(|(_, margin)| *margin != Margin::default());
        Ok(Margins { parts: of_all.collect(), total: all, are_largest: are_all })
    }

    async fn margins_of_keys(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        all: Margin,
    ) -> Result<Margins, StoreError> {
        let compared = self.compared_lines(account, days.clone(), Depth::PAGE).await?;
        let are_largest = compared.is_some();
        let lines = if let Some(lines) = compared {
            lines
        } else {
            let keys = self.candidate_keys(account, days.clone(), None).await?;
            self.store.usage(account, days, Some(&keys)).await?
        };
        let mut margins: BTreeMap<KeyId, Margin> = BTreeMap::new();
        for line in lines {
            let margin = margins.entry(line.payer.key).or_default();
            *margin = margin.plus(line.counts.of.into());
        }
        let mut margins: Vec<(KeyId, Margin)> = margins.into_iter().collect();
        margins.sort_by_key(|(_, margin)| Reverse(margin.sums.charged));
        let behind = margins.split_off(margins.len().min(MARGIN_KEYS));
        let rest = if are_largest {
            total(behind.into_iter().map(|(_, margin)| margin))
        } else {
            all.less(total(margins.iter().map(|(_, margin)| *margin)))
        };
        let ids = margins.iter().map(|(id, _)| *id).collect();
        let keys = self.keys_by_id(AccountReach::whole(account), ids).await?;
        let label = |id: &KeyId| keys.get(id).map_or_else(String::new, |key| key.label.clone());
        let of_keys = margins.into_iter().map(|(id, margin)| (MarginOf::Key(id, label(&id)), margin));
        let rest = Some((MarginOf::OtherKeys, rest)).filter(|(_, rest)| *rest != Margin::default());
        Ok(Margins { parts: of_keys.chain(rest).collect(), total: all, are_largest })
    }
}

fn total(margins: impl Iterator<Item = Margin>) -> Margin {
    margins.fold(Margin::default(), Margin::plus)
}
