//! Detects a Redis that has lost data: restored from a snapshot, or empty.
//!
//! Every few seconds, a process raises a count in every part of the store, and then in a file of the data directory. If
//! the count of a part is behind the file's, the store has lost acknowledged writes. A part whose master is away keeps its
//! count in both places, and goes on from there when the master is back.
//!
//! The count is in milliseconds, so that a loss has a length. A mark adds the time since the process's last mark. The
//! first mark of a process moves the counts up to the wall clock, since a store may be restored while no process runs.
//! Neither a clock nor another process of the same data directory lowers the count.

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
/// In the place of a count, in the file: the part was never seen.
const UNSEEN: &str = "-";

/// Script that raises the count of a part.
const MARK: &str = include_str!("mark.lua");

/// Interval at which a process marks the store as seen. It is also the most that a mark adds: a mark that comes late,
/// after an outage, stands for no more writes. A store that lost a minute of writes is noticed this much later at
/// worst.
pub(super) const MARKED_EVERY: Duration = Duration::from_secs(5);

/// Largest difference that does not count as a restored snapshot: more than the two seconds that a crash or a failover
/// loses.
const TOLERATED: Duration = Duration::from_mins(1);

/// The count at which this data directory last saw each part of the store. While a master of a cluster is away, those of
/// its parts stand still.
type Seen = [Option<i64>; PARTS];

/// The counts at which this data directory last saw the store.
pub(super) struct Watermark {
    key_space: KeySpace,
    /// File of the counts; `None` without a data directory.
    file: Option<PathBuf>,
    /// Name of this data directory in the store.
    directory: String,
    seen: Mutex<Seen>,
    /// Time of the last mark of this process.
    marked_at: Mutex<Option<Instant>>,
    /// Set once the store was found to be older. It is then no longer used.
    older: OnceLock<Older>,
}

/// A master that has not forgotten too much.
pub(super) struct Checked {
    /// Length of what the master has forgotten.
    pub(super) forgotten: Duration,
    /// The counts of its parts.
    remembered: Seen,
}

/// A mark of all parts that are there.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    /// Time since the process's last mark; `None` for the first one.
    since: Option<Duration>,
    now: Timestamp,
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
        let (directory, seen) = found.unwrap_or((new_directory, [None; PARTS]));
        let (seen, marked_at, older) = (Mutex::new(seen), Mutex::default(), OnceLock::new());
        Ok(Self { key_space, file, directory, seen, marked_at, older })
    }

    /// Returns the finding, if the store was ever found to be older.
    pub(super) fn older(&self) -> Option<&Older> {
        self.older.get()
    }

    /// Compares the counts in the parts of the store that a master has with those of the last marks.
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

    /// Begins the next mark.
    pub(super) fn next(&self, now: Timestamp) -> Mark {
        Mark { since: self.marked_at.lock().map(|last| last.elapsed()), now }
    }

    /// Raises the counts in the parts of the store that a master has, and writes the time of the last look at that master.
    pub(super) async fn set(
        &self,
        connection: &Connection,
        checked: &Checked,
        mark: Mark,
    ) -> RedisResult<()> {
        let seen = *self.seen.lock();
        // A part that was away goes on from its own count: a jump to that of the others would look like a long loss, if it
        // forgot this mark.
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
    /// Returns the count after this one. The first mark of a process, and of a part, catches up with the clock.
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

/// Reads the name of the data directory, and one count for all parts or one for each.
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

/// Writes the counts: one if all parts have the same.
fn write(seen: &Seen) -> String {
    let word = |count: &Option<i64>| count.map_or(UNSEEN.to_owned(), |count| count.to_string());
    let distinct = if seen.iter().all(|count| *count == seen[0]) { &seen[..1] } else { &seen[..] };
    distinct.iter().map(word).collect::<Vec<_>>().join(" ")
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
