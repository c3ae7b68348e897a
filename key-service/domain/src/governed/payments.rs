//! Reasons why a payment or a refund was refused.

use std::fmt;

use shared::{
    error::{ApiError, Code},
    money::NanoUsd,
    text::sentence,
    wire::MAX_LIMIT,
};

use crate::ledger::{PaidTo, PaymentTerms};

/// Reason why a payment or a refund was refused. Such a request has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaymentRefused {
    NoAccount,
    /// A closed account takes no payments.
    AccountClosed,
    /// The amount is not above zero, or the credit would exceed [`NanoUsd::MAX`].
    BadAmount,
    /// The group's limit would exceed [`MAX_LIMIT`].
    LimitTooHigh,
    /// The account does not have the group.
    GroupNotFound,
    GroupArchived,
    /// The group has no limit, so a payment could not raise it, but would restrict the group.
    NoLimit,
    /// The id was used for something else.
    Differs(PaymentTerms),
    /// The refund exceeds the credit that is neither used nor held.
    CreditTooLow {
        available: NanoUsd,
    },
    /// The payment to refund is unknown.
    PaymentNotFound,
}

impl fmt::Display for PaymentRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAccount => f.write_str("there is no such account"),
            Self::AccountClosed => f.write_str("the account is closed"),
            Self::BadAmount => {
                write!(f, "the amount must be above zero, and the credit may not exceed {} USD", NanoUsd::MAX)
            }
            Self::LimitTooHigh => write!(f, "the group's limit may not exceed {MAX_LIMIT} USD"),
            Self::GroupNotFound => f.write_str("the account has no such group"),
            Self::GroupArchived => f.write_str("an archived group takes no payments"),
            Self::NoLimit => {
                f.write_str("the group has no limit to change; set a limit first, such as 0 for a new wallet")
            }
            Self::Differs(PaymentTerms { amount, to, is_refund }) => {
                let kind = if *is_refund { "refund" } else { "payment" };
                write!(f, "this id was used before for a {kind} of {amount} USD ")?;
                match to {
                    PaidTo::Account => f.write_str("of the account")?,
                    PaidTo::Wallet(group) => write!(f, "of the group {group}")?,
                    PaidTo::Both(group) => write!(f, "of the account and the group {group}")?,
                }
                f.write_str("; nothing changed now")
            }
            Self::CreditTooLow { available } => {
                write!(
                    f,
                    "only {available} USD can be refunded; the rest is used or held by requests in flight"
                )
            }
            Self::PaymentNotFound => f.write_str("there is no payment with this id"),
        }
    }
}

impl PaymentRefused {
    /// Returns the error code, and the member of the request that is at fault.
    const fn code(self) -> (Code, &'static str) {
        match self {
            Self::NoAccount => (Code::AccountNotFound, "account"),
            Self::AccountClosed => (Code::AccountEnded, "account"),
            Self::BadAmount | Self::LimitTooHigh => (Code::DecimalAboveMaxValue, "amount"),
            Self::GroupNotFound => (Code::GroupNotFound, "group_id"),
            Self::GroupArchived => (Code::ArchivedGroup, "group_id"),
            Self::NoLimit => (Code::GroupHasNoLimit, "group_id"),
            Self::Differs(_) => (Code::PaymentDiffers, "payment_id"),
            Self::CreditTooLow { .. } => (Code::CreditTooLow, "amount"),
            Self::PaymentNotFound => (Code::PaymentNotFound, "of"),
        }
    }
}

impl From<PaymentRefused> for ApiError {
    fn from(refused: PaymentRefused) -> Self {
        let (code, param) = refused.code();
        Self::at(code, param, sentence(&refused.to_string()))
    }
}
