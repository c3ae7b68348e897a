//! Housekeeping on request.

use shared::ids::AccountId;

use crate::store::base::Store;
use key_service_ledger::StoreError;

impl Store {
    /// Drops some of the account's sets with old records: bills of generations, and sums of days. Spending does the
    /// same every ten minutes in a process that keeps serving the account; callers that go through all accounts can do
    /// it for the others. Does nothing if the account does not exist.
    pub async fn keep_house(&self, account: AccountId) -> Result<(), StoreError> {
        Ok(self.lanes.keep_house(account).await?)
    }
}
