//! Decides when a key-service advances the lease time of an account.
//!
//! Lease time is counted in ticks of the ledger. A key-service sends a tick when its monotonic clock shows that one
//! quantum has passed since it first saw the current tick. The key-service counts only time in which the ledger
//! answered, so that leases run only while gateways can renew them. If there are several key-services, the first one
//! that completes its quantum advances the tick. The others see the new tick and start their quantum over. So ticks are
//! never less than a quantum apart, whatever the machines' clocks show.

use std::time::Duration;

/// Number of quanta in a lease. More quanta would let lost holds expire at a more exact time, but would cause more
/// writes.
const QUANTA: u32 = 6;

/// Number of ticks in a lease: one more than its quanta, because the current quantum may be almost over when the lease
/// begins.
pub const LEASE_TICKS: u64 = 7;

/// Maximum gap between two answers from the ledger. Time in a longer gap does not count.
pub const LONGEST_GAP: Duration = Duration::from_secs(2);

/// Returns the time between two ticks, for leases of this length.
pub fn quantum(lease: Duration) -> Duration {
    lease / QUANTA
}

/// The lease time of an account, as one key-service observes it. Instants are durations on its monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeaseClock {
    seen: Option<SeenTick>,
}

#[derive(Clone, Copy, Debug)]
struct SeenTick {
    tick: u64,
    /// Start of the time that counts towards the next tick.
    since: Duration,
    /// When the ledger last answered.
    last: Duration,
}

impl LeaseClock {
    /// Records that the ledger answered with this tick at this instant. Returns whether the tick is new.
    pub fn observe(&mut self, tick: u64, at: Duration) -> bool {
        let before = self.seen;
        let since = before
            .filter(|seen| seen.tick == tick && at.saturating_sub(seen.last) <= LONGEST_GAP)
            .map_or(at, |seen| seen.since);
        self.seen = Some(SeenTick { tick, since, last: at });
        before.is_none_or(|seen| seen.tick != tick)
    }

    /// Returns the seen tick if a quantum has passed between the first and the last answer with this tick. The
    /// key-service then sends the next tick.
    pub fn due(&self, quantum: Duration) -> Option<u64> {
        let seen = self.seen?;
        (seen.last.saturating_sub(seen.since) >= quantum).then_some(seen.tick)
    }

    /// Returns the instant at which the next tick may be due; `None` before the first answer.
    pub fn next(&self, quantum: Duration) -> Option<Duration> {
        self.seen.map(|seen| seen.since.saturating_add(quantum))
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    const QUANTUM: Duration = Duration::from_secs(5);

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Lets the clock observe this tick at each of these instants.
    fn looked(clock: &mut LeaseClock, tick: u64, instants: &[u64]) {
        for millis in instants {
            clock.observe(tick, at(*millis));
        }
    }

    #[test]
    fn a_tick_is_due_one_quantum_after_it_was_seen() {
        let mut clock = LeaseClock::default();
        assert_eq!((clock.due(QUANTUM), clock.next(QUANTUM)), (None, None));
        assert!(clock.observe(3, at(1_000)));
        assert!(!clock.observe(3, at(3_000)));
        looked(&mut clock, 3, &[5_000, 5_999]);
        assert_eq!((clock.due(QUANTUM), clock.next(QUANTUM)), (None, Some(at(6_000))));
        looked(&mut clock, 3, &[6_000]);
        assert_eq!(clock.due(QUANTUM), Some(3));
        assert!(clock.observe(4, at(6_001)));
        assert_eq!(clock.due(QUANTUM), None);
    }

    #[test]
    fn the_tick_of_another_key_service_begins_the_wait_again() {
        let mut clock = LeaseClock::default();
        looked(&mut clock, 3, &[0, 2_000, 4_000]);
        looked(&mut clock, 4, &[4_500, 6_000, 8_000, 9_499]);
        assert_eq!(clock.due(QUANTUM), None);
        looked(&mut clock, 4, &[9_500]);
        assert_eq!(clock.due(QUANTUM), Some(4));
    }

    #[test]
    fn time_without_the_ledger_does_not_count() {
        let mut clock = LeaseClock::default();
        looked(&mut clock, 3, &[0, 2_000, 4_000, 60_000, 62_000, 64_000]);
        assert_eq!(clock.due(QUANTUM), None);
        looked(&mut clock, 3, &[65_000]);
        assert_eq!(clock.due(QUANTUM), Some(3));
    }

    #[test]
    fn a_hold_lives_a_whole_lease_and_little_more() {
        let lease = Duration::from_secs(30);
        assert_eq!(quantum(lease) * u32::try_from(LEASE_TICKS - 1).unwrap(), lease);
        assert_eq!(quantum(lease) * u32::try_from(LEASE_TICKS).unwrap(), lease + lease / 6);
    }

    /// Generates a key-service's pauses between polls, and whether each poll is answered.
    fn looks() -> impl Strategy<Value = Vec<(u64, bool)>> {
        vec((prop_oneof![9 => 1..1_500_u64, 1 => 1_500..30_000_u64], prop::bool::weighted(0.9)), 1..200)
    }

    proptest! {
        /// Ticks are at least a quantum apart, however many key-services there are and whenever they poll. A quantum is
        /// complete only if no gap between answers within it is too long.
        #[test]
        fn ticks_are_a_quantum_of_answered_time_apart(services in vec(looks(), 1..4)) {
            let mut events: Vec<(u64, usize, bool)> = Vec::new();
            for (service, looks) in services.iter().enumerate() {
                let mut now = 0;
                for (pause, answered) in looks {
                    now += pause;
                    events.push((now, service, *answered));
                }
            }
            events.sort_unstable();
            let mut clocks = vec![LeaseClock::default(); services.len()];
            let (mut tick, mut ticked_at) = (0_u64, None::<u64>);
            let mut answers: Vec<Vec<u64>> = vec![Vec::new(); services.len()];
            for (now, service, _) in events.into_iter().filter(|(_, _, answered)| *answered) {
                answers[service].push(now);
                let clock = &mut clocks[service];
                clock.observe(tick, at(now));
                if let Some(seen) = clock.due(QUANTUM) {
                    prop_assert_eq!(seen, tick);
                    if let Some(before) = ticked_at {
                        prop_assert!(now - before >= 5_000, "{} after {}", now, before);
                    }
                    let counted: Vec<_> =
                        answers[service].iter().copied().filter(|answer| now - answer < 5_000).collect();
                    prop_assert!(counted.windows(2).all(|pair| pair[1] - pair[0] <= 2_000), "{:?}", counted);
                    (tick, ticked_at) = (tick + 1, Some(now));
                    clock.observe(tick, at(now));
                }
            }
        }

        /// A key-service whose polls are all answered sends a tick at the latest one pause after a quantum is over.
        #[test]
        fn answered_looks_never_hold_lease_time_up(pauses in vec(1..1_000_u64, 1..200)) {
            let (mut clock, mut tick, mut now, mut ticked_at) = (LeaseClock::default(), 0, 0, None);
            for pause in pauses {
                now += pause;
                clock.observe(tick, at(now));
                let began = *ticked_at.get_or_insert(now);
                if clock.due(QUANTUM).is_some() {
                    tick += 1;
                    clock.observe(tick, at(now));
                    ticked_at = Some(now);
                } else {
                    prop_assert!(now - began < 5_000);
                }
            }
        }
    }
}
