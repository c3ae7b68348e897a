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
    show::{aligned, count, duration, or_unnamed, time_to_second, usd},
    table::{Column, Table},
};
use key_service_store::store::JournalEntry;

/// Renders a table of requests. `keys` adds a column with the key; it is `None` if all requests have the same key.
pub(crate) fn table(requests: &[AnyRequest], keys: Option<&HashMap<KeyId, ApiKey>>) -> Markup {
    let mut columns = vec![Column::new(html! { "Time, " span data-zone="now" { "UTC" } }, "")];
    columns.extend(keys.map(|_| Column::new("Key", "wide-only")));
    columns.extend([("Model", "wide-only"), ("Outcome", "wide-only")].map(Column::from));
    columns.extend([
        Column::new("Tokens", "n wide-only").hint("Prompt tokens → output tokens"),
        Column::new("First token", "n wide-only").hint("Time to the first token of a stream"),
        Column::new("Total", "n wide-only").hint("Time to the end of the answer"),
        Column::new("Charged", "n"),
    ]);
    let rows = html! {
        @for request in requests {
            @match request {
                AnyRequest::Billed(entry) => (billed(entry, keys)),
                AnyRequest::Refused(call) => (not_billed(call, keys)),
            }
        }
    };
    Table::new("Requests", columns).body(&rows)
}

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

/// Renders the row of a refused request. The reason is a link to the page where its cause can be fixed.
fn not_billed(call: &RefusedCall, keys: Option<&HashMap<KeyId, ApiKey>>) -> Markup {
    let key = link(call.key, keys);
    let model = call.model.as_deref();
    html! {
        tr title=(title_of_refused(call)) {
            td { a href={ (ACTIVITY) "/" (call.id.to_string()) } { (time_to_second(call.at())) } p.narrow-only { @if let Some(key) = &key { (key) @if model.is_some() { " · " } } @if let Some(model) = model { (model) } } }
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

/// Returns the tooltip of a refused request: its ids.
fn title_of_refused(call: &RefusedCall) -> String {
    call.request().map_or_else(|| call.id.to_string(), |request| format!("{}, {request}", call.id))
}

/// Returns the tooltip of a billed request: its ids, and the kinds of tokens that have no column.
fn title(entry: &JournalEntry) -> String {
    let settlement = &entry.entry.settlement;
    let request = settlement.request().map(|request| request.to_string());
    let parts = parts(settlement.usage).map(|(tokens, name)| format!("{} {name}", count(tokens)));
    let texts = [entry.generation.to_string()].into_iter().chain(request).chain(parts);
    texts.collect::<Vec<_>>().join(", ")
}

/// Lists the kinds of tokens that were used, except prompt and output.
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

/// Returns whether the bill is exact and its whole cost was charged.
fn is_plain(entry: &JournalEntry) -> bool {
    let settlement = &entry.entry.settlement;
    settlement.ending == Ending::Captured
        && !settlement.estimated
        && settlement.cost == settlement.charged
        && entry.entry.delta == settlement.charged
}

/// Shows why the answer finished, and anything unusual about the bill.
fn outcome(entry: &JournalEntry) -> Markup {
    let settlement = &entry.entry.settlement;
    let finish_reason = settlement.course.as_deref().and_then(|course| course.finish_reason);
    html! {
        @match (settlement.ending, settlement.estimated) {
            (Ending::Captured, false) => { @if let Some(reason) = finish_reason { span.quiet { (reason.as_str()) } } },
            (Ending::Captured, true) => span.badge.expired { "estimated" },
            (Ending::Expired, _) => span.badge.expired title="The gateway was lost, so its last report was billed" { "recovered" },
            (Ending::Late, _) => span.badge.expired title="Arrived after the bills from that period were dropped, so it was not charged" { "late" },
        }
        @if entry.entry.delta != settlement.charged { " " span.badge { "correction" } }
        @if settlement.ending.is_bill() && settlement.cost > settlement.charged {
            " " span.badge.short title={ "It cost " (usd(settlement.cost)) } { "unpaid " (usd(settlement.shortfall())) }
        }
    }
}
