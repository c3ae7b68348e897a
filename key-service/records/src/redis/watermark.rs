//! Detects a Redis that has lost data: restored from a snapshot, or empty.
//!
//! Every few seconds, a process raises a count in every part of the store, and then in a file of the data directory. If
//! the store's count is behind the file's, the store has lost acknowledged writes.
//!
//! The count is in milliseconds, so that a loss has a length. A mark adds the time since the process's last mark. The
//! first mark of a process moves the count up to the wall clock, since a store may be restored while no process runs.
//! Neither a clock nor another process of the same data directory lowers the count.

pub(super) mod rewriting;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use futures_util::future::try_join_all;
use parking_lot::Mutex;
use redis::{RedisResult, cmd};
use shared::{private_files, time::Timestamp};
use tokio::time::Instant;

use super::{
    connection::{Connection, refused},
    key_space::{KeySpace, PARTS},
};

/// Name of the file in the data directory.
const FILE: &str = "redis-seen";

/// Script that raises the count of a part.
const MARK: &str = include_str!("mark.lua");

/// Interval at which a process marks the store as seen. It is also the most that a mark adds: a mark that comes late,
/// after an outage, stands for no more writes. A store that lost a minute of writes is noticed this much later at
/// worst.
pub(super) const MARKED_EVERY: Duration = Duration::from_secs(5);

/// Largest difference that does not count as a restored snapshot: more than the two seconds that a crash or a failover
/// loses.
const TOLERATED: Duration = Duration::from_mins(1);

/// The count at which this data directory last saw the store.
pub(super) struct Watermark {
    key_space: KeySpace,
    /// File of the count; `None` without a data directory.
    file: Option<PathBuf>,
    /// Name of this data directory in the store.
    directory: String,
    /// The count; the lowest value means never seen.
    seen: AtomicI64,
    /// Time of the last mark of this process.
    marked_at: Mutex<Option<Instant>>,
    /// Set once the store was found to be older. It is then no longer used.
    older: OnceLock<Older>,
}

/// A store that has not forgotten too much.
pub(super) struct Checked {
    /// Length of what the store has forgotten.
    pub(super) forgotten: Duration,
    count: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Redis came back older than it was: it has {}. If this is not the Redis that this data directory was used with, use \
     another (FAREGATE_DATA_DIR). Else restore what is newer; or, to go on with what there is (what was spent since is \
     forgotten), stop, delete {} and start again",
    .behind.map_or_else(
        || "no mark of this data directory".to_owned(),
        |behind| format!("forgotten the last {} seconds in which it was used", behind.as_secs()),
    ),
    .file.display()
)]
pub(super) struct Older {
    /// Length of what the store has forgotten; `None` if it has no mark.
    behind: Option<Duration>,
    file: PathBuf,
}

impl Watermark {
    /// Reads the file; `new_directory` names a data directory without a name.
    pub(super) fn open(
        key_space: KeySpace,
        data_dir: Option<&Path>,
        new_directory: String,
    ) -> io::Result<Self> {
        let file = data_dir.map(|folder| folder.join(FILE));
        let found = file.as_deref().map(read).transpose()?.flatten();
        let (directory, seen) = found.unwrap_or((new_directory, i64::MIN));
        let (seen, marked_at, older) = (AtomicI64::new(seen), Mutex::default(), OnceLock::new());
        Ok(Self { key_space, file, directory, seen, marked_at, older })
    }

    /// Returns the finding, if the store was ever found to be older.
    pub(super) fn older(&self) -> Option<&Older> {
        self.older.get()
    }

    /// Compares the counts in every part of the store with the count of the last mark.
    pub(super) async fn check(&self, connection: &Connection) -> RedisResult<Checked> {
        let seen = self.seen.load(Ordering::Acquire);
        if seen == i64::MIN {
            return Ok(Checked { forgotten: Duration::ZERO, count: seen });
        }
        let remembered = try_join_all((0..PARTS).map(|part| {
            let (mut connection, mut question) = (connection.clone(), cmd("HGET"));
            question.arg(self.key_space.marks(part)).arg(&self.directory);
            async move { question.query_async::<Option<i64>>(&mut connection).await }
        }));
        let remembered = remembered.await?;
        let count = remembered.iter().flatten().copied().fold(seen, i64::max);
        // A part without any mark is older than all others.
        let least = remembered.into_iter().min().flatten();
        let behind =
            least.map(|least| Duration::from_millis(seen.saturating_sub(least).max(0).unsigned_abs()));
        match behind {
            Some(forgotten) if forgotten <= TOLERATED => Ok(Checked { forgotten, count }),
            Some(_) | None => {
                let older = Older { behind, file: self.file.clone().unwrap_or_default() };
                Err(refused(self.older.get_or_init(|| older).clone()))
            }
        }
    }

    /// Writes the next count to every part of the store, then to the file.
    pub(super) async fn set(
        &self,
        connection: &Connection,
        checked: &Checked,
        now: Timestamp,
    ) -> RedisResult<()> {
        let at = Instant::now();
        let since = self.marked_at.lock().map(|last| at.saturating_duration_since(last));
        let next = next(checked.count, since, now);
        try_join_all((0..PARTS).map(|part| {
            let (mut connection, mut mark) = (connection.clone(), cmd("EVAL"));
            mark.arg(MARK).arg(1).arg(self.key_space.marks(part));
            mark.arg(&self.directory).arg(next).arg(now.millis());
            async move { mark.query_async::<()>(&mut connection).await }
        }))
        .await?;
        self.seen.store(next, Ordering::Release);
        *self.marked_at.lock() = Some(at);
        let Some(file) = self.file.clone() else { return Ok(()) };
        let text = format!("{} {next}\n", self.directory);
        let written = tokio::task::spawn_blocking(move || replace(&file, &text)).await;
        Ok(written.map_err(io::Error::other)??)
    }
}

/// Returns the next count, at this time and `since` the process's last mark. The first mark catches up with the clock.
fn next(count: i64, since: Option<Duration>, now: Timestamp) -> i64 {
    let step = since.unwrap_or_default().clamp(Duration::from_millis(1), MARKED_EVERY);
    let next = count.saturating_add(i64::try_from(step.as_millis()).unwrap_or(i64::MAX));
    if since.is_none() { next.max(now.millis()) } else { next }
}

/// Reads the file, if there is one.
fn read(file: &Path) -> io::Result<Option<(String, i64)>> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, format!("{} is damaged", file.display()));
    match fs::read_to_string(file) {
        Ok(text) => parse(&text).ok_or_else(damaged).map(Some),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(io::Error::new(e.kind(), format!("{} cannot be read ({e})", file.display()))),
    }
}

fn parse(text: &str) -> Option<(String, i64)> {
    let (directory, seen) = text.trim_end().split_once(' ')?;
    Some((directory.to_owned(), seen.parse().ok()?))
}

/// Replaces the file by renaming a new one, so that it is always complete. An error names the file, for a command that
/// runs as another user or in another folder and may not write to the data directory.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    rename_over(file, text).map_err(|e| {
        let file = file.display();
        let says = format!("{file} cannot be written ({e}); name the data directory in FAREGATE_DATA_DIR");
        io::Error::new(e.kind(), says)
    })
}

fn rename_over(file: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        private_files::create_folder(folder)?;
    }
    let beside = file.with_extension(format!("new-{}", std::process::id()));
    private_files::write(&beside, text.as_bytes())?;
    fs::rename(beside, file)
}
