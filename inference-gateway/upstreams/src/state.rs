//! What this gateway knows about an upstream's state: its health, whether an operator has drained it, and its last
//! failure.

use routing::Health;
use shared_catalog::Model;
use shared_observe::metrics::Counted;
use tokio::time::Duration;

/// An upstream's current state. Times are given as durations from now.
pub struct UpstreamNow {
    pub name: String,
    pub address: String,
    pub upstream_model: String,
    pub kind: &'static str,
    pub state: &'static str,
    pub since: Duration,
    pub until: Option<Duration>,
    pub in_flight: u64,
    pub last_failure: Option<(&'static str, Duration)>,
    /// Kinds of odd answers, and the number of answers of each kind.
    pub odd_answers: Vec<(&'static str, u64)>,
}

/// State of an upstream. While the upstream's catalogue is in use, metrics count upstreams by state. Times count from
/// the same instant as in the pool.
pub(crate) struct UpstreamState {
    model: String,
    health: Health,
    /// Whether an operator has drained the upstream, so that it gets no new requests.
    drained: bool,
    /// When the upstream was set aside or drained, or returned to service.
    since: Duration,
    last_failure: Option<(&'static str, Duration)>,
    oddities: Vec<KnownOddity>,
    counted: Option<Counted>,
}

/// A kind of odd answers that an upstream has sent.
struct KnownOddity {
    kind: &'static str,
    answers: u64,
    logged_at: Duration,
}

/// For this time, an oddity that was logged is not logged again.
const TELL_AGAIN: Duration = Duration::from_hours(1);

impl UpstreamState {
    pub(crate) fn new(model: &Model, drained: bool) -> Self {
        let (model, since) = (model.id.clone(), Duration::ZERO);
        let (health, oddities) = (Health::default(), Vec::new());
        let mut new = Self { model, health, drained, since, last_failure: None, oddities, counted: None };
        new.counted = Some(new.count());
        new
    }

    pub(crate) const fn health(&self) -> Health {
        self.health
    }

    pub(crate) const fn is_drained(&self) -> bool {
        self.drained
    }

    pub(crate) const fn since(&self) -> Duration {
        self.since
    }

    /// Returns the kind and time of the last failure.
    pub(crate) const fn last_failure(&self) -> Option<(&'static str, Duration)> {
        self.last_failure
    }

    /// Returns the word for the state used in metrics and lists.
    pub(crate) const fn name(&self) -> &'static str {
        if self.drained {
            "drained"
        } else if self.health.is_set_aside() {
            "set_aside"
        } else {
            "serving"
        }
    }

    pub(crate) fn set_health(&mut self, health: Health, now: Duration) {
        let before = self.name();
        self.health = health;
        self.moved_from(before, now);
    }

    /// Drains or restores the upstream.
    pub(crate) fn drain(&mut self, drained: bool, now: Duration) {
        let before = self.name();
        self.drained = drained;
        self.moved_from(before, now);
    }

    pub(crate) const fn failed(&mut self, kind: &'static str, now: Duration) {
        self.last_failure = Some((kind, now));
    }

    /// Counts an odd answer. Returns whether to log it, which is true if its kind was not logged within the last hour.
    pub(crate) fn tells(&mut self, kind: &'static str, now: Duration) -> bool {
        let Some(known) = self.oddities.iter_mut().find(|known| known.kind == kind) else {
            self.oddities.push(KnownOddity { kind, answers: 1, logged_at: now });
            return true;
        };
        known.answers += 1;
        let is_due = now.saturating_sub(known.logged_at) >= TELL_AGAIN;
        if is_due {
            known.logged_at = now;
        }
        is_due
    }

    /// Lists the kinds of odd answers, each with the number of such answers.
    pub(crate) fn odd_answers(&self) -> Vec<(&'static str, u64)> {
        self.oddities.iter().map(|known| (known.kind, known.answers)).collect()
    }

    pub(crate) fn retire(&mut self) {
        self.counted = None;
    }

    fn moved_from(&mut self, before: &'static str, now: Duration) {
        if before == self.name() {
            return;
        }
        self.since = now;
        if self.counted.is_some() {
            self.counted = Some(self.count());
        }
    }

    fn count(&self) -> Counted {
        Counted::by(
            metrics::gauge!("gateway_upstreams", "model" => self.model.clone(), "state" => self.name()),
        )
    }
}
