//! What a Redis is refused for, and what the store makes of one that goes away, comes back, or comes back older.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use shared::{
    clock::{Clock, System},
    ids::{AccountId, GenerationId, KeyId},
    money::NanoUsd,
    time::Timestamp,
};
use tempfile::TempDir;

use super::{Redis, Settings};
use crate::{
    domain::ledger::{Command, Outcome, script::START},
    store::{
        Store,
        suite::{
            after, capture, hold,
            in_redis::settings,
            make_key, open_account_with,
            servers::{Server, Watched, copy},
            spend,
        },
    },
};

/// A clock that stands where it was put.
struct Stopped(AtomicI64);

impl Clock for Stopped {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn random(&self, bytes: &mut [u8]) {
        System.random(bytes);
    }
}

fn at(now: Timestamp) -> Arc<dyn Clock> {
    Arc::new(Stopped(AtomicI64::new(now.millis())))
}

async fn open(settings: &Settings) -> Result<Redis, String> {
    Redis::open(settings, at(START)).await.map_err(|e| e.to_string())
}

/// A server, a data directory, and settings for both.
fn place(server: &Server) -> (TempDir, Settings) {
    let data_dir = tempfile::tempdir().unwrap();
    let settings = settings(&server.url(), &data_dir);
    (data_dir, settings)
}

/// Holds and captures `n` generations of one nano-USD each, together.
async fn spend_one_each(store: &Redis, account: AccountId, key: KeyId, n: u8) {
    for n in 0..n {
        let generation = GenerationId::new(after(n.into()), [7; 10]);
        let commands = vec![hold(key, generation, 1, after(30)), capture(key, generation, 1)];
        let outcomes = store.execute(account, commands, START).await.unwrap();
        assert!(matches!(outcomes[..], [Ok(_), Ok(Outcome::Captured(_))]), "{outcomes:?}");
    }
}

#[tokio::test]
async fn a_redis_that_would_forget_or_evict_is_refused_with_what_to_set() {
    let evicting = Server::start_with(&["--port", "0", "--maxmemory-policy", "allkeys-lru"]);
    let refused = open(&place(&evicting).1).await.err().unwrap();
    assert!(refused.contains("set maxmemory-policy to noeviction"), "{refused}");

    let forgetful = Server::start_with(&["--port", "0", "--appendonly", "no"]);
    let (_data_dir, mut settings) = place(&forgetful);
    let refused = open(&settings).await.err().unwrap();
    assert!(refused.contains("set appendonly to yes"), "{refused}");
    settings.volatile_allowed = true;
    open(&settings).await.unwrap().ping().await.unwrap();
}

#[tokio::test]
async fn a_user_who_may_not_read_the_configuration_is_enough() {
    let server = Server::start();
    server.ask("ACL SETUSER faregate on >secret ~* &* +@all -@dangerous +info").unwrap();
    let data_dir = tempfile::tempdir().unwrap();
    let with =
        |password: &str| settings(&format!("{}?user=faregate&pass={password}", server.url()), &data_dir);
    let store = open(&with("secret")).await.unwrap();
    open_account_with(&store, 1, 5).await;
    assert!(!open(&with("wrong")).await.err().unwrap().contains("wrong"));
}

#[tokio::test]
async fn while_redis_is_away_calls_fail_in_time_and_afterwards_they_work_again() {
    let mut server = Server::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    let account = open_account_with(&store, 1, 5).await;
    server.kill();
    let asked = Instant::now();
    let deposit =
        Command::Deposit { id: crate::domain::ledger::script::deposit(1), amount: NanoUsd::from_nanos(1) };
    store.execute(account, vec![deposit.clone()], START).await.unwrap_err();
    assert!(asked.elapsed() < Duration::from_secs(6), "{:?}", asked.elapsed());
    server.start_again();
    let outcomes = store.execute(account, vec![deposit], START).await.unwrap();
    assert_eq!(outcomes, [Ok(Outcome::Deposited(NanoUsd::from_nanos(6)))]);
}

#[tokio::test]
async fn a_redis_that_came_back_older_is_refused_until_an_operator_says_so() {
    let mut server = Server::start();
    let (data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    let (snapshot, file) = (data_dir.path().join("snapshot"), data_dir.path().join("redis-seen"));
    server.kill();
    copy(&server.data(), &snapshot);
    server.start_again();
    let later = at(START.plus(Duration::from_mins(2)));
    let newer = Redis::open(&settings, Arc::clone(&later)).await.unwrap();

    server.kill();
    fs::remove_dir_all(server.data()).unwrap();
    copy(&snapshot, &server.data());
    server.start_again();
    // Neither the process that saw it newer goes on with it, nor one that is started now.
    let refused = newer.ping().await.unwrap_err().to_string();
    assert!(refused.contains("came back older"), "{refused}");
    let refused = Redis::open(&settings, Arc::clone(&later)).await.err().unwrap().to_string();
    assert!(refused.contains(&format!("delete {}", file.display())), "{refused}");
    drop(store);

    fs::remove_file(file).unwrap();
    Redis::open(&settings, later).await.unwrap().ping().await.unwrap();
}

#[tokio::test]
async fn a_failover_to_a_replica_that_is_in_step_loses_nothing() {
    let watched = Watched::start();
    let data_dir = tempfile::tempdir().unwrap();
    let store = open(&settings(&watched.url(), &data_dir)).await.unwrap();
    let account = open_account_with(&store, 1, 100).await;
    let key = make_key(&store, account, 1, None).await;
    spend_one_each(&store, account, key, 3).await;
    watched.fail_over();
    spend_one_each(&store, account, key, 5).await;
    // The first three were captured before, and are not billed again.
    assert_eq!(spend(&store, account, key).await.used, NanoUsd::from_nanos(5));
}

#[tokio::test]
async fn a_crash_is_not_taken_for_a_restored_snapshot() {
    let mut server = Server::start();
    let (_data_dir, settings) = place(&server);
    let store = Redis::open(&settings, Arc::new(System)).await.unwrap();
    server.kill();
    server.start_again();
    store.ping().await.unwrap();
    Redis::open(&settings, Arc::new(System)).await.unwrap();
}

#[tokio::test]
async fn what_the_journal_drops_is_added_up_by_key() {
    let server = Server::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&Settings { journal_entries: 10, ..settings }).await.unwrap();
    let account = open_account_with(&store, 1, 100).await;
    let key = make_key(&store, account, 1, None).await;
    spend_one_each(&store, account, key, 25).await;
    assert_eq!(spend(&store, account, key).await.used, NanoUsd::from_nanos(25));
    let count = |command: &str| server.ask(command).unwrap();
    assert_eq!(count(&format!("ZCARD {}", store.names.journal(account))), ":10");
    assert_eq!(count(&format!("HLEN {}", store.names.records(account))), ":11", "with the deposit");
    assert_eq!(count(&format!("HINCRBY {} {key} 0", store.names.archive(account))), ":15");
}

#[tokio::test]
async fn what_redis_cannot_digest_spoils_nothing_for_others() {
    let server = Server::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    let account = open_account_with(&store, 1, 100).await;
    let key = make_key(&store, account, 1, None).await;
    let [damaged, sound] = [1, 2].map(|n| GenerationId::new(START, [n; 10]));
    server.ask(&format!("HSET {} {damaged} nonsense", store.names.records(account))).unwrap();
    let commands = vec![hold(key, damaged, 1, after(30)), hold(key, sound, 1, after(30))];
    store.execute(account, commands, START).await.unwrap_err();
    assert_eq!(spend(&store, account, key).await.held, NanoUsd::from_nanos(1));
}

#[tokio::test]
async fn an_account_without_holds_leaves_the_index_when_its_time_is_over() {
    let server = Server::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    let account = open_account_with(&store, 1, 100).await;
    let key = make_key(&store, account, 1, None).await;
    let generation = GenerationId::new(START, [1; 10]);
    let listed = || server.ask(&format!("ZCARD {}", store.names.holders_of(account))).unwrap();
    store.execute(account, vec![hold(key, generation, 1, after(30))], START).await.unwrap();
    assert_eq!(store.due_holds(after(10_000), 9).await.unwrap().len(), 1);
    store.execute(account, vec![Command::Release { key, generation }], START).await.unwrap();
    assert_eq!(store.due_holds(after(600), 9).await.unwrap(), []);
    assert_eq!(listed(), ":1");
    assert_eq!(store.due_holds(after(10_000), 9).await.unwrap(), []);
    assert_eq!(listed(), ":0");
    // Whoever holds later is listed anew.
    let generation = GenerationId::new(START, [2; 10]);
    store.execute(account, vec![hold(key, generation, 1, after(20_000))], after(19_000)).await.unwrap();
    assert_eq!(store.due_holds(after(20_000), 9).await.unwrap().len(), 1);
}
