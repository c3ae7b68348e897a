//! The events of a run, described in words, and a hash of them.

use std::fmt;

use parking_lot::Mutex;
use tokio::time::Instant;

pub(crate) struct Trace {
    began: Instant,
    told: Mutex<Told>,
    broken: Mutex<Vec<String>>,
}

struct Told {
    hasher: blake3::Hasher,
    lines: Vec<String>,
}

impl Trace {
    pub(crate) fn new(began: Instant) -> Self {
        let told = Told { hasher: blake3::Hasher::new(), lines: Vec::new() };
        Self { began, told: Mutex::new(told), broken: Mutex::default() }
    }

    /// Records a broken promise.
    pub(crate) fn break_promise(&self, what: String) {
        self.tell(format_args!("BROKEN: {what}"));
        self.broken.lock().push(what);
    }

    /// Returns the promises that were broken.
    pub(crate) fn broken(&self) -> Vec<String> {
        self.broken.lock().clone()
    }

    /// Records an event at the current time.
    pub(crate) fn tell(&self, event: fmt::Arguments<'_>) {
        let line = format!("{:>9.3} {event}", self.began.elapsed().as_secs_f64());
        let mut told = self.told.lock();
        told.hasher.update(line.as_bytes());
        told.hasher.update(b"\n");
        told.lines.push(line);
    }

    /// Returns a hash of all events with their times.
    pub(crate) fn hash(&self) -> String {
        self.told.lock().hasher.finalize().to_hex()[..32].to_owned()
    }

    /// Returns all events, one per line.
    pub(crate) fn text(&self) -> String {
        self.told.lock().lines.join("\n")
    }
}

/// Records an event in the trace.
macro_rules! tell {
    ($trace:expr, $($event:tt)+) => { $trace.tell(format_args!($($event)+)) };
}

pub(crate) use tell;
