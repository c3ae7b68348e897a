//! Random histories of a few accounts, and a model store that runs them with the ledger alone. They test the ledger,
//! and every store is compared with the model.

mod world;

use crate::{
    credentials::digest::Digest,
    event::Actor,
    group::GroupPatch,
    key::{KeyPatch, NewCredential},
    lease_clock::LEASE_TICKS,
    payment::PaymentId,
};
use std::{sync::Arc, time::Duration};

use proptest::{
    collection::vec,
    option,
    prelude::*,
    sample::{select, subsequence},
};
use shared::{
    calendar::Per,
    generation::{ModelApi, Origin},
    ids::{AccountId, DepositId, GenerationId, GroupId, KeyId, RequestId},
    money::NanoUsd,
    rates::RateStatus,
    time::Timestamp,
    tokens::{Usage, UsageDetails},
    wire::{Limit, Raise},
};

pub use self::world::{Trail, World};
use super::{BoundsPatch, Command, Level, NewHold, Outcome, PaidTo, Progress, Refused, StandingAct};

/// Number of existing accounts. The next number names an account that does not exist.
pub const ACCOUNTS: u8 = 2;
/// Number of keys per account. The next number names a key that does not exist.
pub const KEYS: u8 = 3;
/// Number of generations per account. The ids of the last two are from other times: see [`of_history`].
pub const GENERATIONS: u8 = 12;

/// Number of groups per account. The next number names a group that does not exist. At first, the second group is a
/// child of the first.
pub const GROUPS: u8 = 3;

/// Models that commands in histories name.
const MODELS: [&str; 2] = ["Model Flash", "Model Max"];

/// Start of all histories: a Friday, eleven days before the end of a month.
pub const START: Timestamp = Timestamp::from_millis(1_795_140_665_000);

/// Maximum duration of a history, in which stores forget no expired generation.
pub const LONGEST_HISTORY: Duration = Duration::from_hours(24 * 30);

/// A step of a history.
#[derive(Clone, Debug)]
pub enum Step {
    /// Executes commands of an account together.
    Execute(AccountId, Vec<Command>),
    /// The owner changes a key.
    Update(AccountId, KeyId, KeyPatch),
    /// The owner rotates a key.
    Rotate(NewCredential),
    /// The owner revokes a key.
    Revoke(AccountId, KeyId),
    /// The owner changes a group.
    UpdateGroup(AccountId, GroupId, GroupPatch),
    /// The owner archives a group.
    Archive(AccountId, GroupId),
    /// An operator suspends, restores or closes an account.
    Stand(AccountId, StandingAct),
    /// The clock changes.
    Clock(Clock),
}

/// A change of the clock.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// Time passes.
    Wait(Duration),
    /// Time passes until this window of the calendar ends.
    WaitForEnd(Per),
    /// The clock steps back.
    StepBack(Duration),
}

impl Clock {
    /// Returns the new time, but never one later than [`LONGEST_HISTORY`] allows.
    pub fn after(self, now: Timestamp) -> Timestamp {
        let later = match self {
            Self::Wait(duration) => now.plus(duration),
            Self::WaitForEnd(per) => per.end(now),
            Self::StepBack(duration) => return now.minus(duration),
        };
        if later <= START.plus(LONGEST_HISTORY) { later } else { now }
    }
}

/// Generates histories that overspend, repeat commands, and name keys and generations of other owners.
pub fn history() -> impl Strategy<Value = Vec<Step>> {
    vec(step(), 1..40)
}

/// Returns the id of a numbered account.
pub fn account(n: u8) -> AccountId {
    AccountId::new(START, chance(n))
}

/// Returns the id of a numbered key, the same in every account.
pub fn key(n: u8) -> KeyId {
    KeyId::new(START, chance(n))
}

/// Returns the id of a numbered group, the same in every account.
pub fn group(n: u8) -> GroupId {
    GroupId::new(START, chance(n))
}

/// Returns the id of a numbered generation, the same in every account.
pub fn generation(n: u8) -> GenerationId {
    GenerationId::new(START, chance(n))
}

/// Returns the id of a numbered generation in histories. The last but one has an id from a gateway whose clock is too
/// far ahead; the last has an id older than stores remember.
pub fn of_history(n: u8) -> GenerationId {
    match GENERATIONS - n {
        1 => GenerationId::new(START.minus(Duration::from_hours(3)), chance(n)),
        2 => GenerationId::new(START.plus(Duration::from_mins(10)), chance(n)),
        _ => generation(n),
    }
}

/// Returns the id of a numbered deposit, the same in every account.
pub fn deposit(n: u8) -> DepositId {
    DepositId::new(START, chance(n))
}

/// Returns a hold of exactly this amount. Tests set other fields by struct update.
pub fn new_hold(key: KeyId, generation: GenerationId, amount: NanoUsd) -> NewHold {
    NewHold {
        key,
        credential: 0,
        generation,
        model: MODELS[0].to_owned(),
        least: amount,
        enough: amount,
        most: amount,
        room_for_bound: NanoUsd::ZERO,
        prompt_tokens: 1,
        readmitted: false,
        lease_ticks: LEASE_TICKS,
        origin: None,
    }
}

/// Returns the outcome of a hold at budgets without rates.
pub fn held(amount: NanoUsd) -> Outcome {
    Outcome::Held { amount, rates: RateStatus::default() }
}

/// Returns the credit just after a deposit; `None` for any other outcome.
pub fn credit_after(outcome: &Result<Outcome, Refused>) -> Option<NanoUsd> {
    match outcome {
        Ok(Outcome::Deposited { deposited, .. }) => deposited.credit,
        Ok(_) | Err(_) => None,
    }
}

/// The refusal for a key that has reached its lifetime limit.
pub const KEY_LIMIT_REACHED: Refused = Refused::LimitReached { level: Level::Key, resets_at: None };

/// Returns the random part of an id. Larger numbers sort after smaller ones.
fn chance(n: u8) -> [u8; 10] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, n]
}

fn step() -> impl Strategy<Value = Step> {
    let key = || (0..ACCOUNTS, 0..KEYS).prop_map(|(a, k)| (account(a), key(k)));
    let group = || (0..ACCOUNTS, 0..GROUPS).prop_map(|(a, g)| (account(a), group(g)));
    prop_oneof![
        40 => (0..=ACCOUNTS, vec(command(), 1..12)).prop_map(|(a, c)| {
            let a = account(a);
            Step::Execute(a, c.into_iter().map(|command| named_by_payment(command, a)).collect())
        }),
        12 => clock().prop_map(Step::Clock),
        6 => (key(), key_patch()).prop_map(|((a, k), patch)| Step::Update(a, k, patch)),
        2 => key().prop_map(|(a, k)| Step::Revoke(a, k)),
        4 => new_credential().prop_map(Step::Rotate),
        6 => (group(), group_patch()).prop_map(|((a, g), patch)| Step::UpdateGroup(a, g, patch)),
        1 => group().prop_map(|(a, g)| Step::Archive(a, g)),
        3 => (0..ACCOUNTS, standing()).prop_map(|(a, act)| Step::Stand(account(a), act)),
    ]
}

/// Generates few suspensions, so that most commands of a history are not refused.
fn standing() -> impl Strategy<Value = StandingAct> {
    prop_oneof![
        6 => Just(StandingAct::Suspend("unpaid".to_owned())),
        20 => Just(StandingAct::Restore),
        1 => Just(StandingAct::Close),
    ]
}

/// Generates a credential without a grace period, or with one shorter than a history.
fn new_credential() -> impl Strategy<Value = NewCredential> {
    let grace = prop_oneof![1 => Just(Duration::ZERO), 3 => (1..40_u64).prop_map(Duration::from_secs)];
    // Two equal digests stand for a repeated rotation.
    let digest = any::<[u8; 32]>().no_shrink().prop_map(Digest::from_bytes);
    (0..ACCOUNTS, 0..KEYS, digest, grace, any::<bool>()).prop_map(|(a, k, digest, grace, is_forced)| {
        let (account, key, hint) = (account(a), key(k), "fg_api_…".to_owned());
        NewCredential { account, key, digest, hint, grace, is_forced }
    })
}

/// Generates the number of a credential, usually the first.
fn credential() -> impl Strategy<Value = u64> {
    prop_oneof![20 => Just(0), 4 => Just(1), 2 => Just(2), 1 => Just(3)]
}

/// Generates mostly seconds; sometimes hours, the end of a window, or a step back.
fn clock() -> impl Strategy<Value = Clock> {
    let per = select(vec![Per::Hour, Per::Hour, Per::Day, Per::Week, Per::Month]);
    prop_oneof![
        10 => (0..20_000_u64).prop_map(|millis| Clock::Wait(Duration::from_millis(millis))),
        2 => (1..4_u64).prop_map(|hours| Clock::Wait(Duration::from_hours(hours))),
        4 => per.prop_map(Clock::WaitForEnd),
        3 => (1..=40_u64).prop_map(|seconds| Clock::StepBack(Duration::from_secs(seconds))),
    ]
}

fn key_patch() -> impl Strategy<Value = KeyPatch> {
    let settings = (option::of(option::of(time())), option::weighted(0.2, parent()));
    (settings, bounds_patch()).prop_map(|((expires_at, group), bounds)| KeyPatch {
        expires_at,
        group,
        bounds,
        ..KeyPatch::default()
    })
}

fn group_patch() -> impl Strategy<Value = GroupPatch> {
    (option::weighted(0.2, parent()), bounds_patch()).prop_map(|(parent, bounds)| GroupPatch {
        parent,
        bounds,
        ..GroupPatch::default()
    })
}

/// Generates the group of a key, or the parent of a group. The account may lack it.
fn parent() -> impl Strategy<Value = Option<GroupId>> {
    option::of((0..=GROUPS).prop_map(group))
}

/// Generates few of the possible bounds, so tight that requests reach them.
fn bounds_patch() -> impl Strategy<Value = BoundsPatch> {
    let rarely = |value| option::weighted(0.15, option::weighted(0.8, value));
    let limit = option::of(option::of(nanos(0..1_500)));
    let windows = subsequence(Per::ALL.to_vec(), 0..=Per::ALL.len()).prop_shuffle();
    let windows = windows.prop_flat_map(|lengths| {
        let amounts = vec((nanos(0..900), option::weighted(0.3, raise())), lengths.len());
        amounts.prop_map(move |amounts| {
            let limit = |(per, (amount, raised)): (Per, (NanoUsd, Option<Raise>))| Limit {
                raised,
                ..Limit::new(amount, per)
            };
            lengths.iter().copied().zip(amounts).map(limit).collect::<Vec<_>>()
        })
    });
    let limit_raised = option::weighted(0.3, option::weighted(0.9, raise()));
    let models = subsequence(MODELS.to_vec(), 0..=MODELS.len())
        .prop_map(|models| models.into_iter().map(String::from).collect::<Vec<_>>());
    let rates = (rarely(1..9_u64), rarely(1..200_u64), rarely(1..4_u64));
    let models = option::weighted(0.1, option::weighted(0.6, models));
    ((limit, limit_raised), option::weighted(0.3, windows), models, rates).prop_map(
        |(
            (limit, limit_raised),
            windows,
            models,
            (requests_per_minute, tokens_per_minute, max_in_flight),
        )| {
            BoundsPatch {
                limit,
                limit_raised,
                windows,
                models,
                requests_per_minute,
                tokens_per_minute,
                max_in_flight,
            }
        },
    )
}

/// Generates raises, most of them above the limits of histories, that end some seconds later or at the end of a window.
fn raise() -> impl Strategy<Value = Raise> {
    let until = prop_oneof![
        6 => (0..90_u64).prop_map(|seconds| START.plus(Duration::from_secs(seconds))),
        1 => (0..9_u64).prop_map(|hours| Per::Hour.end(START).plus(Duration::from_hours(hours))),
    ];
    (nanos(600..2_000), until).prop_map(|(amount, until)| Raise { amount, until })
}

/// Returns how a caller sent a request: two thirds name one of a few users, and half of those have a request id.
fn origin(n: u64) -> Option<Arc<Origin>> {
    let user = (!n.is_multiple_of(3)).then(|| format!("user-{}", n % 40));
    let request = n.is_multiple_of(2).then(|| RequestId::new(START.plus(Duration::from_secs(n)), [7; 10]));
    user.map(|user| Arc::new(Origin { api: ModelApi::Chat, stream: false, user: Some(user), request }))
}

/// Derives the id of a payment's deposit in this account from the payment's id.
fn named_by_payment(mut command: Command, account: AccountId) -> Command {
    match &mut command {
        Command::Deposit { id, payment_id: Some(payment), .. }
        | Command::Refund { id, payment_id: payment, .. } => *id = payment.deposit(account),
        Command::Deposit { payment_id: None, .. }
        | Command::Tick { .. }
        | Command::Check { .. }
        | Command::Hold(_)
        | Command::Extend { .. }
        | Command::Capture { .. }
        | Command::Release { .. }
        | Command::Expire { .. } => {}
    }
    command
}

fn command() -> impl Strategy<Value = Command> {
    let key = || (0..=KEYS).prop_map(key);
    // Most commands for a generation name the same key, as in production.
    let ids = || {
        (0..GENERATIONS, 0..10_u8, 0..=KEYS)
            .prop_map(|(g, stray, k)| (self::key(if stray == 0 { k } else { g % KEYS }), of_history(g)))
    };
    let bounds = (nanos(0..300), nanos(0..200), nanos(0..500));
    prop_oneof![
        4 => ((0..20_u8).prop_map(deposit), deposited(), option::weighted(0.6, payment_id()), paid_to()).prop_map(
            |(id, amount, payment_id, to)| {
                Command::Deposit { id, amount, note: String::new(), payment_id, to, actor: Actor::System }
            }
        ),
        3 => (payment_id(), nanos(1..700), paid_to(), any::<bool>(), option::of(payment_id())).prop_map(
            |(payment_id, amount, from, partial, of)| {
                let (id, note, actor) = (deposit(0), String::new(), Actor::System);
                Command::Refund { id, payment_id, amount, from, partial, of, note, actor }
            }
        ),
        4 => option::of(0..12_u64).prop_map(|seen| Command::Tick { seen }),
        2 => (key(), credential()).prop_map(|(key, credential)| Command::Check { key, credential }),
        8 => (ids(), credential(), model(), bounds, (0..60_u64, any::<bool>()), 0..4_u64).prop_map(
            |((key, generation), credential, model, (least, enough, most), (prompt_tokens, readmitted), lease_ticks)| {
                let enough = NanoUsd::from_nanos(least.nanos().saturating_add(enough.nanos()));
                let most = NanoUsd::from_nanos(enough.nanos().saturating_add(most.nanos()));
                Command::Hold(NewHold {
                    key,
                    credential,
                    generation,
                    model,
                    least,
                    enough,
                    most,
                    room_for_bound: if readmitted { most } else { NanoUsd::ZERO },
                    prompt_tokens,
                    readmitted,
                    lease_ticks,
                    origin: origin(prompt_tokens),
                })
            }
        ),
        4 => (ids(), nanos(0..900), progress(), 0..4_u64).prop_map(
            |((key, generation), most, progress, lease_ticks)| {
                Command::Extend { key, generation, most, progress, lease_ticks }
            }
        ),
        5 => (ids(), model(), progress(), option::weighted(0.2, nanos(0..700)), any::<bool>()).prop_map(
            |((key, generation), model, total, chargeable, estimated)| {
                Command::Capture { key, generation, model, total, chargeable, estimated }
            }
        ),
        2 => ids().prop_map(|(key, generation)| Command::Release { key, generation }),
        4 => ids().prop_map(|(key, generation)| Command::Expire { key, generation }),
    ]
}

fn model() -> impl Strategy<Value = String> {
    select(MODELS.to_vec()).prop_map(String::from)
}

/// Generates mostly small amounts, so that sums reach limits, and sometimes the largest possible amount.
fn nanos(small: std::ops::Range<i64>) -> impl Strategy<Value = NanoUsd> {
    prop_oneof![19 => small.prop_map(NanoUsd::from_nanos), 1 => Just(NanoUsd::MAX)]
}

/// Generates ids of payments and refunds, so few that some are repeated.
fn payment_id() -> impl Strategy<Value = PaymentId> {
    (0..24_u8).prop_filter_map("an id", |n| PaymentId::parse(&format!("pay_{n}")))
}

/// Generates where a payment goes. The account may lack the group.
fn paid_to() -> impl Strategy<Value = PaidTo> {
    let group = || (0..=GROUPS).prop_map(group);
    prop_oneof![
        4 => Just(PaidTo::Account),
        3 => group().prop_map(PaidTo::Wallet),
        3 => group().prop_map(PaidTo::Both),
    ]
}

/// Generates valid and invalid deposits.
fn deposited() -> impl Strategy<Value = NanoUsd> {
    prop_oneof![9 => nanos(1..1_000), 1 => (-5..=0_i64).prop_map(NanoUsd::from_nanos)]
}

fn progress() -> impl Strategy<Value = Progress> {
    let tokens = || prop_oneof![19 => 0..1_000_u64, 1 => Just(u64::MAX)];
    let few = || prop_oneof![3 => 0..100_u64, 1 => tokens()];
    let details = (few(), few(), few(), few(), few(), few()).prop_map(
        |(cache_write, cache_write_long, audio_input, images, reasoning, audio_output)| UsageDetails {
            cache_write,
            cache_write_long,
            audio_input,
            images,
            reasoning,
            audio_output,
        },
    );
    let details = option::weighted(0.3, details).prop_map(Option::unwrap_or_default);
    (tokens(), tokens(), tokens(), details, nanos(0..700), option::weighted(0.3, nanos(0..700))).prop_map(
        |(prompt, cached, completion, details, cost, upstream_cost)| Progress {
            usage: Usage { prompt, cached, completion, details },
            cost,
            upstream_cost,
            course: None,
        },
    )
}

/// Generates times within the duration of a history, in steps so large that some are equal.
fn time() -> impl Strategy<Value = Timestamp> {
    (0..60_u64).prop_map(|seconds| START.plus(Duration::from_secs(seconds)))
}
