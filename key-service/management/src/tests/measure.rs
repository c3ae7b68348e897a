//! Measures an account with many keys in many groups, over SQLite and over Redis: memory, listing times, and the time
//! spent in the Redis script. Nothing is asserted.
//!
//! `cargo test -p key-service-management --lib -- --ignored --nocapture groups_of_a_large_account` prints two tables.
//! The same command with `script_of_a_request` prints one.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream};
use shared::{
    calendar::Per,
    clock::{Clock, System},
    ids::{AccountId, GenerationId, GroupId, KeyId},
    key::Prefix,
    money::NanoUsd,
    time::Timestamp,
    wire::Limit,
};
use tempfile::TempDir;

use crate::{
    management::Management,
    nouns::listing::{GroupFilter, KeyFilter, Listed, Listing},
    testing::store_over,
};
use domain::{
    digest::{Digest, Pepper, Peppers},
    event::{Actor, Event, EventSearch},
    group::{Group, NewGroup},
    key::{ApiKey, NewKey},
    ledger::{BoundsPatch, Budget},
};
use key_service_credentials::Credentials;
use key_service_records::{
    redis::Redis,
    servers::{RedisServer, settings},
    sqlite::Sqlite,
};
use key_service_store::store::{
    Ledger as _, Order, Store,
    suite::{act, capture, hold},
};

const KEYS: u64 = 100_000;
const GROUPS: u64 = 1_000;
/// Number of objects created concurrently, so that stores can group their commits.
const AT_ONCE: usize = 32;
/// Number of repetitions of each listing.
const LISTINGS: usize = 11;
/// A limit that is never reached, but takes as much space and time as any other.
const NEVER_REACHED: u64 = 1_000_000_000;
/// Batch sizes to measure, in requests.
const BATCHES: [u64; 4] = [1, 4, 16, 64];
/// Number of measurements for each batch size.
const ROUNDS: u64 = 15;
/// Number of requests in one measurement.
const REQUESTS: u64 = 1_024;
/// Number of objects on a page.
const PAGE: usize = 100;

fn group_id(n: u64, end: Timestamp) -> GroupId {
    GroupId::new(end.minus(Duration::from_secs(GROUPS - n)), [7; 10])
}

fn key_id(n: u64, end: Timestamp) -> KeyId {
    KeyId::new(end.minus(Duration::from_secs(KEYS - n)), [7; 10])
}

/// Returns a budget without limits, or with four windows and all rates.
fn budget(is_bounded: bool, now: Timestamp) -> Budget {
    let bounds = BoundsPatch {
        windows: Some(Per::ALL.map(|per| Limit::new(NanoUsd::from_usd(1_000), per)).to_vec()),
        requests_per_minute: Some(Some(NEVER_REACHED)),
        tokens_per_minute: Some(Some(NEVER_REACHED)),
        max_in_flight: Some(Some(NEVER_REACHED)),
        ..BoundsPatch::default()
    };
    if is_bounded { Budget::new(&bounds, now) } else { Budget::default() }
}

async fn make_groups(store: &Store, account: AccountId, is_bounded: bool, end: Timestamp) {
    let make = async |n: u64| {
        let mut group = Group::new(group_id(n, end), end);
        (group.name, group.external_id) = (format!("Customer {n:06}"), Some(format!("customer-{n}")));
        group.metadata.insert("team".into(), (n % 10).to_string());
        group.spend.budget = budget(is_bounded, end);
        store.create_group(NewGroup { account, group, most: GROUPS }, None, &act(end)).await.unwrap();
    };
    stream::iter(0..GROUPS).map(make).buffer_unordered(AT_ONCE).for_each(|()| async {}).await;
}

/// Creates the keys, either without a group or a hundred in each group.
async fn make_keys(store: &Store, account: AccountId, in_groups: bool, is_bounded: bool, end: Timestamp) {
    let make = async |n: u64| {
        let mut key = ApiKey::new(key_id(n, end), format!("fg_api_{:04}…", n % 9_973), end);
        key.label = format!("Customer {n:06}");
        key.metadata.insert("user".into(), n.to_string());
        key.metadata.insert("team".into(), (n % 10).to_string());
        key.spend.group = in_groups.then(|| group_id(n % GROUPS, end));
        key.spend.budget = budget(is_bounded, end);
        let digest = Digest::of(&[account.as_bytes(), &n.to_be_bytes()[..]].concat());
        store.create_key(NewKey { account, key, digest, most: KEYS }, None, &act(end)).await.unwrap();
    };
    stream::iter(0..KEYS).map(make).buffer_unordered(AT_ONCE).for_each(|()| async {}).await;
}

/// Reads the figure for `name` in a section of Redis' `INFO`; 0 if it is missing.
fn figure(server: &RedisServer, section: &str, name: &str) -> u64 {
    let info = server.info(section);
    let figure = info.split_once(name).map_or("0", |(_, figure)| figure);
    figure.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// Returns the memory that Redis uses, in bytes.
fn memory(server: &RedisServer) -> u64 {
    figure(server, "memory", "used_memory:")
}

/// Returns the time spent in scripts so far, in microseconds.
fn script_micros(server: &RedisServer) -> u64 {
    let calls = figure(server, "commandstats", "cmdstat_evalsha:calls=");
    figure(server, "commandstats", &format!("cmdstat_evalsha:calls={calls},usec="))
}

/// Creates a key without limits, or one with all limits, whose group and parent group have them too.
async fn make_key(store: &Store, account: AccountId, is_bounded: bool, now: Timestamp) -> KeyId {
    let mut group = None;
    for n in 0..if is_bounded { 2 } else { 0 } {
        let mut made = Group::new(group_id(n, now), now);
        (made.spend.parent, made.spend.budget) = (group, budget(true, now));
        group = Some(made.id);
        store.create_group(NewGroup { account, group: made, most: GROUPS }, None, &act(now)).await.unwrap();
    }
    let mut key = ApiKey::new(key_id(is_bounded.into(), now), "fg_api_0000…".into(), now);
    (key.spend.group, key.spend.budget) = (group, budget(is_bounded, now));
    let (id, digest) = (key.id, Digest::of(&[u8::from(is_bounded)]));
    store.create_key(NewKey { account, key, digest, most: KEYS }, None, &act(now)).await.unwrap();
    id
}

/// Sends requests in batches, each together with the captures of the previous batch.
async fn request(store: &Store, account: AccountId, key: KeyId, batch: u64) {
    let mut open = Vec::new();
    for number in 0..=REQUESTS / batch {
        let now = System.now();
        let holds = if number < REQUESTS / batch { batch } else { 0 };
        let next: Vec<_> = (0..holds).map(|_| GenerationId::generate(&System)).collect();
        let captures = open.iter().map(|id| capture(key, *id, 30));
        let commands = captures.chain(next.iter().map(|id| hold(key, *id, 50, 7))).collect();
        let outcomes = store.execute(account, commands, now).await.unwrap();
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        open = next;
    }
}

fn management(store: &Arc<Store>) -> Management {
    let peppers = Peppers { current: Pepper::new([7; 32]), previous: None };
    let credentials = Credentials::new(store.clone(), peppers, Prefix::parse("fg").unwrap());
    Management::new(store.clone(), Arc::new(System), Arc::new(credentials))
}

/// Prints the memory that each kind of object needs, and leaves an account with limited keys in limited groups.
async fn measure_memory(server: &RedisServer, store: &Arc<Store>) {
    println!("| object in Redis | bytes each |\n|---|---|");
    let (management, end) = (management(store), System.now());
    for (name, in_groups, is_bounded) in
        [("alone", false, false), ("in a group", true, false), ("with bounds, in a group", true, true)]
    {
        let account = management.create_account(name, NanoUsd::from_usd(10), Actor::System).await.unwrap();
        let before = memory(server);
        make_groups(store, account, is_bounded, end).await;
        let with_groups = memory(server);
        make_keys(store, account, in_groups, is_bounded, end).await;
        let bounds = if is_bounded { "with bounds" } else { "without bounds" };
        println!("| a group {bounds} | {} |", (with_groups - before) / GROUPS);
        println!("| a key {name} | {} |", (memory(server) - with_groups) / KEYS);
    }
}

async fn measure_lists(name: &str, store: &Arc<Store>) {
    let (management, end) = (management(store), System.now());
    let account = management.create_account("listed", NanoUsd::from_usd(10), Actor::System).await.unwrap();
    make_groups(store, account, true, end).await;
    make_keys(store, account, true, true, end).await;
    let group = Some(group_id(7, end));
    let with = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    let keys = KeyFilter::default();
    time::<ApiKey>(name, "keys", &management, account, keys.clone()).await;
    time::<ApiKey>(name, "keys of a group", &management, account, KeyFilter { group, ..keys.clone() }).await;
    let frequent = KeyFilter { metadata: with("team", "3"), ..keys.clone() };
    time::<ApiKey>(name, "keys by a frequent metadata value", &management, account, frequent).await;
    let rare = KeyFilter { metadata: with("user", "77777"), ..keys.clone() };
    time::<ApiKey>(name, "keys by a rare metadata value", &management, account, rare).await;
    let rare = KeyFilter { metadata: with("user", "77007"), group, ..keys };
    time::<ApiKey>(name, "keys of a group by a rare metadata value", &management, account, rare).await;
    let groups = GroupFilter::default();
    time::<Group>(name, "groups", &management, account, groups.clone()).await;
    let known = GroupFilter { external_id: Some("customer-77".into()), ..groups.clone() };
    time::<Group>(name, "groups by external_id", &management, account, known).await;
    let rare = GroupFilter { metadata: with("team", "none"), ..groups };
    time::<Group>(name, "groups by a metadata value that none has", &management, account, rare).await;
    let of_key = EventSearch { key: Some(key_id(77_007, end)), ..EventSearch::default() };
    time::<Event>(name, "events of a key", &management, account, of_key).await;
    let of_group = EventSearch { group, ..EventSearch::default() };
    time::<Event>(name, "events of a group and its keys", &management, account, of_group).await;
    let began = Instant::now();
    let revoked = management.by(account, Actor::System).revoke_keys(group_id(9, end)).await.unwrap();
    println!(
        "| {name} | revoke all {revoked} keys of a group | {:.1} |",
        began.elapsed().as_secs_f64() * 1e3
    );
}

async fn time<T: Listed>(
    name: &str,
    what: &str,
    management: &Management,
    account: AccountId,
    filter: T::Filter,
) {
    let listing = Listing::<T> { after: None, order: Order::Descending, filter, limit: PAGE };
    let mut times = Vec::new();
    for _ in 0..LISTINGS {
        let began = Instant::now();
        assert!(management.list(account, &listing).await.is_ok());
        times.push(began.elapsed());
    }
    times.sort();
    println!("| {name} | {what} | {:.1} |", times[LISTINGS / 2].as_secs_f64() * 1e3);
}

async fn in_redis(server: &RedisServer, folder: &TempDir) -> Arc<Store> {
    store_over(Redis::open(&settings(&server.url(), folder), Arc::new(System)).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it takes minutes and measures: see the head of this file"]
async fn groups_of_a_large_account() {
    let (folder, server) = (TempDir::new().unwrap(), RedisServer::start());
    let redis = in_redis(&server, &folder).await;
    measure_memory(&server, &redis).await;
    println!("\n| store | listing, a page of {PAGE} | median of {LISTINGS}, ms |\n|---|---|---|");
    measure_lists("Redis", &redis).await;
    let sqlite = store_over(Sqlite::open(&folder.path().join("store.db")).unwrap());
    measure_lists("SQLite", &sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it takes a minute and measures: see the head of this file"]
async fn script_of_a_request() {
    let (folder, server) = (TempDir::new().unwrap(), RedisServer::start());
    let store = in_redis(&server, &folder).await;
    let (management, now) = (management(&store), System.now());
    let mut payers = Vec::new();
    for (name, is_bounded) in [("plain", false), ("bounded", true)] {
        let account = management.create_account(name, NanoUsd::from_usd(10), Actor::System).await.unwrap();
        payers.push((account, make_key(&store, account, is_bounded, now).await));
    }
    println!("| requests in a batch | key without bounds | key with all bounds, two groups |\n|---|---|---|");
    for batch in BATCHES {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for ((account, key), times) in payers.iter().zip(&mut times) {
                let micros = || script_micros(&server);
                let before = micros();
                request(&store, *account, *key, batch).await;
                times.push(micros() - before);
            }
        }
        let [plain, bounded] = times.map(|mut times| {
            times.sort_unstable();
            Duration::from_nanos(times[times.len() / 2] * 1_000 / REQUESTS)
        });
        println!("| {batch} | {plain:.1?} | {bounded:.1?} |");
    }
}
