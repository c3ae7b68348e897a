//! Free space of the store.

use async_trait::async_trait;

use crate::store::base::Store;
use key_service_ledger::StoreError;

/// Free space of the store.
#[async_trait]
pub trait Capacity: Send + Sync + 'static {
    /// Returns whether the remaining space is reserved for holds and captures. The answer may be a second old. It is
    /// always `false` for a store that sees no bound.
    async fn is_nearly_full(&self) -> Result<bool, StoreError>;

    /// Share of the space that is used, from 0 to 1: of the memory of the fullest server, or of the disk. `None`
    /// without a bound.
    async fn used_ratio(&self) -> Result<Option<f64>, StoreError>;

    /// Describes what answered writes may not survive, and what to do about it.
    async fn persistence_warnings(&self) -> Vec<&'static str>;

    /// Writes something small to every server, which changes nothing. Fails if a write is refused, because space is
    /// short or for another reason.
    async fn try_write(&self) -> Result<(), StoreError>;
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

    async fn try_write(&self) -> Result<(), StoreError> {
        Ok(self.records.try_write().await?)
    }
}
