//! Records under an idempotency id (open holds, settlements, deposits), and journal entries.

use std::sync::Arc;

use minicbor::{Decode, Encode};
use serde::Serialize;
use shared::{
    generation::{Course, Origin},
    ids::{GroupId, KeyId, RequestId},
    money::NanoUsd,
    time::Timestamp,
    tokens::Usage,
};

use super::rate::Missing;
use crate::payment::{Payment, PaymentId};

/// Progress of a generation: its tokens, their cost, and its course.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Progress {
    #[n(0)]
    pub usage: Usage,
    #[n(1)]
    pub cost: NanoUsd,
    /// Cost of the tokens to the operator; `None` if unknown.
    #[n(2)]
    pub upstream_cost: Option<NanoUsd>,
    /// How the generation went; `None` if its gateway did not report it.
    #[cbor(n(3), with = "shared::stored::shared_value", has_nil)]
    pub course: Option<Arc<Course>>,
}

/// Ids of the groups that pay together with a key: its group and that group's parent.
pub type GroupChain = [Option<GroupId>; 2];

/// Who pays for a generation, as of its beginning.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Serialize)]
pub struct Payer {
    #[n(0)]
    pub key: KeyId,
    /// The model's id in the catalogue.
    #[n(1)]
    pub model: String,
    #[n(2)]
    pub groups: GroupChain,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Hold {
    #[n(0)]
    pub payer: Payer,
    /// How the caller sent the request; `None` if its gateway did not report it.
    #[cbor(n(1), with = "shared::stored::shared_value", has_nil)]
    pub origin: Option<Arc<Origin>>,
    /// Amount held at the key and at each group.
    #[n(2)]
    pub amount: NanoUsd,
    /// Latest usage that the gateway reported, which an expiry bills.
    #[n(3)]
    pub reported: Progress,
    /// The account's tick at which the hold expires, unless it is extended.
    #[n(4)]
    pub lease_until: u64,
    #[n(5)]
    pub counted: Counted,
}

/// What a hold adds to the counts of the budgets that pay: a request in flight, and tokens of a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Counted {
    /// Budgets that had bounds when the hold was opened, and count the hold: key, group, parent.
    #[n(0)]
    pub levels: [bool; 3],
    /// Tokens counted so far; zero if no budget counts them.
    #[n(1)]
    pub tokens: u64,
    /// What was missing from each budget's token rate when it counted the hold; `None` without a rate.
    #[cbor(n(2), skip_if = "nothing_is_missing")]
    pub missing: [Option<Missing>; 3],
}

/// The bill of a generation.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Settlement {
    #[n(0)]
    pub payer: Payer,
    /// How the caller sent the request; `None` if its gateway did not report it, or the hold was lost.
    #[cbor(n(1), with = "shared::stored::shared_value", has_nil)]
    pub origin: Option<Arc<Origin>>,
    #[n(2)]
    pub usage: Usage,
    #[n(3)]
    pub cost: NanoUsd,
    /// Cost of the usage to the operator; `None` if unknown.
    #[n(4)]
    pub upstream_cost: Option<NanoUsd>,
    /// Amount billed: the cost, or less if the money was used up.
    #[n(5)]
    pub charged: NanoUsd,
    #[n(6)]
    pub ending: Ending,
    #[n(7)]
    pub estimated: bool,
    #[n(8)]
    pub at: Timestamp,
    /// How the generation went; `None` if its gateway did not report it.
    #[cbor(n(9), with = "shared::stored::shared_value", has_nil)]
    pub course: Option<Arc<Course>>,
}

impl Payer {
    /// Returns a payer whose key pays without groups.
    pub const fn alone(key: KeyId, model: String) -> Self {
        Self { key, model, groups: [None, None] }
    }

    /// Returns whether the group is one of the payers.
    pub fn is_in(&self, group: GroupId) -> bool {
        self.groups.contains(&Some(group))
    }
}

const fn nothing_is_missing([key, group, parent]: &[Option<Missing>; 3]) -> bool {
    key.is_none() && group.is_none() && parent.is_none()
}

impl Counted {
    pub const fn anywhere(&self) -> bool {
        let [key, group, parent] = self.levels;
        key || group || parent
    }
}

impl Settlement {
    /// Returns the user that the caller sent, if known.
    pub fn user(&self) -> Option<&str> {
        self.origin.as_ref()?.user.as_deref()
    }

    /// Returns the request that was billed, if known.
    pub fn request(&self) -> Option<RequestId> {
        self.origin.as_ref()?.request
    }

    /// Returns the name of the upstream, if known.
    pub fn upstream(&self) -> Option<&str> {
        self.course.as_ref()?.upstream.as_deref()
    }

    pub fn shortfall(&self) -> NanoUsd {
        self.cost.left_after(self.charged)
    }
}

/// How a billed generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
#[serde(rename_all = "snake_case")]
#[cbor(index_only)]
pub enum Ending {
    /// The gateway reported the final usage. A later capture changes nothing.
    #[n(0)]
    Captured,
    /// The lease expired and the latest report was billed. A late capture replaces this bill.
    #[n(1)]
    Expired,
    /// A capture arrived after all bills from its time were dropped. The generation may have been billed before, so
    /// nothing is charged or counted.
    #[n(2)]
    Late,
}

shared::names! { Ending: Captured = "captured", Expired = "expired", Late = "late" }

impl Ending {
    /// Returns whether a settlement with this ending is the bill of its generation.
    pub const fn is_bill(self) -> bool {
        match self {
            Self::Captured | Self::Expired => true,
            Self::Late => false,
        }
    }
}

/// A deposit, payment or refund that took effect.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Deposited {
    /// Change of the account's credit: below zero for a refund, and zero if only the limit of a group changed.
    #[n(0)]
    pub amount: NanoUsd,
    /// Credit just after the change; `None` for deposits by a version that did not record it.
    #[n(1)]
    pub credit: Option<NanoUsd>,
    /// Note for people; may be empty.
    #[n(2)]
    pub note: String,
    /// The payment, if the operator gave its id.
    #[n(3)]
    pub payment: Option<Payment>,
    /// The change of a group's wallet, if a group was named.
    #[n(4)]
    pub wallet: Option<WalletChange>,
    /// What was asked for, if this is a refund.
    #[n(5)]
    pub refund: Option<RefundAsked>,
}

/// A change of a group's wallet by a payment or a refund.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct WalletChange {
    #[n(0)]
    pub group: GroupId,
    /// Below zero for a refund.
    #[n(1)]
    pub change: NanoUsd,
    /// The group's limit just after the change.
    #[n(2)]
    pub limit: NanoUsd,
    /// Whether the account's credit stayed unchanged: its owner gave the group credit that the account already had.
    #[n(3)]
    pub is_alone: bool,
}

/// What a refund asked for. It may have taken less.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct RefundAsked {
    #[n(0)]
    pub amount: NanoUsd,
    /// The payment that is refunded, if the caller named it.
    #[n(1)]
    pub of: Option<PaymentId>,
}

/// Where a payment goes, or where a refund comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaidTo {
    /// The account's credit.
    Account,
    /// The limit of a group, paid from credit that the account already has.
    Wallet(GroupId),
    /// The account's credit and the limit of a group.
    Both(GroupId),
}

/// The terms that must be the same when a payment or a refund is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaymentTerms {
    pub amount: NanoUsd,
    pub to: PaidTo,
    pub is_refund: bool,
}

impl PaidTo {
    pub const fn group(self) -> Option<GroupId> {
        match self {
            Self::Account => None,
            Self::Wallet(group) | Self::Both(group) => Some(group),
        }
    }

    /// Returns whether the account's credit changes.
    pub const fn changes_credit(self) -> bool {
        match self {
            Self::Account | Self::Both(_) => true,
            Self::Wallet(_) => false,
        }
    }
}

impl Deposited {
    pub fn terms(&self) -> PaymentTerms {
        let to = match self.wallet {
            None => PaidTo::Account,
            Some(WalletChange { group, is_alone: true, .. }) => PaidTo::Wallet(group),
            Some(WalletChange { group, is_alone: false, .. }) => PaidTo::Both(group),
        };
        let amount = self.refund.as_ref().map_or(self.change(), |refund| refund.amount);
        PaymentTerms { amount, to, is_refund: self.refund.is_some() }
    }

    /// Returns the change of the credit, or of the group's limit if the credit stayed unchanged.
    pub fn change(&self) -> NanoUsd {
        self.wallet.filter(|wallet| wallet.is_alone).map_or(self.amount, |wallet| wallet.change)
    }

    /// Returns the part of a refund that could not be taken; zero for a payment.
    pub fn shortfall(&self) -> NanoUsd {
        let taken = NanoUsd::from_nanos(self.change().nanos().saturating_neg());
        self.refund.as_ref().map_or(NanoUsd::ZERO, |refund| refund.amount.left_after(taken))
    }
}

/// The record under a command's idempotency id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
#[serde(rename_all = "snake_case")]
#[cbor(flat)]
pub enum Record {
    #[default]
    #[n(0)]
    None,
    #[n(1)]
    Open(#[n(0)] Hold),
    #[n(2)]
    Closed(#[n(0)] Settlement),
    #[n(3)]
    Deposited(#[n(0)] Deposited),
}

impl Record {
    pub(super) const fn payer(&self) -> Option<&Payer> {
        match self {
            Self::None | Self::Deposited(_) => None,
            Self::Open(hold) => Some(&hold.payer),
            Self::Closed(settlement) => Some(&settlement.payer),
        }
    }
}

/// An entry in the append-only journal. A late capture adds an entry that corrects the expiry's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The generation's bill after this entry.
    pub settlement: Settlement,
    /// Change of the amount billed for the generation; negative if money was returned.
    pub delta: NanoUsd,
    /// The key's `used` after this entry, like the running balance on a bank statement.
    pub used_after: NanoUsd,
}

/// Numbers of the previous entries for the same key, group and parent group. Zero for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct EntriesBefore {
    #[n(0)]
    pub key: u64,
    #[n(1)]
    pub groups: [u64; 2],
}
