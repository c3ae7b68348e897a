//! Histories for the ledger's script: at the limits of numbers and times, and of accounts without groups and bounds.

use domain::event::Actor;
use std::time::Duration;

use shared::{
    calendar::Per,
    money::NanoUsd,
    tokens::{Usage, UsageDetails},
};

use domain::{
    key::KeyPatch,
    ledger::{
        BoundsPatch, Command, Progress,
        histories::{ACCOUNTS, Clock, KEYS, START, Step, account, deposit, generation, key},
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
        Command::Capture { key, generation, model, total, estimated } => {
            Command::Capture { key, generation, model, total: with(total), estimated }
        }
        other => other,
    }
}

/// The command with a cost to the operator and details of usage.
fn detailed(command: Command, parts: u64) -> Command {
    let details = UsageDetails { cache_write: parts, images: parts, ..UsageDetails::default() };
    with_parts(command, Some(NanoUsd::from_nanos(parts.cast_signed())), details)
}

/// Histories at the limits of numbers, amounts and times, which random histories seldom reach.
pub(super) fn edges() -> Vec<Vec<Step>> {
    let (mine, key) = (account(0), key(0));
    let nanos = NanoUsd::from_nanos;
    let (most, all_but_one) = (NanoUsd::MAX, nanos(NanoUsd::MAX.nanos() - 1));
    let deposit = |n, amount| Command::Deposit { id: deposit(n), amount, actor: Actor::System };
    let hold = |n, amount| Command::Hold {
        key,
        generation: generation(n),
        model: "Model Flash".into(),
        least: amount,
        enough: amount,
        most: amount,
        prompt_tokens: 1,
        lease_ticks: 1,
    };
    let progress =
        |tokens, cost| Progress { usage: Usage::of(tokens, tokens, tokens), cost, upstream_cost: None };
    let extend = |n, most, progress| Command::Extend {
        key,
        generation: generation(n),
        most,
        progress,
        lease_ticks: 1,
    };
    let report = |n, tokens, cost| extend(n, NanoUsd::ZERO, progress(tokens, cost));
    let grow = |n, most| extend(n, most, progress(0, NanoUsd::ZERO));
    let capture = |n, tokens, cost| Command::Capture {
        key,
        generation: generation(n),
        model: "Model Flash".into(),
        total: progress(tokens, cost),
        estimated: false,
    };
    let expire =
        |n| vec![Command::Tick { seen: Some(0) }, Command::Expire { key, generation: generation(n) }];
    let at_once = |commands| Step::Execute(mine, commands);
    let bounded = |bounds| Step::Update(mine, key, KeyPatch { bounds, ..KeyPatch::default() });
    let a_day = BoundsPatch { windows: Some(vec![(Per::Day, nanos(100))]), ..BoundsPatch::default() };
    let limited = |amount| BoundsPatch { limit: Some(Some(nanos(amount))), ..BoundsPatch::default() };
    let short_lived =
        KeyPatch { expires_at: Some(Some(START.plus(Duration::from_secs(9)))), ..KeyPatch::default() };
    vec![
        vec![
            at_once(vec![deposit(1, nanos(100))]),
            Step::Update(mine, key, short_lived),
            Step::Clock(Clock::Wait(Duration::from_secs(9))),
            at_once(vec![hold(1, nanos(5))]),
        ],
        vec![
            at_once(vec![deposit(1, nanos(1_000))]),
            bounded(a_day.clone()),
            at_once(vec![hold(1, nanos(50)), report(1, 5, nanos(40))]),
            at_once(expire(1)),
            at_once(vec![capture(1, 5, nanos(10)), hold(2, nanos(90)), hold(3, nanos(1))]),
        ],
        // A key that spends its limit to the last.
        vec![
            at_once(vec![deposit(1, nanos(100))]),
            bounded(limited(10)),
            at_once(vec![hold(1, nanos(10)), capture(1, 1, nanos(10)), Command::Check { key }]),
        ],
        // A hold that asks for more after its key was revoked.
        vec![
            at_once(vec![deposit(1, nanos(100)), hold(1, nanos(5))]),
            Step::Revoke(mine, key),
            at_once(vec![grow(1, nanos(50)), capture(1, 1, nanos(50))]),
        ],
        // A correction on the next day.
        vec![
            at_once(vec![deposit(1, nanos(1_000))]),
            bounded(a_day),
            at_once(vec![hold(1, nanos(50)), report(1, 5, nanos(40))]),
            at_once(expire(1)),
            Step::Clock(Clock::WaitForEnd(Per::Day)),
            at_once(vec![hold(2, nanos(30)), capture(2, 1, nanos(30)), capture(1, 5, nanos(10))]),
            at_once(vec![hold(3, nanos(80)), hold(4, nanos(70))]),
        ],
        vec![
            at_once(vec![deposit(1, nanos(1_000))]),
            bounded(BoundsPatch { requests_per_minute: Some(Some(2)), ..BoundsPatch::default() }),
            at_once((1..=3).map(|n| hold(n, nanos(1))).collect()),
        ],
        // Details and costs to the operator in reports that overtake each other, and in a correction.
        vec![
            at_once(vec![deposit(1, nanos(100)), hold(1, nanos(50))]),
            at_once(vec![detailed(report(1, 20, nanos(20)), 7), detailed(report(1, 10, nanos(10)), 3)]),
            at_once(expire(1)),
            at_once(vec![detailed(capture(1, 25, nanos(30)), 9)]),
        ],
        // Reports that overtake each other, and a correction of the bill.
        vec![
            at_once(vec![deposit(1, nanos(100)), hold(1, nanos(50))]),
            at_once(vec![report(1, 20, nanos(20)), report(1, 10, nanos(10))]),
            at_once(expire(1)),
            at_once(vec![capture(1, 25, nanos(30))]),
        ],
        // A correction that credit at its bound can only partly take.
        vec![
            at_once(vec![deposit(1, most), hold(1, most), report(1, u64::MAX, most)]),
            at_once(expire(1)),
            at_once(vec![deposit(2, most), capture(1, 5, nanos(10))]),
        ],
        // Charges of a key that exceed the exact range of a double.
        vec![
            at_once(vec![deposit(1, most), hold(1, most), capture(1, 1, all_but_one)]),
            at_once(vec![deposit(2, all_but_one), hold(2, most), capture(2, 1, all_but_one)]),
            at_once(vec![capture(3, 1, nanos(1))]),
        ],
    ]
}
