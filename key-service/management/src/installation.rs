//! The state of the installation, as far as the store knows it.

use crate::management::Management;
use key_service_store::store::{Capacity as _, Ledger as _, Skew, StoreError};

/// The store, and what it says of itself.
#[derive(Clone, Debug)]
pub struct StoreFacts {
    /// Name of the backend.
    pub system: &'static str,
    /// Used share of the room, from 0 to 1; `None` without a bound.
    pub used: Option<f64>,
    /// New accounts, keys and credit are refused, and requests go on.
    pub is_nearly_full: bool,
    /// What answered writes may not survive.
    pub warnings: Vec<&'static str>,
    /// Our clock less the store's; `None` where the store has no clock of its own.
    pub skew: Option<Skew>,
    pub accounts: u64,
}

impl Management {
    /// Asks the store about itself.
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
