//! The first page: credit, spend, and what to do next.

use std::cmp::Reverse;

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use shared::{ids::KeyId, money::NanoUsd};

use super::{
    Desk, chart,
    failure::Failure,
    layout::{Section, page},
    session::Viewer,
    show::{or_unnamed, usd},
};
use crate::{
    domain::usage::Day,
    management::{reading::KeySearch, spend::Spend},
    store::Order,
};

/// Keys in the list of those that spent most.
const TOP_KEYS: usize = 5;

/// Days until credit runs out beyond which no number is said.
const FAR: i64 = 365;

/// Shows the account at a glance.
pub(super) async fn show(State(desk): State<Desk>, viewer: Viewer) -> Result<Response, Failure> {
    let (account, today) = (viewer.signed_in.account, desk.management.today());
    let spend = desk.management.spend(account).await?;
    let any =
        KeySearch { after: None, order: Order::Descending, status: None, text: String::new(), limit: 1 };
    let has_keys = !desk.management.find_keys(account, &any).await?.found.is_empty();
    let content = html! {
        @if !has_keys { (first_steps(&viewer)) }
        (tiles(&viewer, spend.as_ref(), today))
        @match &spend {
            Some(spend) => {
                section.card { h2 { "Spend by day" } (chart::by_day(spend, today)) }
                (top_keys(&desk, &viewer, spend).await?)
            },
            None => p.note { "The last 30 days are being added up. Reload the page in a moment." },
        }
    };
    Ok(page(&viewer, Section::Overview, "Overview", &content))
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

fn tiles(viewer: &Viewer, spend: Option<&Spend>, today: Day) -> Markup {
    let since = |days: i64| spend.map(|spend| spend.since(Day::from_number(today.number() - days)));
    let shown = |days: i64| since(days).map_or_else(|| "…".to_owned(), usd);
    let (credit, held) = (viewer.funds.credit, viewer.funds.held);
    html! {
        dl.tiles {
            div.tile { dt { "Credit" } dd { (usd(credit)) small { (usd(held)) " held by requests in flight" } } }
            div.tile { dt { "Today" } dd { (shown(1)) } }
            div.tile { dt { "7 days" } dd { (shown(7)) } }
            div.tile { dt { "30 days" } dd { (shown(30)) @if let Some(spent) = since(30) { small { (lasts(credit, spent)) } } } }
        }
    }
}

/// How long the credit lasts at the rate of the last 30 days.
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

async fn top_keys(desk: &Desk, viewer: &Viewer, spend: &Spend) -> Result<Markup, Failure> {
    let all = spend.by_key.iter().map(|(id, spent)| (*id, *spent));
    let mut top: Vec<(KeyId, NanoUsd)> = all.filter(|(_, spent)| *spent > NanoUsd::ZERO).collect();
    top.sort_by_key(|(id, spent)| (Reverse(*spent), *id));
    top.truncate(TOP_KEYS);
    if top.is_empty() {
        return Ok(html! {});
    }
    let ids = top.iter().map(|(id, _)| *id).collect();
    let keys = desk.management.keys_by_id(viewer.signed_in.account, ids).await?;
    Ok(html! {
        h2 { "Keys that spent most in 30 days" }
        div.scroll tabindex="0" role="region" aria-label="Keys that spent most" {
            table {
                thead { tr { th scope="col" { "Label" } th.wide-only scope="col" { "Key" } th.n scope="col" { "Spend" } } }
                tbody {
                    @for (id, spent) in top {
                        @let key = keys.get(&id);
                        tr {
                            th scope="row" { a href={ "/dashboard/keys/" (id.to_string()) } { (or_unnamed(key.map_or("", |key| &key.label))) } }
                            td.wide-only { code { (key.map_or("", |key| &key.hint)) } }
                            td.n { (usd(spent)) }
                        }
                    }
                }
            }
        }
    })
}
