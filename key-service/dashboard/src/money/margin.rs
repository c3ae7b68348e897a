//! Margins: charges minus what the upstreams charge the operator. Only owners see this page.

use std::{cmp::Reverse, collections::HashMap};

use axum::{
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::header;
use maud::{Markup, html};
use shared::{
    ids::{AccountId, GroupId},
    money::NanoUsd,
};

use domain::{
    group::Group,
    usage::{Margin, Sums},
};
use key_service_management::{
    margin::{MARGIN_KEYS, MarginOf, Margins},
    reach::AccountReach,
    spend::SpendBy,
};
use key_service_page::{
    app::App,
    csv::cell,
    failure::Failure,
    form::{Fields, query, with},
    layout::{Section, page},
    paths::{KEYS, MARGIN},
    session::Owner,
    show::{aligned, count, glance, or_unnamed, requests, scrolled_table},
    zone::{Today, Zone},
};
use key_service_ranges::range::Range;

/// How margins can be split, with the names in addresses and on the page. The first is the default.
const PARTS: [(SpendBy, &str, &str); 3] =
    [(SpendBy::Model, "model", "Model"), (SpendBy::Key, "key", "Key"), (SpendBy::Group, "group", "Group")];

pub(crate) const FILE: &str = "/dashboard/margin.csv";
/// Columns of the file. Scripts rely on the names: add names, but never rename one.
const HEAD: &str = "part,id,name,requests,tokens,charged,upstream_cost,margin\r\n";

/// Maximum number of rows, the largest charges first.
const ROWS: usize = 100;

pub(crate) async fn show(
    State(app): State<App>,
    Owner(viewer): Owner,
    request: Request,
) -> Result<Response, Failure> {
    let (account, query) = (viewer.signed_in.account, query(&request));
    let (by, _, title) = parts_of(&query);
    let range = Range::of(&query, &in_utc(&app));
    let Margins { parts: mut margins, total, are_largest } =
        app.management.margins(account, range.days.clone(), by).await?;
    let before = app.management.margins(account, range.before(), SpendBy::Model).await?.total;
    sort(&mut margins);
    let hidden = margins.len().saturating_sub(ROWS);
    margins.truncate(ROWS);
    let groups = groups_of(&app, account, &margins).await?;
    let content = html! {
        p.lead {
            "Charges minus upstream costs. Only owners see this page."
        }
        (range.choice(&app, MARGIN, &query))
        @if !viewer.browser.zone().is_utc() { p.quiet { "Upstream costs are counted by whole days in UTC." } }
        @if total.amount().is_none() {
            p.empty {
                "No upstream cost is known for these days. Set it as " code { "[model.upstream.cost]" } " in the catalogue."
            }
        }
        div.split {
            p { strong { (range.title()) } ": " (glance(total.sums.charged)) " charged · " (range.compared_charges(total.sums.charged, before.sums.charged)) }
            (choice(&query, by))
        }
        (table(title, &margins, &groups, &total))
        @if total.sums.requests > 0 { p.export { a href={ (FILE) "?" (query.query()) } { "Export CSV" } } }
        @if !are_largest {
            p.quiet { "There are too many " (title.to_lowercase()) "s in these days to compare them all, so an unlisted one may have been charged more. The total includes all of them." }
        } @else if margins.len() > MARGIN_KEYS && by == SpendBy::Key {
            p.quiet { "Only the " (MARGIN_KEYS) " keys with the largest charges are listed separately." }
        }
        @if hidden > 0 { p.quiet { "Not listed: " (count(hidden as u64)) " with smaller charges. The total includes them." } }
        p.quiet { "Requests without a known cost are in Charged, but not in Margin." }
    };
    Ok(page(&viewer, Section::Margin, "Margin", &content))
}

/// Returns the current day in UTC. Margins use days in UTC, because upstream costs are not counted by the hour.
fn in_utc(app: &App) -> Today {
    Zone::utc().today(app.management.now())
}

/// Answers with a CSV line for each part, the largest charges first. Unknown upstream costs and margins are empty.
pub(crate) async fn csv(
    State(app): State<App>,
    Owner(viewer): Owner,
    request: Request,
) -> Result<Response, Failure> {
    let (account, query) = (viewer.signed_in.account, query(&request));
    let (by, part, _) = parts_of(&query);
    let range = Range::of(&query, &in_utc(&app));
    let mut margins = app.management.margins(account, range.days.clone(), by).await?.parts;
    sort(&mut margins);
    let groups = groups_of(&app, account, &margins).await?;
    let line = |(of, margin): (MarginOf, Margin)| {
        let (id, name) = match of {
            MarginOf::Model(model) => (cell(&model), cell(&model)),
            MarginOf::Key(id, label) => (id.to_string(), cell(&label)),
            MarginOf::Group(Some(id)) => {
                (id.to_string(), cell(groups.get(&id).map_or("", |group| &group.name)))
            }
            MarginOf::Group(None) => (String::new(), "no group".into()),
            MarginOf::OtherKeys => (String::new(), "other keys".into()),
            MarginOf::OtherGroups => (String::new(), "other groups".into()),
        };
        let Sums { requests, tokens, charged } = margin.sums;
        let known = margin.amount().map(|amount| (margin.upstream_cost, amount));
        let known = known.map_or_else(|| ",".to_owned(), |(cost, amount)| format!("{cost},{amount}"));
        format!("{part},{id},{name},{requests},{tokens},{charged},{known}\r\n")
    };
    let lines: String = margins.into_iter().map(line).collect();
    let disposition = range.attachment("margin", "csv");
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
        (header::CONTENT_DISPOSITION, disposition.as_str()),
    ];
    Ok((headers, format!("{HEAD}{lines}")).into_response())
}

/// Sorts by charges, largest first. "Other keys" and "other groups" come last.
fn sort(margins: &mut [(MarginOf, Margin)]) {
    margins.sort_by_key(|(of, margin)| {
        (matches!(of, MarginOf::OtherKeys | MarginOf::OtherGroups), Reverse(margin.sums.charged))
    });
}

fn parts_of(query: &Fields) -> (SpendBy, &'static str, &'static str) {
    PARTS.into_iter().find(|(_, name, _)| *name == query.get("by")).unwrap_or(PARTS[0])
}

fn choice(query: &Fields, by: SpendBy) -> Markup {
    html! {
        nav.choice aria-label="Parts of the margin" {
            @for (part, name, title) in PARTS {
                a href={ (MARGIN) "?" (with(query, "by", name)) } aria-current=[(part == by).then_some("true")] {
                    "By " (title.to_lowercase())
                }
            }
        }
    }
}

fn table(
    title: &str,
    margins: &[(MarginOf, Margin)],
    groups: &HashMap<GroupId, Group>,
    total: &Margin,
) -> Markup {
    let head = html! {
        th scope="col" { (title) } th.n.wide-only scope="col" { "Requests" }
        th.n.wide-only scope="col" { "Charged" } th.n.wide-only scope="col" { "Upstream cost" }
        th.n scope="col" { "Margin" }
    };
    let rows = html! {
        @for (of, margin) in margins { (row(&name(of, groups), margin)) }
        (row(&html! { "Total" }, total))
    };
    scrolled_table("Margins", &head, &rows)
}

fn row(name: &Markup, of: &Margin) -> Markup {
    html! {
        tr {
            th scope="row" { (name) p.narrow-only { (requests(of.sums.requests)) } }
            td.n.wide-only { (count(of.sums.requests)) }
            td.n.wide-only { (aligned(of.sums.charged)) }
            @match of.amount() {
                Some(margin) => {
                    td.n.wide-only { (aligned(of.upstream_cost)) }
                    td.n { (aligned(margin)) " " (share(margin, of.charged_at_known_cost))
                        p.narrow-only { (aligned(of.sums.charged)) " − " (aligned(of.upstream_cost)) } }
                }
                None => { td.n.wide-only { span.quiet { "unknown" } } td.n { span.quiet { "unknown" }
                    p.narrow-only { (aligned(of.sums.charged)) " charged" } } }
            }
        }
    }
}

/// Shows a margin as a percentage of the charges. A loss is highlighted.
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

/// Finds the groups in the rows, for their names.
async fn groups_of(
    app: &App,
    account: AccountId,
    margins: &[(MarginOf, Margin)],
) -> Result<HashMap<GroupId, Group>, Failure> {
    let group = |(of, _): &(MarginOf, Margin)| match of {
        MarginOf::Group(group) => *group,
        MarginOf::Model(_) | MarginOf::Key(..) | MarginOf::OtherKeys | MarginOf::OtherGroups => None,
    };
    Ok(app
        .management
        .groups_by_id(AccountReach::whole(account), margins.iter().filter_map(group).collect())
        .await?)
}

fn name(of: &MarginOf, groups: &HashMap<GroupId, Group>) -> Markup {
    match of {
        MarginOf::Model(model) => html! { (model) },
        MarginOf::Key(id, label) => html! { a href={ (KEYS) "/" (id) } { (or_unnamed(label)) } },
        MarginOf::Group(Some(id)) => or_unnamed(groups.get(id).map_or("", |group| &group.name)),
        MarginOf::Group(None) => html! { span.quiet { "no group" } },
        MarginOf::OtherKeys => html! { span.quiet { "other keys" } },
        MarginOf::OtherGroups => html! { span.quiet { "other groups and ungrouped keys" } },
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
        assert!(share(-1, 1_000_000).contains("short"), "even a tiny loss is highlighted");
        assert_eq!(share(-5, 0), "", "nothing was charged");
    }
}
