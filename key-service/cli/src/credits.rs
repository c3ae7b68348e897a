//! The `credits` commands.

use std::io::Write;

use anyhow::anyhow;
use clap::Subcommand;
use shared::{money::NanoUsd, text::is_control};

use crate::{
    arguments::{amount, operator},
    failure::operator_error,
};
use domain::payment::{MAX_PAYMENT_ID_CHARS, PaymentId};
use key_service_management::{
    Error, Management,
    accounts::{AccountRefused, NewDeposit},
};
use key_service_store::store::StoreError;

/// Maximum length of a deposit's note, so that it fits on a line of an invoice.
const MAX_NOTE_CHARS: usize = 200;

#[derive(Debug, Subcommand)]
pub enum Credits {
    /// Add credit to an account
    Add {
        /// The account's name
        #[arg(long, value_name = "NAME")]
        account: String,
        /// Amount in USD
        #[arg(long, value_name = "USD", value_parser = amount, allow_negative_numbers = true)]
        amount: NanoUsd,
        /// Reason, such as an invoice number; the account's members see it
        #[arg(long, value_name = "TEXT", value_parser = note, default_value = "")]
        note: String,
        /// The payment's id in your billing system; each payment is added once, even if the command runs twice
        #[arg(long, value_name = "ID", value_parser = payment_id)]
        payment_id: Option<PaymentId>,
    },
}

pub(crate) async fn run(
    command: Credits,
    management: &Management,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let Credits::Add { account, amount, note, payment_id } = command;
    let id = management.account(&account).await.map_err(operator_error)?;
    let deposit = NewDeposit { amount, note: note.clone(), payment_id: payment_id.clone() };
    let deposited = management.deposit(id, deposit, operator()).await;
    match payment_id.as_ref().map(PaymentId::as_str) {
        None => {
            let credit = deposited.map_err(operator_error)?;
            tracing::info!(account = %id, usd = %amount, note, "credit added");
            writeln!(out, "added {amount} USD to {account}; its credit is {credit} USD now")?;
        }
        Some(payment) => {
            let credit = deposited.map_err(payment_error)?;
            tracing::info!(account = %id, usd = %amount, note, payment, "payment added, now or before");
            writeln!(
                out,
                "added payment {payment} of {amount} USD to {account}; its credit was {credit} USD then"
            )?;
        }
    }
    Ok(())
}

/// Turns a payment's error into a message for the operator. Unlike other deposits, a payment is safe to retry.
fn payment_error(error: Error<AccountRefused>) -> anyhow::Error {
    match error {
        Error::Store(cause @ StoreError::Unavailable(_)) => {
            anyhow!(
                "{cause}\nIt is unknown whether the payment was added: run the command again; it adds each payment only once."
            )
        }
        error @ (Error::Refused(_) | Error::Store(_)) => operator_error(error),
    }
}

/// Parses the reason of a deposit.
fn note(text: &str) -> Result<String, String> {
    if text.chars().count() > MAX_NOTE_CHARS || text.chars().any(is_control) {
        return Err(format!("must be at most {MAX_NOTE_CHARS} characters, without control characters"));
    }
    Ok(text.trim().to_owned())
}

/// Parses the id of a payment.
fn payment_id(text: &str) -> Result<PaymentId, String> {
    PaymentId::parse(text).ok_or_else(|| {
        format!(
            "must be 1 to {MAX_PAYMENT_ID_CHARS} characters of printable ASCII, without spaces around them and with \
             single spaces inside"
        )
    })
}
