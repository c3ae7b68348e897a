//! The form that adds credit, and its faults.

use domain::{governed::payments::PaymentRefused, ledger::PaidTo, payment::PaymentId};
use key_service_management::{
    Error,
    accounts::{AccountRefused, payments::NewDeposit},
};
use key_service_page::{
    entry::{Entered, Fault, line},
    failure::Failure,
    form::Fields,
    frame::hidden,
    operator::Operator,
    show::usd,
};
use maud::{Markup, html};
use shared::{
    ids::AccountId,
    money::NanoUsd,
    text::sentence,
    wire::{MAX_NOTE_CHARS, MAX_PAYMENT_ID_CHARS},
};

use crate::layout::ACCOUNT;

/// Maximum length of an amount, with sign, commas and decimals.
const MAX_AMOUNT_CHARS: usize = 30;

/// Renders the form on an account's page.
pub(crate) fn form(operator: &Operator, account: AccountId, entered: Entered<'_>) -> Markup {
    let payment = "Required. The payment’s id in your billing system. Each payment is added only once, even if you send it twice.";
    html! {
        form.stack method="post" action={ (ACCOUNT) "/" (account.to_string()) "/credit" } {
            (hidden(operator))
            (amount_field(entered, "Amount (USD)", ""))
            (entered.line("payment_id", "Payment id", payment, MAX_PAYMENT_ID_CHARS))
            (entered.line("note", "Note", "Optional. Shown to the account’s members, such as an invoice number.", MAX_NOTE_CHARS))
            div { button.primary { "Continue …" } }
        }
    }
}

/// Renders a field for an amount in USD.
pub(crate) fn amount_field(entered: Entered<'_>, title: &str, hint: &str) -> Markup {
    entered.field("amount", title, hint, |entry| {
        html! {
            input id=(entry.name) name=(entry.name) value=(entry.value) inputmode="decimal" maxlength=(MAX_AMOUNT_CHARS)
                autocomplete="off" aria-describedby=[&entry.described] aria-invalid=[entry.invalid] autofocus[entry.has_focus];
        }
    })
}

/// Reads an amount of at least `least`. A dollar sign and commas are allowed.
pub(crate) fn amount(form: &Fields, least: NanoUsd) -> Result<NanoUsd, Fault> {
    let text: String = form.get("amount").trim().trim_start_matches('$').replace(',', "");
    match NanoUsd::parse(&text) {
        Ok(amount) if (least..=NanoUsd::MAX).contains(&amount) => Ok(amount),
        Ok(_) => {
            Err(Fault::of("amount", format!("Enter an amount from {} to {}.", usd(least), usd(NanoUsd::MAX))))
        }
        Err(_) => Err(Fault::of("amount", "Enter a number, such as 25 or 12.50.")),
    }
}

pub(crate) fn read(form: &Fields) -> Result<(NewDeposit, PaymentId), Fault> {
    let amount = amount(form, NanoUsd::from_nanos(1))?;
    let payment = payment_id(form, "payment_id")?;
    let note = line(form.get("note").trim(), MAX_NOTE_CHARS).map_err(|says| Fault::of("note", says))?;
    Ok((NewDeposit { amount, note, payment_id: Some(payment.clone()), to: PaidTo::Account }, payment))
}

/// Reads the id of a payment or a refund.
pub(crate) fn payment_id(form: &Fields, field: &'static str) -> Result<PaymentId, Fault> {
    PaymentId::parse(form.get(field).trim()).ok_or_else(|| {
        let says = format!(
            "Enter up to {MAX_PAYMENT_ID_CHARS} printable ASCII characters, without consecutive blanks."
        );
        Fault::of(field, says)
    })
}

/// Turns the refusal of a payment or refund into a fault at the field that caused it.
pub(crate) fn payment_fault(error: Error<PaymentRefused>) -> Result<Fault, Failure> {
    let refused = match error {
        Error::Refused(refused) => refused,
        Error::Store(unavailable) => return Err(unavailable.into()),
    };
    let field = match refused {
        PaymentRefused::NoAccount => return Err(Failure::NotFound),
        PaymentRefused::Differs(_) => "payment_id",
        PaymentRefused::PaymentNotFound => "of",
        PaymentRefused::AccountClosed
        | PaymentRefused::BadAmount
        | PaymentRefused::LimitTooHigh
        | PaymentRefused::GroupNotFound
        | PaymentRefused::GroupArchived
        | PaymentRefused::NoLimit
        | PaymentRefused::CreditTooLow { .. } => "amount",
    };
    Ok(Fault::of(field, sentence(&refused.to_string())))
}

/// Turns the refusal of an account into a fault at the field that caused it.
pub(crate) fn fault(error: Error<AccountRefused>) -> Result<Fault, Failure> {
    match error {
        Error::Refused(AccountRefused::NotFound) => Err(Failure::NotFound),
        Error::Refused(refused @ AccountRefused::NameTaken) => {
            Ok(Fault::of("name", sentence(&refused.to_string())))
        }
        Error::Refused(refused @ AccountRefused::BadAmount) => {
            Ok(Fault::of("amount", sentence(&refused.to_string())))
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
            ("25 EUR", "in-1", "", "amount"),
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
