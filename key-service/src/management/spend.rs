//! Spend of the last days, by day and model, and the keys that spent most.

use std::collections::BTreeMap;

use shared::{
    ids::{AccountId, KeyId},
    money::NanoUsd,
};

use super::Management;
use crate::store::StoreError;
use domain::{key::ApiKey, usage::Day};

/// Days that are added up.
pub const DAYS: i64 = 30;

/// Charges by day and model.
pub type Spend = BTreeMap<Day, BTreeMap<String, NanoUsd>>;

impl Management {
    /// The spend of the account in the last [`DAYS`].
    pub async fn spend(&self, account: AccountId) -> Result<Spend, StoreError> {
        let today = self.today();
        let mut spend = Spend::new();
        for line in self.store.spend(account, today.plus(1 - DAYS)..=today).await? {
            spend.entry(line.day).or_default().insert(line.model, line.charged);
        }
        Ok(spend)
    }

    /// Sums the spend of a key in the last [`DAYS`].
    pub async fn spend_of(&self, account: AccountId, key: KeyId) -> Result<Spend, StoreError> {
        let today = self.today();
        let mut spend = Spend::new();
        let _permit = self.read_permit(account).await?;
        for line in self.store.usage(account, today.plus(1 - DAYS)..=today, Some(key)).await? {
            // A key that moved to another group has a line for each group.
            let charged = spend.entry(line.day).or_default().entry(line.payer.model).or_default();
            *charged = NanoUsd::from_nanos(charged.nanos().saturating_add(line.counts.charged.nanos()));
        }
        Ok(spend)
    }

    /// The keys of the account that spent most, largest spend first.
    pub async fn top_keys(&self, account: AccountId, limit: usize) -> Result<Vec<ApiKey>, StoreError> {
        self.store.top_spending(account, None, limit).await
    }
}
