//! The journal: every generation with its cost, with filters, and as a file.

use std::{collections::HashMap, sync::Arc};

use axum::{
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream::try_unfold;
use http::header;
use maud::{Markup, html};
use shared::{
    admission::{Owner, Permit, Quota},
    ids::{AccountId, KeyId},
    tokens::UsageDetails,
};

use super::{
    Desk,
    failure::Failure,
    form::{Fields, query, with},
    layout::{Section, page},
    margin,
    session::Viewer,
    show::{aligned, count, or_unnamed, time_to_second, usd},
};
use crate::{
    management::{
        Management,
        reading::{EntrySearch, Outcome},
    },
    store::{JournalEntry, StoreError},
};
use domain::{key::ApiKey, ledger::Ending, usage::Day};
use export::Lines;

mod export;

/// Path of this page.
pub(super) const PATH: &str = "/dashboard/activity";

/// Entries on a page.
const ENTRIES_ON_PAGE: usize = 50;
/// Entries read at a time for a file.
const ENTRIES_IN_PIECE: usize = 500;

/// Reads the filters of a query.
fn search(query: &Fields) -> Result<EntrySearch, Failure> {
    let key = query.filled("key").map(|id| id.parse::<KeyId>().map_err(|_| Failure::NotFound)).transpose()?;
    Ok(EntrySearch {
        key,
        model: query.filled("model").map(str::to_owned),
        day: query.filled("day").and_then(Day::parse),
        outcome: Outcome::parse(query.get("outcome")),
        ..EntrySearch::default()
    })
}

/// Shows the journal, newest first.
pub(super) async fn show(
    State(desk): State<Desk>,
    viewer: Viewer,
    request: Request,
) -> Result<Response, Failure> {
    let (query, account) = (query(&request), viewer.signed_in.account);
    let search = search(&query)?;
    let before = query.filled("before").and_then(|number| number.parse().ok());
    let found = desk.management.find_entries(account, &search, before, ENTRIES_ON_PAGE).await?;
    let ids: Vec<KeyId> =
        found.found.iter().map(|entry| entry.entry.settlement.payer.key).chain(search.key).collect();
    let keys = desk.management.keys_by_id(account, ids).await?;
    let files = with(&query, "before", "");
    let content = html! {
        p.lead { "Every generation that was billed, newest first." }
        (filters(&desk, &query, search.key.and_then(|id| keys.get(&id))))
        @if found.found.is_empty() {
            p.empty { @if files.is_empty() { "Nothing was billed yet." } @else { "Nothing matches. " a href=(PATH) { "Clear filters" } } }
        } @else { (table(&found.found, Some(&keys))) }
        nav.pages aria-label="Pages" {
            @if before.is_some() { a.button href={ (PATH) "?" (files) } { "First page" } }
            @if let Some(next) = found.next {
                a.button href={ (PATH) "?" (with(&query, "before", &next.to_string())) } {
                    @if found.found.len() < ENTRIES_ON_PAGE { "Search further" } @else { "Next page" }
                }
            }
            a href={ (PATH) ".csv?" (files) } { "Export CSV" }
            a href={ (PATH) ".jsonl?" (files) } { "Export JSON" }
            (margin::link(&desk.catalog.get(), viewer.is_owner()))
        }
    };
    Ok(page(&viewer, Section::Activity, "Activity", &content))
}

fn filters(desk: &Desk, query: &Fields, key: Option<&ApiKey>) -> Markup {
    html! {
        form.filters method="get" action=(PATH) role="search" {
            @if let Some(key) = key {
                label { "Key" select name="key" {
                    option value=(key.id.to_string()) selected { (or_unnamed(&key.label)) }
                    option value="" { "All" }
                } }
            }
            label { "Model" select name="model" {
                option value="" { "All" }
                @for model in &desk.catalog.get().models {
                    option value=(model.id) selected[query.get("model") == model.id] { (model.id) }
                }
            } }
            label { "Day" input type="date" name="day" value=(query.get("day")); }
            label { "Outcome" select name="outcome" {
                option value="" { "All" }
                @for outcome in Outcome::ALL {
                    @let name = outcome.as_str();
                    option value=(name) selected[query.get("outcome") == name] { (name) }
                }
            } }
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
                    th.n.wide-only scope="col" title="Part of the prompt that came from a cache" { "of it cached" } th.n.wide-only scope="col" { "Output" }
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
            td { (time_to_second(settlement.at)) p.narrow-only { @if let Some(key) = &key { (key) " · " } (settlement.payer.model) } }
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
    let UsageDetails { cache_write, cache_write_long, audio_input, images, reasoning, audio_output } =
        entry.entry.settlement.usage.details;
    let parts = [
        (cache_write, "written to the cache"),
        (cache_write_long, "written to the cache for an hour"),
        (audio_input, "of audio in the prompt"),
        (images, "images"),
        (reasoning, "of reasoning"),
        (audio_output, "of audio in the output"),
    ];
    let parts = parts.into_iter().filter(|(tokens, _)| *tokens > 0);
    let parts = parts.map(|(tokens, name)| format!("{} {name}", count(tokens)));
    [entry.generation.to_string()].into_iter().chain(parts).collect::<Vec<_>>().join(", ")
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

/// The form of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// A table for spreadsheets.
    Csv,
    /// A JSON object a line.
    JsonLines,
}

/// Streams the entries that match, as a table.
pub(super) async fn csv(desk: State<Desk>, viewer: Viewer, request: Request) -> Result<Response, Failure> {
    file(desk, &viewer, &request, Format::Csv)
}

/// Streams the entries that match, an object a line.
pub(super) async fn json_lines(
    desk: State<Desk>,
    viewer: Viewer,
    request: Request,
) -> Result<Response, Failure> {
    file(desk, &viewer, &request, Format::JsonLines)
}

/// Exports under way in this process: each reads the journal for as long as its client takes.
const EXPORTS_AT_ONCE: usize = 16;
/// Simultaneous exports of an account.
const EXPORTS_PER_ACCOUNT: usize = 2;

/// The quota of exports. Cheap to clone.
#[derive(Clone)]
pub(super) struct Exports(Quota);

impl Exports {
    pub(super) fn new() -> Self {
        Self(Quota::new(EXPORTS_AT_ONCE, EXPORTS_PER_ACCOUNT))
    }

    fn begin(&self, account: AccountId) -> Result<Permit, Failure> {
        self.0.try_take(Owner::Account(account), 1).ok_or(Failure::TooManyExports)
    }
}

/// The rest of a file, still to be sent.
struct Rest {
    _permit: Permit,
    management: Arc<Management>,
    account: AccountId,
    search: EntrySearch,
    format: Format,
    lines: Lines,
    before: Option<u64>,
    labels: HashMap<KeyId, String>,
    is_first: bool,
}

fn file(
    State(desk): State<Desk>,
    viewer: &Viewer,
    request: &Request,
    format: Format,
) -> Result<Response, Failure> {
    let rest = Rest {
        _permit: desk.exports.begin(viewer.signed_in.account)?,
        management: desk.management,
        account: viewer.signed_in.account,
        search: search(&query(request))?,
        format,
        lines: Lines { with_upstream_cost: viewer.is_owner() },
        before: None,
        labels: HashMap::new(),
        is_first: true,
    };
    let (content_type, name) = match format {
        Format::Csv => ("text/csv; charset=utf-8", "attachment; filename=\"activity.csv\""),
        Format::JsonLines => ("application/jsonl; charset=utf-8", "attachment; filename=\"activity.jsonl\""),
    };
    let headers = [(header::CONTENT_TYPE, content_type), (header::CONTENT_DISPOSITION, name)];
    Ok((headers, Body::from_stream(try_unfold(Some(rest), Rest::next_piece))).into_response())
}

impl Rest {
    /// The next piece of the file, as fast as the client reads; a store that fails cuts the connection, so that no part is
    /// taken for the whole.
    async fn next_piece(rest: Option<Self>) -> Result<Option<(Bytes, Option<Self>)>, StoreError> {
        let Some(mut rest) = rest else { return Ok(None) };
        let (management, account) = (rest.management.clone(), rest.account);
        let page = management.find_entries(account, &rest.search, rest.before, ENTRIES_IN_PIECE).await?;
        let unknown = page.found.iter().map(|entry| entry.entry.settlement.payer.key);
        let unknown: Vec<KeyId> = unknown.filter(|id| !rest.labels.contains_key(id)).collect();
        let keys = management.keys_by_id(account, unknown).await?;
        rest.labels.extend(keys.into_iter().map(|(id, key)| (id, key.label)));
        let mut piece = String::new();
        if rest.is_first && rest.format == Format::Csv {
            piece.push_str(&rest.lines.csv_head());
        }
        rest.is_first = false;
        for entry in &page.found {
            let label = rest.labels.get(&entry.entry.settlement.payer.key).map_or("", String::as_str);
            match rest.format {
                Format::Csv => rest.lines.csv(&mut piece, entry, label),
                Format::JsonLines => rest.lines.json(&mut piece, entry, label),
            }
        }
        rest.before = page.next;
        let left = rest.before.is_some().then_some(rest);
        Ok(Some((Bytes::from(piece), left)))
    }
}

#[cfg(test)]
mod tests {
    use shared::clock::System;

    use super::*;

    #[test]
    fn an_account_loads_two_files_at_a_time_and_others_have_places_of_their_own() {
        let exports = Exports::new();
        let (one, other) = (AccountId::generate(&System), AccountId::generate(&System));
        let first = [exports.begin(one).unwrap(), exports.begin(one).unwrap()];
        assert!(matches!(exports.begin(one), Err(Failure::TooManyExports)));
        assert!(exports.begin(other).is_ok());
        drop(first);
        let accounts = (0..EXPORTS_AT_ONCE).map(|_| AccountId::generate(&System));
        let all: Vec<_> = accounts.map(|account| exports.begin(account).unwrap()).collect();
        assert!(exports.begin(one).is_err());
        drop(all);
        assert!(exports.begin(one).is_ok());
    }
}
