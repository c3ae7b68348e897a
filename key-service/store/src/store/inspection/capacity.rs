//! Free space of the store.

use async_trait::async_trait;

use crate::store::base::Store;
use key_service_ledger::StoreError;
use records::MissingServers;

/// Free space of the store.
#[async_trait]
pub trait Capacity: Send + Sync + 'static {
    /// Returns whether the remaining space is reserved for holds and captures. The answer may be a second old. Always
    /// `false` for a store without a known bound.
    async fn is_nearly_full(&self) -> Result<bool, StoreError>;

    /// Used share of the space, from 0 to 1: the memory of the fullest server, or the disk. `None` without a bound.
    async fn used_ratio(&self) -> Result<Option<f64>, StoreError>;

    /// Describes which failures confirmed writes may not survive, and what to do about it.
    async fn persistence_warnings(&self) -> Vec<&'static str>;

    /// Makes a small write to every server that changes no data, and names the servers that refuse. Fails if all refuse,
    /// for lack of space or another reason.
    async fn try_write(&self) -> Result<MissingServers, StoreError>;
}

#[async_trait]
impl Capacity for Store {
    async fn is_nearly_full(&self) -> Result<bool, StoreError> {
        Ok(self.records.is_nearly_full().await?)
    }

    async fn used_ratio(&self) -> Result<Option<f64>, StoreError> {
        Ok(self.records.used_ratio().await?)
    }

    async fn persistence_warnings(&self) -> Vec<&'static str> {
        self.records.persistence_warnings().await
    }

    async fn try_write(&self) -> Result<MissingServers, StoreError> {
        Ok(self.records.try_write().await?)
    }
}
