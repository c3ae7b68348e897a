//! Spend by day as a picture, with a table behind it.

use std::collections::BTreeMap;

use maud::{Markup, html};
use shared::money::NanoUsd;

use super::show::usd;
use crate::{
    domain::usage::Day,
    management::spend::{DAYS, Spend},
};

/// Parts that have a colour of their own; all further ones share the last.
const COLOURS: usize = 6;
/// Size of the picture, in its own units.
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

/// A chart of spend by day, stacked by model.
pub(super) fn by_day(spend: &Spend, today: Day) -> Markup {
    let days = &spend.by_day;
    let mut models: BTreeMap<&str, NanoUsd> = BTreeMap::new();
    for (model, charged) in days.values().flatten() {
        let before = models.entry(model).or_default();
        *before = sum([*before, *charged].into_iter());
    }
    let mut models: Vec<(&str, NanoUsd)> = models.into_iter().collect();
    models.sort_by_key(|(_, spent)| std::cmp::Reverse(*spent));
    let most = days.values().map(|parts| sum(parts.values().copied())).max().unwrap_or_default();
    if most <= NanoUsd::ZERO {
        return html! { p.empty { "Nothing was spent in the last " (DAYS) " days." } };
    }
    html! {
        figure.chart {
            p.hint aria-hidden="true" { "Highest day: " (usd(most)) }
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img"
                aria-label={ "Spend by day, at most " (usd(most)) "; the table has the amounts" } {
                line x1="0" y1=(HEIGHT) x2=(WIDTH) y2=(HEIGHT) {}
                @for (at, day) in (0..DAYS).map(|at| (at, Day::from_number(today.number() - DAYS + 1 + at))) {
                    (column(at, day, days.get(&day), &models, most))
                }
            }
            p.split.quiet { span { (Day::from_number(today.number() - DAYS + 1).to_string()) } span { (today.to_string()) } }
            ul.legend {
                @for (at, (model, spent)) in models.iter().enumerate() {
                    li { i class=(colour(at)) {} (model) " " strong { (usd(*spent)) } }
                }
            }
            (table(days))
        }
    }
}

fn column(
    at: i64,
    day: Day,
    parts: Option<&BTreeMap<String, NanoUsd>>,
    models: &[(&str, NanoUsd)],
    most: NanoUsd,
) -> Markup {
    let width = WIDTH / DAYS;
    let total = parts.map_or(NanoUsd::ZERO, |parts| sum(parts.values().copied()));
    let mut top = HEIGHT;
    html! {
        g data-says={ (day.to_string()) ": " (usd(total)) } {
            rect.ground x=(at * width) y="0" width=(width) height=(HEIGHT) {}
            @for (number, (model, _)) in models.iter().enumerate() {
                @let part = parts.and_then(|parts| parts.get(*model)).copied().unwrap_or_default();
                @let height = scaled(part, most, HEIGHT - 8);
                @if height > 0 {
                    @let y = { top -= height; top };
                    rect class=(colour(number)) x=(at * width + 2) y=(y) width=(width - 4) height=(height) {}
                }
            }
        }
    }
}

fn colour(number: usize) -> &'static str {
    ["c0", "c1", "c2", "c3", "c4", "c5"][number.min(COLOURS - 1)]
}

fn table(days: &BTreeMap<Day, BTreeMap<String, NanoUsd>>) -> Markup {
    html! {
        details {
            summary { "Table" }
            table {
                thead { tr { th scope="col" { "Day" } th scope="col" { "Model" } th.n scope="col" { "Spend" } } }
                tbody {
                    @for (day, parts) in days.iter().rev() {
                        @for (model, spent) in parts {
                            tr { th scope="row" { (day.to_string()) } td { (model) } td.n { (usd(*spent)) } }
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
}
