//! A small installation: an account with money and limits, requests that gateways will make, and actions of the owner.

use std::time::Duration;

use domain::{
    event::Actor,
    ledger::{
        Account, BoundsPatch, Budget, Command, Group, Key, NewHold, PaidTo, Progress,
        histories::{account, group, key, new_hold},
    },
    payment::PaymentId,
};
use ledger::{
    Change, EventBounds, Retention,
    stepped::{Books, SteppedLane},
};
use records::{Revision, maps::SpaceMaps};
use shared::{
    calendar::Per,
    ids::{DepositId, GenerationId},
    money::NanoUsd,
    time::Timestamp,
    tokens::Usage,
    wire::{Limit, Raise},
};

/// What a clock shows before midnight: half a second before it.
pub(super) const EVENING: Timestamp = Timestamp::from_millis(1_795_219_199_500);
/// What a clock shows after midnight: half a second after it. So the clocks of key-services differ by at most a
/// second.
const MORNING: Timestamp = Timestamp::from_millis(1_795_219_200_500);
/// The group that the keys are in. It is a child of [`PARENT`].
pub(super) const GROUP: u8 = 1;
/// Parent of [`GROUP`].
pub(super) const PARENT: u8 = 0;
/// Another group, into which a key may be moved.
const OTHER: u8 = 2;
/// Number of groups in an installation.
pub(super) const GROUPS: u8 = 3;
/// The only model.
const MODEL: &str = "Model Flash";
/// Amount that [`Act::Deposit`] adds to the account's credit, and [`Act::Pay`] also to the group's limit.
const DEPOSIT: i64 = 100;

const KEPT: Retention = Retention {
    journal_entries: u64::MAX,
    events: EventBounds::with_life(Duration::from_hours(24)),
    expired: Duration::from_hours(24),
    usage_days: None,
};

/// Everything about an installation that stays the same while it is explored.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) credit: i64,
    /// Limit of each key.
    pub(super) limits: Vec<Option<i64>>,
    /// Whether keys are in the group at first.
    pub(super) is_grouped: bool,
    pub(super) group_limit: Option<i64>,
    pub(super) parent_limit: Option<i64>,
    /// The group's daily limit. If it is set, clocks may pass midnight.
    pub(super) a_day: Option<i64>,
    /// The amount to which the group's limit is raised until midnight. If it is set, clocks may pass midnight.
    pub(super) until_midnight: Option<i64>,
    /// Maximum number of the group's requests in flight.
    pub(super) in_flight: Option<u64>,
    pub(super) gateways: usize,
    pub(super) requests: Vec<Asked>,
    pub(super) acts: Vec<Act>,
    /// Whether there are clients that ask at any time whether the first key may spend.
    pub(super) checks: bool,
    /// Maximum number of key-services to which copies of one message may be in transit at the same time.
    pub(super) copies: usize,
    /// Maximum number of faults. A fault is the loss of a message, of an answer or of a process.
    pub(super) faults: u8,
    /// Whether a fault can also be that the store writes only half of a commit.
    pub(super) halves: bool,
}

/// A request that a gateway will make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) key: u8,
    pub(super) gateway: usize,
    pub(super) least: i64,
    pub(super) most: i64,
    /// For an extension: the amount that it asks for, and the cost so far that it reports. `None` if the gateway sends
    /// no extension.
    pub(super) extension: Option<(i64, i64)>,
    /// Whether the upstream may fail, and whether the gateway may stop waiting for the authorization.
    pub(super) may_fail: bool,
    /// Final cost of the request.
    pub(super) cost: i64,
}

/// An action of the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Deposit,
    /// A payment to the account and to the group.
    Pay,
    /// A refund of at most this amount from the account and from the group.
    Refund(i64),
    /// Revokes the first key.
    Revoke,
    /// Gives the first key another credential. The previous credential stops working at once.
    Rotate,
    /// Lowers the limit of the first key.
    LowerKey(i64),
    /// Lowers the limit of the group.
    LowerGroup(i64),
    /// Moves the first key to another group.
    Move,
}

/// A message from a gateway about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Hold,
    Extend,
    Capture,
    Release,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Hold, Self::Extend, Self::Capture, Self::Release];

    pub(super) const fn bit(self) -> u8 {
        1 << self as u8
    }
}

pub(super) fn generation(request: usize) -> GenerationId {
    GenerationId::new(EVENING, chance(request))
}

/// Returns the ids of the deposits that [`Act::Deposit`], [`Act::Pay`] and [`Act::Refund`] make.
pub(super) fn deposits() -> [DepositId; 3] {
    [0, 1, 2].map(|number| DepositId::new(EVENING, chance(number)))
}

fn chance(number: usize) -> [u8; 10] {
    let mut chance = [0; 10];
    chance[9] = u8::try_from(number).expect("few requests");
    chance
}

pub(super) const fn now(is_morning: bool) -> Timestamp {
    if is_morning { MORNING } else { EVENING }
}

const fn usd(nanos: i64) -> NanoUsd {
    NanoUsd::from_nanos(nanos)
}

fn raised(amount: i64) -> Raise {
    Raise { amount: usd(amount), until: Per::Day.end(EVENING) }
}

fn limited(limit: i64) -> BoundsPatch {
    BoundsPatch { limit: Some(Some(usd(limit))), ..BoundsPatch::default() }
}

impl Setup {
    /// Returns the records with which an installation begins.
    pub(super) fn records(&self) -> SpaceMaps {
        let (mut records, mut lane) = (SpaceMaps::default(), Self::lane());
        let begin = |change: &mut Change<'_>| {
            change.account().unwrap();
            change.set_account(Account { credit: usd(self.credit), ..Account::default() });
            for (number, limit) in (0..).zip(&self.limits) {
                let budget = Budget { limit: limit.map(usd), ..Budget::default() };
                let group = self.is_grouped.then_some(group(GROUP));
                change.key(key(number)).unwrap();
                change.set_key(key(number), Key { budget, group, ..Key::default() });
            }
            for number in 0..GROUPS {
                change.group(group(number)).unwrap();
                change.set_group(group(number), self.group(number));
            }
        };
        let commit = lane.change(&records, begin, Revision(0_u64.to_be_bytes()));
        records.commit(commit).unwrap();
        records
    }

    fn group(&self, number: u8) -> Group {
        let limit = match number {
            PARENT => self.parent_limit,
            GROUP => self.group_limit,
            _ => None,
        };
        let is_bounded = number == GROUP;
        let patch = BoundsPatch {
            limit: Some(limit.map(usd)),
            limit_raised: self.until_midnight.filter(|_| is_bounded).map(|amount| Some(raised(amount))),
            windows: self.a_day.filter(|_| is_bounded).map(|amount| vec![Limit::new(usd(amount), Per::Day)]),
            max_in_flight: self.in_flight.filter(|_| is_bounded).map(Some),
            ..BoundsPatch::default()
        };
        let parent = is_bounded.then_some(group(PARENT));
        Group { budget: Budget::new(&patch, EVENING), parent, ..Group::default() }
    }

    /// Returns the lane of a key-service that has just started.
    pub(super) fn lane() -> SteppedLane {
        SteppedLane::new(account(0), KEPT)
    }

    /// Returns the command that a message asks for.
    pub(super) fn command(&self, request: usize, kind: Kind) -> Command {
        let Asked { key: number, least, most, extension, cost, .. } = self.requests[request];
        let (key, generation, model) = (key(number), generation(request), MODEL.to_owned());
        let (least, most, (extended, reported)) = (usd(least), usd(most), extension.unwrap_or_default());
        match kind {
            Kind::Hold => {
                let new = new_hold(key, generation, least);
                Command::Hold(NewHold { model, most, lease_ticks: 1, ..new })
            }
            Kind::Extend => Command::Extend {
                key,
                generation,
                most: usd(extended),
                progress: progress(reported),
                lease_ticks: 1,
            },
            Kind::Capture => {
                let total = progress(cost);
                Command::Capture { key, generation, model, total, chargeable: None, estimated: false }
            }
            Kind::Release => Command::Release { key, generation },
        }
    }

    pub(super) fn expire(&self, request: usize) -> Command {
        Command::Expire { key: key(self.requests[request].key), generation: generation(request) }
    }
}

fn progress(cost: i64) -> Progress {
    let completion = cost.unsigned_abs();
    let usage = Usage { prompt: 1, completion, ..Usage::default() };
    Progress { usage, cost: usd(cost), upstream_cost: None, course: None }
}

impl Act {
    /// Returns the command for the action; `None` if the action changes records without a command.
    pub(super) fn command(self) -> Option<Command> {
        let [of_deposit, of_payment, of_refund] = deposits();
        let (id, to) = match self {
            Self::Deposit => (of_deposit, PaidTo::Account),
            Self::Pay => (of_payment, PaidTo::Both(group(GROUP))),
            Self::Refund(amount) => {
                return Some(Command::Refund {
                    id: of_refund,
                    payment_id: PaymentId::parse("re_1")?,
                    amount: usd(amount),
                    from: PaidTo::Both(group(GROUP)),
                    partial: true,
                    of: None,
                    note: String::new(),
                    actor: Actor::System,
                });
            }
            Self::Revoke | Self::Rotate | Self::LowerKey(_) | Self::LowerGroup(_) | Self::Move => {
                return None;
            }
        };
        let (amount, note, actor) = (usd(DEPOSIT), String::new(), Actor::System);
        Some(Command::Deposit { id, amount, note, payment_id: None, to, actor })
    }

    /// Returns whether the action concerns the groups of an installation.
    pub(super) const fn needs_groups(self) -> bool {
        self.pays() || matches!(self, Self::LowerGroup(_) | Self::Move)
    }

    /// Returns whether the action pays into the group or refunds from it.
    pub(super) const fn pays(self) -> bool {
        matches!(self, Self::Pay | Self::Refund(_))
    }

    /// Applies the action to the records as a lane does, with guards on all records that it reads.
    pub(super) fn change(self, change: &mut Change<'_>, now: Timestamp) {
        if let Self::LowerGroup(_) = self {
            let Some(mut of) = change.group(group(GROUP)).unwrap() else { return };
            self.on_group(&mut of, now);
            return change.set_group(group(GROUP), of);
        }
        let may_move = self != Self::Move || change.group(group(OTHER)).unwrap().is_some();
        let Some(mut of) = change.key(key(0)).unwrap() else { return };
        if may_move {
            self.on_key(&mut of, now);
            change.set_key(key(0), of);
        }
    }

    /// Applies the same action to the expected books.
    pub(super) fn adopt(self, books: &mut Books, now: Timestamp) {
        self.on_key(&mut books.keys[0], now);
        self.on_group(&mut books.groups[usize::from(GROUP)], now);
    }

    fn on_key(self, key: &mut Key, now: Timestamp) {
        match self {
            Self::Revoke => {
                key.revoked_at.get_or_insert(now.to_whole_seconds());
            }
            Self::Rotate if key.revoked_at.is_none() => key.rotation.current = 1,
            Self::LowerKey(limit) if key.revoked_at.is_none() => key.budget.update(&limited(limit), now),
            Self::Move if key.revoked_at.is_none() => key.group = Some(group(OTHER)),
            Self::Deposit
            | Self::Pay
            | Self::Refund(_)
            | Self::Rotate
            | Self::LowerKey(_)
            | Self::LowerGroup(_)
            | Self::Move => {}
        }
    }

    fn on_group(self, group: &mut Group, now: Timestamp) {
        match self {
            Self::LowerGroup(limit) => group.budget.update(&limited(limit), now),
            Self::Deposit
            | Self::Pay
            | Self::Refund(_)
            | Self::Revoke
            | Self::Rotate
            | Self::LowerKey(_)
            | Self::Move => {}
        }
    }
}
