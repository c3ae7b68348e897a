//! Failures of commands, as messages for the operator.

use anyhow::anyhow;
use shared::error::ApiError;

use key_service_management::{Error, Refused, accounts::AccountRefused};
use key_service_store::store::StoreError;

/// Turns an error into a message for the operator. A refusal names the flag that caused it.
pub(crate) fn operator_error(error: Error<AccountRefused>) -> anyhow::Error {
    match error {
        Error::Refused(refused) => anyhow!("{}: {refused}", flag(refused)),
        Error::Store(cause) => store_error(&cause, "accounts list"),
    }
}

/// Turns an error into a message with the management API's sentence. `show` is the command that lists the current
/// state.
pub(crate) fn refused(show: &'static str) -> impl Fn(Error<Refused>) -> anyhow::Error {
    move |error| match error {
        Error::Refused(refused) => anyhow!("{}", ApiError::from(refused).message),
        Error::Store(cause) => store_error(&cause, show),
    }
}

/// Turns a store failure into a message for the operator. `show` is the command that lists the current state.
pub(crate) fn store_error(cause: &StoreError, show: &str) -> anyhow::Error {
    match cause {
        StoreError::Unavailable(_) => {
            anyhow!(
                "{cause}\nIt is unknown whether the change was made: check with `{show}` before trying again."
            )
        }
        StoreError::Busy(_) | StoreError::Full | StoreError::Conflict(_) | StoreError::Damaged(_) => {
            anyhow!("{cause}\nNothing was changed.")
        }
    }
}

const fn flag(refused: AccountRefused) -> &'static str {
    match refused {
        AccountRefused::NameTaken => "--name",
        AccountRefused::NotFound | AccountRefused::Closed => "--account",
        AccountRefused::BadAmount => "--amount",
        AccountRefused::PaymentDiffers { .. } => "--payment-id",
    }
}
