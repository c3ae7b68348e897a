//! Renders bars with amounts that show how much of a key's or a group's limits is used.

use maud::{Markup, html};
use shared::money::NanoUsd;

use crate::{
    limits::NEVER,
    words::{dollars, per},
};
use domain::{
    group::Group,
    ledger::{Budget, Holder},
};
use key_service_management::limits::{LimitOf, MoneyLimit, ReachedLimits};
use key_service_page::{
    chart::scaled,
    paths::{GROUPS, KEYS},
    session::Viewer,
    show::{aligned, name_of, time, to_decimals, usd},
};

/// Length of a bar in SVG units.
const LENGTH: i64 = 1_000;

/// One cent. Amounts smaller than this would look like zero with two decimals.
const CENT: NanoUsd = NanoUsd::from_nanos(10_000_000);

struct BudgetLimits<'a> {
    holder: Holder,
    /// Group that has these limits; `None` if they are the limits of the page's own key or group.
    group: Option<&'a Group>,
    held: NanoUsd,
    limits: Vec<MoneyLimit>,
}

impl BudgetLimits<'_> {
    fn left(&self, limit: &MoneyLimit) -> NanoUsd {
        limit.left().left_after(self.held)
    }
}

/// Renders how much is used, held and left of the limits of a key or group and of the groups above it. The nearest
/// group comes first. `is_over` means that nothing can be spent any more. Members who may raise a nearly used-up limit
/// get a link to do so.
pub fn gauge(
    viewer: &Viewer,
    holder: Holder,
    budget: &Budget,
    groups: &[&Group],
    reached: &ReachedLimits,
    is_over: bool,
) -> Markup {
    let own = BudgetLimits { holder, group: None, held: budget.held, limits: reached.limits(holder, budget) };
    let of_groups = groups.iter().map(|group| BudgetLimits {
        holder: Holder::Group(group.id),
        group: Some(group),
        held: group.spend.budget.held,
        limits: reached.limits(Holder::Group(group.id), &group.spend.budget),
    });
    let all: Vec<BudgetLimits<'_>> = std::iter::once(own).chain(of_groups).collect();
    let each = || all.iter().flat_map(|of| of.limits.iter().map(move |limit| (of, limit)));
    let least = each().min_by_key(|(of, limit)| (!limit.is_reached, of.left(limit)));
    // The page of a key already says in its first line why requests are refused.
    let has_own_line = matches!(holder, Holder::Key(..));
    html! {
        @if let Some((of, limit)) = least.filter(|(_, limit)| limit.is_reached && !is_over && !has_own_line) { (refusal(of, limit)) }
        section.card.gauge aria-label="Limits" {
            ul.legend {
                li { "Total used " strong { (usd(budget.used)) } }
                @if budget.held > NanoUsd::ZERO { li { i.held {} "Held by requests in flight " strong { (usd(budget.held)) } } }
                @match (least, is_over) {
                    (_, true) => {},
                    (Some((of, limit)), false) => li { "Left " strong { (usd(of.left(limit))) } },
                    (None, false) => li { "No lifetime limit" },
                }
            }
            @for (of, limit) in each() {
                (bar(limit.used, of.held, limit))
                ul.legend {
                    li { i.used {} @if let Some(group) = of.group { bdi { (name_of(group)) } ": used " } @else { "Used " }
                        strong { (usd(limit.used)) } " of " (in_words(limit)) }
                    @if !is_over {
                        li { i.left {} "Left " strong { (usd(of.left(limit))) } }
                        @if let Some((_, resets_at)) = limit.window { li.quiet { "resets " (time(resets_at)) } }
                        @if limit.is_nearly_used() && may_raise(viewer, of.holder) { li { (raise_today(of.holder, limit)) } }
                    }
                }
            }
        }
    }
}

/// Renders an explanation of why requests are refused, and until when.
fn refusal(of: &BudgetLimits<'_>, limit: &MoneyLimit) -> Markup {
    html! {
        p.problem {
            "Requests are refused: the limit of " (in_words(limit))
            @if let Some(group) = of.group { " of the group " bdi { (name_of(group)) } }
            " is reached. "
            @match limit.window {
                Some((_, resets_at)) => { "It resets " (time(resets_at)) "." },
                None => "Raise the limit to let requests through.",
            }
        }
    }
}

/// Renders a badge that says that a limit is reached, so that requests fail. Renders nothing if no limit is reached.
pub fn reached_badge(of: Option<LimitOf<'_>>) -> Markup {
    html! {
        @match of {
            None => {},
            Some(LimitOf::Own) => span.badge.short { "limit reached" },
            Some(LimitOf::Group(group)) => span.badge.short { "limit of " bdi { (name_of(group)) } " reached" },
        }
    }
}

/// Renders the limit of which the largest share is used, with its bar: `$0.14 of $35 a month`.
pub fn tightest(limits: &[MoneyLimit]) -> Markup {
    let tightest = limits.iter().max_by_key(|limit| (limit.is_reached, part(limit.used, limit.amount)));
    html! {
        @match tightest {
            None => span.quiet { "no limit" },
            Some(limit) => { (used(limit)) " of " (in_words(limit)) (bar(limit.used, NanoUsd::ZERO, limit)) },
        }
    }
}

/// Renders the used amount with as many decimals as the limit has, or with more if the limit is reached before it is
/// used up. An amount below a cent is rendered like amounts in columns.
pub(crate) fn used(limit: &MoneyLimit) -> Markup {
    let amount = limit.used;
    if amount > NanoUsd::ZERO && amount < CENT {
        return aligned(amount);
    }
    let exact = dollars(limit.amount);
    let own = exact.split_once('.').map_or(0, |(_, fraction)| fraction.len()).max(2);
    let is_reached_before = limit.is_reached && amount < limit.amount;
    to_decimals(amount, if is_reached_before { own + 2 } else { own })
}

/// Renders a limit's amount. For a raised limit, adds until when the raise lasts and what comes after it: `$20 until
/// 18:00, then $10`.
pub(crate) fn in_words(limit: &MoneyLimit) -> Markup {
    let says = |amount| limit.window.map_or_else(|| dollars(amount), |(length, _)| per(amount, length));
    html! {
        (says(limit.amount))
        @if let Some((until, plain)) = limit.after_raise { " until " (time(until)) ", then " (dollars(plain)) }
    }
}

/// Returns whether the member may raise limits of a key or a group.
pub fn may_raise(viewer: &Viewer, holder: Holder) -> bool {
    match holder {
        Holder::Key(..) => viewer.keeps_keys(),
        Holder::Group(_) | Holder::Account(_) => viewer.is_owner(),
    }
}

/// Renders a link to the settings of a limit. The form behind the link proposes to raise the limit for the rest of the
/// day.
pub fn raise_today(holder: Holder, limit: &MoneyLimit) -> Markup {
    let page = match holder {
        Holder::Key(id, _) => format!("{KEYS}/{id}"),
        Holder::Group(id) => format!("{GROUPS}/{id}"),
        Holder::Account(_) => return html! {},
    };
    let resets = limit.window.map_or(NEVER, |(length, _)| length.as_str());
    html! { a href={ (page) "/settings?raise=" (resets) } { "Raise for today" } }
}

/// Returns which part of a limit an amount is, in units of the bar. A limit of 0 is always used up.
fn part(amount: NanoUsd, limit: NanoUsd) -> i64 {
    if limit <= NanoUsd::ZERO { LENGTH } else { scaled(amount, limit, LENGTH) }
}

/// Draws a limit as a bar, with its used and held parts.
fn bar(used: NanoUsd, held: NanoUsd, limit: &MoneyLimit) -> Markup {
    let (used, held) = (part(used, limit.amount), scaled(held, limit.amount, LENGTH));
    html! {
        svg.bar.short[limit.is_reached] viewBox={ "0 0 " (LENGTH) " 10" } preserveAspectRatio="none" aria-hidden="true" {
            rect.used x="0" y="0" width=(used) height="10" {}
            rect.held x=(used) y="0" width=(held.min(LENGTH - used)) height="10" {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::calendar::Per;
    use shared::time::Timestamp;

    fn limit(used: i64, amount: i64, per: Option<Per>, is_reached: bool) -> MoneyLimit {
        let [used, amount] = [used, amount].map(NanoUsd::from_usd);
        let window = per.map(|per| (per, Timestamp::from_millis(0)));
        MoneyLimit { amount, after_raise: None, used, window, is_reached }
    }

    #[test]
    fn a_raised_limit_is_shown_with_its_end_and_what_holds_then() {
        let end = Timestamp::parse("2027-12-31T18:00Z").unwrap();
        let raised = MoneyLimit {
            after_raise: Some((end, NanoUsd::from_usd(10))),
            ..limit(12, 20, Some(Per::Day), false)
        };
        let page = tightest(&[raised]).into_string();
        assert!(page.contains("$12.00</span> of $20 a day until <time"), "{page}");
        assert!(page.contains("</time>, then $10") && page.contains("2027-12-31 18:00 UTC"), "{page}");
    }

    #[test]
    fn the_limit_that_is_reached_or_used_most_is_the_tightest_and_one_of_nothing_is_used_up() {
        let (all, day) = (limit(10, 100, None, false), limit(1, 2, Some(Per::Day), false));
        let shown = |limits: &[MoneyLimit]| tightest(limits).into_string();
        assert!(shown(&[all, day]).contains("$1.00</span> of $2 a day"), "{}", shown(&[all, day]));
        let reached = limit(1, 50, Some(Per::Week), true);
        let page = shown(&[all, day, reached]);
        assert!(page.contains(" of $50 a week") && page.contains("bar short"), "{page}");
        let nothing = shown(&[limit(0, 0, None, true)]);
        assert!(nothing.contains(" of $0<") && nothing.contains("width=\"1000\""), "{nothing}");
        assert!(shown(&[]).contains("no limit"));
        let before =
            MoneyLimit { used: NanoUsd::from_nanos(14_930_000), ..limit(0, 0, Some(Per::Day), true) };
        let before = MoneyLimit { amount: NanoUsd::from_nanos(20_000_000), ..before };
        assert!(shown(&[before]).contains(">$0.0149</span> of $0.02 a day<"), "{}", shown(&[before]));
        let precise = MoneyLimit { amount: NanoUsd::from_nanos(579_300_000), ..limit(0, 0, None, false) };
        let precise = MoneyLimit { used: NanoUsd::from_nanos(579_100_000), ..precise };
        assert!(shown(&[precise]).contains(">$0.5791</span> of $0.5793<"), "{}", shown(&[precise]));
        let cents = MoneyLimit { used: NanoUsd::from_nanos(1_493_750), ..limit(0, 1, None, false) };
        assert!(shown(&[cents]).contains(">$0.001493</span> of $1<"), "{}", shown(&[cents]));
    }
}
