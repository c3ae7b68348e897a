//! The state of the store, for operators.

use crate::management::Management;
use key_service_store::store::{Capacity as _, Ledger as _, Skew, StoreError};

/// What the store reports about its own state.
#[derive(Clone, Debug)]
pub struct StoreFacts {
    pub system: &'static str,
    /// Used share of the space, from 0 to 1; `None` if there is no limit.
    pub used: Option<f64>,
    /// Whether new accounts, keys and credit are refused. Requests continue.
    pub is_nearly_full: bool,
    /// Failures that confirmed writes may not survive.
    pub warnings: Vec<&'static str>,
    /// Our clock minus the store's; `None` if the store has no clock.
    pub skew: Option<Skew>,
    pub accounts: u64,
}

impl Management {
    pub async fn store_facts(&self) -> Result<StoreFacts, StoreError> {
        Ok(StoreFacts {
            system: self.store.system(),
            used: self.store.used_ratio().await?,
            is_nearly_full: self.store.is_nearly_full().await?,
            warnings: self.store.persistence_warnings().await,
            skew: self.store.clock_skew().await?,
            accounts: self.store.account_names().await?.len() as u64,
        })
    }
}
