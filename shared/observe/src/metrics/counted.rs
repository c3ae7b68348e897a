//! A gauge that counts things while they exist.

use metrics::Gauge;

/// One thing that a gauge counts until it is dropped.
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
