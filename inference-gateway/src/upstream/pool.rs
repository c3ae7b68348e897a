//! The upstreams of one model: which of them serves a request, and how each is doing.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use http::Uri;
use shared::{catalog::Model, config::ConfigError};
use tokio::time::{Duration, Instant};

use super::{HttpClient, Upstream};
use crate::domain::routing::{self, Candidate, Health, Outcome};

/// The upstreams of one model.
pub struct Pool {
    members: Vec<Arc<Member>>,
    /// Requests placed so far: what decides between equals.
    turns: AtomicU64,
    /// What times are since.
    began: Instant,
}

struct Member {
    upstream: Upstream,
    weight: u32,
    in_flight: AtomicU64,
    health: Mutex<Health>,
}

/// A request that is under way at an upstream; counted there until it is dropped.
pub struct Running {
    member: Arc<Member>,
    /// What times are since.
    began: Instant,
}

impl Pool {
    /// The upstreams of a model of the catalogue; `builtin` is where the built-in model listens, if it runs.
    pub fn new(model: &Model, client: &HttpClient, builtin: Option<&Uri>) -> Result<Self, ConfigError> {
        let member = |upstream: &shared::catalog::Upstream| {
            let weight = upstream.weight;
            let upstream = Upstream::new(upstream, client, builtin)?;
            let (in_flight, health) = (AtomicU64::new(0), Mutex::default());
            Ok(Arc::new(Member { upstream, weight, in_flight, health }))
        };
        let members = model.upstreams.iter().map(member).collect::<Result<_, _>>()?;
        Ok(Self { members, turns: AtomicU64::new(0), began: Instant::now() })
    }

    /// The upstream for a request, other than the one that was `tried`; `None` if there is no other. `affinity` is what it
    /// has in common with requests that the upstream may have read before.
    pub fn choose(&self, affinity: Option<u64>, tried: Option<&Running>) -> Option<Running> {
        let now = self.began.elapsed();
        let candidates: Vec<_> = self.members.iter().map(|member| member.candidate(now)).collect();
        let tried = tried.and_then(|tried| self.members.iter().position(|m| Arc::ptr_eq(m, &tried.member)));
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        let member = &self.members[routing::choose(&candidates, affinity, turn, tried)?];
        member.in_flight.fetch_add(1, Ordering::Relaxed);
        member.change(|health| health.tried(now));
        Some(Running { member: member.clone(), began: self.began })
    }
}

impl Running {
    /// Who serves it.
    pub fn upstream(&self) -> &Upstream {
        &self.member.upstream
    }

    /// Tells what the request showed of its upstream.
    pub fn tell(&self, outcome: Outcome) {
        let now = self.began.elapsed();
        let (before, after) = self.member.change(|health| health.after(outcome, now));
        match (before.is_set_aside(), after.is_set_aside()) {
            (false, true) => {
                metrics::counter!("gateway_upstreams_set_aside_total").increment(1);
                tracing::warn!(upstream = %self.upstream(), ?outcome, "an upstream is set aside");
            }
            (true, false) => tracing::info!(upstream = %self.upstream(), "an upstream is back"),
            (true, true) | (false, false) => {}
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.member.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Member {
    fn candidate(&self, now: Duration) -> Candidate {
        let health = *self.health.lock().unwrap_or_else(PoisonError::into_inner);
        Candidate {
            identity: self.upstream.identity,
            weight: self.weight,
            in_flight: self.in_flight.load(Ordering::Relaxed),
            aside: health.rests(now),
        }
    }

    /// Its health before and after the change.
    fn change(&self, change: impl FnOnce(Health) -> Health) -> (Health, Health) {
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *health;
        *health = change(before);
        (before, *health)
    }
}
