//! What a Redis is refused for, and what the store makes of one that goes away, comes back, or comes back older.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use ::redis::{Value, cmd};
use shared::{
    clock::{Clock, System},
    ids::{AccountId, GenerationId, KeyId},
    money::NanoUsd,
    time::Timestamp,
};
use tempfile::TempDir;

use super::{Redis, Settings};

mod secured;
use crate::{
    domain::{
        audit::Audit,
        ledger::{Command, Outcome, Refused, script::START},
        usage::Day,
    },
    store::{
        Store,
        suite::{
            Fault, after, capture, hold,
            in_redis::settings,
            make_key, open_account_with,
            servers::{Server, Watched, copy},
            spend,
        },
    },
};

impl Redis {
    /// Writes past the ledger.
    pub(in crate::store) async fn doctor(&self, account: AccountId, fault: Fault) {
        let names = &self.names;
        let write = async |line: &[&str]| {
            let mut command = cmd(line[0]);
            self.link.ask::<Value>(command.arg(&line[1..])).await.unwrap()
        };
        match fault {
            Fault::Used(key) => write(&["HINCRBY", &names.key(account, key), "used", "1"]).await,
            Fault::Credit => write(&["HINCRBY", &names.account(account), "credit", "1"]).await,
            Fault::LostEntry(lost) => write(&["ZREM", &names.journal(account), &lost.to_string()]).await,
            Fault::PhantomHold(phantom, like) => {
                let (records, leases) = (names.records(account), names.leases(account));
                let hold = write(&["HGET", &records, &like.to_string()]).await;
                let hold: String = ::redis::from_redis_value(hold).unwrap();
                let key = hold.split(' ').nth(1).unwrap();
                write(&["HSET", &records, &phantom.to_string(), &hold]).await;
                write(&["ZADD", &leases, "9999999999999", &format!("{key} {phantom}")]).await
            }
        };
    }
}

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
    // Gateways wait for 3 s.
    assert!(asked.elapsed() < Duration::from_millis(2_500), "{:?}", asked.elapsed());
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
    assert_eq!(count(&format!("HLEN {}", store.names.records(account))), ":10");
    assert_eq!(count(&format!("HINCRBY {} {key} 0", store.names.archive(account))), ":15");
    // Whoever reads on behind an entry that is gone is told so, and the books still add up.
    let page = store.journal(account, 3, 9).await.unwrap();
    assert_eq!((page.gone_until, page.entries.len(), page.entries[0].number), (15, 9, 16));
    assert_eq!(
        store.audit(account).await.unwrap().unwrap(),
        Audit { entries: 10, keys: 1, wrong: Vec::new() }
    );
}

#[tokio::test]
async fn an_audit_is_right_while_entries_make_room() {
    let server = Server::start_with(&["--port", "0", "--appendonly", "no"]);
    let (_data_dir, settings) = place(&server);
    let settings = Settings { journal_entries: 3_000, volatile_allowed: true, ..settings };
    let store = Arc::new(open(&settings).await.unwrap());
    let account = open_account_with(&*store, 1, 1_000_000).await;
    let key = make_key(&*store, account, 1, None).await;
    let spender = Arc::clone(&store);
    let spending = tokio::spawn(async move {
        for turn in 0..100_u8 {
            let generations = (0..100_u8).map(|n| GenerationId::new(after(u64::from(n)), [turn; 10]));
            let commands =
                generations.flat_map(|g| [hold(key, g, 3, after(30)), capture(key, g, 2)]).collect();
            spender.execute(account, commands, START).await.unwrap();
        }
    });
    let mut audits = 0;
    while !spending.is_finished() {
        let audit = store.audit(account).await.unwrap().unwrap();
        assert_eq!(audit.wrong, []);
        audits += 1;
    }
    spending.await.unwrap();
    assert!(audits > 1, "nothing was spent meanwhile");
    let audit = store.audit(account).await.unwrap().unwrap();
    assert_eq!((audit.entries, audit.wrong), (3_000, Vec::new()));
    assert_eq!(spend(&*store, account, key).await.used, NanoUsd::from_nanos(20_000));
}

#[tokio::test]
async fn counters_are_forgotten_after_their_days() {
    let server = Server::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&Settings { usage_days: 2, ..settings }).await.unwrap();
    let account = open_account_with(&store, 1, 100).await;
    let key = make_key(&store, account, 1, None).await;
    spend_one_each(&store, account, key, 1).await;
    let left = server.ask(&format!("TTL {}", store.names.counters(account, Day::of(START)))).unwrap();
    let left: u64 = left.trim_start_matches(':').parse().unwrap();
    assert!((3 * 86_400 - 60..=3 * 86_400).contains(&left), "{left}");
}

#[tokio::test]
async fn what_cannot_be_read_is_the_answer_to_its_own_command_alone() {
    let server = Server::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    let account = open_account_with(&store, 1, 100).await;
    let key = make_key(&store, account, 1, None).await;
    let [damaged, sound] = [1, 2].map(|n| GenerationId::new(START, [n; 10]));
    server.ask(&format!("HSET {} {damaged} nonsense", store.names.records(account))).unwrap();
    let commands = vec![hold(key, damaged, 1, after(30)), hold(key, sound, 1, after(30))];
    let outcomes = store.execute(account, commands.clone(), START).await.unwrap();
    assert_eq!(outcomes, [Err(Refused::Damaged), Ok(Outcome::Held(NanoUsd::from_nanos(1)))]);
    let alone = store.execute(account, commands[..1].to_vec(), START).await.unwrap();
    assert_eq!(alone, [Err(Refused::Damaged)]);
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
