//! The first page: credit, spend, requests and tokens, and next steps.

use axum::{
    extract::{Request, State},
    response::{IntoResponse, Redirect, Response},
};
use maud::{Markup, html};
use shared::money::NanoUsd;

use crate::{home::trouble, webhooks};
use domain::key::{ApiKey, Status};
use key_service_management::{
    accounts::SOON,
    reading::KeySearch,
    spend::{DAYS, days_left},
};
use key_service_page::{
    app::App,
    failure::Failure,
    form::{PageAddress, query},
    layout::{Section, page},
    paths::{GROUPS, HOME, KEYS},
    session::{KeysViewer, Viewer},
    show::{glance, or_unnamed},
};
use key_service_ranges::{
    list,
    spend::{SpendScope, SpendView},
};

/// Days until the credit runs out beyond which no number is shown.
const FAR: i64 = 365;

/// Shows the account at a glance.
pub(crate) async fn show(
    State(app): State<App>,
    KeysViewer(mut viewer): KeysViewer,
    request: Request,
) -> Result<Response, Failure> {
    let reach = viewer.reach();
    // The group of a lead is what an account is to others.
    if let Some(group) = reach.group {
        return Ok(Redirect::to(&format!("{GROUPS}/{group}")).into_response());
    }
    let (account, today, credit) = (viewer.signed_in.account, app.management.today(), viewer.funds.credit);
    let query = query(&request);
    let view = SpendView::of(&query, SpendScope::Account, today);
    let report = view.read(&app, reach).await?;
    // The last month says how long the credit lasts, here and on pages opened later.
    let spent = app.management.spent_lately(account).await?;
    viewer.days_left = days_left(credit, spent);
    let was_used = !app.management.top_keys(account, 1).await?.is_empty();
    let top = list::top_keys(&app, reach, &view, &query, &report).await?;
    let trouble = app.management.trouble(reach).await?;
    let webhooks = app.management.webhooks(account).await?;
    let newest = KeySearch { status: Some(Status::Active), limit: 1, ..KeySearch::default() };
    let newest = if was_used { Vec::new() } else { app.management.find_keys(reach, &newest).await?.found };
    let content = html! {
        (warning(credit, spent))
        (webhooks::failed(&webhooks))
        (trouble::strip(&viewer, &trouble, app.management.now()))
        @if !was_used { (first_steps(&viewer, newest.first())) }
        (view.range.choice(&app, HOME, &query))
        (view.tiles(&report, today, Some(&credit_tile(&viewer, spent))))
        (view.card(&app, reach, PageAddress { path: HOME, query: &query }, &report).await?)
        (top)
    };
    Ok(page(&viewer, Section::Overview, "Overview", &content))
}

/// Says first that the credit is used up, or soon will be. `spent` is the spend of the last [`DAYS`].
fn warning(credit: NanoUsd, spent: NanoUsd) -> Markup {
    let add = html! { a href="/dashboard/credit" { "See how to add credit" } };
    html! {
        @match days_left(credit, spent) {
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
                    li { a href="/dashboard/credit" { "Add credit" } ", which an operator does." }
                }
                @if key.is_none() {
                    @if viewer.is_owner() {
                        li { a.button.primary href="/dashboard/keys/new" { "Create an API key" } " with a limit on what it may spend." }
                    } @else { li { "An owner creates an API key, with a limit on what it may spend." } }
                }
                li { "Send a first request: "
                    @match key {
                        Some(key) => { "the page of " a href={ (KEYS) "/" (key.id.to_string()) "/use" } { (or_unnamed(&key.label)) } },
                        None => "the new key's page",
                    }
                    " has it for curl, Python and Node.js." }
                li { "See here what it cost." }
            }
        }
    }
}

fn credit_tile(viewer: &Viewer, spent: NanoUsd) -> Markup {
    let (credit, held) = (viewer.funds.credit, viewer.funds.held);
    html! {
        div.tile { dt { "Credit" } dd { (glance(credit))
            @if held > NanoUsd::ZERO { small { (glance(held)) " held by requests in flight" } }
            small { (lasts(credit, spent)) } } }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_how_long_credit_lasts() {
        let [nothing, dollar] = [NanoUsd::ZERO, NanoUsd::from_usd(1)];
        for (credit, said) in [
            (0, "no credit left"),
            (1, "ends tomorrow"),
            (5, "ends in 5 days"),
            (7, ""),
            (i64::from(u8::MAX), ""),
        ] {
            let page = warning(NanoUsd::from_usd(credit), NanoUsd::from_usd(30)).into_string();
            assert!(page.contains(said) && page.is_empty() == said.is_empty(), "{credit}: {page}");
        }
        assert_eq!(lasts(dollar, nothing), "Nothing is being spent");
        assert_eq!(lasts(dollar, NanoUsd::from_usd(15)), "At this rate it lasts 2 days");
        assert_eq!(lasts(nothing, dollar), "There is no credit");
    }
}
