//! Detects a Redis that has lost data: restored from a snapshot, or empty.
//!
//! Every few seconds the time is written to every part of the store, and then to a file of the data directory. A store
//! that has an earlier time than the file has lost acknowledged writes.

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
use redis::{RedisResult, cmd};
use shared::{private_files, time::Timestamp};

use super::{
    connection::{Connection, refused},
    key_space::{KeySpace, PARTS},
    script::{Arguments, Lua},
};

/// Name of the file in the data directory.
const FILE: &str = "redis-seen";

/// Largest difference that does not count as a restored snapshot: more than a crash or a failover loses, which is two
/// seconds.
const TOLERATED: Duration = Duration::from_mins(1);

/// Time at which this data directory last saw the store.
pub(super) struct Watermark {
    key_space: KeySpace,
    file: PathBuf,
    /// Name of this data directory in the store.
    directory: String,
    /// Time in milliseconds; the lowest value means never.
    seen: AtomicI64,
    mark: Lua,
    /// Set once the store was found to be older, and is not used any more.
    older: OnceLock<Older>,
}

/// The store has forgotten.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Redis came back older than it was: last seen at {seen}, it now remembers {}. If this is not the Redis that \
     this data directory was used with, use another (FAREGATE_DATA_DIR). Else restore what is newer; or, to go on with \
     what there is (what was spent since is forgotten), stop, delete {} and start again",
    .remembers.map_or_else(|| "nothing of that".to_owned(), |at| at.to_string()),
    .file.display()
)]
pub(super) struct Older {
    seen: Timestamp,
    remembers: Option<Timestamp>,
    file: PathBuf,
}

impl Watermark {
    /// Reads the file; `new_directory` names a data directory without a name.
    pub(super) fn open(key_space: KeySpace, data_dir: &Path, new_directory: String) -> io::Result<Self> {
        let file = data_dir.join(FILE);
        let (directory, seen) = match fs::read_to_string(&file) {
            Ok(text) => parse(&text).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, format!("{} is damaged", file.display()))
            })?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => (new_directory, i64::MIN),
            Err(e) => return Err(e),
        };
        let mark = Lua::new(include_str!("scripts/mark.lua"));
        Ok(Self { key_space, file, directory, seen: AtomicI64::new(seen), mark, older: OnceLock::new() })
    }

    /// The finding, if the store was ever found to be older.
    pub(super) fn older(&self) -> Option<&Older> {
        self.older.get()
    }

    /// Compares the times in every part of the store with the time of the last mark. Returns the time that the store
    /// has forgotten, if tolerable.
    pub(super) async fn check(&self, connection: &Connection) -> RedisResult<Duration> {
        let seen = self.seen.load(Ordering::Acquire);
        if seen == i64::MIN {
            return Ok(Duration::ZERO);
        }
        let remembered = try_join_all((0..PARTS).map(|part| {
            let (mut connection, mut question) = (connection.clone(), cmd("HGET"));
            question.arg(self.key_space.marks(part)).arg(&self.directory);
            async move { question.query_async::<Option<i64>>(&mut connection).await }
        }));
        // A part without any mark is older than every other.
        let remembered = remembered.await?.into_iter().min().flatten();
        let forgotten =
            remembered.map(|at| Duration::from_millis(seen.saturating_sub(at).max(0).unsigned_abs()));
        if let Some(forgotten) = forgotten.filter(|forgotten| *forgotten <= TOLERATED) {
            return Ok(forgotten);
        }
        let remembers = remembered.map(Timestamp::from_millis);
        let older = Older { seen: Timestamp::from_millis(seen), remembers, file: self.file.clone() };
        Err(refused(self.older.get_or_init(|| older).clone()))
    }

    /// Writes the time to every part of the store, then to the file. The store must have been checked before.
    pub(super) async fn set(&self, connection: &Connection, now: Timestamp) -> RedisResult<()> {
        try_join_all((0..PARTS).map(|part| {
            let arguments = Arguments::keys([self.key_space.marks(part)]);
            let arguments = arguments.with(self.directory.as_str()).with(now.millis().to_string());
            let (mut connection, mark) = (connection.clone(), self.mark.by_text(&arguments));
            async move { mark.query_async::<()>(&mut connection).await }
        }))
        .await?;
        self.seen.store(now.millis(), Ordering::Release);
        let (file, text) = (self.file.clone(), format!("{} {}\n", self.directory, now.millis()));
        let written = tokio::task::spawn_blocking(move || replace(&file, &text)).await;
        Ok(written.map_err(io::Error::other)??)
    }
}

fn parse(text: &str) -> Option<(String, i64)> {
    let (directory, seen) = text.trim_end().split_once(' ')?;
    Some((directory.to_owned(), seen.parse().ok()?))
}

/// Replaces the file by renaming a new file, so that the file is always complete.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        private_files::create_folder(folder)?;
    }
    let beside = file.with_extension(format!("new-{}", std::process::id()));
    private_files::write(&beside, text.as_bytes())?;
    fs::rename(beside, file)
}
