//! The small line next to a sum, which shows the amounts day by day.

use std::ops::RangeInclusive;

use maud::{Markup, html};
use shared::money::NanoUsd;

use domain::usage::Day;
use key_service_page::chart::scaled;

/// Maximum number of points in a line. A longer range has several days in each.
const POINTS: i64 = 30;
/// Width and height of a line in SVG units.
const LENGTH: i64 = 120;
const HEIGHT: i64 = 20;

/// Draws the daily amounts of a range; empty for a single day, or if all amounts are zero.
pub(crate) fn line(days: &RangeInclusive<Day>, amount: impl Fn(Day) -> i64) -> Markup {
    let length = days.end().number() - days.start().number() + 1;
    let in_point = (length + POINTS - 1) / POINTS;
    let of_point = |point: i64| {
        let from = point * in_point;
        (from..length.min(from + in_point)).map(|day| amount(days.start().plus(day))).sum()
    };
    let sums: Vec<i64> = (0..(length + in_point - 1) / in_point).map(of_point).collect();
    let most = sums.iter().copied().max().unwrap_or_default();
    if sums.len() < 2 || most <= 0 {
        return html! {};
    }
    let last = i64::try_from(sums.len()).unwrap_or(POINTS) - 1;
    let height = |sum: i64| HEIGHT - scaled(NanoUsd::from_nanos(sum), NanoUsd::from_nanos(most), HEIGHT);
    let points = (0..).zip(&sums).map(|(at, sum)| format!("{},{}", at * LENGTH / last, height(*sum)));
    html! {
        svg.line viewBox={ "0 -1 " (LENGTH) " " (HEIGHT + 2) } preserveAspectRatio="none" aria-hidden="true" {
            polyline points=(points.collect::<Vec<_>>().join(" ")) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(days: i64, amount: impl Fn(i64) -> i64) -> String {
        let first = Day::parse("2026-11-01").unwrap();
        line(&(first..=first.plus(days - 1)), |day| amount(day.number() - first.number())).into_string()
    }

    #[test]
    fn a_line_has_a_point_for_each_day_or_for_some_days_together() {
        assert!(drawn(3, |day| day).contains("points=\"0,20 60,10 120,0\""), "{}", drawn(3, |day| day));
        let points = |days| drawn(days, |_| 1).matches(',').count();
        assert_eq!([2, 30, 31, 90, 400].map(points), [2, 30, 16, 30, 29]);
        assert_eq!((drawn(1, |_| 1), drawn(30, |_| 0)), (String::new(), String::new()));
    }
}
