//! The page of an account: figures, adding credit, the latest deposits, and its standing.

use axum::{
    extract::{Path, State},
    response::Response,
};
use domain::ledger::AccountStatus;
use key_service_management::{account_list::AccountRow, spend::DAYS};
use key_service_page::{
    app::App,
    entry::Entered,
    failure::Failure,
    form::Fields,
    operator::Operator,
    show::{copyable, count, glance, program, requests, time, usd},
    table::{Row, Table},
};
use key_service_store::store::Deposit;
use maud::{Markup, html};
use shared::ids::AccountId;

use crate::{
    customers::{accounts::lasts, credit_form},
    layout::{ACCOUNT, Section, page},
};

/// Number of the latest deposits on the page.
const DEPOSITS: usize = 10;

/// Finds the account named by an id in a path.
pub(crate) async fn found(app: &App, id: &str) -> Result<AccountRow, Failure> {
    let id: AccountId = id.parse().map_err(|_| Failure::NotFound)?;
    app.management.account_row(id).await?.ok_or(Failure::NotFound)
}

pub(crate) async fn show(
    State(app): State<App>,
    Path(id): Path<String>,
    operator: Operator,
) -> Result<Response, Failure> {
    let account = found(&app, &id).await?;
    whole(&app, &operator, &account, Entered::new(&Fields::default())).await
}

/// Renders the page, with what was entered into the form for credit.
pub(crate) async fn whole(
    app: &App,
    operator: &Operator,
    account: &AccountRow,
    entered: Entered<'_>,
) -> Result<Response, Failure> {
    let deposits = app.management.deposits(account.id, DEPOSITS).await?;
    let name = account.funds.name.replace('\'', "'\\''");
    let content = html! {
        (tiles(account))
        @if account.funds.status() != AccountStatus::Closed {
            section.card {
                h2 { "Add credit" }
                (credit_form::form(operator, account.id, entered))
                p { a href={ (ACCOUNT) "/" (account.id.to_string()) "/refund" } { "Refund …" } }
            }
        }
        h2 { "Latest deposits and refunds" }
        (table(&deposits))
        h2 { "Invite an owner" }
        p { "Run this on the server to create an owner of the account and print a sign-in link:" }
        (copyable("Command", &format!("{} members invite --account '{name}' --name NAME", program())))
        (standing(account))
    };
    Ok(page(operator, Section::Accounts, &account.funds.name, &content))
}

/// Shows whether the account is suspended or closed, and what can be done about it.
fn standing(account: &AccountRow) -> Markup {
    let path = format!("{ACCOUNT}/{}", account.id);
    let reason = account.funds.suspended_reason.as_deref().unwrap_or_default();
    html! {
        @match &account.funds.standing {
            None => {
                h2 { "Suspend" }
                p { "A suspended account keeps its keys and its credit, but its requests are refused and only operators can change it." }
                p { a.button.danger href={ (path) "/suspend" } { "Suspend …" } }
            },
            Some(standing) => {
                @if let Some(at) = standing.closed_at { p.problem { "This account was closed " (time(at)) "." } }
                @else { p.problem { "This account was suspended " (time(standing.suspended_at)) ": " bdi { (reason) } } }
                @if !standing.is_closed() {
                    p {
                        a.button.primary href={ (path) "/restore" } { "Restore …" } " "
                        a.button.danger href={ (path) "/close" } { "Close …" }
                    }
                }
            },
        }
    }
}

fn tiles(account: &AccountRow) -> Markup {
    let AccountRow { id, funds, spent, rate: _, refused } = account;
    html! {
        p.lead { code { (id.to_string()) } ", since " (time(id.created_at())) }
        dl.tiles {
            div.tile { dt { "Credit" } dd { (glance(funds.credit)) small { (glance(account.available())) " available" } } }
            div.tile { dt { "Held" } dd { (glance(funds.held)) small { "by requests in flight" } } }
            div.tile { dt { "Runway" } dd { (lasts(funds.credit, account.days_left())) } }
            div.tile { dt { "Last " (DAYS) " days" } dd { (glance(spent.charged)) small { (requests(spent.requests)) } } }
            div.tile { dt { "Refused today" } dd { (count(*refused)) small { "since 00:00 UTC" } } }
            div.tile { dt { "Keys" } dd { (count(funds.keys)) small { "groups: " (count(funds.groups)) } } }
        }
    }
}

fn table(deposits: &[Deposit]) -> Markup {
    let columns =
        [("Time", ""), ("Note", "wide-only wraps"), ("Payment", "wide-only wraps"), ("Amount", "n")];
    let row = |deposit: &Deposit| {
        let payment = deposit.deposited.payment.as_ref().map_or("", |payment| payment.id.as_str());
        let note = deposit.deposited.note.as_str();
        Row::new([
            html! { (time(deposit.at())) p.narrow-only { (note) } p.narrow-only { (payment) } },
            html! { bdi { (note) } },
            html! { bdi { (payment) } },
            html! { (usd(deposit.deposited.amount)) },
        ])
    };
    Table::new("Deposits", columns).or("No credit has been added yet.").rows(deposits.iter().map(row))
}
