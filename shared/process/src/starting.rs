//! A process that must wait before it can serve, for example because its store starts later.

use std::{
    future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use shared_config::current::Current;

use super::{probe::Readiness, service_manager};

/// Each message asks a service manager to wait this much longer. The time is longer than the pause between two attempts
/// to start.
const PATIENCE: Duration = Duration::from_mins(1);

enum StartPhase {
    Waiting(String),
    Started(Readiness),
}

/// Readiness of a process, from its first moment on. Cheap to clone.
#[derive(Clone)]
pub struct Starting {
    phase: Arc<Current<StartPhase>>,
    /// Whether the service manager was told why the process waits.
    has_told: Arc<AtomicBool>,
}

impl Starting {
    /// Makes the readiness of a process that is not ready yet, for this reason.
    pub fn new(why: &str) -> Self {
        let phase = Current::new(StartPhase::Waiting(why.to_owned()));
        Self { phase: Arc::new(phase), has_told: Arc::default() }
    }

    /// Reports why the process waits, to probes and to the service manager. Without such a report, the service manager
    /// would kill the process.
    pub fn waits(&self, why: String) {
        let line = why.replace('\n', " ");
        self.phase.replace(StartPhase::Waiting(why));
        let microseconds = PATIENCE.as_micros();
        service_manager::tell(&format!("EXTEND_TIMEOUT_USEC={microseconds}\nSTATUS=waiting: {line}"));
        self.has_told.store(true, Ordering::Relaxed);
    }

    /// From now on, probes are answered with this readiness.
    pub fn started(&self, ready: Readiness) {
        self.phase.replace(StartPhase::Started(ready));
        if self.has_told.load(Ordering::Relaxed) {
            service_manager::tell("STATUS=");
        }
    }

    pub fn readiness(&self) -> Readiness {
        let phase = self.phase.clone();
        Arc::new(move || match &*phase.get() {
            StartPhase::Waiting(why) => Box::pin(future::ready(Err(why.clone()))),
            StartPhase::Started(ready) => ready(),
        })
    }
}
