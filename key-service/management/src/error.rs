//! Failure of a use-case, by the caller's next step.

use key_service_store::store::StoreError;

/// Reasons for a failed use-case, by the caller's next step.
#[derive(Debug, thiserror::Error)]
pub enum Error<R> {
    /// Answer the caller. Nothing changed.
    #[error("{0}")]
    Refused(R),
    /// Try again; the outcome is unknown.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl<R> Error<R> {
    /// The error with another form of the refusal.
    pub fn map<S>(self, form: impl FnOnce(R) -> S) -> Error<S> {
        match self {
            Self::Refused(reason) => Error::Refused(form(reason)),
            Self::Store(cause) => Error::Store(cause),
        }
    }
}
