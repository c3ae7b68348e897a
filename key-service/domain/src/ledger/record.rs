//! Records under an idempotency id (open holds, settlements, deposits), and entries of the journal.

use std::sync::Arc;

use shared::{
    generation::{Course, Origin},
    ids::{GroupId, KeyId, RequestId},
    money::NanoUsd,
    time::Timestamp,
    tokens::Usage,
};

use super::rate::Missing;
use crate::payment::Payment;

/// Progress of a generation: tokens with their cost, and its course.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub usage: Usage,
    pub cost: NanoUsd,
    /// Cost of the tokens to the operator; `None` if unknown.
    pub upstream_cost: Option<NanoUsd>,
    /// How the generation went; `None` if its gateway did not report it.
    pub course: Option<Arc<Course>>,
}

/// Ids of the groups that pay together with a key: its group and that group's parent.
pub type GroupChain = [Option<GroupId>; 2];

/// Who pays for a generation, as of its beginning.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Payer {
    pub key: KeyId,
    /// The model's id in the catalogue.
    pub model: String,
    pub groups: GroupChain,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pub payer: Payer,
    /// How the caller asked; `None` if its gateway did not report it.
    pub origin: Option<Arc<Origin>>,
    /// Amount held at the key and at each group.
    pub amount: NanoUsd,
    /// Last usage that the gateway reported, which an expiry bills.
    pub reported: Progress,
    /// Tick of the account at which the hold expires, unless it is extended.
    pub lease_until: u64,
    pub counted: Counted,
}

/// What a hold counts at the bounds of the budgets that pay: a request in flight, and tokens in a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Budgets that had bounds when the hold was opened, and count the hold: key, group, parent.
    pub levels: [bool; 3],
    /// Tokens counted so far; zero if no budget counts.
    pub tokens: u64,
    /// What was missing from each budget's token rate when it counted the hold; absent without a rate.
    pub missing: [Option<Missing>; 3],
}

/// The bill of a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    pub payer: Payer,
    /// How the caller asked; `None` if its gateway did not report it, or the hold was lost.
    pub origin: Option<Arc<Origin>>,
    pub usage: Usage,
    pub cost: NanoUsd,
    /// Cost of the usage to the operator; `None` if unknown.
    pub upstream_cost: Option<NanoUsd>,
    /// Amount billed: the cost, or less if the money was used up.
    pub charged: NanoUsd,
    pub ending: Ending,
    pub estimated: bool,
    pub at: Timestamp,
    /// How the generation went; `None` if its gateway did not report it.
    pub course: Option<Arc<Course>>,
}

impl Payer {
    /// Makes a payer whose key pays alone, without groups.
    pub const fn alone(key: KeyId, model: String) -> Self {
        Self { key, model, groups: [None, None] }
    }

    /// Returns whether the group is one of the payers.
    pub fn is_in(&self, group: GroupId) -> bool {
        self.groups.contains(&Some(group))
    }
}

impl Counted {
    pub const fn anywhere(&self) -> bool {
        let [key, group, parent] = self.levels;
        key || group || parent
    }
}

impl Settlement {
    /// The caller's name for its user, if known.
    pub fn user(&self) -> Option<&str> {
        self.origin.as_ref()?.user.as_deref()
    }

    /// The request that was billed, if known.
    pub fn request(&self) -> Option<RequestId> {
        self.origin.as_ref()?.request
    }

    /// Name of the upstream, if known.
    pub fn upstream(&self) -> Option<&str> {
        self.course.as_ref()?.upstream.as_deref()
    }

    pub fn shortfall(&self) -> NanoUsd {
        self.cost.left_after(self.charged)
    }
}

/// The way in which a billed generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The gateway reported the final usage. A later capture changes nothing.
    Captured,
    /// The lease ran out and the last report was billed. A late capture replaces this bill.
    Expired,
    /// A capture came after all bills of its time were dropped. The generation may have been billed before, so nothing
    /// is charged or counted.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deposited {
    pub amount: NanoUsd,
    /// Credit just after the deposit; `None` for deposits of a version that did not record it.
    pub credit: Option<NanoUsd>,
    /// Reason, for people; may be empty.
    pub note: String,
    /// The payment, if the operator gave its id.
    pub payment: Option<Payment>,
}

/// The record under a command's idempotency id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Record {
    #[default]
    None,
    Open(Hold),
    Closed(Settlement),
    Deposited(Deposited),
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

/// An entry of the append-only journal. A late capture adds an entry that corrects the expiry's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The bill of the generation after this entry.
    pub settlement: Settlement,
    /// Change of the amount billed for the generation; below zero if money was given back.
    pub delta: NanoUsd,
    /// The key's `used` after this entry, like the running balance on a bank statement.
    pub used_after: NanoUsd,
}

/// Numbers of the previous entries of the same key, group and parent group. Zero for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntriesBefore {
    pub key: u64,
    pub groups: [u64; 2],
}
