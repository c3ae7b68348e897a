//! Mutation test of the random histories: each of these faults, planted in the script, is caught.

mod edges;
mod faults;
mod imports;

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use parking_lot::Mutex;
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
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

/// Number of random histories within which a fault must show, always the same histories. Most faults show in the short
/// histories before these.
const HISTORIES: usize = 400;
/// Number of random histories among them in which no key has groups or bounds, so that the script without chains runs.
const HISTORIES_WITHOUT_CHAINS: usize = 100;
/// Name of the threads whose panics are expected, and not printed.
const EXPECTED_TO_FAIL: &str = "mutant";

#[test]
fn every_fault_planted_in_the_script_is_caught() {
    print_no_panics_of_mutants();
    let (server, histories) = (server(), histories());
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let try_faults = || {
        while let Some((what, right, wrong)) = FAULTS.get(next.fetch_add(1, Ordering::Relaxed)) {
            if first_failure(&server, &LEDGER.replace(right, wrong), &histories).is_none() {
                missed.lock().push(*what);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            let mutants = thread::Builder::new().name(EXPECTED_TO_FAIL.into());
            mutants.spawn_scoped(scope, try_faults).unwrap();
        }
    });
    assert_eq!(missed.into_inner(), [""; 0], "not caught, of {} faults", FAULTS.len());
}

#[test]
fn the_text_of_every_fault_occurs_once() {
    for (what, right, _) in FAULTS {
        assert_eq!(LEDGER.matches(right).count(), 1, "{what}");
    }
}

#[test]
fn the_script_without_a_fault_passes() {
    assert_eq!(first_failure(&server(), LEDGER, &histories()), None);
}

fn server() -> RedisServer {
    RedisServer::start_with(&["--port", "0", "--appendonly", "no"])
}

/// The failures of a mutant say nothing, and the backtraces of so many take minutes.
fn print_no_panics_of_mutants() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if thread::current().name() != Some(EXPECTED_TO_FAIL) {
            print(info);
        }
    }));
}

/// The histories that each fault is tried with, in their order.
fn histories() -> Vec<Vec<Step>> {
    let chance = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), chance);
    let random = |n| {
        let history = history().new_tree(&mut runner).unwrap().current();
        if n % 2 == 0 && n < 2 * HISTORIES_WITHOUT_CHAINS { without_chains(history) } else { history }
    };
    edges().into_iter().chain((0..HISTORIES).map(random)).collect()
}

/// The first history that ends differently from the ledger.
fn first_failure(server: &RedisServer, ledger: &str, histories: &[Vec<Step>]) -> Option<usize> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let fails = |history: &Vec<Step>| {
        let run = async { live(&mut Mutant::new(server, ledger).await, history.clone()).await };
        panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(run))).is_err()
    };
    histories.iter().position(fails)
}

/// A store of which a script has a fault.
struct Mutant {
    store: Arc<dyn Store>,
    _data_dir: TempDir,
}

impl Mutant {
    async fn new(server: &RedisServer, ledger: &str) -> Self {
        Self::of(server, |store| store.with_ledger(ledger)).await
    }

    /// A new store, changed by this function.
    async fn of(server: &RedisServer, change: impl FnOnce(Redis) -> Redis) -> Self {
        let data_dir = tempfile::tempdir().unwrap();
        let settings =
            crate::store::redis::Settings { volatile_allowed: true, ..settings(&server.url(), &data_dir) };
        let store = Redis::open(&settings, Arc::new(System)).await.unwrap();
        Self { store: Arc::new(change(store)), _data_dir: data_dir }
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
