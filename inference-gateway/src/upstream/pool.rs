//! The upstreams of a model: the choice for a request, and the health of each upstream.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use foldhash::HashMap;
use http::Uri;
use parking_lot::Mutex;
use shared::{
    catalog::{Catalog, ImageUrls, Model},
    process::{config::ConfigError, telemetry::Counted},
};
use tokio::time::{Duration, Instant};

use super::Upstream;
use domain::{
    metering::Pace,
    request::Forward,
    routing::{self, AttemptOutcome, Candidate, Health},
    template::TemplateReports,
};

/// The upstreams of every model, by id. Shared by all workers, so that all see the same state of an upstream.
pub(crate) type Pools = HashMap<String, Pool>;

/// The upstreams of a model.
pub(crate) struct Pool {
    members: Vec<Arc<Member>>,
    /// Number of requests placed so far, which decides between equals.
    turns: AtomicU64,
    /// The origin of all times.
    began: Instant,
}

struct Member {
    upstream: Upstream,
    /// Place among the model's upstreams in the catalogue, from 1.
    place: u32,
    in_flight: AtomicU64,
    health: Mutex<CountedHealth>,
    /// Reports that show tokens of the upstream's template beyond the assumed tokens.
    template: Mutex<TemplateReports>,
    /// The fastest pace seen of a stream, in tokens of a choice per second; 0 before any.
    fastest: AtomicU64,
}

/// The health of an upstream, counted among the model's upstreams of this state while the catalogue is in use.
struct CountedHealth {
    model: String,
    health: Health,
    counted: Option<Counted>,
}

impl CountedHealth {
    fn new(model: &Model) -> Self {
        let mut new = Self { model: model.id.clone(), health: Health::default(), counted: None };
        new.counted = Some(new.count());
        new
    }

    fn count(&self) -> Counted {
        let state = if self.health.is_set_aside() { "set_aside" } else { "serving" };
        Counted::by(metrics::gauge!("gateway_upstreams", "model" => self.model.clone(), "state" => state))
    }

    fn set(&mut self, health: Health) {
        let moved = health.is_set_aside() != self.health.is_set_aside();
        self.health = health;
        if moved && self.counted.is_some() {
            self.counted = Some(self.count());
        }
    }
}

/// A request in flight at an upstream, counted there until dropped.
pub(crate) struct Running {
    member: Arc<Member>,
    /// The upstream was not set aside when it was chosen.
    was_well: bool,
    /// The origin of all times.
    began: Instant,
}

/// A request that an upstream failed to answer.
pub(crate) struct FailedAttempt {
    member: Arc<Member>,
    was_well: bool,
}

impl Pool {
    /// Makes the pools of a catalogue; `builtin` is the address of a running built-in model.
    pub(crate) fn all(catalog: &Catalog, builtin: Option<&Uri>) -> Result<Pools, ConfigError> {
        let pool = |model: &Model| Ok((model.id.clone(), Self::new(model, builtin)?));
        catalog.models.iter().map(pool).collect()
    }

    fn new(model: &Model, builtin: Option<&Uri>) -> Result<Self, ConfigError> {
        let member = |(place, upstream): (u32, &shared::catalog::Upstream)| {
            let upstream = Upstream::new(upstream, builtin)?;
            let (in_flight, template, fastest) = (AtomicU64::new(0), Mutex::default(), AtomicU64::new(0));
            let health = Mutex::new(CountedHealth::new(model));
            Ok(Arc::new(Member { upstream, place, in_flight, health, template, fastest }))
        };
        let members = (1..).zip(&model.upstreams).map(member).collect::<Result<_, _>>()?;
        Ok(Self { members, turns: AtomicU64::new(0), began: Instant::now() })
    }

    /// Ends the count of the upstreams, which only requests that are under way still use.
    pub(crate) fn retire(&self) {
        for member in &self.members {
            member.health.lock().counted = None;
        }
    }

    /// Returns whether the streams of every upstream show the tokens generated so far, so that a stream may hold by grants.
    pub(crate) fn shows_progress(&self, forward: &Forward) -> bool {
        self.members.iter().all(|member| member.upstream.shows_progress(forward))
    }

    /// Tokens that a template of theirs adds to a prompt beyond the usual, at most.
    pub(crate) fn prompt_overhead(&self) -> u64 {
        let now = self.began.elapsed();
        self.members.iter().map(|member| member.prompt_overhead(now)).max().unwrap_or(0)
    }

    /// Chooses the upstream for a request with these image URLs, other than `tried`; `None` if there is no other.
    /// `affinity` is the request's common part with requests that the upstream may have read before.
    pub(crate) fn choose(
        &self,
        images: ImageUrls,
        affinity: Option<u64>,
        tried: Option<&Running>,
    ) -> Option<Running> {
        let now = self.began.elapsed();
        let members: Vec<_> =
            self.members.iter().filter(|member| member.upstream.entry.image_urls >= images).collect();
        let candidates: Vec<_> = members.iter().map(|member| member.candidate(now)).collect();
        let tried = tried.and_then(|tried| members.iter().position(|m| Arc::ptr_eq(m, &tried.member)));
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        let member = members[routing::choose(&candidates, affinity, turn, tried)?];
        member.in_flight.fetch_add(1, Ordering::Relaxed);
        let (before, _) = member.change(|health| health.tried(now));
        Some(Running { member: member.clone(), was_well: !before.is_set_aside(), began: self.began })
    }
}

impl Running {
    pub(crate) fn upstream(&self) -> &Upstream {
        &self.member.upstream
    }

    /// Place of the upstream among the model's upstreams in the catalogue, from 1.
    pub(crate) fn place(&self) -> u32 {
        self.member.place
    }

    /// Tokens that the upstream's template adds to a prompt beyond the usual, at most.
    pub(crate) fn prompt_overhead(&self) -> u64 {
        self.member.prompt_overhead(self.began.elapsed())
    }

    /// Learns from the tokens that the upstream reports of a plain prompt, without images and tools, whose bound was assumed.
    pub(crate) fn observe_prompt(&self, reported: u64, bound: u64) {
        let now = self.began.elapsed();
        let before = self.member.prompt_overhead(now);
        let mut template = self.member.template.lock();
        *template = template.after(reported, bound, now);
        let learned = template.excess(now);
        drop(template);
        if learned > before {
            tracing::warn!(upstream = %self.upstream(), tokens = learned, "its template adds more tokens than assumed: set prompt_overhead in the catalogue");
        }
    }

    /// Learns from the pace of a stream.
    pub(crate) fn observe_pace(&self, pace: Pace) {
        // Nearly every pace has been passed before, and a look is cheaper than a change.
        if pace.per_second > self.member.fastest.load(Ordering::Relaxed) {
            self.member.fastest.fetch_max(pace.per_second, Ordering::Relaxed);
        }
    }

    /// The fastest pace seen of a stream of this upstream, or else an assumed one.
    pub(crate) fn fastest_pace(&self) -> Pace {
        match self.member.fastest.load(Ordering::Relaxed) {
            0 => Pace::UNSEEN,
            per_second => Pace { per_second },
        }
    }

    /// Notes the outcome, which the upstream's health depends on.
    pub(crate) fn note(&self, outcome: AttemptOutcome) {
        let now = self.began.elapsed();
        if self.member.change_told(|health| health.after(outcome, now)) {
            metrics::counter!("gateway_upstreams_set_aside_total").increment(1);
            tracing::warn!(upstream = %self.upstream(), ?outcome, "an upstream is set aside");
        }
    }

    /// Ends the attempt, after its failure was noted.
    pub(crate) fn failed(self) -> FailedAttempt {
        FailedAttempt { member: self.member.clone(), was_well: self.was_well }
    }

    /// Counts the noted failure against neither upstream, since an `earlier` attempt at the same request failed alike: the
    /// request may be the cause, unless one of the two was not well.
    pub(crate) fn excuse_with(&self, earlier: &FailedAttempt) {
        if self.was_well && earlier.was_well {
            let now = self.began.elapsed();
            for member in [&self.member, &earlier.member] {
                member.change_told(|health| health.excused(now));
            }
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
        let health = self.health.lock().health;
        Candidate {
            identity: self.upstream.identity,
            weight: self.upstream.entry.weight,
            in_flight: self.in_flight.load(Ordering::Relaxed),
            aside: health.rests(now),
        }
    }

    /// Returns the tokens that the upstream's template adds to a prompt beyond the usual: as configured, or as reported
    /// if more.
    fn prompt_overhead(&self, now: Duration) -> u64 {
        self.upstream.entry.prompt_overhead.max(self.template.lock().excess(now))
    }

    /// Changes the health, and logs the return of an upstream. Returns whether the upstream was set aside.
    fn change_told(&self, change: impl FnOnce(Health) -> Health) -> bool {
        let (before, after) = self.change(change);
        if before.is_set_aside() && !after.is_set_aside() {
            tracing::info!(upstream = %self.upstream, "an upstream is back");
        }
        !before.is_set_aside() && after.is_set_aside()
    }

    /// Changes the health, and returns it before and after.
    fn change(&self, change: impl FnOnce(Health) -> Health) -> (Health, Health) {
        let mut counted = self.health.lock();
        let before = counted.health;
        counted.set(change(before));
        (before, counted.health)
    }
}
