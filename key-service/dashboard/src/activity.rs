//! Requests: billed generations and the latest refused calls, with filters, totals and export.

use std::time::Duration;

use axum::{
    extract::{Path, Request, State},
    response::{IntoResponse, Redirect, Response},
};
use maud::{Markup, html};
use shared::{
    ids::{GenerationId, GroupId, KeyId, RefusalId, RequestId},
    money::NanoUsd,
    time::Timestamp,
};

use self::filters::Named;
pub(super) use self::{
    file::{csv, json_lines},
    table::table,
};
use domain::{key::ApiKey, refused::RefusedSearch, search::EntrySearch, usage::Hour};
use key_service_management::{
    entries::EntrySums,
    reach::AccountReach,
    reading::{KeyOrder, KeySearch},
    refusals::RefusedFilter,
    requests::{AnyRequest, RequestCursor, RequestSearch},
    spend::DAYS,
};
use key_service_page::{
    app::App,
    failure::Failure,
    form::{Fields, PageAddress, RANGE_FIELDS, query, with},
    layout::{Section, page},
    pagination::{Pagination, ROWS_ON_PAGE, Shown},
    paths::ACTIVITY as PATH,
    session::{KeysViewer, Viewer},
    show::{count, glance, name_of, or_unnamed, requests, short_count},
    zone::{Today, Zone},
};
use key_service_ranges::range::Range;

mod export;
mod file;
mod filters;
mod generation;
mod refusal;
mod table;

/// Number of latest requests on the page of a key or a group.
const LATEST: usize = 10;

/// Maximum number of keys to choose from if several match a text.
const CHOICES: usize = 10;

/// Shows the requests, newest first, or redirects to the generation that the filters name.
pub(super) async fn show(
    State(app): State<App>,
    KeysViewer(viewer): KeysViewer,
    request: Request,
) -> Result<Response, Failure> {
    let query = query(&request);
    if let Some(id) = query.filled("generation") {
        return find_generation(&app, &viewer, &query, id).await;
    }
    if let Some(id) = query.filled("request").filter(|id| id.parse::<RequestId>().is_err()) {
        return Ok(no_request(&app, &viewer, &query, id));
    }
    match query.filled("key") {
        Some(text) if text.parse::<KeyId>().is_err() => find_key(&app, &viewer, &query, text).await,
        Some(_) | None => list(&app, &viewer, &query).await,
    }
}

/// Shows a billed generation or a refused request.
pub(super) async fn one(
    State(app): State<App>,
    KeysViewer(viewer): KeysViewer,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    match id.parse::<RefusalId>() {
        Ok(refusal) => refusal::show(&app, &viewer, refusal).await,
        Err(_) => generation::show(&app, &viewer, &id).await,
    }
}

/// Redirects to the page of a generation, if it exists.
async fn find_generation(app: &App, viewer: &Viewer, query: &Fields, id: &str) -> Result<Response, Failure> {
    let known = match id.parse::<GenerationId>() {
        Ok(id) => app.management.bill_in(viewer.reach(), id).await?.map(|bill| bill.generation),
        Err(_) => None,
    };
    if let Some(id) = known {
        return Ok(Redirect::to(&format!("{PATH}/{id}")).into_response());
    }
    let content = html! {
        (filters::form(app, &viewer.browser.zone(), query, Named::default()))
        p.empty { "No generation with the id " code { (id) } " was billed. " a href=(PATH) { "Clear filters" } }
    };
    Ok(page(viewer, Section::Requests, "Requests", &content))
}

/// Explains that a text is not the id of a request.
fn no_request(app: &App, viewer: &Viewer, query: &Fields, text: &str) -> Response {
    let content = html! {
        (filters::form(app, &viewer.browser.zone(), query, Named::default()))
        p.empty { code { (text) } " is not a request id. Each answer has its request id in the header " code { "x-request-id" } ". " a href=(PATH) { "Clear filters" } }
    };
    page(viewer, Section::Requests, "Requests", &content)
}

/// Redirects to the requests of the key whose label matches a text, or offers a choice if several do.
async fn find_key(app: &App, viewer: &Viewer, query: &Fields, text: &str) -> Result<Response, Failure> {
    let (order, text) = (KeyOrder::Newest, text.to_owned());
    let search = KeySearch { order, text, limit: CHOICES, ..KeySearch::default() };
    let found = app.management.find_keys(viewer.reach(), &search).await?;
    let address = |key: &ApiKey| format!("{PATH}?{}", with(query, "key", &key.id.to_string()));
    if let ([key], None) = (found.found.as_slice(), found.next) {
        return Ok(Redirect::to(&address(key)).into_response());
    }
    let content = html! {
        (filters::form(app, &viewer.browser.zone(), query, Named::default()))
        @if found.found.is_empty() {
            p.empty { "No keys match. " a href=(PATH) { "Clear filters" } }
        } @else {
            p { "Several keys match. Show the requests of:" }
            ul { @for key in &found.found { li { a href=(address(key)) { (or_unnamed(&key.label)) } " " code { (key.hint) } } } }
        }
    };
    Ok(page(viewer, Section::Requests, "Requests", &content))
}

async fn list(app: &App, viewer: &Viewer, asked: &Fields) -> Result<Response, Failure> {
    let (account, reach) = (viewer.signed_in.account, viewer.reach());
    let journal = app.management.journal(account, 0, 1).await?;
    // A group cannot have bills from before it existed, so for a lead, the oldest day is the day of the group's
    // creation.
    let oldest = journal.entries.first().map(|entry| entry.entry.settlement.at);
    let oldest = reach.group.map(|group| group.created_at()).or(oldest);
    let today = viewer.today(app);
    let range = Range::of(asked, &today);
    let query = &filters::with_days(asked, &range, &today, oldest);
    let search = filters::search(query, &today.zone)?;
    let pagination = Pagination::of(query)?;
    let after = pagination.after(RequestCursor::parse)?.unwrap_or_default();
    let found = app.management.find_requests(reach, &search, after, ROWS_ON_PAGE).await?;
    let sums = sums_until_tomorrow(app, reach, &today, search.billed.as_ref()).await?;
    let compared = match (&sums, &search.billed) {
        (Some(sums), Some(billed)) => compared(app, reach, &range, sums, billed).await?,
        (None, _) | (_, None) => None,
    };
    let of_key: Option<KeyId> = query.get("key").parse().ok();
    let of_group: Option<GroupId> = query.get("group").parse().ok();
    let ids = found.found.iter().map(key_of).chain(of_key);
    let keys = app.management.keys_by_id(reach, ids.collect()).await?;
    let groups = app.management.groups_by_id(reach, of_group.into_iter().collect()).await?;
    let group = of_group.and_then(|id| groups.get(&id));
    let is_filtered = filters::are_any(asked);
    let next = found.next.map(|next| next.to_string());
    // Entries are numbered, so the total is known unless filters leave out some entries.
    let begins = search.billed.as_ref().and_then(|billed| billed.begins);
    let is_whole = !is_filtered && reach.group.is_none();
    let has_all = is_whole && oldest.is_none_or(|oldest| begins <= Some(oldest));
    let total = if has_all {
        let newest = app.management.latest_entries(account, None, 1).await?;
        let billed = newest.first().map_or(0, |newest| newest.number.saturating_sub(journal.gone_until));
        Some(billed + found.refused as u64)
    } else {
        None
    };
    let shown = Shown { rows: found.found.len(), total, next, is_filtered };
    let content = html! {
        p.lead { "All billed requests and the last 1,000 refused ones, newest first."
            @if let Some(key) = of_key.and_then(|id| keys.get(&id)) { " Filtered to the key " strong { (or_unnamed(&key.label)) } "." }
            @if let Some(group) = group { " Filtered to the group " strong { bdi { (name_of(group)) } } "." } }
        (range.choice_beside_dates(app, PATH, asked))
        (filters::form(app, &today.zone, query, Named { key: of_key.and_then(|id| keys.get(&id)), group }))
        div.split {
            (sums_line(&today.zone, search.billed.as_ref(), sums.as_ref(), compared.as_deref()))
            @if search.billed.is_none() && found.refused > 0 {
                p role="status" { strong { (count(found.refused as u64)) " refused " @if found.refused == 1 { "request" } @else { "requests" } } }
            }
            @if search.billed.is_some() && !found.found.is_empty() {
                nav.pages aria-label="Files" { (files(query)) }
            }
        }
        @if found.found.is_empty() { (nothing(asked, is_filtered, oldest.is_some())) }
        @else { (table(&found.found, Some(&keys))) }
        (pagination.links(PATH, if asked.has("from") { query } else { asked }, &shown))
    };
    Ok(page(viewer, Section::Requests, "Requests", &content))
}

/// Lists the requests of a key or a group, for its tab at `path`. The only filters are the range and `name=id`.
pub(super) async fn list_of(
    app: &App,
    viewer: &Viewer,
    PageAddress { path, query: asked }: PageAddress<'_>,
    name: &str,
    id: String,
) -> Result<Markup, Failure> {
    let (reach, today) = (viewer.reach(), viewer.today(app));
    let range = Range::of(asked, &today);
    let query = filters::with_days(&asked.only(&RANGE_FIELDS), &range, &today, None).with(name, id);
    let search = filters::search(&query, &today.zone)?;
    let pagination = Pagination::of(asked)?;
    let after = pagination.after(RequestCursor::parse)?.unwrap_or_default();
    let found = app.management.find_requests(reach, &search, after, ROWS_ON_PAGE).await?;
    let sums = sums_until_tomorrow(app, reach, &today, search.billed.as_ref()).await?;
    let keys = app.management.keys_by_id(reach, found.found.iter().map(key_of).collect()).await?;
    let next = found.next.map(|next| next.to_string());
    let shown = Shown { rows: found.found.len(), total: None, next, is_filtered: false };
    Ok(html! {
        (range.links(path, asked))
        div.split {
            (sums_line(&today.zone, search.billed.as_ref(), sums.as_ref(), None))
            nav.pages aria-label="Files" {
                a href={ (PATH) "?" (query.query()) } { "More filters" }
                @if !found.found.is_empty() { (files(&query)) }
            }
        }
        @if found.found.is_empty() { p.empty { "There were no requests on these days." } }
        @else { (table(&found.found, (name != "key").then_some(&keys))) }
        (pagination.links(path, asked, &shown))
    })
}

/// Links exports of the requests that match a query.
fn files(query: &Fields) -> Markup {
    let query = Pagination::without(query);
    html! {
        a href={ (PATH) ".csv?" (query) } { "Export CSV" }
        a href={ (PATH) ".jsonl?" (query) } { "Export JSON" }
    }
}

/// Shows the latest requests of a key or a group, including refused requests.
pub(super) async fn latest(
    app: &App,
    viewer: &Viewer,
    key: Option<KeyId>,
    group: Option<GroupId>,
) -> Result<Markup, Failure> {
    let billed = EntrySearch { key, group, ..EntrySearch::default() };
    let search = RefusedSearch { key, ..RefusedSearch::default() };
    let refused = RefusedFilter { search, group, within: None };
    let search = RequestSearch { billed: Some(billed), refused: Some(refused) };
    let (reach, begin) = (viewer.reach(), RequestCursor::default());
    let latest = app.management.find_requests(reach, &search, begin, LATEST).await?.found;
    let keys = app.management.keys_by_id(reach, latest.iter().map(key_of).collect()).await?;
    Ok(html! {
        h2 #requests { "Latest requests" }
        @if latest.is_empty() { p.empty { "No requests yet." } }
        @else { (table(&latest, group.is_some().then_some(&keys))) }
    })
}

/// Sums the billed requests of a search, at most to the end of the current day in the reader's zone.
async fn sums_until_tomorrow(
    app: &App,
    reach: AccountReach,
    today: &Today,
    billed: Option<&EntrySearch>,
) -> Result<Option<EntrySums>, Failure> {
    let Some(billed) = billed else { return Ok(None) };
    let tomorrow = today.zone.begins(today.day.plus(1));
    let ends = Some(billed.ends.map_or(tomorrow, |ends| ends.min(tomorrow)));
    Ok(app.management.sums_of_entries(reach, &EntrySearch { ends, ..billed.clone() }).await?)
}

/// Compares the charges of a search with those of the range's comparison days.
async fn compared(
    app: &App,
    reach: AccountReach,
    range: &Range,
    sums: &EntrySums,
    billed: &EntrySearch,
) -> Result<Option<String>, Failure> {
    let days = range.zone.bounds(&range.days);
    let is_of_range = billed.begins == Some(days.start) && billed.ends.is_none_or(|ends| ends == days.end);
    if !is_of_range {
        return Ok(None);
    }
    let before = range.zone.bounds(&range.before());
    let search = EntrySearch { begins: Some(before.start), ends: Some(before.end), ..billed.clone() };
    let before = app.management.sums_of_entries(reach, &search).await?;
    let before = before.map_or(NanoUsd::ZERO, |before| before.sums.charged);
    Ok(Some(range.compared_charges(sums.sums.charged, before)))
}

fn key_of(request: &AnyRequest) -> KeyId {
    match request {
        AnyRequest::Billed(entry) => entry.entry.settlement.payer.key,
        AnyRequest::Refused(call) => call.key,
    }
}

/// Reports that there are no requests, and how to find some.
fn nothing(asked: &Fields, is_filtered: bool, has_older: bool) -> Markup {
    html! {
        p.empty {
            @if let Some(id) = asked.filled("request") {
                "No request with the id " code { (id) } " was billed or refused on these days. Refused requests appear within ten seconds. Requests of a key that may not call at all are listed without an id. "
                a href=(PATH) { "Clear filters" }
            } @else if is_filtered { "No requests match. " a href=(PATH) { "Clear filters" } }
            @else if has_older { "Nothing was billed in the last " (DAYS) " days. " a href={ (PATH) "?from=" } { "Show all" } }
            @else { "Nothing was billed yet." }
        }
    }
}

/// Shows the totals of the filtered requests, the time that they cover, and the comparison with other days.
fn sums_line(
    zone: &Zone,
    billed: Option<&EntrySearch>,
    sums: Option<&EntrySums>,
    compared: Option<&str>,
) -> Markup {
    let is_of_details =
        |search: &EntrySearch| search.outcome.is_some() || search.user.is_some() || search.upstream.is_some();
    let is_of_user = billed.is_some_and(|search| search.user.is_some());
    let counted_in = if is_of_user { Zone::utc() } else { zone.clone() };
    html! {
        @match sums {
            Some(EntrySums { begins, ends, sums }) => p role="status" {
                strong { (requests(sums.requests)) " · "
                    span title=(count(sums.tokens)) { (short_count(sums.tokens)) } " tokens · " (glance(sums.charged)) }
                span.quiet {
                    " billed " (period(&counted_in, *begins, *ends))
                    @if is_of_user && !zone.is_utc() { "; users are counted by whole days in UTC" }
                    @if !counted_in.has_full_hours(*begins) { "; each day begins with its first full hour in UTC" }
                    @if let Some(compared) = compared { " · " (compared) }
                }
            },
            None if billed.is_some_and(is_of_details) => p.quiet { "Sums are available by day, key, group and model. Sums per user cover the whole account and cannot be combined with other filters." },
            None => {},
        }
    }
}

/// Describes the period that was summed: by its days if it consists of whole days, otherwise with hours. Here, a day
/// begins with its first full hour in UTC.
fn period(zone: &Zone, begins: Timestamp, ends: Timestamp) -> String {
    let (first, last) = (zone.day_of(begins), zone.day_of(ends.minus(Duration::from_hours(1))));
    let hour = |at: Timestamp| {
        zone.from_utc(&Hour::of(at).begins().to_string()).chars().skip(11).take(5).collect::<String>()
    };
    let just_under_an_hour = Duration::from_hours(1) - Duration::from_millis(1);
    let first_hour = |at| Hour::of(zone.begins(zone.day_of(at)).plus(just_under_an_hour)).begins();
    let has_full_days = [begins, ends].into_iter().all(|at| first_hour(at) == at);
    match (has_full_days, zone.title()) {
        (true, zone) if first == last => format!("on {first} ({zone})"),
        (true, zone) => format!("from {first} to {last} ({zone})"),
        (false, name) => format!("from {first} {} to {last} {} ({name})", hour(begins), hour(ends)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summed_time_is_named_by_the_days_and_hours_of_the_zone() {
        let named = |zone: &str, begins: &str, ends: &str| {
            let at = |text| Timestamp::parse(text).unwrap();
            period(&Zone::named(zone).unwrap(), at(begins), at(ends))
        };
        let day = ["2026-11-24T00:00:00Z", "2026-11-25T00:00:00Z"];
        assert_eq!(named("UTC", day[0], day[1]), "on 2026-11-24 (UTC)");
        let day = ["2026-11-23T23:00:00Z", "2026-11-24T23:00:00Z"];
        assert_eq!(named("Europe/Zurich", day[0], day[1]), "on 2026-11-24 (Zurich)");
        // Summer time begins on this day, which has 23 hours.
        let day = ["2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"];
        assert_eq!(named("Europe/Zurich", day[0], day[1]), "on 2026-03-29 (Zurich)");
        // The first full hour of a day in Kolkata begins at 00:30.
        let day = ["2026-11-23T19:00:00Z", "2026-11-24T19:00:00Z"];
        assert_eq!(named("Asia/Kolkata", day[0], day[1]), "on 2026-11-24 (Kolkata)");
        let hour = ["2026-11-24T09:00:00Z", "2026-11-24T10:00:00Z"];
        assert_eq!(
            named("Asia/Kolkata", hour[0], hour[1]),
            "from 2026-11-24 14:30 to 2026-11-24 15:30 (Kolkata)"
        );
        assert_eq!(named("UTC", hour[0], hour[1]), "from 2026-11-24 09:00 to 2026-11-24 10:00 (UTC)");
    }
}
