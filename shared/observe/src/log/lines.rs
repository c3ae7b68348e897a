//! Log lines on their way to standard error.
//!
//! A separate thread writes them, so that no request waits for a log that nobody reads, and lines that arrive together
//! are written together. The `non_blocking` writer of `tracing-appender` also counts dropped lines, but flushes only
//! when its worker ends, so a panic that aborts the process would lose the last lines uncounted. It bounds the number
//! of lines instead of their memory, and allocates and writes each line separately.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    io::{self, Write},
    mem,
    panic::{self, PanicHookInfo},
    thread,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use tracing::Level;

/// Minimum time between two writes. Lines in between are written together.
const GATHER: Duration = Duration::from_millis(20);
/// Size in bytes at which a batch is written before [`GATHER`] has passed: the capacity of a pipe.
const FULL: usize = 64 << 10;
/// Maximum number of bytes waiting: a third of a second's lines at ten thousand requests per second. Further lines are
/// dropped.
const MAX_WAITING: usize = 1 << 20;
/// Maximum time to wait until the last lines of a process are written.
const FLUSH_DEADLINE: Duration = Duration::from_secs(1);

pub(super) static LOG: Lines = Lines::new();

/// Lines that wait to be written by a thread.
pub(super) struct Lines {
    queue: Mutex<LineQueue>,
    /// Signalled when the thread has something to do.
    arrived: Condvar,
    /// Signalled when all lines have been written.
    written: Condvar,
}

struct LineQueue {
    bytes: Vec<u8>,
    writer: WriterState,
    /// Number of callers that wait for the last line.
    flushing: usize,
}

/// State of the thread that writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriterState {
    Absent,
    Idle,
    /// It wrote a moment ago, and lets lines accumulate.
    Gathering,
    /// It is writing bytes that have left the queue.
    Writing,
}

impl Lines {
    const fn new() -> Self {
        let queue = LineQueue { bytes: Vec::new(), writer: WriterState::Absent, flushing: 0 };
        Self { queue: Mutex::new(queue), arrived: Condvar::new(), written: Condvar::new() }
    }

    /// Starts the thread that writes to standard error. Panics are logged too, so that their text does not interrupt
    /// other lines.
    pub(super) fn start(&'static self) -> io::Result<()> {
        self.write_to(io::stderr())?;
        panic::set_hook(Box::new(log_panic));
        Ok(())
    }

    fn write_to(&'static self, out: impl Write + Send + 'static) -> io::Result<()> {
        self.queue.lock().writer = WriterState::Idle;
        thread::Builder::new().name("log".into()).spawn(move || self.run(out)).map(drop)
    }

    fn run(&self, mut out: impl Write) {
        let mut batch = Vec::new();
        loop {
            self.next_batch(&mut batch);
            // If standard error is closed, there is nowhere to write the lines.
            let _ = out.write_all(&batch);
            batch.clear();
            batch.shrink_to(FULL);
        }
    }

    /// Waits for lines, and swaps them for the empty `batch`.
    fn next_batch(&self, batch: &mut Vec<u8>) {
        let mut queue = self.queue.lock();
        if queue.writer == WriterState::Writing {
            queue.writer = WriterState::Gathering;
            let may_wait = |queue: &mut LineQueue| queue.bytes.len() < FULL && queue.flushing == 0;
            self.arrived.wait_while_for(&mut queue, may_wait, GATHER);
        }
        if queue.bytes.is_empty() {
            queue.writer = WriterState::Idle;
            self.written.notify_all();
            self.arrived.wait_while(&mut queue, |queue| queue.bytes.is_empty());
        }
        queue.writer = WriterState::Writing;
        mem::swap(&mut queue.bytes, batch);
    }

    /// Adds a line. Drops it and returns false if too many are waiting.
    fn add(&self, line: &[u8]) -> bool {
        let mut queue = self.queue.lock();
        let before = queue.bytes.len();
        if before + line.len() > MAX_WAITING {
            return false;
        }
        queue.bytes.extend_from_slice(line);
        let wakes = match queue.writer {
            WriterState::Idle => before == 0,
            WriterState::Gathering => before < FULL && queue.bytes.len() >= FULL,
            WriterState::Absent | WriterState::Writing => false,
        };
        drop(queue);
        if wakes {
            self.arrived.notify_one();
        }
        true
    }

    /// Waits a bounded time until all lines are written.
    pub(super) fn flush(&self) {
        let mut queue = self.queue.lock();
        if queue.writer == WriterState::Absent {
            return;
        }
        queue.flushing += 1;
        self.arrived.notify_one();
        let waits = |queue: &mut LineQueue| !queue.bytes.is_empty() || queue.writer == WriterState::Writing;
        self.written.wait_while_for(&mut queue, waits, FLUSH_DEADLINE);
        queue.flushing -= 1;
    }
}

/// Layers of `tracing_subscriber` write each line in one call.
impl Write for &Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !self.add(line) {
            metrics::counter!("log_lines_dropped_total").increment(1);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Logs a panic, whatever the filter, and waits for the line to be written: the panic may end the process.
fn log_panic(panic: &PanicHookInfo<'_>) {
    if !tracing::enabled!(Level::ERROR) {
        LOG.add(format!("{panic}\n").as_bytes());
        return LOG.flush();
    }
    let thread = thread::current();
    let message = panic.payload_as_str().unwrap_or_default();
    let place = panic.location().map(tracing::field::display);
    let backtrace = Backtrace::capture();
    let backtrace =
        (backtrace.status() == BacktraceStatus::Captured).then(|| tracing::field::display(backtrace));
    tracing::error!(thread = thread.name(), place, backtrace, "panicked: {message}");
    LOG.flush();
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        io::Read,
        os::unix::process::ExitStatusExt,
        process::{self, Command},
    };

    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    fn line(number: usize) -> String {
        format!("line {number}\n")
    }

    fn started(out: impl Write + Send + 'static) -> &'static Lines {
        let lines = Box::leak(Box::new(Lines::new()));
        lines.write_to(out).unwrap();
        lines
    }

    #[test]
    fn lines_are_written_in_order_before_a_flush_returns() {
        let (mut read, write) = io::pipe().unwrap();
        let mut lines = started(write);
        for round in 0..3 {
            let sent: String = (0..100).map(|number| line(round * 100 + number)).collect();
            sent.split_inclusive('\n').for_each(|line| lines.write_all(line.as_bytes()).unwrap());
            Lines::flush(lines);
            let mut written = vec![0; sent.len()];
            read.read_exact(&mut written).unwrap();
            assert_eq!(String::from_utf8(written).unwrap(), sent);
        }
    }

    #[test]
    fn lines_that_nobody_reads_are_dropped_whole_and_counted_and_later_lines_are_written() {
        let (mut read, write) = io::pipe().unwrap();
        let mut lines = started(write);
        let recorder = PrometheusBuilder::new().build_recorder();
        let sent = MAX_WAITING;
        metrics::with_local_recorder(&recorder, || {
            (0..sent).for_each(|number| lines.write_all(line(number).as_bytes()).unwrap());
        });
        let metrics = recorder.handle().render();
        let counted = metrics.lines().find_map(|line| line.strip_prefix("log_lines_dropped_total "));
        let dropped: usize = counted.unwrap().parse().unwrap();
        // Flushing gives up after its deadline.
        Lines::flush(lines);

        let reader = thread::spawn(move || {
            let mut written = String::new();
            let mut buffer = vec![0; FULL];
            while !written.ends_with("last\n") {
                let count = read.read(&mut buffer).unwrap();
                written.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
            }
            written
        });
        while !lines.add(b"last\n") {
            thread::yield_now();
        }
        let written = reader.join().unwrap();
        let kept: Vec<usize> = written
            .strip_suffix("last\n")
            .unwrap()
            .lines()
            .map(|line| {
                line.strip_prefix("line ").and_then(|number| number.parse().ok()).expect("a whole line")
            })
            .collect();
        assert!(dropped > 0 && kept.len() + dropped == sent, "{} and {dropped} of {sent}", kept.len());
        assert!(kept.is_sorted_by(|line, next| line < next), "each once, in order");
    }

    #[test]
    fn a_panic_that_ends_the_process_is_logged_after_the_lines_before() {
        const PANICS: &str = "FAREGATE_TEST_PANICS";
        const NAME: &str =
            "log::lines::tests::a_panic_that_ends_the_process_is_logged_after_the_lines_before";
        if env::var_os(PANICS).is_some() {
            crate::log::start(crate::log::LogFormat::Text, "info").unwrap();
            (0..1000).for_each(|number| tracing::info!(number));
            let _ = panic::catch_unwind(|| panic!("at {}", "noon"));
            process::abort();
        }
        let mut itself = Command::new(env::current_exe().unwrap());
        let ended = itself
            .args(["--exact", "--nocapture", NAME])
            .env(PANICS, "yes")
            .env_remove("RUST_BACKTRACE")
            .output()
            .unwrap();
        let log = String::from_utf8(ended.stderr).unwrap();
        let lines: Vec<&str> = log.lines().collect();
        assert_eq!((ended.status.signal(), lines.len()), (Some(6), 1001), "{log}");
        assert!(lines[999].ends_with("number=999"), "{log}");
        assert!(lines[1000].contains("ERROR") && lines[1000].contains("panicked: at noon"), "{log}");
    }
}
