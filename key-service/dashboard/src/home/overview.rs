//! The first page: what needs attention, credit, spend, requests and tokens; for a new account, the first steps.

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

/// Above this many days, "more than a year" is shown instead of a number.
const FAR: i64 = 365;

/// Shows the account at a glance. A lead is redirected to the group.
pub(crate) async fn show(
    State(app): State<App>,
    KeysViewer(mut viewer): KeysViewer,
    request: Request,
) -> Result<Response, Failure> {
    let reach = viewer.reach();
    if let Some(group) = reach.group {
        return Ok(Redirect::to(&format!("{GROUPS}/{group}")).into_response());
    }
    let (account, today, credit) = (viewer.signed_in.account, app.management.today(), viewer.funds.credit);
    let query = query(&request);
    let view = SpendView::of(&query, SpendScope::Account, today);
    let report = view.read(&app, reach).await?;
    // Recent spend, for the credit's tile here and for the days left that later pages show.
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

/// Warns if the credit is used up or soon will be. `spent` is the spend of the last [`DAYS`].
fn warning(credit: NanoUsd, spent: NanoUsd) -> Markup {
    let add = html! { a href="/dashboard/credit" { "See how to add credit" } };
    html! {
        @match days_left(credit, spent) {
            _ if credit <= NanoUsd::ZERO => p.problem { "There is no credit left. Requests are refused until credit is added. " (add) },
            Some(0) => p.note { "At the rate of the last " (DAYS) " days, the credit runs out today. " (add) },
            Some(1) => p.note { "At the rate of the last " (DAYS) " days, the credit runs out tomorrow. " (add) },
            Some(days) if days < SOON => p.note { "At the rate of the last " (DAYS) " days, the credit runs out in " (days) " days. " (add) },
            Some(_) | None => {},
        }
    }
}

/// Shows the steps to a first request. `key` is an active key, if there is one.
fn first_steps(viewer: &Viewer, key: Option<&ApiKey>) -> Markup {
    html! {
        section.card {
            h2 { "First steps" }
            ol.steps {
                @if viewer.funds.credit <= NanoUsd::ZERO {
                    li { a href="/dashboard/credit" { "Have an operator add credit" } "." }
                }
                @if key.is_none() {
                    @if viewer.is_owner() {
                        li { a.button.primary href="/dashboard/keys/new" { "Create an API key" } " with a spending limit." }
                    } @else { li { "Ask an owner to create an API key." } }
                }
                li { "Send a first request. "
                    @match key {
                        Some(key) => { "The page of " a href={ (KEYS) "/" (key.id.to_string()) "/use" } { (or_unnamed(&key.label)) } },
                        None => "The new key's page",
                    }
                    " has commands for curl, Python and Node.js." }
                li { "See its cost here." }
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

/// Says how long the credit lasts at the rate of the last [`DAYS`].
fn lasts(credit: NanoUsd, spent: NanoUsd) -> String {
    match days_left(credit, spent) {
        _ if credit <= NanoUsd::ZERO => "No credit left".into(),
        None => "No recent spend".into(),
        Some(0) => "Runs out today at this rate".into(),
        Some(1) => "Lasts 1 day at this rate".into(),
        Some(days) if days <= FAR => format!("Lasts {days} days at this rate"),
        Some(_) => "Lasts more than a year at this rate".into(),
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
            (1, "runs out tomorrow"),
            (5, "runs out in 5 days"),
            (7, ""),
            (i64::from(u8::MAX), ""),
        ] {
            let page = warning(NanoUsd::from_usd(credit), NanoUsd::from_usd(30)).into_string();
            assert!(page.contains(said) && page.is_empty() == said.is_empty(), "{credit}: {page}");
        }
        assert_eq!(lasts(dollar, nothing), "No recent spend");
        assert_eq!(lasts(dollar, NanoUsd::from_usd(15)), "Lasts 2 days at this rate");
        assert_eq!(lasts(nothing, dollar), "No credit left");
    }
}
