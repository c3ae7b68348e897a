//! The page of an API key: limit, spend and settings.

use axum::{
    extract::{Path, State},
    response::Response,
};
use maud::{Markup, html};
use shared::money::NanoUsd;

use super::{
    Desk, activity, chart,
    events::PATH as EVENTS,
    failure::Failure,
    form::Fields,
    keys::{PATH, named},
    keys_form,
    layout::{Section, hidden, page},
    rotation,
    session::Viewer,
    show::{status, time, time_or, usd},
};
use crate::management::reading::EntrySearch;
use domain::key::{ApiKey, Status};

/// Latest generations shown.
const GENERATIONS: usize = 10;

/// Shows a key.
pub(super) async fn show(
    State(desk): State<Desk>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let key = named(&desk, &viewer, &id).await?;
    whole(&desk, &viewer, &key, None).await
}

/// The page, with the entered fields and the problem, if any.
pub(super) async fn whole(
    desk: &Desk,
    viewer: &Viewer,
    key: &ApiKey,
    wrong: Option<(&Fields, &str)>,
) -> Result<Response, Failure> {
    let (account, now) = (viewer.signed_in.account, desk.management.now());
    let today = desk.management.today();
    let spend = desk.management.spend_of(account, key.id).await?;
    let of_key = EntrySearch { key: Some(key.id), ..EntrySearch::default() };
    let entries = desk.management.find_entries(account, &of_key, None, GENERATIONS).await?;
    let may_change = viewer.is_owner() && key.status(now) != Status::Revoked;
    let content = html! {
        p.lead { (status(key.status(now))) " " code { (key.hint) } " · created " (time(key.created_at))
            " · last used " (time_or(key.spend.last_used_at, "never")) }
        (gauge(key))
        (keys_form::other_settings(key, now))
        section.card { h2 { "Spend by day" } (chart::by_day(&chart::by_model(&spend), today)) }
        @if may_change {
            section.card {
                h2 { "Settings" }
                form.stack method="post" action={ (PATH) "/" (key.id.to_string()) } {
                    (hidden(viewer))
                    @match wrong {
                        Some((entered, wrong)) => (keys_form::fields(entered, Some(wrong))),
                        None => (keys_form::fields(&keys_form::entered(key), None)),
                    }
                    div.buttons {
                        button.primary { "Save" }
                        a.button.danger href={ (PATH) "/" (key.id.to_string()) "/revoke" } { "Revoke" }
                    }
                }
            }
            @if key.status(now) == Status::Active { (rotation::form(desk, viewer, key)) }
        } @else {
            p.quiet { "Expires: " (time_or(key.spend.expires_at, "never"))
                @if let Some(at) = key.spend.revoked_at { " · revoked " (time(at)) } }
        }
        h2 { "Last generations" }
        @if entries.found.is_empty() { p.empty { "This key was not billed lately." } }
        @else { (activity::table(&entries.found, None)) }
        p { a href={ "/dashboard/activity?key=" (key.id.to_string()) } { "All of its activity" } " · "
            a href={ (EVENTS) "?key=" (key.id.to_string()) } { "Its events" } }
        p.quiet { "Id: " code { (key.id.to_string()) } }
    };
    let title = if key.label.is_empty() { "Key without a label" } else { &key.label };
    Ok(page(viewer, Section::Keys, title, &content))
}

/// Used, held and left of the limit.
fn gauge(key: &ApiKey) -> Markup {
    let (used, held) = (key.spend.budget.used, key.spend.budget.held);
    let left = key.spend.budget.limit.map(|limit| limit.left_after(used).left_after(held));
    html! {
        section.card.gauge {
            @if let Some(limit) = key.spend.budget.limit {
                @let part = |amount: NanoUsd| chart::scaled(amount, limit, 1000);
                svg viewBox="0 0 1000 14" preserveAspectRatio="none" aria-hidden="true" {
                    rect.used x="0" y="0" width=(part(used)) height="14" {}
                    rect.held x=(part(used)) y="0" width=(part(held)) height="14" {}
                }
            }
            ul.legend {
                li { i.used {} "Used " strong { (usd(used)) } }
                li { i.held {} "Held by requests in flight " strong { (usd(held)) } }
                @match left {
                    Some(left) => li { i.left {} "Left " strong { (usd(left)) } },
                    None => li { "No limit but the credit" },
                }
            }
        }
    }
}
