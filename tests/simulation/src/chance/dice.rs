//! Random numbers from a seed.

use std::{ops::RangeInclusive, time::Duration};

/// A generator of random numbers (SplitMix64): small, and the same in every version of every library.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns another generator, so that one part's draws do not affect another part's.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) const fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        *range.start() + self.next() % (*range.end() - *range.start() + 1)
    }

    pub(crate) const fn millis(&mut self, range: RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.within(range))
    }

    /// Returns true once in this many times, on average.
    pub(crate) const fn one_in(&mut self, times: u64) -> bool {
        self.next().is_multiple_of(times)
    }

    pub(crate) fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[usize::try_from(self.within(0..=from.len() as u64 - 1)).unwrap()]
    }
}
