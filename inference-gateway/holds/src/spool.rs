//! A file for captures that are not confirmed when their answers are sent.
//!
//! One thread writes the file. Lines that arrive during a sync are written together afterwards.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
};

use parking_lot::Mutex;
use shared::{clock::Clock, ids::GenerationId, private_files};
use shared_observe::failure_log::{FailureLog, Failures};
use shared_rpc::{
    Capture,
    spool::{self, SpoolContents, SpoolLine, SpooledCapture},
};
use tokio::sync::oneshot;

/// Maximum number of captures in the spool. Each unconfirmed capture keeps the slot of its request, so there will
/// hardly be more.
const MAX_CAPTURES: usize = 1 << 20;
/// Size from which the file is rewritten without its delivered captures.
const COMPACT_BYTES: u64 = 4 << 20;
/// Maximum number of waiting lines. A caller waits until its line is written, except for the line of a delivery.
const QUEUE: usize = 8192;

/// A handle on the spool. Cheap to clone.
#[derive(Clone)]
pub struct Spool {
    lines: SpoolLines,
    found: Arc<Mutex<Vec<SpooledCapture>>>,
    clock: Arc<dyn Clock>,
    /// Path of the file, for the log.
    path: Arc<Path>,
    unwritten: Arc<FailureLog>,
}

/// How lines reach the file.
#[derive(Clone)]
enum SpoolLines {
    /// Lines are sent to the thread that writes the file.
    Queued(mpsc::SyncSender<(SpoolLine, Option<Written>)>),
    /// The caller writes the lines, because a simulation has only one thread. `None` once the file is closed.
    AtOnce(Arc<Mutex<Option<SpoolWriter>>>),
}

/// Confirms to a caller that its line is on disk.
type Written = oneshot::Sender<Result<(), SpoolError>>;

/// Why the spool cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// The file cannot be written.
    #[error("cannot write {file}: {error}")]
    Io { file: PathBuf, error: io::Error },
    /// Another process is using the file.
    #[error("{0} is in use by another gateway; give each gateway its own data directory")]
    InUse(PathBuf),
    /// The spool is full, or the writer has ended.
    #[error("the spool is full")]
    Full,
}

impl Spool {
    /// Opens the spool in a data directory, for this process only.
    pub fn open(data_dir: &Path, clock: Arc<dyn Clock>) -> Result<Self, SpoolError> {
        let path = spool::file(data_dir);
        let failed = |error| SpoolError::Io { file: path.clone(), error };
        metrics::counter!("gateway_spool_write_failures_total").increment(0);
        let (writer, found) = SpoolWriter::open(path.clone())?;
        let (lines, queue) = mpsc::sync_channel(QUEUE);
        thread::Builder::new().name("spool".into()).spawn(move || writer.run(&queue)).map_err(failed)?;
        let (found, unwritten) = (Arc::new(Mutex::new(found)), Arc::default());
        Ok(Self { lines: SpoolLines::Queued(lines), found, clock, path: path.into(), unwritten })
    }

    /// Like [`Spool::open`], but without a thread: callers write the file themselves.
    pub fn open_without_thread(data_dir: &Path, clock: Arc<dyn Clock>) -> Result<Self, SpoolError> {
        let path = spool::file(data_dir);
        let (writer, found) = SpoolWriter::open(path.clone())?;
        let lines = SpoolLines::AtOnce(Arc::new(Mutex::new(Some(writer))));
        let (found, unwritten) = (Arc::new(Mutex::new(found)), Arc::default());
        Ok(Self { lines, found, clock, path: path.into(), unwritten })
    }

    /// Closes a spool without a thread, as if the process ended. Nothing more is written.
    pub fn let_go(&self) {
        match &self.lines {
            SpoolLines::Queued(_) => {}
            SpoolLines::AtOnce(writer) => drop(writer.lock().take()),
        }
    }

    /// Takes the captures of an earlier process. A second call returns none.
    pub(crate) fn pending(&self) -> Vec<Capture> {
        let found = std::mem::take(&mut *self.found.lock());
        found.into_iter().map(Capture::from).collect()
    }

    /// Appends a capture. Returns once it is on disk.
    pub(crate) async fn append(&self, capture: Capture) -> Result<(), SpoolError> {
        let written = self.append_line(capture).await;
        self.note(&written);
        written
    }

    /// Records a write. Logs the first failure, then at most one failure a minute, and the first success after
    /// failures.
    fn note(&self, written: &Result<(), SpoolError>) {
        let file = self.path.display();
        match written {
            Ok(()) => {
                if let Some(Failures { count, seconds, .. }) = self.unwritten.succeeded() {
                    tracing::info!(%file, failures = count, seconds, "the spool can be written again");
                }
            }
            Err(error) => {
                metrics::counter!("gateway_spool_write_failures_total").increment(1);
                if let Some(Failures { count, seconds, .. }) = self.unwritten.failed() {
                    tracing::error!(
                        %file, %error, failures = count, seconds,
                        "the spool cannot be written: captures are only in memory, and are lost if this process ends \
                         before a key-service confirms them; each write is tried again"
                    );
                }
            }
        }
    }

    async fn append_line(&self, capture: Capture) -> Result<(), SpoolError> {
        let (written, confirmed) = oneshot::channel();
        let line = SpoolLine::Capture(SpooledCapture::new(&capture, self.clock.now()));
        self.lines.send(line, Some(written))?;
        confirmed.await.unwrap_or(Err(SpoolError::Full))
    }

    /// Records that this generation's capture was delivered. If a crash loses this record, the capture is delivered
    /// again, which is harmless.
    pub(crate) fn remove(&self, generation: GenerationId) {
        if self.lines.send(SpoolLine::Done(generation), None).is_err() {
            tracing::warn!(%generation, "a delivered capture stays in the spool until the next start");
        }
    }
}

impl SpoolLines {
    fn send(&self, line: SpoolLine, written: Option<Written>) -> Result<(), SpoolError> {
        match self {
            Self::Queued(lines) => lines.try_send((line, written)).map_err(|_| SpoolError::Full),
            Self::AtOnce(writer) => {
                writer.lock().as_mut().ok_or(SpoolError::Full)?.write_batch(vec![(line, written)]);
                Ok(())
            }
        }
    }
}

struct SpoolWriter {
    path: PathBuf,
    file: File,
    /// Length of the complete lines, in bytes.
    bytes: u64,
    /// Whether the file may end with a partial line, or with lines that were not synced.
    torn: bool,
    pending: HashMap<GenerationId, SpooledCapture>,
}

impl SpoolWriter {
    /// Locks and reads the file. Unreadable lines are moved to a file next to it; only pending captures are kept.
    fn open(path: PathBuf) -> Result<(Self, Vec<SpooledCapture>), SpoolError> {
        let failed = |error| SpoolError::Io { file: path.clone(), error };
        if let Some(folder) = path.parent() {
            private_files::create_folder(folder).map_err(failed)?;
        }
        let file = private_files::options().create(true).append(true).open(&path).map_err(failed)?;
        private_files::narrow(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(SpoolError::InUse(path)),
            Err(fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
        let SpoolContents { pending: found, damaged } = spool::read(&path).map_err(failed)?;
        keep_damaged(&path, &damaged)?;
        let bytes = file.metadata().map_err(failed)?.len();
        let pending = found.iter().map(|capture| (capture.generation, capture.clone())).collect();
        let mut writer = Self { path, file, bytes, torn: false, pending };
        // The last line may be incomplete, and the next line would be appended to it.
        let rewritten = sync_folder(&writer.path).and_then(|()| {
            let text = writer.pending_lines()?;
            if fs::read(&writer.path)? == text.as_bytes() { Ok(()) } else { writer.rewrite(&text) }
        });
        rewritten.map_err(|error| SpoolError::Io { file: writer.path.clone(), error })?;
        writer.measure();
        Ok((writer, found))
    }

    fn run(mut self, queue: &mpsc::Receiver<(SpoolLine, Option<Written>)>) {
        while let Ok(first) = queue.recv() {
            let mut batch = vec![first];
            batch.extend(queue.try_iter().take(QUEUE));
            self.write_batch(batch);
        }
    }

    /// Writes lines, and notifies the callers.
    fn write_batch(&mut self, batch: Vec<(SpoolLine, Option<Written>)>) {
        let outcome = self.write(&batch);
        for (_, written) in batch {
            let Some(written) = written else { continue };
            let outcome = outcome.as_ref().copied().map_err(|error| SpoolError::Io {
                file: self.path.clone(),
                error: io::Error::new(error.kind(), error.to_string()),
            });
            // If the caller is gone, nobody needs the outcome.
            let _ = written.send(outcome);
        }
        self.measure();
    }

    /// Writes all of these lines or none. Even if the line of a delivery cannot be written, the capture counts as
    /// delivered.
    fn write(&mut self, batch: &[(SpoolLine, Option<Written>)]) -> io::Result<()> {
        let (mut text, mut captures) = (String::new(), 0);
        for (line, _) in batch {
            captures += usize::from(matches!(line, SpoolLine::Capture(_)));
            text.push_str(&line.to_text()?);
        }
        let written = if self.pending.len() + captures > MAX_CAPTURES {
            Err(io::Error::other("the spool is full"))
        } else {
            self.append(&text, captures > 0)
        };
        for (line, _) in batch {
            match line {
                SpoolLine::Capture(capture) if written.is_ok() => {
                    self.pending.insert(capture.generation, capture.clone());
                }
                SpoolLine::Capture(_) => {}
                SpoolLine::Done(generation) => drop(self.pending.remove(generation)),
            }
        }
        if let Err(error) = self.compact() {
            tracing::warn!(file = %self.path.display(), %error, "delivered captures stay in the spool");
        }
        written
    }

    /// Appends complete lines. If the disk is full and only some of the bytes are written, they are cut off again,
    /// since the next line would otherwise be appended to a partial line. Nothing more is appended until the cut
    /// succeeds.
    fn append(&mut self, text: &str, sync: bool) -> io::Result<()> {
        if self.torn {
            self.file.set_len(self.bytes)?;
            self.torn = false;
        }
        let mut write = || {
            self.file.write_all(text.as_bytes())?;
            if sync { self.file.sync_data() } else { Ok(()) }
        };
        if let Err(error) = write() {
            self.torn = self.file.set_len(self.bytes).is_err();
            return Err(error);
        }
        self.bytes += text.len() as u64;
        Ok(())
    }

    /// If no captures are pending or the file is large, rewrites the file with only the pending captures.
    fn compact(&mut self) -> io::Result<()> {
        if self.bytes == 0 && !self.torn {
            return Ok(());
        }
        if self.pending.is_empty() {
            return self.rewrite("");
        }
        if self.bytes <= COMPACT_BYTES {
            return Ok(());
        }
        let text = self.pending_lines()?;
        if (text.len() as u64) < self.bytes { self.rewrite(&text) } else { Ok(()) }
    }

    fn pending_lines(&self) -> io::Result<String> {
        let mut captures: Vec<_> = self.pending.values().collect();
        captures.sort_unstable_by_key(|capture| (capture.at_ms, capture.generation));
        captures.into_iter().map(|capture| SpoolLine::Capture(capture.clone()).to_text()).collect()
    }

    /// Replaces the content. The new file is locked before it replaces the old one, since the lock shows that the spool
    /// is in use.
    fn rewrite(&mut self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            self.file.set_len(0)?;
        } else {
            // Pending captures are written and synced before the old file is replaced, so that a crash loses none.
            let beside = self.path.with_extension("new");
            private_files::write(&beside, text.as_bytes())?;
            let file = File::options().append(true).open(&beside)?;
            file.sync_all()?;
            file.lock()?;
            fs::rename(&beside, &self.path)?;
            self.file = file;
        }
        (self.bytes, self.torn) = (text.len() as u64, false);
        self.file.sync_all()?;
        sync_folder(&self.path)
    }

    fn measure(&self) {
        #[expect(clippy::cast_precision_loss, reason = "a metric")]
        let (captures, oldest) = {
            let oldest = self.pending.values().map(|capture| capture.at_ms).min().unwrap_or(0);
            (self.pending.len() as f64, (oldest / 1000) as f64)
        };
        metrics::gauge!("gateway_spool_captures").set(captures);
        metrics::gauge!("gateway_spool_oldest_timestamp_seconds").set(oldest);
    }
}

/// Syncs a file's folder, so that the name of a new file is on disk.
fn sync_folder(file: &Path) -> io::Result<()> {
    file.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// Appends unreadable lines to the file next to the spool, and syncs it before the spool is rewritten. Such lines are
/// evidence of charges that may be owed.
fn keep_damaged(spool: &Path, lines: &[Vec<u8>]) -> Result<(), SpoolError> {
    if lines.is_empty() {
        return Ok(());
    }
    let path = spool::damaged_file(spool);
    let mut bytes = lines.concat();
    if !bytes.ends_with(b"\n") {
        bytes.push(b'\n');
    }
    let append = || {
        let mut file = private_files::options().create(true).append(true).open(&path)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        sync_folder(&path)
    };
    append().map_err(|error| SpoolError::Io { file: path.clone(), error })?;
    tracing::error!(
        spool = %spool.display(),
        moved_to = %path.display(),
        lines = lines.len(),
        "some lines of the spool cannot be read, and were moved: each may be a charge that is owed; compare the \
         journal with the upstream's record (audit --against), or repair the lines and append them to the spool while \
         the gateway is stopped"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use shared::{
        clock::System,
        ids::{AccountId, KeyId},
        tokens::Usage,
    };

    use super::*;

    /// Environment variable with the spool's folder, for a process whose files cannot grow beyond a kilobyte or two.
    const FULL_DISK: &str = "FAREGATE_TEST_FULL_DISK";

    fn capture(model: &str) -> SpooledCapture {
        SpooledCapture {
            at_ms: 1,
            generation: GenerationId::generate(&System),
            account: AccountId::generate(&System),
            key: KeyId::generate(&System),
            model: model.into(),
            price: vec![Some(1), Some(2), Some(3)].try_into().unwrap(),
            tiers: Vec::new(),
            upstream: 0,
            upstream_cost: None,
            usage: Usage::of(1, 0, 2),
            charged: None,
            estimated: false,
            course: None,
        }
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("faregate-{name}-{}", std::process::id()));
        fs::create_dir_all(spool::file(&folder).parent().unwrap()).unwrap();
        folder
    }

    /// Lists the models of the captures in the file. All captures must be readable.
    fn models(file: &Path) -> Vec<String> {
        let SpoolContents { pending, damaged } = spool::read(file).unwrap();
        assert!(damaged.is_empty(), "{damaged:?}");
        pending.into_iter().map(|capture| capture.model).collect()
    }

    #[tokio::test]
    async fn a_line_that_a_full_disk_cuts_short_swallows_no_confirmed_one() {
        if let Some(folder) = std::env::var_os(FULL_DISK) {
            let spool = Spool::open(folder.as_ref(), Arc::new(System)).unwrap();
            spool.append(capture("before").into()).await.unwrap();
            spool.append(capture(&"long".repeat(1_000)).into()).await.unwrap_err();
            spool.append(capture("after").into()).await.unwrap();
            return;
        }
        let folder = folder("full-spool");
        let this = concat!(module_path!(), "::a_line_that_a_full_disk_cuts_short_swallows_no_confirmed_one");
        let limited = "trap '' XFSZ; ulimit -f 2; exec \"$0\" --exact \"$1\"";
        let mut command = std::process::Command::new("sh");
        command.args(["-c", limited]).arg(std::env::current_exe().unwrap());
        command.arg(this.split_once("::").unwrap().1).env(FULL_DISK, &folder);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert_eq!(models(&spool::file(&folder)), ["before", "after"]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[tokio::test]
    async fn a_last_line_without_its_end_swallows_no_later_one() {
        let folder = folder("unended-spool");
        let line = SpoolLine::Capture(capture("before")).to_text().unwrap();
        fs::write(spool::file(&folder), line.trim_end()).unwrap();
        let spool = Spool::open(&folder, Arc::new(System)).unwrap();
        spool.append(capture("after").into()).await.unwrap();
        assert_eq!(models(&spool::file(&folder)), ["before", "after"]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn lines_that_cannot_be_read_stop_no_gateway_and_are_kept() {
        let folder = folder("damaged-spool");
        let path = spool::file(&folder);
        let capture = capture("m");
        let line = SpoolLine::Capture(capture.clone()).to_text().unwrap();
        fs::write(&path, [b"\xff\xfe \0\n", line.as_bytes(), b"{\"capture\":{"].concat()).unwrap();
        for damaged in [&b"\xff\xfe \0\n{\"capture\":{\n"[..], b"\xff\xfe \0\n{\"capture\":{\n{}\n"] {
            let spool = Spool::open(&folder, Arc::new(System)).unwrap();
            let pending = spool.pending().into_iter().map(|capture| capture.hold.generation);
            assert_eq!(pending.collect::<Vec<_>>(), [capture.generation]);
            assert_eq!(fs::read_to_string(&path).unwrap(), line);
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!([mode(&path), mode(&spool::damaged_file(&path))], [0o600; 2]);
            assert_eq!(fs::read(spool::damaged_file(&path)).unwrap(), damaged);
            drop(spool);
            // The thread releases its lock when it ends.
            while File::open(&path).unwrap().try_lock().is_err() {
                thread::yield_now();
            }
            fs::write(&path, format!("{{}}\n{line}")).unwrap();
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
