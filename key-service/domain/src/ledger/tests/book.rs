//! A small ledger under test.

use super::*;
use crate::event::Actor;

/// A ledger with an account and a key, and short methods for commands. Every lease is three ticks long.
pub(super) struct Book {
    pub(super) world: World,
    pub(super) now: Timestamp,
}

impl Book {
    pub(super) fn new(credit: i64, limit: Option<i64>) -> Self {
        let mut book = Self { world: World::new(), now: START };
        book.run(&Command::Deposit {
            id: deposit(0),
            amount: nanos(credit),
            note: String::new(),
            payment_id: None,
            to: PaidTo::Account,
            actor: Actor::System,
        })
        .unwrap();
        book.set_limit(limit);
        book
    }

    pub(super) fn set_limit(&mut self, limit: Option<i64>) {
        self.key_mut().budget.limit = limit.map(nanos);
    }

    pub(super) fn key_mut(&mut self) -> &mut Key {
        self.world.keys.get_mut(&(account(MINE), key(0))).unwrap()
    }

    pub(super) fn group_mut(&mut self, n: u8) -> &mut Group {
        self.world.groups.get_mut(&(account(MINE), group(n))).unwrap()
    }

    /// Suspends, restores or closes the account.
    pub(super) fn stand(&mut self, act: &StandingAct) -> Result<(), StandingRefused> {
        let money = self.world.accounts.get_mut(&account(MINE)).unwrap();
        *money = money.after(act, self.now)?;
        Ok(())
    }

    /// Moves the key to a group.
    pub(super) fn join(&mut self, n: u8) {
        self.key_mut().group = Some(group(n));
    }

    /// Changes the bounds of the key.
    pub(super) fn bound(&mut self, bounds: &BoundsPatch) {
        let (now, money) = (self.now, self.world.accounts[&account(MINE)]);
        let budget = &mut self.key_mut().budget;
        budget.update(bounds, now);
        budget.begin_windows(now, money.windows_begin(now));
    }

    /// Changes the bounds of a group.
    pub(super) fn bound_group(&mut self, n: u8, bounds: &BoundsPatch) {
        let now = self.now;
        self.group_mut(n).budget.update(bounds, now);
    }

    /// Returns the key's bounds.
    pub(super) fn bounds(&mut self) -> Bounds {
        *self.key_mut().budget.bounds.clone().unwrap()
    }

    pub(super) fn run(&mut self, command: &Command) -> Result<Outcome, Refused> {
        self.world.apply(account(MINE), command, self.now)
    }

    pub(super) fn hold(&mut self, n: u8, least: i64, enough: i64, most: i64) -> Result<Outcome, Refused> {
        let (enough, most) = (nanos(enough), nanos(most));
        let new = new_hold(key(0), generation(n), nanos(least));
        self.run(&Command::Hold(NewHold { enough, most, prompt_tokens: 3, lease_ticks: 3, ..new }))
    }

    /// Asserts that exactly this amount can be held.
    pub(super) fn must_hold(&mut self, n: u8, amount: i64) {
        match self.hold(n, amount, amount, amount) {
            Ok(Outcome::Held { amount: held, .. }) => assert_eq!(held, nanos(amount)),
            other => panic!("not held: {other:?}"),
        }
    }

    pub(super) fn extend(&mut self, n: u8, most: i64, progress: Progress) -> Result<Outcome, Refused> {
        let (key, generation, lease_ticks) = (key(0), generation(n), 3);
        self.run(&Command::Extend { key, generation, most: nanos(most), progress, lease_ticks })
    }

    pub(super) fn capture(&mut self, n: u8, total: Progress) -> Settlement {
        match self.run(&capture(generation(n), total)) {
            Ok(Outcome::Captured(settlement)) => settlement,
            other => panic!("not captured: {other:?}"),
        }
    }

    /// Advances lease time by this many ticks.
    pub(super) fn tick(&mut self, ticks: u64) {
        for _ in 0..ticks {
            let seen = Some(self.world.accounts[&account(MINE)].tick);
            self.run(&Command::Tick { seen }).unwrap();
        }
    }

    pub(super) fn release(&mut self, n: u8) -> Result<Outcome, Refused> {
        self.run(&Command::Release { key: key(0), generation: generation(n) })
    }

    pub(super) fn expire(&mut self, n: u8) -> Result<Outcome, Refused> {
        self.run(&Command::Expire { key: key(0), generation: generation(n) })
    }

    pub(super) fn check(&mut self) -> Result<Outcome, Refused> {
        self.run(&Command::Check { key: key(0), credential: 0 })
    }

    /// Returns the account's credit, and the key's held and used amounts.
    pub(super) fn sums(&mut self) -> (i64, i64, i64) {
        let money = self.world.accounts[&account(MINE)];
        let key = self.key_mut().budget.clone();
        assert_eq!(money.held, key.held);
        (money.credit.nanos(), money.held.nanos(), key.used.nanos())
    }
}
