//! The page of a generation: what was requested, when each step happened, and what it cost.

use axum::response::Response;
use maud::{Markup, html};
use shared::{
    generation::{Course, Origin},
    ids::{GenerationId, GroupId},
    money::NanoUsd,
};

use domain::{
    ledger::{Ending, Settlement},
    pricing,
};
use key_service_page::{
    app::App,
    failure::Failure,
    form::{Fields, with},
    layout::{Section, page},
    paths::{ACTIVITY, GROUPS, KEYS},
    session::Viewer,
    show::{copyable, copyable_line, count, duration, or_unnamed, scrolled_figures, time_to_second, usd},
};

pub(super) async fn show(app: &App, viewer: &Viewer, id: &str) -> Result<Response, Failure> {
    let reach = viewer.reach();
    let id: GenerationId = id.parse().map_err(|_| Failure::NotFound)?;
    let bill = app.management.bill_in(reach, id).await?.ok_or(Failure::NotFound)?;
    let settlement = &bill.settlement;
    let key = settlement.payer.key;
    let keys = app.management.keys_by_id(reach, vec![key]).await?;
    let ids: Vec<GroupId> = settlement.payer.groups.into_iter().flatten().collect();
    let groups = app.management.groups_by_id(reach, ids.clone()).await?;
    let groups = ids.iter().filter_map(|id| groups.get(id));
    let content = html! {
        (copyable("Generation id", &id.to_string()))
        p.quiet { "Returned in the " code { "x-generation-id" } " response header." }
        @if let Some(request) = settlement.request() { (copyable_line("Request id", &request.to_string())) }
        @if let Some(course) = settlement.course.as_deref() { (timeline(course, settlement)) }
        h2 { "Request" }
        div.scroll.free.facts tabindex="0" role="region" aria-label="Request" {
            table { tbody {
                (row("Started", &time_to_second(id.created_at())))
                (row("Billed", &time_to_second(settlement.at)))
                (row("Key", &html! { a href={ (KEYS) "/" (key.to_string()) } {
                    (or_unnamed(keys.get(&key).map_or("", |key| &key.label))) } }))
                @for group in groups {
                    (row("Group", &html! { a href={ (GROUPS) "/" (group.id.to_string()) } { (or_unnamed(&group.name)) } }))
                }
                (row("Model", &html! { (settlement.payer.model) }))
                @if let Some(origin) = settlement.origin.as_deref() { (asked(origin)) }
                @if let Some(upstream) = settlement.upstream() { (row("Upstream", &all_of("upstream", upstream))) }
                @if let Some(reason) = settlement.course.as_deref().and_then(|course| course.finish_reason) {
                    (row("Finish reason", &html! { (reason.as_str()) }))
                }
                (row("Outcome", &html! { (outcome(settlement)) }))
            } }
        }
        h2 { "Cost" }
        (costs(app, settlement, viewer.is_owner()))
        p { a href={ (ACTIVITY) "?key=" (key.to_string()) } { "All requests of this key" } }
    };
    Ok(page(viewer, Section::Requests, &format!("Generation {id}"), &content))
}

pub(super) fn row(name: &str, value: &Markup) -> Markup {
    html! { tr { th scope="row" { (name) } td { (value) } } }
}

/// Shows a value as a link to all requests with that value.
fn all_of(field: &str, text: &str) -> Markup {
    html! { a href={ (ACTIVITY) "?" (with(&Fields::default(), field, text)) } { bdi { (text) } } }
}

/// Shows the API, whether the answer was streamed, and the user.
pub(super) fn asked(origin: &Origin) -> Markup {
    html! {
        (row("API", &html! { (origin.api.as_str()) @if origin.stream { ", streamed" } }))
        @if let Some(user) = &origin.user { (row("User", &all_of("user", user))) }
    }
}

/// Shows the steps of the request, each with the time since the request was accepted.
fn timeline(course: &Course, settlement: &Settlement) -> Markup {
    let Course { upstream, authorized_ms, first_token_ms, latency_ms, finish_reason: _, least_cost_nanos: _ } =
        course;
    let step = |at: Option<u64>, what: &Markup| {
        html! { @if let Some(at) = at { li { strong { (duration(at)) } " " (what) } } }
    };
    let asked =
        html! { "Authorized" @if let Some(upstream) = upstream { " and sent to " bdi { (upstream) } } };
    html! {
        h2 { "Timeline" }
        ol.course {
            (step(Some(0), &html! { "Accepted" }))
            (step(*authorized_ms, &asked))
            (step(*first_token_ms, &html! { "First token" }))
            (step(*latency_ms, &html! { "Finished"
                @if let Some(pace) = pace(course, settlement) { ", " (pace) " tokens per second" } }))
            @if latency_ms.is_none() { li { "The gateway was lost before the answer finished." } }
        }
    }
}

/// Returns the output tokens per second between the first token and the end, if both times are known.
fn pace(course: &Course, settlement: &Settlement) -> Option<u64> {
    let took = course.latency_ms?.checked_sub(course.first_token_ms?).filter(|took| *took > 0)?;
    Some(settlement.usage.completion.saturating_mul(1_000) / took)
}

/// Shows tokens and costs. The cost is split by kind of token if today's prices still yield the billed cost.
fn costs(app: &App, settlement: &Settlement, is_owner: bool) -> Markup {
    let Settlement { usage, cost, charged, upstream_cost, .. } = settlement;
    let upstream_cost = upstream_cost.filter(|_| is_owner);
    let catalog = app.catalog.get();
    let price = catalog.model(&settlement.payer.model).map(|model| &model.price);
    let price = price.filter(|price| pricing::cost(price, *usage) == *cost && !pricing::contradicts(*usage));
    let head = html! { th scope="col" { "Kind" } th.n scope="col" { "Tokens" } th.n scope="col" { "Cost" } };
    let rows = html! {
        @if let Some(price) = price {
            @for part in pricing::parts(price, *usage) {
                tr { th scope="row" { (part.kind) } td.n { (count(part.number)) } td.n { (usd(part.cost)) } }
            }
        } @else {
            tr { th scope="row" { "prompt" @if usage.cached > 0 { ", " (count(usage.cached)) " from a cache" } } td.n { (count(usage.prompt)) } td {} }
            tr { th scope="row" { "output" @if usage.details.reasoning > 0 { ", " (count(usage.details.reasoning)) " of reasoning" } } td.n { (count(usage.completion)) } td {} }
        }
        @if cost > charged {
            (sum("Cost", &html! { (usd(*cost)) }))
            (sum("Not billed: the limit or the credit was used up", &html! { span.badge.short { (usd(settlement.shortfall())) } }))
        }
        (sum("Charged", &html! { strong { (usd(*charged)) } }))
        @if let Some(upstream_cost) = upstream_cost {
            (sum("Upstream cost", &html! { (usd(upstream_cost)) }))
            (sum("Margin", &html! { (usd(NanoUsd::from_nanos(charged.nanos().saturating_sub(upstream_cost.nanos())))) }))
        }
    };
    scrolled_figures("Cost", &head, &rows)
}

fn sum(name: &str, amount: &Markup) -> Markup {
    html! { tr { th scope="row" { (name) } td {} td.n { (amount) } } }
}

/// Explains how the bill came about.
fn outcome(settlement: &Settlement) -> &'static str {
    match (settlement.ending, settlement.estimated) {
        (Ending::Captured, false) => "Billed exactly as the upstream counted",
        (Ending::Captured, true) => "Estimated: the upstream did not report the full usage",
        (Ending::Expired, _) => "Recovered: the gateway was lost, so its last report was billed",
        (Ending::Late, _) => "Not billed: the report arrived after the bills from that period were dropped",
    }
}
