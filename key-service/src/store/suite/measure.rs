//! Measures what thresholds add to a capture, over Redis and over SQLite. Nothing is asserted.
//!
//! `cargo test --release -p key-service --lib -- --ignored --nocapture captures_that_pass_thresholds` prints a table.

use std::{sync::Arc, time::Instant};

use shared::{
    clock::System,
    ids::{AccountId, GenerationId, KeyId},
    time::Timestamp,
};
use tempfile::TempDir;

use super::{
    act, after, capture, digest, hold, in_redis::settings, nanos, open_account_with, servers::RedisServer,
};
use crate::store::{Store, redis::Redis, sqlite::Sqlite};
use domain::{
    key::{ApiKey, NewKey},
    ledger::{Command, histories::START},
};

/// Captures of a batch, as with 64 requests at once, each of a key of its own.
const BATCH: u8 = 16;
/// Batches of each kind, which alternate.
const ROUNDS: usize = 200;
/// Bill of a capture.
const COST: i64 = 1_000;
/// Credit beyond all bills.
const CREDIT: i64 = 1_000_000_000_000;
/// Limits of the keys.
const LIMITS: [(&str, Option<i64>); 4] = [
    ("no limit", None),
    ("a limit of which no part is passed", Some(1_000 * COST)),
    ("half of the limit is passed: one event", Some(2 * COST)),
    ("all of the limit is passed at once: four events", Some(COST)),
];

/// Microseconds that Redis has spent in scripts.
fn in_scripts(server: &RedisServer) -> f64 {
    let info = server.info("commandstats");
    let lines = info
        .lines()
        .filter(|line| line.starts_with("cmdstat_evalsha:") || line.starts_with("cmdstat_fcall:"));
    let micros =
        |line: &str| line.split(',').find_map(|field| field.strip_prefix("usec="))?.parse::<f64>().ok();
    lines.filter_map(micros).sum()
}

/// Prints the median time of a capture in a batch, by the clock `micros`.
async fn measure(name: &str, store: Arc<dyn Store>, micros: impl Fn() -> f64) {
    let account = open_account_with(&*store, 1, CREDIT).await;
    let mut times = LIMITS.map(|(limit, amount)| (limit, amount, Vec::new()));
    let mut batches = 0;
    for _ in 0..ROUNDS {
        for (_, limit, times) in &mut times {
            batches += 1;
            let captures = held(&*store, account, after(batches), *limit).await;
            let before = micros();
            execute(&*store, account, captures).await;
            times.push((micros() - before) / f64::from(BATCH));
        }
    }
    for (limit, _, mut times) in times {
        times.sort_by(f64::total_cmp);
        println!("| {name} | {limit} | {:.1} |", times[times.len() / 2]);
    }
}

/// Makes a batch of keys with this limit and opens a hold of each. Returns the captures.
async fn held(store: &dyn Store, account: AccountId, at: Timestamp, limit: Option<i64>) -> Vec<Command> {
    let (mut holds, mut captures) = (Vec::new(), Vec::new());
    for n in 0..BATCH {
        let (id, generation) = (KeyId::new(at, [n; 10]), GenerationId::new(at, [n; 10]));
        let mut key = ApiKey::new(id, "fg_api_0000…".into(), START);
        key.spend.budget.limit = limit.map(nanos);
        let new = NewKey { account, key, digest: digest(&id.to_string()), most: u64::MAX >> 11 };
        store.create_key(new, None, &act(START)).await.unwrap();
        holds.push(hold(id, generation, COST, 7));
        captures.push(capture(id, generation, COST));
    }
    execute(store, account, holds).await;
    captures
}

async fn execute(store: &dyn Store, account: AccountId, commands: Vec<Command>) {
    assert!(store.execute(account, commands, START).await.unwrap().iter().all(Result::is_ok));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it measures: see the head of this file"]
async fn captures_that_pass_thresholds() {
    println!(
        "| store | capture of a key with | µs each, median of {ROUNDS} batches of {BATCH} |\n|---|---|---|"
    );
    let (folder, server) = (TempDir::new().unwrap(), RedisServer::start());
    let redis = Redis::open(&settings(&server.url(), &folder), Arc::new(System)).await.unwrap();
    measure("Redis, in the script", Arc::new(redis), || in_scripts(&server)).await;
    let began = Instant::now();
    measure("SQLite in memory", Arc::new(Sqlite::in_memory().unwrap()), || {
        began.elapsed().as_secs_f64() * 1e6
    })
    .await;
}
