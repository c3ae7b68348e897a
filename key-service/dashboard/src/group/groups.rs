//! The list of groups, and the page of a group: limits, spend, keys, requests and events.

use std::collections::HashMap;

use axum::{
    extract::{Request, State},
    response::Response,
};
use maud::{Markup, html};
use shared::ids::GroupId;

use crate::{
    activity,
    api_keys::{
        first_steps,
        keys::{self, KeyColumns},
        many_keys::{self, WholeList},
    },
    events::{self, Subject},
    home::trouble,
    tabs::{Tab, TabbedPage},
};
use domain::{group::Group, ledger::Holder};
use key_service_management::{
    children::Children,
    limits::ReachedLimits,
    listing::{GroupFilter, Listing, Page},
    reach::AccountReach,
    reading::KeySearch,
};
use key_service_page::{
    app::App,
    failure::Failure,
    form::{Fields, PageAddress, query},
    layout::{Section, page},
    object_page::ObjectPage,
    pagination::{Pagination, ROWS_ON_PAGE, Shown},
    paths::{GROUPS as PATH, KEYS},
    session::{KeysViewer, Viewer},
    show::{aligned, copyable_line, count, name_of, time},
    table::{Column, Row, Table, fold},
    zone::Zone,
};
use key_service_ranges::spend::{SpendScope, SpendView};
use key_service_settings::{
    budget::{gauge, reached_badge, tightest},
    words,
};
use key_service_store::store::{Found, Order};

/// Maximum number of child groups on a group's page, newest first. More would make the page larger than about 100 kB.
const CHILDREN_ON_PAGE: usize = 100;
/// Maximum number of keys on a group's page, newest first, each with its charges.
const KEYS_ON_PAGE: usize = 25;

/// Lists the top-level groups, each with its child groups folded below it, or the groups that a search finds.
pub(crate) async fn list(
    State(app): State<App>,
    KeysViewer(viewer): KeysViewer,
    request: Request,
) -> Result<Response, Failure> {
    let query = query(&request);
    let (reach, pagination) = (viewer.reach(), Pagination::of(&query)?);
    let after: Option<GroupId> = pagination.after(|id| id.parse().ok())?;
    let parent: Option<GroupId> = query.id("parent")?;
    let is_filtered = query.filled("q").is_some() || parent.is_some();
    let Found { found, next } = match (query.filled("q"), parent) {
        (Some(text), _) => app.management.find_groups(reach, text, after, ROWS_ON_PAGE).await?,
        (None, Some(parent)) => children_in(&app, reach, parent, after).await?,
        (None, None) => app.management.top_groups(reach, after, ROWS_ON_PAGE).await?,
    };
    let children = app.management.children_of(reach.account, &found).await?;
    let all: Vec<Group> = if is_filtered {
        found.clone()
    } else {
        let below = children.values().filter_map(|children| children.groups.as_deref()).flatten();
        found.iter().chain(below).cloned().collect()
    };
    let reached = app.management.reached_limits(reach, &[], &all).await?;
    let parents = app.management.groups_by_id(reach, parent.into_iter().collect()).await?;
    let zone = viewer.browser.zone();
    let listed = Listed { reached: &reached, children: &children, zone: &zone };
    let shown =
        Shown { rows: found.len(), total: None, next: next.map(|next| next.to_string()), is_filtered };
    let content = html! {
        div.split {
            p.lead { "A group is a team, a course or a customer. Its keys share its limits." }
            @if viewer.is_owner() { a.button.primary href={ (PATH) "/new" } { "New group" } }
        }
        @if found.is_empty() && !is_filtered && after.is_none() {
            p.empty { "There are no groups yet. Keys work without one; in a group they share limits." }
        } @else {
            form.filters method="get" action=(PATH) role="search" {
                @if let Some(parent) = parent {
                    label { "In" select name="parent" {
                        option value=(parent.to_string()) selected { (parents.get(&parent).map_or_else(|| parent.to_string(), name_of)) }
                        option value="" { "All" }
                    } }
                }
                label { "Search" input type="search" name="q" value=(query.get("q")) placeholder="Name, external id or id" autocomplete="off"; }
                button { "Apply" }
            }
            @if is_filtered { (flat_table(&found, listed, parent)) } @else { (tree(&found, listed)) }
        }
        (pagination.links(PATH, &query, &shown))
    };
    Ok(page(&viewer, Section::Groups, "Groups", &content))
}

/// Reads a page of the child groups of a group.
async fn children_in(
    app: &App,
    reach: AccountReach,
    parent: GroupId,
    after: Option<GroupId>,
) -> Result<Found<Group, GroupId>, Failure> {
    let filter = GroupFilter { parent: Some(parent), within: reach.group, ..GroupFilter::default() };
    let listing = Listing { after, order: Order::Descending, filter, limit: ROWS_ON_PAGE };
    let Page { items, has_more } = app.management.list::<Group>(reach.account, &listing).await?;
    let next = items.last().filter(|_| has_more).map(|last| last.id);
    Ok(Found { found: items, next })
}

/// How a row shows its group's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At the top of a tree, with a box that shows the child groups.
    Top,
    /// Below its parent.
    Below,
    /// In a list, with the name of its parent.
    Flat,
    /// In a list of groups with the same parent.
    Sibling,
}

/// What the rows of a list of groups show, in addition to the groups themselves.
#[derive(Clone, Copy)]
struct Listed<'a> {
    reached: &'a ReachedLimits,
    children: &'a HashMap<GroupId, Children>,
    /// Time zone of the reader.
    zone: &'a Zone,
}

/// Renders groups, each with its child groups folded below it.
fn tree(groups: &[Group], listed: Listed<'_>) -> Markup {
    let with_children = |group: &Group| {
        let children = listed.children.get(&group.id);
        let below = children.and_then(|children| children.groups.as_deref()).unwrap_or_default();
        let below = below.iter().map(|child| row(child, Place::Below, listed));
        std::iter::once(row(group, Place::Top, listed)).chain(below).collect()
    };
    heading().trees(groups.iter().map(with_children))
}

/// Renders groups as a list. `parent` is the parent of all these groups, if they have the same parent.
fn flat_table(groups: &[Group], listed: Listed<'_>, parent: Option<GroupId>) -> Markup {
    let place = if parent.is_some() { Place::Sibling } else { Place::Flat };
    heading().rows(groups.iter().map(|group| row(group, place, listed)))
}

fn heading() -> Table {
    let columns = [
        Column::from(("Name", "")),
        Column::from(("Limits", "wide-only")),
        Column::from(("Usage", "wide-only limit")),
        Column::new("Total spend", "n").hint("Including subgroups"),
        Column::new("Keys", "n wide-only").hint("Including subgroups"),
        Column::from(("Created", "wide-only")),
    ];
    Table::new("Groups", columns).or(html! { "No groups match. " a href=(PATH) { "Clear filters" } })
}

fn row(group: &Group, place: Place, listed: Listed<'_>) -> Row {
    let (reached, children) = (listed.reached, listed.children.get(&group.id));
    let parent = reached.parent_of(group).filter(|_| place == Place::Flat);
    let bounds = words::bounds(&group.spend.budget, &[], reached.now(), listed.zone);
    let limits = reached.limits(Holder::Group(group.id), &group.spend.budget);
    let folded = children.filter(|_| place == Place::Top);
    let name = html! {
        @match folded {
            Some(children) if children.groups.is_some() => (fold(&format!("Show {} of {}", subgroups(children.number), name_of(group)))),
            Some(_) | None => {},
        }
        a href=(path(group)) { bdi { (name_of(group)) } } " " (badges(group, reached))
        @if let Some(Children { number, groups }) = folded {
            @if groups.is_some() { span.quiet.number title=(subgroups(*number)) { (count(*number)) } }
            @else { a.number href={ (PATH) "?parent=" (group.id.to_string()) } { "All " (subgroups(*number)) } }
        }
        @if let Some(parent) = parent { p.under { "in " bdi { (name_of(parent)) } } }
        p.narrow-only { (bounds) " " (keys_in(group, children)) }
    };
    let spend = html! {
        (aligned(group.spend.budget.used))
        @if !limits.is_empty() { p.narrow-only.limit { (tightest(&limits)) } }
    };
    let keys = match children.map(Children::keys) {
        None => count(group.keys),
        Some(Some(keys)) => count(group.keys.saturating_add(keys)),
        Some(None) => format!("{}+", count(group.keys)),
    };
    Row::new([
        name,
        html! { @if bounds.is_empty() { span.quiet { "no limit" } } @else { span.cut title=(bounds) { (bounds) } } },
        html! { (tightest(&limits)) },
        spend,
        html! { span title=(keys_in(group, children)) { (keys) } },
        time(group.created_at),
    ])
    .class("gone", group.spend.archived_at.is_some())
    .class("below", place == Place::Below)
}

pub(super) fn path(group: &Group) -> String {
    format!("{PATH}/{}", group.id)
}

/// Counts the keys in a group and in its child groups: `1 key, 6 in 3 subgroups`.
pub(super) fn keys_in(group: &Group, children: Option<&Children>) -> String {
    let own = if group.keys == 1 { "1 key".into() } else { format!("{} keys", count(group.keys)) };
    let Some(children) = children else { return own };
    let groups = subgroups(children.number);
    match children.keys() {
        Some(keys) => format!("{own}, {} in {groups}", count(keys)),
        None => format!("{own}, more in {groups}"),
    }
}

fn subgroups(number: u64) -> String {
    if number == 1 { "1 subgroup".into() } else { format!("{} subgroups", count(number)) }
}

fn badges(group: &Group, reached: &ReachedLimits) -> Markup {
    html! {
        @if group.spend.archived_at.is_some() { span.badge { "archived" } }
        @else { (reached_badge(reached.of_group(group))) }
    }
}

/// Shows a group at a glance: limits, spend, keys, and the latest requests and events.
pub(crate) async fn show(
    ObjectPage { app, viewer, object: group, .. }: ObjectPage<Group, KeysViewer>,
    request: Request,
) -> Result<Response, Failure> {
    let (reach, today) = (viewer.reach(), viewer.today(&app));
    let (here, query) = (path(&group), query(&request));
    let view = SpendView::of(&query, SpendScope::Group(group.id), &today);
    let report = view.read(&app, reach).await?;
    let (limits, children) = bounds(&app, &viewer, &group).await?;
    let trouble = app.management.trouble(AccountReach { group: Some(group.id), ..reach }).await?;
    let content = html! {
        (limits)
        (trouble::strip(&viewer, &trouble, app.management.now(), None))
        (view.range.choice(&app, &here, &query))
        (view.tiles(&report, today.day, None))
        (view.card(&app, reach, PageAddress { path: &here, query: &query }, &report).await?)
        (children)
        (keys_of(&app, &viewer, &group, &view).await?)
        (activity::latest(&app, &viewer, None, Some(group.id)).await?)
        (events::last_events(&app, &viewer, Subject::Group(group.id)).await?)
        (copyable_line("Id", &group.id.to_string()))
    };
    Ok(tabbed(&group).show(&viewer, Tab::Overview, &content))
}

pub(super) fn tabbed(group: &Group) -> TabbedPage {
    let title = name_of(group);
    TabbedPage {
        section: Section::Groups,
        title,
        path: path(group),
        filter: "group",
        id: group.id.to_string(),
        acts: html! {},
    }
}

pub(crate) async fn requests(
    ObjectPage { app, viewer, object: group, .. }: ObjectPage<Group, KeysViewer>,
    request: Request,
) -> Result<Response, Failure> {
    tabbed(&group).requests(&app, &viewer, &query(&request)).await
}

/// Shows commands to paste that use a key of the group.
pub(crate) async fn use_it(
    ObjectPage { app, viewer, object: group, .. }: ObjectPage<Group, KeysViewer>,
    request: Request,
) -> Result<Response, Failure> {
    let reached = [group];
    let limits = app.management.reached_limits(viewer.reach(), &[], &reached).await?;
    let [group] = &reached;
    let models = first_steps::models(&app.catalog.get(), &lists(group, limits.parent_of(group)));
    let (path, query) = (format!("{}/use", path(group)), query(&request));
    let address = PageAddress { path: &path, query: &query };
    let content = html! {
        p.lead { "These commands work with any key of this group." }
        (first_steps::commands_of_known_key(&viewer.browser.base(), &models, address))
    };
    Ok(tabbed(group).show(&viewer, Tab::UseIt, &content))
}

/// Shows a group's limits, spend and child groups.
async fn bounds(app: &App, viewer: &Viewer, group: &Group) -> Result<(Markup, Markup), Failure> {
    let account = viewer.signed_in.account;
    let is_archived = group.spend.archived_at.is_some();
    let filter = GroupFilter { parent: Some(group.id), ..GroupFilter::default() };
    let listing = Listing { after: None, order: Order::Descending, filter, limit: CHILDREN_ON_PAGE };
    let Page { items: children, has_more } = app.management.list::<Group>(account, &listing).await?;
    let reached = [std::slice::from_ref(group), &children].concat();
    let reached = app.management.reached_limits(viewer.reach(), &[], &reached).await?;
    let sums = app.management.children_of(account, std::slice::from_ref(group)).await?;
    let (parent, zone) = (reached.parent_of(group), viewer.browser.zone());
    let bounds = words::bounds(&group.spend.budget, parent.as_slice(), reached.now(), &zone);
    let models = words::unknown_models(&lists(group, parent), &app.catalog.get().ids(), "its keys");
    let limits = html! {
        p.lead { (badges(group, &reached)) " " (keys_in(group, sums.get(&group.id))) " · created " (time(group.created_at))
            @if let Some(external_id) = &group.external_id { " · external id " bdi { code { (external_id) } } }
            @if let Some(at) = group.spend.archived_at { " · archived " (time(at)) } }
        @if let Some(parent) = parent { p { "In the group " a href=(path(parent)) { bdi { (name_of(parent)) } } "." } }
        @if !bounds.is_empty() { p { (bounds) } }
        @if let Some(says) = models { p.note { (says) } }
        (gauge(viewer, Holder::Group(group.id), &group.spend.budget, parent.as_slice(), &reached, is_archived))
    };
    let children = html! {
        @if !children.is_empty() { h2 { "Subgroups" } (flat_table(&children, Listed { reached: &reached, children: &HashMap::new(), zone: &zone }, Some(group.id))) }
        @if has_more { p { a href={ (PATH) "?parent=" (group.id.to_string()) } { "All subgroups" } } }
    };
    Ok((limits, children))
}

/// Returns the lists of allowed models that apply to a group's keys.
fn lists<'a>(group: &'a Group, parent: Option<&'a Group>) -> Vec<&'a Vec<String>> {
    let both = std::iter::once(group).chain(parent);
    both.filter_map(|group| words::list_of(&group.spend.budget)).collect()
}

/// Lists the newest keys of a group, with their charges in the range of days.
async fn keys_of(app: &App, viewer: &Viewer, group: &Group, view: &SpendView) -> Result<Markup, Failure> {
    let search = KeySearch { group: Some(group.id), limit: KEYS_ON_PAGE, ..KeySearch::default() };
    let found = app.management.find_keys(viewer.reach(), &search).await?;
    let reached = app.management.reached_limits(viewer.reach(), &found.found, &[]).await?;
    let charged = view.charged_to(app, viewer.reach(), &found.found).await?;
    let (range, list) = (view.range.title(), None);
    let columns = KeyColumns { charged: Some((range.as_str(), &charged)), list };
    let table = keys::table(viewer, &found.found, &reached, app.management.now(), &columns);
    let whole = found.next.is_some().then(|| WholeList {
        filters: Fields::of([("group", group.id.to_string())]),
        total: Some(group.keys),
    });
    let may_add = viewer.keeps_keys() && group.spend.archived_at.is_none();
    Ok(html! {
        div.split {
            h2 { "API keys" }
            @if may_add { a.button href={ (KEYS) "/new?group=" (group.id.to_string()) } { "New API key" } }
        }
        @if found.found.is_empty() { p.empty { "There are no API keys directly in this group." } }
        @else { (many_keys::form(viewer, &table, whole.as_ref())) }
        @if found.next.is_some() {
            p { a href={ (KEYS) "?group=" (group.id.to_string()) } { "All " (count(group.keys)) " keys" } }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::time::Timestamp;

    #[test]
    fn keys_are_counted_with_those_in_subgroups() {
        let group = |number: u8, keys| {
            let at = Timestamp::from_millis(0);
            let mut group = Group::new(GroupId::new(at, [number; 10]), at);
            group.keys = keys;
            group
        };
        let says = |keys, below: Option<Vec<Group>>| {
            let children = Children { number: 2, groups: below };
            keys_in(&group(1, keys), Some(&children))
        };
        assert_eq!(keys_in(&group(1, 1), None), "1 key");
        assert_eq!(says(1, Some(vec![group(2, 2), group(3, 4)])), "1 key, 6 in 2 subgroups");
        assert_eq!(says(0, None), "0 keys, more in 2 subgroups");
    }
}
