//! Opens the file: checks its format and layout, creates its tables, and configures SQLite.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior, config::DbConfig};
use shared::private_files;

use super::{
    failures::CallError,
    tables::{TABLES, Tables},
};
use crate::records::Failure;

/// Application id in the header of our files: "Fare" in ASCII.
const APPLICATION_ID: i32 = 0x4661_7265;

/// Number of the layout. A program with an earlier layout recognises that the file is newer, and leaves it unchanged.
pub(super) const LAYOUT: i64 = 103;

/// How long to wait for another process's transaction, for example for that of a command that runs next to the server.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of attempts to turn on the write-ahead log. If several processes do so at the same time, one of them
/// succeeds in each round of attempts.
const WAL_ATTEMPTS: u32 = 100;

/// Page cache of a connection, in KiB: the recent pages of a few hundred busy accounts. It is not larger, because
/// SQLite searches all cached pages after each transaction that has split a page.
const CACHE_KIB: i64 = 4 * 1024;

/// Reason why a file cannot serve as the store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file belongs to another program, or is not a database.
    #[error("{} is not a database of this service", .0.display())]
    NotOurs(PathBuf),
    /// The file has an earlier layout.
    #[error("{} has an earlier layout, which was never released and which this version does not read; nothing in it was changed: move it away to begin with an empty store, or use the program that wrote it", .0.display())]
    Earlier(PathBuf),
    /// The file was written by a newer program.
    #[error("{} was written by a newer version (its layout is {found}, this program knows {LAYOUT})", .path.display())]
    Newer { path: PathBuf, found: i64 },
    /// The file does not exist and cannot be created.
    #[error("cannot create {}", .0.display())]
    NotMade(PathBuf, #[source] io::Error),
    /// The file cannot be opened.
    #[error("cannot open {}", .0.display())]
    Failed(PathBuf, #[source] rusqlite::Error),
    /// No thread can be started for the store.
    #[error("no thread can be started")]
    NoThread(#[source] io::Error),
}

/// Opens the writer's connection; creates the file and the tables if they are missing.
pub(super) fn open(path: &Path) -> Result<Connection, OpenError> {
    let failed = |e| OpenError::Failed(path.to_owned(), e);
    make_private(path).map_err(|e| OpenError::NotMade(path.to_owned(), e))?;
    let mut connection = connect(path).map_err(failed)?;
    // A refused file stays unchanged, including what is in its write-ahead log.
    let keeps_log = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    connection.set_db_config(keeps_log, true).map_err(failed)?;
    check(&connection, path)?;
    connection.set_db_config(keeps_log, false).map_err(failed)?;
    settle(&connection).and_then(|()| create_tables(&mut connection)).map_err(failed)?;
    check(&connection, path)?;
    Tables::new(&connection).map(drop).map_err(failed)?;
    Ok(connection)
}

/// Opens a connection to tables in memory.
pub(super) fn open_in_memory() -> Result<Connection, OpenError> {
    let path = Path::new(":memory:");
    let opened = connect(path).and_then(|mut connection| {
        configure(&connection)?;
        create_tables(&mut connection)?;
        Ok(connection)
    });
    opened.map_err(|e| OpenError::Failed(path.to_owned(), e))
}

/// Opens a read-only connection to a file that is already open.
pub(super) fn open_reader(path: &Path) -> Result<Connection, OpenError> {
    let opened = connect(path).and_then(|connection| {
        settle(&connection)?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    });
    opened.map_err(|e| OpenError::Failed(path.to_owned(), e))
}

/// Identifies the file that a path named when it was opened. If the file is removed or replaced, open connections still
/// write to the old file, and these writes are lost when the connections are closed.
pub(super) struct FileIdentity {
    path: PathBuf,
    device_and_inode: (u64, u64),
    /// Whether the path named no file or another file at the last check.
    gone: AtomicBool,
}

impl FileIdentity {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        let device_and_inode = (found.dev(), found.ino());
        Ok(Self { path: path.to_owned(), device_and_inode, gone: AtomicBool::new(false) })
    }

    /// Returns which share of the file's disk is used, as `df` shows it: space that only root may use counts as used.
    pub(super) fn disk_used_ratio(&self) -> io::Result<f64> {
        let disk = rustix::fs::statvfs(&self.path)?;
        let used = disk.f_blocks.saturating_sub(disk.f_bfree);
        #[expect(clippy::cast_precision_loss, reason = "a metric")]
        let ratio = used as f64 / used.saturating_add(disk.f_bavail).max(1) as f64;
        Ok(ratio)
    }

    /// Fails if the file was removed or replaced, because nothing that is written to it could be found again.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let gone = match fs::metadata(&self.path) {
            Ok(found) => (found.dev(), found.ino()) != self.device_and_inode,
            // If the folder cannot be read at the moment, the file may still be there.
            Err(e) => e.kind() == io::ErrorKind::NotFound,
        };
        if self.gone.swap(gone, Ordering::Relaxed) != gone {
            metrics::gauge!("keyservice_store_file_gone").set(if gone { 1.0 } else { 0.0 });
            if gone {
                tracing::error!(
                    file = %self.path.display(),
                    "the store's file was removed or replaced while in use; nothing more is written: move it back, or stop, \
                     restore it, and start again"
                );
            } else {
                tracing::info!(file = %self.path.display(), "the store's file is back");
            }
        }
        if gone {
            return Err(Failure::NotDone(format!("{} was removed or replaced", self.path.display())));
        }
        Ok(())
    }
}

/// Creates a missing file that only its owner can read. SQLite gives its auxiliary files the same mode.
fn make_private(path: &Path) -> io::Result<()> {
    match private_files::options().write(true).create_new(true).open(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map(drop),
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    // Each connection is used by one thread only, so SQLite need not lock it. Names are always paths, never URIs.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // Without this setting, SQLite would compile some statements again whenever a parameter is bound, in case the new
    // value needs another plan.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

/// Refuses files of other programs or layouts.
fn check(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    match layout(connection, path)? {
        Some(found) if found > LAYOUT => Err(OpenError::Newer { path: path.to_owned(), found }),
        Some(_) | None => Ok(()),
    }
}

/// Reads the number of a file's layout, which may be higher than this program's. `None` if the file has no table and so
/// is new.
pub(super) fn layout(connection: &Connection, path: &Path) -> Result<Option<i64>, OpenError> {
    let header = || -> rusqlite::Result<(i32, i64, bool)> {
        // This is one transaction, because another process may be creating the tables at the same time.
        let moment = connection.unchecked_transaction()?;
        let id = moment.pragma_query_value(None, "application_id", |row| row.get(0))?;
        let tables = "SELECT EXISTS (SELECT 1 FROM sqlite_schema)";
        Ok((id, version(&moment)?, moment.query_row(tables, [], |row| row.get(0))?))
    };
    match header() {
        Ok((0, 0, false)) => Ok(None),
        Ok((APPLICATION_ID, found, _)) if found >= LAYOUT => Ok(Some(found)),
        Ok((APPLICATION_ID, _, _)) => Err(OpenError::Earlier(path.to_owned())),
        Ok(_) => Err(OpenError::NotOurs(path.to_owned())),
        Err(e) if e.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
            Err(OpenError::NotOurs(path.to_owned()))
        }
        Err(e) => Err(OpenError::Failed(path.to_owned(), e)),
    }
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Fails if the file cannot be read. Also fails if a newer program has changed the file's layout after the file was
/// opened, because this program would then write it incorrectly.
pub(super) fn check_layout(connection: &Connection) -> Result<(), CallError> {
    if version(connection)? == LAYOUT {
        return Ok(());
    }
    let taken_over = "a newer version has taken over the file; stop this version";
    Err(CallError::All(Failure::NotDone(taken_over.into())))
}

/// Writes the layout's number again. This needs space for a page in the write-ahead log.
pub(super) fn write_layout_again(connection: &Connection) -> Result<(), CallError> {
    Ok(connection.pragma_update(None, "user_version", LAYOUT)?)
}

fn settle(connection: &Connection) -> rusqlite::Result<()> {
    write_ahead(connection)?;
    configure(connection)
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    // With this setting, a commit returns after the sync. So acknowledged changes survive a crash of the machine.
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    // With this setting, nothing in the file's schema can call functions with side effects.
    connection.pragma_update(None, "trusted_schema", false)
}

/// Turns on the write-ahead log, so that readers and one writer do not block each other, even in several processes.
///
/// If two processes do this to a new file at the same time, SQLite refuses one of them instead of making it wait. Here,
/// the refused process waits for the file's lock, takes it for a moment, and then tries again.
fn write_ahead(connection: &Connection) -> rusqlite::Result<()> {
    let mut attempt = 1;
    loop {
        match connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())) {
            Err(e) if e.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && attempt < WAL_ATTEMPTS => {
                Transaction::new_unchecked(connection, TransactionBehavior::Exclusive)?.rollback()?;
                attempt += 1;
            }
            asked => return asked,
        }
    }
}

/// Creates the tables. If two processes do so at the same time, the second process finds nothing to do.
fn create_tables(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if version(&transaction)? == 0 {
        transaction.execute_batch(TABLES)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", LAYOUT)?;
    }
    transaction.commit()
}
