//! An upstream's state as this gateway knows it: health, whether an operator drained it, and its last failure.

use routing::Health;
use shared_catalog::Model;
use shared_observe::metrics::Counted;
use tokio::time::Duration;

/// An upstream's current state. Durations count from now.
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
}

/// State of an upstream. While its catalogue is in use, metrics count upstreams by state. Times are the pool's.
pub(crate) struct UpstreamState {
    model: String,
    health: Health,
    /// Whether an operator drained it, so it gets no new requests.
    drained: bool,
    /// When the upstream was set aside or drained, or returned to service.
    since: Duration,
    last_failure: Option<(&'static str, Duration)>,
    /// Logged oddities of its answers, and when.
    oddities: Vec<(&'static str, Duration)>,
    counted: Option<Counted>,
}

/// How long an oddity is not logged again.
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

    /// Kind and time of the last failure.
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

    /// Notes an oddity. Returns whether to log it, since it was not logged within the last hour.
    pub(crate) fn tells(&mut self, oddity: &'static str, now: Duration) -> bool {
        let told = self.oddities.iter_mut().find(|(known, _)| *known == oddity);
        match told {
            Some((_, at)) if now.saturating_sub(*at) < TELL_AGAIN => false,
            Some((_, at)) => {
                *at = now;
                true
            }
            None => {
                self.oddities.push((oddity, now));
                true
            }
        }
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
