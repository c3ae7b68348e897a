//! Margins: charges compared with the costs of upstreams.

use std::{collections::HashMap, ops::RangeInclusive};

use shared::ids::{AccountId, GroupId, KeyId};

use crate::{management::Management, reports::spend::SpendBy};
use domain::usage::{Day, Margin};
use key_service_store::store::StoreError;

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
}

/// Margins, and the margin of the whole account.
pub type Margins = (Vec<(MarginOf, Margin)>, Margin);

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
        let margins: Vec<_> = match by {
            SpendBy::Model => {
                let models = self.store.margins_by_model(account, days).await?;
                models.into_iter().map(|(model, margin)| (MarginOf::Model(model), margin)).collect()
            }
            SpendBy::Group => {
                let groups = self.store.margins_by_group(account, days).await?;
                groups.into_iter().map(|(group, margin)| (MarginOf::Group(group), margin)).collect()
            }
            SpendBy::Key => {
                let all = self.store.margins_by_model(account, days.clone()).await?;
                return Ok((self.margins_of_keys(account, days).await?, total(all.into_values())));
            }
        };
        let all = total(margins.iter().map(|(_, margin)| *margin));
        Ok((margins, all))
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
            *margin = margin.plus(line.counts.into());
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
