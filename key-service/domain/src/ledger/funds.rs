//! The balances of an account and of the budgets that pay, and all movements between balances, holds and settlements.

use std::{sync::Arc, time::Duration};

use shared::{
    generation::Origin,
    money::NanoUsd,
    rates::{RateBound, RateLimit, RateStatus, TokenRoom},
    refusal::Refusal,
    time::Timestamp,
    tokens::Usage,
};

use crate::ledger::{
    bounds::{Bounds, Budget, allowed_models, plus},
    command::{Level, NewHold, Refused},
    rate::{MOST_TOKENS, Rate, tightest},
    record::{Counted, Ending, GroupChain, Hold, Payer, Progress, Settlement},
    state::{Account, Group, Groups, Key, MOST_CARRIED},
};

/// The refusal of a request beyond the limit on requests in flight. One of the running requests may end within a
/// second, so the client is asked to retry after a second.
pub const IN_FLIGHT: Refused = Refused::RateLimited {
    bound: RateBound::InFlight,
    retry_after: Duration::from_secs(1),
    token_room: None,
};

pub(super) const NANO: NanoUsd = NanoUsd::from_nanos(1);

/// Usage and cost to bill for a generation.
pub(super) struct Claim {
    pub(super) total: Progress,
    /// Maximum charge: the cost, or less.
    pub(super) chargeable: NanoUsd,
    pub(super) estimated: bool,
    pub(super) ending: Ending,
    pub(super) at: Timestamp,
}

impl Claim {
    /// Returns the settlement with this charge.
    fn settled(self, payer: Payer, origin: Option<Arc<Origin>>, charged: NanoUsd) -> Settlement {
        let Self { total, chargeable: _, estimated, ending, at } = self;
        let Progress { usage, cost, upstream_cost, course } = total;
        Settlement { payer, origin, usage, cost, upstream_cost, charged, ending, estimated, at, course }
    }

    /// Limits the charge, if `most` is set.
    pub(super) fn charging_at_most(self, most: Option<NanoUsd>) -> Self {
        Self { chargeable: most.map_or(self.chargeable, |most| most.min(self.chargeable)), ..self }
    }
}

/// The balances that pay every charge: an account and a chain of budgets in it.
pub(super) struct Funds {
    pub(super) account: Account,
    pub(super) key: Key,
    pub(super) groups: Groups,
    pub(super) now: Timestamp,
}

impl Funds {
    /// Returns the claim for a generation that ends now.
    pub(super) fn claim(&self, total: Progress, estimated: bool, ending: Ending) -> Claim {
        Claim { chargeable: total.cost, total, estimated, ending, at: self.bills_at() }
    }

    /// Returns the time of the next bill. This time is never before the last bill, so that sorting by time keeps the
    /// journal's order. Nor is it before the start of a window that counts the bill, because a fast clock may have
    /// started the window. Times of a clock that was far ahead are ignored.
    fn bills_at(&self) -> Timestamp {
        let (now, latest) = (self.now, self.now.plus(MOST_CARRIED));
        let windows = self.budgets().flat_map(|(_, budget)| budget.windows()).map(|window| window.start);
        windows.chain(self.account.billed_at).filter(|at| *at <= latest).fold(now, Timestamp::max)
    }

    /// Ends a generation with this charge.
    fn close(
        &mut self,
        claim: Claim,
        payer: Payer,
        origin: Option<Arc<Origin>>,
        charged: NanoUsd,
    ) -> Settlement {
        self.account.billed_at = Some(claim.at);
        claim.settled(payer, origin, charged)
    }

    /// Refuses the credential if its key may not spend. The order of checks is part of the public API.
    pub(super) fn may_spend(&self, credential: u64) -> Result<(), Refused> {
        if !self.key.rotation.accepts(credential, self.now) {
            return Err(Refused::UnknownKey);
        }
        if self.key.revoked_at.is_some() {
            return Err(Refused::Revoked);
        }
        self.account.may_spend()?;
        if self.key.disabled {
            return Err(Refused::KeyDisabled);
        }
        if self.key.expires_at.is_some_and(|at| at <= self.now) {
            return Err(Refused::KeyExpired);
        }
        if self.lacks_a_group() {
            return Err(Refused::Damaged);
        }
        if self.is_archived() {
            return Err(Refused::GroupArchived);
        }
        self.limits_cover(NANO)?;
        if self.account.credit <= NanoUsd::ZERO {
            return Err(Refused::CreditEmpty);
        }
        Ok(())
    }

    /// Refuses a request that exceeds a bound other than money. The request rate always admits a readmitted request.
    pub(super) fn admit(&self, model: &String, prompt_tokens: u64, readmitted: bool) -> Result<(), Refused> {
        if self.model_lists().any(|models| !models.contains(model)) {
            return Err(Refused::ModelNotAllowed { models: self.models().unwrap_or_default() });
        }
        if self.bounds().any(|bounds| bounds.max_in_flight.is_some_and(|most| bounds.in_flight >= most)) {
            return Err(IN_FLIGHT);
        }
        let requests = self.bounds().filter_map(|bounds| bounds.requests_per_minute.filter(|_| !readmitted));
        let tokens = self.bounds().filter_map(|bounds| bounds.tokens_per_minute);
        let refused = rate_limited(RateBound::Requests, requests, 1, self.now)
            .or_else(|| rate_limited(RateBound::Tokens, tokens, prompt_tokens, self.now));
        refused.map_or(Ok(()), Err)
    }

    /// Returns the models that the key and all its groups allow; `None` for every model.
    pub(super) fn models(&self) -> Option<Vec<String>> {
        let lists: Vec<_> = self.model_lists().collect();
        (!lists.is_empty()).then(|| allowed_models(&lists))
    }

    /// Sets aside `most`, or as much of it as is available.
    pub(super) fn hold(&mut self, new: &NewHold) -> Result<NanoUsd, Refused> {
        let NewHold { least, enough, most, room_for_bound, .. } = *new;
        self.limits_cover(least)?;
        if self.account.credit < least {
            return Err(Refused::CreditEmpty);
        }
        let left =
            self.budgets().map(|(_, budget)| budget.left(self.now)).fold(self.account.credit, NanoUsd::min);
        let available = self.available(self.now);
        if available < enough.max(least).min(left).max(room_for_bound) {
            return Err(Refused::Reserved);
        }
        let amount = most.max(least).min(available);
        self.set_aside(amount);
        Ok(amount)
    }

    /// Counts a request at every budget with bounds. The request rate counts it unless it was admitted before.
    pub(super) fn count(&mut self, prompt_tokens: u64, readmitted: bool) -> Counted {
        let (now, tokens) = (self.now, prompt_tokens.min(MOST_TOKENS));
        let mut counted = Counted::default();
        for (level, budget) in self.budgets_mut() {
            if let Some(bounds) = &mut budget.bounds {
                counted.missing[level as usize] = bounds.count(tokens, readmitted, now);
                counted.levels[level as usize] = true;
                counted.tokens = tokens;
            }
        }
        counted
    }

    pub(super) fn lease(&self, ticks: u64) -> u64 {
        self.account.tick.saturating_add(ticks)
    }

    /// Returns a refusal if the key may not continue what it started.
    pub(super) fn revoked_by(&self) -> Option<Refusal> {
        if self.key.revoked_at.is_some() {
            return Some(Refusal::InvalidApiKey);
        }
        if let Some(standing) = self.account.standing {
            return Some(standing.refusal());
        }
        if self.key.disabled {
            return Some(Refusal::KeyDisabled);
        }
        self.is_archived().then_some(Refusal::GroupArchived)
    }

    pub(super) fn extend(&mut self, hold: Hold, most: NanoUsd, progress: Progress, lease_ticks: u64) -> Hold {
        let more = match self.revoked_by() {
            None => most.left_after(hold.amount).min(self.available(self.now)),
            Some(_) => NanoUsd::ZERO,
        };
        self.set_aside(more);
        let tokens = tokens(progress.usage).max(hold.counted.tokens);
        // Reports may arrive out of order; the one with the highest cost is the latest.
        let reported = if progress.cost >= hold.reported.cost { progress } else { hold.reported };
        Hold {
            amount: plus(hold.amount, more),
            reported,
            lease_until: hold.lease_until.max(self.lease(lease_ticks)),
            counted: self.recount(hold.counted, tokens),
            ..hold
        }
    }

    /// Resolves a hold. The held money pays the claim as far as it can; other available money pays the rest.
    pub(super) fn settle(&mut self, hold: Hold, claim: Claim) -> Settlement {
        let chargeable = claim.chargeable;
        let beyond = chargeable.left_after(hold.amount).min(self.available(claim.at));
        let charged = plus(chargeable.min(hold.amount), beyond);
        self.give_back(&hold, tokens(claim.total.usage));
        self.bill(charged, claim.at);
        self.close(claim, hold.payer, hold.origin, charged)
    }

    /// Settles a capture of a closed generation. An earlier capture is final. An expiry's bill is replaced: the
    /// difference is billed up to the available amount, or returned.
    pub(super) fn capture_late(&mut self, settled: Settlement, claim: Claim) -> Settlement {
        match settled.ending {
            Ending::Captured | Ending::Late => settled,
            Ending::Expired => {
                let billable = plus(settled.charged, self.available(claim.at));
                // Credit has a maximum, and the excess is not returned.
                let kept = settled.charged.left_after(NanoUsd::MAX.left_after(self.account.credit));
                let charged = claim.chargeable.min(billable).max(kept);
                if charged < settled.charged {
                    self.unbill(settled.charged.left_after(charged), settled.at, claim.at);
                } else {
                    self.bill(charged.left_after(settled.charged), claim.at);
                }
                let kept_more = claim.chargeable < charged;
                let settlement = self.close(claim, settled.payer, settled.origin, charged);
                let cost = if kept_more { charged } else { settlement.cost };
                Settlement { cost, ..settlement }
            }
        }
    }

    /// Bills a cost without a hold, up to the available amount. Charges nothing if the generation may have been billed
    /// before.
    pub(super) fn bill_without_hold(&mut self, payer: Payer, claim: Claim) -> Settlement {
        let charged = match claim.ending {
            Ending::Captured | Ending::Expired => claim.chargeable.min(self.available(claim.at)),
            Ending::Late => NanoUsd::ZERO,
        };
        self.bill(charged, claim.at);
        self.close(claim, payer, None, charged)
    }

    /// Releases a hold at every budget that pays. `tokens` replaces the tokens that rates counted for it.
    pub(super) fn give_back(&mut self, hold: &Hold, tokens: u64) {
        self.recount(hold.counted, tokens);
        self.account.held = self.account.held.left_after(hold.amount);
        for (level, budget) in self.budgets_mut() {
            budget.held = budget.held.left_after(hold.amount);
            if hold.counted.levels[level as usize] {
                budget.end_request();
            }
        }
    }

    pub(super) fn chain(&self) -> GroupChain {
        self.groups.each_ref().map(|group| group.as_ref().map(|(id, _)| *id))
    }

    pub(super) fn rates(&self) -> RateStatus {
        let tightest = |rate: fn(&Bounds) -> Option<Rate>| tightest(self.bounds().filter_map(rate), self.now);
        RateStatus {
            requests: tightest(|bounds| bounds.requests_per_minute),
            tokens: tightest(|bounds| bounds.tokens_per_minute),
        }
    }

    /// Replaces the tokens of a hold at every budget that counts it.
    fn recount(&mut self, counted: Counted, tokens: u64) -> Counted {
        if counted.tokens == tokens || !counted.anywhere() {
            return counted;
        }
        let now = self.now;
        for (level, budget) in self.budgets_mut() {
            if let Some(bounds) = budget.bounds.as_mut().filter(|_| counted.levels[level as usize]) {
                bounds.recount(counted.tokens, counted.missing[level as usize], tokens, now);
            }
        }
        Counted { tokens, ..counted }
    }

    /// Lists the budgets that pay: the key, its group, the group's parent.
    fn budgets(&self) -> impl Iterator<Item = (Level, &Budget)> {
        let [group, parent] =
            self.groups.each_ref().map(|group| group.as_ref().map(|(_, group)| &group.budget));
        let groups = [group.map(|group| (Level::Group, group)), parent.map(|parent| (Level::Parent, parent))];
        std::iter::once((Level::Key, &self.key.budget)).chain(groups.into_iter().flatten())
    }

    fn budgets_mut(&mut self) -> impl Iterator<Item = (Level, &mut Budget)> {
        let [group, parent] =
            self.groups.each_mut().map(|group| group.as_mut().map(|(_, group)| &mut group.budget));
        let groups = [group.map(|group| (Level::Group, group)), parent.map(|parent| (Level::Parent, parent))];
        std::iter::once((Level::Key, &mut self.key.budget)).chain(groups.into_iter().flatten())
    }

    fn model_lists(&self) -> impl Iterator<Item = &Vec<String>> {
        self.bounds().filter_map(|bounds| bounds.models.as_ref())
    }

    fn bounds(&self) -> impl Iterator<Item = &Bounds> {
        self.budgets().filter_map(|(_, budget)| budget.bounds.as_deref())
    }

    /// Returns whether the store lacks a group that the key or its group names.
    fn lacks_a_group(&self) -> bool {
        let [group, parent] = self.chain();
        let named = self.groups[0].as_ref().and_then(|(_, group)| group.parent);
        self.key.group != group || named != parent
    }

    fn is_archived(&self) -> bool {
        self.groups.iter().flatten().any(|(_, group): &(_, Group)| group.archived_at.is_some())
    }

    /// Refuses an amount that a limit or a window no longer allows.
    fn limits_cover(&self, amount: NanoUsd) -> Result<(), Refused> {
        for (level, budget) in self.budgets() {
            budget
                .covers(amount, self.now)
                .map_err(|resets_at| Refused::LimitReached { level, resets_at })?;
        }
        Ok(())
    }

    /// Returns the amount that all limits and the credit leave at this time, neither used nor held.
    fn available(&self, at: Timestamp) -> NanoUsd {
        let of_credit = self.account.credit.left_after(self.account.held);
        let of_budgets = self.budgets().map(|(_, budget)| budget.left(at).left_after(budget.held));
        of_budgets.fold(of_credit, NanoUsd::min)
    }

    /// Holds an amount at the account and at every budget. This advances windows, as each bill does. Otherwise, a
    /// key-service with a slow clock would bill money held in this window to the previous one.
    fn set_aside(&mut self, amount: NanoUsd) {
        let now = self.now;
        self.account.held = plus(self.account.held, amount);
        for (_, budget) in self.budgets_mut() {
            budget.turn(now);
            budget.held = plus(budget.held, amount);
        }
    }

    fn bill(&mut self, amount: NanoUsd, at: Timestamp) {
        self.account.credit = self.account.credit.left_after(amount);
        for (_, budget) in self.budgets_mut() {
            budget.bill(amount, at);
        }
        if amount > NanoUsd::ZERO {
            self.key.last_used_at = Some(at);
        }
    }

    /// Takes back an amount that was billed at the earlier time `at`.
    fn unbill(&mut self, amount: NanoUsd, at: Timestamp, now: Timestamp) {
        self.account.credit = plus(self.account.credit, amount);
        for (_, budget) in self.budgets_mut() {
            budget.unbill(amount, at, now);
        }
    }
}

/// Returns the refusal if one of these rates has no room for this many requests or tokens.
pub fn rate_limited(
    bound: RateBound,
    rates: impl Iterator<Item = Rate>,
    count: u64,
    now: Timestamp,
) -> Option<Refused> {
    let (mut retry_after, mut room) = (None, TokenRoom { limit: u64::MAX, remaining: u64::MAX });
    for rate in rates {
        let RateLimit { limit, remaining, .. } = rate.status(now);
        room = TokenRoom { limit: room.limit.min(limit), remaining: room.remaining.min(remaining) };
        retry_after = retry_after.max(rate.wait_for(count, now));
    }
    let token_room = (bound == RateBound::Tokens).then_some(room);
    Some(Refused::RateLimited { bound, retry_after: retry_after?, token_room })
}

/// Returns how many tokens rates count for a request.
fn tokens(usage: Usage) -> u64 {
    usage.prompt.saturating_add(usage.completion).min(MOST_TOKENS)
}
