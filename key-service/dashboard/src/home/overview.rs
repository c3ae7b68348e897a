//! The first page: figures of a range, what needs attention, and who spent the most; for a new account, the first
//! steps.

use axum::{
    extract::{Request, State},
    response::{IntoResponse, Redirect, Response},
};
use maud::{Markup, html};
use shared::money::NanoUsd;

use crate::{
    home::{
        jumps,
        trouble::{self, AccountAlarms},
    },
    webhooks,
};
use domain::{
    alarm::AlarmCounts,
    key::{ApiKey, Status},
    usage::permille,
};
use key_service_management::{accounts::SOON, members::SignedIn, reading::KeySearch};
use key_service_page::{
    app::App,
    chart::Measure,
    failure::Failure,
    form::{PageAddress, query},
    layout::{Section, page},
    notice,
    paths::{GROUPS, HOME, KEYS},
    session::{Act, KeysViewer, Viewer},
    show::{count, glance, or_unnamed},
};
use key_service_ranges::{
    list,
    spend::{SpendReport, SpendScope, SpendView},
};

/// Number of days above which "more than a year" is shown instead of a number.
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
    let (account, today, credit) = (viewer.signed_in.account, viewer.today(&app), viewer.funds.credit);
    let query = query(&request);
    let view = SpendView::of(&query, SpendScope::Account, &today);
    let report = view.read(&app, reach).await?;
    // The spend rate determines the runway on this page, and the days left that later pages show.
    viewer.days_left = app.management.spend_rate(account).await?.days_left(credit);
    let was_used = !app.management.top_keys(account, 1).await?.is_empty();
    let jumps = jumps::sentences(&app, reach).await?;
    let top = list::top_parts(&app, reach, &view, &query, &report).await?;
    let trouble = app.management.trouble(reach).await?;
    let refused = app.management.refused_on(account, &view.range.summed()).await?;
    let alarms = AccountAlarms {
        webhooks: webhooks::failed(&app.management.webhooks(account).await?),
        muted: app.management.muted_alarms(account, viewer.signed_in.member.id).await?,
    };
    let newest = KeySearch { status: Some(Status::Active), limit: 1, ..KeySearch::default() };
    let newest = if was_used { Vec::new() } else { app.management.find_keys(reach, &newest).await?.found };
    let was_refused = trouble.refused.today.iter().any(|(reason, _)| reason == "insufficient_credits");
    let credit_tiles = credit_tiles(&viewer, was_refused);
    let more = html! { (requests_tiles(&view, &report, refused)) (credit_tiles) };
    let content = html! {
        (empty(credit))
        (view.range.choice(&app, HOME, &query))
        (view.tiles(&report, today.day, Some(&more)))
        (runs_out(credit, viewer.days_left))
        (jumps)
        (trouble::strip(&viewer, &trouble, app.management.now(), Some(&alarms)))
        @if !was_used { (first_steps(&viewer, newest.first())) }
        div.with-table {
            (view.card(&app, reach, PageAddress { path: HOME, query: &query }, &report).await?)
            (top)
        }
    };
    Ok(page(&viewer, Section::Overview, "Overview", &content))
}

/// Mutes the alarms that the page showed, for this member. Each stays hidden for a week, or until its count rises.
pub(crate) async fn mute(State(app): State<App>, Act { viewer, form }: Act) -> Result<Response, Failure> {
    let shown = AlarmCounts::parse(form.get("alarms")).unwrap_or_default();
    let SignedIn { account, member, .. } = &viewer.signed_in;
    let muted = app.management.muted_alarms(*account, member.id).await?;
    let counts = muted.map(|muted| muted.counts).unwrap_or_default().with(&shown);
    app.management.mute_alarms(*account, member.id, &counts).await?;
    Ok(notice::done(&viewer, HOME, "Muted for a week. An alarm reappears earlier if its count rises."))
}

pub(crate) async fn unmute(State(app): State<App>, Act { viewer, .. }: Act) -> Result<Response, Failure> {
    let SignedIn { account, member, .. } = &viewer.signed_in;
    app.management.unmute_alarms(*account, member.id).await?;
    Ok(notice::done(&viewer, HOME, "All alarms are shown again."))
}

fn see_credit() -> Markup {
    html! { a href="/dashboard/credit" { "See how to add credit" } }
}

/// Shows that the credit is used up, if it is.
fn empty(credit: NanoUsd) -> Markup {
    html! {
        @if credit <= NanoUsd::ZERO {
            p.problem { "There is no credit left. Requests are refused until credit is added. " (see_credit()) }
        }
    }
}

/// Warns if the credit will soon be used up.
fn runs_out(credit: NanoUsd, days_left: Option<i64>) -> Markup {
    let note = |when: &str| html! { p.note { "At the recent rate, the credit runs out " (when) ". " (see_credit()) } };
    match days_left.filter(|days| credit > NanoUsd::ZERO && *days < SOON) {
        None => html! {},
        Some(0) => note("today"),
        Some(1) => note("tomorrow"),
        Some(days) => note(&format!("in {days} days")),
    }
}

/// Renders tiles for the range's requests and the share that was refused.
fn requests_tiles(view: &SpendView, report: &SpendReport, refused: Option<u64>) -> Markup {
    let (total, before) = (report.total(), report.total_before());
    let other = if view.measure == Measure::Requests { Measure::Spend } else { Measure::Requests };
    let (now, before) = (other.of(total), other.of(before));
    let refused = refused.map(|refused| (refused, total.requests.saturating_add(refused)));
    let share = refused.and_then(|(refused, all)| permille(refused.cast_signed(), all.cast_signed()));
    html! {
        div.tile { dt { (other.title()) } dd { (other.glance(now))
            small { (view.range.compared(now, before)) } } }
        @if let (Some((refused, _)), Some(share)) = (refused, share) {
            div.tile { dt { "Refused" } dd { (share / 10) "." (share % 10) " %"
                small { (count(refused)) @if refused == 1 { " request" } @else { " requests" } } } }
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

/// Renders tiles for the credit and how long it lasts.
fn credit_tiles(viewer: &Viewer, was_refused: bool) -> Markup {
    let (credit, held) = (viewer.funds.credit, viewer.funds.held);
    html! {
        div.tile { dt { "Credit" } dd { (glance(credit))
            @if held > NanoUsd::ZERO { small { (glance(held)) " held by requests in flight" } } } }
        div.tile { dt { "Runway" } dd { (runway(credit, viewer.days_left, was_refused)) small { "at the recent rate" } } }
    }
}

/// Writes how long the credit lasts. `was_refused` means that the credit was too small for a request today.
fn runway(credit: NanoUsd, days_left: Option<i64>, was_refused: bool) -> String {
    match days_left {
        _ if credit <= NanoUsd::ZERO => "No credit left".into(),
        Some(0) if was_refused => "Out of credit".into(),
        None => "No recent spend".into(),
        Some(0) => "Less than a day".into(),
        Some(1) => "1 day".into(),
        Some(days) if days <= FAR => format!("{days} days"),
        Some(_) => "More than a year".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_how_long_credit_lasts() {
        let [nothing, dollar] = [NanoUsd::ZERO, NanoUsd::from_usd(1)];
        assert!(
            empty(nothing).into_string().contains("no credit left") && empty(dollar).into_string().is_empty()
        );
        for (credit, days, said) in [
            (nothing, Some(0), ""),
            (dollar, Some(0), "runs out today"),
            (dollar, Some(1), "runs out tomorrow"),
            (dollar, Some(5), "runs out in 5 days"),
            (dollar, Some(7), ""),
            (dollar, None, ""),
        ] {
            let page = runs_out(credit, days).into_string();
            assert!(page.contains(said) && page.is_empty() == said.is_empty(), "{days:?}: {page}");
        }
        for (credit, days, was_refused, said) in [
            (nothing, Some(3), false, "No credit left"),
            (dollar, Some(0), true, "Out of credit"),
            (dollar, Some(0), false, "Less than a day"),
            (dollar, Some(48), true, "48 days"),
            (dollar, Some(400), false, "More than a year"),
            (dollar, None, false, "No recent spend"),
        ] {
            assert_eq!(runway(credit, days, was_refused), said);
        }
    }
}
