//! The table of requests, with a row for each.

use std::collections::HashMap;

use maud::{Markup, html};
use shared::{
    ids::KeyId,
    tokens::{Usage, UsageDetails},
};

use crate::refused;
use domain::{key::ApiKey, ledger::Ending, refused::RefusedCall};
use key_service_management::requests::AnyRequest;
use key_service_page::{
    paths::{ACTIVITY, KEYS},
    show::{aligned, count, duration, or_unnamed, scrolled_table, time_to_second, usd},
};
use key_service_store::store::JournalEntry;

/// Writes a table of requests, with their keys unless all belong to a single key.
pub(crate) fn table(requests: &[AnyRequest], keys: Option<&HashMap<KeyId, ApiKey>>) -> Markup {
    let head = html! {
        th scope="col" { "Time, " span data-zone="now" { "UTC" } } @if keys.is_some() { th.wide-only scope="col" { "Key" } }
        th.wide-only scope="col" { "Model" } th.wide-only scope="col" { "Outcome" }
        th.n.wide-only scope="col" title="Tokens of the prompt, and of the output" { "Tokens" }
        th.n.wide-only scope="col" title="Time until the first token of a stream" { "First token" }
        th.n.wide-only scope="col" title="Time until the end of the answer" { "Total" }
        th.n scope="col" { "Charged" }
    };
    let rows = html! {
        @for request in requests {
            @match request {
                AnyRequest::Billed(entry) => (billed(entry, keys)),
                AnyRequest::Refused(call) => (not_billed(call, keys)),
            }
        }
    };
    scrolled_table("Requests", &head, &rows)
}

/// Shows a key as a link.
fn link(key: KeyId, keys: Option<&HashMap<KeyId, ApiKey>>) -> Option<Markup> {
    let label = keys?.get(&key).map_or("", |key| &key.label);
    Some(html! { a href={ (KEYS) "/" (key.to_string()) } { (or_unnamed(label)) } })
}

fn billed(entry: &JournalEntry, keys: Option<&HashMap<KeyId, ApiKey>>) -> Markup {
    let settlement = &entry.entry.settlement;
    let (usage, course) = (settlement.usage, settlement.course.as_deref());
    let key = link(settlement.payer.key, keys);
    let tokens = html! { (count(usage.prompt)) " → " (count(usage.completion)) };
    let took =
        |of: Option<u64>| html! { @if let Some(of) = of { (duration(of)) } @else { span.quiet { "–" } } };
    html! {
        tr title=(title(entry)) {
            td { a href={ (ACTIVITY) "/" (entry.generation.to_string()) } { (time_to_second(settlement.at)) } p.narrow-only { @if let Some(key) = &key { (key) " · " } (settlement.payer.model) } }
            @if let Some(key) = &key { td.wide-only { (key) } }
            td.wide-only { (settlement.payer.model) }
            td.wide-only { (outcome(entry)) }
            td.n.wide-only { (tokens) }
            td.n.wide-only { (took(course.and_then(|course| course.first_token_ms))) }
            td.n.wide-only { (took(course.and_then(|course| course.latency_ms))) }
            td.n { (aligned(settlement.charged))
                p.narrow-only { @if is_plain(entry) { (tokens) } @else { (outcome(entry)) } } }
        }
    }
}

/// Writes the row of a refused request. It costs nothing and has no page, so its reason leads to what can be done.
fn not_billed(call: &RefusedCall, keys: Option<&HashMap<KeyId, ApiKey>>) -> Markup {
    let key = link(call.key, keys);
    let model = call.model.as_deref();
    html! {
        tr title=(title_of_refused(call)) {
            td { (time_to_second(call.at())) p.narrow-only { @if let Some(key) = &key { (key) @if model.is_some() { " · " } } @if let Some(model) = model { (model) } } }
            @if let Some(key) = &key { td.wide-only { (key) } }
            td.wide-only { @if let Some(model) = model { (model) } @else { span.quiet { "–" } } }
            td.wide-only colspan="4" { (reason(call)) }
            td.n { span.quiet { "–" } p.narrow-only { (reason(call)) } }
        }
    }
}

fn reason(call: &RefusedCall) -> Markup {
    html! { span.badge.short { "refused" } " " (refused::reason(&call.reason, &format!("{KEYS}/{}", call.key))) }
}

/// Writes the ids of a refused call and of its request.
fn title_of_refused(call: &RefusedCall) -> String {
    call.request().map_or_else(|| call.id.to_string(), |request| format!("{}, {request}", call.id))
}

/// Writes the ids of a generation and of its request, and the parts of its tokens that have no column.
fn title(entry: &JournalEntry) -> String {
    let settlement = &entry.entry.settlement;
    let request = settlement.request().map(|request| request.to_string());
    let parts = parts(settlement.usage).map(|(tokens, name)| format!("{} {name}", count(tokens)));
    let texts = [entry.generation.to_string()].into_iter().chain(request).chain(parts);
    texts.collect::<Vec<_>>().join(", ")
}

/// Lists the parts of a usage other than prompt and output, if above zero, with their names.
fn parts(usage: Usage) -> impl Iterator<Item = (u64, &'static str)> {
    let UsageDetails { cache_write, cache_write_long, audio_input, images, reasoning, audio_output } =
        usage.details;
    let parts = [
        (usage.cached, "from a cache"),
        (cache_write, "written to the cache"),
        (cache_write_long, "written to the cache for an hour"),
        (audio_input, "of audio in the prompt"),
        (images, "images"),
        (reasoning, "of reasoning"),
        (audio_output, "of audio in the output"),
    ];
    parts.into_iter().filter(|(tokens, _)| *tokens > 0)
}

/// Returns whether a bill is exact, and all of its cost was charged.
fn is_plain(entry: &JournalEntry) -> bool {
    let settlement = &entry.entry.settlement;
    settlement.ending == Ending::Captured
        && !settlement.estimated
        && settlement.cost == settlement.charged
        && entry.entry.delta == settlement.charged
}

/// Shows why the answer ended, and what is unusual about the bill.
fn outcome(entry: &JournalEntry) -> Markup {
    let settlement = &entry.entry.settlement;
    let finish_reason = settlement.course.as_deref().and_then(|course| course.finish_reason);
    html! {
        @match (settlement.ending, settlement.estimated) {
            (Ending::Captured, false) => { @if let Some(reason) = finish_reason { span.quiet { (reason.as_str()) } } },
            (Ending::Captured, true) => span.badge.expired { "estimated" },
            (Ending::Expired, _) => span.badge.expired { "expired" },
            (Ending::Late, _) => span.badge.expired title="Came after the bills of its time were dropped, so it was not charged" { "late" },
        }
        @if entry.entry.delta != settlement.charged { " " span.badge { "correction" } }
        @if settlement.ending.is_bill() && settlement.cost > settlement.charged {
            " " span.badge.short title={ "It cost " (usd(settlement.cost)) } { "shortfall " (usd(settlement.shortfall())) }
        }
    }
}
