//! The list of API keys with its filters, and creating a key.

use std::collections::HashMap;

use axum::{
    extract::{Request, State},
    response::Response,
};
use maud::{Markup, html};
use shared::{
    ids::{GroupId, KeyId},
    money::NanoUsd,
    time::Timestamp,
    wire::KeyField,
};

use crate::api_keys::{
    many_keys::{self, WholeList},
    place::place,
    search::{ORDERS, SEARCH, search_of},
};
use domain::{
    group::Group,
    key::{ApiKey, Condition, KeyPatch, Status},
    ledger::Holder,
};
use key_service_management::{
    governed::{Governed as _, Issued},
    limits::{LimitOf, ReachedLimits},
    reading::{KeyCursor, KeyOrder, KeySearch},
};
use key_service_page::{
    app::App,
    browser::form_token,
    entry::{Entered, Fault, refused_form},
    failure::Failure,
    form::{Fields, query, with},
    layout::{Section, hidden, page},
    notice,
    object_page::PageObject as _,
    pagination::{Pagination, ROWS_ON_PAGE, Shown},
    paths::{GROUPS, KEYS as PATH},
    session::{Act, KeysAct, KeysViewer, Viewer},
    show::{aligned, copyable_line, name_of, new_key, or_unnamed, scrolled_table, status, time_or},
};
use key_service_settings::{
    budget::{reached_badge, tightest},
    limits,
    settings_form::{self, offered},
    words,
};

/// Filters by status or condition, with their names on the page.
const STATUSES: [(&str, &str); 8] = [
    ("", "All"),
    ("trouble", "Needs attention"),
    ("active", "Active"),
    ("limit_reached", "Limit reached"),
    ("expires_soon", "Expires soon"),
    ("disabled", "Disabled"),
    ("expired", "Expired"),
    ("revoked", "Revoked"),
];

/// Fields of an address that select keys and order them.
const FILTERS: [&str; 4] = ["q", "status", "group", "order"];

/// Number of characters of a label that a duplicate keeps, leaving room for "(copy)".
const MAX_LABEL_OF_COPY: usize = 70;

pub(crate) async fn list(
    State(app): State<App>,
    KeysViewer(viewer): KeysViewer,
    request: Request,
) -> Result<Response, Failure> {
    let query = query(&request);
    let pagination = Pagination::of(&query)?;
    let after = pagination.after(KeyCursor::parse)?;
    let search = KeySearch { after, ..search_of(&query, ROWS_ON_PAGE)? };
    let reach = viewer.reach();
    let found = app.management.find_keys(reach, &search).await?;
    let groups = app.management.groups_by_id(reach, search.group.into_iter().collect()).await?;
    let offered = offered(&app, &viewer).await?.groups;
    let reached = app.management.reached_limits(reach, &found.found, &[]).await?;
    let is_filtered = ["q", "status", "group"].iter().any(|name| query.filled(name).is_some());
    let total = total(&viewer, &search, &groups);
    let next = found.next.map(|next| next.to_string());
    let whole = WholeList { filters: query.only(&FILTERS), total };
    let whole = (next.is_some() || after.is_some()).then_some(&whole);
    let shown = Shown { rows: found.found.len(), total, next, is_filtered };
    let content = html! {
        div.split {
            p.lead { "API keys make model calls at " code { (viewer.browser.base()) "/v1" } ", up to their limits." }
            @if viewer.keeps_keys() { a.button.primary href={ (PATH) "/new" } { "New API key" } }
        }
        @if found.found.is_empty() && !is_filtered && after.is_none() {
            p.empty { "There are no API keys yet. Create one for each application, person or customer, with its own limits and spend." }
        } @else {
            (filters(&viewer, &query, &offered, groups.values().next()))
            @if found.found.is_empty() { p.empty { "No keys match. " a href=(PATH) { "Clear filters" } } }
            @else { (many_keys::form(&viewer, &table(&viewer, &found.found, &reached, app.management.now(), &KeyColumns::of_list(&query)), whole)) }
            (pagination.links(PATH, &query, &shown))
        }
    };
    Ok(page(&viewer, Section::Keys, "API keys", &content))
}

/// Returns the number of keys in the whole list, if there is a counter for it.
fn total(viewer: &Viewer, search: &KeySearch, groups: &HashMap<GroupId, Group>) -> Option<u64> {
    let is_by_id = matches!(search.order, KeyOrder::Newest | KeyOrder::Oldest);
    let has_all = is_by_id && search.status.is_none() && search.condition.is_none() && search.text.is_empty();
    match search.group {
        _ if !has_all => None,
        None => Some(viewer.funds.keys).filter(|_| viewer.reach().group.is_none()),
        Some(group) => groups.get(&group).map(|group| group.keys),
    }
}

/// Renders the filters of a query. `group` is the group that it names, which may be missing from `groups`.
fn filters(viewer: &Viewer, query: &Fields, groups: &[Group], group: Option<&Group>) -> Markup {
    let option = |name: &'static str, value: &'static str, shown: &'static str| {
        html! { option value=(value) selected[query.get(name) == value] { (shown) } }
    };
    let others = groups.iter().filter(|other| group.is_none_or(|group| group.id != other.id));
    html! {
        // The form is a POST, so that a pasted plaintext does not end up in an address. For any other text, the handler
        // redirects to an address with the filters.
        form.filters method="post" action=(SEARCH) role="search" {
            (hidden(viewer))
            label { "Search" input type="search" name="q" value=(query.get("q")) placeholder="Label, hint, id or key" autocomplete="off"; }
            label { "Status" select name="status" {
                @for (value, shown) in STATUSES { (option("status", value, shown)) }
            } }
            @if group.is_some() || !groups.is_empty() {
                label { "Group" select name="group" {
                    option value="" { "All" }
                    @if let Some(group) = group { option value=(group.id) selected { (name_of(group)) } }
                    @for group in others { option value=(group.id) { (name_of(group)) } }
                } }
            }
            label { "Order" select name="order" {
                @for (_, name, shown) in orders(viewer) { (option("order", name, shown)) }
            } }
            button { "Apply" }
        }
    }
}

/// Lists the sort orders that a member can choose. A lead cannot sort by spend, because that index covers the whole
/// account.
fn orders(viewer: &Viewer) -> impl Iterator<Item = (KeyOrder, &'static str, &'static str)> {
    let has_all = viewer.reach().group.is_none();
    ORDERS.into_iter().filter(move |(order, _, _)| has_all || *order != KeyOrder::MostSpent)
}

/// Optional columns of a table of keys.
#[derive(Default)]
pub(crate) struct KeyColumns<'a> {
    /// Name of a range of days, and what each key was charged in it.
    pub(crate) charged: Option<(&'a str, &'a HashMap<KeyId, NanoUsd>)>,
    /// Query of the list of keys; `None` for other tables. Only the list's table has a column for groups, and headings
    /// that sort.
    pub(crate) list: Option<&'a Fields>,
}

impl<'a> KeyColumns<'a> {
    const fn of_list(query: &'a Fields) -> Self {
        Self { charged: None, list: Some(query) }
    }

    /// Renders a heading, as a link that orders the list where that is possible.
    fn heading(&self, viewer: &Viewer, title: &str, order: &str) -> Markup {
        let is_offered = orders(viewer).any(|(_, offered, _)| offered == order);
        html! {
            @match self.list.filter(|_| is_offered) {
                Some(query) => a href={ (PATH) "?" (with(&query.without(&["after"]), "order", order)) } {
                    (title) @if query.get("order") == order { " ↓" } },
                None => (title),
            }
        }
    }

    fn is_by(&self, order: &str) -> Option<&'static str> {
        self.list.filter(|query| query.get("order") == order).map(|_| "descending")
    }
}

/// Renders a table of keys. Members who may change keys can select rows. `reached` contains the reached limits of the
/// keys.
pub(crate) fn table(
    viewer: &Viewer,
    keys: &[ApiKey],
    reached: &ReachedLimits,
    now: Timestamp,
    columns: &KeyColumns<'_>,
) -> Markup {
    let head = html! {
        @if viewer.keeps_keys() { td.pick { input.needs-script type="checkbox" data-chooses-all aria-label="Select all on this page"; } }
        th scope="col" { "Label" } th.wide-only scope="col" { "Status" } th.wide-only scope="col" { "Limit" }
        @if columns.list.is_some() { th.wide-only scope="col" { "Group" } }
        @if let Some((range, _)) = columns.charged { th.n.wide-only scope="col" { (range) } }
        th.n scope="col" aria-sort=[columns.is_by("spent")] { (columns.heading(viewer, "Total spend", "spent")) }
        th.wide-only scope="col" aria-sort=[columns.is_by("used")] { (columns.heading(viewer, "Last used", "used")) }
        th.wide-only scope="col" { "Expires" }
    };
    let rows = html! { @for key in keys { (row(viewer, key, reached, now, columns)) } };
    scrolled_table("API keys", &head, &rows)
}

fn row(
    viewer: &Viewer,
    key: &ApiKey,
    reached: &ReachedLimits,
    now: Timestamp,
    columns: &KeyColumns<'_>,
) -> Markup {
    let (is_revoked, budget) = (key.status(now) == Status::Revoked, &key.spend.budget);
    let id = key.id.to_string();
    let group = key.spend.group.and_then(|id| reached.groups.get(&id)).filter(|_| columns.list.is_some());
    let limits = reached.limits(Holder::Key(key.id, None), budget);
    let limit = html! { @if is_revoked { span.quiet { "–" } } @else { (tightest(&limits)) } };
    html! {
        tr.gone[is_revoked] {
            @if viewer.keeps_keys() {
                td.pick { @if !is_revoked {
                    input type="checkbox" name="key" value=(id) form=(many_keys::FORM) aria-label={ "Select " (key.label) " " (key.hint) };
                } }
            }
            th scope="row" {
                a href={ (PATH) "/" (id) } { (or_unnamed(&key.label)) }
                p.under { code { (key.hint) } }
                p.narrow-only { (badges(key, reached.of_key(key), now, true)) @if let Some(group) = group { " in " bdi { (name_of(group)) } } }
            }
            td.wide-only.wraps.state { (badges(key, reached.of_key(key), now, false)) }
            td.wide-only.limit { (limit) }
            @if columns.list.is_some() {
                td.wide-only { @match group {
                    Some(group) => a href={ (GROUPS) "/" (group.id.to_string()) } { bdi { (name_of(group)) } },
                    None => span.quiet { "no group" },
                } }
            }
            @if let Some((_, charged)) = columns.charged { td.n.wide-only { (aligned(charged.get(&key.id).copied().unwrap_or_default())) } }
            td.n {
                (aligned(budget.used))
                @if !is_revoked && !limits.is_empty() { p.narrow-only.limit { (limit) } }
            }
            td.wide-only { (time_or(key.spend.last_used_at, "never")) }
            td.wide-only { (time_or(key.spend.expires_at, "never")) }
        }
    }
}

/// Shows the status of a key, a reached limit and an approaching expiry. `limit` is the limit that causes refusals.
/// `is_brief` leaves out "active".
pub(crate) fn badges(key: &ApiKey, limit: Option<LimitOf<'_>>, now: Timestamp, is_brief: bool) -> Markup {
    let limit = limit.filter(|_| key.is_in(Condition::LimitReached, true, now));
    let expires_soon = key.spend.expires_at.filter(|_| key.is_in(Condition::ExpiresSoon, false, now));
    let is_fine = key.status(now) == Status::Active && limit.is_none() && expires_soon.is_none();
    html! {
        @if limit.is_some() { (reached_badge(limit)) " " }
        @if let Some(at) = expires_soon { span.badge.expired { "expires " (within(at, now)) } " " }
        @if key.status(now) != Status::Active || (is_fine && !is_brief) { (status(key.status(now))) }
    }
}

/// Writes how long it is until a time within the next days.
pub(crate) fn within(at: Timestamp, now: Timestamp) -> String {
    let hours = (at.seconds() - now.seconds()) / 3_600;
    match (hours, (hours + 12) / 24) {
        (..1, _) => "within the hour".into(),
        (1, _) => "in an hour".into(),
        (2..24, _) => format!("in {hours} hours"),
        (_, 1) => "in a day".into(),
        (_, days) => format!("in {days} days"),
    }
}

/// Shows the form for a new key.
pub(crate) async fn new(
    State(app): State<App>,
    KeysViewer(viewer): KeysViewer,
    request: Request,
) -> Result<Response, Failure> {
    let query = query(&request);
    let filled = if query.filled("like").is_some() {
        // *Duplicate* on a key's page fills in its settings.
        let (key, now) = (ApiKey::find(&app, &viewer, query.get("like")).await?, app.management.now());
        let label: String = key.label.chars().take(MAX_LABEL_OF_COPY).collect();
        let settings = settings_form::entered(|field: KeyField| key.value(field, now));
        let settings =
            if key.status(now) == Status::Expired { settings.without(&["expires_at"]) } else { settings };
        limits::without_raises(&settings).with("label", format!("{label} (copy)"))
    } else {
        // *New API key* on a group's page fills in the group.
        Fields::of([("group_id", query.get("group").to_owned())])
    };
    asked(&app, &viewer, Entered::new(&filled).focused("label")).await
}

async fn asked(app: &App, viewer: &Viewer, entered: Entered<'_>) -> Result<Response, Failure> {
    let zone = viewer.browser.zone();
    let entered = entered.in_zone(&zone);
    let offered = offered(app, viewer).await?;
    let content = html! {
        @if viewer.keeps_keys() {
            form.stack method="post" action=(PATH) {
                (hidden(viewer))
                // An idempotency key: a form that is sent twice creates one key.
                input type="hidden" name="attempt" value=(form_token(&app.management.visit()));
                (settings_form::new_fields::<KeyField>(entered, &offered))
                div.buttons { button.primary { "Create key" } a.button href=(PATH) { "Cancel" } }
            }
        } @else { p.empty { "Only owners can create keys. Your role is viewer." } }
    };
    Ok(page(viewer, Section::Keys, "New API key", &content))
}

/// Creates a key and shows its plaintext, which is never shown again.
pub(crate) async fn create(
    State(app): State<App>,
    KeysAct(Act { viewer, form }): KeysAct,
) -> Result<Response, Failure> {
    if let Some(row) = limits::added_row(&form) {
        return asked(&app, &viewer, Entered::new(&form).focused(row)).await;
    }
    let refused = async |fault: &Fault| {
        let again = asked(&app, &viewer, Entered::refused(&form, fault)).await?;
        Ok(refused_form(again))
    };
    let mut settings: KeyPatch = match settings_form::read(&form) {
        Ok(settings) => settings,
        Err(fault) => return refused(&fault).await,
    };
    if let Some(fault) = place(&app, &viewer, &mut settings, true).await? {
        return refused(&fault).await;
    }
    let attempt = Some(format!("dashboard-{}", form.attempt()?));
    match ApiKey::create(viewer.by(&app), settings, attempt).await {
        Ok(Issued { made, secret: None }) => Ok(notice::done(
            &viewer,
            &format!("{PATH}/{}", made.into_inner().id),
            "This form was already submitted and created this key.",
        )),
        Ok(Issued { made, secret: Some(plaintext) }) => {
            let key = made.into_inner();
            let catalog = app.catalog.get();
            let lists: Vec<_> = words::list_of(&key.spend.budget).into_iter().collect();
            let models = super::first_steps::models(&catalog, &lists);
            let model = models.first().map_or("", String::as_str);
            let content = html! {
                p.lead { "Copy the key of " strong { (or_unnamed(&key.label)) } " now. It is shown only once, since only a hash of it is stored." }
                (new_key(&plaintext))
                @if let Some(says) = words::unknown_models(&lists, &catalog.ids(), "this key") { p.note { (says) } }
                (copyable_line("Base address for SDKs:", &format!("{}/v1", viewer.browser.base())))
                p { a.button data-done href={ (PATH) "/" (key.id.to_string()) } { "I have copied it" } }
                (super::first_steps::commands(&viewer.browser.base(), &plaintext, model))
            };
            Ok(page(&viewer, Section::Keys, "API key created", &content))
        }
        Err(error) => match settings_form::fault(&form, &error) {
            Some(fault) => refused(&fault).await,
            None => Err(error.into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_until_an_expiry_is_said_in_hours_or_days() {
        let now = Timestamp::from_millis(0);
        for (hours, said) in [
            (0, "within the hour"),
            (1, "in an hour"),
            (23, "in 23 hours"),
            (25, "in a day"),
            (71, "in 3 days"),
        ] {
            assert_eq!(within(Timestamp::from_millis(hours * 3_600_000), now), said);
        }
    }
}
