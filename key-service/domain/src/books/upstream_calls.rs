//! Counts of an upstream's bills, with a coarse histogram of times to the first token.

use shared::generation::Course;

/// Upper bounds of the histogram's classes in milliseconds. Longer times share one more class.
const BOUNDS: [u64; 14] =
    [50, 100, 200, 300, 500, 750, 1_000, 1_500, 2_000, 3_000, 5_000, 10_000, 30_000, 60_000];
pub const CLASSES: usize = BOUNDS.len() + 1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpstreamCalls {
    pub bills: u64,
    /// Number of streams in each class of time to the first token.
    pub first_tokens: [u64; CLASSES],
}

/// A time that was recorded only as a class of the histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassedTime {
    /// At most this many milliseconds.
    Within(u64),
    /// More than this many milliseconds.
    Above(u64),
}

impl UpstreamCalls {
    pub fn count(&mut self, course: &Course) {
        self.bills = self.bills.saturating_add(1);
        if let Some(millis) = course.first_token_ms {
            let class = BOUNDS.partition_point(|bound| *bound < millis);
            self.first_tokens[class] = self.first_tokens[class].saturating_add(1);
        }
    }

    #[must_use]
    pub fn plus(mut self, other: Self) -> Self {
        self.bills = self.bills.saturating_add(other.bills);
        for (count, more) in self.first_tokens.iter_mut().zip(other.first_tokens) {
            *count = count.saturating_add(more);
        }
        self
    }

    /// Returns a percentile of the time to the first token; `None` without streams.
    pub fn first_token(&self, percent: u64) -> Option<ClassedTime> {
        let all = self.first_tokens.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        let wanted = all.saturating_mul(percent).div_ceil(100).max(1);
        let mut counted: u64 = 0;
        let class = self.first_tokens.iter().position(|count| {
            counted = counted.saturating_add(*count);
            counted >= wanted
        })?;
        let last = BOUNDS[BOUNDS.len() - 1];
        Some(BOUNDS.get(class).map_or(ClassedTime::Above(last), |bound| ClassedTime::Within(*bound)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_half_and_of_nine_in_ten_streams_is_known_by_its_class() {
        let mut calls = UpstreamCalls::default();
        assert_eq!(calls.first_token(50), None);
        let course = |first_token_ms| Course { first_token_ms, ..Course::default() };
        calls.count(&course(None));
        assert_eq!(
            (calls.bills, calls.first_token(50)),
            (1, None),
            "an answer without a stream has no first token"
        );
        for millis in [10, 50, 51, 200, 200, 200, 250, 400, 1_200, 90_000] {
            calls.count(&course(Some(millis)));
        }
        assert_eq!(calls.bills, 11);
        assert_eq!(calls.first_token(20), Some(ClassedTime::Within(50)));
        assert_eq!(calls.first_token(50), Some(ClassedTime::Within(200)));
        assert_eq!(calls.first_token(90), Some(ClassedTime::Within(1_500)));
        assert_eq!(calls.first_token(100), Some(ClassedTime::Above(60_000)));
        let twice = calls.plus(calls);
        assert_eq!((twice.bills, twice.first_token(90)), (22, calls.first_token(90)));
    }
}
