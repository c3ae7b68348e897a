//! Free space of the store.

use async_trait::async_trait;

use crate::store::base::Store;
use key_service_ledger::StoreError;
use records::MissingServers;

#[async_trait]
pub trait Capacity: Send + Sync + 'static {
    /// Returns whether the remaining space is reserved for holds and captures. The answer may be a second old. Always
    /// `false` for a store without a known limit.
    async fn is_nearly_full(&self) -> Result<bool, StoreError>;

    /// Returns the used share of the space, from 0 to 1: the fullest server's memory, or the disk. `None` without a
    /// limit.
    async fn used_ratio(&self) -> Result<Option<f64>, StoreError>;

    /// Describes which failures may destroy confirmed writes, and what to do about it.
    async fn persistence_warnings(&self) -> Vec<&'static str>;

    /// On every server, makes a small write that changes no data. Returns the servers that refuse it. Fails if all
    /// refuse, for lack of space or another reason.
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
