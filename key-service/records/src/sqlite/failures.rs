//! Classifies SQLite's errors by what they mean for a call.

use rusqlite::{Error, ErrorCode};

use crate::records::Failure;

/// Reason why a call is not carried out.
#[derive(Clone, Debug)]
pub(super) enum CallError {
    /// The call, or a record that it names, is at fault. Other calls in the transaction may continue without it.
    Own(Failure),
    /// The database failed, and the transaction with it.
    All(Failure),
}

impl CallError {
    /// Returns the error for a call that cannot be carried out.
    pub(super) fn refused(reason: impl Into<String>) -> Self {
        Self::Own(Failure::NotDone(reason.into()))
    }

    /// Returns the error for a value that is not a record.
    pub(super) fn no_record() -> Self {
        Self::Own(Failure::Damaged("SQLite: a value that is not a record".into()))
    }

    /// Classifies an error at the end of a writing transaction. A failed sync may still have reached the disk, so a
    /// crash before the next commit could restore it.
    pub(super) fn at_commit(error: Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy) => error.into(),
            Some(_) | None => Self::All(Failure::Unknown(format!("SQLite: {error}"))),
        }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Own(failure) | CallError::All(failure) => failure,
        }
    }
}

/// Classifies an error before the end of a transaction, which is then rolled back.
impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        let text = format!("SQLite: {error}");
        match (&error, error.sqlite_error_code()) {
            (Error::FromSqlConversionFailure(..) | Error::InvalidColumnType(..), _)
            | (_, Some(ErrorCode::ConstraintViolation)) => Self::Own(Failure::Damaged(text)),
            (_, Some(ErrorCode::TooBig)) => Self::Own(Failure::NotDone(text)),
            (_, Some(_) | None) => Self::All(Failure::NotDone(text)),
        }
    }
}
