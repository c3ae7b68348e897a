//! A gauge that counts existing things.

use metrics::Gauge;

/// Counts in a gauge until it is dropped.
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
