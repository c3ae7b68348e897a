//! The whole truth about money: what a command does to one account and one of its keys.
//!
//! A generation **holds** what it may cost, may **extend** the hold, and is then **captured** (billed what it did cost)
//! or **released** (it cost nothing). A hold that nobody resolves **expires**. Stores do not decide; they load, ask
//! [`apply`], and write what it says.
//!
//! What holds at every step, for any sequence of commands:
//! - `used + held <= limit` for every key, unless the limit was lowered under it afterwards;
//! - `held <= credit` for every account;
//! - the key's `used` is the sum of the charges of its settlements;
//! - a command sent again changes nothing and hears the same.

use shared::{
    ids::{DepositId, GenerationId, KeyId},
    money::NanoUsd,
    refusal::Refusal,
    time::Timestamp,
    tokens::Usage,
};

/// The money of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Prepaid credit. Only deposits raise it, only captures lower it.
    pub credit: NanoUsd,
    /// The part of it that open holds cover.
    pub held: NanoUsd,
}

/// What the ledger knows of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Key {
    /// Most that may ever be spent with the key; `None` is no limit.
    pub limit: Option<NanoUsd>,
    /// What was billed to it.
    pub used: NanoUsd,
    /// What open holds cover.
    pub held: NanoUsd,
    /// From this instant on the key is refused.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked, if it was.
    pub revoked_at: Option<Timestamp>,
    /// When something was last billed to it.
    pub last_used_at: Option<Timestamp>,
}

/// An open hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The key that pays.
    pub key: KeyId,
    /// The model's id in the catalogue.
    pub model: String,
    /// What is set aside.
    pub amount: NanoUsd,
    /// What would be billed if nothing more were heard of the generation.
    pub reported: Progress,
    /// When the hold expires unless it is extended.
    pub lease_until: Timestamp,
}

/// Tokens so far, and what they cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Tokens used.
    pub usage: Usage,
    /// Their price.
    pub cost: NanoUsd,
}

/// How a generation was billed: an entry of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The key that paid.
    pub key: KeyId,
    /// The model's id in the catalogue.
    pub model: String,
    /// Tokens used.
    pub usage: Usage,
    /// What they cost.
    pub cost: NanoUsd,
    /// What was billed: the cost, or less where nothing more was left.
    pub charged: NanoUsd,
    /// How it came to be billed.
    pub ending: Ending,
    /// Whether the usage was estimated, since no exact figure was to be had.
    pub estimated: bool,
    /// When it was last billed.
    pub at: Timestamp,
}

impl Settlement {
    /// What it cost beyond what could be billed.
    pub fn shortfall(&self) -> NanoUsd {
        self.cost.left_after(self.charged)
    }
}

/// How a generation came to be billed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The gateway said what it cost. Final.
    Captured,
    /// The lease ran out and the last report was billed. A late capture may still add what is missing.
    Expired,
}

/// What is recorded under a command's idempotency id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Record {
    /// Nothing.
    #[default]
    None,
    /// An open hold.
    Open(Hold),
    /// A billed generation.
    Closed(Settlement),
    /// A deposit of this amount.
    Deposited(NanoUsd),
}

/// All that a command reads and writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The account.
    pub account: Account,
    /// The key that the command names; `None` where it names none, or the account has none of that id.
    pub key: Option<Key>,
    /// What is recorded under the command's [`RecordId`].
    pub record: Record,
}

/// The idempotency id of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordId {
    /// A generation's hold or settlement.
    Generation(GenerationId),
    /// A deposit.
    Deposit(DepositId),
}

/// Something to do, to one account and at most one of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Adds credit.
    Deposit {
        /// Deposits once, however often it is sent.
        id: DepositId,
        /// How much; above zero.
        amount: NanoUsd,
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
        /// What to hold where it is available. `enough` or more.
        most: NanoUsd,
        /// When the hold expires.
        lease_until: Timestamp,
    },
    /// Renews a hold's lease, records progress, and raises the hold as far as is available.
    Extend {
        /// The key that pays.
        key: KeyId,
        /// The generation.
        generation: GenerationId,
        /// What to hold in total. A lower amount than is held changes nothing.
        most: NanoUsd,
        /// What was used so far.
        progress: Progress,
        /// When the hold expires now; never moves it forward in time.
        lease_until: Timestamp,
    },
    /// Bills a generation and gives the rest of its hold back.
    Capture {
        /// The key that pays.
        key: KeyId,
        /// The generation.
        generation: GenerationId,
        /// What was used in the end.
        total: Progress,
        /// Whether that is an estimate.
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
            Self::Deposit { .. } => None,
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
            Self::Check { .. } => None,
            Self::Deposit { id, .. } => Some(RecordId::Deposit(*id)),
            Self::Hold { generation, .. }
            | Self::Extend { generation, .. }
            | Self::Capture { generation, .. }
            | Self::Release { generation, .. }
            | Self::Expire { generation, .. } => Some(RecordId::Generation(*generation)),
        }
    }
}

/// What a command did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The account's credit is this now.
    Deposited(NanoUsd),
    /// The key may spend.
    Allowed,
    /// This much is held.
    Held(NanoUsd),
    /// The hold goes on.
    Extended {
        /// What is held in total.
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
    /// There is no such hold (any more).
    Gone,
}

/// Why a command was refused. Nothing changed.
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
    /// What is left is held by other generations.
    Reserved,
    /// The deposit is not above zero, or the credit would pass [`NanoUsd::MAX`].
    BadDeposit,
}

impl Refused {
    /// What the caller hears; `None` for what no caller of the gRPC contract can cause.
    pub const fn refusal(self) -> Option<Refusal> {
        match self {
            Self::UnknownKey | Self::Revoked => Some(Refusal::InvalidApiKey),
            Self::KeyExpired => Some(Refusal::KeyExpired),
            Self::LimitReached => Some(Refusal::KeyLimitReached),
            Self::CreditEmpty => Some(Refusal::InsufficientCredits),
            Self::Reserved => Some(Refusal::SpendReserved),
            Self::BadDeposit => None,
        }
    }
}

/// What the command does to the state, or why it is refused.
pub fn apply(state: State, command: &Command, now: Timestamp) -> Result<(State, Outcome), Refused> {
    let State { account, key, record } = state;
    if let Command::Deposit { amount, .. } = command {
        let (account, record, outcome) = deposit(account, record, *amount)?;
        return Ok((State { account, key, record }, outcome));
    }
    let mut purse = Purse { account, key: key.ok_or(Refused::UnknownKey)? };
    let (record, outcome) = match command {
        Command::Deposit { .. } => unreachable!("handled above, since it needs no key"),
        Command::Check { .. } => {
            purse.may_spend(now)?;
            (record, Outcome::Allowed)
        }
        Command::Hold { key, model, least, enough, most, lease_until, .. } => match record {
            Record::None => {
                let amount = purse.hold(*least, *enough, *most, now)?;
                let reported = Progress::default();
                let hold =
                    Hold { key: *key, model: model.clone(), amount, reported, lease_until: *lease_until };
                (Record::Open(hold), Outcome::Held(amount))
            }
            Record::Open(hold) => {
                let outcome = Outcome::Held(hold.amount);
                (Record::Open(hold), outcome)
            }
            closed => (closed, Outcome::Gone),
        },
        Command::Extend { most, progress, lease_until, .. } => match record {
            Record::Open(hold) => {
                let hold = purse.extend(hold, *most, *progress, *lease_until);
                let outcome =
                    Outcome::Extended { amount: hold.amount, revoked: purse.key.revoked_at.is_some() };
                (Record::Open(hold), outcome)
            }
            other => (other, Outcome::Gone),
        },
        Command::Capture { total, estimated, .. } => match record {
            Record::Open(hold) => {
                let settlement = purse.settle(hold, *total, *estimated, Ending::Captured, now);
                (Record::Closed(settlement.clone()), Outcome::Captured(settlement))
            }
            Record::Closed(settlement) => {
                let settlement = purse.capture_late(settlement, *total, *estimated, now);
                (Record::Closed(settlement.clone()), Outcome::Captured(settlement))
            }
            other => (other, Outcome::Gone),
        },
        Command::Release { .. } => match record {
            Record::Open(hold) => {
                purse.give_back(hold.amount);
                (Record::None, Outcome::Released)
            }
            other => (other, Outcome::Released),
        },
        Command::Expire { .. } => match record {
            Record::Open(hold) if hold.lease_until <= now => {
                let reported = hold.reported;
                let settlement = purse.settle(hold, reported, true, Ending::Expired, now);
                (Record::Closed(settlement.clone()), Outcome::Expired(settlement))
            }
            open @ Record::Open(_) => (open, Outcome::NotDue),
            other => (other, Outcome::Gone),
        },
    };
    Ok((State { account: purse.account, key: Some(purse.key), record }, outcome))
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

/// The two pots that every payment comes out of.
struct Purse {
    account: Account,
    key: Key,
}

impl Purse {
    /// The order of checks is part of the public contract.
    fn may_spend(&self, now: Timestamp) -> Result<(), Refused> {
        let key = &self.key;
        if key.revoked_at.is_some() {
            return Err(Refused::Revoked);
        }
        if key.expires_at.is_some_and(|at| at <= now) {
            return Err(Refused::KeyExpired);
        }
        if key.limit.is_some_and(|limit| key.used >= limit) {
            return Err(Refused::LimitReached);
        }
        if self.account.credit <= NanoUsd::ZERO {
            return Err(Refused::CreditEmpty);
        }
        Ok(())
    }

    fn hold(
        &mut self,
        least: NanoUsd,
        enough: NanoUsd,
        most: NanoUsd,
        now: Timestamp,
    ) -> Result<NanoUsd, Refused> {
        self.may_spend(now)?;
        let left_of_limit = self.key.limit.map_or(NanoUsd::MAX, |limit| limit.left_after(self.key.used));
        if left_of_limit < least {
            return Err(Refused::LimitReached);
        }
        if self.account.credit < least {
            return Err(Refused::CreditEmpty);
        }
        let left = left_of_limit.min(self.account.credit);
        let available = self.available();
        if available < enough.max(least).min(left) {
            return Err(Refused::Reserved);
        }
        let amount = most.max(least).min(available);
        self.set_aside(amount);
        Ok(amount)
    }

    fn extend(&mut self, hold: Hold, most: NanoUsd, progress: Progress, lease_until: Timestamp) -> Hold {
        let more = if self.key.revoked_at.is_some() {
            NanoUsd::ZERO
        } else {
            most.left_after(hold.amount).min(self.available())
        };
        self.set_aside(more);
        // Reports may overtake each other; the one that costs most is the latest.
        let reported = if progress.cost >= hold.reported.cost { progress } else { hold.reported };
        Hold {
            amount: plus(hold.amount, more),
            reported,
            lease_until: hold.lease_until.max(lease_until),
            ..hold
        }
    }

    /// Resolves a hold: what it covers is billed from it, what the cost exceeds it by from what else is left.
    fn settle(
        &mut self,
        hold: Hold,
        total: Progress,
        estimated: bool,
        ending: Ending,
        now: Timestamp,
    ) -> Settlement {
        let beyond = total.cost.left_after(hold.amount).min(self.available());
        let charged = plus(total.cost.min(hold.amount), beyond);
        self.give_back(hold.amount);
        self.bill(charged, now);
        Settlement {
            key: hold.key,
            model: hold.model,
            usage: total.usage,
            cost: total.cost,
            charged,
            ending,
            estimated,
            at: now,
        }
    }

    /// A capture of what is closed already: final if it was captured; what expiry did not bill is billed now.
    fn capture_late(
        &mut self,
        settled: Settlement,
        total: Progress,
        estimated: bool,
        now: Timestamp,
    ) -> Settlement {
        match settled.ending {
            Ending::Captured => settled,
            Ending::Expired => {
                let missing = total.cost.left_after(settled.charged).min(self.available());
                self.bill(missing, now);
                let (usage, cost) = (total.usage, total.cost.max(settled.charged));
                let charged = plus(settled.charged, missing);
                Settlement { usage, cost, charged, ending: Ending::Captured, estimated, at: now, ..settled }
            }
        }
    }

    /// What no hold covers and nobody has spent.
    fn available(&self) -> NanoUsd {
        let of_limit =
            self.key.limit.map_or(NanoUsd::MAX, |l| l.left_after(self.key.used).left_after(self.key.held));
        of_limit.min(self.account.credit.left_after(self.account.held))
    }

    fn set_aside(&mut self, amount: NanoUsd) {
        self.account.held = plus(self.account.held, amount);
        self.key.held = plus(self.key.held, amount);
    }

    fn give_back(&mut self, amount: NanoUsd) {
        self.account.held = self.account.held.left_after(amount);
        self.key.held = self.key.held.left_after(amount);
    }

    fn bill(&mut self, amount: NanoUsd, now: Timestamp) {
        self.account.credit = self.account.credit.left_after(amount);
        self.key.used = plus(self.key.used, amount);
        if amount > NanoUsd::ZERO {
            self.key.last_used_at = Some(now);
        }
    }
}

/// Sums here stay within the credit of one account, or within what was ever billed to one key.
#[expect(
    clippy::expect_used,
    reason = "credit is at most 9e15 nano-USD; an i64 holds a thousand such accounts"
)]
fn plus(a: NanoUsd, b: NanoUsd) -> NanoUsd {
    a.checked_add(b).expect("amounts of one account fit an i64")
}
