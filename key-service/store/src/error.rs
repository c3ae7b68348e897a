use domain::{governed::Refused, member::MemberRefused};
use key_service_ledger::{StoreError, view::Unreadable};
use records::Failure;
use shared::error::{ApiError, Code, STORE_FULL};

/// A failed call, classified by what the caller should do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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

impl<R> From<Failure> for Error<R> {
    fn from(failure: Failure) -> Self {
        Self::Store(failure.into())
    }
}

impl<R> From<Unreadable> for Error<R> {
    fn from(unreadable: Unreadable) -> Self {
        Self::Store(unreadable.into())
    }
}

impl From<Refused> for Error<Refused> {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl From<MemberRefused> for Error<MemberRefused> {
    fn from(refused: MemberRefused) -> Self {
        Self::Refused(refused)
    }
}

/// The error shown to the client. The cause of a failure goes only to the log.
impl<R: Into<ApiError>> From<Error<R>> for ApiError {
    fn from(error: Error<R>) -> Self {
        match error {
            Error::Refused(reason) => reason.into(),
            Error::Store(StoreError::Full) => Self::new(Code::StoreFull, STORE_FULL),
            Error::Store(cause @ (StoreError::Unavailable(_) | StoreError::Busy(_))) => {
                tracing::error!(error = %cause, "a management request failed");
                Self::service_unavailable()
            }
            Error::Store(cause @ (StoreError::Conflict(_) | StoreError::Damaged(_))) => {
                tracing::error!(error = %cause, "a management request failed");
                Self::internal()
            }
        }
    }
}
