//! Credit: the balance, deposits and monthly statements.

use axum::{
    extract::{Path, Request, State},
    response::{IntoResponse, Response},
};
use http::header;
use maud::{Markup, html};
use shared::{
    ids::{AccountId, DepositId},
    money::NanoUsd,
};

use domain::{ledger::Deposited, usage::Day};
use key_service_management::statement::{Month, Statement};
use key_service_page::{
    app::App,
    csv::cell,
    failure::Failure,
    form::query,
    layout::{Section, page},
    pagination::{Pagination, ROWS_ON_PAGE, Shown},
    paths::OPERATOR,
    session::Viewer,
    show::{aligned, copyable, program, requests, short_count, time, time_to_second, usd},
    table::{Row, Table},
};
use key_service_store::store::Deposit;

const PATH: &str = "/dashboard/credit";
/// Maximum number of deposits on pages and in the file, newest first. All of them are in memory at once.
const DEPOSITS: usize = 10_000;
/// Number of months for which the page links statements.
const MONTHS: usize = 13;

pub(crate) async fn show(
    State(app): State<App>,
    viewer: Viewer,
    request: Request,
) -> Result<Response, Failure> {
    let query = query(&request);
    let pagination = Pagination::of(&query)?;
    let after: Option<DepositId> = pagination.after(|id| id.parse().ok())?;
    let deposits = app.management.deposits(viewer.signed_in.account, DEPOSITS).await?;
    let place = after.and_then(|after| deposits.iter().position(|deposit| deposit.id == after));
    let page_of = deposits.iter().skip(place.map_or(0, |place| place + 1));
    let listed: Vec<&Deposit> = page_of.take(ROWS_ON_PAGE).collect();
    let is_last = listed.last().is_none_or(|last| deposits.last().is_some_and(|of_all| of_all.id == last.id));
    let next = listed.last().filter(|_| !is_last).map(|last| last.id.to_string());
    let total = Some(deposits.len() as u64);
    let shown = Shown { rows: listed.len(), total, next, is_filtered: false };
    let (credit, held) = (viewer.funds.credit, viewer.funds.held);
    let name = viewer.funds.name.replace('\'', "'\\''");
    let content = html! {
        dl.tiles.exact {
            div.tile { dt { "Credit" } dd { (usd(credit)) } }
            div.tile { dt { "Held by requests in flight" } dd { (usd(held)) } }
            div.tile { dt { "Available" } dd { (usd(credit.left_after(held))) } }
        }
        @if credit <= NanoUsd::ZERO { p.problem { "There is no credit left. Requests are refused until credit is added." } }
        @if viewer.is_owner() {
            section.card {
                h2 { "Add credit" }
                p { "An operator adds credit at " code { (OPERATOR) } ", or on the server:" }
                (copyable("Command", &format!("{} credits add --account '{name}' --amount 25 --note 'Invoice 1'", program())))
            }
        }
        (statements(&app, viewer.signed_in.account))
        h2 { "Deposits" }
        @if deposits.is_empty() { p.empty { "No credit has been added yet." } } @else {
            (table(&listed))
            (pagination.links(PATH, &query, &shown))
            p { a href={ (PATH) ".csv" } { "Export CSV" } }
        }
    };
    Ok(page(&viewer, Section::Credit, "Credit", &content))
}

/// Links the monthly statements since the account was opened, as far back as counters are kept.
fn statements(app: &App, account: AccountId) -> Markup {
    let (this, first) = (Month::of(app.management.today()), Month::of(Day::of(account.created_at())));
    let months = std::iter::successors(Some(this), |month| Some(month.before()))
        .take_while(|month| *month == this || month.first >= first.first)
        .take(MONTHS);
    html! {
        h2 { "Statements" }
        nav aria-label="Statements" { ul.inline {
            @for month in months.filter(|month| app.management.has_counters_of(*month)) {
                li { a href={ (PATH) "/" (month.name()) } { (month.title()) } }
            }
        } }
    }
}

fn table(deposits: &[&Deposit]) -> Markup {
    let columns = [
        ("Time", ""),
        ("Note", "wide-only"),
        ("Amount", "n"),
        ("Credit after", "n wide-only"),
        ("Id", "wide-only"),
    ];
    let row = |deposit: &&Deposit| {
        let (Deposited { amount, credit, .. }, details) = (&deposit.deposited, details(&deposit.deposited));
        Row::new([
            html! { span id=(deposit.id.to_string()) { (time(deposit.at())) } p.narrow-only { (details) } },
            html! { bdi title=(details) { (details) } },
            html! { (usd(*amount)) },
            html! { @match credit { Some(credit) => (usd(*credit)), None => "–" } },
            html! { code { (deposit.id.to_string()) } },
        ])
    };
    Table::new("Deposits", columns).rows(deposits.iter().map(row))
}

/// Describes a deposit by its note and the id of its payment or refund.
fn details(deposited: &Deposited) -> String {
    let kind = if deposited.refund.is_some() { "refund" } else { "payment" };
    let payment = deposited.payment.as_ref().map(|payment| format!("{kind} {}", payment.id.as_str()));
    let note = Some(deposited.note.clone()).filter(|note| !note.is_empty());
    note.into_iter().chain(payment).collect::<Vec<_>>().join(", ")
}

/// Answers with the deposits as CSV.
pub(crate) async fn csv(State(app): State<App>, viewer: Viewer) -> Result<Response, Failure> {
    let deposits = app.management.deposits(viewer.signed_in.account, DEPOSITS).await?;
    let line = |deposit: &Deposit| {
        let Deposited { amount, credit, note, payment, .. } = &deposit.deposited;
        let credit = credit.map(|credit| credit.to_string()).unwrap_or_default();
        let payment = payment.as_ref().map(|payment| cell(payment.id.as_str())).unwrap_or_default();
        let (id, at, note) = (deposit.id, deposit.at(), cell(note));
        format!("{id},{at},{amount},{credit},{note},{payment}\r\n")
    };
    let lines: String = deposits.iter().map(line).collect();
    let lines = format!("id,time,amount,credit_after,note,payment_id\r\n{lines}");
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"deposits.csv\""),
    ];
    Ok((headers, lines).into_response())
}

/// Shows a month's statement, for printing.
pub(crate) async fn statement(
    State(app): State<App>,
    viewer: Viewer,
    Path(month): Path<String>,
) -> Result<Response, Failure> {
    let month = Month::parse(&month).ok_or(Failure::NotFound)?;
    if month.first > app.management.today() || !app.management.has_counters_of(month) {
        return Err(Failure::NotFound);
    }
    let statement = app.management.statement(viewer.signed_in.account, month).await?;
    let is_over = month.last < app.management.today();
    let content = html! {
        p.lead { "Account " strong { (viewer.funds.name) } ", from " span.date { (month.first.to_string()) } " to " span.date { (month.last.to_string()) }
            " (UTC)."
            @if !is_over { " The month is not over yet." } }
        (lines(month, &statement, is_over))
        p.buttons { button type="button" data-prints { "Print" } a href=(PATH) { "All deposits and statements" } }
    };
    Ok(page(&viewer, Section::Credit, &format!("Statement of {}", month.title()), &content))
}

/// Renders the lines of a statement, from the opening to the closing balance.
fn lines(month: Month, statement: &Statement, is_over: bool) -> Markup {
    let balance = |name: &str, day: Option<Day>, credit: NanoUsd| {
        html! { tr { th.wraps scope="row" { (name) @if let Some(day) = day { " " span.date { (day.to_string()) } } } td.wide-only {} td.n { strong { (aligned(credit)) } } } }
    };
    let columns = [("Item", ""), ("Details", "wide-only"), ("Amount", "n")];
    let rows = html! {
        (balance("Credit on", Some(month.first), statement.opening))
        @for deposit in &statement.deposits {
            @let details = details(&deposit.deposited);
            @let kind = if deposit.deposited.refund.is_some() { "Refund " } else { "Deposit " };
            tr { td.wraps { (kind) (time_to_second(deposit.at())) p.narrow-only { (details) } }
                td.wide-only { (details) } td.n { (usd(deposit.deposited.amount)) } }
        }
        @for (model, sums) in &statement.models {
            @let details = format!("{}, {} tokens", requests(sums.requests), short_count(sums.tokens));
            tr { td.wraps { (model) p.narrow-only { (details) } } td.wide-only { (details) }
                td.n { (aligned(NanoUsd::from_nanos(-sums.charged.nanos()))) } }
        }
        tr { th.wraps scope="row" { "Total charged" } td.wide-only {}
            td.n { strong { (aligned(NanoUsd::from_nanos(-statement.charged.nanos()))) } } }
        @if is_over { (balance("Credit after", Some(month.last), statement.closing)) }
        @else { (balance("Credit now", None, statement.closing)) }
    };
    Table::new("Statement", columns).body(&rows)
}
