//! Detects that a Redis has lost data, because it was restored from a snapshot or emptied.
//!
//! Every few seconds, a process raises a count for each part of the store: first in the part, and then in a file in the
//! data directory. If the count in a part is lower than the count in the file, the store has lost acknowledged writes.
//! While a part's master is away, the part's counts stay as they are. They continue from there when the master is back.
//!
//! The count is in milliseconds, so that it shows how much time a loss covers. A mark adds the time since the process's
//! last mark. The first mark of a process raises the counts to the time of the wall clock, because a store may be
//! restored while no process runs. Neither a clock nor another process with the same data directory can lower a count.

pub(super) mod rewriting;

use std::{
    array, fs, io,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};

use parking_lot::Mutex;
use redis::{RedisResult, cmd};
use shared::{private_files, time::Timestamp};
use tokio::time::Instant;

use super::{
    connection::{Connection, ask_parts, refused},
    key_space::{KeySpace, PARTS},
};

/// Name of the file in the data directory.
const FILE: &str = "redis-seen";
/// Written to the file instead of a count if the part was never seen.
const UNSEEN: &str = "-";

/// Script that raises the count of a part.
const MARK: &str = include_str!("mark.lua");

/// Interval at which a process marks the store as seen. A mark adds at most this much to the count, because a mark that
/// comes late after an outage stands for no additional writes. The loss of a minute of writes is noticed at most this
/// much later.
pub(super) const MARKED_EVERY: Duration = Duration::from_secs(5);

/// The largest difference that does not yet mean that a snapshot was restored. It is more than the two seconds of
/// writes that a crash or a failover may lose.
const TOLERATED: Duration = Duration::from_mins(1);

/// The count at which this data directory last saw each part of the store. It does not change while the part's master
/// is away.
type Seen = [Option<i64>; PARTS];

pub(super) struct Watermark {
    key_space: KeySpace,
    /// File with the counts; `None` if there is no data directory.
    file: Option<PathBuf>,
    /// Name by which the store knows this data directory.
    directory: String,
    seen: Mutex<Seen>,
    /// Time of the last mark of this process.
    marked_at: Mutex<Option<Instant>>,
    /// Set when the store is found to have older data. From then on, the store is not used.
    older: OnceLock<Older>,
}

/// What a check of a master has found, if the master has not lost too much.
pub(super) struct Checked {
    /// Length of the period whose writes the master has lost.
    pub(super) forgotten: Duration,
    remembered: Seen,
}

/// A mark for all parts that can be reached.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    /// Time since the process's last mark; `None` for the first mark.
    since: Option<Duration>,
    now: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Redis came back with older data: it has {}. If this is not the Redis that this data directory belongs to, use \
     another data directory (FAREGATE_DATA_DIR). Otherwise restore newer data; or, to continue with this data and \
     forget what was spent since, stop, delete {} and start again",
    .behind.map_or_else(
        || "no mark of this data directory".to_owned(),
        |behind| format!("forgotten the last {} seconds in which it was used", behind.as_secs()),
    ),
    .file.display()
)]
pub(super) struct Older {
    /// Length of the period whose writes the store has lost; `None` if the store has no mark of this data directory.
    behind: Option<Duration>,
    file: PathBuf,
}

impl Watermark {
    /// Reads the file. If there is none, `new_directory` becomes the name of the data directory.
    pub(super) fn open(
        key_space: KeySpace,
        data_dir: Option<&Path>,
        new_directory: String,
    ) -> io::Result<Self> {
        let file = data_dir.map(|folder| folder.join(FILE));
        let found = file.as_deref().map(read).transpose()?.flatten();
        let (directory, seen) = found.unwrap_or((new_directory, [None; PARTS]));
        let (seen, marked_at, older) = (Mutex::new(seen), Mutex::default(), OnceLock::new());
        Ok(Self { key_space, file, directory, seen, marked_at, older })
    }

    /// Returns what was found if the store was ever found to have older data.
    pub(super) fn older(&self) -> Option<&Older> {
        self.older.get()
    }

    /// Compares the counts in a master's parts of the store with those of the last marks.
    pub(super) async fn check(&self, connection: &Connection) -> RedisResult<Checked> {
        let seen = *self.seen.lock();
        let mut checked = Checked { forgotten: Duration::ZERO, remembered: [None; PARTS] };
        if seen.iter().all(Option::is_none) {
            return Ok(checked);
        }
        let remembered = ask_parts(connection, |part| {
            let mut question = cmd("HGET");
            question.arg(self.key_space.marks(part)).arg(&self.directory);
            question
        });
        for (part, remembered) in remembered.await? {
            let remembered: Option<i64> = redis::from_redis_value(remembered)?;
            checked.remembered[part] = remembered;
            let Some(seen) = seen[part] else { continue };
            let lost = remembered.map(|count| seen.saturating_sub(count).max(0).unsigned_abs());
            match lost.map(Duration::from_millis) {
                Some(lost) if lost <= TOLERATED => checked.forgotten = checked.forgotten.max(lost),
                behind @ (Some(_) | None) => {
                    let older = Older { behind, file: self.file.clone().unwrap_or_default() };
                    return Err(refused(self.older.get_or_init(|| older).clone()));
                }
            }
        }
        Ok(checked)
    }

    /// Returns the next mark, which has not been set yet.
    pub(super) fn next(&self, now: Timestamp) -> Mark {
        Mark { since: self.marked_at.lock().map(|last| last.elapsed()), now }
    }

    /// Raises the counts in a master's parts of the store, and writes the time of the last check of that master.
    pub(super) async fn set(
        &self,
        connection: &Connection,
        checked: &Checked,
        mark: Mark,
    ) -> RedisResult<()> {
        let seen = *self.seen.lock();
        // A part that was away continues from its own count. If it jumped to the count of other parts, the loss of just
        // this mark would look like a long loss.
        let counts: [i64; PARTS] = array::from_fn(|part| mark.next(seen[part].max(checked.remembered[part])));
        let marked = ask_parts(connection, |part| {
            let mut raise = cmd("EVAL");
            raise.arg(MARK).arg(1).arg(self.key_space.marks(part));
            raise.arg(&self.directory).arg(counts[part]).arg(mark.now.millis());
            raise
        });
        for (part, _) in marked.await? {
            let count = counts[part];
            self.seen.lock()[part] = Some(count);
        }
        Ok(())
    }

    /// Writes the counts of all marks to the file.
    pub(super) async fn keep(&self) -> io::Result<()> {
        *self.marked_at.lock() = Some(Instant::now());
        let Some(file) = self.file.clone() else { return Ok(()) };
        let text = format!("{} {}\n", self.directory, write(&self.seen.lock()));
        tokio::task::spawn_blocking(move || replace(&file, &text)).await.map_err(io::Error::other)?
    }
}

impl Mark {
    /// Returns the next count. The first mark of a process or of a part catches up with the clock.
    fn next(self, count: Option<i64>) -> i64 {
        let step = self.since.unwrap_or_default().clamp(Duration::from_millis(1), MARKED_EVERY);
        let step = i64::try_from(step.as_millis()).unwrap_or(i64::MAX);
        let Some(next) = count.map(|count| count.saturating_add(step)) else { return self.now.millis() };
        if self.since.is_none() { next.max(self.now.millis()) } else { next }
    }
}

/// Reads the file, if there is one.
fn read(file: &Path) -> io::Result<Option<(String, Seen)>> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, format!("{} is damaged", file.display()));
    match fs::read_to_string(file) {
        Ok(text) => parse(&text).ok_or_else(damaged).map(Some),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(io::Error::new(e.kind(), format!("{} cannot be read ({e})", file.display()))),
    }
}

/// Parses the name of the data directory, followed by either one count for all parts or a count for each part.
fn parse(text: &str) -> Option<(String, Seen)> {
    let (directory, counts) = text.trim_end().split_once(' ')?;
    let count = |word: &str| if word == UNSEEN { Some(None) } else { word.parse().ok().map(Some) };
    let counts: Vec<_> = counts.split(' ').map(count).collect::<Option<_>>()?;
    let seen = match &counts[..] {
        [all] => [*all; PARTS],
        each => each.try_into().ok()?,
    };
    Some((directory.to_owned(), seen))
}

/// Writes the counts. If they are all the same, writes only one.
fn write(seen: &Seen) -> String {
    let word = |count: &Option<i64>| count.map_or(UNSEEN.to_owned(), |count| count.to_string());
    let distinct = if seen.iter().all(|count| *count == seen[0]) { &seen[..1] } else { &seen[..] };
    distinct.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// Writes a new file and renames it over the old file, so that the file is always complete. An error names the file: a
/// command that runs as another user or in another directory may not be allowed to write to the data directory.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    rename_over(file, text).map_err(|e| {
        let file = file.display();
        let says = format!(
            "{file} cannot be written ({e}); set FAREGATE_DATA_DIR to this installation's data directory"
        );
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_one_count_for_all_parts_or_one_for_each() {
        let mut seen = [Some(7); PARTS];
        assert_eq!(write(&seen), "7");
        assert_eq!(parse("directory 7\n"), Some(("directory".to_owned(), seen)));
        (seen[3], seen[4]) = (Some(5), None);
        let text = write(&seen);
        assert_eq!(text, "7 7 7 5 - 7 7 7 7 7 7 7 7 7 7 7");
        assert_eq!(parse(&format!("directory {text}\n")), Some(("directory".to_owned(), seen)));
        for damaged in ["", "directory", "directory 7 7", "directory seven", "directory 7  7"] {
            assert_eq!(parse(damaged), None, "{damaged}");
        }
    }
}
