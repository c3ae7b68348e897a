//! Conversion of management's refusals to the errors that clients see.

use shared::{
    error::{ApiError, Code},
    refusal::Refusal,
};

use crate::{
    management::{Error, KeyRefused},
    store::StoreError,
};

impl From<KeyRefused> for ApiError {
    fn from(refused: KeyRefused) -> Self {
        match refused {
            KeyRefused::NotFound => Self::new(Code::KeyNotFound, "The account has no such API key."),
            KeyRefused::Revoked => Self::new(Code::KeyRevoked, "A revoked API key cannot be changed."),
            KeyRefused::UnknownCursor => {
                Self::at(Code::InvalidValue, "after", "`after` must be the id of an API key of the account.")
            }
            KeyRefused::TooMany { most } => {
                let message =
                    format!("The account has {most} API keys, revoked ones included, and may not have more.");
                Self::new(Code::TooManyKeys, message)
            }
            KeyRefused::IdempotencyKeyReused => Self::new(
                Code::IdempotencyKeyReuse,
                "This Idempotency-Key was used with another request; choose a new one.",
            ),
            KeyRefused::StoreFull => Self::new(
                Code::StoreFull,
                "The store is nearly full; no keys can be made until its operator enlarges it.",
            ),
        }
    }
}

impl From<Error<KeyRefused>> for ApiError {
    fn from(error: Error<KeyRefused>) -> Self {
        client_error(error)
    }
}

impl From<Error<Refusal>> for ApiError {
    fn from(error: Error<Refusal>) -> Self {
        client_error(error)
    }
}

/// The error for the client. The cause of a failure goes to the log only.
fn client_error<R: Into<ApiError>>(error: Error<R>) -> ApiError {
    match error {
        Error::Refused(refused) => refused.into(),
        Error::Store(cause) => {
            tracing::error!(error = %cause, "a management request failed");
            match cause {
                StoreError::Unavailable(_) | StoreError::Busy(_) => ApiError::service_unavailable(),
                StoreError::Conflict(_) | StoreError::Damaged(_) => ApiError::internal(),
            }
        }
    }
}
