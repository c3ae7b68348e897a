//! Numbers of a log's values for programs that read on from the last number that they saw.
//!
//! A store that is restored from a backup gives numbers again that such a program has read before. So a restore begins an
//! epoch, and the exported number of a value has the epoch in front.

/// Bits of a number without its epoch. With 8,192 epochs, exported numbers are exact in JavaScript.
const NUMBER_BITS: u32 = 40;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;

/// Epochs of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    /// Number of the first value after each restore.
    firsts: Vec<u64>,
}

impl Sequence {
    /// Makes a sequence with an epoch from each of these numbers on, which are in their order.
    pub const fn new(firsts: Vec<u64>) -> Self {
        Self { firsts }
    }

    /// Returns the exported number of a value.
    pub fn exported(&self, number: u64) -> u64 {
        let epoch = self.firsts.partition_point(|first| *first <= number) as u64;
        epoch << NUMBER_BITS | number
    }

    /// Returns the number of the value after which a program reads on that saw this exported number last; `None` if this log
    /// never had it. `last` is the number of the last value. Values that a restore has lost are behind the program, so that it
    /// reads all that were written since.
    pub fn after(&self, exported: u64, last: u64) -> Option<u64> {
        let (epoch, number) = (exported >> NUMBER_BITS, exported & NUMBER);
        let of_epoch = usize::try_from(epoch).ok()?;
        match self.firsts.get(of_epoch) {
            Some(next_first) => Some(number.min(next_first.saturating_sub(1))),
            None => (of_epoch == self.firsts.len() && number <= last).then_some(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let sequence = Sequence::new(vec![11, 13]);
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
}
