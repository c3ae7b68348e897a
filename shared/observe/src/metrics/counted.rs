//! A gauge that shows how many things of a kind exist.

use metrics::Gauge;

/// Adds one to a gauge until this value is dropped.
pub struct Counted(Gauge);

impl Counted {
    pub fn by(gauge: Gauge) -> Self {
        gauge.increment(1);
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}
