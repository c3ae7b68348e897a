//! Mutation test of the random histories: each of these faults, planted in the script, is caught.

mod faults;

use std::{sync::Arc, time::Duration};

use proptest::{
    strategy::{Just, Strategy},
    test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner},
};
use shared::{clock::System, ids::AccountId, money::NanoUsd, tokens::Usage};
use tempfile::TempDir;

use self::faults::FAULTS;
use super::{Fault, Subject, in_redis::settings, servers::RedisServer, spending::live};
use crate::store::{
    Store,
    redis::{LEDGER, Redis},
};
use domain::{
    key::KeyPatch,
    ledger::{
        Command, Progress,
        histories::{Clock, START, Step, account, deposit, generation, history, key},
    },
};

/// Number of histories within which a fault must show, always the same histories. Most faults show in the first ten.
const HISTORIES: u32 = 400;

#[test]
fn every_fault_planted_in_the_script_is_caught() {
    let server = Arc::new(RedisServer::start_with(&["--port", "0", "--appendonly", "no"]));
    let missed: Vec<_> =
        FAULTS.iter().filter(|fault| !is_caught(&server, fault)).map(|fault| fault.0).collect();
    assert_eq!(missed, [""; 0], "not caught, of {} faults", FAULTS.len());
}

#[test]
fn the_script_without_a_fault_passes() {
    let server = Arc::new(RedisServer::start_with(&["--port", "0", "--appendonly", "no"]));
    assert!(first_failure(&server, LEDGER).is_none());
}

fn is_caught(server: &Arc<RedisServer>, (what, right, wrong): &(&str, &str, &str)) -> bool {
    assert_eq!(LEDGER.matches(right).count(), 1, "{what}: the text to replace must occur exactly once");
    first_failure(server, &LEDGER.replace(right, wrong)).is_some()
}

/// The first history that ends differently from the ledger.
fn first_failure(server: &Arc<RedisServer>, ledger: &str) -> Option<String> {
    edges()
        .into_iter()
        .find_map(|edge| run(server, ledger, 1, &Just(edge)))
        .or_else(|| run(server, ledger, HISTORIES, &history()))
}

fn run(
    server: &Arc<RedisServer>,
    ledger: &str,
    cases: u32,
    histories: &impl Strategy<Value = Vec<Step>>,
) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    let chance = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let outcome = TestRunner::new_with_rng(config, chance).run(histories, |history| {
        let mut mutant = runtime.block_on(Mutant::new(server, ledger));
        runtime.block_on(live(&mut mutant, history));
        Ok(())
    });
    match outcome {
        Ok(()) => None,
        Err(TestError::Fail(reason, _) | TestError::Abort(reason)) => Some(reason.to_string()),
    }
}

/// Histories at the limits of numbers and times, which random histories seldom reach, each with a key without a
/// limit.
fn edges() -> Vec<Vec<Step>> {
    let (mine, key) = (account(0), key(0));
    let nanos = NanoUsd::from_nanos;
    let (most, all_but_one) = (NanoUsd::MAX, nanos(NanoUsd::MAX.nanos() - 1));
    let deposit = |n, amount| Command::Deposit { id: deposit(n), amount };
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
    let report = |n, tokens, cost| Command::Extend {
        key,
        generation: generation(n),
        most: NanoUsd::ZERO,
        progress: progress(tokens, cost),
        lease_ticks: 1,
    };
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
    let short_lived =
        KeyPatch { expires_at: Some(Some(START.plus(Duration::from_secs(9)))), ..KeyPatch::default() };
    vec![
        vec![
            at_once(vec![deposit(1, nanos(100))]),
            Step::Update(mine, key, short_lived),
            Step::Clock(Clock::Wait(Duration::from_secs(9))),
            at_once(vec![hold(1, nanos(5))]),
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

/// A store whose ledger has a fault.
struct Mutant {
    store: Arc<dyn Store>,
    _data_dir: TempDir,
}

impl Mutant {
    async fn new(server: &RedisServer, ledger: &str) -> Self {
        let data_dir = tempfile::tempdir().unwrap();
        let settings =
            crate::store::redis::Settings { volatile_allowed: true, ..settings(&server.url(), &data_dir) };
        let store = Redis::open(&settings, Arc::new(System)).await.unwrap();
        Self { store: Arc::new(store.with_ledger(ledger.to_owned())), _data_dir: data_dir }
    }
}

impl Subject for Mutant {
    async fn new() -> Self {
        unreachable!("a mutant needs its fault")
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    async fn doctor(&self, _: AccountId, _: Fault) {
        unreachable!("a mutant has a fault of its own")
    }
}
