//! Failures of use-cases, by what the caller should do next.

use key_service_store::store::StoreError;

/// Failure of a use-case, by what the caller should do next.
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
    pub fn map<S>(self, form: impl FnOnce(R) -> S) -> Error<S> {
        match self {
            Self::Refused(reason) => Error::Refused(form(reason)),
            Self::Store(cause) => Error::Store(cause),
        }
    }
}
