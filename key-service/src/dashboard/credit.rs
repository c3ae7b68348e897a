//! Credit: the balance, the held part, and the deposits.

use axum::{extract::State, response::Response};
use maud::html;

use super::{
    Desk,
    failure::Failure,
    layout::{Section, page},
    session::Viewer,
    show::{aligned, copyable, program, time, usd},
};

/// Latest deposits shown.
const DEPOSITS: usize = 100;

/// Shows the credit of the account.
pub(super) async fn show(State(desk): State<Desk>, viewer: Viewer) -> Result<Response, Failure> {
    let deposits = desk.management.deposits(viewer.signed_in.account, DEPOSITS).await?;
    let (credit, held) = (viewer.funds.credit, viewer.funds.held);
    let name = viewer.funds.name.replace('\'', "'\\''");
    let content = html! {
        dl.tiles.exact {
            div.tile { dt { "Credit" } dd { (usd(credit)) } }
            div.tile { dt { "Held by requests in flight" } dd { (usd(held)) } }
            div.tile { dt { "Available" } dd { (usd(credit.left_after(held))) } }
        }
        @if viewer.is_owner() {
            section.card {
                h2 { "Add credit" }
                p { "An operator adds credit on the server:" }
                (copyable("Command", &format!("{} credits add --account '{name}' --amount 25", program())))
            }
        }
        h2 { "Deposits" }
        @if deposits.is_empty() { p.empty { "No credit was added yet." } } @else {
            div.scroll tabindex="0" role="region" aria-label="Deposits" {
                table {
                    thead { tr { th scope="col" { "Time" } th.n scope="col" { "Amount" } th.wide-only scope="col" { "Id" } } }
                    tbody {
                        @for deposit in &deposits {
                            tr {
                                th scope="row" { (time(deposit.id.created_at())) }
                                td.n { (aligned(deposit.amount)) }
                                td.wide-only { code { (deposit.id.to_string()) } }
                            }
                        }
                    }
                }
            }
            @if deposits.len() == DEPOSITS { p.quiet { "Older ones are not shown." } }
        }
    };
    Ok(page(&viewer, Section::Credit, "Credit", &content))
}
