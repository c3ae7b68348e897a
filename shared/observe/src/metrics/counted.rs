//! Things that a gauge counts while they are there.

use metrics::Gauge;

/// One of the things that a gauge counts, until dropped.
pub struct Counted(Gauge);

impl Counted {
    /// Counts one more.
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
