//! Histories for the ledger's script: at the limits of numbers and times, and of accounts without groups and bounds.

use std::time::Duration;

use shared::{
    calendar::Per,
    ids::KeyId,
    money::NanoUsd,
    tokens::{Usage, UsageDetails},
};

use domain::{
    digest::Digest,
    event::Actor,
    group::GroupPatch,
    key::{KeyPatch, NewCredential},
    ledger::{
        BoundsPatch, Command, NewHold, Progress,
        histories::{self, ACCOUNTS, Clock, GENERATIONS, KEYS, START, Step, account, group, key, of_history},
    },
};

/// The history with keys alone, whose accounts need no chains of budgets.
pub(super) fn without_chains(history: Vec<Step>) -> Vec<Step> {
    let keys = (0..ACCOUNTS).flat_map(|a| (0..KEYS).map(move |k| (account(a), key(k))));
    let alone = keys.map(|(account, key)| {
        Step::Update(account, key, KeyPatch { group: Some(None), ..KeyPatch::default() })
    });
    let plain = |step| match step {
        Step::Execute(account, commands) => {
            let plain = |command| with_parts(command, None, UsageDetails::default());
            Step::Execute(account, commands.into_iter().map(plain).collect())
        }
        Step::Update(account, key, patch) => {
            let bounds = BoundsPatch { limit: patch.bounds.limit, ..BoundsPatch::default() };
            Step::Update(account, key, KeyPatch { group: None, bounds, ..patch })
        }
        other => other,
    };
    alone.chain(history.into_iter().map(plain)).collect()
}

/// The command with this cost to the operator and these details of usage, if it reports usage.
fn with_parts(command: Command, upstream_cost: Option<NanoUsd>, details: UsageDetails) -> Command {
    let with = |progress: Progress| {
        let usage = Usage { details, ..progress.usage };
        Progress { usage, upstream_cost, ..progress }
    };
    match command {
        Command::Extend { key, generation, most, progress, lease_ticks } => {
            Command::Extend { key, generation, most, progress: with(progress), lease_ticks }
        }
        Command::Capture { key, generation, model, total, chargeable, estimated } => {
            Command::Capture { key, generation, model, total: with(total), chargeable, estimated }
        }
        other => other,
    }
}

/// The command with a cost to the operator and details of usage.
fn detailed(command: Command, parts: u64) -> Command {
    let details = UsageDetails { cache_write: parts, images: parts, ..UsageDetails::default() };
    with_parts(command, Some(NanoUsd::from_nanos(parts.cast_signed())), details)
}

/// Short histories at the limits of numbers, amounts, times and bounds, which random histories seldom reach.
pub(super) fn edges() -> Vec<Vec<Step>> {
    [of_money(), of_windows(), of_rates_and_models(), of_groups(), of_rotations(), of_bills()].concat()
}

const fn nanos(amount: i64) -> NanoUsd {
    NanoUsd::from_nanos(amount)
}

fn at_once(commands: impl Into<Vec<Command>>) -> Step {
    Step::Execute(account(0), commands.into())
}

/// Credit for the first account.
fn paid(amount: i64) -> Step {
    at_once([deposit(1, nanos(amount))])
}

fn deposit(n: u8, amount: NanoUsd) -> Command {
    Command::Deposit {
        id: histories::deposit(n),
        amount,
        note: String::new(),
        payment_id: None,
        actor: Actor::System,
    }
}

fn hold(n: u8, amount: NanoUsd) -> Command {
    hold_of(key(0), n, [amount; 3])
}

fn hold_of(key: KeyId, n: u8, [least, enough, most]: [NanoUsd; 3]) -> Command {
    let (model, prompt_tokens, lease_ticks) = ("Model Flash".into(), 1, 1);
    Command::Hold(NewHold {
        key,
        credential: 0,
        generation: of_history(n),
        model,
        least,
        enough,
        most,
        prompt_tokens,
        readmitted: false,
        lease_ticks,
    })
}

fn check(key: KeyId, credential: u64) -> Command {
    Command::Check { key, credential }
}

/// Checks of the first credentials.
fn checks(key: KeyId) -> Step {
    at_once([0, 1, 2, 3].map(|credential| check(key, credential)))
}

/// A rotation with this grace.
fn rotate(key: KeyId, seconds: u8) -> Step {
    let (digest, hint) = (Digest::of(&[seconds]), "fg_api_…".to_owned());
    let grace = Duration::from_secs(seconds.into());
    Step::Rotate(NewCredential { account: account(0), key, digest, hint, grace, is_forced: false })
}

fn progress(tokens: u64, cost: NanoUsd) -> Progress {
    Progress { usage: Usage::of(tokens, tokens, tokens), cost, upstream_cost: None }
}

fn report(n: u8, tokens: u64, cost: NanoUsd) -> Command {
    extend(key(0), n, NanoUsd::ZERO, progress(tokens, cost))
}

fn grow(n: u8, most: NanoUsd) -> Command {
    extend(key(0), n, most, progress(0, NanoUsd::ZERO))
}

fn extend(key: KeyId, n: u8, most: NanoUsd, progress: Progress) -> Command {
    Command::Extend { key, generation: of_history(n), most, progress, lease_ticks: 1 }
}

/// An extension whose lease ends before that of the hold.
fn shorten(n: u8) -> Command {
    let (key, generation, most) = (key(0), of_history(n), NanoUsd::ZERO);
    Command::Extend { key, generation, most, progress: progress(0, NanoUsd::ZERO), lease_ticks: 0 }
}

fn capture(n: u8, tokens: u64, cost: NanoUsd) -> Command {
    capture_of(key(0), n, progress(tokens, cost))
}

fn capture_of(key: KeyId, n: u8, total: Progress) -> Command {
    let model = "Model Flash".into();
    Command::Capture { key, generation: of_history(n), model, total, chargeable: None, estimated: false }
}

/// Ends the lease of a hold.
fn expire(n: u8) -> Step {
    let generation = of_history(n);
    at_once([Command::Tick { seen: Some(0) }, Command::Expire { key: key(0), generation }])
}

fn wait(seconds: u64) -> Step {
    Step::Clock(Clock::Wait(Duration::from_secs(seconds)))
}

fn bounded(bounds: BoundsPatch) -> Step {
    Step::Update(account(0), key(0), KeyPatch { bounds, ..KeyPatch::default() })
}

fn a_day() -> BoundsPatch {
    BoundsPatch { windows: Some(vec![(Per::Day, nanos(100))]), ..BoundsPatch::default() }
}

fn in_flight(most: Option<u64>) -> BoundsPatch {
    BoundsPatch { max_in_flight: Some(most), ..BoundsPatch::default() }
}

fn of_money() -> Vec<Vec<Step>> {
    let short_lived =
        KeyPatch { expires_at: Some(Some(START.plus(Duration::from_secs(9)))), ..KeyPatch::default() };
    vec![
        vec![paid(100), Step::Update(account(0), key(0), short_lived), wait(9), at_once([hold(1, nanos(5))])],
        // A key that spends its limit to the last.
        vec![
            paid(100),
            bounded(BoundsPatch::of_limit(Some(nanos(10)))),
            at_once([hold(1, nanos(10)), capture(1, 1, nanos(10)), check(key(0), 0)]),
        ],
        // A hold that asks for more after its key was revoked.
        vec![
            paid(100),
            at_once([hold(1, nanos(5))]),
            Step::Revoke(account(0), key(0)),
            at_once([grow(1, nanos(50)), hold(2, nanos(5)), capture(1, 1, nanos(50))]),
        ],
        // Costs that a hold, and all that is left, do not cover.
        vec![paid(100), at_once([hold(1, nanos(50)), capture(1, 1, nanos(150)), hold(2, nanos(1))])],
        // A hold of less than is enough, beside another.
        vec![paid(100), at_once([hold(1, nanos(50)), hold_of(key(0), 2, [nanos(10), nanos(60), nanos(80)])])],
        vec![
            paid(100),
            at_once([hold(1, nanos(50))]),
            at_once([Command::Release { key: key(0), generation: of_history(1) }, hold(2, nanos(100))]),
        ],
        // Holds sent again, before and after the capture; a hold of no more than it must; holds up to the limit.
        vec![
            paid(100),
            bounded(BoundsPatch::of_limit(Some(nanos(60)))),
            at_once([hold(1, nanos(5)), hold(1, nanos(5))]),
            at_once([capture(1, 1, nanos(5))]),
            at_once([hold(1, nanos(5)), hold_of(key(0), 2, [nanos(10), nanos(10), nanos(5)])]),
            at_once([hold(3, nanos(40)), hold(4, nanos(40))]),
        ],
        // A lease that an extension does not shorten.
        vec![
            paid(100),
            at_once([
                hold(1, nanos(5)),
                shorten(1),
                Command::Expire { key: key(0), generation: of_history(1) },
            ]),
        ],
        // Deposits sent again, within a batch and later.
        vec![
            paid(100),
            at_once([deposit(2, nanos(5)), deposit(2, nanos(5)), deposit(3, nanos(0))]),
            paid(100),
        ],
        // Captures of times that are too late and too early, without a hold.
        vec![
            paid(100),
            bounded(BoundsPatch::of_limit(Some(nanos(3)))),
            at_once([GENERATIONS - 1, GENERATIONS - 2, 1].map(|n| capture(n, 1, nanos(5)))),
        ],
    ]
}

fn of_windows() -> Vec<Vec<Step>> {
    vec![
        vec![
            paid(1_000),
            bounded(a_day()),
            at_once([hold(1, nanos(50)), report(1, 5, nanos(40))]),
            expire(1),
            at_once([capture(1, 5, nanos(10)), hold(2, nanos(90)), hold(3, nanos(1))]),
        ],
        // Bills that the next hold of the batch finds in the window.
        vec![
            paid(1_000),
            bounded(a_day()),
            at_once([hold(1, nanos(30))]),
            at_once([capture(1, 5, nanos(30)), hold(2, nanos(80))]),
            at_once([hold(3, nanos(40)), capture(3, 5, nanos(40)), hold(4, nanos(40))]),
        ],
        // A correction on the next day.
        vec![
            paid(1_000),
            bounded(a_day()),
            at_once([hold(1, nanos(50)), report(1, 5, nanos(40))]),
            expire(1),
            Step::Clock(Clock::WaitForEnd(Per::Day)),
            at_once([hold(2, nanos(30)), capture(2, 1, nanos(30)), capture(1, 5, nanos(10))]),
            at_once([hold(3, nanos(80)), hold(4, nanos(70))]),
        ],
    ]
}

fn of_rates_and_models() -> Vec<Vec<Step>> {
    let requests = |most| BoundsPatch { requests_per_minute: Some(Some(most)), ..BoundsPatch::default() };
    let tokens = |most| BoundsPatch { tokens_per_minute: Some(Some(most)), ..BoundsPatch::default() };
    let of_models = |models: &[&str]| BoundsPatch {
        models: Some(Some(models.iter().map(ToString::to_string).collect())),
        ..BoundsPatch::default()
    };
    let holds = |numbers: [u8; 3]| at_once(numbers.map(|n| hold(n, nanos(1))));
    vec![
        vec![
            paid(1_000),
            bounded(requests(2)),
            holds([1, 2, 3]),
            wait(30),
            holds([4, 5, 6]),
            holds([7, 8, 9]),
        ],
        vec![
            paid(1_000),
            bounded(tokens(2)),
            holds([1, 2, 3]),
            at_once([capture(1, 0, nanos(1)), capture(2, 7, nanos(1))]),
        ],
        vec![paid(1_000), bounded(of_models(&["Model Max"])), holds([1, 2, 3])],
        // A bound that is removed while its last request is in flight, then set again.
        vec![
            paid(1_000),
            bounded(in_flight(Some(2))),
            at_once([hold(1, nanos(5))]),
            bounded(in_flight(None)),
            at_once([capture(1, 1, nanos(5)), hold(2, nanos(5))]),
            bounded(in_flight(Some(1))),
            at_once([hold(3, nanos(5)), hold(4, nanos(5))]),
        ],
    ]
}

/// The second key is in the second group, a child of the first.
fn of_groups() -> Vec<Vec<Step>> {
    let (key, billed) = (key(1), |cost| progress(1, nanos(cost)));
    let hold = |n, amount| hold_of(key, n, [nanos(amount); 3]);
    let limited = |n| {
        let bounds = BoundsPatch::of_limit(Some(nanos(100)));
        Step::UpdateGroup(account(0), group(n), GroupPatch { bounds, ..GroupPatch::default() })
    };
    let moved = KeyPatch { group: Some(Some(group(2))), ..KeyPatch::default() };
    vec![
        vec![
            paid(1_000),
            limited(0),
            at_once([hold(1, 60)]),
            at_once([capture_of(key, 1, billed(60)), hold(2, 50)]),
            at_once([hold(3, 30), Command::Release { key, generation: of_history(3) }, hold(4, 40)]),
        ],
        vec![
            paid(1_000),
            at_once([hold(1, 60)]),
            Step::Archive(account(0), group(0)),
            at_once([extend(key, 1, nanos(90), billed(0)), hold(2, 50), check(key, 0)]),
        ],
        vec![
            paid(1_000),
            at_once([hold(1, 60)]),
            Step::Update(account(0), key, moved),
            at_once([capture_of(key, 1, billed(60))]),
            at_once([hold(2, 50), capture_of(key, 2, billed(30))]),
        ],
    ]
}

/// The first key is alone, and the second one part of a chain.
fn of_rotations() -> Vec<Vec<Step>> {
    let history = |key| {
        let bill = |n| at_once([hold_of(key, n, [nanos(5); 3]), capture_of(key, n, progress(1, nanos(5)))]);
        vec![
            paid(100),
            checks(key),
            rotate(key, 9),
            bill(1),
            checks(key),
            wait(9),
            checks(key),
            rotate(key, 8),
            checks(key),
            wait(8),
            rotate(key, 0),
            bill(2),
            checks(key),
        ]
    };
    vec![history(key(0)), history(key(1))]
}

fn of_bills() -> Vec<Vec<Step>> {
    let (most, all_but_one) = (NanoUsd::MAX, nanos(NanoUsd::MAX.nanos() - 1));
    vec![
        // Details and costs to the operator in reports that overtake each other, and in a correction.
        vec![
            paid(100),
            at_once([hold(1, nanos(50))]),
            at_once([detailed(report(1, 20, nanos(20)), 7), detailed(report(1, 10, nanos(10)), 3)]),
            expire(1),
            at_once([detailed(capture(1, 25, nanos(30)), 9)]),
            at_once([hold(2, nanos(5)), detailed(capture(2, 25, nanos(5)), 4)]),
        ],
        // A bill without further parts after one that has them.
        vec![
            paid(100),
            at_once([hold(1, nanos(5)), hold(2, nanos(5))]),
            at_once([detailed(capture(1, 25, nanos(5)), 4)]),
            at_once([capture(2, 25, nanos(5))]),
        ],
        // Reports that overtake each other, and a correction of the bill to more than is left.
        vec![
            paid(100),
            at_once([hold(1, nanos(50))]),
            at_once([report(1, 20, nanos(20)), report(1, 10, nanos(10))]),
            expire(1),
            at_once([capture(1, 25, nanos(130))]),
        ],
        // A correction that credit at its bound can only partly take.
        vec![
            at_once([deposit(1, most), hold(1, most), report(1, u64::MAX, most)]),
            expire(1),
            at_once([deposit(2, most), capture(1, 5, nanos(10))]),
        ],
        // Charges of a key that exceed the exact range of a double.
        vec![
            at_once([deposit(1, most), hold(1, most), capture(1, 1, all_but_one)]),
            at_once([deposit(2, all_but_one), hold(2, most), capture(2, 1, all_but_one)]),
            at_once([capture(3, 1, nanos(1))]),
        ],
    ]
}
