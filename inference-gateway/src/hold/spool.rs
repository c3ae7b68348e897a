//! Stores captures on disk that were not confirmed before their answers left.
//!
//! One thread writes the file: lines that arrive while it syncs are written together with the next sync.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
};

use parking_lot::Mutex;
use shared::{
    clock::Clock,
    ids::GenerationId,
    private_files,
    rpc::Capture,
    spool::{self, SpoolContents, SpoolLine, SpooledCapture},
};
use tokio::sync::oneshot;

/// Largest number of captures in the spool. Each unconfirmed one keeps its slot, so that there can hardly be more.
const MAX_CAPTURES: usize = 1 << 20;
/// Size from which the file is rewritten without delivered captures.
const COMPACT_BYTES: u64 = 4 << 20;
/// Largest number of waiting lines. Every caller waits for its own line, except deliveries.
const QUEUE: usize = 8192;

/// A handle on the spool. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Spool {
    lines: mpsc::SyncSender<(SpoolLine, Option<Written>)>,
    found: Arc<Mutex<Vec<SpooledCapture>>>,
    clock: Arc<dyn Clock>,
}

/// Confirms to a caller that its line is on disk.
type Written = oneshot::Sender<Result<(), SpoolError>>;

/// The spool cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpoolError {
    /// The file cannot be written.
    #[error("cannot write {file}: {error}")]
    Io {
        /// The file.
        file: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// Another process is using the file.
    #[error("{0} is in use by another gateway; give each gateway a data directory of its own")]
    InUse(PathBuf),
    /// The spool is full, or its writer has ended.
    #[error("the spool is full")]
    Full,
}

impl Spool {
    /// Opens the spool below a data directory, for this process alone.
    pub(crate) fn open(data_dir: &Path, clock: Arc<dyn Clock>) -> Result<Self, SpoolError> {
        let path = spool::file(data_dir);
        let failed = |error| SpoolError::Io { file: path.clone(), error };
        let (writer, found) = SpoolWriter::open(path.clone())?;
        let (lines, queue) = mpsc::sync_channel(QUEUE);
        thread::Builder::new().name("spool".into()).spawn(move || writer.run(&queue)).map_err(failed)?;
        Ok(Self { lines, found: Arc::new(Mutex::new(found)), clock })
    }

    /// Captures of an earlier process. Returned only once.
    pub(crate) fn pending(&self) -> Vec<Capture> {
        let found = std::mem::take(&mut *self.found.lock());
        found.into_iter().map(Capture::from).collect()
    }

    /// Returns when the capture is on disk.
    pub(crate) async fn append(&self, capture: Capture) -> Result<(), SpoolError> {
        let (written, confirmed) = oneshot::channel();
        let line = SpoolLine::Capture(SpooledCapture::new(&capture, self.clock.now()));
        self.lines.try_send((line, Some(written))).map_err(|_| SpoolError::Full)?;
        confirmed.await.unwrap_or(Err(SpoolError::Full))
    }

    /// Records that the capture of this generation was delivered. If a crash loses the record, the capture is delivered
    /// again, which changes nothing.
    pub(crate) fn remove(&self, generation: GenerationId) {
        if self.lines.try_send((SpoolLine::Done(generation), None)).is_err() {
            tracing::warn!(%generation, "a delivered capture stays in the spool until the next start");
        }
    }
}

/// The only writer of the file.
struct SpoolWriter {
    path: PathBuf,
    file: File,
    bytes: u64,
    pending: HashMap<GenerationId, SpooledCapture>,
}

impl SpoolWriter {
    /// Locks the file, reads it, moves what cannot be read to a file beside it, and rewrites it with the pending captures.
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
        let mut writer = Self { path, file, bytes, pending };
        writer.compact().map_err(|error| SpoolError::Io { file: writer.path.clone(), error })?;
        writer.measure();
        Ok((writer, found))
    }

    fn run(mut self, queue: &mpsc::Receiver<(SpoolLine, Option<Written>)>) {
        while let Ok(first) = queue.recv() {
            let mut batch = vec![first];
            batch.extend(queue.try_iter().take(QUEUE));
            let outcome = self.write(&batch);
            if let Err(error) = &outcome {
                tracing::error!(file = %self.path.display(), %error, "the spool cannot be written");
            }
            for (_, written) in batch {
                let Some(written) = written else { continue };
                let outcome = outcome.as_ref().copied().map_err(|error| SpoolError::Io {
                    file: self.path.clone(),
                    error: io::Error::new(error.kind(), error.to_string()),
                });
                // A caller that is gone needs no answer.
                let _ = written.send(outcome);
            }
            self.measure();
        }
    }

    fn write(&mut self, batch: &[(SpoolLine, Option<Written>)]) -> io::Result<()> {
        let (mut text, mut sync) = (String::new(), false);
        for (line, _) in batch {
            match line {
                SpoolLine::Capture(capture) => {
                    if self.pending.len() >= MAX_CAPTURES {
                        return Err(io::Error::other("the spool is full"));
                    }
                    self.pending.insert(capture.generation, capture.clone());
                    sync = true;
                }
                SpoolLine::Done(generation) => {
                    self.pending.remove(generation);
                }
            }
            text.push_str(&line.to_text()?);
        }
        self.file.write_all(text.as_bytes())?;
        self.bytes += text.len() as u64;
        if sync {
            self.file.sync_data()?;
        }
        if self.pending.is_empty() || self.bytes > COMPACT_BYTES {
            self.compact()?;
        }
        Ok(())
    }

    /// Rewrites the file with the pending captures. The file itself is kept, since its lock shows that it is in use.
    fn compact(&mut self) -> io::Result<()> {
        let mut text = String::new();
        for capture in self.pending.values() {
            text.push_str(&SpoolLine::Capture(capture.clone()).to_text()?);
        }
        // Pending captures are written and synced before the older part is cut off, so that a crash loses none.
        if text.len() as u64 >= self.bytes {
            return Ok(());
        }
        if text.is_empty() {
            self.file.set_len(0)?;
        } else {
            let beside = self.path.with_extension("new");
            private_files::write(&beside, text.as_bytes())?;
            File::open(&beside)?.sync_all()?;
            let file = File::options().append(true).open(&beside)?;
            file.lock()?;
            fs::rename(&beside, &self.path)?;
            self.file = file;
        }
        self.file.sync_all()?;
        self.bytes = text.len() as u64;
        Ok(())
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

/// Appends lines of the spool that cannot be read to the file beside it, which is on disk before the spool is rewritten.
/// They are evidence of charges that may be owed.
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
        // The name of a new file is on disk once its folder is.
        path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    append().map_err(|error| SpoolError::Io { file: path.clone(), error })?;
    tracing::error!(
        spool = %spool.display(),
        moved_to = %path.display(),
        lines = lines.len(),
        "lines of the spool cannot be read, and were moved: each may be a charge that is owed; compare the journal with the upstream's record (audit --against), or mend the lines and append them to the spool while the gateway is stopped"
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

    #[test]
    fn lines_that_cannot_be_read_stop_no_gateway_and_are_kept() {
        let folder = std::env::temp_dir().join(format!("faregate-damaged-spool-{}", std::process::id()));
        let path = spool::file(&folder);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let capture = SpooledCapture {
            at_ms: 1,
            generation: GenerationId::generate(&System),
            account: AccountId::generate(&System),
            key: KeyId::generate(&System),
            model: "m".into(),
            price: [1, 2, 3],
            usage: Usage { prompt: 1, cached: 0, completion: 2 },
            estimated: false,
        };
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
            // Its thread lets go of the lock when it ends.
            while File::open(&path).unwrap().try_lock().is_err() {
                thread::yield_now();
            }
            fs::write(&path, format!("{{}}\n{line}")).unwrap();
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
