//! Copies of the file, made and taken back while nobody has to know how SQLite keeps it.
//!
//! A copy never goes through the store, which would bring an earlier version's tables up to date.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, backup::Backup};
use shared::private_files;

use super::file::{APPLICATION_ID, known_version};

/// Endings of the files that SQLite keeps beside the file.
const BESIDE: [&str; 2] = ["-wal", "-shm"];

/// Reason why a file was not copied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CopyError {
    #[error("{} cannot be read or written", .0.display())]
    File(PathBuf, #[source] io::Error),
    #[error("{}: {}", .0.display(), .1)]
    Sqlite(PathBuf, rusqlite::Error),
    #[error("{} is not a database of this service", .0.display())]
    NotOurs(PathBuf),
    #[error("{} is damaged: {}", .0.display(), .1)]
    Damaged(PathBuf, String),
    #[error("{} is served: stop the program first (or another command that has it open)", .0.display())]
    Served(PathBuf),
}

/// Version of a file's tables beside that of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TablesVersion {
    pub(crate) found: usize,
    pub(crate) known: usize,
}

impl TablesVersion {
    /// True if the program that opens the file as a store changes nothing first.
    pub(crate) fn is_current(self) -> bool {
        self.found == self.known
    }
}

/// Reads the version of a file's tables, and changes nothing; `None` where there is no file yet.
pub(crate) fn version(path: &Path) -> Result<Option<TablesVersion>, CopyError> {
    if !path.exists() {
        return Ok(None);
    }
    inspect(path, &open(path)?).map(Some)
}

/// Copies a file that may be served, by SQLite's own means, to a new private file. Returns the version of its tables.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<TablesVersion, CopyError> {
    let source = open(from)?;
    inspect(from, &source)?;
    let made = private_files::options().write(true).create_new(true).open(to);
    made.map_err(|e| CopyError::File(to.to_owned(), e))?;
    let failed = |e| CopyError::Sqlite(to.to_owned(), e);
    let mut copy = open(to)?;
    let backup = Backup::new(&source, &mut copy).map_err(failed)?;
    // All pages in one step, so that a writer does not begin it anew.
    backup.run_to_completion(i32::MAX, Duration::ZERO, None).map_err(failed)?;
    drop(backup);
    verify(to, &copy)
}

/// Proves that a file can be read from its first to its last page. Returns the version of its tables.
pub(crate) fn check(path: &Path) -> Result<TablesVersion, CopyError> {
    verify(path, &open(path)?)
}

/// Makes what was written to a file, and its name in the folder, survive the loss of the machine.
pub(crate) fn sync(path: &Path) -> Result<(), CopyError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    [path, folder].into_iter().try_for_each(|it| {
        File::open(it).and_then(|it| it.sync_all()).map_err(|e| CopyError::File(it.to_owned(), e))
    })
}

/// Moves a file aside with all that SQLite keeps beside it, unless another process has it open. Returns whether there was one.
pub(crate) fn set_aside(path: &Path, aside: &Path) -> Result<bool, CopyError> {
    if !path.exists() {
        return Ok(false);
    }
    let alone = open(path)?;
    let taken = alone
        .busy_timeout(Duration::ZERO)
        .and_then(|()| alone.pragma_update_and_check(None, "locking_mode", "exclusive", |_| Ok(())))
        .and_then(|()| alone.execute_batch("BEGIN EXCLUSIVE; ROLLBACK"));
    taken.map_err(|e| match e.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => {
            CopyError::Served(path.to_owned())
        }
        _ => CopyError::Sqlite(path.to_owned(), e),
    })?;
    // The last connection to close merges the write-ahead log into the file.
    alone.close().map_err(|(_, e)| CopyError::Sqlite(path.to_owned(), e))?;
    fs::rename(path, aside).map_err(|e| CopyError::File(path.to_owned(), e))?;
    for ending in BESIDE {
        let moved = fs::rename(with_ending(path, ending), with_ending(aside, ending));
        if let Err(e) = moved
            && e.kind() != io::ErrorKind::NotFound
        {
            return Err(CopyError::File(with_ending(path, ending), e));
        }
    }
    Ok(true)
}

/// Removes what a connection left beside a file that is closed.
pub(crate) fn tidy(path: &Path) {
    for ending in BESIDE {
        // Most often there is none.
        let _ = fs::remove_file(with_ending(path, ending));
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Opens a file that is there.
fn open(path: &Path) -> Result<Connection, CopyError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags).map_err(|e| CopyError::Sqlite(path.to_owned(), e))
}

fn inspect(path: &Path, connection: &Connection) -> Result<TablesVersion, CopyError> {
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let read = number("application_id").and_then(|id| Ok((id, number("user_version")?)));
    match read {
        Ok((APPLICATION_ID, found)) => {
            Ok(TablesVersion { found: usize::try_from(found).unwrap_or(usize::MAX), known: known_version() })
        }
        Ok(_) => Err(CopyError::NotOurs(path.to_owned())),
        Err(e) if e.sqlite_error_code() == Some(rusqlite::ErrorCode::NotADatabase) => {
            Err(CopyError::NotOurs(path.to_owned()))
        }
        Err(e) => Err(CopyError::Sqlite(path.to_owned(), e)),
    }
}

fn verify(path: &Path, connection: &Connection) -> Result<TablesVersion, CopyError> {
    let version = inspect(path, connection)?;
    let said: Result<String, _> = connection.pragma_query_value(None, "integrity_check", |row| row.get(0));
    match said {
        Ok(said) if said == "ok" => Ok(version),
        Ok(said) => Err(CopyError::Damaged(path.to_owned(), said)),
        Err(e) => Err(CopyError::Damaged(path.to_owned(), e.to_string())),
    }
}
