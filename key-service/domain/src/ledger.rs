//! Decisions about money: how a command changes an account and one of its keys.
//!
//! A generation **holds** its maximum possible cost, may **extend** the hold, and is then **captured** (billed at its
//! cost) or **released** (free of charge). An unresolved hold **expires**. Stores do not decide: a store loads the
//! state, calls [`apply`], and writes the state that [`apply`] returns.
//!
//! A key, its group and the group's parent are a **chain of budgets**, each with a limit, windows and rates. A hold
//! sets money aside at every budget of the chain and remembers the chain, so moving a key or a group affects only later
//! holds. Windows advance with the times of holds and bills; if the clock steps back, the current window stays. A limit
//! may be raised until an instant: each command is judged by the bound in force at its own time.
//!
//! Bill times never go back: if the clock is behind, a bill gets the time of the account's last bill, and no bill is
//! earlier than the start of a window that counts it. The exception is a last bill or window more than [`MOST_CARRIED`]
//! ahead: it shows that a clock was once far ahead, so bills return to the present time.
//!
//! Lease time is counted in ticks of the account. [`Command::Tick`] is a compare-and-set that key-services send one
//! quantum after the last tick they saw (`domain::lease_clock`). No machine's clock decides when a hold expires.
//!
//! Payments raise the account's credit, the limit of a group, or both. A group whose limit was paid has a **wallet**.
//! Refunds take at most what is neither used nor held.
//!
//! Invariants, after every step of any sequence of commands:
//! - `used + held <= limit` for every budget, unless the limit was later set or lowered or its raise ended; the same
//!   applies to each window, with the amount used in the window and everything held;
//! - `held <= credit` for every account;
//! - `limit = opening + paid` for every wallet, and `paid` is the sum of the changes by payments and refunds;
//! - a budget's `used` is the sum of the charges of all settlements with the budget in their chain, and the sum of the
//!   changes in their journal entries;
//! - a repeated command changes nothing and has the same outcome (for an expiry: nothing is left to expire).

mod bounds;
mod command;
mod events;
mod funds;
mod paid;
mod raise;
mod rate;
mod record;
mod standing;
mod state;

use std::time::Duration;

use shared::{money::NanoUsd, time::Timestamp};

use self::{bounds::plus, funds::Funds, paid::Asked};
pub use self::{
    bounds::{Bounds, BoundsPatch, Budget, Window, allowed_models, is_nearly_used},
    command::{Command, Level, NewHold, Outcome, RecordId, Refused},
    events::{CallEvents, Holder, Passed, Told, passed_by_bounds},
    funds::{IN_FLIGHT, rate_limited},
    raise::{BadRaise, RaiseFault},
    rate::{MOST_TAKEN, MOST_TOKENS, Missing, RATE_UNITS, Rate, tightest},
    record::{
        Counted, Deposited, Ending, EntriesBefore, Entry, GroupChain, Hold, PaidTo, Payer, PaymentTerms,
        Progress, Record, RefundAsked, Settlement, WalletChange,
    },
    standing::{AccountStatus, StandingAct, StandingRefused},
    state::{Account, Group, Groups, Key, LastDeposit, MOST_CARRIED, Rotation, Standing, State, Wallet},
};

/// How long every store remembers a generation's settlement, counted from the generation's beginning.
pub const REMEMBERED: Duration = Duration::from_hours(2);

/// Usual maximum lead of a gateway's clock over ours.
pub const CLOCK_LEAD: Duration = Duration::from_mins(1);

/// Maximum lead of a gateway's clock over ours at which bills can still be found by id alone. It also covers our own
/// clock stepping back.
pub const MOST_LEAD: Duration = Duration::from_hours(2);

/// Applies a command to the state. The error is the reason for a refusal.
pub fn apply(state: State, command: &Command, now: Timestamp) -> Result<(State, Outcome), Refused> {
    if let Some(asked) = Asked::of(command) {
        return paid::apply(state, &asked, now);
    }
    let State { account, key, groups, record, is_forgotten } = state;
    match command {
        Command::Tick { seen } => {
            let tick = if *seen == Some(account.tick) { account.tick + 1 } else { account.tick };
            let account = Account { tick, ..account };
            return Ok((State { account, key, groups, record, is_forgotten }, Outcome::Ticked(tick)));
        }
        Command::Deposit { .. }
        | Command::Refund { .. }
        | Command::Check { .. }
        | Command::Hold(_)
        | Command::Extend { .. }
        | Command::Capture { .. }
        | Command::Release { .. }
        | Command::Expire { .. } => {}
    }
    let key = key.ok_or(Refused::UnknownKey)?;
    if record.payer().is_some_and(|payer| command.key() != Some(payer.key)) {
        // A generation is billed to its hold's key, and no other key can change it.
        return Ok((State { account, key: Some(key), groups, record, is_forgotten }, Outcome::Gone));
    }
    let mut funds = Funds { account, key, groups, now };
    let (record, outcome) = spend(&mut funds, record, is_forgotten, command)?;
    let Funds { account, key, groups, .. } = funds;
    Ok((State { account, key: Some(key), groups, record, is_forgotten }, outcome))
}

/// Applies the commands that concern a key, in the order of a generation's life.
fn spend(
    funds: &mut Funds,
    record: Record,
    is_forgotten: bool,
    command: &Command,
) -> Result<(Record, Outcome), Refused> {
    match (command, record) {
        (Command::Check { credential, .. }, record) => {
            funds.may_spend(*credential)?;
            Ok((record, Outcome::Allowed { models: funds.models() }))
        }
        (Command::Hold(_), Record::Open(hold)) => {
            let outcome = Outcome::Held { amount: hold.amount, rates: funds.rates() };
            Ok((Record::Open(hold), outcome))
        }
        (Command::Hold(new), Record::None) => {
            funds.may_spend(new.credential)?;
            funds.admit(&new.model, new.prompt_tokens, new.readmitted)?;
            let amount = funds.hold(new)?;
            let counted = funds.count(new.prompt_tokens, new.readmitted);
            let payer = Payer { key: new.key, model: new.model.clone(), groups: funds.chain() };
            let (reported, lease_until) = (Progress::default(), funds.lease(new.lease_ticks));
            let outcome = Outcome::Held { amount, rates: funds.rates() };
            let origin = new.origin.clone();
            Ok((Record::Open(Hold { payer, origin, amount, reported, lease_until, counted }), outcome))
        }
        (Command::Extend { most, progress, lease_ticks, .. }, Record::Open(hold)) => {
            let hold = funds.extend(hold, *most, progress.clone(), *lease_ticks);
            let outcome = Outcome::Extended { amount: hold.amount, revoked_by: funds.revoked_by() };
            Ok((Record::Open(hold), outcome))
        }
        (Command::Capture { key, model, total, chargeable, estimated, .. }, record) => {
            let ending = if is_forgotten && record == Record::None { Ending::Late } else { Ending::Captured };
            let claim = funds.claim(total.clone(), *estimated, ending).charging_at_most(*chargeable);
            let settlement = match record {
                Record::Open(hold) => funds.settle(hold, claim),
                Record::Closed(settlement) => funds.capture_late(settlement, claim),
                Record::None => {
                    let payer = Payer { key: *key, model: model.clone(), groups: funds.chain() };
                    funds.bill_without_hold(payer, claim)
                }
                record @ Record::Deposited(_) => return Ok((record, Outcome::Gone)),
            };
            Ok((Record::Closed(settlement.clone()), Outcome::Captured(settlement)))
        }
        (Command::Release { .. }, Record::Open(hold)) => {
            funds.give_back(&hold, 0);
            Ok((Record::None, Outcome::Released))
        }
        (Command::Release { .. }, record) => Ok((record, Outcome::Released)),
        (Command::Expire { .. }, Record::Open(hold)) if hold.lease_until <= funds.account.tick => {
            let claim = funds.claim(hold.reported.clone(), true, Ending::Expired);
            let settlement = funds.settle(hold, claim);
            Ok((Record::Closed(settlement.clone()), Outcome::Expired(settlement)))
        }
        (Command::Expire { .. }, Record::Open(hold)) => Ok((Record::Open(hold), Outcome::NotDue)),
        (
            Command::Hold(_)
            | Command::Extend { .. }
            | Command::Expire { .. }
            | Command::Deposit { .. }
            | Command::Refund { .. }
            | Command::Tick { .. },
            record,
        ) => Ok((record, Outcome::Gone)),
    }
}

/// Returns the journal entry for a change of a generation's record; `None` if the change billed nothing.
pub fn entry(before: &Record, after: &State) -> Option<Entry> {
    let Record::Closed(settlement) = &after.record else { return None };
    let charged_before = match before {
        Record::Closed(earlier) if earlier == settlement => return None,
        Record::Closed(earlier) => earlier.charged,
        Record::None | Record::Open(_) | Record::Deposited(_) => NanoUsd::ZERO,
    };
    let given_back = NanoUsd::from_nanos(-charged_before.nanos());
    let delta = plus(settlement.charged, given_back);
    let used_after = after.key.as_ref()?.budget.used;
    Some(Entry { settlement: settlement.clone(), delta, used_after })
}

#[cfg(any(test, feature = "histories"))]
pub mod histories;
#[cfg(test)]
mod tests;
