//! Events that commands cause: deposits, and crossed money thresholds.

use shared::{
    calendar::Per,
    ids::{AccountId, EventId, GroupId, KeyId},
    money::NanoUsd,
    time::Timestamp,
    wire::Raise,
};

use crate::{
    event::{Actor, Event, EventKind, MoneyBound, PaymentMade, RefundMade, Threshold},
    ledger::{
        bounds::{Budget, Window},
        command::{Command, Level, NewHold, Refused},
        funds::NANO,
        record::{Deposited, Record},
        state::{Account, LastDeposit, State},
    },
};

/// All of a limit, in percent.
const WHOLE: u8 = 100;
/// Thresholds of a limit: used percentages.
const LIMIT_PERCENTS: [u8; 4] = [50, 80, 95, WHOLE];
/// Thresholds of the credit: remaining percentages of the credit that there was just after the last deposit.
const CREDIT_PERCENTS: [u8; 3] = [20, 5, 0];

/// An event to write, unless one with the same name was written before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Name of the threshold, so that it is reported only once. It contains budget, limit, percentage, beginning and
    /// amount.
    pub once: Option<Vec<u8>>,
    pub event: Event,
}

/// A holder of money: an account's credit, or the budget of a key or group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A key and its group.
    Key(KeyId, Option<GroupId>),
    Group(GroupId),
    Account(AccountId),
}

/// A threshold that a holder crossed in the window that began at `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    pub holder: Holder,
    /// Beginning of the window; for credit, the time of the last deposit; zero for a lifetime limit.
    pub start: Timestamp,
    pub threshold: Threshold,
}

/// A limit's amount, and how much of it is used.
#[derive(Clone, Copy)]
struct UsedAmount {
    amount: NanoUsd,
    used: NanoUsd,
}

/// Collects the events of one call, whose commands have the same time. To find thresholds, it compares the money before
/// the call with the money after it.
#[derive(Debug)]
pub struct CallEvents {
    account: AccountId,
    now: Timestamp,
    credit_before: NanoUsd,
    /// Budgets that commands have billed, paid or refunded, or for which they found that a raise has ended. Each is
    /// given as it was before the call and as it is now.
    billed: Vec<(Holder, Budget, Budget)>,
    told: Vec<Told>,
}

impl CallEvents {
    pub const fn new(account: AccountId, before: &Account, now: Timestamp) -> Self {
        Self { account, now, credit_before: before.credit, billed: Vec::new(), told: Vec::new() }
    }

    /// Records a command that was applied.
    pub fn applied(&mut self, command: &Command, before: &State, after: &State) {
        if before.record == Record::None
            && let Record::Deposited(of) = &after.record
            && let Some(event) = deposited(command, of, self.now)
        {
            if of.amount > NanoUsd::ZERO {
                // A deposit restarts the thresholds of the credit.
                self.credit_before = after.account.credit;
            }
            self.told.push(Told { once: None, event });
        }
        let key = command.key().zip(before.key.as_ref().zip(after.key.as_ref()));
        if let Some((id, (before, after))) = key {
            self.billed(Holder::Key(id, after.group), &before.budget, &after.budget);
        }
        for (before, after) in before.groups.iter().flatten().zip(after.groups.iter().flatten()) {
            self.billed(Holder::Group(after.0), &before.1.budget, &after.1.budget);
        }
    }

    /// Records a command that was refused. A refused hold shows which limits on money leave too little.
    pub fn refused(&mut self, command: &Command, state: &State, refused: &Refused) {
        let Command::Hold(NewHold { key, least, .. }) = command else { return };
        if *refused == Refused::CreditEmpty {
            return self.credit(&state.account, 0);
        }
        let Refused::LimitReached { level, resets_at } = refused else { return };
        let Some(of_key) = &state.key else { return };
        let [group, parent] = &state.groups;
        let (holder, budget) = match level {
            Level::Key => (Holder::Key(*key, of_key.group), &of_key.budget),
            Level::Group | Level::Parent => {
                let group = if *level == Level::Group { group } else { parent };
                let Some((id, group)) = group else { return };
                (Holder::Group(*id), &group.budget)
            }
        };
        if resets_at.is_none() {
            let amount = budget.limit_at(self.now).unwrap_or(NanoUsd::ZERO);
            let limit = UsedAmount { amount, used: budget.used };
            return self.tell(Passed::of_limit(holder, limit, WHOLE));
        }
        let now = self.now;
        let amount = if budget.covers(NANO, now).is_ok() { *least } else { NANO };
        for window in budget.windows().filter(|window| window.left(now) < amount) {
            self.tell(Passed::of_window(holder, window, WHOLE, now));
        }
    }

    /// Returns the events of the call, given the account after it.
    pub fn finish(mut self, after: &Account) -> Vec<Told> {
        for (holder, before, after) in std::mem::take(&mut self.billed) {
            for passed in passed(holder, Some(&before), &after, self.now) {
                self.tell(passed);
            }
        }
        let base = after.last_deposit.map_or(NanoUsd::ZERO, |deposit| deposit.credit);
        for percent in CREDIT_PERCENTS {
            let border = part(base, percent, false);
            let has_base = percent == 0 || after.last_deposit.is_some();
            if has_base && self.credit_before > border && after.credit <= border {
                self.credit(after, percent);
            }
        }
        self.told
    }

    fn billed(&mut self, holder: Holder, before: &Budget, after: &Budget) {
        let is_same =
            before.used == after.used && before.limit == after.limit && before.raises().eq(after.raises());
        if is_same || (after.limit.is_none() && after.windows().next().is_none()) {
            return;
        }
        match self.billed.iter_mut().find(|(known, ..)| *known == holder) {
            Some((.., now)) => now.clone_from(after),
            None => self.billed.push((holder, before.clone(), after.clone())),
        }
    }

    fn credit(&mut self, account: &Account, percent: u8) {
        let base = account
            .last_deposit
            .unwrap_or(LastDeposit { credit: NanoUsd::ZERO, at: Timestamp::from_millis(0) });
        let used = base.credit.left_after(account.credit);
        let threshold = Threshold { bound: MoneyBound::Credit, percent, amount: base.credit, used };
        self.tell(Passed { holder: Holder::Account(self.account), start: base.at, threshold });
    }

    fn tell(&mut self, passed: Passed) {
        let told = passed.told(self.now);
        self.told.extend(told.filter(|told| self.told.iter().all(|earlier| earlier.once != told.once)));
    }
}

/// Returns the thresholds that a change of bounds crosses: usage has reached them under the bounds `after`, but not
/// under `before`. A budget that is created with usage has no earlier bounds.
pub fn passed_by_bounds(
    holder: Holder,
    before: Option<&Budget>,
    after: &Budget,
    now: Timestamp,
) -> Vec<Told> {
    passed(holder, before, after, now).filter_map(|passed| passed.told(now)).collect()
}

/// Finds the thresholds that usage has reached under the bounds in force now, but not under the earlier bounds. A raise
/// among the earlier bounds counts as in force, although it may have ended since.
fn passed<'a>(
    holder: Holder,
    before: Option<&'a Budget>,
    after: &'a Budget,
    now: Timestamp,
) -> impl Iterator<Item = Passed> + 'a {
    let limit_before =
        before.and_then(|before| Some(UsedAmount { amount: before.recorded_limit()?, used: before.used }));
    let limit = after.limit_at(now).map(|amount| UsedAmount { amount, used: after.used });
    let limit = limit.into_iter().flat_map(move |limit| {
        newly_reached(limit_before, limit).map(move |percent| Passed::of_limit(holder, limit, percent))
    });
    let windows = after.windows().flat_map(move |window| {
        let before = before.into_iter().flat_map(Budget::windows).find(|before| before.per == window.per);
        let before = before.map(|before| UsedAmount {
            amount: as_raised(before.amount, before.raised),
            used: before.at(now).used,
        });
        let newly =
            newly_reached(before, UsedAmount { amount: window.amount_at(now), used: window.at(now).used });
        newly.map(move |percent| Passed::of_window(holder, window, percent, now))
    });
    limit.chain(windows)
}

/// Returns the percentages that usage has newly reached. Zero usage reaches none.
fn newly_reached(before: Option<UsedAmount>, after: UsedAmount) -> impl Iterator<Item = u8> {
    let is_reached =
        |UsedAmount { amount, used }, percent| used > NanoUsd::ZERO && part(amount, percent, true) <= used;
    LIMIT_PERCENTS.into_iter().filter(move |percent| {
        is_reached(after, *percent) && !before.is_some_and(|before| is_reached(before, *percent))
    })
}

fn as_raised(amount: NanoUsd, raised: Option<Raise>) -> NanoUsd {
    raised.map_or(amount, |raise| raise.amount)
}

impl Budget {
    /// Returns the lifetime limit with its raise, even if the raise has ended.
    fn recorded_limit(&self) -> Option<NanoUsd> {
        self.limit.map(|limit| as_raised(limit, self.bounds.as_ref().and_then(|bounds| bounds.limit_raised)))
    }

    /// Lists the raises of all limits, even if they have ended.
    fn raises(&self) -> impl Iterator<Item = Raise> {
        let of_limit = self.bounds.iter().filter_map(|bounds| bounds.limit_raised);
        of_limit.chain(self.windows().filter_map(|window| window.raised))
    }
}

impl Passed {
    fn of_limit(holder: Holder, UsedAmount { amount, used }: UsedAmount, percent: u8) -> Self {
        let threshold = Threshold { bound: MoneyBound::Limit, percent, amount, used };
        Self { holder, start: Timestamp::from_millis(0), threshold }
    }

    fn of_window(holder: Holder, window: &Window, percent: u8, now: Timestamp) -> Self {
        let (bound, amount, window) = (bound_of(window.per), window.amount_at(now), window.at(now));
        let threshold = Threshold { bound, percent, amount, used: window.used };
        Self { holder, start: window.start, threshold }
    }

    /// Returns the event for the threshold, with the name that prevents a second report.
    fn told(self, now: Timestamp) -> Option<Told> {
        let once = Some(self.name());
        self.event(now).map(|event| Told { once, event })
    }

    fn name(&self) -> Vec<u8> {
        let Threshold { bound, percent, amount, .. } = self.threshold;
        name(self.holder, bound, percent, self.start, amount)
    }

    /// Returns the event for the threshold. Its id follows from time and holder, so that every store generates the
    /// same.
    pub fn event(&self, now: Timestamp) -> Option<Event> {
        let Threshold { bound, percent, .. } = self.threshold;
        let id = self.holder.as_bytes();
        let time = now.millis().to_be_bytes();
        let id = [&time[2..], &id[6..14], &[bound as u8, percent]].concat();
        let (key, group) = match self.holder {
            Holder::Key(key, group) => (Some(key), group),
            Holder::Group(group) => (None, Some(group)),
            Holder::Account(_) => (None, None),
        };
        let kind = match (self.holder, percent) {
            (Holder::Key(..), WHOLE) => EventKind::KeyLimitReached,
            (Holder::Key(..), _) => EventKind::KeyThresholdReached,
            (Holder::Group(_), WHOLE) => EventKind::GroupLimitReached,
            (Holder::Group(_), _) => EventKind::GroupThresholdReached,
            (Holder::Account(_), 0) => EventKind::CreditExhausted,
            (Holder::Account(_), _) => EventKind::CreditThresholdReached,
        };
        let (id, kind) = (EventId::from_slice(&id)?, kind(self.threshold));
        Some(Event { id, at: now, actor: Actor::System, key, group, kind })
    }
}

impl Holder {
    /// Returns the name of the threshold "a lifetime limit of this amount is reached".
    pub fn name_of_reached_limit(self, amount: NanoUsd) -> Vec<u8> {
        name(self, MoneyBound::Limit, WHOLE, Timestamp::from_millis(0), amount)
    }

    /// Returns the name of the threshold "the current window's bound in force is reached".
    pub fn name_of_reached_window(self, window: &Window, now: Timestamp) -> Vec<u8> {
        name(self, bound_of(window.per), WHOLE, window.at(now).start, window.amount_at(now))
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Key(id, _) => id.as_bytes(),
            Self::Group(id) => id.as_bytes(),
            Self::Account(id) => id.as_bytes(),
        }
    }
}

/// Returns the name of a threshold. All stores write the same bytes.
fn name(holder: Holder, bound: MoneyBound, percent: u8, start: Timestamp, amount: NanoUsd) -> Vec<u8> {
    let numbers = [start.millis(), amount.nanos()].map(i64::to_be_bytes).concat();
    [holder.as_bytes(), &[bound as u8, percent], &numbers].concat()
}

const fn bound_of(per: Per) -> MoneyBound {
    match per {
        Per::Hour => MoneyBound::Hour,
        Per::Day => MoneyBound::Day,
        Per::Week => MoneyBound::Week,
        Per::Month => MoneyBound::Month,
    }
}

/// Returns the event for a payment or a refund; `None` for other commands. Its id combines the random bytes of the
/// deposit's id with the event's time, since the deposit of a payment has an id without a time.
fn deposited(command: &Command, of: &Deposited, at: Timestamp) -> Option<Event> {
    let (Command::Deposit { id, to, actor, .. } | Command::Refund { id, from: to, actor, .. }) = command
    else {
        return None;
    };
    let (deposit_id, group_id, note) = (*id, to.group(), of.note.clone());
    let (amount, shortfall) = (NanoUsd::from_nanos(of.change().nanos().saturating_abs()), of.shortfall());
    let payment_id = of.payment.as_ref().map(|payment| payment.id.clone());
    let refund_of = of.refund.as_ref().map(|refund| refund.of.clone());
    // An event about a wallet alone names the group itself.
    let named = group_id.filter(|_| to.changes_credit());
    let kind = match refund_of {
        None => {
            let paid = PaymentMade { deposit_id, amount, note, payment_id, group_id: named };
            if to.changes_credit() { EventKind::CreditAdded(paid) } else { EventKind::GroupPaid(paid) }
        }
        Some(of) => {
            let refunded =
                RefundMade { deposit_id, amount, shortfall, of, note, payment_id, group_id: named };
            if to.changes_credit() {
                EventKind::CreditRefunded(refunded)
            } else {
                EventKind::GroupRefunded(refunded)
            }
        }
    };
    let id = EventId::new(at, *id.as_bytes().last_chunk()?);
    Some(Event { id, at, actor: actor.clone(), key: None, group: group_id, kind })
}

/// Returns a percentage of an amount, rounded up or down to whole nano-USD.
fn part(amount: NanoUsd, percent: u8, up: bool) -> NanoUsd {
    let (whole, rest, percent) = (amount.nanos() / 100, amount.nanos() % 100, i64::from(percent));
    let rest = (rest * percent + if up { 99 } else { 0 }) / 100;
    NanoUsd::from_nanos(whole * percent + rest)
}
