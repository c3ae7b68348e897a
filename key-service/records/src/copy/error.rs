use crate::records::Failure;

/// Reason why there is no copy, or why the copy differs from the source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    #[error("the target is not empty: it contains something that is not in the source: {0}")]
    NotEmpty(String),
    #[error("the copy differs from the original: {0}")]
    Differs(String),
    /// A backend cannot be reached or did not confirm a write.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// A backend returned something that cannot be read.
    #[error("a stored record is damaged: {0}")]
    Damaged(String),
}

impl From<Failure> for CopyError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unknown(cause) | Failure::NotDone(cause) => Self::Unavailable(cause),
            Failure::Damaged(cause) => Self::Damaged(cause),
        }
    }
}

pub(crate) fn no_answer() -> CopyError {
    CopyError::Damaged("the store answered a different question".into())
}
