//! Amounts by day as a picture with a scale, and a table behind the picture.

use std::{cmp::Reverse, collections::BTreeMap, ops::RangeInclusive};

use maud::{Markup, html};
use shared::money::NanoUsd;

use super::show::{aligned, count, glance, short_count, usd};
use crate::management::spend::Spend;
use domain::usage::{Day, Sums};

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
    share(amount.nanos(), whole.nanos(), most)
}

fn share(part: i64, whole: i64, most: i64) -> i64 {
    let (part, whole) = (i128::from(part.max(0)), i128::from(whole.max(1)));
    i64::try_from((part * i128::from(most) / whole).min(i128::from(most))).unwrap_or(most)
}

/// Amount of a chart: charges in nano-USD, requests, or tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    Spend,
    Requests,
    Tokens,
}

impl Measure {
    /// Every measure; the first is the default.
    pub(super) const ALL: [Self; 3] = [Self::Spend, Self::Requests, Self::Tokens];

    /// Name of the measure on the page.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Spend => "Spend",
            Self::Requests => "Requests",
            Self::Tokens => "Tokens",
        }
    }

    /// The amount in sums.
    pub(super) fn of(self, sums: Sums) -> i64 {
        match self {
            Self::Spend => sums.charged.nanos(),
            Self::Requests => sums.requests.cast_signed(),
            Self::Tokens => sums.tokens.cast_signed(),
        }
    }

    /// An amount at a glance.
    pub(super) fn glance(self, amount: i64) -> Markup {
        match self {
            Self::Spend => glance(NanoUsd::from_nanos(amount)),
            Self::Requests | Self::Tokens => {
                html! { span.usd title=(count(amount.unsigned_abs())) { (short_count(amount.unsigned_abs())) } }
            }
        }
    }

    /// An amount in a column.
    fn aligned(self, amount: i64) -> Markup {
        match self {
            Self::Spend => aligned(NanoUsd::from_nanos(amount)),
            Self::Requests | Self::Tokens => html! { (count(amount.unsigned_abs())) },
        }
    }

    /// An amount at a line of the scale.
    fn label(self, amount: i64) -> String {
        match self {
            Self::Spend => usd(NanoUsd::from_nanos(amount)),
            Self::Requests | Self::Tokens => short_count(amount.unsigned_abs()),
        }
    }
}

/// A part of a chart: the sums of a model or of a key.
pub(super) struct Series {
    /// The name of the model or the label of the key.
    pub(super) name: Markup,
    /// Sums by day.
    pub(super) days: BTreeMap<Day, Sums>,
}

impl Series {
    fn total(&self) -> Sums {
        self.days.values().fold(Sums::default(), |all, sums| all.plus(*sums))
    }
}

/// A chart of these parts.
pub(super) struct Chart<'a> {
    pub(super) measure: Measure,
    pub(super) days: RangeInclusive<Day>,
    pub(super) series: &'a [Series],
}

/// The parts of a spend by model, the largest first; those without a colour of their own as one.
pub(super) fn by_model(spend: &Spend, measure: Measure) -> Vec<Series> {
    let mut models: BTreeMap<&str, BTreeMap<Day, Sums>> = BTreeMap::new();
    for (day, parts) in spend {
        for (model, sums) in parts {
            models.entry(model).or_default().insert(*day, *sums);
        }
    }
    let series = |(name, days)| Series { name: html! { (name) }, days };
    let mut series: Vec<Series> = models.into_iter().map(series).collect();
    series.sort_by_key(|series| Reverse(measure.of(series.total())));
    if series.len() > PARTS + 1 {
        let others = series.split_off(PARTS);
        let mut days: BTreeMap<Day, Sums> = BTreeMap::new();
        for (day, sums) in others.iter().flat_map(|series| &series.days) {
            let all = days.entry(*day).or_default();
            *all = all.plus(*sums);
        }
        series.push(Series { name: html! { (others.len()) " others" }, days });
    }
    series
}

impl Chart<'_> {
    fn days(&self) -> impl DoubleEndedIterator<Item = Day> + use<> {
        (self.days.start().number()..=self.days.end().number()).map(Day::from_number)
    }

    fn on(&self, series: &Series, day: Day) -> i64 {
        self.measure.of(series.days.get(&day).copied().unwrap_or_default())
    }

    fn total(&self, day: Day) -> i64 {
        self.series.iter().fold(0, |sum: i64, series| sum.saturating_add(self.on(series, day)))
    }

    /// The picture with the table behind.
    pub(super) fn markup(&self) -> Markup {
        let (measure, count) = (self.measure, self.days().count());
        let most = self.days().map(|day| self.total(day)).max().unwrap_or_default();
        if most <= 0 {
            return html! { p.empty { "No request was billed in the last " (count) " days." } };
        }
        let step = step(most);
        let says =
            format!("{} by day, at most {}; the table has the amounts", measure.title(), measure.label(most));
        html! {
            figure.chart {
                div.plot {
                    div.axis aria-hidden="true" {
                        @for line in (0..=LINES).rev() { span { (measure.label(step.saturating_mul(line))) } }
                    }
                    svg role="img" aria-label=(says) {
                        @for line in 0..=LINES {
                            @let y = HEIGHT - line * HEIGHT / LINES;
                            line x1="0" y1=(y) x2="100%" y2=(y) {}
                        }
                        @for (at, day) in self.days().enumerate() {
                            (self.column(day, (at, count), step.saturating_mul(LINES)))
                        }
                    }
                    p.box hidden {}
                }
                ul.legend {
                    @for (at, series) in self.series.iter().enumerate() {
                        li { i class=(colour(at)) {} (series.name) " " strong { (measure.glance(measure.of(series.total()))) } }
                    }
                }
                (self.table())
            }
        }
    }

    /// The bar of a day, which is one of so many, below the top of the scale.
    fn column(&self, day: Day, (at, count): (usize, usize), top: i64) -> Markup {
        let mut y = HEIGHT;
        let heights = self.heights(day, top);
        html! {
            rect.ground x=(across(10 * at, count)) y="0" width=(across(10, count)) height=(HEIGHT) {}
            @for (number, height) in heights.into_iter().enumerate() {
                @if height > 0 {
                    @let y = { y -= height; y };
                    rect class=(colour(number)) x=(across(10 * at + 1, count)) y=(y) width=(across(8, count)) height=(height) {}
                }
            }
            @match dated(day, at, count) {
                Dated::No => {},
                Dated::Wide => text.wide x=(across(10 * at + 5, count)) y=(HEIGHT + 18) { (short(day)) },
                Dated::Always => text x=(across(10 * at + 5, count)) y=(HEIGHT + 18) { (short(day)) },
            }
        }
    }

    /// The height of each part of a day. All of them are as high as the day's sum, as far as the smallest parts leave room.
    fn heights(&self, day: Day, top: i64) -> Vec<i64> {
        let height = |part: i64| if part > 0 { share(part, top, HEIGHT).max(SMALLEST) } else { 0 };
        let mut heights: Vec<i64> = self.series.iter().map(|series| height(self.on(series, day))).collect();
        let excess = heights.iter().sum::<i64>() - height(self.total(day));
        if let Some(largest) = heights.iter_mut().max().filter(|_| excess > 0) {
            *largest = (*largest - excess).max(SMALLEST);
        }
        heights
    }

    /// A row for each day, which the box at the pointer shows too, with a column for each part.
    fn table(&self) -> Markup {
        let cell = |amount: i64| {
            html! { td.n { @if amount == 0 { "–" } @else { (self.measure.aligned(amount)) } } }
        };
        html! {
            details {
                summary { "Table" }
                div.scroll.free tabindex="0" role="region" aria-label={ (self.measure.title()) " by day" } {
                    table {
                        thead { tr {
                            th scope="col" { "Day (UTC)" }
                            @for series in self.series { th.n scope="col" { (series.name) } }
                            th.n scope="col" { "Sum" }
                        } }
                        tbody {
                            @for day in self.days().rev() {
                                tr {
                                    th scope="row" { (day.to_string()) }
                                    @for series in self.series { (cell(self.on(series, day))) }
                                    (cell(self.total(day)))
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Place of a day's date below a chart.
enum Dated {
    No,
    /// Where there is room.
    Wide,
    Always,
}

/// A week has a date for each day, and longer times for each Monday; a narrow page has every second, or every fourth week's.
fn dated(day: Day, at: usize, count: usize) -> Dated {
    match count {
        ..=7 if at.is_multiple_of(2) => Dated::Always,
        ..=7 => Dated::Wide,
        _ if !day.is_monday() => Dated::No,
        8..=31 => Dated::Always,
        _ if (day.number() + 3) / 7 % 4 == 0 => Dated::Always,
        _ => Dated::Wide,
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

/// The part of the picture's width that tenths of a day take, of so many days.
fn across(tenths: usize, days: usize) -> String {
    let hundredths = tenths * 1_000 / days;
    format!("{}.{:02}%", hundredths / 100, hundredths % 100)
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
    fn a_day_is_as_high_as_its_sum_however_many_small_parts_it_has() {
        let today = Day::parse("2026-11-23").unwrap();
        let part = |n: i64| Series {
            name: html! {},
            days: BTreeMap::from([(today, Sums { charged: NanoUsd::from_nanos(n), ..Sums::default() })]),
        };
        let heights = |parts: &[i64], top| {
            let series: Vec<Series> = parts.iter().copied().map(part).collect();
            Chart { measure: Measure::Spend, days: today..=today, series: &series }.heights(today, top)
        };
        assert_eq!(heights(&[996, 1, 1, 1, 1], 1_000), [152, 2, 2, 2, 2]);
        assert_eq!(heights(&[500, 500, 0], 1_000), [80, 80, 0]);
        assert_eq!(heights(&[1, 1, 1], 1_000), [2, 2, 2], "each part is seen");
    }

    #[test]
    fn days_without_spend_have_a_row_and_small_models_are_added_up() {
        let today = Day::parse("2026-11-23").unwrap();
        let sums = |n: i64| Sums { requests: 1, tokens: 7, charged: NanoUsd::from_nanos(n) };
        let models = (1..=8).map(|n| (format!("model-{n}"), sums(n))).collect();
        let spend = Spend::from([(today.plus(-2), models)]);
        let series = by_model(&spend, Measure::Spend);
        let page = |measure, days: i64| {
            Chart { measure, days: today.plus(1 - days)..=today, series: &series }.markup().into_string()
        };
        for days in [7_usize, 30, 90] {
            let rows =
                page(Measure::Requests, days.try_into().unwrap()).matches("<th scope=\"row\">").count();
            assert_eq!(rows, days);
        }
        let month = page(Measure::Spend, 30);
        assert!(month.contains("3 others") && !month.contains("model-3"), "{month}");
        assert!(month.contains("title=\"$0.000000006\""), "{month}");
        assert!(month.contains(">Nov 16</text>") && month.contains(">Nov 23</text>"), "{month}");
        assert!(page(Measure::Tokens, 7).contains(">21</td>"), "three models of seven tokens");
    }
}
