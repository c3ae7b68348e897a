//! The journal: every generation with its cost, with filters and sums, and as a file.

use std::collections::HashMap;

use axum::{
    extract::{Request, State},
    response::{IntoResponse, Redirect, Response},
};
use maud::{Markup, html};
use shared::{
    ids::{GenerationId, GroupId, KeyId},
    time::Timestamp,
    tokens::{Usage, UsageDetails},
};

pub(super) use self::{
    export::cell as csv_cell,
    file::{csv, json_lines},
    generation::show as generation,
};
use crate::margin;
use domain::{group::Group, key::ApiKey, ledger::Ending, usage::Day};
use key_service_management::{
    reading::{EntrySearch, KeyOrder, KeySearch, Outcome},
    spend::{DAYS, EntrySums},
};
use key_service_page::{
    app::App,
    failure::Failure,
    form::{Fields, query, with},
    layout::{Section, page},
    pagination::{Pagination, ROWS_ON_PAGE, Shown},
    session::Viewer,
    show::{aligned, count, glance, name_of, or_unnamed, requests, short_count, time_to_second, usd},
};
use key_service_store::store::JournalEntry;

mod export;
mod file;
mod generation;

/// Path of this page.
pub(super) const PATH: &str = "/dashboard/activity";

/// Filters of the list. A page without them has the entries of the last [`DAYS`].
const FILTERS: [&str; 6] = ["key", "group", "model", "from", "to", "outcome"];
/// Keys to choose from where several match a text.
const CHOICES: usize = 10;

/// Minutes by which the clocks of a zone differ from UTC at most.
const MAX_OFFSET: i64 = 14 * 60;

/// Reads the filters of a query. Days are those of the zones that the query names by their offsets from UTC.
fn search(query: &Fields) -> Result<EntrySearch, Failure> {
    let key = query.filled("key").map(|id| id.parse::<KeyId>().map_err(|_| Failure::NotFound)).transpose()?;
    let group =
        query.filled("group").map(|id| id.parse::<GroupId>().map_err(|_| Failure::NotFound)).transpose()?;
    let midnight = |day: Day, offset| Timestamp::from_millis(day.millis().0 - offset * 60_000);
    let (from, to) = (query.filled("from").and_then(Day::parse), query.filled("to").and_then(Day::parse));
    Ok(EntrySearch {
        key,
        group,
        model: query.filled("model").map(str::to_owned),
        begins: from.map(|day| midnight(day, offset(query, "from_offset"))),
        ends: to.map(|day| midnight(day.plus(1), offset(query, "to_offset"))),
        outcome: Outcome::parse(query.get("outcome")),
        ..EntrySearch::default()
    })
}

/// Minutes east of UTC.
fn offset(query: &Fields, name: &str) -> i64 {
    let minutes = query.get(name).parse().ok().filter(|minutes| (-MAX_OFFSET..=MAX_OFFSET).contains(minutes));
    minutes.unwrap_or(0)
}

/// The query with a first day: where it names none, the first of the last [`DAYS`]; where it leaves the field empty, the day of
/// the oldest entry that is kept.
fn with_first_day(query: &Fields, today: Day, oldest: Option<&JournalEntry>) -> Fields {
    let first = match query.filled("from").and_then(Day::parse) {
        Some(_) => return query.clone(),
        None if query.has("from") => oldest.map_or(today, |entry| Day::of(entry.entry.settlement.at)),
        None => query.filled("to").and_then(Day::parse).unwrap_or(today).plus(1 - DAYS),
    };
    query.clone().with("from", first.to_string())
}

/// Shows the journal, newest first; or leads to the generation or the key that the filters name.
pub(super) async fn show(
    State(app): State<App>,
    viewer: Viewer,
    request: Request,
) -> Result<Response, Failure> {
    let query = query(&request);
    if let Some(id) = query.filled("generation") {
        return find_generation(&app, &viewer, &query, id).await;
    }
    match query.filled("key") {
        Some(text) if text.parse::<KeyId>().is_err() => find_key(&app, &viewer, &query, text).await,
        Some(_) | None => list(&app, &viewer, &query).await,
    }
}

/// Leads to the page of a generation, if there is one.
async fn find_generation(app: &App, viewer: &Viewer, query: &Fields, id: &str) -> Result<Response, Failure> {
    let account = viewer.signed_in.account;
    let known = match id.parse::<GenerationId>() {
        Ok(id) => app.management.bill(account, id).await?.map(|bill| bill.generation),
        Err(_) => None,
    };
    if let Some(id) = known {
        return Ok(Redirect::to(&format!("{PATH}/{id}")).into_response());
    }
    let content = html! {
        (filters(app, query, None, true))
        p.empty { "No generation with the id " code { (id) } " was billed. " a href=(PATH) { "Clear filters" } }
    };
    Ok(page(viewer, Section::Activity, "Activity", &content))
}

/// Leads to the entries of the key that matches a text, or to those of each that does.
async fn find_key(app: &App, viewer: &Viewer, query: &Fields, text: &str) -> Result<Response, Failure> {
    let (order, text) = (KeyOrder::Newest, text.to_owned());
    let search = KeySearch { order, text, limit: CHOICES, ..KeySearch::default() };
    let found = app.management.find_keys(viewer.signed_in.account, &search).await?;
    let address = |key: &ApiKey| format!("{PATH}?{}", with(query, "key", &key.id.to_string()));
    if let ([key], None) = (found.found.as_slice(), found.next) {
        return Ok(Redirect::to(&address(key)).into_response());
    }
    let content = html! {
        (filters(app, query, None, true))
        @if found.found.is_empty() {
            p.empty { "No keys match. " a href=(PATH) { "Clear filters" } }
        } @else {
            p { "Several keys match. Show the activity of:" }
            ul { @for key in &found.found { li { a href=(address(key)) { (or_unnamed(&key.label)) } " " code { (key.hint) } } } }
        }
    };
    Ok(page(viewer, Section::Activity, "Activity", &content))
}

async fn list(app: &App, viewer: &Viewer, asked: &Fields) -> Result<Response, Failure> {
    let account = viewer.signed_in.account;
    let journal = app.management.journal(account, 0, 1).await?;
    let oldest = journal.entries.first();
    let query = &with_first_day(asked, app.management.today(), oldest);
    let search = search(query)?;
    let pagination = Pagination::of(query)?;
    let before = pagination.after(|number| number.parse().ok())?;
    let found = app.management.find_entries(account, &search, before, ROWS_ON_PAGE).await?;
    let sums = app.management.sums_of_entries(account, &search).await?;
    let ids = found.found.iter().map(|entry| entry.entry.settlement.payer.key).chain(search.key);
    let keys = app.management.keys_by_id(account, ids.collect()).await?;
    let groups = app.management.groups_by_id(account, search.group.into_iter().collect()).await?;
    let group = search.group.and_then(|id| groups.get(&id));
    let is_filtered = FILTERS.iter().any(|name| asked.filled(name).is_some());
    // Entries are numbered, so that all of them are counted; not those of a part.
    let has_all =
        !is_filtered && oldest.is_none_or(|oldest| search.begins <= Some(oldest.entry.settlement.at));
    let total = found.found.first().filter(|_| has_all);
    let total = total.map(|first| pagination.total_of_numbered(first.number, journal.gone_until));
    let next = found.next.map(|next| next.to_string());
    let shown = Shown { rows: found.found.len(), total, next, is_filtered };
    let files = Pagination::without(query);
    let content = html! {
        p.lead { "Every generation that was billed, newest first."
            @if let Some(key) = search.key.and_then(|id| keys.get(&id)) { " Of the key " strong { (or_unnamed(&key.label)) } "." }
            @if let Some(group) = group { " Of the group " strong { bdi { (name_of(group)) } } "." } }
        (filters(app, query, group, !asked.has("from") && !asked.has("to")))
        div.split {
            (sums_line(query, sums))
            @if !found.found.is_empty() {
                nav.pages aria-label="Files" {
                    a href={ (PATH) ".csv?" (files) } { "Export CSV" }
                    a href={ (PATH) ".jsonl?" (files) } { "Export JSON" }
                }
            }
        }
        @if found.found.is_empty() { (nothing(is_filtered, oldest.is_some())) }
        @else { (table(&found.found, Some(&keys))) }
        (pagination.links(PATH, if asked.has("from") { query } else { asked }, &shown))
        p { (margin::link(&app.catalog.get(), viewer.is_owner())) }
    };
    Ok(page(viewer, Section::Activity, "Activity", &content))
}

/// Says that there is no entry, and where there may be some.
fn nothing(is_filtered: bool, has_older: bool) -> Markup {
    html! {
        p.empty {
            @if is_filtered { "Nothing matches. " a href=(PATH) { "Clear filters" } }
            @else if has_older { "Nothing was billed in the last " (DAYS) " days. " a href={ (PATH) "?from=" } { "Show all" } }
            @else { "Nothing was billed yet." }
        }
    }
}

/// Sums of the filters, and the days that are added up.
fn sums_line(query: &Fields, sums: Option<EntrySums>) -> Markup {
    let has_zone = offset(query, "from_offset") != 0 || offset(query, "to_offset") != 0;
    html! {
        @match sums {
            Some(EntrySums { days, sums }) => p role="status" {
                strong { (requests(sums.requests)) " · "
                    span title=(count(sums.tokens)) { (short_count(sums.tokens)) } " tokens · " (glance(sums.charged)) }
                span.quiet {
                    " from " (days.start().to_string()) " to " (days.end().to_string()) ", in UTC"
                    @if has_zone { ": sums are kept by whole days there" }
                }
            },
            None if query.filled("outcome").is_some() => p.quiet { "Sums are kept by day, key, group and model, not by outcome." },
            None => {},
        }
    }
}

/// The filters of a query; `group` is the group that it names.
fn filters(app: &App, query: &Fields, group: Option<&Group>, is_default: bool) -> Markup {
    let day = |name: &'static str, title: &'static str, offset_name: &'static str| {
        html! {
            label { span { (title) " (" span data-zone { (zone(offset(query, offset_name))) } ")" }
                input type="date" name=(name) value=(query.get(name)); }
            input type="hidden" name=(offset_name) value=(query.get(offset_name));
        }
    };
    html! {
        // A script takes days for those of the reader, unless the address says whose they are.
        form.filters method="get" action=(PATH) role="search" data-days=(if is_default { "reader" } else { "address" }) {
            label { "Key" input type="search" name="key" value=(query.get("key")) placeholder="Label or id"; }
            @if let Some(group) = group {
                label { "Group" select name="group" {
                    option value=(group.id) selected { (name_of(group)) } option value="" { "All" }
                } }
            }
            label { "Model" select name="model" {
                option value="" { "All" }
                @for model in &app.catalog.get().models {
                    option value=(model.id) selected[query.get("model") == model.id] { (model.id) }
                }
            } }
            (day("from", "From", "from_offset"))
            (day("to", "To", "to_offset"))
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

/// Name of a zone by its minutes east of UTC: `GMT+5:30`.
fn zone(minutes: i64) -> String {
    let (hours, rest) = (minutes.abs() / 60, minutes.abs() % 60);
    let sign = if minutes < 0 { '-' } else { '+' };
    match (minutes, rest) {
        (0, _) => "UTC".into(),
        (_, 0) => format!("GMT{sign}{hours}"),
        (_, rest) => format!("GMT{sign}{hours}:{rest:02}"),
    }
}

/// Writes a table of entries, with the keys of the entries; without keys, where all entries belong to a single key.
pub(super) fn table(entries: &[JournalEntry], keys: Option<&HashMap<KeyId, ApiKey>>) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Generations" {
            table {
                thead { tr {
                    th scope="col" { "Time, " span data-zone="now" { "UTC" } } @if keys.is_some() { th.wide-only scope="col" { "Key" } }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Fields {
        Fields::of_query(Some(text))
    }

    #[test]
    fn days_are_those_of_the_readers_zone() {
        let times = |text: &str| {
            let search = search(&query(text)).unwrap();
            [search.begins, search.ends].map(|at| at.map_or_else(String::new, |at| at.to_string()))
        };
        assert_eq!(times("from=2026-11-24&to=2026-11-24"), ["2026-11-24T00:00:00Z", "2026-11-25T00:00:00Z"]);
        let zurich = "from=2026-11-24&from_offset=60&to=2026-11-24&to_offset=60";
        assert_eq!(times(zurich), ["2026-11-23T23:00:00Z", "2026-11-24T23:00:00Z"]);
        let kiritimati = "from=2026-11-24&from_offset=840&to=2026-11-24&to_offset=840";
        assert_eq!(times(kiritimati), ["2026-11-23T10:00:00Z", "2026-11-24T10:00:00Z"]);
        // Summer begins and ends within the days.
        let summer = "from=2026-03-29&from_offset=60&to=2026-03-29&to_offset=120";
        assert_eq!(times(summer), ["2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"]);
        for wrong in ["from_offset=841", "from_offset=x", "from_offset=99999999999999999999"] {
            assert_eq!(times(&format!("from=2026-11-24&{wrong}"))[0], "2026-11-24T00:00:00Z", "{wrong}");
        }
        for (minutes, name) in [(0, "UTC"), (60, "GMT+1"), (-210, "GMT-3:30"), (840, "GMT+14")] {
            assert_eq!(zone(minutes), name);
        }
    }

    #[test]
    fn a_list_without_a_first_day_begins_with_the_last_days_and_says_so_in_its_field() {
        let today = Day::parse("2026-11-24").unwrap();
        let first = |text: &str| with_first_day(&query(text), today, None).get("from").to_owned();
        assert_eq!(first(""), "2026-10-26");
        assert_eq!(first("model=x&to=2020-01-30"), "2020-01-01");
        assert_eq!(first("from=2020-01-01"), "2020-01-01");
        assert_eq!(first("from="), "2026-11-24", "nothing was billed yet");
    }

    #[test]
    fn a_group_is_searched_for() {
        let id = GroupId::new(Timestamp::from_millis(0), [7; 10]);
        assert_eq!(search(&query(&format!("group={id}"))).unwrap().group, Some(id));
        assert!(search(&query("group=agents")).is_err(), "and a group that is none is not passed over");
    }
}
