//! Cases about sweeps: calls in which many holds expire and thousands of thresholds are crossed.

use std::{any::Any, sync::Arc, time::Duration};

use records::{
    Answer, Index, Order, Question, Records,
    redis::Redis,
    servers::{RedisServer, settings},
    sqlite::Sqlite,
};
use shared::{
    calendar::Per,
    clock::{Clock, System},
    ids::{AccountId, GenerationId, KeyId},
    tokens::Usage,
    wire::Limit,
};
use tokio::time::Instant;

use crate::{
    store::{EVENTS_KEPT, EventBounds, Ledger as _, Store, StoreRetention},
    suite::{FrozenClock, act, due_holds, hold, nanos, new_group, new_key, open_account_with, tick},
};
use domain::{
    group::NewGroup,
    ledger::{
        self, BoundsPatch, Budget, Command, Outcome, Progress,
        histories::{START, generation, group, key},
    },
};
use key_service_ledger::names;

/// Number of keys. Each key is in a group of its own, which has a parent.
const KEYS: u8 = 64;
/// Amount of every limit and of every report.
const BOUND: i64 = 100;
/// Number of thresholds of a limit: 50, 80, 95 and 100 percent.
const PERCENTS: usize = 4;

fn bounds() -> BoundsPatch {
    let windows = Per::ALL.map(|per| Limit::new(nanos(BOUND), per)).to_vec();
    BoundsPatch { limit: Some(Some(nanos(BOUND))), windows: Some(windows), ..BoundsPatch::default() }
}

/// Creates a group, a child group in it, and a key in the child. All three have a limit and four windows.
async fn make_chain(store: &Store, account: AccountId, n: u8) -> KeyId {
    let budget = || Budget::new(&bounds(), START);
    // Ids of keys and groups differ, because they are part of the thresholds' names.
    let (child, parent) = (n + KEYS, n + 2 * KEYS);
    for (number, parent) in [(parent, None), (child, Some(group(parent)))] {
        let mut new = NewGroup { most: 1_000, ..new_group(account, number) };
        new.group.spend = ledger::Group { budget: budget(), parent, archived_at: None, wallet: None };
        store.create_group(new, None, &act(START)).await.unwrap();
    }
    let mut new = new_key(account, n);
    new.key.spend.budget = budget();
    new.key.spend.group = Some(group(child));
    store.create_key(new, None, &act(START)).await.unwrap();
    key(n)
}

/// Counts the entries of an index.
async fn count(records: &Arc<dyn Records>, account: AccountId, index: Index) -> usize {
    let (order, limit) = (Order::Ascending, 100_000);
    let question = Question::Entries { index, from: Vec::new(), to: None, order, limit };
    match &records.read(&names::space(account), vec![question]).await.unwrap()[..] {
        [Answer::Entries(entries)] => entries.len(),
        other => panic!("{other:?}"),
    }
}

/// Opens holds for the full amount of every level, reports that all of it is used, and lets all holds expire in one
/// call.
async fn a_sweep_tells_each_threshold_and_leaves_no_hold(records: Arc<dyn Records>, keys: u8) {
    let kept = StoreRetention::all(EventBounds::with_life(EVENTS_KEPT));
    let store = Store::new(Arc::clone(&records), Arc::new(FrozenClock), kept);
    let account = open_account_with(&store, 1, 1_000_000).await;
    let mut holds: Vec<(KeyId, GenerationId)> = Vec::new();
    for n in 0..keys {
        holds.push((make_chain(&store, account, n).await, generation(n)));
    }
    let open = holds.iter().map(|(key, id)| hold(*key, *id, BOUND, 1)).collect();
    let outcomes = store.execute(account, open, START).await.unwrap();
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(Outcome::Held { .. }))), "{outcomes:?}");
    let progress =
        || Progress { usage: Usage::of(1, 0, 1), cost: nanos(BOUND), upstream_cost: None, course: None };
    let report = |(key, generation): &(KeyId, GenerationId)| Command::Extend {
        key: *key,
        generation: *generation,
        most: nanos(0),
        progress: progress(),
        lease_ticks: 1,
    };
    store.execute(account, holds.iter().map(report).collect(), START).await.unwrap();
    tick(&store, account, 1).await;
    let before = count(&records, account, names::EVENT_IDS).await;

    let due = due_holds(&store, account).await;
    assert_eq!(due.len(), holds.len());
    let expire = due.iter().map(|hold| Command::Expire { key: hold.key, generation: hold.generation });
    let outcomes = store.execute(account, expire.collect(), START).await.unwrap();
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(Outcome::Expired(_)))), "{outcomes:?}");

    let thresholds = usize::from(keys) * 3 * (1 + Per::ALL.len()) * PERCENTS;
    assert_eq!(count(&records, account, names::TOLD_AT).await, thresholds);
    assert_eq!(count(&records, account, names::EVENT_IDS).await - before, thresholds);
    assert_eq!(due_holds(&store, account).await, []);
    assert_eq!(count(&records, account, names::DUE).await, 0);
    let audit = store.audit(account).await.unwrap().unwrap();
    assert!(audit.wrong.is_empty(), "{:?}", audit.wrong);
    assert_eq!(audit.entries, u64::from(keys));
}

/// Opens a separate store on the server that all tests share.
async fn in_redis() -> (Arc<dyn Records>, Box<dyn Any>) {
    let (server, data_dir) = (RedisServer::shared(), tempfile::tempdir().unwrap());
    let redis = Redis::open(&settings(&server.url(), &data_dir), Arc::new(System)).await.unwrap();
    (Arc::new(redis), Box::new((server, data_dir)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_that_passes_thousands_of_thresholds_in_redis_tells_them_all() {
    let (records, _kept) = in_redis().await;
    a_sweep_tells_each_threshold_and_leaves_no_hold(records, KEYS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_that_passes_thousands_of_thresholds_in_sqlite_tells_them_all() {
    a_sweep_tells_each_threshold_and_leaves_no_hold(Arc::new(Sqlite::in_memory().unwrap()), KEYS).await;
}

/// Runs sweeps of many sizes until the time is over. `make prove` runs this test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "as long as PROVE_MINUTES says"]
async fn sweeps_of_many_sizes_in_redis_tell_each_threshold() {
    let minutes = std::env::var("PROVE_MINUTES").map_or(0.2, |minutes| minutes.parse::<f64>().unwrap());
    let until = Instant::now() + Duration::from_secs_f64(60.0 * minutes);
    let (mut sweeps, mut holds) = (0, 0);
    while sweeps == 0 || Instant::now() < until {
        let mut chance = [0];
        System.random(&mut chance);
        let keys = 1 + chance[0] % KEYS;
        let (records, _kept) = in_redis().await;
        a_sweep_tells_each_threshold_and_leaves_no_hold(records, keys).await;
        (sweeps, holds) = (sweeps + 1, holds + u64::from(keys));
    }
    println!("sweeps: {sweeps}, with holds: {holds}, each with 60 thresholds");
}
