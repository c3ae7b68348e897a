//! Detects whether a key suddenly spends many times more than usual.

use shared::money::NanoUsd;

/// A jump is at least this many times the usual amount.
const LEAST_TIMES: i128 = 5;
/// A jump is more than this many times the busiest earlier hour.
const BUSIEST_TIMES: i128 = 2;
/// A jump is at least the amount of the account's usual day divided by this. Smaller amounts are noise.
const PARTS_OF_A_DAY: i128 = 4;
/// With spend in fewer earlier hours than this, the usual amount is unknown.
const KNOWN_HOURS: usize = 5;
const MINUTES_OF_AN_HOUR: i128 = 60;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpendHistory {
    /// Spend in the time just before now.
    pub spent: NanoUsd,
    /// Length of that time in minutes: at least 60.
    pub minutes: u32,
    /// Spend of each earlier hour in which anything was spent, within about a week.
    pub hours: Vec<NanoUsd>,
}

/// A sudden spend that is far above the usual amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    pub spent: NanoUsd,
    pub minutes: u32,
    /// How many times the usual amount was spent; `None` if the usual amount is unknown, because too few earlier hours
    /// have spend.
    pub times: Option<u64>,
}

/// Returns the jump at the end of this history, if there is one. `usual_day` is the amount that the whole account
/// spends on a usual day. If it is zero, there are no jumps.
///
/// The usual amount is the average over the hours with spend, so that a job that runs once a night is not a jump.
pub fn jump(of: &SpendHistory, usual_day: NanoUsd) -> Option<Jump> {
    let (spent, usual_day) = (i128::from(of.spent.nanos()), i128::from(usual_day.nanos()));
    if usual_day <= 0 || spent * PARTS_OF_A_DAY < usual_day {
        return None;
    }
    let jump = |times| Some(Jump { spent: of.spent, minutes: of.minutes, times });
    if of.hours.len() < KNOWN_HOURS {
        return jump(None);
    }
    let hours = || of.hours.iter().map(|hour| i128::from(hour.nanos()));
    // times = spent / (sum / number of hours * minutes / 60), written as one fraction.
    let number = i128::try_from(of.hours.len()).unwrap_or(i128::MAX);
    let usual = hours().sum::<i128>().max(1).saturating_mul(of.minutes.into());
    let times = spent.saturating_mul(number).saturating_mul(MINUTES_OF_AN_HOUR) / usual.max(1);
    let is_above_all = spent > BUSIEST_TIMES * hours().max().unwrap_or_default();
    if times < LEAST_TIMES || !is_above_all {
        return None;
    }
    jump(Some(u64::try_from(times).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: NanoUsd = NanoUsd::from_nanos(800);

    fn found(spent: i64, minutes: u32, hours: &[i64]) -> Option<Jump> {
        let hours = hours.iter().map(|hour| NanoUsd::from_nanos(*hour)).collect();
        jump(&SpendHistory { spent: NanoUsd::from_nanos(spent), minutes, hours }, DAY)
    }

    fn times(spent: i64, minutes: u32, hours: &[i64]) -> Option<u64> {
        found(spent, minutes, hours).and_then(|jump| jump.times)
    }

    #[test]
    fn a_spend_far_above_every_hour_before_is_a_jump() {
        assert_eq!(times(2_000, 60, &[50; 20]), Some(40));
        assert_eq!(times(2_000, 120, &[50; 20]), Some(20), "two hours usually cost twice as much");
        assert_eq!(times(250, 60, &[50; 20]), Some(5));
        assert_eq!(found(249, 60, &[50; 20]), None, "less than five times the usual amount");
    }

    #[test]
    fn noise_is_no_jump() {
        assert_eq!(found(199, 60, &[1; 20]), None, "less than a quarter of the account's day");
        assert_eq!(found(2_000, 60, &[50, 50, 50, 50, 1_000]), None, "there was such an hour before");
        assert_eq!(found(900, 60, &[900; 6]), None, "a job that runs every night");
        assert_eq!(found(0, 60, &[]), None);
        let of = SpendHistory { spent: DAY, minutes: 60, hours: Vec::new() };
        assert_eq!(jump(&of, NanoUsd::ZERO), None, "a new account has no usual day");
        assert_eq!(jump(&of, NanoUsd::from_nanos(-5)), None);
    }

    #[test]
    fn what_has_hardly_spent_before_has_no_usual() {
        for hours in [&[][..], &[1; 4]] {
            assert!(found(2_000, 60, hours).is_some_and(|jump| jump.times.is_none()), "{hours:?}");
        }
        assert_eq!(times(2_000, 60, &[1; 5]), Some(2_000));
    }

    #[test]
    fn the_largest_amounts_do_not_overflow() {
        assert_eq!(found(i64::MAX, u32::MAX, &[i64::MAX; 200]), None);
        assert_eq!(times(i64::MAX, 60, &[1; 5]), Some(i64::MAX.unsigned_abs()));
    }
}
