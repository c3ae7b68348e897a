//! House-keeping on demand.

use shared::{ids::AccountId, time::Timestamp};

use super::{Store, StoreError};

impl Store {
    /// Drops some of the account's sets whose records are old: bills of generations, and sums of days. Spending does the same,
    /// every ten minutes in a process that serves the account for as long; whoever goes through accounts may call this for the
    /// others. Does nothing where the account does not exist.
    pub async fn keep_house(&self, account: AccountId, now: Timestamp) -> Result<(), StoreError> {
        Ok(self.lanes.keep_house(account, now).await?)
    }
}
