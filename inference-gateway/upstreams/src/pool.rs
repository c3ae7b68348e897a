//! A model's upstreams: the choice of one for a request, and the health of each.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use foldhash::HashMap;
use http::Uri;
use metering::Pace;
use parking_lot::Mutex;
use request::Forward;
use routing::{AttemptOutcome, Candidate, Health, TemplateReports};
use shared::ids::AccountId;
use shared_catalog::{Catalog, ImageUrls, Model};
use shared_config::ConfigError;
use tokio::time::{Duration, Instant};

use crate::{
    drained::DrainedAddresses,
    state::{UpstreamNow, UpstreamState},
    upstream::Upstream,
};

/// The upstreams of every model, by id. All workers share them, and so see the same state.
pub(crate) type Pools = HashMap<String, Pool>;

/// The upstreams of a model.
pub struct Pool {
    members: Vec<Arc<PoolMember>>,
    /// Number of requests placed so far, to break ties between upstreams.
    turns: AtomicU64,
    /// Origin of all times here.
    began: Instant,
}

struct PoolMember {
    upstream: Upstream,
    /// Position among the model's upstreams in the catalogue, from 1.
    place: u32,
    in_flight: AtomicU64,
    state: Mutex<UpstreamState>,
    /// Reports from which the template's unexpected tokens are learned.
    template: Mutex<TemplateReports>,
    /// Fastest pace of a stream so far, in tokens per second for each choice; 0 before any was measured.
    fastest: AtomicU64,
}

/// A request in flight at an upstream. It counts towards the upstream's load until it is dropped.
pub struct Running {
    member: Arc<PoolMember>,
    /// Whether the upstream was not set aside when it was chosen.
    was_well: bool,
    /// Origin of all times here.
    began: Instant,
}

/// A request that an upstream failed to answer.
pub struct FailedAttempt {
    member: Arc<PoolMember>,
    was_well: bool,
}

impl Pool {
    /// Makes the pools of a catalogue. `builtin` is the address of a running built-in model.
    pub(crate) fn all(
        catalog: &Catalog,
        builtin: Option<&Uri>,
        drained: &DrainedAddresses,
    ) -> Result<Pools, ConfigError> {
        let pool = |model: &Model| Ok((model.id.clone(), Self::new(model, builtin, drained)?));
        catalog.models.iter().map(pool).collect()
    }

    fn new(model: &Model, builtin: Option<&Uri>, drained: &DrainedAddresses) -> Result<Self, ConfigError> {
        let member = |(place, upstream): (u32, &shared_catalog::Upstream)| {
            let upstream = Upstream::new(upstream, builtin)?;
            let (in_flight, template, fastest) = (AtomicU64::new(0), Mutex::default(), AtomicU64::new(0));
            let state = Mutex::new(UpstreamState::new(model, drained.contains(&upstream.address())));
            Ok(Arc::new(PoolMember { upstream, place, in_flight, state, template, fastest }))
        };
        let members = (1..).zip(&model.upstreams).map(member).collect::<Result<_, _>>()?;
        Ok(Self { members, turns: AtomicU64::new(0), began: Instant::now() })
    }

    /// Removes the upstreams from the metrics, since only running requests still use them.
    pub(crate) fn retire(&self) {
        for member in &self.members {
            member.state.lock().retire();
        }
    }

    /// Returns whether streams of every upstream show the tokens generated so far, so that a stream may hold one grant
    /// at a time.
    pub fn shows_progress(&self, forward: &Forward) -> bool {
        self.members.iter().all(|member| member.upstream.shows_progress(forward))
    }

    /// Returns whether every upstream can count the exact tokens of this prompt.
    pub fn counts(&self, forward: &Forward) -> bool {
        self.members.iter().all(|member| member.upstream.counts(forward))
    }

    /// Returns the maximum number of tokens that a template of these upstreams adds to a prompt beyond the usual.
    pub fn prompt_overhead(&self) -> u64 {
        let now = self.began.elapsed();
        self.members.iter().map(|member| member.prompt_overhead(now)).max().unwrap_or(0)
    }

    /// Lists the upstreams and their current state.
    pub(crate) fn list(&self) -> Vec<UpstreamNow> {
        let now = self.began.elapsed();
        self.members.iter().map(|member| member.list(now)).collect()
    }

    /// Drains or restores the upstreams at this address.
    pub(crate) fn drain(&self, address: &str, drained: bool) {
        let now = self.began.elapsed();
        let at_address = self.members.iter().filter(|member| member.upstream.address() == address);
        at_address.for_each(|member| member.state.lock().drain(drained, now));
    }

    /// Chooses an upstream other than `tried` for a request with these image URLs; `None` if there is no other. Drained
    /// upstreams are not chosen. `account` is the caller, if known. `affinity` identifies what the request shares with
    /// requests that an upstream may have in its cache.
    pub fn choose(
        &self,
        account: Option<AccountId>,
        images: ImageUrls,
        affinity: Option<u64>,
        tried: Option<&Running>,
    ) -> Option<Running> {
        let now = self.began.elapsed();
        let eligible = self.members.iter().filter(|member| member.upstream.entry.image_urls >= images);
        let (members, candidates): (Vec<_>, Vec<_>) =
            eligible.filter_map(|member| Some((member, member.candidate(account, now)?))).unzip();
        let tried = tried.and_then(|tried| members.iter().position(|m| Arc::ptr_eq(m, &tried.member)));
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        let member = members[routing::choose(&candidates, affinity, turn, tried)?];
        member.in_flight.fetch_add(1, Ordering::Relaxed);
        let (before, _) = member.change(now, |health| health.tried(account, now));
        Some(Running { member: member.clone(), was_well: !before.is_set_aside(), began: self.began })
    }
}

impl Running {
    pub fn upstream(&self) -> &Upstream {
        &self.member.upstream
    }

    /// Returns the upstream's position among the model's upstreams in the catalogue, from 1.
    pub fn place(&self) -> u32 {
        self.member.place
    }

    /// Returns the maximum number of tokens that the upstream's template adds to a prompt beyond the usual.
    pub fn prompt_overhead(&self) -> u64 {
        self.member.prompt_overhead(self.began.elapsed())
    }

    /// Learns from the tokens that the upstream reports for a prompt without images or tools, compared with the assumed
    /// bound.
    pub fn observe_prompt(&self, reported: u64, bound: u64) {
        let now = self.began.elapsed();
        let before = self.member.prompt_overhead(now);
        let mut template = self.member.template.lock();
        *template = template.after(reported, bound, now);
        let learned = template.excess(now);
        drop(template);
        if learned > before {
            tracing::warn!(upstream = %self.upstream(), tokens = learned, "an upstream's template adds more tokens than assumed; set prompt_overhead in the catalogue");
        }
    }

    /// Records the pace of a stream.
    pub fn observe_pace(&self, pace: Pace) {
        // Few paces exceed all earlier ones, and reading is cheaper than writing.
        if pace.per_second > self.member.fastest.load(Ordering::Relaxed) {
            self.member.fastest.fetch_max(pace.per_second, Ordering::Relaxed);
        }
    }

    /// Returns the fastest pace of this upstream's streams, or an assumed one.
    pub fn fastest_pace(&self) -> Pace {
        match self.member.fastest.load(Ordering::Relaxed) {
            0 => Pace::UNSEEN,
            per_second => Pace { per_second },
        }
    }

    /// Records an outcome, which may change the upstream's health.
    pub fn note(&self, outcome: AttemptOutcome) {
        let now = self.began.elapsed();
        if self.member.change_told(now, |health| health.after(outcome, now)) {
            metrics::counter!("gateway_upstreams_set_aside_total").increment(1);
            tracing::warn!(upstream = %self.upstream(), ?outcome, "an upstream is set aside");
        }
    }

    /// Records the kind of a failure, for lists of upstreams.
    pub fn note_failure(&self, kind: &'static str) {
        self.member.state.lock().failed(kind, self.began.elapsed());
    }

    /// Counts an oddity in an answer. Returns whether to log it: each is logged once an hour.
    pub fn note_oddity(&self, oddity: &'static str) -> bool {
        let upstream = self.upstream().to_string();
        metrics::counter!("gateway_upstream_oddities_total", "upstream" => upstream, "kind" => oddity)
            .increment(1);
        self.member.state.lock().tells(oddity, self.began.elapsed())
    }

    /// Ends the attempt. Its failure must already have been recorded.
    pub fn failed(self) -> FailedAttempt {
        FailedAttempt { member: self.member.clone(), was_well: self.was_well }
    }

    /// Removes the recorded failure from both upstreams' health, since an `earlier` attempt at the same request failed
    /// in the same way. The request may be the cause, unless one of the upstreams was already set aside.
    pub fn excuse_with(&self, earlier: &FailedAttempt) {
        if self.was_well && earlier.was_well {
            let now = self.began.elapsed();
            for member in [&self.member, &earlier.member] {
                member.change_told(now, |health| health.excused(now));
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.member.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl PoolMember {
    /// Returns the upstream as a candidate; `None` if it is drained.
    fn candidate(&self, account: Option<AccountId>, now: Duration) -> Option<Candidate> {
        let state = self.state.lock();
        (!state.is_drained()).then(|| Candidate {
            identity: self.upstream.identity,
            weight: self.upstream.entry.weight,
            in_flight: self.in_flight.load(Ordering::Relaxed),
            aside: state.health().rests(account, now),
        })
    }

    fn list(&self, now: Duration) -> UpstreamNow {
        let in_flight = self.in_flight.load(Ordering::Relaxed);
        let state = self.state.lock();
        let is_draining = state.is_drained() && in_flight > 0;
        UpstreamNow {
            name: self.upstream.entry.name.clone(),
            address: self.upstream.address(),
            upstream_model: self.upstream.entry.model.clone(),
            kind: self.upstream.entry.kind.name(),
            state: if is_draining { "draining" } else { state.name() },
            since: now.saturating_sub(state.since()),
            until: state
                .health()
                .aside_until()
                .filter(|_| !state.is_drained())
                .map(|until| until.saturating_sub(now)),
            in_flight,
            last_failure: state.last_failure().map(|(kind, at)| (kind, now.saturating_sub(at))),
            odd_answers: state.odd_answers(),
        }
    }

    /// Returns the tokens that the upstream's template adds to a prompt beyond the usual: the configured number, or the
    /// learned one if it is larger.
    fn prompt_overhead(&self, now: Duration) -> u64 {
        self.upstream.entry.prompt_overhead.max(self.template.lock().excess(now))
    }

    /// Changes the health. Logs if the upstream returns to service. Returns whether the upstream was set aside.
    fn change_told(&self, now: Duration, change: impl FnOnce(Health) -> Health) -> bool {
        let (before, after) = self.change(now, change);
        if before.is_set_aside() && !after.is_set_aside() {
            tracing::info!(upstream = %self.upstream, "an upstream is back");
        }
        !before.is_set_aside() && after.is_set_aside()
    }

    /// Changes the health. Returns it before and after.
    fn change(&self, now: Duration, change: impl FnOnce(Health) -> Health) -> (Health, Health) {
        let mut state = self.state.lock();
        let before = state.health();
        state.set_health(change(before), now);
        (before, state.health())
    }
}
