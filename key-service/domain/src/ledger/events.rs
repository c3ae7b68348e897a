//! Events of commands: deposits, and thresholds of money that commands cross.

use shared::{
    calendar::Per,
    ids::{AccountId, EventId, GroupId, KeyId},
    money::NanoUsd,
    time::Timestamp,
};

use crate::{
    event::{Actor, Event, EventKind, MoneyBound, Threshold},
    ledger::{
        bounds::{Budget, Window},
        command::{Command, Level, NewHold, Refused},
        funds::NANO,
        record::Record,
        state::{Account, LastDeposit, State},
    },
};

/// All of a limit, in percent.
const WHOLE: u8 = 100;
/// Parts of a limit that are thresholds, in percent.
const LIMIT_PERCENTS: [u8; 4] = [50, 80, 95, WHOLE];
/// Parts of the credit just after the last deposit, in percent. An event tells when no more than such a part is left.
const CREDIT_PERCENTS: [u8; 3] = [20, 5, 0];

/// An event to be written, unless an event of the same name was written before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Name of a threshold, which is told once. It has the budget, bound, percent, beginning and amount.
    pub once: Option<Vec<u8>>,
    pub event: Event,
}

/// A holder of money: an account's credit, or the budget of a key or of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A key, with its group.
    Key(KeyId, Option<GroupId>),
    Group(GroupId),
    Account(AccountId),
}

/// A threshold that a holder crossed in the window that begins at `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    pub holder: Holder,
    /// Beginning of the window; for credit, the time of the last deposit; zero for a lifetime limit.
    pub start: Timestamp,
    pub threshold: Threshold,
}

/// Events of the commands of one call, which all have the same time. Thresholds compare the money before the call with
/// the money after it.
#[derive(Debug)]
pub struct CallEvents {
    account: AccountId,
    now: Timestamp,
    credit_before: NanoUsd,
    /// Budgets that commands have billed, before the call and now.
    billed: Vec<(Holder, Budget, Budget)>,
    told: Vec<Told>,
}

impl CallEvents {
    pub const fn new(account: AccountId, before: &Account, now: Timestamp) -> Self {
        Self { account, now, credit_before: before.credit, billed: Vec::new(), told: Vec::new() }
    }

    /// Notes a command that was applied.
    pub fn applied(&mut self, command: &Command, before: &State, after: &State) {
        if before.record == Record::None
            && after.record != Record::None
            && let Some(event) = deposited(command, self.now)
        {
            // Thresholds of the credit begin anew with the deposit.
            self.credit_before = after.account.credit;
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

    /// Notes a command that was refused. A refused hold tells which bounds on money leave too little.
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
            return self.limit(holder, budget, WHOLE);
        }
        let now = self.now;
        let amount = if budget.covers(NANO, now).is_ok() { *least } else { NANO };
        for window in budget.windows().map(|window| window.at(now)) {
            if window.left() < amount {
                self.window(holder, &window, WHOLE);
            }
        }
    }

    /// Returns the events of the call, given the account after it.
    pub fn finish(mut self, after: &Account) -> Vec<Told> {
        for (holder, before, after) in std::mem::take(&mut self.billed) {
            if let Some(limit) = after.limit {
                for percent in crossed(limit, before.used, after.used) {
                    self.limit(holder, &after, percent);
                }
            }
            for (before, after) in before.windows().zip(after.windows()) {
                let used_before = before.at(self.now).used;
                for percent in crossed(after.amount, used_before, after.used) {
                    self.window(holder, after, percent);
                }
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
        if before.used == after.used || (after.limit.is_none() && after.windows().next().is_none()) {
            return;
        }
        match self.billed.iter_mut().find(|(known, ..)| *known == holder) {
            Some((.., now)) => now.clone_from(after),
            None => self.billed.push((holder, before.clone(), after.clone())),
        }
    }

    fn limit(&mut self, holder: Holder, budget: &Budget, percent: u8) {
        self.tell(Passed::of_limit(holder, budget, percent));
    }

    fn window(&mut self, holder: Holder, window: &Window, percent: u8) {
        self.tell(Passed::of_window(holder, window, percent));
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

/// Returns the thresholds that a change of bounds crosses: use has reached them under the bounds `after`, and had not
/// under the bounds `before`. A budget that is made with use has no bounds before.
pub fn passed_by_bounds(
    holder: Holder,
    before: Option<&Budget>,
    after: &Budget,
    now: Timestamp,
) -> Vec<Told> {
    let amount_before = |per| {
        let window = before.into_iter().flat_map(Budget::windows).find(|window| window.per == per);
        window.map(|window| window.amount)
    };
    let limit = after.limit.into_iter().flat_map(|limit| {
        let newly = newly_reached(before.and_then(|before| before.limit), limit, after.used);
        newly.map(|percent| Passed::of_limit(holder, after, percent))
    });
    let windows = after.windows().map(|window| window.at(now)).flat_map(|window| {
        let newly = newly_reached(amount_before(window.per), window.amount, window.used);
        newly.map(move |percent| Passed::of_window(holder, &window, percent))
    });
    limit.chain(windows).filter_map(|passed| passed.told(now)).collect()
}

/// Returns the parts of the amount `after` that use has reached, without those it had reached of the amount `before`.
/// Zero use reaches nothing.
fn newly_reached(before: Option<NanoUsd>, after: NanoUsd, used: NanoUsd) -> impl Iterator<Item = u8> {
    let is_reached = move |amount, percent| used > NanoUsd::ZERO && part(amount, percent, true) <= used;
    LIMIT_PERCENTS.into_iter().filter(move |percent| {
        is_reached(after, *percent) && !before.is_some_and(|before| is_reached(before, *percent))
    })
}

impl Passed {
    fn of_limit(holder: Holder, budget: &Budget, percent: u8) -> Self {
        let (bound, amount) = (MoneyBound::Limit, budget.limit.unwrap_or(NanoUsd::ZERO));
        let threshold = Threshold { bound, percent, amount, used: budget.used };
        Self { holder, start: Timestamp::from_millis(0), threshold }
    }

    const fn of_window(holder: Holder, window: &Window, percent: u8) -> Self {
        let (bound, amount) = (bound_of(window.per), window.amount);
        let threshold = Threshold { bound, percent, amount, used: window.used };
        Self { holder, start: window.start, threshold }
    }

    /// Makes the event of the threshold, with the name under which it is told once.
    fn told(self, now: Timestamp) -> Option<Told> {
        let once = Some(self.name());
        self.event(now).map(|event| Told { once, event })
    }

    fn name(&self) -> Vec<u8> {
        let Threshold { bound, percent, amount, .. } = self.threshold;
        name((self.holder, bound), percent, (self.start, amount))
    }

    /// Makes the event of the threshold. Its id follows from the time and the holder, so that every store makes the
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
    /// Returns the name under which an event tells that a lifetime limit of this amount is reached.
    pub fn name_of_reached_limit(self, amount: NanoUsd) -> Vec<u8> {
        name((self, MoneyBound::Limit), WHOLE, (Timestamp::from_millis(0), amount))
    }

    /// Returns the name under which an event tells that the bound of a window is reached.
    pub fn name_of_reached_window(self, window: &Window) -> Vec<u8> {
        name((self, bound_of(window.per)), WHOLE, (window.start, window.amount))
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Key(id, _) => id.as_bytes(),
            Self::Group(id) => id.as_bytes(),
            Self::Account(id) => id.as_bytes(),
        }
    }
}

/// Returns the name of a threshold that is told once. Stores write the same.
fn name(
    (holder, bound): (Holder, MoneyBound),
    percent: u8,
    (start, amount): (Timestamp, NanoUsd),
) -> Vec<u8> {
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

/// Makes the event of a deposit; `None` for other commands. Its id has the random bytes of the deposit's id, but its
/// own time: the deposit of a payment has none in its id.
pub fn deposited(command: &Command, at: Timestamp) -> Option<Event> {
    let Command::Deposit { id, amount, note, payment_id, actor } = command else { return None };
    let (note, payment_id) = (note.clone(), payment_id.clone());
    let kind = EventKind::CreditAdded { deposit_id: *id, amount: *amount, note, payment_id };
    let id = EventId::new(at, *id.as_bytes().last_chunk()?);
    Some(Event { id, at, actor: actor.clone(), key: None, group: None, kind })
}

/// Returns the parts of an amount that are used now and were not used before.
fn crossed(amount: NanoUsd, before: NanoUsd, after: NanoUsd) -> impl Iterator<Item = u8> {
    let is_crossed = move |percent: &u8| {
        let border = part(amount, *percent, true);
        before < border && border <= after
    };
    LIMIT_PERCENTS.into_iter().filter(is_crossed)
}

/// Returns a part of an amount in percent, rounded up or down to whole nano-USD.
fn part(amount: NanoUsd, percent: u8, up: bool) -> NanoUsd {
    let (whole, rest, percent) = (amount.nanos() / 100, amount.nanos() % 100, i64::from(percent));
    let rest = (rest * percent + if up { 99 } else { 0 }) / 100;
    NanoUsd::from_nanos(whole * percent + rest)
}
