//! Decisions about money: the effect of a command on an account and a key of the account.
//!
//! A generation **holds** the largest cost that it may have, may **extend** the hold, and is then **captured**
//! (billed at its cost) or **released** (free of charge). An unresolved hold **expires**. Stores do not decide: a
//! store loads the state, calls [`apply`], and writes the state that [`apply`] returns.
//!
//! A key, its group and the group's parent are a **chain of budgets**: each has a limit, windows, rates. A hold is set
//! aside at every budget of the chain, and remembers the chain: moving a key or a group changes later holds only.
//! Windows turn by the time of holds and bills; a clock that steps back stays in the window that has begun. A limit may be
//! raised until an instant: each command is judged by the bound in force at its own time.
//!
//! Lease time is counted in ticks of the account. [`Command::Tick`] is a compare-and-set, sent by the key-services
//! one quantum after the last tick that they saw (`domain::lease_clock`); no clock of a machine decides when a hold
//! expires.
//!
//! Invariants, after every step of any sequence of commands:
//! - `used + held <= limit` for every budget, unless the limit was set or lowered, or its raise ended, afterwards; the
//!   same holds for each of its windows, with what was used in the window and all that is held;
//! - `held <= credit` for every account;
//! - a budget's `used` is the sum of the charges of all settlements that have the budget in their chain, and the sum of
//!   the changes in their journal entries;
//! - a command sent again changes nothing and has the same outcome (an expiry: nothing left to expire).

mod bounds;
mod command;
mod events;
mod funds;
mod raise;
mod record;

use std::{sync::Arc, time::Duration};

use shared::{
    generation::Course,
    ids::{GenerationId, GroupId},
    money::NanoUsd,
    time::Timestamp,
    tokens::Usage,
};

use crate::payment::Payment;

use self::funds::Funds;
pub use self::{
    bounds::{
        Bounds, BoundsPatch, Budget, MOST_TAKEN, MOST_TOKENS, RATE_UNITS, Rate, Window, allowed_models,
        is_nearly_used, tightest,
    },
    command::{Command, Level, NewHold, Outcome, RecordId, Refused},
    events::{CallEvents, Holder, Passed, Told, deposited, passed_by_bounds},
    funds::{IN_FLIGHT, rate_limited},
    raise::{BadRaise, RaiseFault},
    record::{Counted, Deposited, Ending, Entry, GroupChain, Hold, Payer, Record, Settlement, entry},
};

/// Age of a generation up to which every store remembers its settlement. An older capture without a hold may have been
/// billed before, so it is recorded as shortfall.
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
    /// The last deposit; thresholds of the credit are parts of it.
    pub last_deposit: Option<LastDeposit>,
}

/// The last deposit of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastDeposit {
    /// Credit just after the deposit.
    pub credit: NanoUsd,
    pub at: Timestamp,
}

/// The ledger's part of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key {
    pub budget: Budget,
    /// The group whose bounds hold too.
    pub group: Option<GroupId>,
    /// Credentials that the key accepts.
    pub rotation: Rotation,
    /// Instant from which the key is refused.
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    /// Refuses the key until its owner enables it again.
    pub disabled: bool,
    pub last_used_at: Option<Timestamp>,
}

/// Credentials of a key, by number: a key is made with credential 0, and each rotation adds the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// Number of the current credential, which is the number of rotations so far.
    pub current: u64,
    /// Instant from which the previous credential is refused; `None` if the rotation refused it at once.
    pub previous_until: Option<Timestamp>,
}

impl Rotation {
    /// Returns the instant from which the previous credential is refused, while it is accepted.
    pub fn grace(&self, now: Timestamp) -> Option<Timestamp> {
        self.previous_until.filter(|until| now < *until)
    }

    /// Returns whether the credential of this number is current, or the previous one within its grace.
    pub fn accepts(&self, credential: u64, now: Timestamp) -> bool {
        credential == self.current
            || credential.checked_add(1) == Some(self.current) && self.grace(now).is_some()
    }
}

/// The ledger's part of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Money and bounds that the keys of the group and of its child groups share.
    pub budget: Budget,
    /// The group whose bounds hold too. A parent has no parent.
    pub parent: Option<GroupId>,
    /// Time from which the keys of the group and of its child groups are refused.
    pub archived_at: Option<Timestamp>,
}

/// Groups that pay along with a key: the key's group and the group's parent.
pub type Groups = [Option<(GroupId, Group)>; 2];

/// How far a generation has come: tokens with their cost, and the way there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub usage: Usage,
    pub cost: NanoUsd,
    /// Cost of the tokens to the operator; `None` if unknown.
    pub upstream_cost: Option<NanoUsd>,
    /// How the generation went; `None` where its gateway did not tell.
    pub course: Option<Arc<Course>>,
}

/// Everything that a command reads and writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub account: Account,
    /// The key that the command names; `None` if it names none, or if the account does not have the key.
    pub key: Option<Key>,
    /// Groups that pay: those of the record, or of the key if there is no hold or settlement yet.
    pub groups: Groups,
    /// The record under the command's [`RecordId`].
    pub record: Record,
}

impl State {
    /// Completes the state with the groups that pay; `find` reads a group of the account.
    pub fn load<E>(
        account: Account,
        key: Option<Key>,
        record: Record,
        mut find: impl FnMut(GroupId) -> Result<Option<Group>, E>,
    ) -> Result<Self, E> {
        let mut find = |id: Option<GroupId>| -> Result<Option<(GroupId, Group)>, E> {
            let Some(id) = id else { return Ok(None) };
            Ok(find(id)?.map(|group| (id, group)))
        };
        let groups = match (record.payer(), &key) {
            (Some(Payer { groups: [group, parent], .. }), _) => [find(*group)?, find(*parent)?],
            (None, Some(key)) => {
                let group = find(key.group)?;
                let parent = find(group.as_ref().and_then(|(_, group)| group.parent))?;
                [group, parent]
            }
            (None, None) => [None, None],
        };
        Ok(Self { account, key, groups, record })
    }
}

/// Applies a command to the state, or returns the reason of the refusal.
pub fn apply(state: State, command: &Command, now: Timestamp) -> Result<(State, Outcome), Refused> {
    let State { account, key, groups, record } = state;
    match command {
        Command::Deposit { amount, note, payment_id, .. } => {
            let payment = payment_id.clone().map(|id| Payment { id, at: now });
            let new = Deposited { amount: *amount, credit: None, note: note.clone(), payment };
            let (account, record, outcome) = deposit(account, record, new, now)?;
            return Ok((State { account, key, groups, record }, outcome));
        }
        Command::Tick { seen } => {
            let tick = if *seen == Some(account.tick) { account.tick + 1 } else { account.tick };
            let account = Account { tick, ..account };
            return Ok((State { account, key, groups, record }, Outcome::Ticked(tick)));
        }
        Command::Check { .. }
        | Command::Hold(_)
        | Command::Extend { .. }
        | Command::Capture { .. }
        | Command::Release { .. }
        | Command::Expire { .. } => {}
    }
    let key = key.ok_or(Refused::UnknownKey)?;
    if record.payer().is_some_and(|payer| command.key() != Some(payer.key)) {
        // A generation is billed to the key of its hold; no other key can change it.
        return Ok((State { account, key: Some(key), groups, record }, Outcome::Gone));
    }
    let mut funds = Funds { account, key, groups, now };
    let (record, outcome) = spend(&mut funds, record, command)?;
    let Funds { account, key, groups, .. } = funds;
    Ok((State { account, key: Some(key), groups, record }, outcome))
}

/// Applies the commands that concern a key, in the order of a generation's life.
fn spend(funds: &mut Funds, record: Record, command: &Command) -> Result<(Record, Outcome), Refused> {
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
            let amount = funds.hold(new.least, new.enough, new.most)?;
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
        (Command::Capture { key, generation, model, total, chargeable, estimated }, record) => {
            let claim =
                funds.claim(total.clone(), *estimated, Ending::Captured).charging_at_most(*chargeable);
            let settlement = match record {
                Record::Open(hold) => funds.settle(hold, claim),
                Record::Closed(settlement) => funds.capture_late(settlement, claim),
                Record::None => {
                    let payer = Payer { key: *key, model: model.clone(), groups: funds.chain() };
                    let charged = funds.bill_without_hold(billable(*generation, claim.chargeable, funds.now));
                    claim.settled(payer, None, charged)
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
        (Command::Hold(_) | Command::Extend { .. } | Command::Expire { .. }, record) => {
            Ok((record, Outcome::Gone))
        }
        (Command::Deposit { .. } | Command::Tick { .. }, record) => Ok((record, Outcome::Gone)),
    }
}

fn deposit(
    account: Account,
    record: Record,
    new: Deposited,
    now: Timestamp,
) -> Result<(Account, Record, Outcome), Refused> {
    match record {
        Record::None => {}
        Record::Deposited(earlier) if earlier.amount != new.amount => {
            return Err(Refused::DepositDiffers { earlier: earlier.amount });
        }
        Record::Deposited(earlier) => {
            let outcome = Outcome::Deposited(earlier.credit.unwrap_or(account.credit));
            return Ok((account, Record::Deposited(earlier), outcome));
        }
        record @ (Record::Open(_) | Record::Closed(_)) => return Ok((account, record, Outcome::Gone)),
    }
    if new.amount <= NanoUsd::ZERO {
        return Err(Refused::BadDeposit);
    }
    let credit =
        account.credit.checked_add(new.amount).filter(|c| *c <= NanoUsd::MAX).ok_or(Refused::BadDeposit)?;
    let last_deposit = Some(LastDeposit { credit, at: now });
    let record = Record::Deposited(Deposited { credit: Some(credit), ..new });
    Ok((Account { credit, last_deposit, ..account }, record, Outcome::Deposited(credit)))
}

/// Part of a cost that is billed without a hold. The earlier bill of an old generation may be forgotten, so its whole
/// cost is shortfall.
fn billable(generation: GenerationId, cost: NanoUsd, now: Timestamp) -> NanoUsd {
    let created_at = generation.created_at();
    let is_remembered = now <= created_at.plus(REMEMBERED) && created_at <= now.plus(CLOCK_LEAD);
    if is_remembered { cost } else { NanoUsd::ZERO }
}

#[cfg(any(test, feature = "histories"))]
pub mod histories;
#[cfg(test)]
mod tests;
