//! Randomness and time in the sample. Both are derived from the seed and the sample's end.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use shared::{clock::Clock, time::Timestamp};

/// Increment of SplitMix64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A random number generator that always gives the same numbers for a seed.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mixed(self.0)
    }

    /// Returns a number from 0 up to, but not including, `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Returns a number between two others, both included.
    pub(crate) fn between(&mut self, [least, most]: [u64; 2]) -> u64 {
        least + self.below(most - least + 1)
    }

    /// Returns an index into `weights`. A larger weight is more likely.
    pub(crate) fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut left = self.below(weights.iter().sum());
        for (place, weight) in weights.iter().enumerate() {
            if left < *weight {
                return place;
            }
            left -= weight;
        }
        0
    }
}

/// Returns SplitMix64's output for a state.
const fn mixed(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// A clock that the story sets.
pub(crate) struct StoryClock {
    now: AtomicI64,
    drawn: AtomicU64,
}

impl StoryClock {
    pub(crate) const fn new(begin: Timestamp, seed: u64) -> Self {
        Self { now: AtomicI64::new(begin.millis()), drawn: AtomicU64::new(seed) }
    }

    pub(crate) fn set(&self, now: Timestamp) {
        self.now.store(now.millis(), Ordering::SeqCst);
    }
}

impl Clock for StoryClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now.load(Ordering::SeqCst))
    }

    fn random(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let drawn = mixed(self.drawn.fetch_add(STEP, Ordering::SeqCst)).to_be_bytes();
            chunk.copy_from_slice(&drawn[..chunk.len()]);
        }
    }
}
