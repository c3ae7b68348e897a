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
//! - a command sent again changes nothing and hears the same (an expiry: that there is nothing left to expire).

mod purse;

use shared::{
    ids::{DepositId, GenerationId, KeyId},
    money::NanoUsd,
    refusal::Refusal,
    time::Timestamp,
    tokens::Usage,
};

use purse::Purse;

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

impl Record {
    /// The key that pays.
    const fn key(&self) -> Option<KeyId> {
        match self {
            Self::None | Self::Deposited(_) => None,
            Self::Open(hold) => Some(hold.key),
            Self::Closed(settlement) => Some(settlement.key),
        }
    }
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
    /// There is no such hold (any more), or it is another key's.
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
    /// What the store has recorded for this cannot be read, so that nothing could be decided: an operator has to look.
    Damaged,
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
            Self::BadDeposit | Self::Damaged => None,
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
    if record.key().is_some_and(|payer| command.key() != Some(payer)) {
        // A generation is billed to the key that it was held for; no other key can touch it.
        return Ok((State { account, key, record }, Outcome::Gone));
    }
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

#[cfg(test)]
pub(crate) mod script;

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, time::Duration};

    use proptest::prelude::*;
    use shared::ids::AccountId;

    use super::{
        purse::plus,
        script::{START, Step, World, account, deposit, generation, history, key},
        *,
    };

    const MINE: u8 = 0;

    fn nanos(n: i64) -> NanoUsd {
        NanoUsd::from_nanos(n)
    }

    fn after(seconds: u64) -> Timestamp {
        START.plus(Duration::from_secs(seconds))
    }

    fn cost(n: i64) -> Progress {
        Progress { usage: Usage { prompt: 3, cached: 1, completion: n.unsigned_abs() }, cost: nanos(n) }
    }

    /// One account, told in short commands: all of key 0, every lease 30 seconds long, the time as it is set.
    struct Book {
        world: World,
        now: Timestamp,
    }

    impl Book {
        fn new(credit: i64, limit: Option<i64>) -> Self {
            let mut book = Self { world: World::new(), now: START };
            book.run(&Command::Deposit { id: deposit(0), amount: nanos(credit) }).unwrap();
            book.set_limit(limit);
            book
        }

        fn set_limit(&mut self, limit: Option<i64>) {
            self.key_mut().limit = limit.map(nanos);
        }

        fn key_mut(&mut self) -> &mut Key {
            self.world.keys.get_mut(&(account(MINE), key(0))).unwrap()
        }

        fn run(&mut self, command: &Command) -> Result<Outcome, Refused> {
            self.world.apply(account(MINE), command, self.now)
        }

        fn hold(&mut self, n: u8, least: i64, enough: i64, most: i64) -> Result<Outcome, Refused> {
            let (model, lease_until) = ("Model Flash".into(), self.now.plus(Duration::from_secs(30)));
            let (least, enough, most) = (nanos(least), nanos(enough), nanos(most));
            self.run(&Command::Hold {
                key: key(0),
                generation: generation(n),
                model,
                least,
                enough,
                most,
                lease_until,
            })
        }

        /// Holds exactly this much.
        fn must_hold(&mut self, n: u8, amount: i64) {
            assert_eq!(self.hold(n, amount, amount, amount), Ok(Outcome::Held(nanos(amount))));
        }

        fn extend(&mut self, n: u8, most: i64, progress: Progress) -> Result<Outcome, Refused> {
            let lease_until = self.now.plus(Duration::from_secs(30));
            let (key, generation) = (key(0), generation(n));
            self.run(&Command::Extend { key, generation, most: nanos(most), progress, lease_until })
        }

        fn capture(&mut self, n: u8, total: Progress) -> Settlement {
            let (key, generation) = (key(0), generation(n));
            match self.run(&Command::Capture { key, generation, total, estimated: false }) {
                Ok(Outcome::Captured(settlement)) => settlement,
                other => panic!("not captured: {other:?}"),
            }
        }

        fn release(&mut self, n: u8) -> Result<Outcome, Refused> {
            self.run(&Command::Release { key: key(0), generation: generation(n) })
        }

        fn expire(&mut self, n: u8) -> Result<Outcome, Refused> {
            self.run(&Command::Expire { key: key(0), generation: generation(n) })
        }

        /// Credit, held, used.
        fn sums(&mut self) -> (i64, i64, i64) {
            let money = self.world.accounts[&account(MINE)];
            let key = *self.key_mut();
            assert_eq!(money.held, key.held);
            (money.credit.nanos(), money.held.nanos(), key.used.nanos())
        }
    }

    #[test]
    fn a_hold_sets_money_aside_and_a_capture_takes_what_it_cost() {
        let mut book = Book::new(1_000, None);
        assert_eq!(book.hold(1, 100, 200, 300), Ok(Outcome::Held(nanos(300))));
        assert_eq!(book.sums(), (1_000, 300, 0));
        let settlement = book.capture(1, cost(250));
        assert_eq!((settlement.charged, settlement.shortfall()), (nanos(250), nanos(0)));
        assert_eq!(settlement.ending, Ending::Captured);
        assert_eq!(book.sums(), (750, 0, 250));
        assert_eq!(book.key_mut().last_used_at, Some(START));
    }

    #[test]
    fn a_hold_takes_less_where_less_is_left_and_waits_where_others_hold_it() {
        let mut book = Book::new(1_000, Some(500));
        assert_eq!(book.hold(1, 100, 200, 9_999), Ok(Outcome::Held(nanos(500))));
        assert_eq!(book.hold(2, 100, 200, 300), Err(Refused::Reserved));
        book.capture(1, cost(350));
        // 150 are left in all: less than enough, but nobody else holds any of it, so waiting would not help.
        assert_eq!(book.hold(2, 100, 200, 300), Ok(Outcome::Held(nanos(150))));
    }

    #[test]
    fn what_is_left_and_cannot_pay_is_a_limit_reached_and_never_a_reason_to_wait() {
        let mut book = Book::new(1_000, Some(500));
        assert_eq!(book.hold(1, 501, 501, 501), Err(Refused::LimitReached));
        book.set_limit(Some(5_000));
        assert_eq!(book.hold(1, 1_001, 1_001, 1_001), Err(Refused::CreditEmpty));
        book.must_hold(1, 1_000);
        assert_eq!(book.hold(2, 1_001, 1_001, 1_001), Err(Refused::CreditEmpty));
        assert_eq!(book.hold(2, 1_000, 1_000, 1_000), Err(Refused::Reserved));
    }

    #[test]
    fn checks_are_made_in_their_order() {
        let mut book = Book::new(100, Some(100));
        let check = Command::Check { key: key(0) };
        assert_eq!(book.run(&check), Ok(Outcome::Allowed));
        book.must_hold(1, 100);
        assert_eq!(book.run(&check), Ok(Outcome::Allowed));
        book.capture(1, cost(100));
        book.set_limit(None);
        assert_eq!(book.run(&check), Err(Refused::CreditEmpty));
        book.set_limit(Some(100));
        assert_eq!(book.run(&check), Err(Refused::LimitReached));
        book.key_mut().expires_at = Some(book.now);
        assert_eq!(book.run(&check), Err(Refused::KeyExpired));
        book.key_mut().revoked_at = Some(book.now);
        assert_eq!(book.run(&check), Err(Refused::Revoked));
        assert_eq!(book.run(&Command::Check { key: key(script::KEYS) }), Err(Refused::UnknownKey));
    }

    #[test]
    fn what_costs_nothing_needs_nothing_left_over() {
        let mut book = Book::new(100, None);
        book.must_hold(1, 100);
        book.must_hold(2, 0);
        assert_eq!(book.capture(2, cost(0)).charged, nanos(0));
        assert_eq!(book.key_mut().last_used_at, None);
    }

    #[test]
    fn a_release_gives_everything_back_and_a_capture_behind_it_finds_nothing() {
        let mut book = Book::new(1_000, None);
        book.must_hold(1, 300);
        assert_eq!(book.release(1), Ok(Outcome::Released));
        assert_eq!(book.sums(), (1_000, 0, 0));
        assert_eq!(book.release(1), Ok(Outcome::Released));
        let (key, generation) = (key(0), generation(1));
        let capture = Command::Capture { key, generation, total: cost(5), estimated: false };
        assert_eq!(book.run(&capture), Ok(Outcome::Gone));
    }

    #[test]
    fn a_cost_above_its_hold_is_billed_from_what_else_is_left_and_the_rest_is_shortfall() {
        let mut book = Book::new(1_000, Some(700));
        book.must_hold(1, 100);
        book.must_hold(2, 400);
        // 200 of the limit are neither used nor held.
        let settlement = book.capture(1, cost(1_000));
        assert_eq!((settlement.charged, settlement.shortfall()), (nanos(300), nanos(700)));
        assert_eq!(book.sums(), (700, 400, 300));
    }

    #[test]
    fn an_extension_takes_what_is_available_and_never_lowers_a_hold() {
        let mut book = Book::new(1_000, Some(500));
        book.must_hold(1, 100);
        let extended = |amount| Ok(Outcome::Extended { amount: nanos(amount), revoked: false });
        assert_eq!(book.extend(1, 300, cost(10)), extended(300));
        assert_eq!(book.extend(1, 50, cost(20)), extended(300));
        assert_eq!(book.extend(1, 9_999, cost(30)), extended(500));
        assert_eq!(book.extend(2, 1, cost(0)), Ok(Outcome::Gone));
    }

    #[test]
    fn a_revoked_key_keeps_its_holds_and_gets_nothing_more() {
        let mut book = Book::new(1_000, None);
        book.must_hold(1, 100);
        book.key_mut().revoked_at = Some(book.now);
        let extended = Ok(Outcome::Extended { amount: nanos(100), revoked: true });
        assert_eq!(book.extend(1, 300, cost(50)), extended);
        assert_eq!(book.hold(2, 1, 1, 1), Err(Refused::Revoked));
        assert_eq!(book.capture(1, cost(60)).charged, nanos(60));
    }

    #[test]
    fn a_limit_lowered_under_what_is_held_stops_new_holds_and_bills_the_old() {
        let mut book = Book::new(1_000, Some(500));
        book.must_hold(1, 400);
        book.set_limit(Some(100));
        assert_eq!(book.hold(2, 1, 1, 1), Err(Refused::Reserved));
        assert_eq!(book.capture(1, cost(450)).charged, nanos(400));
        assert_eq!(book.hold(2, 1, 1, 1), Err(Refused::LimitReached));
    }

    #[test]
    fn an_expiry_comes_at_the_end_of_the_lease_and_bills_the_last_report() {
        let mut book = Book::new(1_000, None);
        book.must_hold(1, 500);
        book.now = after(20);
        book.extend(1, 500, cost(120)).unwrap();
        // A report that was overtaken on its way.
        book.extend(1, 500, cost(80)).unwrap();
        book.now = after(49);
        assert_eq!(book.expire(1), Ok(Outcome::NotDue));
        book.now = after(50);
        let Ok(Outcome::Expired(settlement)) = book.expire(1) else { panic!("it is due") };
        assert_eq!((settlement.charged, settlement.ending), (nanos(120), Ending::Expired));
        assert!(settlement.estimated);
        assert_eq!(book.sums(), (880, 0, 120));
        assert_eq!(book.expire(1), Ok(Outcome::Gone));
    }

    #[test]
    fn a_capture_after_expiry_bills_what_is_missing_once() {
        let mut book = Book::new(1_000, Some(300));
        book.must_hold(1, 200);
        book.extend(1, 200, cost(120)).unwrap();
        book.now = after(30);
        book.expire(1).unwrap();
        let settlement = book.capture(1, cost(170));
        assert_eq!((settlement.charged, settlement.ending), (nanos(170), Ending::Captured));
        assert!(!settlement.estimated);
        assert_eq!(book.sums(), (830, 0, 170));
        assert_eq!(book.capture(1, cost(9_999)), settlement);
        assert_eq!(book.sums(), (830, 0, 170));
    }

    #[test]
    fn a_capture_after_expiry_bills_no_more_than_is_left_and_gives_nothing_back() {
        let mut book = Book::new(1_000, Some(150));
        for n in [1, 2] {
            book.must_hold(n, 50);
            book.extend(n, 50, cost(50)).unwrap();
        }
        book.now = after(30);
        book.expire(1).unwrap();
        book.expire(2).unwrap();
        let settlement = book.capture(1, cost(500));
        assert_eq!((settlement.charged, settlement.shortfall()), (nanos(100), nanos(400)));
        let settlement = book.capture(2, cost(20));
        assert_eq!((settlement.charged, settlement.shortfall()), (nanos(50), nanos(0)));
        assert_eq!(book.sums(), (850, 0, 150));
    }

    #[test]
    fn a_deposit_counts_once_and_is_above_zero_and_below_the_largest_amount() {
        let mut book = Book::new(1_000, None);
        let deposit = |n, amount| Command::Deposit { id: deposit(n), amount };
        assert_eq!(book.run(&deposit(0, nanos(1_000))), Ok(Outcome::Deposited(nanos(1_000))));
        assert_eq!(book.run(&deposit(1, nanos(0))), Err(Refused::BadDeposit));
        assert_eq!(book.run(&deposit(1, nanos(-1))), Err(Refused::BadDeposit));
        assert_eq!(book.run(&deposit(1, NanoUsd::MAX)), Err(Refused::BadDeposit));
        let rest = NanoUsd::MAX.left_after(nanos(1_000));
        assert_eq!(book.run(&deposit(1, rest)), Ok(Outcome::Deposited(NanoUsd::MAX)));
    }

    #[test]
    fn what_another_key_holds_cannot_be_touched() {
        let mut book = Book::new(1_000, None);
        book.must_hold(1, 500);
        book.now = after(60);
        let before = book.world.clone();
        let (key, generation) = (key(1), generation(1));
        for command in [
            Command::Release { key, generation },
            Command::Expire { key, generation },
            Command::Capture { key, generation, total: cost(5), estimated: false },
        ] {
            assert_eq!(book.run(&command), Ok(Outcome::Gone));
        }
        assert_eq!(book.world, before);
    }

    proptest! {
        #[test]
        fn the_books_balance_after_every_command(history in history()) {
            let (mut world, mut now) = (World::new(), START);
            for step in history {
                match step {
                    Step::Wait(duration) => now = now.plus(duration),
                    Step::Update(account, key, patch) => world.update(account, key, &patch),
                    Step::Revoke(account, key) => world.revoke(account, key, now),
                    Step::Execute(account, commands) => for command in commands {
                        let before = world.clone();
                        let outcome = world.apply(account, &command, now);
                        unchanged_if_nothing_happened(&before, &world, &outcome)?;
                        nothing_overspent(&before, &world)?;
                        every_sum_adds_up(&world)?;
                        billed_is_billed(&before, &world)?;
                        again_is_the_same(&world, account, &command, now, outcome)?;
                    },
                }
            }
        }
    }

    fn unchanged_if_nothing_happened(
        before: &World,
        after: &World,
        outcome: &Result<Outcome, Refused>,
    ) -> Result<(), TestCaseError> {
        if matches!(outcome, Err(_) | Ok(Outcome::Gone | Outcome::NotDue | Outcome::Allowed)) {
            prop_assert_eq!(before, after);
        }
        Ok(())
    }

    /// Neither limit nor credit is ever passed. A limit that was lowered under what is spoken for is not passed any further.
    fn nothing_overspent(before: &World, after: &World) -> Result<(), TestCaseError> {
        for (id, key) in &after.keys {
            let spoken_for = |key: &Key| plus(key.used, key.held);
            if let Some(limit) = key.limit {
                prop_assert!(spoken_for(key) <= limit.max(spoken_for(&before.keys[id])));
            }
        }
        for account in after.accounts.values() {
            prop_assert!(account.held <= account.credit && account.credit <= NanoUsd::MAX);
        }
        Ok(())
    }

    /// What is held is the sum of the holds, what is used the sum of the charges, and credit what is left of deposits.
    fn every_sum_adds_up(world: &World) -> Result<(), TestCaseError> {
        let mut totals: HashMap<AccountId, (NanoUsd, NanoUsd)> = HashMap::new();
        for ((account, id), key) in &world.keys {
            let booked = world.booked(*account, *id);
            prop_assert_eq!((key.held, key.used), booked);
            let total = totals.entry(*account).or_default();
            *total = (plus(total.0, booked.0), plus(total.1, booked.1));
        }
        for (id, account) in &world.accounts {
            let (held, used) = totals[id];
            prop_assert_eq!(account.held, held);
            prop_assert_eq!(plus(account.credit, used), world.deposited(*id));
        }
        Ok(())
    }

    /// A charge is at most the cost, never falls, and is final once it was captured.
    fn billed_is_billed(before: &World, after: &World) -> Result<(), TestCaseError> {
        for (id, record) in &after.records {
            let Record::Closed(now) = record else { continue };
            prop_assert!(now.charged <= now.cost);
            if let Some(Record::Closed(earlier)) = before.records.get(id) {
                prop_assert!(earlier.charged <= now.charged);
                prop_assert!(earlier.ending == Ending::Expired || earlier == now);
            }
        }
        Ok(())
    }

    fn again_is_the_same(
        world: &World,
        account: AccountId,
        command: &Command,
        now: Timestamp,
        outcome: Result<Outcome, Refused>,
    ) -> Result<(), TestCaseError> {
        let mut again = world.clone();
        let heard = again.apply(account, command, now);
        prop_assert_eq!(&again, world);
        let expected = match outcome {
            Ok(Outcome::Expired(_)) => Ok(Outcome::Gone),
            other => other,
        };
        prop_assert_eq!(heard, expected);
        Ok(())
    }
}
