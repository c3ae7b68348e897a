//! Numbers of a log's values for programs that read on from the last number that they saw.
//!
//! A store that is restored from a backup gives numbers again that such a program has read before. So does a replica that
//! takes over without the last values. Each time begins an epoch, and the exported number of a value has the epoch in front.

/// Bits of a number without its epoch. With 8,192 epochs, exported numbers are exact in JavaScript.
const NUMBER_BITS: u32 = 40;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;

/// Epochs of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    /// The epochs but the first one, which begins with the log.
    epochs: Vec<Epoch>,
}

/// Values since a time at which values before were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch {
    /// Number of the first value.
    pub first: u64,
    pub begin: EpochBegin,
}

/// Why an epoch began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EpochBegin {
    /// The store was restored: all values of the epoch are new.
    Restored,
    /// A server took over that may lack the last values. The epoch may begin with values from before.
    Lost,
}

/// Reason why a program cannot read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CannotGoOn {
    /// The log never had this number.
    Unknown,
    /// The value may have been lost, and its number given to another one. This is the exported number of the last value
    /// that was not; all that was read after it has to be read again.
    MayBeLost(u64),
}

impl Sequence {
    /// Makes a sequence with these epochs.
    pub fn new(mut epochs: Vec<Epoch>) -> Self {
        epochs.sort();
        Self { epochs }
    }

    /// Returns the exported number of a value.
    pub fn exported(&self, number: u64) -> u64 {
        let epoch = self.epochs.partition_point(|epoch| epoch.first <= number) as u64;
        epoch << NUMBER_BITS | number
    }

    /// Returns the number of the value after which a program reads on that saw this exported number last. `last` is the
    /// number of the last value. Values that a restore has lost are behind the program, so that it reads all that were
    /// written since.
    pub fn after(&self, exported: u64, last: u64) -> Result<u64, CannotGoOn> {
        let (epoch, number) = (exported >> NUMBER_BITS, exported & NUMBER);
        let of_epoch = usize::try_from(epoch).map_err(|_| CannotGoOn::Unknown)?;
        match self.epochs.get(of_epoch) {
            Some(Epoch { first, begin: EpochBegin::Restored }) => Ok(number.min(first.saturating_sub(1))),
            Some(Epoch { first, begin: EpochBegin::Lost }) if number < *first => Ok(number),
            Some(Epoch { first, begin: EpochBegin::Lost }) => {
                Err(CannotGoOn::MayBeLost(self.exported(first.saturating_sub(1))))
            }
            None if of_epoch == self.epochs.len() && number <= last => Ok(number),
            None => Err(CannotGoOn::Unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(begin: EpochBegin, firsts: &[u64]) -> Sequence {
        Sequence::new(firsts.iter().map(|first| Epoch { first: *first, begin }).collect())
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
        // The backup had 10 values. Another one, of later, had 12.
        let sequence = sequence(EpochBegin::Restored, &[11, 13]);
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
        // The old master had 20 values. The replica had 15, the last two of which came shortly before.
        let sequence = sequence(EpochBegin::Lost, &[14]);
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
        let restored = sequence(EpochBegin::Restored, &[11]);
        let both = Sequence::new(vec![
            Epoch { first: 21, begin: EpochBegin::Lost },
            Epoch { first: 11, begin: EpochBegin::Restored },
        ]);
        assert_eq!(both.exported(20), restored.exported(20));
        assert_eq!(both.after(restored.exported(20), 30), Ok(20));
        let unsure = both.after(restored.exported(25), 30);
        assert_eq!(unsure, Err(CannotGoOn::MayBeLost(both.exported(20))));
    }
}
