//! The page of events: who did what, and which thresholds were passed.

use axum::{
    extract::{Request, State},
    response::Response,
};
use maud::{Markup, html};
use shared::{
    ids::{GroupId, KeyId},
    wire::EVENT_TYPES,
};

use super::{
    Desk,
    failure::Failure,
    form::{Fields, query},
    layout::{Section, page},
    pagination::{Pagination, ROWS_ON_PAGE, Shown},
    session::Viewer,
    show::{time_to_second, usd},
};
use crate::store::NumberedEvent;
use domain::event::{Actor, Change, Event, EventKind, EventSearch, MoneyBound, Threshold};

/// Path of this page.
pub(super) const PATH: &str = "/dashboard/events";

/// Last events on the page of a key or a group.
const LAST_EVENTS: usize = 8;

/// The key or the group that a page is about.
pub(super) enum Subject {
    /// An API key.
    Key(KeyId),
    /// A group.
    Group(GroupId),
}

/// Reads the filters of a query.
fn search(query: &Fields) -> Result<EventSearch, Failure> {
    Ok(EventSearch {
        kind: EVENT_TYPES.into_iter().find(|kind| *kind == query.get("type")),
        key: query.filled("key").map(str::parse).transpose().map_err(|_| Failure::NotFound)?,
        group: query.filled("group").map(str::parse).transpose().map_err(|_| Failure::NotFound)?,
    })
}

/// Shows the events, newest first.
pub(super) async fn show(
    State(desk): State<Desk>,
    viewer: Viewer,
    request: Request,
) -> Result<Response, Failure> {
    let query = query(&request);
    let (account, search, pagination) = (viewer.signed_in.account, search(&query)?, Pagination::of(&query)?);
    let before = pagination.after(|number| number.parse().ok())?;
    let found = desk.management.find_events(account, &search, before, ROWS_ON_PAGE).await?;
    let is_filtered = search != EventSearch::default();
    let total = match found.found.first() {
        Some(first) if !is_filtered => {
            let gone = desk.management.events_after(account, 0, 1).await?.gone_until;
            Some(pagination.total_of_numbered(first.number, gone))
        }
        Some(_) | None => None,
    };
    let since = desk.management.events_complete_since(account).await?;
    let next = found.next.map(|next| next.to_string());
    let shown = Shown { rows: found.found.len(), total, next, is_filtered };
    let content = html! {
        p.lead { "Who did what, and which limits are nearly used, newest first."
            @if let Some(since) = since { " Complete since " (time_to_second(since)) ": older events were dropped." } }
        (filters(&query, &search))
        @if found.found.is_empty() {
            p.empty { @if !is_filtered { "Nothing has happened yet." } @else { "No events match. " a href=(PATH) { "Clear filters" } } }
        } @else {
            (table(&found.found, &EventSearch::default()))
        }
        (pagination.links(PATH, &query, &shown))
    };
    Ok(page(&viewer, Section::Events, "Events", &content))
}

/// The last events of a key or a group, and a link to all of them.
pub(super) async fn last_events(desk: &Desk, viewer: &Viewer, subject: Subject) -> Result<Markup, Failure> {
    let (name, id, search) = match subject {
        Subject::Key(id) => ("key", id.to_string(), EventSearch { key: Some(id), ..EventSearch::default() }),
        Subject::Group(id) => {
            ("group", id.to_string(), EventSearch { group: Some(id), ..EventSearch::default() })
        }
    };
    let last = desk.management.find_events(viewer.signed_in.account, &search, None, LAST_EVENTS).await?;
    Ok(html! {
        h2 { "Last events" }
        @if last.found.is_empty() { p.empty { "No event is kept any more." } }
        @else { (table(&last.found, &search)) }
        p { a href={ (PATH) "?" (name) "=" (id) } { "All events of this " (name) } }
    })
}

/// A table of events, without links to the key or the group that the page is about.
fn table(events: &[NumberedEvent], about: &EventSearch) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Events" {
            table {
                thead { tr {
                    th.wide-only scope="col" { "Time" } th scope="col" { "Event" }
                    th.wide-only scope="col" { "By" } th.wide-only scope="col" { "Of" }
                } }
                tbody { @for numbered in events { (row(&numbered.event, about)) } }
            }
        }
    }
}

fn filters(query: &Fields, search: &EventSearch) -> Markup {
    let only = |name: &'static str, title: &'static str, id: Option<String>| {
        html! {
            @if let Some(id) = id {
                label { (title) select name=(name) { option value=(id) selected { (id) } option value="" { "All" } } }
            }
        }
    };
    html! {
        form.filters method="get" action=(PATH) role="search" {
            (only("key", "Key", search.key.map(|id| id.to_string())))
            (only("group", "Group", search.group.map(|id| id.to_string())))
            label { "Type" select name="type" {
                option value="" { "All" }
                @for kind in EVENT_TYPES { option value=(kind) selected[query.get("type") == kind] { (kind) } }
            } }
            button { "Apply" }
        }
    }
}

fn row(event: &Event, about: &EventSearch) -> Markup {
    let key = event.key.filter(|_| about.key.is_none());
    let group = event.group.filter(|_| about.group.is_none());
    let of = html! {
        @if let Some(key) = key { a href={ "/dashboard/keys/" (key.to_string()) } { "key" } " " }
        @if let Some(group) = group { a href={ "/dashboard/groups/" (group.to_string()) } { "group" } }
    };
    html! {
        tr title=(event.id.to_string()) {
            td.wide-only { (time_to_second(event.at)) }
            td.wraps { span.badge { (event.kind.as_str()) } " " (told(&event.kind))
                p.narrow-only { (time_to_second(event.at)) " by " (actor(&event.actor))
                    @if key.is_some() || group.is_some() { " · " (of) } } }
            td.wide-only { (actor(&event.actor)) }
            td.wide-only { (of) }
        }
    }
}

fn actor(actor: &Actor) -> Markup {
    html! {
        @match actor {
            Actor::ManagementKey { name, .. } => { "management key " bdi { (name) } },
            Actor::Member { name, .. } => { bdi { (name) } },
            Actor::Operator { name } => { "operator" @if name != "operator" { " " bdi { (name) } } },
            Actor::System => span.quiet { "the service" },
        }
    }
}

/// Details of an event in words.
fn told(kind: &EventKind) -> Markup {
    html! {
        @match kind {
            EventKind::KeyCreated { changes } | EventKind::GroupCreated { changes } => (list(changes, false)),
            EventKind::KeyUpdated { changes } | EventKind::GroupUpdated { changes } => (list(changes, true)),
            EventKind::KeyRotated { previous_key_expires_at } => {
                @if let Some(at) = previous_key_expires_at { "the previous key works until " (time_to_second(*at)) }
            },
            EventKind::KeyThresholdReached(threshold) | EventKind::KeyLimitReached(threshold)
                | EventKind::GroupThresholdReached(threshold) | EventKind::GroupLimitReached(threshold) => (used(threshold)),
            EventKind::CreditThresholdReached(threshold) | EventKind::CreditExhausted(threshold) => {
                (usd(threshold.amount.left_after(threshold.used))) " of " (usd(threshold.amount)) " is left"
            },
            EventKind::CreditAdded { amount, note, .. } => { (usd(*amount)) @if !note.is_empty() { ", " bdi { (note) } } },
            EventKind::ManagementKeyCreated { name, scope, group_id, expires_at, .. } => {
                bdi { (name) }
                @if let Some(scope) = scope { ", " (scope) }
                @if let Some(group) = group_id { " in " code { (group.to_string()) } }
                @if let Some(at) = expires_at { ", until " (time_to_second(*at)) }
            },
            EventKind::ManagementKeyRevoked { name, .. } | EventKind::MemberRemoved { name, .. }
                | EventKind::MemberSecondFactorEnabled { name, .. }
                | EventKind::MemberSecondFactorRemoved { name, .. } => bdi { (name) },
            EventKind::MemberInvited { name, role, .. } => { bdi { (name) } ", " (role) },
            EventKind::WebhookDisabled { url, .. } => bdi { (url) },
            EventKind::KeyRevoked {} | EventKind::GroupArchived {} | EventKind::MemberSignedIn { .. } => {},
        }
    }
}

fn list(changes: &[Change], with_before: bool) -> Markup {
    html! {
        @for (n, change) in changes.iter().enumerate() {
            @if n > 0 { ", " }
            (change.field) " " @if with_before { bdi { (change.before) } " → " } bdi { (change.after) }
        }
    }
}

fn used(threshold: &Threshold) -> Markup {
    let per = match threshold.bound {
        MoneyBound::Limit | MoneyBound::Credit => "",
        MoneyBound::Hour => " an hour",
        MoneyBound::Day => " a day",
        MoneyBound::Week => " a week",
        MoneyBound::Month => " a month",
    };
    html! { (threshold.percent) " %: " (usd(threshold.used)) " of " (usd(threshold.amount)) (per) }
}
