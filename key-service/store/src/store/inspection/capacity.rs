//! The free space of the store.

use async_trait::async_trait;

use crate::store::base::Store;
use key_service_ledger::StoreError;
use records::MissingServers;

#[async_trait]
pub trait Capacity: Send + Sync + 'static {
    /// Returns whether the store is so full that only holds and captures may use the remaining space. The answer may be
    /// a second old. It is always `false` for a store without a known limit.
    async fn is_nearly_full(&self) -> Result<bool, StoreError>;

    /// Returns which share of the space is used, from 0 to 1: of the fullest server's memory, or of the disk. `None` if
    /// there is no limit.
    async fn used_ratio(&self) -> Result<Option<f64>, StoreError>;

    /// Returns warnings that say which failures may destroy confirmed writes, and what to do about it.
    async fn persistence_warnings(&self) -> Vec<&'static str>;

    /// Makes a small write on every server, without changing any data. Fails if all servers refuse the write, for lack
    /// of space or another reason. Otherwise returns the servers that refuse it.
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
