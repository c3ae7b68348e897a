//! The wall clock of a process. It shows the time of the simulation plus an error of its own.

use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;
use shared::{clock::Clock, time::Timestamp};
use tokio::time::Instant;

use crate::chance::dice::Dice;

/// Wall time at which every run begins. It is in the middle of a day, because the judge does not deal with daily limits
/// near midnight.
const BEGIN: i64 = 1_795_000_000_000;

pub(crate) struct ProcessClock {
    began: Instant,
    /// Number of milliseconds by which this clock is ahead.
    ahead: AtomicI64,
    dice: Mutex<Dice>,
}

impl ProcessClock {
    pub(crate) fn new(began: Instant, dice: Dice) -> Self {
        Self { began, ahead: AtomicI64::new(0), dice: Mutex::new(dice) }
    }

    /// Moves the clock forward by this many milliseconds, or back if their number is negative.
    pub(crate) fn step(&self, millis: i64) {
        self.ahead.fetch_add(millis, Ordering::Relaxed);
    }
}

impl Clock for ProcessClock {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.began.elapsed().as_millis()).unwrap();
        Timestamp::from_millis(BEGIN + passed + self.ahead.load(Ordering::Relaxed))
    }

    fn random(&self, bytes: &mut [u8]) {
        let mut dice = self.dice.lock();
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&dice.next().to_le_bytes()[..part.len()]);
        }
    }
}
