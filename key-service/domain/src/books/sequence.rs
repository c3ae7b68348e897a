//! The numbers under which values of a log are exported. A program continues after the last number that it has seen.
//!
//! A store that was restored from a backup uses numbers again that such a program has already seen. So does a replica
//! that takes over without the latest values. Both therefore start a new epoch, and the high bits of an exported number
//! are the number of its epoch. If the same backup is restored twice, the second restore may not know of the first. So
//! that both get different epochs, the number of an epoch is at least the number of hours since 2025.

use shared::time::Timestamp;

/// Number of low bits of an exported number that are the value's own number. The bits above are the epoch. Until the
/// end of 2039, the epoch has at most 17 bits. So exported numbers are below 2^53, and readers of JSON keep them
/// exactly.
const NUMBER_BITS: u32 = 36;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;
/// The beginning of 2025, from which the hours in epochs are counted.
const FIRST_HOUR: i64 = 1_735_689_600_000 / HOUR;
const HOUR: i64 = 60 * 60 * 1_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    /// All epochs except the first, which begins with the log.
    epochs: Vec<Epoch>,
}

/// The values that were written since a restore, or since a failover that may have lost values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// Number of the first value.
    pub first: u64,
    pub begin: EpochBegin,
    /// Number of the epoch. It is raised if the previous epoch has the same or a higher number.
    pub number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochBegin {
    /// The store was restored: all values of the epoch are new.
    Restored,
    /// A server that may lack the latest values took over. The first values of this epoch may have been written before
    /// it took over.
    Lost,
}

/// Why a program cannot continue after the number that it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CannotGoOn {
    /// The log never had this number.
    Unknown,
    /// The value may have been lost, and another value may have its number. The program must read everything after this
    /// exported number again; the values up to this number cannot have been lost.
    MayBeLost(u64),
}

/// Returns the number for an epoch that starts now. It must be above the numbers in `known`: for a restore, the last
/// epochs of the backup and of the replaced store.
pub fn next_epoch(known: impl IntoIterator<Item = u64>, now: Timestamp) -> u64 {
    let hours = u64::try_from(now.millis() / HOUR - FIRST_HOUR).unwrap_or_default();
    known.into_iter().map(|last| last.saturating_add(1)).fold(hours.max(1), u64::max)
}

impl Sequence {
    /// Creates a sequence with these epochs.
    pub fn new(mut epochs: Vec<Epoch>) -> Self {
        epochs.sort_by_key(|epoch| (epoch.first, epoch.number));
        let mut last = 0;
        for epoch in &mut epochs {
            last = epoch.number.max(last + 1);
            epoch.number = last;
        }
        Self { epochs }
    }

    /// Returns the exported number of a value.
    pub fn exported(&self, number: u64) -> u64 {
        let before = self.epochs.partition_point(|epoch| epoch.first <= number);
        let epoch = before.checked_sub(1).map_or(0, |last| self.epochs[last].number);
        epoch << NUMBER_BITS | number
    }

    /// Takes the last exported number that a program has seen, and returns the number of the value after which it
    /// continues. `last` is the number of the log's last value. After a restore, the program gets everything that was
    /// written since the restore.
    pub fn after(&self, exported: u64, last: u64) -> Result<u64, CannotGoOn> {
        let (of_program, number) = (exported >> NUMBER_BITS, exported & NUMBER);
        // An epoch is looked up by order, because a restore of an earlier backup may have lost the program's epoch.
        match self.epochs.iter().find(|epoch| epoch.number > of_program) {
            Some(Epoch { first, begin: EpochBegin::Restored, .. }) => Ok(number.min(first.saturating_sub(1))),
            Some(Epoch { first, begin: EpochBegin::Lost, .. }) if number < *first => Ok(number),
            Some(Epoch { first, begin: EpochBegin::Lost, .. }) => {
                Err(CannotGoOn::MayBeLost(self.exported(first.saturating_sub(1))))
            }
            None => {
                let is_present = self.epochs.last().map_or(0, |epoch| epoch.number) == of_program;
                if is_present && number <= last { Ok(number) } else { Err(CannotGoOn::Unknown) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sequence(begin: EpochBegin, epochs: &[(u64, u64)]) -> Sequence {
        Sequence::new(
            epochs.iter().map(|(first, number)| Epoch { first: *first, begin, number: *number }).collect(),
        )
    }

    #[test]
    fn without_a_loss_numbers_are_exported_as_they_are() {
        let sequence = Sequence::default();
        assert_eq!([1, 20].map(|number| sequence.exported(number)), [1, 20]);
        assert_eq!([0, 20].map(|seen| sequence.after(seen, 20)), [Ok(0), Ok(20)]);
        assert_eq!(
            [21, 1 << NUMBER_BITS].map(|seen| sequence.after(seen, 20)),
            [Err(CannotGoOn::Unknown); 2]
        );
    }

    #[test]
    fn after_a_restore_numbers_go_on_above_those_that_were_lost() {
        // The store was restored twice: from a backup with 10 values, and later from a backup with 12.
        let sequence = sequence(EpochBegin::Restored, &[(11, 7), (13, 9)]);
        let exported: Vec<_> = (9..=14).map(|number| sequence.exported(number)).collect();
        assert!(exported.is_sorted(), "{exported:?}");
        for lost in [11, 20, 4_000] {
            assert_eq!(sequence.after(lost, 14), Ok(10));
            assert!(sequence.exported(11) > lost);
        }
        assert_eq!(sequence.after(9, 14), Ok(9));
        assert_eq!(sequence.after(sequence.exported(12), 14), Ok(12));
        assert_eq!(sequence.after(sequence.exported(12) + 5, 14), Ok(12));
        assert_eq!(sequence.after(sequence.exported(14), 14), Ok(14));
        assert_eq!(sequence.after(sequence.exported(14) + 1, 14), Err(CannotGoOn::Unknown));
    }

    #[test]
    fn after_a_failover_a_number_that_may_be_another_values_is_refused_with_the_last_sure_one() {
        // The old master had 20 values. The replica had 15, the last two of which were written shortly before it took
        // over.
        let sequence = sequence(EpochBegin::Lost, &[(14, 5)]);
        assert_eq!(sequence.after(13, 30), Ok(13));
        for unsure in [14, 15, 20, 4_000] {
            assert_eq!(sequence.after(unsure, 30), Err(CannotGoOn::MayBeLost(13)));
        }
        assert!(sequence.exported(14) > 4_000);
        assert_eq!(sequence.after(sequence.exported(14), 30), Ok(14));
        assert_eq!(sequence.after(sequence.exported(31), 30), Err(CannotGoOn::Unknown));
    }

    #[test]
    fn a_failover_after_a_restore_leaves_its_numbers_as_they_are() {
        let restored = sequence(EpochBegin::Restored, &[(11, 7)]);
        let both = Sequence::new(vec![
            Epoch { first: 21, begin: EpochBegin::Lost, number: 7 },
            Epoch { first: 11, begin: EpochBegin::Restored, number: 7 },
        ]);
        assert_eq!(both.exported(20), restored.exported(20));
        assert_eq!(both.after(restored.exported(20), 30), Ok(20));
        let unsure = both.after(restored.exported(25), 30);
        assert_eq!(unsure, Err(CannotGoOn::MayBeLost(both.exported(20))));
    }

    #[test]
    fn no_restore_repeats_a_number_however_often_one_backup_is_restored() {
        let now = Timestamp::parse("2026-11-28T21:00:00Z").unwrap();
        // The backup has 10 values, and was made before any restore. Each restored store writes 5 more values.
        let (mut replaced, mut at) = (None, now);
        let mut seen = 0;
        for _ in 0..4 {
            let epoch = next_epoch(replaced, at);
            let restored = sequence(EpochBegin::Restored, &[(11, epoch)]);
            assert!(restored.exported(11) > seen, "{epoch}");
            assert_eq!(restored.after(seen, 15), Ok(seen.min(10)), "everything written since then is read");
            seen = restored.exported(15);
            // Within the same hour, the backup is restored again and replaces this store.
            (replaced, at) = (Some(epoch), now.plus(Duration::from_mins(5)));
        }
        // After an hour or more, numbers do not repeat even if the replaced store cannot be read. If it can be read,
        // they do not repeat even with a slow clock.
        let later = next_epoch(None, now.plus(Duration::from_hours(5)));
        assert!(sequence(EpochBegin::Restored, &[(11, later)]).exported(11) > seen);
        assert_eq!(next_epoch([later], now), later + 1);
        assert_eq!(next_epoch(None, Timestamp::from_millis(0)), 1);
    }

    #[test]
    fn readers_of_json_keep_every_exported_number() {
        let last = next_epoch(None, Timestamp::parse("2039-12-01T00:00:00Z").unwrap());
        assert!(sequence(EpochBegin::Restored, &[(1, last)]).exported(NUMBER) < 1 << 53, "{last}");
    }
}
