//! Health of the key-services, as reported by sessions and management requests. It decides in which order key-services
//! are asked, and what is logged when a key-service does not answer.
//!
//! A session takes calls from the queue when it is free, so a session that gets no answers takes no calls. A management
//! request has no session; it tries the key-services in the order returned here.

use std::{
    fmt::Display,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use shared::time::millis;
use shared_observe::failure_log::{FailureLog, Failures};
use tokio::time::Instant;

/// How long a failed key-service is avoided while another is available.
const AVOIDED: Duration = Duration::from_secs(5);

/// Health of every key-service, by position in the settings. All workers share it.
pub struct KeyServiceHealth {
    began: Instant,
    services: Vec<ServiceHealth>,
    /// Number of requests so far. It decides which key-service is asked first, so that they take turns.
    turns: AtomicUsize,
}

/// A port of a key-service. Each port may fail separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyServicePort {
    Sessions,
    /// HTTP, for management requests and pages.
    Http,
}

#[derive(Default)]
struct ServiceHealth {
    sessions: PortHealth,
    http: PortHealth,
}

#[derive(Default)]
struct PortHealth {
    /// Until when the port is avoided, in milliseconds since the start; 0 if it answers.
    avoided_until: AtomicU64,
    /// Number of workers' sessions that are failing. The port is healthy again when no session fails.
    failing_sessions: AtomicUsize,
    failures: FailureLog,
}

impl KeyServicePort {
    const fn name(self) -> &'static str {
        match self {
            Self::Sessions => "a key-service",
            Self::Http => "the HTTP port of a key-service",
        }
    }
}

impl ServiceHealth {
    const fn port(&self, port: KeyServicePort) -> &PortHealth {
        match port {
            KeyServicePort::Sessions => &self.sessions,
            KeyServicePort::Http => &self.http,
        }
    }
}

impl KeyServiceHealth {
    /// Makes the health of `services` key-services, which all start as healthy.
    pub fn new(services: usize) -> Self {
        let services = (0..services).map(|_| ServiceHealth::default()).collect();
        Self { began: Instant::now(), services, turns: AtomicUsize::new(0) }
    }

    pub fn count(&self) -> usize {
        self.services.len()
    }

    /// Notes that a key-service answered. `name` is its name in the log.
    pub fn answered(&self, service: usize, port: KeyServicePort, name: impl Display) {
        let Some(health) = self.services.get(service).map(|health| health.port(port)) else { return };
        // The time is read first, because nearly every answer is from a healthy key-service, and then nothing has to be
        // written.
        if health.avoided_until.load(Ordering::Relaxed) != 0 {
            health.avoided_until.store(0, Ordering::Relaxed);
        }
        if health.failing_sessions.load(Ordering::Relaxed) == 0
            && let Some(Failures { count, seconds, .. }) = health.failures.succeeded()
        {
            tracing::info!(peer = %name, failures = count, seconds, "{} is back", port.name());
        }
    }

    /// Notes that a key-service did not answer, or cannot reach the store. Logs the first failure, then at most one
    /// failure a minute.
    pub fn failed(&self, service: usize, port: KeyServicePort, name: impl Display, error: &str) {
        let Some(health) = self.services.get(service).map(|health| health.port(port)) else { return };
        health.avoided_until.store(self.now() + millis(AVOIDED), Ordering::Relaxed);
        let Some(Failures { count, seconds, .. }) = health.failures.failed() else { return };
        let is = if count == 1 { "is unavailable" } else { "is still unavailable" };
        tracing::warn!(peer = %name, error, failures = count, seconds, "{} {is}", port.name());
    }

    /// Notes that a worker's session failed. `is_failing` says whether it had failed before.
    pub(super) fn session_failed(
        &self,
        service: usize,
        is_failing: &AtomicBool,
        name: impl Display,
        error: &str,
    ) {
        if !is_failing.swap(true, Ordering::Relaxed)
            && let Some(health) = self.services.get(service)
        {
            health.sessions.failing_sessions.fetch_add(1, Ordering::Relaxed);
        }
        self.failed(service, KeyServicePort::Sessions, name, error);
    }

    /// Notes that a worker's session got an answer.
    pub(super) fn session_answered(&self, service: usize, is_failing: &AtomicBool, name: impl Display) {
        if is_failing.load(Ordering::Relaxed)
            && is_failing.swap(false, Ordering::Relaxed)
            && let Some(health) = self.services.get(service)
        {
            health.sessions.failing_sessions.fetch_sub(1, Ordering::Relaxed);
        }
        self.answered(service, KeyServicePort::Sessions, name);
    }

    /// Lists the key-services, starting with the next in turn. Those that failed recently come last.
    pub fn in_turn(&self) -> Vec<usize> {
        let count = self.services.len();
        let first = self.turns.fetch_add(1, Ordering::Relaxed) % count.max(1);
        let now = self.now();
        let mut in_turn: Vec<usize> = (first..count).chain(0..first).collect();
        in_turn.sort_by_key(|service| self.is_avoided(*service, now));
        in_turn
    }

    fn is_avoided(&self, service: usize, now: u64) -> bool {
        let health = &self.services[service];
        [KeyServicePort::Sessions, KeyServicePort::Http]
            .iter()
            .any(|port| health.port(*port).avoided_until.load(Ordering::Relaxed) > now)
    }

    fn now(&self) -> u64 {
        millis(self.began.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_that_failed_are_asked_last_until_they_answer_or_time_is_over() {
        let health = KeyServiceHealth::new(3);
        assert_eq!([health.in_turn(), health.in_turn()], [[0, 1, 2], [1, 2, 0]]);
        health.failed(2, KeyServicePort::Sessions, "it", "away");
        assert_eq!([health.in_turn(), health.in_turn()], [[0, 1, 2], [0, 1, 2]].map(Vec::from));
        assert_eq!(health.in_turn(), [1, 0, 2]);
        health.answered(2, KeyServicePort::Http, "it");
        assert_eq!(health.in_turn(), [0, 1, 2], "each port answers for itself");
        health.answered(2, KeyServicePort::Sessions, "it");
        assert_eq!(health.in_turn(), [0, 1, 2]);
        health.failed(0, KeyServicePort::Http, "it", "away");
        assert_eq!(health.in_turn(), [1, 2, 0]);
        advance(AVOIDED).await;
        assert_eq!([health.in_turn(), health.in_turn()], [[2, 0, 1], [0, 1, 2]]);
    }
}
