//! The list of accounts, with credit, runway, spend and refused requests.

use axum::{
    extract::{Request, State},
    response::Response,
};
use key_service_management::{account_list::AccountRow, accounts::SOON, spend::DAYS};
use key_service_page::{
    app::App,
    failure::Failure,
    form::{Fields, query, with},
    operator::Operator,
    pagination::{Pagination, ROWS_ON_PAGE, Shown},
    paths::OPERATOR,
    show::{count, glance, requests},
    table::{Column, Row, Table},
};
use maud::{Markup, html};
use shared::money::NanoUsd;

use crate::layout::{ACCOUNT, NEW_ACCOUNT, Section, page};
use domain::ledger::AccountStatus;

/// Above this many days, "over a year" is shown instead of a number.
const FAR: i64 = 365;

/// An order of the list other than by age. It applies only if the whole list fits on one page, because the figures for
/// other pages are not read.
struct AccountOrder {
    name: &'static str,
    /// `aria-sort` of the column.
    sort: &'static str,
    /// Sort key, ascending.
    number: fn(&AccountRow) -> i128,
}

static ORDERS: [AccountOrder; 4] = [
    AccountOrder { name: "credit", sort: "ascending", number: |row| row.funds.credit.nanos().into() },
    AccountOrder { name: "lasts", sort: "ascending", number: days_of },
    AccountOrder { name: "spent", sort: "descending", number: |row| -i128::from(row.spent.charged.nanos()) },
    AccountOrder { name: "refused", sort: "descending", number: |row| -i128::from(row.refused) },
];

/// Returns how many days the credit lasts: -1 without credit, and the maximum if nothing was spent.
fn days_of(row: &AccountRow) -> i128 {
    match row.days_left() {
        _ if row.funds.credit <= NanoUsd::ZERO => -1,
        Some(days) => days.into(),
        None => i128::MAX,
    }
}

/// Lists the accounts, newest first unless the address names an order.
pub(crate) async fn list(
    State(app): State<App>,
    operator: Operator,
    request: Request,
) -> Result<Response, Failure> {
    let query = query(&request);
    let pagination = Pagination::of(&query)?;
    let after = pagination.after(|id| id.parse().ok())?;
    let text = query.get("q").trim();
    let mut found = app.management.find_accounts(text, after, ROWS_ON_PAGE).await?;
    let is_whole = after.is_none() && found.next.is_none();
    let order = ORDERS.iter().find(|order| is_whole && order.name == query.get("order"));
    if let Some(order) = order {
        found.rows.sort_by_key(order.number);
    }
    let shown = Shown {
        rows: found.rows.len(),
        total: Some(found.total),
        next: found.next.map(|next| next.to_string()),
        is_filtered: !text.is_empty(),
    };
    let content = html! {
        div.split {
            p.lead { "The customers of this installation" @if order.is_none() { ", newest first" } ". Each account has its own keys and prepaid credit." }
            a.button.primary href=(NEW_ACCOUNT) { "New account" }
        }
        form.filters method="get" action=(OPERATOR) role="search" {
            label { "Search" input type="search" name="q" value=(query.get("q")) placeholder="Words of the name" autocomplete="off"; }
            button { "Apply" }
        }
        @if found.rows.is_empty() && text.is_empty() { p.empty { "There are no accounts yet." } }
        @else if found.rows.is_empty() { p.empty { "No accounts match. " a href=(OPERATOR) { "Clear filters" } } }
        @else { (table(&found.rows, &Headings { query: is_whole.then_some(&query), order })) }
        (pagination.links(OPERATOR, &query, &shown))
    };
    Ok(page(&operator, Section::Accounts, "Accounts", &content))
}

struct Headings<'a> {
    /// The query, if the list can be ordered.
    query: Option<&'a Fields>,
    order: Option<&'a AccountOrder>,
}

impl Headings<'_> {
    /// Returns a numeric column. Its heading is a link that orders the list, if possible.
    fn of(&self, name: &str, title: &str, classes: &'static str) -> Column {
        let chosen = self.order.filter(|order| order.name == name).map(|order| order.sort);
        let arrow = chosen.map(|sort| if sort == "ascending" { " ↑" } else { " ↓" });
        let heading = html! {
            @match self.query {
                Some(query) => a href={ (OPERATOR) "?" (with(query, "order", name)) } { (title) (arrow.unwrap_or_default()) },
                None => (title),
            }
        };
        Column::new(heading, classes).sorted(chosen)
    }
}

fn table(rows: &[AccountRow], headings: &Headings<'_>) -> Markup {
    let columns = [
        Column::new("Name", ""),
        headings.of("credit", "Credit", "n"),
        Column::new("Held", "n wide-only"),
        headings.of("lasts", "Runway", "n wide-only"),
        headings.of("spent", &format!("Last {DAYS} days"), "n wide-only"),
        Column::new("Requests", "n wide-only"),
        headings.of("refused", "Refused today", "n wide-only"),
    ];
    Table::new("Accounts", columns).rows(rows.iter().map(row))
}

fn row(account: &AccountRow) -> Row {
    let AccountRow { id, funds, spent, rate: _, refused } = account;
    let lasts = lasts(funds.credit, account.days_left());
    let name = html! {
        a href={ (ACCOUNT) "/" (id.to_string()) } { bdi title=(funds.name) { (funds.name) } }
        " " (badge(funds.status()))
        p.narrow-only { (glance(spent.charged)) " in " (DAYS) " days, " (lasts) }
        @if *refused > 0 { p.narrow-only { (requests(*refused)) " refused today" } }
    };
    Row::new([
        name,
        html! { (glance(funds.credit)) },
        html! { (glance(funds.held)) },
        lasts,
        html! { (glance(spent.charged)) },
        html! { (count(spent.requests)) },
        html! { @if *refused > 0 { (count(*refused)) } @else { span.quiet { "0" } } },
    ])
}

/// Shows the status of an account that is not active.
fn badge(status: AccountStatus) -> Markup {
    html! {
        @match status {
            AccountStatus::Active => {},
            AccountStatus::Suspended | AccountStatus::Closed => span.badge.short { (status.as_str()) },
        }
    }
}

/// Shows how many days the credit lasts. A short time is highlighted.
pub(crate) fn lasts(credit: NanoUsd, days: Option<i64>) -> Markup {
    html! {
        @match days {
            _ if credit <= NanoUsd::ZERO => span.badge.short { "no credit" },
            None => span.quiet { "no spend" },
            Some(1) => span.badge.short { "1 day" },
            Some(days) if days < SOON => span.badge.short { (days) " days" },
            Some(days) if days <= FAR => { (days) " days" },
            Some(_) => { "over a year" },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_credit_stands_out() {
        for (credit, days, said, stands_out) in [
            (0, None, "no credit", true),
            (0, Some(0), "no credit", true),
            (10, None, "no spend", false),
            (1, Some(2), "2 days", true),
            (1, Some(1), "1 day", true),
            (7, Some(7), "7 days", false),
            (1_000, Some(1_000), "over a year", false),
        ] {
            let shown = lasts(NanoUsd::from_usd(credit), days).into_string();
            assert!(shown.contains(said) && shown.contains("short") == stands_out, "{shown}");
        }
    }
}
