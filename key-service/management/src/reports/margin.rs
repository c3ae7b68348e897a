//! Margins: charges compared with the costs of upstreams.

use std::{
    collections::{BTreeMap, HashMap},
    ops::RangeInclusive,
};

use shared::ids::{AccountId, GroupId, KeyId};

use crate::{management::Management, reports::spend::SpendBy};
use domain::usage::{Day, Margin};
use key_service_store::store::{OtherSums, StoreError, TopGroups};

/// Number of keys whose margins are read: two of the list's pages.
pub const MARGIN_KEYS: usize = 50;

/// What a margin belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarginOf {
    /// Id of a model in the catalogue.
    Model(String),
    /// Id and label of a key.
    Key(KeyId, String),
    /// A group; `None` stands for keys without a group.
    Group(Option<GroupId>),
    /// All groups but the ones that have spent most, and keys without a group.
    OtherGroups,
}

/// Margins of an account, and of its parts.
pub struct Margins {
    pub parts: Vec<(MarginOf, Margin)>,
    /// Margin of the whole account.
    pub total: Margin,
}

impl Management {
    /// Returns the margins of these days. By key, they are those of the [`MARGIN_KEYS`] keys with the largest spend of
    /// all time.
    pub async fn margins(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        by: SpendBy,
    ) -> Result<Margins, StoreError> {
        let _permit = self.read_permit(account).await?;
        match by {
            SpendBy::Group => self.margins_of_groups(account, days).await,
            SpendBy::Model | SpendBy::Key | SpendBy::User => {
                let mut models = BTreeMap::<String, Margin>::new();
                let of_days = self.store.account_days(account, days.clone(), OtherSums::default()).await?;
                for (model, total) in of_days.into_iter().flat_map(|of_day| of_day.models) {
                    let margin = models.entry(model).or_default();
                    *margin = margin.plus(total.of);
                }
                let total = total(models.values().copied());
                let parts = if by == SpendBy::Key {
                    self.margins_of_keys(account, days).await?
                } else {
                    models.into_iter().map(|(model, margin)| (MarginOf::Model(model), margin)).collect()
                };
                Ok(Margins { parts, total })
            }
        }
    }

    async fn margins_of_groups(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<Margins, StoreError> {
        let TopGroups { ids: groups, are_all } = self.groups_apart(account).await?;
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
        Ok(Margins { parts: of_all.collect(), total: all })
    }

    async fn margins_of_keys(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<Vec<(MarginOf, Margin)>, StoreError> {
        let keys = self.store.top_spending(account, None, MARGIN_KEYS).await?;
        let ids: Vec<KeyId> = keys.iter().map(|key| key.id).collect();
        let mut margins: HashMap<KeyId, Margin> = HashMap::new();
        for line in self.store.usage(account, days, Some(&ids)).await? {
            let margin = margins.entry(line.payer.key).or_default();
            *margin = margin.plus(line.counts.of.into());
        }
        let of_key = |key: domain::key::ApiKey| {
            let margin = margins.get(&key.id).copied()?;
            Some((MarginOf::Key(key.id, key.label), margin))
        };
        Ok(keys.into_iter().filter_map(of_key).collect())
    }
}

fn total(margins: impl Iterator<Item = Margin>) -> Margin {
    margins.fold(Margin::default(), Margin::plus)
}
