use records::Failure;
use shared::{error::STORE_FULL, ids::AccountId};

/// The failure of a call to the store. The variants differ in what the caller should do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached or did not confirm the call. The outcome is unknown, and the same call may be
    /// retried.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The call waited too long for its turn and was not made. It may be retried.
    #[error("the store is overloaded: {0}")]
    Busy(&'static str),
    /// The remaining space is reserved for holds and captures. The call was not made.
    #[error("{STORE_FULL}")]
    Full,
    /// The call contradicts the stored data, for example because the account does not exist. The same call would fail
    /// again.
    #[error("the call does not fit the stored data: {0}")]
    Conflict(String),
    /// A stored record cannot be read. The same call fails until an operator repairs the record.
    #[error("a stored record is damaged: {0}")]
    Damaged(String),
}

impl StoreError {
    /// Returns the error for an account that does not exist.
    pub fn no_account(account: AccountId) -> Self {
        Self::Conflict(format!("there is no account {account}"))
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unknown(cause) | Failure::NotDone(cause) => Self::Unavailable(cause),
            Failure::Damaged(cause) => Self::Damaged(cause),
        }
    }
}
