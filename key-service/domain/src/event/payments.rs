//! Payments and refunds, as events report them.

use serde::{Deserialize, Serialize};
use shared::{
    ids::{DepositId, GroupId},
    money::NanoUsd,
};

use crate::{event::threshold::usd, payment::PaymentId};

/// A payment that took effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentMade {
    pub deposit_id: DepositId,
    #[serde(deserialize_with = "usd")]
    pub amount: NanoUsd,
    /// Note for people; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Id of the payment, if the operator gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payment_id: Option<PaymentId>,
    /// The group whose limit changed together with the account's credit, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_id: Option<GroupId>,
}

/// A refund, a chargeback or a correction that took effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefundMade {
    pub deposit_id: DepositId,
    /// Amount that was taken.
    #[serde(deserialize_with = "usd")]
    pub amount: NanoUsd,
    /// Amount that was asked for and could not be taken.
    #[serde(deserialize_with = "usd")]
    pub shortfall: NanoUsd,
    /// The payment that was refunded, if the caller named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<PaymentId>,
    /// Note for people; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payment_id: Option<PaymentId>,
    /// The group whose limit changed together with the account's credit, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_id: Option<GroupId>,
}
