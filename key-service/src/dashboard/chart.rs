//! Spend by day as a picture, with a table behind the picture.

use std::{cmp::Reverse, collections::BTreeMap};

use maud::{Markup, html};
use shared::money::NanoUsd;

use super::show::usd;
use crate::management::spend::{DAYS, Spend};
use domain::usage::Day;

/// Parts with separate colours; all further parts share the last colour.
const COLOURS: usize = 6;
/// Size of the picture, in SVG units.
const WIDTH: i64 = 720;
const HEIGHT: i64 = 160;

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
    fn total(&self) -> NanoUsd {
        sum(self.days.values().copied())
    }
}

/// The parts of a spend by model, the largest first.
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
    series
}

/// A chart of spend by day, stacked by parts. `kind` says what a part is.
pub(super) fn by_day(series: &[Series], kind: &str, today: Day) -> Markup {
    let first = today.plus(1 - DAYS);
    let days = || (0..DAYS).map(|at| (at, first.plus(at)));
    let total = |day: Day| sum(series.iter().filter_map(|series| series.days.get(&day)).copied());
    let most = days().map(|(_, day)| total(day)).max().unwrap_or_default();
    if most <= NanoUsd::ZERO {
        return html! { p.empty { "Nothing was spent in the last " (DAYS) " days." } };
    }
    html! {
        figure.chart {
            p.hint aria-hidden="true" { "Highest day: " (usd(most)) }
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img"
                aria-label={ "Spend by day, at most " (usd(most)) "; the table has the amounts" } {
                line x1="0" y1=(HEIGHT) x2=(WIDTH) y2=(HEIGHT) {}
                @for (at, day) in days() {
                    g data-says={ (day.to_string()) ": " (usd(total(day))) } { (column(at, day, series, most)) }
                }
            }
            p.split.quiet { span { (first.to_string()) } span { (today.to_string()) } }
            ul.legend {
                @for (at, series) in series.iter().enumerate() {
                    li { i class=(colour(at)) {} (series.name) " " strong { (usd(series.total())) } }
                }
            }
            (table(series, kind))
        }
    }
}

fn column(at: i64, day: Day, series: &[Series], most: NanoUsd) -> Markup {
    let width = WIDTH / DAYS;
    let mut top = HEIGHT;
    html! {
        rect.ground x=(at * width) y="0" width=(width) height=(HEIGHT) {}
        @for (number, series) in series.iter().enumerate() {
            @let part = series.days.get(&day).copied().unwrap_or_default();
            @let height = scaled(part, most, HEIGHT - 8);
            @if height > 0 {
                @let y = { top -= height; top };
                rect class=(colour(number)) x=(at * width + 2) y=(y) width=(width - 4) height=(height) {}
            }
        }
    }
}

fn colour(number: usize) -> &'static str {
    ["c0", "c1", "c2", "c3", "c4", "c5"][number.min(COLOURS - 1)]
}

fn table(series: &[Series], kind: &str) -> Markup {
    let mut rows: Vec<_> = series
        .iter()
        .flat_map(|series| series.days.iter().map(move |(day, spent)| (day, series, spent)))
        .collect();
    rows.sort_by_key(|(day, _, _)| Reverse(**day));
    html! {
        details {
            summary { "Table" }
            table {
                thead { tr { th scope="col" { "Day" } th scope="col" { (kind) } th.n scope="col" { "Spend" } } }
                tbody {
                    @for (day, series, spent) in rows {
                        tr { th scope="row" { (day.to_string()) } td { (series.name) } td.n { (usd(*spent)) } }
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
}
