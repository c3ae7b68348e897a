//! Balances of an account and a key, and all movements between these balances, holds and settlements.

use shared::{ids::KeyId, money::NanoUsd, time::Timestamp};

use super::{Account, Ending, Hold, Key, Progress, Refused, Settlement};

/// Usage and cost of a generation to be billed.
#[derive(Clone, Copy)]
pub(super) struct Claim {
    pub(super) total: Progress,
    pub(super) estimated: bool,
    pub(super) ending: Ending,
    pub(super) at: Timestamp,
}

impl Claim {
    /// The settlement, if this much could be charged.
    pub(super) fn settled(self, key: KeyId, model: &str, charged: NanoUsd) -> Settlement {
        let Self { total: Progress { usage, cost }, estimated, ending, at } = self;
        Settlement { key, model: model.to_owned(), usage, cost, charged, ending, estimated, at }
    }
}

/// The two balances from which every charge is paid.
pub(super) struct Funds {
    pub(super) account: Account,
    pub(super) key: Key,
}

impl Funds {
    /// Refuses a key that may not spend. The order of checks is part of the public contract.
    pub(super) fn may_spend(&self, now: Timestamp) -> Result<(), Refused> {
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

    pub(super) fn hold(
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

    /// The tick at which a lease of this many ticks ends.
    pub(super) fn lease(&self, ticks: u64) -> u64 {
        self.account.tick.saturating_add(ticks)
    }

    pub(super) fn extend(&mut self, hold: Hold, most: NanoUsd, progress: Progress, lease_ticks: u64) -> Hold {
        let more = if self.key.revoked_at.is_some() {
            NanoUsd::ZERO
        } else {
            most.left_after(hold.amount).min(self.available())
        };
        self.set_aside(more);
        // Reports may overtake each other; the report with the highest cost is the latest.
        let reported = if progress.cost >= hold.reported.cost { progress } else { hold.reported };
        Hold {
            amount: plus(hold.amount, more),
            reported,
            lease_until: hold.lease_until.max(self.lease(lease_ticks)),
            ..hold
        }
    }

    /// Resolves a hold: the hold pays for the covered part of the cost, other available money for the rest.
    pub(super) fn settle(&mut self, hold: &Hold, claim: Claim) -> Settlement {
        let cost = claim.total.cost;
        let beyond = cost.left_after(hold.amount).min(self.available());
        let charged = plus(cost.min(hold.amount), beyond);
        self.give_back(hold.amount);
        self.bill(charged, claim.at);
        claim.settled(hold.key, &hold.model, charged)
    }

    /// Settles a capture of a closed generation. An earlier capture is final. The bill of an expiry is replaced: more
    /// is billed up to the available amount, or the excess is given back.
    pub(super) fn capture_late(&mut self, settled: Settlement, claim: Claim) -> Settlement {
        match settled.ending {
            Ending::Captured => settled,
            Ending::Expired => {
                let billable = plus(settled.charged, self.available());
                // Credit has an upper bound; an amount beyond stays billed.
                let kept = settled.charged.left_after(NanoUsd::MAX.left_after(self.account.credit));
                let charged = claim.total.cost.min(billable).max(kept);
                self.bill(charged.left_after(settled.charged), claim.at);
                self.unbill(settled.charged.left_after(charged));
                let settlement = claim.settled(settled.key, &settled.model, charged);
                Settlement { cost: settlement.cost.max(charged), ..settlement }
            }
        }
    }

    /// Bills a cost that no hold covers, up to the available amount. Returns the charge.
    pub(super) fn bill_without_hold(&mut self, claim: Claim) -> NanoUsd {
        let charged = claim.total.cost.min(self.available());
        self.bill(charged, claim.at);
        charged
    }

    /// The part of limit and credit that is neither used nor held.
    fn available(&self) -> NanoUsd {
        let of_limit =
            self.key.limit.map_or(NanoUsd::MAX, |l| l.left_after(self.key.used).left_after(self.key.held));
        of_limit.min(self.account.credit.left_after(self.account.held))
    }

    fn set_aside(&mut self, amount: NanoUsd) {
        self.account.held = plus(self.account.held, amount);
        self.key.held = plus(self.key.held, amount);
    }

    pub(super) fn give_back(&mut self, amount: NanoUsd) {
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

    fn unbill(&mut self, amount: NanoUsd) {
        self.account.credit = plus(self.account.credit, amount);
        self.key.used = self.key.used.left_after(amount);
    }
}

/// Sums here stay within the credit of an account, or within the total ever billed to a key.
#[expect(
    clippy::expect_used,
    reason = "credit is at most 9e15 nano-USD; an i64 holds a thousand such accounts"
)]
pub(super) fn plus(a: NanoUsd, b: NanoUsd) -> NanoUsd {
    a.checked_add(b).expect("amounts of one account fit an i64")
}
