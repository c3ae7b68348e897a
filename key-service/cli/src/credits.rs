//! The `credits` commands.

use std::io::Write;

use anyhow::anyhow;
use clap::Subcommand;
use shared::{
    ids::{AccountId, GroupId},
    money::NanoUsd,
    text::is_control,
    wire::{MAX_NOTE_CHARS, MAX_PAYMENT_ID_CHARS},
};

use crate::{
    arguments::{amount, operator},
    failure::{operator_error, payment_error},
};
use domain::{governed::payments::PaymentRefused, ledger::PaidTo, payment::PaymentId};
use key_service_management::{
    Error, Management,
    accounts::payments::{NewDeposit, NewRefund},
};
use key_service_store::store::StoreError;

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
        /// A group whose limit rises by the same amount
        #[arg(long, value_name = "ID", requires = "payment_id")]
        group: Option<GroupId>,
    },
    /// Take credit back that is neither used nor held: a refund, a chargeback or a correction
    Refund {
        /// The account's name
        #[arg(long, value_name = "NAME")]
        account: String,
        /// Amount in USD
        #[arg(long, value_name = "USD", value_parser = amount, allow_negative_numbers = true)]
        amount: NanoUsd,
        /// The refund's own id in your billing system; each refund is made once, even if the command runs twice
        #[arg(long, value_name = "ID", value_parser = payment_id)]
        payment_id: PaymentId,
        /// The payment that is refunded, which must exist
        #[arg(long, value_name = "ID", value_parser = payment_id)]
        of: Option<PaymentId>,
        /// Take what there is if that is less, and record the rest as a shortfall
        #[arg(long)]
        partial: bool,
        /// Reason; the account's members see it
        #[arg(long, value_name = "TEXT", value_parser = note, default_value = "")]
        note: String,
        /// A group whose limit falls by the same amount
        #[arg(long, value_name = "ID")]
        group: Option<GroupId>,
    },
}

pub(crate) async fn run(
    command: Credits,
    management: &Management,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let place = |group: Option<GroupId>| group.map_or(PaidTo::Account, PaidTo::Both);
    match command {
        Credits::Add { account, amount, note, payment_id, group } => {
            let id = management.account(&account).await.map_err(operator_error)?;
            let deposit = NewDeposit { amount, note, payment_id, to: place(group) };
            add(management, id, &account, deposit, out).await
        }
        Credits::Refund { account, amount, payment_id, of, partial, note, group } => {
            let id = management.account(&account).await.map_err(operator_error)?;
            let refund = NewRefund { payment_id, amount, from: place(group), partial, of, note };
            take(management, id, &account, refund, out).await
        }
    }
}

async fn add(
    management: &Management,
    id: AccountId,
    account: &str,
    deposit: NewDeposit,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let NewDeposit { amount, note, payment_id, to } = deposit.clone();
    let added = management.deposit(id, deposit, operator()).await;
    let Some(payment) = payment_id.as_ref().map(PaymentId::as_str) else {
        let credit = added.map_err(payment_error)?.credit();
        tracing::info!(account = %id, usd = %amount, note, "credit added");
        writeln!(out, "added {amount} USD to {account}; its credit is {credit} USD now")?;
        return Ok(());
    };
    let credit = added.map_err(again)?.credit();
    let group = of_group(to);
    tracing::info!(account = %id, usd = %amount, note, payment, "payment added, now or before");
    writeln!(
        out,
        "added payment {payment} of {amount} USD to {account}{group}; its credit was {credit} USD then"
    )?;
    Ok(())
}

async fn take(
    management: &Management,
    id: AccountId,
    account: &str,
    refund: NewRefund,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let (refund_id, note, group) = (refund.payment_id.clone(), refund.note.clone(), of_group(refund.from));
    let refunded = management.refund(id, refund, operator()).await.map_err(again)?;
    let deposited = &refunded.deposit.deposited;
    let (taken, shortfall) = (deposited.change().nanos().saturating_abs(), deposited.shortfall());
    let (taken, refund, credit) = (NanoUsd::from_nanos(taken), refund_id.as_str(), refunded.credit());
    tracing::info!(account = %id, usd = %taken, %shortfall, note, refund, "refund made, now or before");
    writeln!(
        out,
        "refund {refund} took {taken} USD from {account}{group}, {shortfall} USD less than asked; its credit was {credit} \
         USD then"
    )?;
    Ok(())
}

fn of_group(place: PaidTo) -> String {
    place.group().map_or_else(String::new, |group| format!(" and {group}"))
}

/// Turns an error of a payment or a refund that has an id into a message for the operator. Because of the id, the
/// operator can safely repeat the command.
fn again(error: Error<PaymentRefused>) -> anyhow::Error {
    match error {
        Error::Store(cause @ StoreError::Unavailable(_)) => {
            anyhow!(
                "{cause}\nIt is unknown whether it took effect: run the command again; each id takes effect only once."
            )
        }
        error @ (Error::Refused(_) | Error::Store(_)) => payment_error(error),
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
