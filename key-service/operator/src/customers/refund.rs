//! Taking credit back: a form, a confirmation, then the refund. A refund takes effect once, no matter how often the form
//! is sent.

use axum::{
    extract::{Path, State},
    response::Response,
};
use domain::{ledger::PaidTo, payment::PaymentId};
use key_service_management::{account_list::AccountRow, accounts::payments::NewRefund};
use key_service_page::{
    app::App,
    entry::{Entered, Fault, line, refused_form},
    failure::Failure,
    form::Fields,
    frame::hidden,
    notice,
    operator::{Operator, OperatorAct},
    person::ActOf,
    show::usd,
};
use maud::{Markup, html};
use shared::{
    money::NanoUsd,
    wire::{MAX_NOTE_CHARS, MAX_PAYMENT_ID_CHARS},
};

use crate::{
    customers::{
        account::found,
        credit_form::{amount, amount_field, payment_fault, payment_id},
    },
    layout::{ACCOUNT, Section, page},
};

const NOTE: &str = "Optional. Shown to the account’s members.";
const ID: &str = "Required. The id of the refund or dispute in your billing system, not of the payment. Each refund is \
                  made only once, even if you send it twice.";
const OF: &str = "Optional. The id of the payment that is refunded.";

pub(crate) async fn show(
    State(app): State<App>,
    Path(id): Path<String>,
    operator: Operator,
) -> Result<Response, Failure> {
    let account = found(&app, &id).await?;
    Ok(asked(&operator, &account, Entered::new(&Fields::default()).focused("amount")))
}

fn asked(operator: &Operator, account: &AccountRow, entered: Entered<'_>) -> Response {
    let path = format!("{ACCOUNT}/{}", account.id);
    let content = html! {
        p.lead { "Up to " strong { (usd(account.available())) } " of the credit of " strong { bdi { (account.funds.name) } }
            " can be taken back: what is neither used nor held by requests in flight." }
        form.stack method="post" action={ (path) "/refund" } {
            (hidden(operator))
            (amount_field(entered, "Amount (USD)", ""))
            (entered.line("payment_id", "Refund id", ID, MAX_PAYMENT_ID_CHARS))
            (entered.line("of", "Payment id", OF, MAX_PAYMENT_ID_CHARS))
            (entered.line("note", "Note", NOTE, MAX_NOTE_CHARS))
            (entered.boxes("partial", "If there is less", "", |entry| html! {
                label.box {
                    input type="checkbox" name=(entry.name) value="yes" checked[entered.all(entry.name).contains(&"yes")]
                        aria-invalid=[entry.invalid];
                    " Take what there is, and record the rest as a shortfall"
                }
            }))
            div.buttons { button.primary { "Continue …" } a.button href=(path) { "Cancel" } }
        }
    };
    page(operator, Section::Accounts, "Refund", &content)
}

fn read(form: &Fields) -> Result<NewRefund, Fault> {
    let amount = amount(form, NanoUsd::from_nanos(1))?;
    let of = match form.get("of").trim() {
        "" => None,
        _ => Some(payment_id(form, "of")?),
    };
    let note = line(form.get("note").trim(), MAX_NOTE_CHARS).map_err(|says| Fault::of("note", says))?;
    let (payment_id, partial) = (payment_id(form, "payment_id")?, form.get("partial") == "yes");
    Ok(NewRefund { payment_id, amount, from: PaidTo::Account, partial, of, note })
}

pub(crate) async fn confirm(
    State(app): State<App>,
    Path(id): Path<String>,
    OperatorAct(ActOf { viewer: operator, form }): OperatorAct,
) -> Result<Response, Failure> {
    let account = found(&app, &id).await?;
    Ok(match read(&form) {
        Ok(refund) => question(&operator, &account, &refund),
        Err(fault) => refused_form(asked(&operator, &account, Entered::refused(&form, &fault))),
    })
}

fn question(operator: &Operator, account: &AccountRow, refund: &NewRefund) -> Response {
    let path = format!("{ACCOUNT}/{}", account.id);
    let id = refund.payment_id.as_str();
    let content = html! {
        form method="post" action={ (path) "/refund/take" } {
            p.lead { "Take " strong { (usd(refund.amount)) } " back from the credit of " strong { bdi { (account.funds.name) } } "?" }
            ul {
                li { "Refund " strong { bdi { (id) } } ", which is made only once." }
                @if let Some(of) = &refund.of { li { "For payment " bdi { (of.as_str()) } "." } }
                @if !refund.note.is_empty() { li { "Note: " bdi { (refund.note) } } }
                li { (available(account, refund)) }
            }
            (hidden(operator))
            input type="hidden" name="amount" value=(refund.amount.to_string());
            input type="hidden" name="payment_id" value=(id);
            input type="hidden" name="of" value=(refund.of.as_ref().map_or("", PaymentId::as_str));
            input type="hidden" name="note" value=(refund.note);
            input type="hidden" name="partial" value=(if refund.partial { "yes" } else { "" });
            div.buttons { button.danger { "Refund" } a.button href=(path) { "Cancel" } }
        }
    };
    page(operator, Section::Accounts, "Refund", &content)
}

/// Says what the refund may take now.
fn available(account: &AccountRow, refund: &NewRefund) -> Markup {
    let available = account.available();
    html! {
        (usd(available)) " can be taken back now"
        @if available < refund.amount {
            @if refund.partial { "; the rest is recorded as a shortfall" } @else { ", so this refund would be refused" }
        }
        "."
    }
}

pub(crate) async fn take(
    State(app): State<App>,
    Path(id): Path<String>,
    OperatorAct(ActOf { viewer: operator, form }): OperatorAct,
) -> Result<Response, Failure> {
    let account = found(&app, &id).await?;
    let fault = match read(&form) {
        Ok(refund) => {
            let actor = operator.signed_in.as_operator();
            match app.management.refund(account.id, refund, actor).await {
                Ok(refunded) => {
                    let deposited = &refunded.deposit.deposited;
                    let taken = NanoUsd::from_nanos(deposited.change().nanos().saturating_abs());
                    let id = deposited.payment.as_ref().map_or("", |payment| payment.id.as_str());
                    tracing::info!(account = %account.id, usd = %taken, refund = id, operator = operator.name(), "refund made, now or before");
                    let line = format!(
                        "Refund {id} took {}. Balance after it: {}.",
                        usd(taken),
                        usd(refunded.credit())
                    );
                    return Ok(notice::done(&operator, &format!("{ACCOUNT}/{}", account.id), &line));
                }
                Err(error) => payment_fault(error)?,
            }
        }
        Err(fault) => fault,
    };
    Ok(refused_form(asked(&operator, &account, Entered::refused(&form, &fault))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refund_has_an_id_of_its_own_and_may_name_its_payment() {
        let fields = |of: &str, partial: &str| {
            Fields::of(
                [("amount", "5"), ("payment_id", "re_1"), ("of", of), ("note", "late"), ("partial", partial)]
                    .map(|(name, value)| (name, value.to_owned())),
            )
        };
        let refund = read(&fields(" pay_1 ", "yes")).unwrap();
        assert_eq!((refund.payment_id.as_str(), refund.partial), ("re_1", true));
        assert_eq!(refund.of.as_ref().map(PaymentId::as_str), Some("pay_1"));
        let refund = read(&fields(" ", "")).unwrap();
        assert_eq!((refund.of, refund.partial), (None, false));
        assert_eq!(read(&fields("a\nb", "")).unwrap_err().field, "of");
    }
}
