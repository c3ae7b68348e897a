//! Numbers of a log's values for programs that read on from the last number that they saw.
//!
//! A store that is restored from a backup gives numbers again that such a program has read before. So a restore begins an
//! epoch, and the exported number of a value has the epoch in front. The same backup may be restored twice: the copy does
//! not know the first restore, so an epoch also counts the hours of the clock.

use shared::time::Timestamp;

/// Bits of a number without its epoch. Until the end of 2039, the epoch has at most 17 bits. So exported numbers are below
/// 2^53, and readers of JSON keep them exactly.
const NUMBER_BITS: u32 = 36;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;
/// The beginning of 2025, from which the hours of an epoch count.
const FIRST_HOUR: i64 = 1_735_689_600_000 / HOUR;
const HOUR: i64 = 60 * 60 * 1_000;

/// A restore, as a log sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Number of the first value after the restore.
    pub first: u64,
    pub epoch: u64,
}

/// Restores of a log, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sequence(Vec<Restored>);

/// Returns the epoch that a restore at this time begins, after the last epochs of the backup and of the store that it
/// replaces, as far as they are known.
pub fn next_epoch(known: impl IntoIterator<Item = u64>, now: Timestamp) -> u64 {
    let hours = u64::try_from(now.millis() / HOUR - FIRST_HOUR).unwrap_or_default();
    known.into_iter().map(|last| last.saturating_add(1)).fold(hours.max(1), u64::max)
}

impl Sequence {
    pub const fn new(restores: Vec<Restored>) -> Self {
        Self(restores)
    }

    /// Returns the exported number of a value.
    pub fn exported(&self, number: u64) -> u64 {
        let before = self.0.partition_point(|restored| restored.first <= number);
        let epoch = before.checked_sub(1).map_or(0, |last| self.0[last].epoch);
        epoch << NUMBER_BITS | number
    }

    /// Returns the number of the value after which a program reads on that saw this exported number last; `None` if this log
    /// never had it. `last` is the number of the last value. Values that a restore has lost are behind the program, so that it
    /// reads all that were written since.
    pub fn after(&self, exported: u64, last: u64) -> Option<u64> {
        let (epoch, number) = (exported >> NUMBER_BITS, exported & NUMBER);
        // A later restore of an earlier backup has forgotten the epochs between.
        if let Some(next) = self.0.iter().find(|restored| restored.epoch > epoch) {
            return Some(number.min(next.first.saturating_sub(1)));
        }
        let is_present = self.0.last().map_or(0, |restored| restored.epoch) == epoch;
        (is_present && number <= last).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sequence(restores: &[(u64, u64)]) -> Sequence {
        Sequence::new(
            restores.iter().map(|(first, epoch)| Restored { first: *first, epoch: *epoch }).collect(),
        )
    }

    #[test]
    fn without_a_restore_numbers_are_exported_as_they_are() {
        let sequence = Sequence::default();
        assert_eq!([1, 20].map(|number| sequence.exported(number)), [1, 20]);
        assert_eq!([0, 20].map(|seen| sequence.after(seen, 20)), [Some(0), Some(20)]);
        assert_eq!([21, 1 << NUMBER_BITS].map(|seen| sequence.after(seen, 20)), [None, None]);
    }

    #[test]
    fn after_a_restore_numbers_go_on_above_those_that_were_lost() {
        // The backup had 10 values. Another one, of later, had 12.
        let sequence = sequence(&[(11, 7), (13, 9)]);
        let exported: Vec<_> = (9..=14).map(|number| sequence.exported(number)).collect();
        assert!(exported.is_sorted(), "{exported:?}");
        for lost in [11, 20, 4_000] {
            assert_eq!(sequence.after(lost, 14), Some(10));
            assert!(sequence.exported(11) > lost);
        }
        assert_eq!(sequence.after(9, 14), Some(9));
        assert_eq!(sequence.after(sequence.exported(12), 14), Some(12));
        assert_eq!(sequence.after(sequence.exported(12) + 5, 14), Some(12));
        assert_eq!(sequence.after(sequence.exported(14), 14), Some(14));
        assert_eq!(sequence.after(sequence.exported(14) + 1, 14), None);
    }

    #[test]
    fn no_restore_repeats_a_number_however_often_one_backup_is_restored() {
        let now = Timestamp::parse("2026-11-28T21:00:00Z").unwrap();
        // The backup had 10 values and no restore. Each restore of it serves 5 more.
        let (mut replaced, mut at) = (None, now);
        let mut seen = 0;
        for _ in 0..4 {
            let epoch = next_epoch(replaced, at);
            let restored = sequence(&[(11, epoch)]);
            assert!(restored.exported(11) > seen, "{epoch}");
            assert_eq!(restored.after(seen, 15), Some(seen.min(10)), "everything that was written since");
            seen = restored.exported(15);
            // The next one replaces this store in the same hour.
            (replaced, at) = (Some(epoch), now.plus(Duration::from_mins(5)));
        }
        // The store that is replaced cannot be read, an hour later or more. A clock that is behind repeats nothing either.
        let later = next_epoch(None, now.plus(Duration::from_hours(5)));
        assert!(sequence(&[(11, later)]).exported(11) > seen);
        assert_eq!(next_epoch([later], now), later + 1);
        assert_eq!(next_epoch(None, Timestamp::from_millis(0)), 1);
    }

    #[test]
    fn readers_of_json_keep_every_exported_number() {
        let last = next_epoch(None, Timestamp::parse("2039-12-01T00:00:00Z").unwrap());
        assert!(sequence(&[(1, last)]).exported(NUMBER) < 1 << 53, "{last}");
    }
}
