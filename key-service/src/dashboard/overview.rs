//! The first page: credit, spend, and next steps.

use std::collections::BTreeMap;

use axum::{
    extract::{Request, State},
    response::Response,
};
use maud::{Markup, html};
use shared::money::NanoUsd;

use super::{
    Desk, HOME,
    chart::{self, Series},
    failure::Failure,
    form::query,
    layout::{Section, page},
    margin,
    session::Viewer,
    show::{aligned, glance, or_unnamed},
};
use crate::management::{
    reading::{KeyOrder, KeySearch},
    spend::Spend,
};
use domain::{key::ApiKey, usage::Day};

/// Keys in the chart, and in the list of top-spending keys.
const TOP_KEYS: usize = 5;

/// Days until credit runs out beyond which no number is shown.
const FAR: i64 = 365;

/// Shows the account at a glance.
pub(super) async fn show(
    State(desk): State<Desk>,
    viewer: Viewer,
    request: Request,
) -> Result<Response, Failure> {
    let (account, today) = (viewer.signed_in.account, desk.management.today());
    let spend = desk.management.spend(account).await?;
    let top = desk.management.top_keys(account, TOP_KEYS).await?;
    let any = KeySearch { after: None, order: KeyOrder::Newest, status: None, text: String::new(), limit: 1 };
    let has_keys = !desk.management.find_keys(account, &any).await?.found.is_empty();
    let by_key = query(&request).get("by") == "key";
    let chart = if by_key {
        chart::by_day(&series(&desk, &viewer, &spend, &top).await?, today)
    } else {
        chart::by_day(&chart::by_model(&spend), today)
    };
    let content = html! {
        @if !has_keys { (first_steps(&viewer)) }
        (tiles(&viewer, &spend, today))
        section.card {
            div.split { h2 { "Spend by day" } (choice(by_key)) }
            (chart)
        }
        (top_keys(&top))
        (margin::link(&desk.catalog.get(), viewer.is_owner()))
    };
    Ok(page(&viewer, Section::Overview, "Overview", &content))
}

/// Leads to the chart by model and to that by key.
fn choice(by_key: bool) -> Markup {
    html! {
        nav.choice aria-label="Parts of the chart" {
            a href=(HOME) aria-current=[(!by_key).then_some("true")] { "By model" }
            a href={ (HOME) "?by=key" } aria-current=[by_key.then_some("true")] { "By key" }
        }
    }
}

/// The spend of the keys that spent most, and of all others together.
async fn series(desk: &Desk, viewer: &Viewer, spend: &Spend, top: &[ApiKey]) -> Result<Vec<Series>, Failure> {
    let total = |parts: &BTreeMap<String, NanoUsd>| chart::sum(parts.values().copied());
    let mut others: BTreeMap<Day, NanoUsd> = spend.iter().map(|(day, parts)| (*day, total(parts))).collect();
    let mut series = Vec::new();
    for key in top {
        let spend = desk.management.spend_of(viewer.signed_in.account, key.id).await?;
        let days: BTreeMap<Day, NanoUsd> = spend.iter().map(|(day, parts)| (*day, total(parts))).collect();
        for (day, spent) in &days {
            others.entry(*day).and_modify(|left| *left = left.left_after(*spent));
        }
        series.push(Series { name: or_unnamed(&key.label), days });
    }
    others.retain(|_, left| *left > NanoUsd::ZERO);
    if !others.is_empty() {
        series.push(Series { name: html! { "Other keys" }, days: others });
    }
    Ok(series)
}

fn first_steps(viewer: &Viewer) -> Markup {
    html! {
        section.card {
            h2 { "First steps" }
            ol.steps {
                @if viewer.funds.credit <= NanoUsd::ZERO {
                    li { a href="/dashboard/credit" { "Add credit" } ", which an operator does on the server." }
                }
                li { @if viewer.is_owner() { a href="/dashboard/keys/new" { "Create an API key" } } @else { "An owner creates an API key" }
                    ", with a limit on what it may spend." }
                li { "Send a first request: the new key's page has it for curl, Python and Node.js." }
                li { "See here what it cost." }
            }
        }
    }
}

fn tiles(viewer: &Viewer, spend: &Spend, today: Day) -> Markup {
    let since = |days: i64| {
        let parts = spend.range(today.plus(1 - days)..).flat_map(|(_, parts)| parts.values().copied());
        chart::sum(parts)
    };
    let shown = |days: i64| glance(since(days));
    let (credit, held) = (viewer.funds.credit, viewer.funds.held);
    html! {
        dl.tiles {
            div.tile { dt { "Credit" } dd { (glance(credit)) @if held > NanoUsd::ZERO { small { (glance(held)) " held by requests in flight" } } } }
            div.tile { dt { "Today" } dd { (shown(1)) } }
            div.tile { dt { "7 days" } dd { (shown(7)) } }
            div.tile { dt { "30 days" } dd { (shown(30)) small { (lasts(credit, since(30))) } } }
        }
    }
}

/// Time that the credit lasts at the rate of the last 30 days, in words.
fn lasts(credit: NanoUsd, spent: NanoUsd) -> String {
    match (credit <= NanoUsd::ZERO, spent <= NanoUsd::ZERO) {
        (true, true) => return "There is no credit".into(),
        (true, false) => return "The credit is used up".into(),
        (false, true) => return "Nothing is being spent".into(),
        (false, false) => {}
    }
    let days = i128::from(credit.nanos()) * 30 / i128::from(spent.nanos());
    match i64::try_from(days).unwrap_or(i64::MAX) {
        0 => "At this rate the credit ends today".into(),
        1 => "At this rate the credit lasts a day".into(),
        days if days <= FAR => format!("At this rate the credit lasts {days} days"),
        _ => "At this rate the credit lasts more than a year".into(),
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
