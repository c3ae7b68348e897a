//! The rate at which an account spends, and how long its credit lasts.

use shared::money::NanoUsd;

/// Number of days that determine the rate.
pub const RATE_DAYS: i64 = 30;
/// Number of most recent days. If the rate over these days is higher, that rate is used instead.
const LATE_DAYS: i64 = 7;

/// An amount that was spent in a number of days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpendRate {
    amount: NanoUsd,
    /// At least 1 if anything was spent.
    days: i64,
}

impl SpendRate {
    /// Returns an account's rate from its spend on each of the last [`RATE_DAYS`] days, today last. `age` is the number
    /// of days since the account was created, including today.
    ///
    /// The result is the higher of two rates: over all days, and over the last week. For an account younger than
    /// [`RATE_DAYS`], only the days since its first bill count. Otherwise the spend of its first day would be spread
    /// over a month.
    pub fn of(daily: &[NanoUsd], age: i64) -> Self {
        let length = i64::try_from(daily.len()).unwrap_or(i64::MAX);
        let first = daily.iter().position(|day| *day > NanoUsd::ZERO).and_then(|at| i64::try_from(at).ok());
        let known = match first {
            None => return Self::default(),
            Some(first) if age < length => length - first,
            Some(_) => length,
        };
        let rate = |days: i64| {
            let skipped = usize::try_from(length - days).unwrap_or_default();
            let sum = daily.iter().skip(skipped).fold(0_i64, |sum, day| sum.saturating_add(day.nanos()));
            Self { amount: NanoUsd::from_nanos(sum), days }
        };
        let (whole, late) = (rate(known), rate(known.min(LATE_DAYS)));
        let per_day = |rate: Self, other: Self| i128::from(rate.amount.nanos()) * i128::from(other.days);
        if per_day(late, whole) > per_day(whole, late) { late } else { whole }
    }

    /// Returns how many whole days a credit lasts; `None` if nothing was spent.
    pub fn days_left(self, credit: NanoUsd) -> Option<i64> {
        let days =
            i128::from(credit.nanos()) * i128::from(self.days) / i128::from(self.amount.nanos().max(1));
        (self.amount > NanoUsd::ZERO).then(|| i64::try_from(days).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many days ten dollars last. Each pair in `spent` says how many dollars were spent how many days ago
    /// (days first).
    fn lasts(spent: &[(usize, i64)], age: i64) -> Option<i64> {
        let mut daily = vec![NanoUsd::ZERO; 30];
        for (before, usd) in spent {
            daily[29 - before] = NanoUsd::from_usd(*usd);
        }
        SpendRate::of(&daily, age).days_left(NanoUsd::from_usd(10))
    }

    #[test]
    fn a_first_day_is_not_spread_over_a_month() {
        assert_eq!(lasts(&[(0, 5)], 1), Some(2));
        assert_eq!(
            lasts(&[(1, 5), (0, 5)], 20),
            Some(2),
            "the account was created long before its first bill"
        );
        assert_eq!(lasts(&[(0, 5)], 400), Some(14), "an old account may have such a day every week");
    }

    #[test]
    fn the_higher_rate_of_a_week_and_of_a_month_counts() {
        let month: Vec<_> = (0..30).map(|day| (day, 1)).collect();
        assert_eq!(lasts(&month, 100), Some(10));
        let late: Vec<_> = (0..7).map(|day| (day, 5)).collect();
        assert_eq!(lasts(&late, 100), Some(2));
        let early: Vec<_> = (20..30).map(|day| (day, 6)).collect();
        assert_eq!(lasts(&early, 100), Some(5), "a quiet week makes no difference");
    }

    #[test]
    fn nothing_spent_lasts_without_an_end() {
        assert_eq!(lasts(&[], 3), None);
        assert_eq!(SpendRate::of(&[], 1).days_left(NanoUsd::from_usd(1)), None);
        let rate = SpendRate::of(&[NanoUsd::MAX], 1);
        assert_eq!((rate.days_left(NanoUsd::MAX), rate.days_left(NanoUsd::ZERO)), (Some(1), Some(0)));
    }
}
