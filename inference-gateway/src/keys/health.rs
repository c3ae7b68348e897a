//! Health of the key-services, reported by sessions and management requests, and the order in which key-services are
//! asked.
//!
//! A session takes calls from the queue when free, so that a session without answers gets none. A management request
//! has no session, and asks the key-services in the order that this module gives.

use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use shared::time::millis;
use tokio::time::Instant;

/// Time for which a key-service that failed is asked only if no other is left.
const AVOIDED: Duration = Duration::from_secs(5);

/// Health of every key-service, by the place in the settings. Shared by all workers.
pub(crate) struct KeyServiceHealth {
    began: Instant,
    services: Vec<ServiceHealth>,
    /// Number of requests so far, so that requests begin with each key-service in turn.
    turns: AtomicUsize,
}

/// Way to a key-service. Each way has its own port, and may fail alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyServicePort {
    /// gRPC, which carries sessions.
    Sessions,
    /// HTTP, which carries management requests and pages.
    Http,
}

/// Milliseconds since the beginning until which a port is avoided; 0 for a port that answers.
#[derive(Default)]
struct ServiceHealth {
    sessions: AtomicU64,
    http: AtomicU64,
}

impl ServiceHealth {
    const fn port(&self, port: KeyServicePort) -> &AtomicU64 {
        match port {
            KeyServicePort::Sessions => &self.sessions,
            KeyServicePort::Http => &self.http,
        }
    }
}

impl KeyServiceHealth {
    /// Health of `services` key-services, all healthy.
    pub(crate) fn new(services: usize) -> Self {
        let services = (0..services).map(|_| ServiceHealth::default()).collect();
        Self { began: Instant::now(), services, turns: AtomicUsize::new(0) }
    }

    /// The number of key-services.
    pub(crate) fn count(&self) -> usize {
        self.services.len()
    }

    /// Notes that a key-service answered.
    pub(crate) fn answered(&self, service: usize, port: KeyServicePort) {
        let Some(health) = self.services.get(service) else { return };
        // Read first: nearly every answer comes from a key-service that is healthy.
        if health.port(port).load(Ordering::Relaxed) != 0 {
            health.port(port).store(0, Ordering::Relaxed);
        }
    }

    /// Notes that a key-service did not answer, or cannot reach the store.
    pub(crate) fn failed(&self, service: usize, port: KeyServicePort) {
        let Some(health) = self.services.get(service) else { return };
        health.port(port).store(self.now() + millis(AVOIDED), Ordering::Relaxed);
    }

    /// The key-services, beginning with the next in turn, and ending with those that failed lately.
    pub(crate) fn in_turn(&self) -> Vec<usize> {
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
            .any(|port| health.port(*port).load(Ordering::Relaxed) > now)
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
        health.failed(2, KeyServicePort::Sessions);
        assert_eq!([health.in_turn(), health.in_turn()], [[0, 1, 2], [0, 1, 2]].map(Vec::from));
        assert_eq!(health.in_turn(), [1, 0, 2]);
        health.answered(2, KeyServicePort::Http);
        assert_eq!(health.in_turn(), [0, 1, 2], "each port answers for itself");
        health.answered(2, KeyServicePort::Sessions);
        assert_eq!(health.in_turn(), [0, 1, 2]);
        health.failed(0, KeyServicePort::Http);
        assert_eq!(health.in_turn(), [1, 2, 0]);
        advance(AVOIDED).await;
        assert_eq!([health.in_turn(), health.in_turn()], [[2, 0, 1], [0, 1, 2]]);
    }
}
