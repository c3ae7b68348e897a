//! Reasons why a copy fails.

use crate::records::Failure;

/// Reason why a copy was not made, or is not like the original.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// The target already has something that the source does not have.
    #[error("the target is not empty: it has something that the source does not have: {0}")]
    NotEmpty(String),
    /// A part of the target is not as it is in the source.
    #[error("the copy differs from the original: {0}")]
    Differs(String),
    /// A backend cannot be reached, or did not confirm.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// What a backend has cannot be read.
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
    CopyError::Damaged("an answer to another question".into())
}
