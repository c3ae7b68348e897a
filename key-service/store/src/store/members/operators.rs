//! The operators of an installation. They are members of an account of their own, which has no name and no money: no
//! command and no customer can name it.

use key_service_ledger::{StoreError, messages::AccountProfile};
use shared::{ids::AccountId, time::Timestamp};

use crate::store::base::Store;

/// Name in the profile of the operators' account. It is in no index, so an account of customers may have the same name.
const NAME: &str = "operators";

/// The account of the operators. Its id is of 1970, so that no account of customers gets the same.
pub fn operators() -> AccountId {
    AccountId::new(Timestamp::from_millis(0), *b"operators\0")
}

impl Store {
    /// Makes the account of the operators, unless it exists.
    pub async fn open_operators(&self, now: Timestamp) -> Result<(), StoreError> {
        let profile = AccountProfile { name: NAME.to_owned(), created_at: now.millis(), keys: 0, groups: 0 };
        self.complete_account(operators(), &profile, None).await
    }
}
