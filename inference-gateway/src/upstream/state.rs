//! State of an upstream as this gateway knows it: its health, whether an operator drains it, and its last failure.

use routing::Health;
use shared_catalog::Model;
use shared_observe::metrics::Counted;
use tokio::time::Duration;

/// State of an upstream right now, with durations that count from now.
pub(crate) struct UpstreamNow {
    pub(crate) address: String,
    pub(crate) upstream_model: String,
    pub(crate) kind: &'static str,
    pub(crate) state: &'static str,
    pub(crate) since: Duration,
    pub(crate) until: Option<Duration>,
    pub(crate) in_flight: u64,
    pub(crate) last_failure: Option<(&'static str, Duration)>,
}

/// State of an upstream. While the catalogue is in use, metrics count it among the model's upstreams of this state.
/// Times are those of the pool.
pub(super) struct UpstreamState {
    model: String,
    health: Health,
    /// Gets no new requests, because of an operator's command.
    drained: bool,
    /// Time at which the upstream was set aside or drained, or came back into service.
    since: Duration,
    last_failure: Option<(&'static str, Duration)>,
    counted: Option<Counted>,
}

impl UpstreamState {
    pub(super) fn new(model: &Model, drained: bool) -> Self {
        let (model, since) = (model.id.clone(), Duration::ZERO);
        let mut new =
            Self { model, health: Health::default(), drained, since, last_failure: None, counted: None };
        new.counted = Some(new.count());
        new
    }

    pub(super) const fn health(&self) -> Health {
        self.health
    }

    pub(super) const fn is_drained(&self) -> bool {
        self.drained
    }

    pub(super) const fn since(&self) -> Duration {
        self.since
    }

    /// Kind and time of the last failure.
    pub(super) const fn last_failure(&self) -> Option<(&'static str, Duration)> {
        self.last_failure
    }

    /// Returns the word for the state in metrics and lists.
    pub(super) const fn name(&self) -> &'static str {
        if self.drained {
            "drained"
        } else if self.health.is_set_aside() {
            "set_aside"
        } else {
            "serving"
        }
    }

    pub(super) fn set_health(&mut self, health: Health, now: Duration) {
        let before = self.name();
        self.health = health;
        self.moved_from(before, now);
    }

    /// Drains or restores the upstream.
    pub(super) fn drain(&mut self, drained: bool, now: Duration) {
        let before = self.name();
        self.drained = drained;
        self.moved_from(before, now);
    }

    pub(super) const fn failed(&mut self, kind: &'static str, now: Duration) {
        self.last_failure = Some((kind, now));
    }

    pub(super) fn retire(&mut self) {
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
