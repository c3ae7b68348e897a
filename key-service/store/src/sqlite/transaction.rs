//! Transactions whose statements are compiled once, and what errors of SQLite say of a call.

use rusqlite::{Connection, ErrorCode};

use crate::records::Failure;

/// What a transaction may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Reads, as of one moment.
    Read,
    /// Reads and writes. No other process writes meanwhile.
    Write,
}

/// A transaction that is rolled back unless committed.
pub(super) struct OpenTransaction<'c> {
    pub(super) connection: &'c Connection,
}

impl<'c> OpenTransaction<'c> {
    pub(super) fn begin(connection: &'c Connection, access: Access) -> rusqlite::Result<Self> {
        let begin = match access {
            Access::Read => "BEGIN",
            Access::Write => "BEGIN IMMEDIATE",
        };
        connection.prepare_cached(begin)?.execute([])?;
        Ok(Self { connection })
    }

    pub(super) fn commit(self) -> rusqlite::Result<()> {
        self.connection.prepare_cached("COMMIT")?.execute([]).map(drop)
    }
}

impl Drop for OpenTransaction<'_> {
    fn drop(&mut self) {
        // A full or broken disk has rolled back already.
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "cannot roll back");
        }
    }
}

/// Reason why a call is not carried out.
pub(super) enum CallError {
    /// The call or what it touches is at fault. Others of the transaction may go on without it.
    Own(Failure),
    /// The database failed, and with it the transaction.
    All(Failure),
}

impl CallError {
    /// A value that has another form than a record's.
    pub(super) fn no_record() -> Self {
        Self::Own(Failure::Damaged("SQLite: a value that is no record".into()))
    }

    pub(super) fn into_failure(self) -> Failure {
        match self {
            Self::Own(failure) | Self::All(failure) => failure,
        }
    }
}

/// An error before the end of a transaction, which is then rolled back.
impl From<rusqlite::Error> for CallError {
    fn from(error: rusqlite::Error) -> Self {
        let text = format!("SQLite: {error}");
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::All(Failure::Damaged(text)),
            Some(ErrorCode::TooBig | ErrorCode::ConstraintViolation) => Self::Own(Failure::NotDone(text)),
            Some(_) | None => Self::All(Failure::NotDone(text)),
        }
    }
}

/// What an error at the end of a transaction says. A sync that fails may have reached the disk: a crash before the next commit
/// would bring it back.
pub(super) fn maybe_done(error: rusqlite::Error) -> CallError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy) => error.into(),
        Some(_) | None => CallError::All(Failure::Unknown(format!("SQLite: {error}"))),
    }
}
