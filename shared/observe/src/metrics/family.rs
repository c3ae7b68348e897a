//! Families of metrics. `/metrics` shows each one's name, type and meaning even before the first measurement.

use std::fmt::Write;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};

pub struct Family {
    name: &'static str,
    kind: MetricKind,
    help: &'static str,
    is_labelled: bool,
}

enum MetricKind {
    Counter,
    Gauge,
    /// A histogram, with the upper bounds of its buckets.
    Histogram(&'static [f64]),
}

impl Family {
    /// Declares a sum that never falls.
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: MetricKind::Counter, help, is_labelled: false }
    }

    /// Declares a number that rises and falls.
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: MetricKind::Gauge, help, is_labelled: false }
    }

    /// Declares counts in buckets with these upper bounds.
    pub const fn histogram(name: &'static str, buckets: &'static [f64], help: &'static str) -> Self {
        Self { name, kind: MetricKind::Histogram(buckets), help, is_labelled: false }
    }

    /// Gives the family one series for each combination of labels. It starts with none.
    #[must_use]
    pub const fn labelled(self) -> Self {
        Self { is_labelled: true, ..self }
    }

    /// Sets the buckets of a histogram.
    pub(super) fn configure(&self, builder: PrometheusBuilder) -> Result<PrometheusBuilder, BuildError> {
        match self.kind {
            MetricKind::Counter | MetricKind::Gauge => Ok(builder),
            MetricKind::Histogram(buckets) => {
                builder.set_buckets_for_metric(Matcher::Full(self.name.to_owned()), buckets)
            }
        }
    }

    /// Describes the family. Without labels, its series starts at zero, so that the first increase is visible.
    pub(super) fn register(&self) {
        let Self { name, help, .. } = *self;
        match self.kind {
            MetricKind::Counter => metrics::describe_counter!(name, help),
            MetricKind::Gauge => metrics::describe_gauge!(name, help),
            MetricKind::Histogram(_) => metrics::describe_histogram!(name, help),
        }
        if self.is_labelled {
            return;
        }
        match self.kind {
            MetricKind::Counter => metrics::counter!(name).increment(0),
            MetricKind::Gauge => metrics::gauge!(name).increment(0),
            MetricKind::Histogram(_) => drop(metrics::histogram!(name)),
        }
    }

    /// Appends meaning and type to a text that has no series of the family yet.
    pub(super) fn declare(&self, text: &mut String) {
        let Self { name, help, .. } = *self;
        let kind = match self.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram(_) => "histogram",
        };
        if !text.contains(&format!("# TYPE {name} ")) {
            // Writing to a text cannot fail.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
    }
}
