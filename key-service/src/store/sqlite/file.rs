//! Opening of the file: format and version checks, migrations, and the configuration of SQLite.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior, config::DbConfig};
use shared::private_files;

use crate::store::StoreError;

/// Application id in the header of our files: "Fare".
pub(super) const APPLICATION_ID: i32 = 0x4661_7265;

/// Migrations, each to the next version. The version of a file is the number of migrations applied.
const MIGRATIONS: [&str; 22] = [
    include_str!("migrations/1.sql"),
    include_str!("migrations/2.sql"),
    include_str!("migrations/3.sql"),
    include_str!("migrations/4.sql"),
    include_str!("migrations/5.sql"),
    include_str!("migrations/6.sql"),
    include_str!("migrations/7.sql"),
    include_str!("migrations/8.sql"),
    include_str!("migrations/9.sql"),
    include_str!("migrations/10.sql"),
    include_str!("migrations/11.sql"),
    include_str!("migrations/12.sql"),
    include_str!("migrations/13.sql"),
    include_str!("migrations/14.sql"),
    include_str!("migrations/15.sql"),
    include_str!("migrations/16.sql"),
    include_str!("migrations/17.sql"),
    include_str!("migrations/18.sql"),
    include_str!("migrations/19.sql"),
    include_str!("migrations/20.sql"),
    include_str!("migrations/21.sql"),
    include_str!("migrations/22.sql"),
];

/// Longest wait for another process (the command line beside the server) to finish its transaction.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Attempts to get a write-ahead log while other processes try the same: each attempt lets one process through.
const WAL_ATTEMPTS: u32 = 100;

/// Statements that stay prepared on a connection: all there are, with room to grow.
const CACHED_STATEMENTS: usize = 96;

/// Pages kept in memory by a connection, in KiB: recent holds and the tail of the journal fit many times over.
const CACHE_KIB: i64 = 16 * 1024;

/// Reason why a file cannot serve as the store.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// The file belongs to another program, or is not a database.
    #[error("{} is not a database of this service", .0.display())]
    NotOurs(PathBuf),
    /// The file was written by a newer program.
    #[error("{} was written by a newer version (its tables are of version {found}, this program knows up to {known})", .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Version of the tables.
        found: usize,
        /// The latest version that this program can read.
        known: usize,
    },
    /// The file is missing and cannot be created.
    #[error("{} cannot be made", .0.display())]
    NotMade(PathBuf, #[source] io::Error),
    /// The file cannot be opened or brought up to date.
    #[error("{} cannot be opened", .0.display())]
    Failed(PathBuf, #[source] rusqlite::Error),
    /// No thread can be started for the store.
    #[error("no thread can be started")]
    NoThread(#[source] io::Error),
}

/// Opens the writer's connection: creates a missing file, and migrates the tables.
pub(super) fn open(path: &Path) -> Result<Connection, OpenError> {
    let failed = |e| OpenError::Failed(path.to_owned(), e);
    make_private(path).map_err(|e| OpenError::NotMade(path.to_owned(), e))?;
    let mut connection = connect(path, OpenFlags::empty()).map_err(failed)?;
    // A file of another program is left unchanged.
    check(&connection, path)?;
    settle(&connection).map_err(failed)?;
    migrate(&mut connection).map_err(failed)?;
    check(&connection, path)?;
    Ok(connection)
}

/// Opens a connection to tables in memory.
pub(super) fn open_in_memory() -> Result<Connection, OpenError> {
    let path = Path::new(":memory:");
    let opened = connect(path, OpenFlags::empty()).and_then(|mut connection| {
        configure(&connection)?;
        migrate(&mut connection)?;
        Ok(connection)
    });
    opened.map_err(|e| OpenError::Failed(path.to_owned(), e))
}

/// Opens a read-only connection to a file that is open already.
pub(super) fn open_reader(path: &Path) -> Result<Connection, OpenError> {
    let read_only = |connection: &Connection| {
        settle(connection)?;
        connection.pragma_update(None, "query_only", true)
    };
    let connection = connect(path, OpenFlags::empty()).and_then(|c| read_only(&c).map(|()| c));
    connection.map_err(|e| OpenError::Failed(path.to_owned(), e))
}

/// The file that a path led to at opening. While connections are open, a removed or replaced file is still written, and
/// lost at the end.
pub(super) struct FileIdentity {
    path: PathBuf,
    device_and_inode: (u64, u64),
    /// True if the path led to no file, or to another file, at the last check.
    gone: AtomicBool,
}

impl FileIdentity {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Share of the disk under the file that is used, as `df` tells it: what only root may use counts as used.
    pub(super) fn disk_used_ratio(&self) -> io::Result<f64> {
        let disk = rustix::fs::statvfs(&self.path)?;
        let used = disk.f_blocks.saturating_sub(disk.f_bfree);
        #[expect(clippy::cast_precision_loss, reason = "a metric")]
        let ratio = used as f64 / used.saturating_add(disk.f_bavail).max(1) as f64;
        Ok(ratio)
    }

    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        let device_and_inode = (found.dev(), found.ino());
        Ok(Self { path: path.to_owned(), device_and_inode, gone: AtomicBool::new(false) })
    }

    /// Fails if the file was removed or replaced: nothing written to such a file would be found again.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let gone = match fs::metadata(&self.path) {
            Ok(found) => (found.dev(), found.ino()) != self.device_and_inode,
            // A folder that cannot be read at the moment says nothing of the file.
            Err(e) => e.kind() == io::ErrorKind::NotFound,
        };
        if self.gone.swap(gone, Ordering::Relaxed) != gone {
            metrics::gauge!("keyservice_store_file_gone").set(if gone { 1.0 } else { 0.0 });
            if gone {
                tracing::error!(file = %self.path.display(), "the store's file was removed or replaced while it is in use; nothing is written any more: move it back, or stop, restore it, and start again");
            } else {
                tracing::info!(file = %self.path.display(), "the store's file is back");
            }
        }
        if gone {
            return Err(StoreError::Unavailable(format!("{} was removed or replaced", self.path.display())));
        }
        Ok(())
    }
}

/// Creates a missing file, readable by the owner alone. SQLite gives auxiliary files the same mode.
fn make_private(path: &Path) -> io::Result<()> {
    match private_files::options().write(true).create_new(true).open(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map(drop),
    }
}

fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    // Each connection belongs to a single thread, so SQLite need not lock; names are paths, never URIs.
    let flags = flags | OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    // Without this setting SQLite prepares some statements anew whenever a parameter is bound, in case other values ask
    // for another plan.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

/// Refuses files of other programs or of newer versions. A file without any table is new.
fn check(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let header = || -> rusqlite::Result<(i32, usize, bool)> {
        // A single transaction, since another process may be creating the tables at this moment.
        let moment = connection.unchecked_transaction()?;
        let number = |name| moment.pragma_query_value(None, name, |row| row.get(0));
        let tables = "SELECT EXISTS (SELECT 1 FROM sqlite_schema)";
        let version = usize::try_from(number("user_version")?).unwrap_or(usize::MAX);
        Ok((number("application_id")?, version, moment.query_row(tables, [], |row| row.get(0))?))
    };
    match header() {
        Ok((0, 0, false)) => Ok(()),
        Ok((APPLICATION_ID, found, _)) if found > MIGRATIONS.len() => {
            Err(OpenError::Newer { path: path.to_owned(), found, known: MIGRATIONS.len() })
        }
        Ok((APPLICATION_ID, _, _)) => Ok(()),
        Ok(_) => Err(OpenError::NotOurs(path.to_owned())),
        Err(e) if e.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
            Err(OpenError::NotOurs(path.to_owned()))
        }
        Err(e) => Err(OpenError::Failed(path.to_owned(), e)),
    }
}

/// The version of the tables that this program writes.
pub(super) fn known_version() -> usize {
    MIGRATIONS.len()
}

/// Writes the version of the tables as it is, which takes a page of the write-ahead log.
pub(super) fn write_version_again(connection: &Connection) -> rusqlite::Result<()> {
    let version: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    connection.pragma_update(None, "user_version", version)
}

/// Configures SQLite for the file.
fn settle(connection: &Connection) -> rusqlite::Result<()> {
    write_ahead(connection)?;
    configure(connection)
}

/// Configures SQLite for a connection.
fn configure(connection: &Connection) -> rusqlite::Result<()> {
    // A commit returns after the sync: acknowledged changes survive the loss of the machine.
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // Savepoints keep undo data in memory.
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    // Nothing in the file's schema may call functions with side effects.
    connection.pragma_update(None, "trusted_schema", false)
}

/// Enables the write-ahead log: readers and one writer do not block each other, over several processes.
///
/// If two processes do so on a new file at once, SQLite refuses one process instead of making it wait. The refused
/// process waits here, for a moment with the file to itself, and tries again.
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

/// Brings the tables up to date, completely or not at all. Of two processes that migrate at once, the second finds
/// nothing to do.
fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    // A long journal is sorted, which may exceed the memory of a process.
    connection.pragma_update(None, "temp_store", "file")?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let seen: i32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    for (version, migration) in (1..).zip(MIGRATIONS) {
        if version > seen {
            transaction.execute_batch(migration)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", version)?;
        }
    }
    transaction.commit()?;
    connection.pragma_update(None, "temp_store", "memory")
}

/// Fails if the file cannot be read at all, or if a newer program has changed the tables since they were opened: this program would
/// write them wrongly.
pub(super) fn check_version(connection: &Connection) -> rusqlite::Result<Result<(), StoreError>> {
    let version: i64 = connection.prepare_cached("PRAGMA user_version")?.query_row([], |row| row.get(0))?;
    if usize::try_from(version).is_ok_and(|version| version <= MIGRATIONS.len()) {
        return Ok(Ok(()));
    }
    Ok(Err(StoreError::Unavailable("a newer version has taken over the file; stop this one".into())))
}
