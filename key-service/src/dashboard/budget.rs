//! What is used of the limits of a key or a group, as bars with amounts.

use maud::{Markup, html};
use shared::{money::NanoUsd, time::Timestamp};

use super::{
    chart::scaled,
    show::{time, usd},
    words::per,
};
use domain::ledger::{Budget, Window};

/// Length of a bar in SVG units.
const LENGTH: i64 = 1_000;

/// Used, held and left of the limits. `is_over` says that nothing of them can be spent any more.
pub(super) fn gauge(budget: &Budget, now: Timestamp, is_over: bool) -> Markup {
    let (used, held) = (budget.used, budget.held);
    let left = budget.limit.map(|limit| limit.left_after(used).left_after(held));
    html! {
        section.card.gauge aria-label="Limits" {
            @if let Some(limit) = budget.limit { (bar(used, held, limit)) }
            ul.legend {
                li { i.used {} "Used " strong { (usd(used)) } @if let Some(limit) = budget.limit { " of " (usd(limit)) } }
                @if held > NanoUsd::ZERO { li { i.held {} "Held by requests in flight " strong { (usd(held)) } } }
                @match (left, is_over) {
                    (_, true) => {},
                    (Some(left), false) => li { i.left {} "Left " strong { (usd(left)) } },
                    (None, false) => li { "No limit in all but the credit" },
                }
            }
            @for window in windows(budget, now) {
                (bar(window.used, NanoUsd::ZERO, window.amount))
                ul.legend {
                    li { i.used {} "Used " strong { (usd(window.used)) } " of " (per(window.amount, window.per)) }
                    @if !is_over {
                        li { i.left {} "Left " strong { (usd(window.left())) } }
                        li.quiet { "resets " (time(window.resets_at())) }
                    }
                }
            }
        }
    }
}

/// The limit of which the largest part is used, with what is used of it.
pub(super) fn tightest(budget: &Budget, now: Timestamp) -> Option<(NanoUsd, NanoUsd)> {
    let windows = windows(budget, now).map(|window| (window.used, window.amount));
    let limits = windows.chain(budget.limit.map(|limit| (budget.used, limit)));
    limits.max_by_key(|(used, limit)| part(*used, *limit))
}

fn windows(budget: &Budget, now: Timestamp) -> impl Iterator<Item = Window> {
    budget.bounds.iter().flat_map(|bounds| &bounds.windows).map(move |window| window.at(now))
}

/// The part of a limit, in units of the bar. A limit of 0 is used up.
fn part(amount: NanoUsd, limit: NanoUsd) -> i64 {
    if limit <= NanoUsd::ZERO { LENGTH } else { scaled(amount, limit, LENGTH) }
}

/// A bar as long as the limit, of which parts are used and held.
pub(super) fn bar(used: NanoUsd, held: NanoUsd, limit: NanoUsd) -> Markup {
    let (used, held) = (part(used, limit), scaled(held, limit, LENGTH));
    html! {
        svg.bar.short[used == LENGTH] viewBox={ "0 0 " (LENGTH) " 10" } preserveAspectRatio="none" aria-hidden="true" {
            rect.used x="0" y="0" width=(used) height="10" {}
            rect.held x=(used) y="0" width=(held.min(LENGTH - used)) height="10" {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::ledger::BoundsPatch;
    use shared::calendar::Per;

    #[test]
    fn the_limit_that_is_used_most_is_the_tightest_and_one_of_nothing_is_used_up() {
        let (now, usd) = (Timestamp::from_millis(0), NanoUsd::from_usd);
        let patch =
            BoundsPatch { windows: Some(vec![(Per::Day, usd(2))]), ..BoundsPatch::of_limit(Some(usd(100))) };
        let mut budget = Budget::new(&patch, now);
        budget.used = usd(10);
        for window in &mut budget.bounds.as_mut().unwrap().windows {
            window.used = usd(1);
        }
        assert_eq!(tightest(&budget, now), Some((usd(1), usd(2))));
        let nothing = Budget::new(&BoundsPatch::of_limit(Some(NanoUsd::ZERO)), now);
        assert_eq!(tightest(&nothing, now), Some((NanoUsd::ZERO, NanoUsd::ZERO)));
        assert!(bar(NanoUsd::ZERO, NanoUsd::ZERO, NanoUsd::ZERO).into_string().contains("width=\"1000\""));
    }
}
