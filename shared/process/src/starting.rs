//! A process that waits for something before it can serve, such as a store that starts later.

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

/// Time for which each message asks a service manager to wait on: longer than between two attempts.
const PATIENCE: Duration = Duration::from_mins(1);

/// What a process knows of its readiness so far.
enum StartPhase {
    /// Waits for something, for this reason.
    Waiting(String),
    Started(Readiness),
}

/// Readiness of a process from its first moment on. Cheap to clone.
#[derive(Clone)]
pub struct Starting {
    phase: Arc<Current<StartPhase>>,
    /// A service manager knows what the process waits for.
    has_told: Arc<AtomicBool>,
}

impl Starting {
    /// Starts as not ready, for this reason.
    pub fn new(why: &str) -> Self {
        let phase = Current::new(StartPhase::Waiting(why.to_owned()));
        Self { phase: Arc::new(phase), has_told: Arc::default() }
    }

    /// Tells probes what the process waits for, and also the service manager, which would give the process up
    /// otherwise.
    pub fn waits(&self, why: String) {
        let line = why.replace('\n', " ");
        self.phase.replace(StartPhase::Waiting(why));
        let microseconds = PATIENCE.as_micros();
        service_manager::tell(&format!("EXTEND_TIMEOUT_USEC={microseconds}\nSTATUS=waiting: {line}"));
        self.has_told.store(true, Ordering::Relaxed);
    }

    /// Lets this readiness answer from now on.
    pub fn started(&self, ready: Readiness) {
        self.phase.replace(StartPhase::Started(ready));
        if self.has_told.load(Ordering::Relaxed) {
            service_manager::tell("STATUS=");
        }
    }

    /// Returns the readiness that probes ask for.
    pub fn readiness(&self) -> Readiness {
        let phase = self.phase.clone();
        Arc::new(move || match &*phase.get() {
            StartPhase::Waiting(why) => Box::pin(future::ready(Err(why.clone()))),
            StartPhase::Started(ready) => ready(),
        })
    }
}
