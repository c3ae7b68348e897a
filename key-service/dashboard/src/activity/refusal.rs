//! The page of a refused request: what was asked for, why it was refused, and what to do.

use axum::response::Response;
use maud::html;
use shared::ids::RefusalId;

use crate::{
    activity::generation::{asked, row},
    refused::{self, explained},
};
use key_service_management::refusals::RefusedFilter;
use key_service_page::{
    app::App,
    failure::Failure,
    layout::{Section, page},
    paths::{ACTIVITY, KEYS},
    session::Viewer,
    show::{copyable, copyable_line, or_unnamed, time_to_second},
};
use key_service_settings::key_line::key_line;

/// Shows one of the latest refused requests. Older refused requests are no longer kept.
pub(super) async fn show(app: &App, viewer: &Viewer, id: RefusalId) -> Result<Response, Failure> {
    let reach = viewer.reach();
    let filter = RefusedFilter { within: reach.group, ..RefusedFilter::default() };
    let calls = app.management.refused_calls(reach.account, &filter).await?;
    let call = calls.into_iter().find(|call| call.id == id).ok_or(Failure::NotFound)?;
    let keys = app.management.keys_by_id(reach, vec![call.key]).await?;
    let key = keys.get(&call.key);
    let reached = match key {
        Some(key) => Some(app.management.reached_limits(reach, std::slice::from_ref(key), &[]).await?),
        None => None,
    };
    let path = format!("{KEYS}/{}", call.key);
    let content = html! {
        p.problem { "Refused: " (refused::reason(&call.reason, &path)) ". " (explained(&call.reason)) }
        (copyable("Refusal id", &id.to_string()))
        @if let Some(request) = call.request() { (copyable_line("Request id", &request.to_string())) }
        h2 { "Request" }
        div.scroll.free.facts tabindex="0" role="region" aria-label="Request" {
            table { tbody {
                (row("Refused", &time_to_second(call.at())))
                (row("Key", &html! { a href=(path) { (or_unnamed(key.map_or("", |key| &key.label))) } }))
                @if let Some(model) = &call.model { (row("Model", &html! { (model) })) }
                @if let Some(origin) = call.origin.as_deref() { (asked(origin)) }
                (row("Error code", &html! { code { (call.reason) } }))
            } }
        }
        h2 { "The key now" }
        @match (key, &reached) {
            (Some(key), Some(reached)) => (key_line(viewer, key, reached)),
            _ => p.quiet { "You can no longer see the key." },
        }
        p { a href={ (ACTIVITY) "?outcome=refused&key=" (call.key.to_string()) } { "All refused requests of this key" } }
    };
    Ok(page(viewer, Section::Requests, "Refused request", &content))
}
