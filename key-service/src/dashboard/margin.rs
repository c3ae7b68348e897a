//! Margin: what was charged beside what the upstreams charge the operator. Owners alone see this page.

use std::{cmp::Reverse, collections::HashMap};

use axum::{
    extract::{Request, State},
    response::Response,
};
use maud::{Markup, html};
use shared::{
    catalog::Catalog,
    ids::{AccountId, GroupId, KeyId},
    money::NanoUsd,
};

use super::{
    Desk, MARGIN,
    failure::Failure,
    form::query,
    layout::{Section, page},
    session::Owner,
    show::{aligned, count, or_unnamed},
};
use crate::management::{
    spend::DAYS,
    usage::{Grouping, Parts, UsageSearch, UsageSum},
};
use domain::{group::Group, key::ApiKey, usage::Counts};

/// Parts that margins are apart by, with their names on the page. The first is the default.
const PARTS: [(Grouping, &str); 3] =
    [(Grouping::Model, "Model"), (Grouping::Key, "Key"), (Grouping::Group, "Group")];

/// Rows shown: those with the largest charges.
const ROWS: usize = 100;

/// Leads to this page, for owners of an installation that knows what an upstream charges.
pub(super) fn link(catalog: &Catalog, is_owner: bool) -> Markup {
    let knows_cost = || catalog.models.iter().flat_map(|model| &model.upstreams).any(|up| up.cost.is_some());
    html! { @if is_owner && knows_cost() { a href=(MARGIN) { "Margin" } } }
}

/// Shows the margins of the last days.
pub(super) async fn show(
    State(desk): State<Desk>,
    Owner(viewer): Owner,
    request: Request,
) -> Result<Response, Failure> {
    let (account, today) = (viewer.signed_in.account, desk.management.today());
    let query = query(&request);
    let chosen = PARTS.into_iter().find(|(part, _)| part.as_str() == query.get("by"));
    let (by, title) = chosen.unwrap_or(PARTS[0]);
    let days = today.plus(1 - DAYS)..=today;
    let search = UsageSearch { days, key: None, group: None, within: None, by: [by].into() };
    let mut sums = desk.management.sums_of_usage(account, &search).await?;
    let total = sums.iter().fold(Counts::default(), |total, (_, counts)| total.plus(*counts));
    sums.sort_by_key(|(_, counts)| Reverse(counts.charged));
    let hidden = sums.len().saturating_sub(ROWS);
    sums.truncate(ROWS);
    let names = Names::of(&desk, account, &sums).await?;
    let content = html! {
        p.lead {
            "What the requests of the last " (DAYS) " days were charged, less what the upstreams charge for them. \
             Only owners see this."
        }
        @if total.margin().is_none() {
            p.empty {
                "No upstream cost is known of these days. " code { "[model.upstream.cost]" } " in the catalogue states it."
            }
        }
        div.split { (choice(by)) }
        (table(title, &sums, &names, &total))
        @if hidden > 0 { p.quiet { (count(hidden as u64)) " with smaller charges are in the sums only." } }
        p.quiet { "Requests whose upstream cost is not known count as charged, and not in the margin." }
    };
    Ok(page(&viewer, Section::Activity, "Margin", &content))
}

fn choice(by: Grouping) -> Markup {
    html! {
        nav.choice aria-label="Parts of the margin" {
            @for (part, title) in PARTS {
                a href={ (MARGIN) "?by=" (part.as_str()) } aria-current=[(part == by).then_some("true")] {
                    "By " (title.to_lowercase())
                }
            }
        }
    }
}

fn table(title: &str, sums: &[UsageSum], names: &Names, total: &Counts) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Margins" {
            table {
                thead { tr {
                    th scope="col" { (title) } th.n.wide-only scope="col" { "Requests" }
                    th.n.wide-only scope="col" { "Charged" } th.n.wide-only scope="col" { "Upstream cost" }
                    th.n scope="col" { "Margin" }
                } }
                tbody {
                    @for (parts, counts) in sums { (row(&names.of_row(parts), counts)) }
                    (row(&html! { "All" }, total))
                }
            }
        }
    }
}

fn row(name: &Markup, counts: &Counts) -> Markup {
    let margin = counts.margin();
    html! {
        tr {
            th scope="row" { (name) }
            td.n.wide-only { (count(counts.requests)) }
            td.n.wide-only { (aligned(counts.charged)) }
            @match margin {
                Some(margin) => {
                    td.n.wide-only { (aligned(counts.upstream_cost)) }
                    td.n { (aligned(margin)) " " (share(margin, counts.charged_at_known_cost))
                        p.narrow-only { (aligned(counts.charged)) " − " (aligned(counts.upstream_cost)) } }
                }
                None => { td.n.wide-only { span.quiet { "unknown" } } td.n { span.quiet { "unknown" } } }
            }
        }
    }
}

/// The part of the charges that a margin is; a loss stands out.
fn share(margin: NanoUsd, charged: NanoUsd) -> Markup {
    if charged <= NanoUsd::ZERO {
        return html! {};
    }
    let permille = i128::from(margin.nanos()) * 1_000 / i128::from(charged.nanos());
    let (sign, size) = (if permille < 0 { "−" } else { "" }, permille.abs());
    html! {
        span.badge.short[margin < NanoUsd::ZERO] { (sign) (size / 10) "." (size % 10) " %" }
    }
}

/// Keys and groups of the rows, to be shown by name.
struct Names {
    keys: HashMap<KeyId, ApiKey>,
    groups: HashMap<GroupId, Group>,
}

impl Names {
    async fn of(desk: &Desk, account: AccountId, sums: &[UsageSum]) -> Result<Self, Failure> {
        let keys = sums.iter().filter_map(|(parts, _)| parts.key).collect();
        let groups = sums.iter().filter_map(|(parts, _)| parts.group.flatten()).collect();
        Ok(Self {
            keys: desk.management.keys_by_id(account, keys).await?,
            groups: desk.management.groups_by_id(account, groups).await?,
        })
    }

    fn of_row(&self, parts: &Parts) -> Markup {
        if let Some(id) = parts.key {
            let label = self.keys.get(&id).map_or("", |key| &key.label);
            return html! { a href={ "/dashboard/keys/" (id.to_string()) } { (or_unnamed(label)) } };
        }
        match parts.group {
            Some(Some(id)) => or_unnamed(self.groups.get(&id).map_or("", |group| &group.name)),
            Some(None) => html! { span.quiet { "no group" } },
            None => html! { (parts.model.as_deref().unwrap_or_default()) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_a_margin_has_one_decimal_and_a_loss_stands_out() {
        let share = |margin, charged| {
            let [margin, charged] = [margin, charged].map(NanoUsd::from_nanos);
            share(margin, charged).into_string()
        };
        assert!(share(1, 3).contains("33.3 %") && !share(1, 3).contains("short"), "{}", share(1, 3));
        assert!(share(-5, 4).contains("−125.0 %") && share(-5, 4).contains("short"));
        assert!(share(-1, 1_000_000).contains("short"), "a loss however small");
        assert_eq!(share(-5, 0), "", "nothing was charged");
    }
}
