//! Conversion of the ledger's values to messages and back. `None` stands for what no program writes.

mod amounts;
mod course;
mod sums;

use std::{sync::Arc, time::Duration};

use domain::{
    ledger::{
        Account, Bounds, Budget, Counted, Deposited, Ending, EntriesBefore, Entry, Group, GroupChain, Hold,
        Key, LastDeposit, Missing, Payer, Progress, Rate, Record, Rotation, Settlement, Window,
    },
    payment::{Payment, PaymentId},
};
use shared::{
    calendar::Per,
    ids::{GenerationId, GroupId, KeyId},
    money::NanoUsd,
    time::Timestamp,
    wire::Raise,
};

use crate::{
    kept::Retention,
    messages::{self, generation::State},
    names::{levels, read_levels},
};
pub use amounts::{Balance, usd};
use amounts::{nanos, read_usage, write_usage};
use course::{read_course, write_course};
pub use course::{read_origin, write_origin};
pub use sums::{
    PayerSpan, PayersOfKey, read_counts, read_group_day, read_margin, read_payers, read_user_day,
};
pub(crate) use sums::{write_counts, write_group_day, write_margin, write_payers, write_user_day};

/// Time by which entries of earlier programs may be in another order than their times.
const MOST_DISORDER: Duration = Duration::from_hours(2);

const fn time(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// Reads an id that may be absent. `Err` for bytes that are no id.
fn group_id(bytes: &[u8]) -> Result<Option<GroupId>, ()> {
    if bytes.is_empty() { Ok(None) } else { GroupId::from_slice(bytes).map(Some).ok_or(()) }
}

fn group_bytes(group: Option<GroupId>) -> Vec<u8> {
    group.map(|id| id.as_bytes().to_vec()).unwrap_or_default()
}

/// Money of an account, with numbers that only stores need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountRecord {
    /// Credit, its held part, lease time, and the last deposit.
    pub money: Account,
    /// Number of the last entry of the journal.
    pub entries: u64,
    /// Number of the last event.
    pub events: u64,
    /// Time of the last expiry of a hold.
    pub last_expiry: Option<Timestamp>,
    /// Time from which on entries are in the order of their times, after entries of earlier programs.
    pub(crate) ordered_since: Option<Timestamp>,
    /// Number of the last entry at which times went back, since a clock was far ahead before; zero if they never did.
    pub went_back: u64,
}

impl AccountRecord {
    /// Returns whether bills of expiries may still be remembered.
    pub(crate) fn remembers_expiries(&self, kept: Retention, now: Timestamp) -> bool {
        self.last_expiry.is_some_and(|last| last.plus(kept.expired) > now)
    }

    /// Returns the time by which entries around this time may be in another order than their times. It is zero for entries
    /// of programs that order them.
    pub fn disorder(&self, at: Timestamp) -> Duration {
        let is_ordered = self.ordered_since.is_none_or(|since| at > since.plus(MOST_DISORDER));
        if self.money.billed_at.is_some() && is_ordered { Duration::ZERO } else { MOST_DISORDER }
    }
}

/// The events that an account keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventsKept {
    /// Number of the oldest event, or of the next one if none is kept.
    pub(crate) first: u64,
    pub(crate) bytes: i64,
}

impl Default for EventsKept {
    fn default() -> Self {
        Self { first: 1, bytes: 0 }
    }
}

/// The oldest event that an account keeps, as of the last check.
#[derive(Clone, Copy)]
pub(crate) struct OldestEvent {
    pub(crate) number: u64,
    pub(crate) at: Timestamp,
}

pub(crate) fn write_account(account: &AccountRecord) -> messages::Account {
    let AccountRecord { money, entries, events, last_expiry, ordered_since, went_back } = *account;
    let Account { credit, held, tick, last_deposit, billed_at } = money;
    let deposit =
        |LastDeposit { credit, at }| messages::LastDeposit { credit: nanos(credit), at: at.millis() };
    messages::Account {
        credit: nanos(credit),
        held: nanos(held),
        tick,
        last_deposit: last_deposit.map(deposit),
        entries,
        events,
        last_expiry: last_expiry.map_or(0, Timestamp::millis),
        billed_at: billed_at.map_or(0, Timestamp::millis),
        ordered_since: ordered_since.map_or(0, Timestamp::millis),
        went_back,
    }
}

/// Reads the money of an account.
pub fn read_account(account: &messages::Account) -> AccountRecord {
    let messages::Account { credit, held, tick, last_deposit, entries, events, went_back, .. } = *account;
    let deposit = |messages::LastDeposit { credit, at }| LastDeposit { credit: usd(credit), at: time(at) };
    let some = |at: i64| (at != 0).then(|| time(at));
    let money = Account {
        credit: usd(credit),
        held: usd(held),
        tick,
        last_deposit: last_deposit.map(deposit),
        billed_at: some(account.billed_at),
    };
    let (last_expiry, ordered_since) = (some(account.last_expiry), some(account.ordered_since));
    AccountRecord { money, entries, events, last_expiry, ordered_since, went_back }
}

pub(crate) fn write_key(Balance { of: key, last_entry }: &Balance<Key>) -> messages::Key {
    let Key { budget, group, rotation, expires_at, revoked_at, disabled, last_used_at } = key;
    messages::Key {
        budget: Some(write_budget(budget)),
        group: group_bytes(*group),
        credential: rotation.current,
        previous_until: rotation.previous_until.map(Timestamp::millis),
        expires_at: expires_at.map(Timestamp::millis),
        revoked_at: revoked_at.map(Timestamp::millis),
        last_used_at: last_used_at.map(Timestamp::millis),
        last_entry: *last_entry,
        disabled: *disabled,
    }
}

/// Reads the money of a key; `None` if no program writes such a record.
pub fn read_key(key: messages::Key) -> Option<Balance<Key>> {
    let rotation =
        Rotation { current: key.credential, previous_until: key.previous_until.map(Timestamp::from_millis) };
    let of = Key {
        budget: read_budget(key.budget?)?,
        group: group_id(&key.group).ok()?,
        rotation,
        expires_at: key.expires_at.map(Timestamp::from_millis),
        revoked_at: key.revoked_at.map(Timestamp::from_millis),
        disabled: key.disabled,
        last_used_at: key.last_used_at.map(Timestamp::from_millis),
    };
    Some(Balance { of, last_entry: key.last_entry })
}

pub(crate) fn write_group(Balance { of: group, last_entry }: &Balance<Group>) -> messages::Group {
    let Group { budget, parent, archived_at } = group;
    messages::Group {
        budget: Some(write_budget(budget)),
        parent: group_bytes(*parent),
        archived_at: archived_at.map(Timestamp::millis),
        last_entry: *last_entry,
    }
}

/// Reads the money of a group; `None` if no program writes such a record.
pub fn read_group(group: messages::Group) -> Option<Balance<Group>> {
    let of = Group {
        budget: read_budget(group.budget?)?,
        parent: group_id(&group.parent).ok()?,
        archived_at: group.archived_at.map(Timestamp::from_millis),
    };
    Some(Balance { of, last_entry: group.last_entry })
}

pub fn write_budget(Budget { limit, used, held, bounds }: &Budget) -> messages::Budget {
    messages::Budget {
        limit: limit.map(nanos),
        used: nanos(*used),
        held: nanos(*held),
        bounds: bounds.as_deref().map(write_bounds),
    }
}

/// Reads a budget; `None` if no program writes such a record.
pub fn read_budget(messages::Budget { limit, used, held, bounds }: messages::Budget) -> Option<Budget> {
    let bounds = bounds.map(read_bounds).map(|bounds| bounds.map(Box::new));
    let bounds = match bounds {
        None => None,
        Some(bounds) => Some(bounds?),
    };
    Some(Budget { limit: limit.map(usd), used: usd(used), held: usd(held), bounds })
}

fn write_bounds(bounds: &Bounds) -> messages::Bounds {
    let window = |window: &Window| messages::Window {
        per: window.per as u32,
        amount: nanos(window.amount),
        start: window.start.millis(),
        used: nanos(window.used),
        raised: window.raised.map(write_raise),
    };
    let rate = |rate: Rate| messages::Rate {
        per_minute: rate.per_minute,
        taken: rate.taken,
        at: rate.at.millis(),
        missing: Some(write_missing(rate.missing)),
    };
    messages::Bounds {
        windows: bounds.windows.iter().map(window).collect(),
        requests_per_minute: bounds.requests_per_minute.map(rate),
        tokens_per_minute: bounds.tokens_per_minute.map(rate),
        max_in_flight: bounds.max_in_flight,
        in_flight: bounds.in_flight,
        models: bounds.models.clone().map(|ids| messages::Models { ids }),
        limit_raised: bounds.limit_raised.map(write_raise),
    }
}

const fn write_raise(Raise { amount, until }: Raise) -> messages::Raise {
    messages::Raise { amount: nanos(amount), until: until.millis() }
}

const fn read_raise(messages::Raise { amount, until }: messages::Raise) -> Raise {
    Raise { amount: usd(amount), until: time(until) }
}

const fn write_missing(Missing { since, part }: Missing) -> messages::Missing {
    messages::Missing { since: since.millis(), part }
}

const fn read_missing(messages::Missing { since, part }: messages::Missing) -> Missing {
    Missing { since: time(since), part }
}

fn read_bounds(bounds: messages::Bounds) -> Option<Bounds> {
    let window = |window: &messages::Window| {
        let per = Per::ALL.into_iter().find(|per| *per as u32 == window.per)?;
        let (amount, start, used) = (usd(window.amount), time(window.start), usd(window.used));
        Some(Window { per, amount, raised: window.raised.map(read_raise), start, used })
    };
    let rate = |rate: messages::Rate| Rate {
        per_minute: rate.per_minute,
        taken: rate.taken,
        at: time(rate.at),
        missing: rate.missing.map_or(Missing::all(time(rate.at)), read_missing),
    };
    Some(Bounds {
        windows: bounds.windows.iter().map(window).collect::<Option<_>>()?,
        requests_per_minute: bounds.requests_per_minute.map(rate),
        tokens_per_minute: bounds.tokens_per_minute.map(rate),
        max_in_flight: bounds.max_in_flight,
        in_flight: bounds.in_flight,
        models: bounds.models.map(|models| models.ids),
        limit_raised: bounds.limit_raised.map(read_raise),
    })
}

/// Writes a generation; `None` for any other record.
pub(crate) fn write_generation(record: &Record) -> Option<messages::Generation> {
    match record {
        Record::None | Record::Deposited(_) => None,
        Record::Open(Hold { payer, origin, amount, reported, lease_until, counted }) => {
            let [missing_of_key, missing_of_group, missing_of_parent] =
                counted.missing.map(|missing| missing.map(write_missing));
            let hold = messages::Hold {
                amount: nanos(*amount),
                lease_until: *lease_until,
                counted_levels: levels(counted.levels).into(),
                counted_tokens: counted.tokens,
                missing_of_key,
                missing_of_group,
                missing_of_parent,
            };
            Some(messages::Generation {
                payer: Some(write_payer(payer)),
                progress: Some(write_progress(reported)),
                state: Some(State::Hold(hold)),
                origin: origin.as_deref().map(write_origin),
            })
        }
        Record::Closed(settlement) => Some(write_bill(settlement)),
    }
}

pub(crate) fn write_bill(settlement: &Settlement) -> messages::Generation {
    let Settlement { payer, origin, usage, cost, upstream_cost, charged, ending, estimated, at, course } =
        settlement;
    let progress = messages::Progress {
        cost: nanos(*cost),
        upstream_cost: upstream_cost.map(nanos),
        course: course.as_deref().map(write_course),
        ..write_usage(usage)
    };
    let bill = messages::Bill {
        charged: nanos(*charged),
        expired: *ending == Ending::Expired,
        estimated: *estimated,
        at: at.millis(),
        late: *ending == Ending::Late,
    };
    messages::Generation {
        payer: Some(write_payer(payer)),
        progress: Some(progress),
        state: Some(State::Bill(bill)),
        origin: origin.as_deref().map(write_origin),
    }
}

/// Reads a generation; `None` if no program writes such a record.
pub fn read_generation(generation: messages::Generation) -> Option<Record> {
    let messages::Generation { payer, progress, state, origin } = generation;
    let (payer, progress) = (read_payer(payer?)?, read_progress(progress?));
    let origin = origin.and_then(read_origin).map(Arc::new);
    Some(match state? {
        State::Hold(hold) => {
            let levels = read_levels(u8::try_from(hold.counted_levels).ok()?);
            let missing = [hold.missing_of_key, hold.missing_of_group, hold.missing_of_parent];
            let missing = missing.map(|missing| missing.map(read_missing));
            Record::Open(Hold {
                payer,
                origin,
                amount: usd(hold.amount),
                reported: progress,
                lease_until: hold.lease_until,
                counted: Counted { levels, tokens: hold.counted_tokens, missing },
            })
        }
        State::Bill(bill) => Record::Closed(Settlement {
            payer,
            origin,
            usage: progress.usage,
            cost: progress.cost,
            upstream_cost: progress.upstream_cost,
            charged: usd(bill.charged),
            ending: match (bill.expired, bill.late) {
                (_, true) => Ending::Late,
                (true, false) => Ending::Expired,
                (false, false) => Ending::Captured,
            },
            estimated: bill.estimated,
            at: time(bill.at),
            course: progress.course,
        }),
    })
}

fn write_payer(Payer { key, model, groups: [group, parent] }: &Payer) -> messages::Payer {
    messages::Payer {
        key: key.as_bytes().to_vec(),
        model: model.clone(),
        group: group_bytes(*group),
        parent: group_bytes(*parent),
    }
}

fn read_payer(payer: messages::Payer) -> Option<Payer> {
    let groups: GroupChain = [group_id(&payer.group).ok()?, group_id(&payer.parent).ok()?];
    Some(Payer { key: KeyId::from_slice(&payer.key)?, model: payer.model, groups })
}

fn write_progress(Progress { usage, cost, upstream_cost, course }: &Progress) -> messages::Progress {
    messages::Progress {
        cost: nanos(*cost),
        upstream_cost: upstream_cost.map(nanos),
        course: course.as_deref().map(write_course),
        ..write_usage(usage)
    }
}

fn read_progress(progress: messages::Progress) -> Progress {
    let (cost, upstream_cost) = (usd(progress.cost), progress.upstream_cost.map(usd));
    let usage = read_usage(&progress);
    Progress { usage, cost, upstream_cost, course: progress.course.map(read_course).map(Arc::new) }
}

/// Writes a deposit; `None` for any other record.
pub(crate) fn write_deposit(record: &Record) -> Option<messages::Deposit> {
    let Record::Deposited(Deposited { amount, credit, note, payment }) = record else { return None };
    Some(messages::Deposit {
        amount: nanos(*amount),
        credit: nanos(credit.unwrap_or(NanoUsd::ZERO)),
        note: note.clone(),
        payment_id: payment.as_ref().map(|payment| payment.id.as_str().to_owned()).unwrap_or_default(),
        at: payment.as_ref().map_or(0, |payment| payment.at.millis()),
    })
}

/// Reads a deposit; `None` if no program writes such a record.
pub fn read_deposit(deposit: messages::Deposit) -> Option<Record> {
    let messages::Deposit { amount, credit, note, payment_id, at } = deposit;
    let payment = match payment_id.as_str() {
        "" => None,
        id => Some(Payment { id: PaymentId::stored(id)?, at: time(at) }),
    };
    Some(Record::Deposited(Deposited { amount: usd(amount), credit: Some(usd(credit)), note, payment }))
}

pub(crate) fn write_entry(
    generation: GenerationId,
    Entry { settlement, delta, used_after }: &Entry,
    EntriesBefore { key, groups: [group, parent] }: EntriesBefore,
) -> messages::Entry {
    messages::Entry {
        generation: generation.as_bytes().to_vec(),
        bill: Some(write_bill(settlement)),
        delta: nanos(*delta),
        used_after: nanos(*used_after),
        before_of_key: key,
        before_of_group: group,
        before_of_parent: parent,
        went_back: 0,
    }
}
