//! The operators of an installation. They are members of a special account. This account has no name in the index and
//! no money, and no command and no customer can reach it.

use domain::settings::AccountLabels;
use key_service_ledger::{StoreError, stored::AccountProfile};
use shared::{ids::AccountId, time::Timestamp};

use crate::store::base::Store;

/// Name in the profile of the operators' account. It is not in the index of names, so a customer's account may have the
/// same name.
const NAME: &str = "operators";

/// Returns the id of the operators' account. The time in this id is in 1970, so no customer's account gets the same id.
pub fn operators() -> AccountId {
    AccountId::new(Timestamp::from_millis(0), *b"operators\0")
}

impl Store {
    /// Creates the operators' account, unless it exists.
    pub async fn open_operators(&self, now: Timestamp) -> Result<(), StoreError> {
        let profile = AccountProfile { name: NAME.to_owned(), created_at: now, keys: 0, groups: 0 };
        self.complete_account(operators(), &profile, &AccountLabels::default(), None).await.map(drop)
    }
}
