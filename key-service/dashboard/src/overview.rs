//! The first page: credit, spend, requests and tokens, and next steps.

use std::{collections::BTreeMap, ops::RangeInclusive};

use axum::{
    extract::{Request, State},
    response::Response,
};
use maud::{Markup, html};
use shared::money::NanoUsd;

use crate::{margin, trouble, webhooks};
use domain::{
    key::{ApiKey, Status},
    usage::{Day, Sums},
};
use key_service_management::{
    reading::KeySearch,
    spend::{DAYS, Spend, days_left},
};
use key_service_page::{
    app::App,
    chart::{self, Chart, Measure, Series},
    failure::Failure,
    form::{Fields, query, with},
    layout::{Section, page},
    paths::{HOME, KEYS},
    session::Viewer,
    show::{aligned, glance, or_unnamed},
};

/// Keys in the chart, and in the list of top-spending keys.
const TOP_KEYS: usize = 5;
/// Numbers of days to choose from.
const PERIODS: [i64; 3] = [7, DAYS, 90];
/// Days until the credit runs out beyond which no number is shown.
const FAR: i64 = 365;
/// Days until the credit runs out below which the page says so first.
const SOON: i64 = 7;

/// Chosen view of the page.
struct ViewChoice {
    measure: Measure,
    days: i64,
    by_key: bool,
}

impl ViewChoice {
    fn of(query: &Fields) -> Self {
        let measure = Measure::ALL.into_iter().find(|measure| name(*measure) == query.get("show"));
        let days = PERIODS.into_iter().find(|days| days.to_string() == query.get("days"));
        Self {
            measure: measure.unwrap_or(Measure::Spend),
            days: days.unwrap_or(DAYS),
            by_key: query.get("by") == "key",
        }
    }
}

/// Returns the name of a measure in the address, which is empty for the default.
const fn name(measure: Measure) -> &'static str {
    match measure {
        Measure::Spend => "",
        Measure::Requests => "requests",
        Measure::Tokens => "tokens",
    }
}

/// Shows the account at a glance.
pub(super) async fn show(
    State(app): State<App>,
    viewer: Viewer,
    request: Request,
) -> Result<Response, Failure> {
    let (account, today) = (viewer.signed_in.account, app.management.today());
    let query = query(&request);
    let choice = ViewChoice::of(&query);
    // The chart is compared with the same number of days before it. The last month says how long the credit lasts.
    let read = today.plus(1 - (2 * choice.days).max(DAYS))..=today;
    let spend = app.management.spend(account, read).await?;
    let top = app.management.top_keys(account, TOP_KEYS).await?;
    let days = today.plus(1 - choice.days)..=today;
    let shown: Spend = spend.range(days.clone()).map(|(day, parts)| (*day, parts.clone())).collect();
    let series = if choice.by_key {
        by_key(&app, &viewer, &shown, &top, days.clone()).await?
    } else {
        chart::by_model(&shown, choice.measure, &app.catalog.get().ids())
    };
    let trouble = app.management.trouble(account).await?;
    let webhooks = app.management.webhooks(account).await?;
    let newest = KeySearch { status: Some(Status::Active), limit: 1, ..KeySearch::default() };
    let newest =
        if top.is_empty() { app.management.find_keys(account, &newest).await?.found } else { Vec::new() };
    let chart = Chart { measure: choice.measure, days, series: &series };
    let content = html! {
        (warning(viewer.funds.credit, &spend, today))
        (webhooks::failed(&webhooks))
        (trouble::strip(&trouble, app.management.now()))
        @if top.is_empty() { (first_steps(&viewer, newest.first())) }
        (choices(&query, &choice))
        (tiles(&viewer, &choice, &spend, today))
        section.card {
            div.split { h2 { (choice.measure.title()) " by day" } (parts(&query, choice.by_key)) }
            (chart.markup())
        }
        (top_keys(&top))
        (margin::link(&app.catalog.get(), viewer.is_owner()))
    };
    Ok(page(&viewer, Section::Overview, "Overview", &content))
}

/// Makes a link to this page with one field of the query replaced.
fn link(query: &Fields, field: &str, value: &str, is_chosen: bool, title: &Markup) -> Markup {
    let query = with(query, field, value);
    let path = if query.is_empty() { HOME.to_owned() } else { format!("{HOME}?{query}") };
    html! { a href=(path) aria-current=[is_chosen.then_some("true")] { (title) } }
}

/// Links to other measures and other numbers of days.
fn choices(query: &Fields, choice: &ViewChoice) -> Markup {
    html! {
        div.split {
            nav.choice aria-label="Measure" {
                @for measure in Measure::ALL {
                    (link(query, "show", name(measure), measure == choice.measure, &html! { (measure.title()) }))
                }
            }
            nav.choice aria-label="Days" {
                @for days in PERIODS {
                    @let value = if days == DAYS { String::new() } else { days.to_string() };
                    (link(query, "days", &value, days == choice.days, &html! { (days) " days" }))
                }
            }
        }
    }
}

/// Links to the chart by model and to that by key.
fn parts(query: &Fields, by_key: bool) -> Markup {
    html! {
        nav.choice aria-label="Parts of the chart" {
            (link(query, "by", "", !by_key, &html! { "By model" }))
            (link(query, "by", "key", by_key, &html! { "By key" }))
        }
    }
}

/// Sums up the keys that spent most, and all others together.
async fn by_key(
    app: &App,
    viewer: &Viewer,
    spend: &Spend,
    top: &[ApiKey],
    days: RangeInclusive<Day>,
) -> Result<Vec<Series>, Failure> {
    let mut others = by_day(spend);
    let mut series = Vec::new();
    for key in top {
        let spend = app.management.spend_of(viewer.signed_in.account, key.id, days.clone()).await?;
        let days = by_day(&spend);
        for (day, sums) in &days {
            others.entry(*day).and_modify(|left| *left = left.less(*sums));
        }
        // A number of the key decides, so that the key keeps its colour while others spend more or less.
        let place = key.id.as_bytes().last().map(|byte| usize::from(*byte));
        series.push(Series { name: or_unnamed(&key.label), place, is_rest: false, days });
    }
    others.retain(|_, left| *left != Sums::default());
    if !others.is_empty() {
        series.push(Series { name: html! { "Other keys" }, place: None, is_rest: true, days: others });
    }
    Ok(series)
}

/// The sums of each day.
fn by_day(spend: &Spend) -> BTreeMap<Day, Sums> {
    let all =
        |parts: &BTreeMap<String, Sums>| parts.values().fold(Sums::default(), |all, sums| all.plus(*sums));
    spend.iter().map(|(day, parts)| (*day, all(parts))).collect()
}

/// The sum of some days.
fn sum_of(spend: &Spend, days: RangeInclusive<Day>) -> Sums {
    let parts = spend.range(days).flat_map(|(_, parts)| parts.values());
    parts.fold(Sums::default(), |all, sums| all.plus(*sums))
}

/// Says first that the credit is used up, or soon will be.
fn warning(credit: NanoUsd, spend: &Spend, today: Day) -> Markup {
    let add = html! { a href="/dashboard/credit" { "See how to add credit" } };
    html! {
        @match days_left(credit, sum_of(spend, today.plus(1 - DAYS)..=today).charged) {
            _ if credit <= NanoUsd::ZERO => p.problem { "There is no credit left: requests are refused until credit is added. " (add) },
            Some(0) => p.note { "At the rate of the last " (DAYS) " days the credit ends today. " (add) },
            Some(1) => p.note { "At the rate of the last " (DAYS) " days the credit ends tomorrow. " (add) },
            Some(days) if days < SOON => p.note { "At the rate of the last " (DAYS) " days the credit ends in " (days) " days. " (add) },
            Some(_) | None => {},
        }
    }
}

/// Shows the steps until the first bill. `key` is a key that can be used.
fn first_steps(viewer: &Viewer, key: Option<&ApiKey>) -> Markup {
    html! {
        section.card {
            h2 { "First steps" }
            ol.steps {
                @if viewer.funds.credit <= NanoUsd::ZERO {
                    li { a href="/dashboard/credit" { "Add credit" } ", which an operator does on the server." }
                }
                @if key.is_none() {
                    @if viewer.is_owner() {
                        li { a.button.primary href="/dashboard/keys/new" { "Create an API key" } " with a limit on what it may spend." }
                    } @else { li { "An owner creates an API key, with a limit on what it may spend." } }
                }
                li { "Send a first request: "
                    @match key {
                        Some(key) => { "the page of " a href={ (KEYS) "/" (key.id.to_string()) "#use" } { (or_unnamed(&key.label)) } },
                        None => "the new key's page",
                    }
                    " has it for curl, Python and Node.js." }
                li { "See here what it cost." }
            }
        }
    }
}

fn tiles(viewer: &Viewer, choice: &ViewChoice, spend: &Spend, today: Day) -> Markup {
    let ViewChoice { measure, days, .. } = *choice;
    let amount = |first: i64, last: i64| measure.of(sum_of(spend, today.plus(first)..=today.plus(last)));
    let (now, before) = (amount(1 - days, 0), amount(1 - 2 * days, -days));
    let (credit, held) = (viewer.funds.credit, viewer.funds.held);
    let month = sum_of(spend, today.plus(1 - DAYS)..=today).charged;
    html! {
        dl.tiles {
            div.tile { dt { "Credit" } dd { (glance(credit))
                @if held > NanoUsd::ZERO { small { (glance(held)) " held by requests in flight" } }
                small { (lasts(credit, month)) } } }
            div.tile { dt { "Today" } dd { (measure.glance(amount(0, 0))) } }
            div.tile { dt { (days) " days" } dd { (measure.glance(now)) small { (compared(now, before, days)) } } }
            div.tile { dt { "A day, on average" } dd { (measure.glance(now / days)) } }
        }
    }
}

/// Says in words how an amount changed from the days before.
fn compared(now: i64, before: i64, days: i64) -> String {
    if before <= 0 {
        return format!("Nothing in the {days} days before");
    }
    let percent = (i128::from(now) - i128::from(before)) * 100 / i128::from(before);
    match percent {
        0 => format!("As in the {days} days before"),
        1.. => format!("↑ {percent} % on the {days} days before"),
        _ => format!("↓ {} % on the {days} days before", -percent),
    }
}

/// Says in words how long the credit lasts at the rate of the last days.
fn lasts(credit: NanoUsd, spent: NanoUsd) -> String {
    match days_left(credit, spent) {
        _ if credit <= NanoUsd::ZERO => "There is no credit".into(),
        None => "Nothing is being spent".into(),
        Some(0) => "At this rate it ends today".into(),
        Some(1) => "At this rate it lasts a day".into(),
        Some(days) if days <= FAR => format!("At this rate it lasts {days} days"),
        Some(_) => "At this rate it lasts more than a year".into(),
    }
}

fn top_keys(top: &[ApiKey]) -> Markup {
    if top.is_empty() {
        return html! {};
    }
    html! {
        h2 { "Keys that spent most" }
        div.scroll tabindex="0" role="region" aria-label="Keys that spent most" {
            table {
                thead { tr { th scope="col" { "Label" } th.wide-only scope="col" { "Key" } th.n scope="col" { "Spend" } } }
                tbody {
                    @for key in top {
                        tr {
                            th scope="row" { a href={ "/dashboard/keys/" (key.id.to_string()) } { (or_unnamed(&key.label)) } }
                            td.wide-only { code { (key.hint) } }
                            td.n { (aligned(key.spend.budget.used)) }
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
    fn words_say_how_long_credit_lasts_and_how_much_more_was_spent() {
        let [nothing, dollar] = [NanoUsd::ZERO, NanoUsd::from_usd(1)];
        let today = Day::parse("2026-11-23").unwrap();
        let sums = Sums { requests: 1, tokens: 2, charged: NanoUsd::from_usd(30) };
        let spend = Spend::from([(today.plus(-3), BTreeMap::from([("Model".to_owned(), sums)]))]);
        for (credit, said) in [
            (0, "no credit left"),
            (1, "ends tomorrow"),
            (5, "ends in 5 days"),
            (7, ""),
            (i64::from(u8::MAX), ""),
        ] {
            let page = warning(NanoUsd::from_usd(credit), &spend, today).into_string();
            assert!(page.contains(said) && page.is_empty() == said.is_empty(), "{credit}: {page}");
        }
        assert_eq!(lasts(dollar, nothing), "Nothing is being spent");
        assert_eq!(lasts(dollar, NanoUsd::from_usd(15)), "At this rate it lasts 2 days");
        assert_eq!(lasts(nothing, dollar), "There is no credit");
        assert_eq!(compared(138, 100, 7), "↑ 38 % on the 7 days before");
        assert_eq!(compared(50, 100, 30), "↓ 50 % on the 30 days before");
        assert_eq!(compared(5, 0, 7), "Nothing in the 7 days before");
    }
}
