//! Mutation test of the random histories: each of these faults, planted in the script, is caught.

mod edges;
mod faults;

use std::sync::Arc;

use proptest::{
    strategy::{Just, Strategy},
    test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner},
};
use shared::{clock::System, ids::AccountId};
use tempfile::TempDir;

use self::{
    edges::{edges, without_chains},
    faults::FAULTS,
};
use super::{Fault, Subject, in_redis::settings, servers::RedisServer, spending::live};
use crate::store::{
    Store,
    redis::{LEDGER, Redis},
};
use domain::ledger::histories::{Step, history};

/// Number of histories within which a fault must show, always the same histories. Most faults show in the first ten.
const HISTORIES: u32 = 400;
/// Number of histories before these in which no key has groups or bounds, so that the script without chains runs.
const HISTORIES_WITHOUT_CHAINS: u32 = 100;

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
        .or_else(|| run(server, ledger, HISTORIES_WITHOUT_CHAINS, &history().prop_map(without_chains)))
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
        Self { store: Arc::new(store.with_ledger(ledger)), _data_dir: data_dir }
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
