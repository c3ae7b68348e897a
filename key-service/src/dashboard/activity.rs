//! The journal: every generation with its cost, with filters and sums, and as a file.

use std::collections::HashMap;

use axum::{
    extract::{Request, State},
    response::{IntoResponse, Redirect, Response},
};
use maud::{Markup, html};
use shared::{
    ids::{GenerationId, KeyId},
    tokens::{Usage, UsageDetails},
};

pub(super) use self::{
    export::cell as csv_cell,
    file::{Exports, csv, json_lines},
    generation::show as generation,
};
use super::{
    Desk,
    failure::Failure,
    form::{Fields, query, with},
    layout::{Section, page},
    margin,
    pagination::{Pagination, ROWS_ON_PAGE, Shown},
    session::Viewer,
    show::{aligned, count, glance, or_unnamed, requests, short_count, time_to_second, usd},
};
use crate::{
    management::{
        reading::{EntrySearch, KeyOrder, KeySearch, Outcome},
        spend::{DAYS, EntrySums},
    },
    store::JournalEntry,
};
use domain::{key::ApiKey, ledger::Ending, usage::Day};

mod export;
mod file;
mod generation;

/// Path of this page.
pub(super) const PATH: &str = "/dashboard/activity";

/// Keys to choose from where several match a text.
const CHOICES: usize = 10;

/// Reads the filters of a query.
fn search(query: &Fields) -> Result<EntrySearch, Failure> {
    let key = query.filled("key").map(|id| id.parse::<KeyId>().map_err(|_| Failure::NotFound)).transpose()?;
    Ok(EntrySearch {
        key,
        model: query.filled("model").map(str::to_owned),
        from: query.filled("from").and_then(Day::parse),
        to: query.filled("to").and_then(Day::parse),
        outcome: Outcome::parse(query.get("outcome")),
        ..EntrySearch::default()
    })
}

/// Shows the journal, newest first; or leads to the generation or the key that the filters name.
pub(super) async fn show(
    State(desk): State<Desk>,
    viewer: Viewer,
    request: Request,
) -> Result<Response, Failure> {
    let query = query(&request);
    if let Some(id) = query.filled("generation") {
        return find_generation(&desk, &viewer, &query, id).await;
    }
    match query.filled("key") {
        Some(text) if text.parse::<KeyId>().is_err() => find_key(&desk, &viewer, &query, text).await,
        Some(_) | None => list(&desk, &viewer, &query).await,
    }
}

/// Leads to the page of a generation, if there is one.
async fn find_generation(
    desk: &Desk,
    viewer: &Viewer,
    query: &Fields,
    id: &str,
) -> Result<Response, Failure> {
    let account = viewer.signed_in.account;
    let known = match id.parse::<GenerationId>() {
        Ok(id) => desk.management.bill(account, id).await?.map(|bill| bill.generation),
        Err(_) => None,
    };
    if let Some(id) = known {
        return Ok(Redirect::to(&format!("{PATH}/{id}")).into_response());
    }
    let content = html! {
        (filters(desk, query))
        p.empty { "No generation with the id " code { (id) } " was billed. " a href=(PATH) { "Clear filters" } }
    };
    Ok(page(viewer, Section::Activity, "Activity", &content))
}

/// Leads to the entries of the key that matches a text, or to those of each that does.
async fn find_key(desk: &Desk, viewer: &Viewer, query: &Fields, text: &str) -> Result<Response, Failure> {
    let (order, text) = (KeyOrder::Newest, text.to_owned());
    let search = KeySearch { order, text, limit: CHOICES, ..KeySearch::default() };
    let found = desk.management.find_keys(viewer.signed_in.account, &search).await?;
    let address = |key: &ApiKey| format!("{PATH}?{}", with(query, "key", &key.id.to_string()));
    if let ([key], None) = (found.found.as_slice(), found.next) {
        return Ok(Redirect::to(&address(key)).into_response());
    }
    let content = html! {
        (filters(desk, query))
        @if found.found.is_empty() {
            p.empty { "No keys match. " a href=(PATH) { "Clear filters" } }
        } @else {
            p { "Several keys match. Show the activity of:" }
            ul { @for key in &found.found { li { a href=(address(key)) { (or_unnamed(&key.label)) } " " code { (key.hint) } } } }
        }
    };
    Ok(page(viewer, Section::Activity, "Activity", &content))
}

async fn list(desk: &Desk, viewer: &Viewer, query: &Fields) -> Result<Response, Failure> {
    let (account, search) = (viewer.signed_in.account, search(query)?);
    let pagination = Pagination::of(query)?;
    let before = pagination.after(|number| number.parse().ok())?;
    let found = desk.management.find_entries(account, &search, before, ROWS_ON_PAGE).await?;
    let sums = desk.management.sums_of_entries(account, &search).await?;
    let ids = found.found.iter().map(|entry| entry.entry.settlement.payer.key).chain(search.key);
    let keys = desk.management.keys_by_id(account, ids.collect()).await?;
    let is_filtered = search != EntrySearch::default();
    let total = match found.found.first() {
        Some(first) if !is_filtered => {
            let gone = desk.management.journal(account, 0, 0).await?.gone_until;
            Some(pagination.total_of_numbered(first.number, gone))
        }
        Some(_) | None => None,
    };
    let next = found.next.map(|next| next.to_string());
    let shown = Shown { rows: found.found.len(), total, next, is_filtered };
    let files = Pagination::without(query);
    let content = html! {
        p.lead { "Every generation that was billed, newest first."
            @if let Some(key) = search.key.and_then(|id| keys.get(&id)) { " Of the key " strong { (or_unnamed(&key.label)) } "." } }
        (filters(desk, query))
        div.split {
            (sums_line(&search, sums))
            @if !found.found.is_empty() {
                nav.pages aria-label="Files" {
                    a href={ (PATH) ".csv?" (files) } { "Export CSV" }
                    a href={ (PATH) ".jsonl?" (files) } { "Export JSON" }
                }
            }
        }
        @if found.found.is_empty() {
            p.empty { @if !is_filtered { "Nothing was billed yet." } @else { "Nothing matches. " a href=(PATH) { "Clear filters" } } }
        } @else { (table(&found.found, Some(&keys))) }
        (pagination.links(PATH, query, &shown))
        p { (margin::link(&desk.catalog.get(), viewer.is_owner())) }
    };
    Ok(page(viewer, Section::Activity, "Activity", &content))
}

/// Sums of the filters, and the days that are added up.
fn sums_line(search: &EntrySearch, sums: Option<EntrySums>) -> Markup {
    html! {
        @match sums {
            Some(EntrySums { days, sums }) => p role="status" {
                strong { (requests(sums.requests)) " · "
                    span title=(count(sums.tokens)) { (short_count(sums.tokens)) } " tokens · " (glance(sums.charged)) }
                span.quiet {
                    @if search.from.is_none() && search.to.is_none() { " in the last " (DAYS) " days" }
                    @else { " from " (days.start().to_string()) " to " (days.end().to_string()) ", in UTC" }
                }
            },
            None if search.outcome.is_some() => p.quiet { "Sums are kept by day, key and model, not by outcome." },
            None => {},
        }
    }
}

fn filters(desk: &Desk, query: &Fields) -> Markup {
    html! {
        form.filters method="get" action=(PATH) role="search" {
            label { "Key" input type="search" name="key" value=(query.get("key")) placeholder="Label or id"; }
            label { "Model" select name="model" {
                option value="" { "All" }
                @for model in &desk.catalog.get().models {
                    option value=(model.id) selected[query.get("model") == model.id] { (model.id) }
                }
            } }
            label { "From (UTC)" input type="date" name="from" value=(query.get("from")); }
            label { "To (UTC)" input type="date" name="to" value=(query.get("to")); }
            label { "Outcome" select name="outcome" {
                option value="" { "All" }
                @for outcome in Outcome::ALL {
                    @let name = outcome.as_str();
                    option value=(name) selected[query.get("outcome") == name] { (name) }
                }
            } }
            label { "Generation" input type="search" name="generation" value=(query.get("generation")) placeholder="gen_…"; }
            button { "Apply" }
        }
    }
}

/// Writes a table of entries, with the keys of the entries; without keys, where all entries belong to a single key.
pub(super) fn table(entries: &[JournalEntry], keys: Option<&HashMap<KeyId, ApiKey>>) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Generations" {
            table {
                thead { tr {
                    th scope="col" { "Time" } @if keys.is_some() { th.wide-only scope="col" { "Key" } }
                    th.wide-only scope="col" { "Model" } th.n.wide-only scope="col" { "Prompt" }
                    th.n.wide-only scope="col" title="Part of the prompt that came from a cache" { "Cached" } th.n.wide-only scope="col" { "Output" }
                    th.n scope="col" { "Charged" } th.wide-only scope="col" { "Outcome" }
                } }
                tbody { @for entry in entries { (row(entry, keys)) } }
            }
        }
    }
}

fn row(entry: &JournalEntry, keys: Option<&HashMap<KeyId, ApiKey>>) -> Markup {
    let settlement = &entry.entry.settlement;
    let usage = settlement.usage;
    let key = keys.map(|keys| {
        let label = keys.get(&settlement.payer.key).map_or("", |key| &key.label);
        html! { a href={ "/dashboard/keys/" (settlement.payer.key.to_string()) } { (or_unnamed(label)) } }
    });
    html! {
        tr title=(title(entry)) {
            td { a href={ (PATH) "/" (entry.generation.to_string()) } { (time_to_second(settlement.at)) } p.narrow-only { @if let Some(key) = &key { (key) " · " } (settlement.payer.model) } }
            @if let Some(key) = &key { td.wide-only { (key) } }
            td.wide-only { (settlement.payer.model) }
            td.n.wide-only { (count(usage.prompt)) }
            td.n.wide-only { (count(usage.cached)) }
            td.n.wide-only { (count(usage.completion)) }
            td.n { (aligned(settlement.charged))
                p.narrow-only { @if is_plain(entry) { (count(usage.prompt)) " → " (count(usage.completion)) } @else { (outcome(entry)) } } }
            td.wide-only { (outcome(entry)) }
        }
    }
}

/// The id of a generation, and the parts of its tokens that have no column.
fn title(entry: &JournalEntry) -> String {
    let parts = parts(entry.entry.settlement.usage).map(|(tokens, name)| format!("{} {name}", count(tokens)));
    [entry.generation.to_string()].into_iter().chain(parts).collect::<Vec<_>>().join(", ")
}

/// Parts of a usage other than those with a column: counts above zero, with their names.
fn parts(usage: Usage) -> impl Iterator<Item = (u64, &'static str)> {
    let UsageDetails { cache_write, cache_write_long, audio_input, images, reasoning, audio_output } =
        usage.details;
    let parts = [
        (cache_write, "written to the cache"),
        (cache_write_long, "written to the cache for an hour"),
        (audio_input, "of audio in the prompt"),
        (images, "images"),
        (reasoning, "of reasoning"),
        (audio_output, "of audio in the output"),
    ];
    parts.into_iter().filter(|(tokens, _)| *tokens > 0)
}

/// Returns true for an exact bill that nothing is missing from.
fn is_plain(entry: &JournalEntry) -> bool {
    let settlement = &entry.entry.settlement;
    settlement.ending == Ending::Captured
        && !settlement.estimated
        && settlement.cost == settlement.charged
        && entry.entry.delta == settlement.charged
}

fn outcome(entry: &JournalEntry) -> Markup {
    let settlement = &entry.entry.settlement;
    html! {
        @match (settlement.ending, settlement.estimated) {
            (Ending::Captured, false) => {},
            (Ending::Captured, true) => span.badge.expired { "estimated" },
            (Ending::Expired, _) => span.badge.expired { "expired" },
        }
        @if entry.entry.delta != settlement.charged { " " span.badge { "correction" } }
        @if settlement.cost > settlement.charged {
            " " span.badge.short title={ "It cost " (usd(settlement.cost)) } { "shortfall " (usd(settlement.shortfall())) }
        }
    }
}
