//! Adding credit: a form, a page that asks, and the deposit. A payment is added once, however often the form is sent.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use domain::payment::{MAX_PAYMENT_ID_CHARS, PaymentId};
use http::StatusCode;
use key_service_management::{
    Error,
    account_list::AccountRow,
    accounts::{AccountRefused, NewDeposit},
};
use key_service_page::{
    app::App,
    entry::{Entered, Fault, line},
    failure::{Failure, sentence},
    form::Fields,
    frame::hidden,
    notice,
    operator::{Operator, OperatorAct},
    show::usd,
};
use maud::{Markup, html};
use shared::{ids::AccountId, money::NanoUsd};

use crate::{
    account::{found, whole},
    accounts::ACCOUNT,
    layout::{Section, page},
};

/// Longest note of a deposit: a line of an invoice.
const MAX_NOTE_CHARS: usize = 200;
/// Most characters of an amount, with sign, commas and decimals.
const MAX_AMOUNT_CHARS: usize = 30;

/// The form on the page of an account.
pub(crate) fn form(operator: &Operator, account: AccountId, entered: Entered<'_>) -> Markup {
    let payment =
        "The payment’s id in your billing system. Each payment is added once, also if this is sent twice.";
    html! {
        form.stack method="post" action={ (ACCOUNT) "/" (account.to_string()) "/credit" } {
            (hidden(operator))
            (amount_field(entered, "Amount (USD)", ""))
            (entered.line("payment_id", ("Payment id", payment), MAX_PAYMENT_ID_CHARS))
            (entered.line("note", ("Note", "Shown to the people of the account, such as an invoice’s number. May be empty."), MAX_NOTE_CHARS))
            div { button.primary { "Continue …" } }
        }
    }
}

/// A field for an amount in USD.
pub(crate) fn amount_field(entered: Entered<'_>, title: &str, hint: &str) -> Markup {
    entered.field("amount", (title, hint), |entry| {
        html! {
            input id=(entry.name) name=(entry.name) value=(entry.value) inputmode="decimal" maxlength=(MAX_AMOUNT_CHARS)
                autocomplete="off" aria-describedby=[&entry.described] aria-invalid=[entry.invalid] autofocus[entry.has_focus];
        }
    })
}

/// Reads an amount of at least `least`. A sign of dollars and commas may be in it.
pub(crate) fn amount(form: &Fields, least: NanoUsd) -> Result<NanoUsd, Fault> {
    let text: String = form.get("amount").trim().trim_start_matches('$').replace(',', "");
    match NanoUsd::parse(&text) {
        Ok(amount) if (least..=NanoUsd::MAX).contains(&amount) => Ok(amount),
        Ok(_) => Err(Fault::of("amount", format!("Give {} to {}.", usd(least), usd(NanoUsd::MAX)))),
        Err(_) => Err(Fault::of("amount", "Give a number, such as 25 or 12.50.")),
    }
}

/// Reads the form.
fn read(form: &Fields) -> Result<(NewDeposit, PaymentId), Fault> {
    let amount = amount(form, NanoUsd::from_nanos(1))?;
    let payment = PaymentId::parse(form.get("payment_id").trim()).ok_or_else(|| {
        Fault::of("payment_id", format!("Give 1 to {MAX_PAYMENT_ID_CHARS} characters that can be seen."))
    })?;
    let note = line(form.get("note").trim(), MAX_NOTE_CHARS).map_err(|says| Fault::of("note", says))?;
    Ok((NewDeposit { amount, note, payment_id: Some(payment.clone()) }, payment))
}

/// Asks whether to add the credit.
pub(crate) async fn confirm(
    State(app): State<App>,
    Path(id): Path<String>,
    OperatorAct { operator, form }: OperatorAct,
) -> Result<Response, Failure> {
    let account = found(&app, &id).await?;
    match read(&form) {
        Ok((deposit, payment)) => Ok(question(&operator, &account, &deposit, &payment)),
        Err(fault) => refused(&app, &operator, &account, (&form, &fault)).await,
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
                li { "Payment " strong { bdi { (payment.as_str()) } } ", which is added once." }
                @if !deposit.note.is_empty() { li { "Note: " bdi { (deposit.note) } } }
                @if let Some(after) = after { li { "The credit goes from " (usd(account.funds.credit)) " to " (usd(after)) "." } }
                li { "Credit that was added cannot be taken back here." }
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

/// Adds the credit.
pub(crate) async fn add(
    State(app): State<App>,
    Path(id): Path<String>,
    OperatorAct { operator, form }: OperatorAct,
) -> Result<Response, Failure> {
    let account = found(&app, &id).await?;
    let (deposit, payment) = match read(&form) {
        Ok(read) => read,
        Err(fault) => return refused(&app, &operator, &account, (&form, &fault)).await,
    };
    let (amount, actor) = (deposit.amount, operator.0.signed_in.as_operator());
    match app.management.deposit(account.id, deposit, actor).await {
        Ok(credit) => {
            let (operator_name, payment) = (operator.0.name(), payment.as_str());
            tracing::info!(account = %account.id, usd = %amount, payment, operator = operator_name, "payment added, now or before");
            let line = format!(
                "Payment {payment} of {} is added. The credit was {} then.",
                usd(amount),
                usd(credit)
            );
            Ok(notice::done(&operator, &format!("{ACCOUNT}/{}", account.id), &line))
        }
        Err(error) => {
            let fault = fault(error)?;
            refused(&app, &operator, &account, (&form, &fault)).await
        }
    }
}

/// Shows the account again, with the fault at its field.
async fn refused(
    app: &App,
    operator: &Operator,
    account: &AccountRow,
    (form, fault): (&Fields, &Fault),
) -> Result<Response, Failure> {
    let again = whole(app, operator, account, Entered::refused(form, fault)).await?;
    Ok((StatusCode::UNPROCESSABLE_ENTITY, again).into_response())
}

/// Returns the fault of a refused account or deposit.
pub(crate) fn fault(error: Error<AccountRefused>) -> Result<Fault, Failure> {
    match error {
        Error::Refused(AccountRefused::StoreFull) => Err(Failure::StoreFull),
        Error::Refused(AccountRefused::NotFound) => Err(Failure::NotFound),
        Error::Refused(refused @ AccountRefused::NameTaken) => {
            Ok(Fault::of("name", sentence(&refused.to_string())))
        }
        Error::Refused(refused @ AccountRefused::BadAmount) => {
            Ok(Fault::of("amount", sentence(&refused.to_string())))
        }
        Error::Refused(refused @ AccountRefused::PaymentDiffers { .. }) => {
            Ok(Fault::of("payment_id", sentence(&refused.to_string())))
        }
        Error::Store(unavailable) => Err(unavailable.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(amount: &str, payment: &str, note: &str) -> Fields {
        Fields::of(
            [("amount", amount), ("payment_id", payment), ("note", note)]
                .map(|(name, value)| (name, value.to_owned())),
        )
    }

    #[test]
    fn an_amount_is_read_as_people_write_it_and_what_is_wrong_stands_at_its_field() {
        for (amount, nanos) in
            [("25", 25_000_000_000), (" $1,234.50 ", 1_234_500_000_000), ("0.000000001", 1)]
        {
            let (deposit, payment) = read(&fields(amount, " in-1 ", " May ")).unwrap();
            assert_eq!(
                (deposit.amount.nanos(), payment.as_str(), deposit.note.as_str()),
                (nanos, "in-1", "May")
            );
        }
        for (amount, payment, note, field) in [
            ("", "in-1", "", "amount"),
            ("0", "in-1", "", "amount"),
            ("-5", "in-1", "", "amount"),
            ("1e3", "in-1", "", "amount"),
            ("99999999999", "in-1", "", "amount"),
            ("5", " ", "", "payment_id"),
            ("5", &"x".repeat(MAX_PAYMENT_ID_CHARS + 1), "", "payment_id"),
            ("5", "in-1", "a\nb", "note"),
        ] {
            let fault = read(&fields(amount, payment, note)).unwrap_err();
            assert_eq!(fault.field, field, "{amount} {payment} {note}");
        }
    }
}
