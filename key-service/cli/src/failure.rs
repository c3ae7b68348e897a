//! Failures of commands, as messages for the operator.

use anyhow::anyhow;
use shared::error::ApiError;

use domain::governed::payments::PaymentRefused;
use key_service_management::{Error, Refused, accounts::AccountRefused};
use key_service_store::store::StoreError;

/// Turns an error into a message for the operator. A refusal names the flag that caused it.
pub(crate) fn operator_error(error: Error<AccountRefused>) -> anyhow::Error {
    match error {
        Error::Refused(refused) => anyhow!("{}: {refused}", flag(refused)),
        Error::Store(cause) => store_error(&cause, "accounts list"),
    }
}

/// Turns an error of a payment or a refund into a message for the operator. A refusal names the flag that caused it.
pub(crate) fn payment_error(error: Error<PaymentRefused>) -> anyhow::Error {
    let refused = match error {
        Error::Refused(refused) => refused,
        Error::Store(cause) => return store_error(&cause, "accounts list"),
    };
    let flag = match refused {
        PaymentRefused::NoAccount | PaymentRefused::AccountClosed => "--account",
        PaymentRefused::BadAmount | PaymentRefused::LimitTooHigh | PaymentRefused::CreditTooLow { .. } => {
            "--amount"
        }
        PaymentRefused::GroupNotFound | PaymentRefused::GroupArchived | PaymentRefused::NoLimit => "--group",
        PaymentRefused::Differs(_) => "--payment-id",
        PaymentRefused::PaymentNotFound => "--of",
    };
    anyhow!("{flag}: {refused}")
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
        AccountRefused::NotFound => "--account",
        AccountRefused::BadAmount => "--amount",
    }
}
