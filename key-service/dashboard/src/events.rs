//! Events: who changed what, and which thresholds were crossed.

use std::collections::HashMap;

use axum::{
    extract::{Request, State},
    response::Response,
};
use maud::{Markup, html};
use shared::{
    ids::{GroupId, KeyId},
    money::NanoUsd,
    wire::EVENT_TYPES,
};

use domain::{
    event::{Actor, Change, Event, EventKind, EventSearch, MoneyBound, Threshold},
    group::Group,
    key::ApiKey,
};
use key_service_page::{
    app::App,
    failure::Failure,
    form::{Fields, query},
    layout::{Section, page},
    pagination::{Pagination, ROWS_ON_PAGE, Shown},
    session::{KeysViewer, Viewer},
    show::{name_of, or_unnamed, time_to_second, usd},
    table::{Column, Row, Table},
    zone::Zone,
};
use key_service_settings::words::{self, Reader};
use key_service_store::store::NumberedEvent;

pub(super) const PATH: &str = "/dashboard/events";

/// Number of latest events on the page of a key or a group.
const LAST_EVENTS: usize = 8;

/// The key or group that a page is about.
pub(super) enum Subject {
    Key(KeyId),
    Group(GroupId),
}

fn search(query: &Fields) -> Result<EventSearch, Failure> {
    Ok(EventSearch {
        kind: EVENT_TYPES.into_iter().find(|kind| *kind == query.get("type")),
        key: query.id("key")?,
        group: query.id("group")?,
        by: query.filled("by").map(str::to_lowercase),
        within: None,
    })
}

/// Shows the events, newest first.
pub(super) async fn show(
    State(app): State<App>,
    KeysViewer(viewer): KeysViewer,
    request: Request,
) -> Result<Response, Failure> {
    let query = query(&request);
    let (account, search, pagination) = (viewer.signed_in.account, search(&query)?, Pagination::of(&query)?);
    let before = pagination.after(|number| number.parse().ok())?;
    let found = app.management.find_events(viewer.reach(), &search, before, ROWS_ON_PAGE).await?;
    let is_filtered = search != EventSearch::default();
    let total = match found.found.first() {
        Some(first) if !is_filtered && viewer.reach().group.is_none() => {
            let gone = app.management.events_after(account, 0, 1).await?.gone_until;
            Some(pagination.total_of_numbered(first.number, gone))
        }
        Some(_) | None => None,
    };
    let since = app.management.events_complete_since(account).await?;
    let next = found.next.map(|next| next.to_string());
    let shown = Shown { rows: found.found.len(), total, next, is_filtered };
    let content = html! {
        p.lead { "Who changed what, and which limits were nearly used up, newest first."
            @if let Some(since) = since { " Events before " (time_to_second(since)) " were dropped." } }
        (filters(&query, &search, &Named::of_search(&app, &viewer, &search).await?))
        @if found.found.is_empty() {
            p.empty { @if !is_filtered { "Nothing has happened yet." } @else { "No events match. " a href=(PATH) { "Clear filters" } } }
        } @else {
            (table(&found.found, &EventSearch::default(), &Named::of(&app, &viewer, &found.found).await?))
        }
        (pagination.links(PATH, &query, &shown))
    };
    Ok(page(&viewer, Section::Events, "Events", &content))
}

/// Shows the latest events of a key or a group, with a link to all of them.
pub(super) async fn last_events(app: &App, viewer: &Viewer, subject: Subject) -> Result<Markup, Failure> {
    let (name, id, search) = match subject {
        Subject::Key(id) => ("key", id.to_string(), EventSearch { key: Some(id), ..EventSearch::default() }),
        Subject::Group(id) => {
            ("group", id.to_string(), EventSearch { group: Some(id), ..EventSearch::default() })
        }
    };
    let last = app.management.find_events(viewer.reach(), &search, None, LAST_EVENTS).await?;
    Ok(html! {
        h2 { "Latest events" }
        @if last.found.is_empty() { p.empty { "There are no events on record." } }
        @else { (table(&last.found, &search, &Named::of(app, viewer, &last.found).await?)) }
        p { a href={ (PATH) "?" (name) "=" (id) } { "All events of this " (name) } }
    })
}

/// Keys and groups that events concern or mention.
struct Named {
    keys: HashMap<KeyId, ApiKey>,
    groups: Vec<Group>,
    /// Time zone of the reader.
    zone: Zone,
}

impl Named {
    async fn of(app: &App, viewer: &Viewer, events: &[NumberedEvent]) -> Result<Self, Failure> {
        let reach = viewer.reach();
        let keys = events.iter().filter_map(|numbered| numbered.event.key).collect();
        let groups = events.iter().flat_map(|numbered| groups_of(&numbered.event)).collect();
        let groups = app.management.groups_by_id(reach, groups).await?.into_values().collect();
        let zone = viewer.browser.zone();
        Ok(Self { keys: app.management.keys_by_id(reach, keys).await?, groups, zone })
    }

    /// Finds the key and the group that a search names.
    async fn of_search(app: &App, viewer: &Viewer, search: &EventSearch) -> Result<Self, Failure> {
        let reach = viewer.reach();
        let groups = app.management.groups_by_id(reach, search.group.into_iter().collect()).await?;
        let keys = app.management.keys_by_id(reach, search.key.into_iter().collect()).await?;
        Ok(Self { keys, groups: groups.into_values().collect(), zone: viewer.browser.zone() })
    }

    fn group(&self, id: GroupId) -> Markup {
        let group = self.groups.iter().find(|group| group.id == id);
        html! { a href={ "/dashboard/groups/" (id.to_string()) } { bdi { (group.map_or_else(|| id.to_string(), name_of)) } } }
    }

    fn key(&self, id: KeyId) -> Markup {
        html! {
            a href={ "/dashboard/keys/" (id.to_string()) } {
                @match self.keys.get(&id) { Some(key) => (or_unnamed(&key.label)), None => (id.to_string()) }
            }
        }
    }
}

/// Lists the groups that an event concerns or mentions.
fn groups_of(event: &Event) -> Vec<GroupId> {
    let named = if let EventKind::KeyCreated { changes }
    | EventKind::GroupCreated { changes }
    | EventKind::KeyUpdated { changes }
    | EventKind::GroupUpdated { changes } = &event.kind
    {
        let values = changes.iter().flat_map(|change| [&change.before, &change.after]);
        values.filter_map(|json| json.trim_matches('"').parse().ok()).collect()
    } else if let EventKind::ManagementKeyCreated { group_id: Some(group), .. }
    | EventKind::MemberInvited { group_id: Some(group), .. } = &event.kind
    {
        vec![*group]
    } else if let EventKind::MemberRoleChanged { group_id, previous_group_id, .. } = &event.kind {
        group_id.iter().chain(previous_group_id).copied().collect()
    } else {
        Vec::new()
    };
    event.group.into_iter().chain(named).collect()
}

/// Renders a table of events. It omits links to the key or group that the page is about.
fn table(events: &[NumberedEvent], about: &EventSearch, named: &Named) -> Markup {
    let columns = [
        Column::new(html! { "Time, " span data-zone="now" { "UTC" } }, "wide-only"),
        Column::new("Event", "wraps"),
        Column::new("By", "wide-only"),
        Column::new("Key or group", "wide-only wraps of"),
    ];
    let rows = events.iter().map(|numbered| row(&numbered.event, about, named));
    Table::new("Events", columns).without_names().rows(rows)
}

fn filters(query: &Fields, search: &EventSearch, named: &Named) -> Markup {
    let only = |name: &'static str, title: &'static str, id: Option<(String, String)>| {
        html! {
            @if let Some((id, shown)) = id {
                label { (title) select name=(name) { option value=(id) selected { (shown) } option value="" { "All" } } }
            }
        }
    };
    let label =
        |id: &KeyId| named.keys.get(id).map(|key| key.label.clone()).filter(|label| !label.trim().is_empty());
    let key = search.key.map(|id| (id.to_string(), label(&id).unwrap_or_else(|| id.to_string())));
    let group = |id: GroupId| {
        named.groups.iter().find(|group| group.id == id).map_or_else(|| id.to_string(), name_of)
    };
    let group = search.group.map(|id| (id.to_string(), group(id)));
    html! {
        form.filters method="get" action=(PATH) role="search" {
            (only("key", "Key", key))
            (only("group", "Group", group))
            label { "Type" select name="type" {
                option value="" { "All" }
                @for kind in EVENT_TYPES { option value=(kind) selected[query.get("type") == kind] { (kind) } }
            } }
            label { "By" input type="search" name="by" value=(query.get("by")) placeholder="Person or management key" autocomplete="off"; }
            button { "Apply" }
        }
    }
}

fn row(event: &Event, about: &EventSearch, named: &Named) -> Row {
    let key = event.key.filter(|_| about.key.is_none());
    let group = event.group.filter(|_| about.group.is_none());
    let of = html! {
        @if let Some(key) = key { (named.key(key)) }
        @if key.is_some() && group.is_some() { " in " }
        @if let Some(group) = group { (named.group(group)) }
    };
    let what = html! {
        span.badge { (event.kind.as_str()) } " " (told(&event.kind, named))
        p.narrow-only { (time_to_second(event.at)) " by " (actor(&event.actor))
            @if key.is_some() || group.is_some() { " · " (of) } }
    };
    Row::new([time_to_second(event.at), what, actor(&event.actor), of]).title(event.id.to_string())
}

fn actor(actor: &Actor) -> Markup {
    html! {
        @match actor {
            Actor::ManagementKey { name, .. } => { "management key " bdi { (name) } },
            Actor::Member { name, .. } => { bdi { (name) } },
            Actor::Operator { name } => { "operator" @if name != "operator" { " " bdi { (name) } } },
            Actor::OperatorKey { name, .. } => { "operator key " bdi { (name) } },
            Actor::System => span.quiet { "the service" },
        }
    }
}

/// Writes the details of an event in words.
fn told(kind: &EventKind, named: &Named) -> Markup {
    html! {
        @match kind {
            EventKind::KeyCreated { changes } | EventKind::GroupCreated { changes } => (list(changes, false, named)),
            EventKind::AccountUpdated { changes } | EventKind::KeyUpdated { changes } | EventKind::GroupUpdated { changes } => (list(changes, true, named)),
            EventKind::KeyRotated { previous_key_expires_at } => {
                @if let Some(at) = previous_key_expires_at { "the previous key works until " (time_to_second(*at)) }
            },
            EventKind::KeyThresholdReached(threshold) | EventKind::KeyLimitReached(threshold)
                | EventKind::GroupThresholdReached(threshold) | EventKind::GroupLimitReached(threshold) => (used(threshold)),
            EventKind::CreditThresholdReached(threshold) | EventKind::CreditExhausted(threshold) => {
                (usd(threshold.amount.left_after(threshold.used))) " of " (usd(threshold.amount)) " left"
            },
            EventKind::CreditAdded(paid) | EventKind::GroupPaid(paid) => {
                (usd(paid.amount))
                @if !paid.note.is_empty() { ", " bdi { (paid.note) } }
                @if let Some(payment) = &paid.payment_id { ", payment " bdi { (payment.as_str()) } }
            },
            EventKind::CreditRefunded(refunded) | EventKind::GroupRefunded(refunded) => {
                (usd(refunded.amount))
                @if refunded.shortfall > NanoUsd::ZERO { ", " (usd(refunded.shortfall)) " less than asked" }
                @if !refunded.note.is_empty() { ", " bdi { (refunded.note) } }
                @if let Some(refund) = &refunded.payment_id { ", refund " bdi { (refund.as_str()) } }
                @if let Some(of) = &refunded.of { ", payment " bdi { (of.as_str()) } }
            },
            EventKind::ManagementKeyCreated { name, scope, group_id, expires_at, .. } => {
                bdi { (name) }
                @if let Some(scope) = scope { ", " (scope) }
                @if let Some(group) = group_id { " in " (named.group(*group)) }
                @if let Some(at) = expires_at { ", until " (time_to_second(*at)) }
            },
            EventKind::AccountCreated { name } | EventKind::ManagementKeyRevoked { name, .. } | EventKind::MemberRemoved { name, .. }
                | EventKind::MemberSecondFactorEnabled { name, .. }
                // Events about operator keys never occur in a customer's account.
                | EventKind::OperatorKeyCreated { name, .. } | EventKind::OperatorKeyRotated { name, .. }
                | EventKind::OperatorKeyRevoked { name, .. }
                | EventKind::MemberSecondFactorRemoved { name, .. } => bdi { (name) },
            EventKind::MemberInvited { name, role, group_id, .. } => { bdi { (name) } ", " (role_of(role, *group_id, named)) },
            EventKind::MemberRoleChanged { name, role, group_id, previous_role, previous_group_id, .. } => {
                bdi { (name) } ", " (role_of(previous_role, *previous_group_id, named)) " → " (role_of(role, *group_id, named))
            },
            EventKind::WebhookDisabled { url, .. } => bdi { (url) },
            EventKind::AlertRaised { title, .. } => bdi { (title) },
            EventKind::AccountSuspended { reason } => bdi { (reason) },
            EventKind::AccountRestored {} | EventKind::AccountClosed {}
                | EventKind::KeyRevoked {} | EventKind::GroupArchived {} | EventKind::MemberSignedIn { .. } => {},
        }
    }
}

/// Shows a role and, for a lead, the group.
fn role_of(role: &str, group: Option<GroupId>, named: &Named) -> Markup {
    html! { (role) @if let Some(group) = group { " of " (named.group(group)) } }
}

fn list(changes: &[Change], with_before: bool, named: &Named) -> Markup {
    let reader = Reader { groups: &named.groups, zone: &named.zone };
    let changes = changes.iter().flat_map(|change| words::of_event(change, reader));
    html! {
        @for (n, (title, [before, after])) in changes.enumerate() {
            @if n > 0 { ", " }
            (title) ": " @if with_before { bdi { (before) } " → " } bdi { (after) }
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
