//! Families of metrics: name, type and meaning of each, which `/metrics` states before the first measurement.

use std::fmt::Write;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};

/// Metrics of one name.
pub struct Family {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    is_labelled: bool,
}

/// Type of a metric.
enum Kind {
    Counter,
    Gauge,
    /// With the upper bounds of the buckets.
    Histogram(&'static [f64]),
}

impl Family {
    /// A sum that only grows.
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Counter, help, is_labelled: false }
    }

    /// A number that rises and falls.
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Gauge, help, is_labelled: false }
    }

    /// Counts of measurements in buckets with these upper bounds.
    pub const fn histogram(name: &'static str, buckets: &'static [f64], help: &'static str) -> Self {
        Self { name, kind: Kind::Histogram(buckets), help, is_labelled: false }
    }

    /// The family with a series for each combination of labels, of which none is there at the start.
    #[must_use]
    pub const fn labelled(self) -> Self {
        Self { is_labelled: true, ..self }
    }

    /// Sets the buckets of a histogram.
    pub(super) fn configure(&self, builder: PrometheusBuilder) -> Result<PrometheusBuilder, BuildError> {
        match self.kind {
            Kind::Counter | Kind::Gauge => Ok(builder),
            Kind::Histogram(buckets) => {
                builder.set_buckets_for_metric(Matcher::Full(self.name.to_owned()), buckets)
            }
        }
    }

    /// Describes the family, and begins a series without labels at zero, so that its first increase is seen.
    pub(super) fn register(&self) {
        let Self { name, help, .. } = *self;
        match self.kind {
            Kind::Counter => metrics::describe_counter!(name, help),
            Kind::Gauge => metrics::describe_gauge!(name, help),
            Kind::Histogram(_) => metrics::describe_histogram!(name, help),
        }
        if self.is_labelled {
            return;
        }
        match self.kind {
            Kind::Counter => metrics::counter!(name).increment(0),
            Kind::Gauge => metrics::gauge!(name).increment(0),
            Kind::Histogram(_) => drop(metrics::histogram!(name)),
        }
    }

    /// Adds meaning and type to a text that has no series of the family yet.
    pub(super) fn declare(&self, text: &mut String) {
        let Self { name, help, .. } = *self;
        let kind = match self.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        };
        if !text.contains(&format!("# TYPE {name} ")) {
            // A text grows without failing.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
    }
}
