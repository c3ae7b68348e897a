//! Commands to the ledger, and their outcomes.

use shared::{
    ids::{DepositId, GenerationId, KeyId},
    money::NanoUsd,
    refusal::Refusal,
};

use super::{Progress, Settlement};

/// The idempotency id of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordId {
    /// A generation's hold or settlement.
    Generation(GenerationId),
    /// A deposit.
    Deposit(DepositId),
}

/// A command to one account and at most one of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Adds credit.
    Deposit {
        /// Deposits once, however often it is sent.
        id: DepositId,
        /// The amount; above zero.
        amount: NanoUsd,
    },
    /// Advances lease time by one, if it still is `seen`. Answers the tick in any case.
    Tick {
        /// The last tick that the caller saw; `None` only asks.
        seen: Option<u64>,
    },
    /// Asks whether the key may spend at all.
    Check {
        /// The key.
        key: KeyId,
    },
    /// Sets aside what a generation may cost.
    Hold {
        /// The key that pays.
        key: KeyId,
        /// The generation.
        generation: GenerationId,
        /// The model's id in the catalogue.
        model: String,
        /// With less than this left, the request can never be paid: refused for good.
        least: NanoUsd,
        /// With less than this available because others hold the rest, the request had better wait. `least` or more.
        enough: NanoUsd,
        /// The amount to hold where it is available. `enough` or more.
        most: NanoUsd,
        /// Ticks from now at which the hold expires.
        lease_ticks: u64,
    },
    /// Renews a hold's lease, records progress, and raises the hold as far as is available.
    Extend {
        /// The key that pays.
        key: KeyId,
        /// The generation.
        generation: GenerationId,
        /// The amount to hold in total. A lower amount than is held changes nothing.
        most: NanoUsd,
        /// Used so far.
        progress: Progress,
        /// Ticks from now at which the hold expires; never shortens a lease.
        lease_ticks: u64,
    },
    /// Bills a generation and gives the rest of its hold back. Replaces the bill of an expiry. Without a hold, bills up to
    /// what is available.
    Capture {
        /// The key that pays.
        key: KeyId,
        /// The generation.
        generation: GenerationId,
        /// The model's id in the catalogue. A hold or a bill keeps its own.
        model: String,
        /// Used in the end.
        total: Progress,
        /// The usage is an estimate.
        estimated: bool,
    },
    /// Gives a hold back: the generation cost nothing.
    Release {
        /// The key that would have paid.
        key: KeyId,
        /// The generation.
        generation: GenerationId,
    },
    /// Resolves a hold whose lease ran out: bills its last report.
    Expire {
        /// The key that pays.
        key: KeyId,
        /// The generation.
        generation: GenerationId,
    },
}

impl Command {
    /// The key whose state the command reads.
    pub const fn key(&self) -> Option<KeyId> {
        match self {
            Self::Deposit { .. } | Self::Tick { .. } => None,
            Self::Check { key }
            | Self::Hold { key, .. }
            | Self::Extend { key, .. }
            | Self::Capture { key, .. }
            | Self::Release { key, .. }
            | Self::Expire { key, .. } => Some(*key),
        }
    }

    /// The record that the command reads.
    pub const fn record(&self) -> Option<RecordId> {
        match self {
            Self::Check { .. } | Self::Tick { .. } => None,
            Self::Deposit { id, .. } => Some(RecordId::Deposit(*id)),
            Self::Hold { generation, .. }
            | Self::Extend { generation, .. }
            | Self::Capture { generation, .. }
            | Self::Release { generation, .. }
            | Self::Expire { generation, .. } => Some(RecordId::Generation(*generation)),
        }
    }
}

/// The effect of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The account's credit is this now.
    Deposited(NanoUsd),
    /// The account's lease time is this now.
    Ticked(u64),
    /// The key may spend.
    Allowed,
    /// This much is held.
    Held(NanoUsd),
    /// The hold goes on.
    Extended {
        /// Held in total.
        amount: NanoUsd,
        /// The key was revoked in the meantime: nothing more is held for it.
        revoked: bool,
    },
    /// The generation is billed.
    Captured(Settlement),
    /// Nothing is held for the generation.
    Released,
    /// The hold was resolved by its expiry.
    Expired(Settlement),
    /// The hold's lease has not run out.
    NotDue,
    /// There is no such hold (any more), or the generation is another key's.
    Gone,
}

/// Reason why a command was refused. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The account has no such key.
    UnknownKey,
    /// The key was revoked.
    Revoked,
    /// The key is past its expiry.
    KeyExpired,
    /// The key's limit is reached, or what is left of it cannot pay for this.
    LimitReached,
    /// The account's credit is used up, or what is left of it cannot pay for this.
    CreditEmpty,
    /// The rest is held by other generations.
    Reserved,
    /// The deposit is not above zero, or the credit would pass [`NanoUsd::MAX`].
    BadDeposit,
    /// The record of this cannot be read, so that nothing could be decided: an operator has to look.
    Damaged,
}

impl Refused {
    /// The refusal as the gRPC contract has it; `None` for what no caller of it can cause.
    pub const fn refusal(self) -> Option<Refusal> {
        match self {
            Self::UnknownKey | Self::Revoked => Some(Refusal::InvalidApiKey),
            Self::KeyExpired => Some(Refusal::KeyExpired),
            Self::LimitReached => Some(Refusal::KeyLimitReached),
            Self::CreditEmpty => Some(Refusal::InsufficientCredits),
            Self::Reserved => Some(Refusal::SpendReserved),
            Self::BadDeposit | Self::Damaged => None,
        }
    }
}
