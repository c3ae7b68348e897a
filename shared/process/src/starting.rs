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

/// Time for which a service manager is asked to wait on, from each message: longer than between two attempts.
const PATIENCE: Duration = Duration::from_mins(1);

/// What a process can say of its readiness so far.
enum Phase {
    /// It waits, for this reason.
    Waiting(String),
    Started(Readiness),
}

/// Readiness of a process from its first moment on. Cheap to clone.
#[derive(Clone)]
pub struct Starting {
    phase: Arc<Current<Phase>>,
    /// A service manager was told what the process waits for.
    has_told: Arc<AtomicBool>,
}

impl Starting {
    /// A process that is not ready for this reason.
    pub fn new(why: &str) -> Self {
        let phase = Current::new(Phase::Waiting(why.to_owned()));
        Self { phase: Arc::new(phase), has_told: Arc::default() }
    }

    /// Says what the process waits for, to probes and to a service manager, which would give the process up otherwise.
    pub fn waits(&self, why: String) {
        let line = why.replace('\n', " ");
        self.phase.replace(Phase::Waiting(why));
        let microseconds = PATIENCE.as_micros();
        service_manager::tell(&format!("EXTEND_TIMEOUT_USEC={microseconds}\nSTATUS=waiting: {line}"));
        self.has_told.store(true, Ordering::Relaxed);
    }

    /// Leaves the answer to this readiness from now on.
    pub fn started(&self, ready: Readiness) {
        self.phase.replace(Phase::Started(ready));
        if self.has_told.load(Ordering::Relaxed) {
            service_manager::tell("STATUS=");
        }
    }

    /// The readiness that probes ask for.
    pub fn readiness(&self) -> Readiness {
        let phase = self.phase.clone();
        Arc::new(move || match &*phase.get() {
            Phase::Waiting(why) => Box::pin(future::ready(Err(why.clone()))),
            Phase::Started(ready) => ready(),
        })
    }
}
