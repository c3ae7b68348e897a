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
        first_steps, key,
        keys::{self, KeyColumns},
        many_keys,
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
    form::{PageAddress, query},
    layout::{Section, page},
    object_page::ObjectPage,
    pagination::{Pagination, ROWS_ON_PAGE, Shown},
    paths::{GROUPS as PATH, KEYS},
    session::{KeysViewer, Viewer},
    show::{aligned, copyable_line, count, name_of, time},
    table::{Row, Table},
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

/// Lists the groups. Child groups are below their parents.
pub(crate) async fn list(
    State(app): State<App>,
    KeysViewer(viewer): KeysViewer,
    request: Request,
) -> Result<Response, Failure> {
    let query = query(&request);
    let (reach, pagination) = (viewer.reach(), Pagination::of(&query)?);
    let after: Option<GroupId> = pagination.after(|id| id.parse().ok())?;
    let parent: Option<GroupId> = query.id("parent")?;
    let (items, next) = if let Some(text) = query.filled("q") {
        let Found { found, next } = app.management.find_groups(reach, text, after, ROWS_ON_PAGE).await?;
        (found, next)
    } else {
        let order = Order::Descending;
        let filter = GroupFilter { parent, within: reach.group, ..GroupFilter::default() };
        let listing = Listing { after, order, filter, limit: ROWS_ON_PAGE };
        let Page { items, has_more } = app.management.list::<Group>(reach.account, &listing).await?;
        let next = items.last().filter(|_| has_more).map(|last| last.id);
        (items, next)
    };
    let reached = app.management.reached_limits(reach, &[], &items).await?;
    let children = app.management.children_of(reach.account, &items).await?;
    let parents = app.management.groups_by_id(reach, parent.into_iter().collect()).await?;
    let is_filtered = query.filled("q").is_some() || parent.is_some();
    let total = (!is_filtered && reach.group.is_none()).then_some(viewer.funds.groups);
    let shown = Shown { rows: items.len(), total, next: next.map(|next| next.to_string()), is_filtered };
    let content = html! {
        div.split {
            p.lead { "A group is a team, a course or a customer. Its keys share its limits." }
            @if viewer.is_owner() { a.button.primary href={ (PATH) "/new" } { "New group" } }
        }
        @if items.is_empty() && !is_filtered && after.is_none() {
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
            (table(&tree(&items), &reached, &children))
        }
        (pagination.links(PATH, &query, &shown))
    };
    Ok(page(&viewer, Section::Groups, "Groups", &content))
}

/// Returns groups in their order, each followed by its listed child groups. The flag marks a group below its parent.
fn tree<'a>(groups: &'a [Group]) -> Vec<(&'a Group, bool)> {
    let has = |id: GroupId| groups.iter().any(|group| group.id == id);
    let tops = groups.iter().filter(|group| !group.spend.parent.is_some_and(has));
    let with_children = |top: &'a Group| {
        let children = groups.iter().filter(|group| group.spend.parent == Some(top.id));
        std::iter::once((top, false)).chain(children.map(|child| (child, true)))
    };
    tops.flat_map(with_children).collect()
}

fn table(
    groups: &[(&Group, bool)],
    reached: &ReachedLimits,
    children: &HashMap<GroupId, Children>,
) -> Markup {
    let columns = [
        ("Name", ""),
        ("Limits", "wide-only wraps"),
        ("Usage", "wide-only limit"),
        ("Total spend", "n"),
        ("Keys", "n wide-only"),
        ("Created", "wide-only"),
    ];
    let row = |(group, is_below): &(&Group, bool)| row(group, *is_below, reached, children.get(&group.id));
    Table::new("Groups", columns)
        .or(html! { "No groups match. " a href=(PATH) { "Clear filters" } })
        .rows(groups.iter().map(row))
}

fn row(group: &Group, is_below: bool, reached: &ReachedLimits, children: Option<&Children>) -> Row {
    let parent = reached.parent_of(group).filter(|_| !is_below);
    let bounds = words::bounds(&group.spend.budget, &[], reached.now());
    let limits = reached.limits(Holder::Group(group.id), &group.spend.budget);
    let name = html! {
        a href=(path(group)) { bdi { (name_of(group)) } } " " (badges(group, reached))
        @if let Some(parent) = parent { p.under { "in " bdi { (name_of(parent)) } } }
        p.narrow-only { (bounds) " " (keys_in(group, children)) }
    };
    let spend = html! {
        (aligned(group.spend.budget.used))
        @if !limits.is_empty() { p.narrow-only.limit { (tightest(&limits)) } }
    };
    Row::new([
        name,
        html! { @if bounds.is_empty() { span.quiet { "no limit" } } @else { (bounds) } },
        html! { (tightest(&limits)) },
        spend,
        html! { (count(group.keys)) @if let Some(children) = children { p.under { (in_children(children)) } } },
        time(group.created_at),
    ])
    .class("gone", group.spend.archived_at.is_some())
    .class("below", is_below)
}

pub(super) fn path(group: &Group) -> String {
    format!("{PATH}/{}", group.id)
}

/// Counts the keys in a group and in its child groups: `1 key, 6 in 3 subgroups`.
pub(super) fn keys_in(group: &Group, children: Option<&Children>) -> String {
    let own = if group.keys == 1 { "1 key".into() } else { format!("{} keys", count(group.keys)) };
    children.map_or_else(|| own.clone(), |children| format!("{own}, {}", in_children(children)))
}

fn in_children(Children { groups, keys }: &Children) -> String {
    let groups = if *groups == 1 { "1 subgroup".into() } else { format!("{} subgroups", count(*groups)) };
    match keys {
        Some(keys) => format!("{} in {groups}", count(*keys)),
        None => format!("more in {groups}"),
    }
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
    let (reach, today) = (viewer.reach(), app.management.today());
    let (here, query) = (path(&group), query(&request));
    let view = SpendView::of(&query, SpendScope::Group(group.id), today);
    let report = view.read(&app, reach).await?;
    let (limits, children) = bounds(&app, &viewer, &group).await?;
    let trouble = app.management.trouble(AccountReach { group: Some(group.id), ..reach }).await?;
    let content = html! {
        (limits)
        (trouble::strip(&viewer, &trouble, app.management.now(), None))
        (view.range.choice(&app, &here, &query))
        (view.tiles(&report, today, None))
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
) -> Result<Response, Failure> {
    let reached = [group];
    let limits = app.management.reached_limits(viewer.reach(), &[], &reached).await?;
    let [group] = &reached;
    let model = key::first_model(&app, &lists(group, limits.parent_of(group)));
    let content = html! {
        p.lead { "These commands work with any key of this group." }
        (first_steps::commands_of_known_key(&viewer.browser.base(), &model))
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
    let parent = reached.parent_of(group);
    let children: Vec<_> = children.iter().map(|child| (child, true)).collect();
    let bounds = words::bounds(&group.spend.budget, parent.as_slice(), reached.now());
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
        @if !children.is_empty() { h2 { "Subgroups" } (table(&children, &reached, &HashMap::new())) }
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
    let may_add = viewer.keeps_keys() && group.spend.archived_at.is_none();
    Ok(html! {
        div.split {
            h2 { "API keys" }
            @if may_add { a.button href={ (KEYS) "/new?group=" (group.id.to_string()) } { "New API key" } }
        }
        @if found.found.is_empty() { p.empty { "There are no API keys directly in this group." } }
        @else { (many_keys::form(viewer, &table)) }
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
    fn groups_stand_below_the_group_that_they_are_in() {
        let group = |number: u8, parent: Option<u8>| {
            let at = Timestamp::from_millis(0);
            let id = |number| GroupId::new(at, [number; 10]);
            let mut group = Group::new(id(number), at);
            group.spend.parent = parent.map(id);
            group
        };
        let groups =
            [group(4, Some(1)), group(3, None), group(2, Some(9)), group(1, None), group(0, Some(1))];
        let shown = tree(&groups).into_iter().map(|(group, is_below)| {
            (groups.iter().position(|other| other.id == group.id).unwrap(), is_below)
        });
        let expected = [(1, false), (2, false), (3, false), (0, true), (4, true)];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
    }
}
