//! Adding credit: a confirmation, then the deposit. A payment is added once, no matter how often the form is sent.

use axum::{
    extract::{Path, State},
    response::Response,
};
use domain::payment::PaymentId;
use key_service_management::{account_list::AccountRow, accounts::payments::NewDeposit};
use key_service_page::{
    app::App,
    entry::{Entered, Fault, refused_form},
    failure::Failure,
    form::Fields,
    frame::hidden,
    notice,
    operator::{Operator, OperatorAct},
    person::ActOf,
    show::usd,
};
use maud::html;

use crate::{
    customers::{
        account::{found, whole},
        credit_form::{payment_fault, read},
    },
    layout::{ACCOUNT, Section, page},
};

pub(crate) async fn confirm(
    State(app): State<App>,
    Path(id): Path<String>,
    OperatorAct(ActOf { viewer: operator, form }): OperatorAct,
) -> Result<Response, Failure> {
    let account = found(&app, &id).await?;
    match read(&form) {
        Ok((deposit, payment)) => Ok(question(&operator, &account, &deposit, &payment)),
        Err(fault) => refused(&app, &operator, &account, &form, &fault).await,
    }
}

fn question(
    operator: &Operator,
    account: &AccountRow,
    deposit: &NewDeposit,
    payment: &PaymentId,
) -> Response {
    let path = format!("{ACCOUNT}/{}", account.id);
    let after = account.funds.credit.checked_add(deposit.amount);
    let content = html! {
        form method="post" action={ (path) "/credit/add" } {
            p.lead { "Add " strong { (usd(deposit.amount)) } " to the credit of " strong { bdi { (account.funds.name) } } "?" }
            ul {
                li { "Payment " strong { bdi { (payment.as_str()) } } ", which is added only once." }
                @if !deposit.note.is_empty() { li { "Note: " bdi { (deposit.note) } } }
                @if let Some(after) = after { li { "The credit goes from " (usd(account.funds.credit)) " to " (usd(after)) "." } }
                li { "A refund can take it back as long as it is not used." }
            }
            (hidden(operator))
            input type="hidden" name="amount" value=(deposit.amount.to_string());
            input type="hidden" name="payment_id" value=(payment.as_str());
            input type="hidden" name="note" value=(deposit.note);
            div.buttons { button.primary { "Add credit" } a.button href=(path) { "Cancel" } }
        }
    };
    page(operator, Section::Accounts, "Add credit", &content)
}

pub(crate) async fn add(
    State(app): State<App>,
    Path(id): Path<String>,
    OperatorAct(ActOf { viewer: operator, form }): OperatorAct,
) -> Result<Response, Failure> {
    let account = found(&app, &id).await?;
    let (deposit, payment) = match read(&form) {
        Ok(read) => read,
        Err(fault) => return refused(&app, &operator, &account, &form, &fault).await,
    };
    let (amount, actor) = (deposit.amount, operator.signed_in.as_operator());
    match app.management.deposit(account.id, deposit, actor).await {
        Ok(added) => {
            let credit = added.credit();
            let (operator_name, payment) = (operator.name(), payment.as_str());
            tracing::info!(account = %account.id, usd = %amount, payment, operator = operator_name, "payment added, now or before");
            let line =
                format!("Payment {payment} of {} was added. Balance after it: {}.", usd(amount), usd(credit));
            Ok(notice::done(&operator, &format!("{ACCOUNT}/{}", account.id), &line))
        }
        Err(error) => {
            let fault = payment_fault(error)?;
            refused(&app, &operator, &account, &form, &fault).await
        }
    }
}

/// Renders the account again with the fault at its field.
async fn refused(
    app: &App,
    operator: &Operator,
    account: &AccountRow,
    form: &Fields,
    fault: &Fault,
) -> Result<Response, Failure> {
    Ok(refused_form(whole(app, operator, account, Entered::refused(form, fault)).await?))
}
