//! The pages of groups: the list; a group with used bounds, settings and end.

use std::collections::HashMap;

use axum::{
    extract::{Path, Request, State},
    response::Response,
};
use maud::{Markup, html};
use shared::{ids::GroupId, money::NanoUsd};

use super::{
    Desk, GROUPS as PATH, KEYS,
    budget::{bar, gauge, tightest},
    entry::Entered,
    events::{self, Subject},
    failure::Failure,
    form::query,
    keys,
    layout::{Section, page},
    many_keys,
    pagination::{Pagination, ROWS_ON_PAGE, Shown},
    session::Viewer,
    settings_form::name_of,
    show::{aligned, copyable_line, count, time},
    words,
};
use crate::{
    management::{
        listing::{GroupFilter, Listing, Page},
        reading::KeySearch,
    },
    store::Order,
};
use domain::group::Group;

pub(super) mod acts;

/// Newest child groups on the page of a group, which then takes some 100 kB at most.
const CHILDREN_ON_PAGE: usize = 100;

/// Lists the groups, child groups below parents.
pub(super) async fn list(
    State(desk): State<Desk>,
    viewer: Viewer,
    request: Request,
) -> Result<Response, Failure> {
    let query = query(&request);
    let (account, pagination) = (viewer.signed_in.account, Pagination::of(&query)?);
    let listing = Listing {
        after: pagination.after(|id| id.parse().ok())?,
        order: Order::Descending,
        filter: GroupFilter {
            external_id: query.filled("external_id").map(str::to_owned),
            parent: query.filled("parent").map(str::parse).transpose().map_err(|_| Failure::NotFound)?,
            ..GroupFilter::default()
        },
        limit: ROWS_ON_PAGE,
    };
    let Page { items, has_more } = desk.management.list::<Group>(account, &listing).await?;
    let parents = items.iter().filter_map(|group| group.spend.parent).collect();
    let parents = desk.management.groups_by_id(account, parents).await?;
    let is_filtered = listing.filter.external_id.is_some() || listing.filter.parent.is_some();
    let total = (!is_filtered).then_some(viewer.funds.groups);
    let next = items.last().filter(|_| has_more).map(|last| last.id.to_string());
    let shown = Shown { rows: items.len(), total, next, is_filtered };
    let content = html! {
        div.split {
            p.lead { "The keys of a group share its bounds: a team, a course, a customer." }
            @if viewer.is_owner() { a.button.primary href={ (PATH) "/new" } { "New group" } }
        }
        @if items.is_empty() && !is_filtered && listing.after.is_none() {
            p.empty { "There is no group yet. Keys need none; in a group they share a budget." }
        } @else {
            form.filters method="get" action=(PATH) role="search" {
                @if let Some(parent) = listing.filter.parent {
                    label { "In" select name="parent" {
                        option value=(parent.to_string()) selected { (parents.get(&parent).map_or_else(|| parent.to_string(), name_of)) }
                        option value="" { "All" }
                    } }
                }
                label { "External id" input type="search" name="external_id" value=(query.get("external_id")) autocomplete="off"; }
                button { "Apply" }
            }
            @if items.is_empty() { p.empty { "No groups match. " a href=(PATH) { "Clear filters" } } }
            @else { (table(&desk, &tree(&items), &parents)) }
        }
        (pagination.links(PATH, &query, &shown))
    };
    Ok(page(&viewer, Section::Groups, "Groups", &content))
}

/// Groups in their order, each followed by those of the list that are in it. The flag says that a group stands below
/// the one that it is in.
fn tree<'a>(groups: &'a [Group]) -> Vec<(&'a Group, bool)> {
    let has = |id: GroupId| groups.iter().any(|group| group.id == id);
    let tops = groups.iter().filter(|group| !group.spend.parent.is_some_and(has));
    let with_children = |top: &'a Group| {
        let children = groups.iter().filter(|group| group.spend.parent == Some(top.id));
        std::iter::once((top, false)).chain(children.map(|child| (child, true)))
    };
    tops.flat_map(with_children).collect()
}

fn table(desk: &Desk, groups: &[(&Group, bool)], parents: &HashMap<GroupId, Group>) -> Markup {
    let now = desk.management.now();
    html! {
        div.scroll tabindex="0" role="region" aria-label="Groups" {
            table {
                thead { tr {
                    th scope="col" { "Name" } th.wide-only scope="col" { "Bounds" } th.n scope="col" { "Used" }
                    th.n.wide-only scope="col" { "Keys" } th.wide-only scope="col" { "Created" }
                } }
                tbody {
                    @for (group, is_below) in groups {
                        @let parent = group.spend.parent.filter(|_| !is_below).and_then(|id| parents.get(&id));
                        @let bounds = words::bounds(&group.spend.budget, &[]);
                        tr.gone[group.spend.archived_at.is_some()].below[*is_below] {
                            th scope="row" {
                                a href=(path(group)) { bdi { (name_of(group)) } } " " (badges(desk, group))
                                @if let Some(parent) = parent { p.under { "in " bdi { (name_of(parent)) } } }
                                p.narrow-only { (bounds) " " (keys_in(group)) }
                            }
                            td.wide-only.wraps { @if bounds.is_empty() { span.quiet { "none" } } @else { (bounds) } }
                            td.n { (aligned(group.spend.budget.used))
                                @if let Some((used, limit)) = tightest(&group.spend.budget, now) { (bar(used, NanoUsd::ZERO, limit)) } }
                            td.n.wide-only { (count(group.keys)) }
                            td.wide-only { (time(group.created_at)) }
                        }
                    }
                }
            }
        }
    }
}

fn path(group: &Group) -> String {
    format!("{PATH}/{}", group.id)
}

fn keys_in(group: &Group) -> String {
    if group.keys == 1 { "1 key".into() } else { format!("{} keys", count(group.keys)) }
}

fn badges(desk: &Desk, group: &Group) -> Markup {
    let is_used_up = group.spend.budget.left(desk.management.now()) <= NanoUsd::ZERO;
    html! {
        @if group.spend.archived_at.is_some() { span.badge { "archived" } }
        @else if is_used_up { span.badge.short { "limit reached" } }
    }
}

/// Shows a group.
pub(super) async fn show(
    State(desk): State<Desk>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let group = named(&desk, &viewer, &id).await?;
    whole(&desk, &viewer, &group, None).await
}

/// Finds the group of a path in the account.
async fn named(desk: &Desk, viewer: &Viewer, id: &str) -> Result<Group, Failure> {
    let id: GroupId = id.parse().map_err(|_| Failure::NotFound)?;
    Ok(desk.management.group(viewer.signed_in.account, id).await?)
}

/// The page, with the form that was refused, if any.
async fn whole(
    desk: &Desk,
    viewer: &Viewer,
    group: &Group,
    refused: Option<Entered<'_>>,
) -> Result<Response, Failure> {
    let (account, now) = (viewer.signed_in.account, desk.management.now());
    let is_archived = group.spend.archived_at.is_some();
    let parent = desk.management.groups_by_id(account, group.spend.parent.into_iter().collect()).await?;
    let parent = group.spend.parent.and_then(|id| parent.get(&id));
    let filter = GroupFilter { parent: Some(group.id), ..GroupFilter::default() };
    let listing = Listing { after: None, order: Order::Descending, filter, limit: CHILDREN_ON_PAGE };
    let children = desk.management.list::<Group>(account, &listing).await?;
    let bounds = words::bounds(&group.spend.budget, parent.as_slice());
    let content = html! {
        p.lead { (badges(desk, group)) " " (keys_in(group)) " · created " (time(group.created_at))
            @if let Some(external_id) = &group.external_id { " · external id " bdi { code { (external_id) } } }
            @if let Some(at) = group.spend.archived_at { " · archived " (time(at)) } }
        @if let Some(parent) = parent { p { "In the group " a href=(path(parent)) { bdi { (name_of(parent)) } } "." } }
        @if !bounds.is_empty() { p { (bounds) } }
        (gauge(&group.spend.budget, now, is_archived))
        @if !children.items.is_empty() {
            h2 { "Groups in it" }
            (table(desk, &children.items.iter().map(|child| (child, true)).collect::<Vec<_>>(), &HashMap::new()))
        }
        @if children.has_more { p { a href={ (PATH) "?parent=" (group.id.to_string()) } { "All groups in it" } } }
        (keys_of(desk, viewer, group).await?)
        (events::last_events(desk, viewer, Subject::Group(group.id)).await?)
        @if viewer.is_owner() && !is_archived { (acts::forms(desk, viewer, group, refused).await?) }
        (copyable_line("Id", &group.id.to_string()))
    };
    Ok(page(viewer, Section::Groups, &name_of(group), &content))
}

/// The newest keys of a group.
async fn keys_of(desk: &Desk, viewer: &Viewer, group: &Group) -> Result<Markup, Failure> {
    let search = KeySearch { group: Some(group.id), limit: ROWS_ON_PAGE, ..KeySearch::default() };
    let found = desk.management.find_keys(viewer.signed_in.account, &search).await?;
    let table = keys::table(viewer, &found.found, &HashMap::new(), desk.management.now());
    let may_add = viewer.is_owner() && group.spend.archived_at.is_none();
    Ok(html! {
        div.split {
            h2 { "API keys" }
            @if may_add { a.button href={ (KEYS) "/new?group=" (group.id.to_string()) } { "New API key" } }
        }
        @if found.found.is_empty() { p.empty { "There is no API key in this group yet." } }
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
