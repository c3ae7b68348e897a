//! Decisions about money: the effect of a command on an account and a key of the account.
//!
//! A generation **holds** the largest cost that it may have, may **extend** the hold, and is then **captured**
//! (billed at its cost) or **released** (free of charge). An unresolved hold **expires**. Stores do not decide: a
//! store loads the state, calls [`apply`], and writes the state that [`apply`] returns.
//!
//! Lease time is counted in ticks of the account. [`Command::Tick`] is a compare-and-set, sent by the key-services
//! one quantum after the last tick that they saw (`domain::lease_clock`); no clock of a machine decides when a hold
//! expires.
//!
//! Invariants, after every step of any sequence of commands:
//! - `used + held <= limit` for every key, unless the limit was lowered below that afterwards;
//! - `held <= credit` for every account;
//! - the key's `used` is the sum of its settlements' charges, and of the changes in its journal entries;
//! - a command sent again changes nothing and has the same outcome (an expiry: nothing left to expire).

mod command;
mod funds;
mod record;

use std::time::Duration;

use shared::{ids::GenerationId, money::NanoUsd, time::Timestamp, tokens::Usage};

use self::funds::{Claim, Funds};
pub use self::{
    command::{Command, Outcome, RecordId, Refused},
    record::{Ending, Entry, Hold, Record, Settlement, entry},
};

/// Age of a generation up to which every store remembers the settlement. An older capture without a hold may have
/// been billed before, and is recorded as shortfall.
pub const REMEMBERED: Duration = Duration::from_hours(2);

/// Largest lead of a gateway's clock over ours at which the age of a generation is trusted.
pub const CLOCK_LEAD: Duration = Duration::from_mins(1);

/// Money and lease time of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Prepaid credit: deposits raise it, settlements lower it, corrections may give some back.
    pub credit: NanoUsd,
    /// Part of the credit that open holds cover.
    pub held: NanoUsd,
    /// Lease time: the number of ticks so far.
    pub tick: u64,
}

/// The ledger's part of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Key {
    /// Largest amount that may ever be spent with the key; `None` is no limit.
    pub limit: Option<NanoUsd>,
    /// Billed to the key so far.
    pub used: NanoUsd,
    /// Covered by open holds.
    pub held: NanoUsd,
    /// Instant from which the key is refused.
    pub expires_at: Option<Timestamp>,
    /// Time of the revocation, if any.
    pub revoked_at: Option<Timestamp>,
    /// Time of the last bill.
    pub last_used_at: Option<Timestamp>,
}

/// Tokens so far, with the cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Tokens used.
    pub usage: Usage,
    /// Price of the tokens.
    pub cost: NanoUsd,
}

/// Everything that a command reads and writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The account.
    pub account: Account,
    /// The key that the command names; `None` if the command names none, or the account does not have the key.
    pub key: Option<Key>,
    /// The record under the command's [`RecordId`].
    pub record: Record,
}

/// Applies a command to the state, or returns the reason of the refusal.
pub fn apply(state: State, command: &Command, now: Timestamp) -> Result<(State, Outcome), Refused> {
    let State { account, key, record } = state;
    match command {
        Command::Deposit { amount, .. } => {
            let (account, record, outcome) = deposit(account, record, *amount)?;
            return Ok((State { account, key, record }, outcome));
        }
        Command::Tick { seen } => {
            let tick = if *seen == Some(account.tick) { account.tick + 1 } else { account.tick };
            let account = Account { tick, ..account };
            return Ok((State { account, key, record }, Outcome::Ticked(tick)));
        }
        Command::Check { .. }
        | Command::Hold { .. }
        | Command::Extend { .. }
        | Command::Capture { .. }
        | Command::Release { .. }
        | Command::Expire { .. } => {}
    }
    let mut funds = Funds { account, key: key.ok_or(Refused::UnknownKey)? };
    if record.key().is_some_and(|payer| command.key() != Some(payer)) {
        // A generation is billed to the key of the hold; no other key can change the generation.
        return Ok((State { account, key, record }, Outcome::Gone));
    }
    let (record, outcome) = spend(&mut funds, record, command, now)?;
    Ok((State { account: funds.account, key: Some(funds.key), record }, outcome))
}

/// Applies the commands that concern a key, in the order of a generation's life.
fn spend(
    funds: &mut Funds,
    record: Record,
    command: &Command,
    now: Timestamp,
) -> Result<(Record, Outcome), Refused> {
    match (command, record) {
        (Command::Check { .. }, record) => {
            funds.may_spend(now)?;
            Ok((record, Outcome::Allowed))
        }
        (Command::Hold { .. }, Record::Open(hold)) => {
            let outcome = Outcome::Held(hold.amount);
            Ok((Record::Open(hold), outcome))
        }
        (Command::Hold { key, model, least, enough, most, lease_ticks, .. }, Record::None) => {
            let amount = funds.hold(*least, *enough, *most, now)?;
            let (model, reported) = (model.clone(), Progress::default());
            let hold = Hold { key: *key, model, amount, reported, lease_until: funds.lease(*lease_ticks) };
            Ok((Record::Open(hold), Outcome::Held(amount)))
        }
        (Command::Extend { most, progress, lease_ticks, .. }, Record::Open(hold)) => {
            let hold = funds.extend(hold, *most, *progress, *lease_ticks);
            let outcome = Outcome::Extended { amount: hold.amount, revoked: funds.key.revoked_at.is_some() };
            Ok((Record::Open(hold), outcome))
        }
        (Command::Capture { key, generation, model, total, estimated }, record) => {
            let claim = Claim { total: *total, estimated: *estimated, ending: Ending::Captured, at: now };
            let settlement = match record {
                Record::Open(hold) => funds.settle(&hold, claim),
                Record::Closed(settlement) => funds.capture_late(settlement, claim),
                // An earlier bill of an old generation may be forgotten, so all of the cost is shortfall.
                Record::None if !remembered(*generation, now) => claim.settled(*key, model, NanoUsd::ZERO),
                Record::None => {
                    let charged = funds.bill_without_hold(claim);
                    claim.settled(*key, model, charged)
                }
                record @ Record::Deposited(_) => return Ok((record, Outcome::Gone)),
            };
            Ok((Record::Closed(settlement.clone()), Outcome::Captured(settlement)))
        }
        (Command::Release { .. }, Record::Open(hold)) => {
            funds.give_back(hold.amount);
            Ok((Record::None, Outcome::Released))
        }
        (Command::Release { .. }, record) => Ok((record, Outcome::Released)),
        (Command::Expire { .. }, Record::Open(hold)) if hold.lease_until <= funds.account.tick => {
            let claim = Claim { total: hold.reported, estimated: true, ending: Ending::Expired, at: now };
            let settlement = funds.settle(&hold, claim);
            Ok((Record::Closed(settlement.clone()), Outcome::Expired(settlement)))
        }
        (Command::Expire { .. }, Record::Open(hold)) => Ok((Record::Open(hold), Outcome::NotDue)),
        (Command::Hold { .. } | Command::Extend { .. } | Command::Expire { .. }, record) => {
            Ok((record, Outcome::Gone))
        }
        (Command::Deposit { .. } | Command::Tick { .. }, record) => Ok((record, Outcome::Gone)),
    }
}

fn deposit(account: Account, record: Record, amount: NanoUsd) -> Result<(Account, Record, Outcome), Refused> {
    if record != Record::None {
        return Ok((account, record, Outcome::Deposited(account.credit)));
    }
    if amount <= NanoUsd::ZERO {
        return Err(Refused::BadDeposit);
    }
    let credit =
        account.credit.checked_add(amount).filter(|c| *c <= NanoUsd::MAX).ok_or(Refused::BadDeposit)?;
    Ok((Account { credit, ..account }, Record::Deposited(amount), Outcome::Deposited(credit)))
}

/// Returns whether every store would still have the record of a settlement of the generation.
fn remembered(generation: GenerationId, now: Timestamp) -> bool {
    let created_at = generation.created_at();
    now <= created_at.plus(REMEMBERED) && created_at <= now.plus(CLOCK_LEAD)
}

#[cfg(any(test, feature = "histories"))]
pub mod histories;
#[cfg(test)]
mod tests;
