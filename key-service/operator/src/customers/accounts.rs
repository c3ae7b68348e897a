//! The list of accounts: what each has, how long that lasts, and what is refused.

use axum::{
    extract::{Request, State},
    response::Response,
};
use key_service_management::{
    account_list::AccountRow,
    spend::{DAYS, days_left},
};
use key_service_page::{
    app::App,
    failure::Failure,
    form::query,
    operator::Operator,
    pagination::{Pagination, ROWS_ON_PAGE, Shown},
    paths::OPERATOR,
    show::{count, glance, requests, scrolled_table},
};
use maud::{Markup, html};
use shared::money::NanoUsd;

use crate::{
    layout::{Section, page},
    paths::{ACCOUNT, NEW_ACCOUNT},
};

/// Days until the credit runs out below which the list marks it.
const SOON: i64 = 7;
/// Days until the credit runs out beyond which no number is shown.
const FAR: i64 = 365;

/// Lists the accounts, newest first.
pub(crate) async fn list(
    State(app): State<App>,
    operator: Operator,
    request: Request,
) -> Result<Response, Failure> {
    let query = query(&request);
    let pagination = Pagination::of(&query)?;
    let after = pagination.after(|id| id.parse().ok())?;
    let text = query.get("q").trim();
    let found = app.management.find_accounts(text, after, ROWS_ON_PAGE).await?;
    let shown = Shown {
        rows: found.rows.len(),
        total: Some(found.total),
        next: found.next.map(|next| next.to_string()),
        is_filtered: !text.is_empty(),
    };
    let content = html! {
        div.split {
            p.lead { "The customers of this installation, newest first. Each owns its keys and its prepaid credit." }
            a.button.primary href=(NEW_ACCOUNT) { "New account" }
        }
        form.filters method="get" action=(OPERATOR) role="search" {
            label { "Search" input type="search" name="q" value=(query.get("q")) placeholder="Words of the name" autocomplete="off"; }
            button { "Apply" }
        }
        @if found.rows.is_empty() && text.is_empty() { p.empty { "There is no account yet." } }
        @else if found.rows.is_empty() { p.empty { "No accounts match. " a href=(OPERATOR) { "Clear filters" } } }
        @else { (table(&found.rows)) }
        (pagination.links(OPERATOR, &query, &shown))
    };
    Ok(page(&operator, Section::Accounts, "Accounts", &content))
}

fn table(rows: &[AccountRow]) -> Markup {
    let head = html! {
        th scope="col" { "Name" } th.n scope="col" { "Credit" } th.n.wide-only scope="col" { "Held" }
        th.n.wide-only scope="col" { "Lasts" } th.n.wide-only scope="col" { "Last " (DAYS) " days" }
        th.n.wide-only scope="col" { "Requests" } th.n.wide-only scope="col" { "Refused today" }
    };
    let rows = html! {
        @for account in rows { (row(account)) }
    };
    scrolled_table("Accounts", &head, &rows)
}

fn row(account: &AccountRow) -> Markup {
    let AccountRow { id, funds, spent, refused } = account;
    html! {
        tr {
            th scope="row" { a href={ (ACCOUNT) "/" (id.to_string()) } { bdi title=(funds.name) { (funds.name) } }
                p.narrow-only { (glance(spent.charged)) " in " (DAYS) " days, " (lasts(funds.credit, spent.charged)) }
                @if *refused > 0 { p.narrow-only { (requests(*refused)) " refused today" } }
            }
            td.n { (glance(funds.credit)) }
            td.n.wide-only { (glance(funds.held)) }
            td.n.wide-only { (lasts(funds.credit, spent.charged)) }
            td.n.wide-only { (glance(spent.charged)) }
            td.n.wide-only { (count(spent.requests)) }
            td.n.wide-only { @if *refused > 0 { (count(*refused)) } @else { span.quiet { "0" } } }
        }
    }
}

/// Says for how long the credit lasts at the rate of the last days. Little stands out.
pub(crate) fn lasts(credit: NanoUsd, spent: NanoUsd) -> Markup {
    html! {
        @match days_left(credit, spent) {
            _ if credit <= NanoUsd::ZERO => span.badge.short { "no credit" },
            None => span.quiet { "not spent" },
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
        let usd = NanoUsd::from_usd;
        for (credit, spent, said, stands_out) in [
            (0, 0, "no credit", true),
            (10, 0, "not spent", false),
            (1, 15, "2 days", true),
            (1, 30, "1 day", true),
            (7, 30, "7 days", false),
            (1_000, 30, "over a year", false),
        ] {
            let shown = lasts(usd(credit), usd(spent)).into_string();
            assert!(shown.contains(said) && shown.contains("short") == stands_out, "{shown}");
        }
    }
}
