//! Commands to the ledger and their outcomes.

use std::{sync::Arc, time::Duration};

use shared::{
    generation::Origin,
    ids::{DepositId, GenerationId, GroupId, KeyId},
    money::NanoUsd,
    rates::{RateBound, RateStatus, TokenRoom},
    refusal::Refusal,
    time::Timestamp,
};

use crate::{
    event::Actor,
    ledger::record::{Deposited, PaidTo, PaymentTerms, Progress, Settlement},
    payment::PaymentId,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordId {
    Generation(GenerationId),
    Deposit(DepositId),
}

/// A command to an account and at most one of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Deposit {
        /// Idempotency id: a repeated deposit adds nothing and has the same outcome.
        id: DepositId,
        amount: NanoUsd,
        /// Note for people; may be empty.
        note: String,
        /// Id of the payment, if the operator gave one; `id` is then derived from it.
        payment_id: Option<PaymentId>,
        to: PaidTo,
        actor: Actor,
    },
    /// Takes back money that is neither used nor held.
    Refund {
        /// Derived from `payment_id`. A repeated refund takes nothing and has the same outcome.
        id: DepositId,
        payment_id: PaymentId,
        amount: NanoUsd,
        from: PaidTo,
        /// Whether to take what is there, if that is less than `amount`.
        partial: bool,
        /// The payment that is refunded. The caller has checked that it exists.
        of: Option<PaymentId>,
        /// Note for people; may be empty.
        note: String,
        actor: Actor,
    },
    /// Advances lease time by a tick if the current tick is `seen`. The outcome is the current tick in either case.
    Tick {
        /// The last tick that the caller saw; `None` only reads the tick.
        seen: Option<u64>,
    },
    /// Asks whether the key may spend at all.
    Check {
        key: KeyId,
        /// Number of the presented credential.
        credential: u64,
    },
    /// Sets aside money for a generation.
    Hold(NewHold),
    /// Renews a hold's lease, records progress, and increases the hold as far as money is available.
    Extend {
        key: KeyId,
        generation: GenerationId,
        /// The total amount to hold. An amount below the current hold changes nothing.
        most: NanoUsd,
        progress: Progress,
        /// Ticks until the hold expires; never shortens a lease.
        lease_ticks: u64,
    },
    /// Bills a generation and releases the rest of its hold. A capture replaces the bill of an expiry. Without a hold,
    /// it bills up to the available amount.
    Capture {
        key: KeyId,
        generation: GenerationId,
        /// The model's id in the catalogue. If the generation already has a hold or a bill, the model in that record
        /// stays.
        model: String,
        total: Progress,
        /// Maximum charge for a generation that ran on after its stream was cut; the rest of the cost is shortfall.
        /// `None` charges the cost.
        chargeable: Option<NanoUsd>,
        estimated: bool,
    },
    /// Releases a hold: the generation cost nothing.
    Release { key: KeyId, generation: GenerationId },
    /// Bills the last report of a hold with an expired lease.
    Expire { key: KeyId, generation: GenerationId },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewHold {
    pub key: KeyId,
    /// Number of the presented credential.
    pub credential: u64,
    pub generation: GenerationId,
    /// The model's id in the catalogue.
    pub model: String,
    /// Minimum amount that can pay for the request. If less is left, the request is refused permanently.
    pub least: NanoUsd,
    /// If less than this is available because other generations hold the rest, the caller is asked to retry. At least
    /// `least`.
    pub enough: NanoUsd,
    /// The amount to hold if available; at least `enough`.
    pub most: NanoUsd,
    /// If less than this is available, the request is refused as [`Refused::Reserved`], so that the gateway counts the
    /// prompt exactly: the amounts above assume a maximum number of prompt tokens, which an exact count would lower.
    /// Zero if the prompt cannot be counted.
    pub room_for_bound: NanoUsd,
    /// Maximum number of prompt tokens, which rates count until the real number is known.
    pub prompt_tokens: u64,
    /// An earlier hold admitted the request and was released, so requests per minute have counted it already.
    pub readmitted: bool,
    /// Ticks until the hold expires.
    pub lease_ticks: u64,
    /// How the caller sent the request; `None` if its gateway did not report it.
    pub origin: Option<Arc<Origin>>,
}

impl Command {
    /// Returns the key whose state the command reads.
    pub const fn key(&self) -> Option<KeyId> {
        match self {
            Self::Deposit { .. } | Self::Refund { .. } | Self::Tick { .. } => None,
            Self::Check { key, .. }
            | Self::Hold(NewHold { key, .. })
            | Self::Extend { key, .. }
            | Self::Capture { key, .. }
            | Self::Release { key, .. }
            | Self::Expire { key, .. } => Some(*key),
        }
    }

    /// Returns the record that the command reads.
    pub const fn record(&self) -> Option<RecordId> {
        match self {
            Self::Check { .. } | Self::Tick { .. } => None,
            Self::Deposit { id, .. } | Self::Refund { id, .. } => Some(RecordId::Deposit(*id)),
            Self::Hold(NewHold { generation, .. })
            | Self::Extend { generation, .. }
            | Self::Capture { generation, .. }
            | Self::Release { generation, .. }
            | Self::Expire { generation, .. } => Some(RecordId::Generation(*generation)),
        }
    }

    /// Returns the group whose wallet the command changes.
    pub const fn wallet(&self) -> Option<GroupId> {
        match self {
            Self::Deposit { to: place, .. } | Self::Refund { from: place, .. } => place.group(),
            Self::Tick { .. }
            | Self::Check { .. }
            | Self::Hold(_)
            | Self::Extend { .. }
            | Self::Capture { .. }
            | Self::Release { .. }
            | Self::Expire { .. } => None,
        }
    }
}

/// The effect of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The deposit or refund took effect, now or earlier.
    Deposited {
        deposited: Box<Deposited>,
        /// Whether the deposit or refund took effect now, and not earlier.
        is_new: bool,
    },
    Ticked(u64),
    Allowed {
        /// Ids of the models that the key and all its groups allow; `None` for every model.
        models: Option<Vec<String>>,
    },
    /// The generation has a hold.
    Held {
        amount: NanoUsd,
        /// State of the rates at the hold's key and groups.
        rates: RateStatus,
    },
    Extended {
        amount: NanoUsd,
        /// Set if the key has been revoked or disabled in the meantime, its account suspended, or its group archived:
        /// nothing more is held.
        revoked_by: Option<Refusal>,
    },
    Captured(Settlement),
    /// Nothing is held for the generation.
    Released,
    /// An expiry resolved the hold.
    Expired(Settlement),
    /// The hold's lease has not expired.
    NotDue,
    /// The hold does not exist or no longer exists, or the generation belongs to another key.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Key,
    Group,
    /// The parent of the key's group.
    Parent,
}

/// Why a command was refused. A refused command changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The account does not have the key, or the key no longer accepts the credential.
    UnknownKey,
    Revoked,
    AccountSuspended,
    AccountClosed,
    KeyDisabled,
    KeyExpired,
    /// The key's group or its parent is archived.
    GroupArchived,
    /// A limit of the budget is reached, or what is left cannot pay for the request.
    LimitReached {
        level: Level,
        /// End of the used-up window; `None` if the lifetime limit is used up.
        resets_at: Option<Timestamp>,
    },
    /// The account's credit is used up, or what is left cannot pay for the request.
    CreditEmpty,
    /// The key, its group or the group's parent does not allow the model.
    ModelNotAllowed {
        models: Vec<String>,
    },
    /// A rate or the limit on requests in flight leaves no room for the request.
    RateLimited {
        bound: RateBound,
        /// How long until the request may fit.
        retry_after: Duration,
        /// Free tokens, if the rate counts tokens.
        token_room: Option<TokenRoom>,
    },
    /// Other generations hold the rest.
    Reserved,
    /// The deposit is not above zero, or the credit would exceed [`NanoUsd::MAX`].
    BadDeposit,
    /// The same id was used earlier, for another amount or group, or for a refund instead of a payment.
    DepositDiffers {
        earlier: PaymentTerms,
    },
    /// The refund exceeds the credit that is neither used nor held.
    CreditTooLow {
        available: NanoUsd,
    },
    /// The account does not have the group that a payment or a refund names.
    UnknownGroup,
    /// The group has no limit that a payment could raise.
    NoLimit,
    /// The limit of the group would exceed [`MAX_LIMIT`](shared::wire::MAX_LIMIT).
    LimitTooHigh,
    /// The record or a group cannot be read, so nothing can be decided until an operator repairs it.
    Damaged,
}

impl Refused {
    /// Returns the refusal as gRPC callers see it; `None` if they cannot cause it.
    pub const fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::UnknownKey | Self::Revoked => Some(Refusal::InvalidApiKey),
            Self::AccountSuspended => Some(Refusal::AccountSuspended),
            Self::AccountClosed => Some(Refusal::AccountClosed),
            Self::KeyDisabled => Some(Refusal::KeyDisabled),
            Self::KeyExpired => Some(Refusal::KeyExpired),
            Self::GroupArchived => Some(Refusal::GroupArchived),
            Self::LimitReached { level: Level::Key, .. } => Some(Refusal::KeyLimitReached),
            Self::LimitReached { level: Level::Group | Level::Parent, .. } => {
                Some(Refusal::GroupLimitReached)
            }
            Self::CreditEmpty => Some(Refusal::InsufficientCredits),
            Self::ModelNotAllowed { .. } => Some(Refusal::ModelNotAllowed),
            Self::RateLimited { .. } => Some(Refusal::RateLimitExceeded),
            Self::Reserved => Some(Refusal::SpendReserved),
            Self::BadDeposit
            | Self::DepositDiffers { .. }
            | Self::CreditTooLow { .. }
            | Self::UnknownGroup
            | Self::NoLimit
            | Self::LimitTooHigh
            | Self::Damaged => None,
        }
    }
}
