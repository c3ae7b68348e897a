//! Amounts by day as a picture with a scale, and a table behind the picture.

use std::{cmp::Reverse, collections::BTreeMap};

use maud::{Markup, html};
use shared::money::NanoUsd;

use super::show::{aligned, glance, usd};
use crate::management::spend::{DAYS, Spend};
use domain::usage::Day;

/// Parts with colours of their own; further parts are added up.
const PARTS: usize = 5;
/// Height of the picture in pixels. The style sheet knows the height as well.
const HEIGHT: i64 = 160;
/// Height in pixels of the smallest part, so that every part is seen.
const SMALLEST: i64 = 2;
/// Lines of the scale above zero.
const LINES: i64 = 3;
/// Round steps of a scale, in tenths of a power of ten.
const STEPS: [i64; 8] = [10, 15, 20, 25, 30, 40, 50, 75];
/// Names of months below a chart.
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The part of `most` units that an amount has of a whole. No float comes near an amount.
pub(super) fn scaled(amount: NanoUsd, whole: NanoUsd, most: i64) -> i64 {
    let (amount, whole) = (i128::from(amount.nanos().max(0)), i128::from(whole.nanos().max(1)));
    i64::try_from((amount * i128::from(most) / whole).min(i128::from(most))).unwrap_or(most)
}

/// The sum of amounts, up to the largest there is.
pub(super) fn sum(amounts: impl Iterator<Item = NanoUsd>) -> NanoUsd {
    NanoUsd::from_nanos(amounts.fold(0, |sum: i64, amount| sum.saturating_add(amount.nanos())))
}

/// A part of a chart: the amounts of a model or of a key.
pub(super) struct Series {
    /// The name of the model or the label of the key.
    pub(super) name: Markup,
    /// Amounts by day.
    pub(super) days: BTreeMap<Day, NanoUsd>,
}

impl Series {
    fn on(&self, day: Day) -> NanoUsd {
        self.days.get(&day).copied().unwrap_or_default()
    }

    fn total(&self) -> NanoUsd {
        sum(self.days.values().copied())
    }
}

/// The parts of a spend by model, the largest first; those without a colour of their own as one.
pub(super) fn by_model(spend: &Spend) -> Vec<Series> {
    let mut models: BTreeMap<&str, BTreeMap<Day, NanoUsd>> = BTreeMap::new();
    for (day, parts) in spend {
        for (model, charged) in parts {
            models.entry(model).or_default().insert(*day, *charged);
        }
    }
    let series = |(name, days)| Series { name: html! { (name) }, days };
    let mut series: Vec<Series> = models.into_iter().map(series).collect();
    series.sort_by_key(|series| Reverse(series.total()));
    if series.len() > PARTS + 1 {
        let others = series.split_off(PARTS);
        let mut days: BTreeMap<Day, NanoUsd> = BTreeMap::new();
        for (day, amount) in others.iter().flat_map(|series| &series.days) {
            days.entry(*day).and_modify(|all| *all = sum([*all, *amount].into_iter())).or_insert(*amount);
        }
        series.push(Series { name: html! { (others.len()) " others" }, days });
    }
    series
}

/// A chart of spend by day, stacked by parts.
pub(super) fn by_day(series: &[Series], today: Day) -> Markup {
    let first = today.plus(1 - DAYS);
    let days = || (0..DAYS).map(|at| first.plus(at));
    let total = |day: Day| sum(series.iter().map(|series| series.on(day)));
    let most = days().map(total).max().unwrap_or_default();
    if most <= NanoUsd::ZERO {
        return html! { p.empty { "Nothing was spent in the last " (DAYS) " days." } };
    }
    let step = step(most.nanos());
    let top = NanoUsd::from_nanos(step.saturating_mul(LINES));
    html! {
        figure.chart {
            div.plot {
                div.axis aria-hidden="true" {
                    @for line in (0..=LINES).rev() { span { (usd(NanoUsd::from_nanos(step.saturating_mul(line)))) } }
                }
                svg role="img" aria-label={ "Spend by day, at most " (usd(most)) "; the table has the amounts" } {
                    @for line in 0..=LINES {
                        @let y = HEIGHT - line * HEIGHT / LINES;
                        line x1="0" y1=(y) x2="100%" y2=(y) {}
                    }
                    @for (at, day) in days().enumerate() { (column(at, day, series, top)) }
                }
                p.box hidden {}
            }
            ul.legend {
                @for (at, series) in series.iter().enumerate() {
                    li { i class=(colour(at)) {} (series.name) " " strong { (glance(series.total())) } }
                }
            }
            (table(series, days().rev()))
        }
    }
}

/// The smallest round step of which [`LINES`] reach an amount.
fn step(most: i64) -> i64 {
    let mut power: i64 = 1;
    loop {
        let round = STEPS.into_iter().map(|tenths| i128::from(tenths) * i128::from(power));
        let mut enough = round.filter(|step| step % 10 == 0).map(|step| step / 10);
        if let Some(step) = enough.find(|step| step * i128::from(LINES) >= i128::from(most)) {
            return i64::try_from(step).unwrap_or(i64::MAX);
        }
        power = power.saturating_mul(10);
    }
}

/// The part of the picture's width that tenths of a day take.
fn across(tenths: usize) -> String {
    let days = usize::try_from(DAYS).unwrap_or(1);
    let hundredths = tenths * 1_000 / days;
    format!("{}.{:02}%", hundredths / 100, hundredths % 100)
}

fn column(at: usize, day: Day, series: &[Series], most: NanoUsd) -> Markup {
    let mut top = HEIGHT;
    html! {
        rect.ground x=(across(10 * at)) y="0" width=(across(10)) height=(HEIGHT) {}
        @for (number, series) in series.iter().enumerate() {
            @let part = series.on(day);
            @if part > NanoUsd::ZERO {
                @let height = scaled(part, most, HEIGHT).max(SMALLEST);
                @let y = { top -= height; top };
                rect class=(colour(number)) x=(across(10 * at + 1)) y=(y) width=(across(8)) height=(height) {}
            }
        }
        @if day.is_monday() { text x=(across(10 * at + 5)) y=(HEIGHT + 18) { (short(day)) } }
    }
}

/// A day without its year: `Nov 23`.
fn short(day: Day) -> String {
    let date = day.to_string();
    let number = |part: Option<&str>| part.and_then(|digits| digits.parse::<usize>().ok()).unwrap_or(1);
    let month = MONTHS.get(number(date.get(5..7)).saturating_sub(1)).copied().unwrap_or_default();
    format!("{month} {}", number(date.get(8..10)))
}

fn colour(number: usize) -> &'static str {
    ["c0", "c1", "c2", "c3", "c4", "c5"][number.min(PARTS)]
}

/// A row for each day, which the box at the pointer shows too, with a column for each part.
fn table(series: &[Series], days: impl Iterator<Item = Day>) -> Markup {
    let cell = |amount: NanoUsd| {
        html! { td.n { @if amount == NanoUsd::ZERO { "–" } @else { (aligned(amount)) } } }
    };
    html! {
        details {
            summary { "Table" }
            div.scroll.free tabindex="0" role="region" aria-label="Spend by day" {
                table {
                    thead { tr {
                        th scope="col" { "Day (UTC)" }
                        @for series in series { th.n scope="col" { (series.name) } }
                        th.n scope="col" { "Sum" }
                    } }
                    tbody {
                        @for day in days {
                            tr {
                                th scope="row" { (day.to_string()) }
                                @for series in series { (cell(series.on(day))) }
                                (cell(sum(series.iter().map(|series| series.on(day)))))
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_scaled_without_floats() {
        let nanos = NanoUsd::from_nanos;
        assert_eq!(scaled(nanos(1), nanos(2), 100), 50);
        assert_eq!(scaled(NanoUsd::MAX, NanoUsd::MAX, 160), 160);
        assert_eq!(scaled(nanos(5), nanos(0), 100), 100);
        assert_eq!(scaled(nanos(-5), nanos(10), 100), 0);
    }

    #[test]
    fn a_scale_has_round_steps_and_room_for_the_highest_day() {
        for (most, expected) in
            [(1, 1), (3, 1), (4, 2), (31, 15), (60, 20), (9_700, 4_000), (i64::MAX, i64::MAX / 3)]
        {
            let step = step(most);
            assert!(i128::from(step) * 3 >= i128::from(most), "{most}: {step}");
            assert!(step == expected || most == i64::MAX, "{most}: {step}");
        }
    }

    #[test]
    fn days_without_spend_have_a_row_and_small_models_are_added_up() {
        let today = Day::parse("2026-11-23").unwrap();
        let models = (1..=8).map(|n| (format!("model-{n}"), NanoUsd::from_nanos(n))).collect();
        let spend = Spend::from([(today.plus(-2), models)]);
        let series = by_model(&spend);
        let page = by_day(&series, today).into_string();
        assert_eq!(page.matches("<th scope=\"row\">").count(), 30);
        assert!(page.contains("3 others") && !page.contains("model-3"), "{page}");
        assert_eq!(series[PARTS].on(today.plus(-2)), NanoUsd::from_nanos(6));
        assert!(page.contains(">Nov 16</text>") && page.contains(">Nov 23</text>"), "{page}");
    }
}
