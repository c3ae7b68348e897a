//! Copies of the file, for callers that need not know how SQLite stores it.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, backup::Backup};
use shared::private_files;

use super::file::{LAYOUT, OpenError, layout};

/// Suffixes of the files that SQLite keeps next to the database.
const BESIDE: [&str; 2] = ["-wal", "-shm"];

/// Reason why a file was not copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The file or its folder is missing, or access to it is denied.
    #[error("cannot read or write {}", .0.display())]
    File(PathBuf, #[source] io::Error),
    #[error("{}: {}", .0.display(), .1)]
    Sqlite(PathBuf, rusqlite::Error),
    /// The file belongs to another program, or has an earlier layout.
    #[error(transparent)]
    Refused(#[from] OpenError),
    /// Pages of the file contradict each other.
    #[error("{} is damaged: {}", .0.display(), .1)]
    Damaged(PathBuf, String),
    #[error("{} is in use: stop the program, or the command, that has it open", .0.display())]
    Served(PathBuf),
}

/// The layout numbers of a file and of this program. The program's number is never lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutVersion {
    /// The layout that the file has.
    pub found: i64,
    /// The layout that this program writes.
    pub known: i64,
}

impl LayoutVersion {
    /// Returns whether this program can open the file as a store.
    pub fn is_current(self) -> bool {
        self.found == self.known
    }
}

/// Reads the layout of a file without changing it; `None` if there is no file yet.
pub fn version(path: &Path) -> Result<Option<LayoutVersion>, CopyError> {
    if !path.exists() {
        return Ok(None);
    }
    inspect(path, &open(path)?).map(Some)
}

/// Copies a file, which may be in use, to a new private file with SQLite's backup. Returns its layout.
pub fn copy(from: &Path, to: &Path) -> Result<LayoutVersion, CopyError> {
    let source = open(from)?;
    inspect(from, &source)?;
    let made = private_files::options().write(true).create_new(true).open(to);
    made.map_err(|e| CopyError::File(to.to_owned(), e))?;
    let failed = |e| CopyError::Sqlite(to.to_owned(), e);
    let mut copy = open(to)?;
    let backup = Backup::new(&source, &mut copy).map_err(failed)?;
    // Copies all pages in one step, so that no writer makes it start over.
    backup.run_to_completion(i32::MAX, Duration::ZERO, None).map_err(failed)?;
    drop(backup);
    verify(to, &copy)
}

/// Checks that a file can be read from its first page to its last. Returns its layout.
pub fn check(path: &Path) -> Result<LayoutVersion, CopyError> {
    verify(path, &open(path)?)
}

/// Makes a file's content, and its name in the folder, survive a crash of the machine.
pub fn sync(path: &Path) -> Result<(), CopyError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    [path, folder].into_iter().try_for_each(|it| {
        File::open(it).and_then(|it| it.sync_all()).map_err(|e| CopyError::File(it.to_owned(), e))
    })
}

/// Moves a file and SQLite's auxiliary files aside, unless another process has it open. Returns whether there was a
/// file.
pub fn set_aside(path: &Path, aside: &Path) -> Result<bool, CopyError> {
    if !path.exists() {
        return Ok(false);
    }
    take(path)?;
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

/// Succeeds if no other process has the file open, or if there is no file.
pub fn check_unserved(path: &Path) -> Result<(), CopyError> {
    if path.exists() { take(path) } else { Ok(()) }
}

/// Locks a file for this process, for a moment.
fn take(path: &Path) -> Result<(), CopyError> {
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
    alone.close().map_err(|(_, e)| CopyError::Sqlite(path.to_owned(), e))
}

/// Removes what a connection left next to a closed file.
pub fn tidy(path: &Path) {
    for ending in BESIDE {
        let _ = fs::remove_file(with_ending(path, ending));
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn open(path: &Path) -> Result<Connection, CopyError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags).map_err(|e| CopyError::Sqlite(path.to_owned(), e))
}

fn inspect(path: &Path, connection: &Connection) -> Result<LayoutVersion, CopyError> {
    let found = layout(connection, path)?.ok_or_else(|| OpenError::NotOurs(path.to_owned()))?;
    Ok(LayoutVersion { found, known: LAYOUT })
}

fn verify(path: &Path, connection: &Connection) -> Result<LayoutVersion, CopyError> {
    let version = inspect(path, connection)?;
    let said = connection.pragma_query_value(None, "integrity_check", |row| row.get::<_, String>(0));
    match said.unwrap_or_else(|e| e.to_string()) {
        sound if sound == "ok" => Ok(version),
        damage => Err(CopyError::Damaged(path.to_owned(), damage)),
    }
}
