//! What an account and one of its keys can pay, and how it moves between them, holds and settlements.

use shared::{money::NanoUsd, time::Timestamp};

use super::{Account, Ending, Hold, Key, Progress, Refused, Settlement};

/// The two pots that every payment comes out of.
pub(super) struct Purse {
    pub(super) account: Account,
    pub(super) key: Key,
}

impl Purse {
    /// The order of checks is part of the public contract.
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

    pub(super) fn extend(
        &mut self,
        hold: Hold,
        most: NanoUsd,
        progress: Progress,
        lease_until: Timestamp,
    ) -> Hold {
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
    pub(super) fn settle(
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
    pub(super) fn capture_late(
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
}

/// Sums here stay within the credit of one account, or within what was ever billed to one key.
#[expect(
    clippy::expect_used,
    reason = "credit is at most 9e15 nano-USD; an i64 holds a thousand such accounts"
)]
pub(super) fn plus(a: NanoUsd, b: NanoUsd) -> NanoUsd {
    a.checked_add(b).expect("amounts of one account fit an i64")
}
