//! Tests for what reasons a Redis is refused, and what the store does when its Redis stops, returns, or has lost data.

use std::{
    collections::BTreeMap,
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use ::redis::{Value, cmd};
use shared::{
    clock::{Clock, System},
    time::Timestamp,
};

use super::{Committed, Durability, Records, Redis, START, Settings, at, create, has, open, place, space};
use crate::{
    redis::failover::Losses,
    servers::{Cluster, PATIENCE, RedisServer, Watched, copy, settings},
};

fn after(seconds: u64) -> Timestamp {
    START.plus(Duration::from_secs(seconds))
}

#[tokio::test]
async fn a_redis_that_would_forget_or_evict_is_refused_with_what_to_set() {
    let evicting = RedisServer::start_with(&["--port", "0", "--maxmemory-policy", "allkeys-lru"]);
    let refused = open(&place(&evicting).1).await.err().unwrap();
    assert!(refused.contains("set maxmemory-policy to noeviction"), "{refused}");

    let forgetful = RedisServer::start_with(&["--port", "0", "--appendonly", "no"]);
    let (_data_dir, mut settings) = place(&forgetful);
    let refused = open(&settings).await.err().unwrap();
    assert!(refused.contains("set appendonly to yes"), "{refused}");
    settings.volatile_allowed = true;
    open(&settings).await.unwrap().ping().await.unwrap();
}

#[tokio::test]
async fn a_user_who_may_not_read_the_configuration_is_enough() {
    let server = RedisServer::start();
    server.ask("ACL SETUSER faregate on >secret ~* &* +@all -@dangerous +info +bgrewriteaof").unwrap();
    let data_dir = tempfile::tempdir().unwrap();
    let with =
        |password: &str| settings(&format!("{}?user=faregate&pass={password}", server.url()), &data_dir);
    let store = open(&with("secret")).await.unwrap();
    assert_eq!(create(&store, "one").await, Ok(Committed::Written));
    assert!(!open(&with("wrong")).await.err().unwrap().contains("wrong"));
}

#[tokio::test]
async fn while_redis_is_away_calls_fail_in_time_and_afterwards_they_work_again() {
    let mut server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    server.kill();
    let asked = Instant::now();
    create(&store, "one").await.unwrap_err();
    // The answer must come before gateways give up after 3 s.
    assert!(asked.elapsed() < Duration::from_millis(2_500), "{:?}", asked.elapsed());
    server.start_again();
    assert_eq!(create(&store, "one").await, Ok(Committed::Written));
    assert_eq!(has(&store, "one").await, Ok(true));
}

#[tokio::test]
async fn a_redis_that_stands_still_is_given_up_in_time_and_found_again() {
    let server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    // The connections of a stopped server stay open, and it even accepts new connections.
    server.signal("STOP");
    let asked = Instant::now();
    create(&store, "one").await.unwrap_err();
    assert!(asked.elapsed() < Duration::from_millis(2_500), "{:?}", asked.elapsed());
    store.ping().await.unwrap_err();
    server.signal("CONT");
    let began = Instant::now();
    while create(&store, "two").await.is_err() {
        assert!(began.elapsed() < PATIENCE, "it is not found again");
    }
    store.ping().await.unwrap();
}

#[tokio::test]
async fn a_redis_that_came_back_older_is_refused_until_an_operator_says_so() {
    let mut server = RedisServer::start();
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
    // Neither a process that has seen the newer data nor a new process continues with this Redis.
    let refused = newer.ping().await.unwrap_err().to_string();
    assert!(refused.contains("came back with older data"), "{refused}");
    let refused = Redis::open(&settings, Arc::clone(&later)).await.err().unwrap().to_string();
    assert!(refused.contains(&format!("delete {}", file.display())), "{refused}");
    drop(store);

    fs::remove_file(file).unwrap();
    Redis::open(&settings, later).await.unwrap().ping().await.unwrap();
}

#[tokio::test]
async fn a_clock_that_goes_back_closes_nothing() {
    let server = RedisServer::start();
    let (data_dir, settings) = place(&server);
    let serving = open(&settings).await.unwrap();
    let off = |hours: i64| Timestamp::from_millis(START.millis() + hours * 3_600_000);
    // A command runs next to the key-service. The command's clock is first behind, then ahead, and then right.
    for now in [off(-2), off(2), off(0)] {
        Redis::open(&settings, at(now)).await.unwrap();
        assert_eq!(serving.client.mark(off(0)).await.unwrap(), Losses::default());
        serving.ping().await.unwrap();
    }
    let count = || {
        let file = fs::read_to_string(data_dir.path().join("redis-seen")).unwrap();
        file.trim_end().split_once(' ').unwrap().1.parse::<i64>().unwrap()
    };
    let before = count();
    serving.client.mark(off(-2)).await.unwrap();
    serving.client.mark(off(2)).await.unwrap();
    // Whatever the clock shows, the count grows by the time between marks.
    assert!((2..60_000).contains(&(count() - before)), "{before}, {}", count());
}

#[tokio::test]
async fn a_data_directory_that_cannot_be_written_is_named() {
    let server = RedisServer::start();
    let (_data_dir, mut settings) = place(&server);
    settings.data_dir = Some("/proc/no-data".into());
    let refused = open(&settings).await.err().unwrap();
    assert!(refused.contains("/proc/no-data/redis-seen cannot be written"), "{refused}");
    assert!(refused.contains("FAREGATE_DATA_DIR"), "{refused}");
}

#[tokio::test]
async fn who_only_reads_leaves_no_mark_and_notices_an_older_redis() {
    let server = RedisServer::start();
    let (data_dir, settings) = place(&server);
    let file = data_dir.path().join("redis-seen");
    let reading = Settings { is_marked: false, ..settings.clone() };
    open(&reading).await.unwrap().ping().await.unwrap();
    assert!(!file.exists());
    drop(open(&settings).await.unwrap());
    let later = at(START.plus(Duration::from_hours(2)));
    let before = fs::read_to_string(&file).unwrap();
    let store = Redis::open(&reading, Arc::clone(&later)).await.unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    let mut marks = cmd("HGETALL");
    marks.arg(store.key_space.marks(3));
    let marks: BTreeMap<String, String> = store.client.ask(&marks).await.unwrap();
    let (directory, count) = before.trim_end().split_once(' ').unwrap();
    assert_eq!(marks[directory], count);
    server.ask("FLUSHALL").unwrap();
    let refused = Redis::open(&reading, later).await.err().unwrap().to_string();
    assert!(refused.contains("came back with older data") && refused.contains("no mark"), "{refused}");
}

#[tokio::test]
async fn a_failover_to_a_replica_that_is_in_step_loses_nothing() {
    let watched = Watched::start();
    let data_dir = tempfile::tempdir().unwrap();
    let store = open(&settings(&watched.url(), &data_dir)).await.unwrap();
    assert_eq!(create(&store, "one").await, Ok(Committed::Written));
    watched.fail_over();
    assert!(matches!(create(&store, "one").await, Ok(Committed::Conflict(_))), "it was written before");
    assert_eq!(create(&store, "two").await, Ok(Committed::Written));
    assert_eq!((has(&store, "one").await, has(&store, "two").await), (Ok(true), Ok(true)));
}

#[tokio::test]
async fn a_replica_that_took_over_and_what_it_had_not_received_are_reported() {
    let watched = Watched::start();
    let data_dir = tempfile::tempdir().unwrap();
    // Only the test itself marks the store, so that the first mark finds the losses.
    let settings = Settings { is_marked: false, ..settings(&watched.url(), &data_dir) };
    let store = open(&settings).await.unwrap();
    let losses = async |at| store.client.mark(at).await.unwrap();
    assert_eq!(losses(after(5)).await, Losses::default());
    watched.fail_over();
    let began = Instant::now();
    loop {
        // When the old master has become a replica of the new master, a write finds the new master.
        let _ = store.try_write().await;
        if store.client.mark(after(10)).await.is_ok_and(|losses| losses.promoted == 1) {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "the new master is not noticed");
    }
    // This has the same effect as if the replica had missed the last two marks of one part.
    let mut forget = cmd("HSET");
    let file = fs::read_to_string(data_dir.path().join("redis-seen")).unwrap();
    let (directory, count) = file.trim_end().split_once(' ').unwrap();
    let count = count.parse::<i64>().unwrap() - 10_000;
    forget.arg(store.key_space.marks(3)).arg(directory).arg(count);
    store.client.ask::<Value>(&forget).await.unwrap();
    assert_eq!(losses(after(15)).await, Losses { promoted: 0, forgotten: Duration::from_secs(10) });
    assert_eq!(losses(after(20)).await, Losses::default(), "reported once");
}

#[tokio::test]
async fn a_crash_is_not_taken_for_a_restored_snapshot() {
    let mut server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let store = Redis::open(&settings, Arc::new(System)).await.unwrap();
    server.kill();
    server.start_again();
    store.ping().await.unwrap();
    Redis::open(&settings, Arc::new(System)).await.unwrap();
}

#[tokio::test]
async fn a_redis_that_still_loads_its_data_is_waited_for() {
    let mut server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    assert_eq!(create(&store, "one").await, Ok(Committed::Written));
    store.settle(&space(), Durability::Durable, store.term(&space()).await).await.unwrap();
    drop(store);
    let mut fill = cmd("EVAL");
    fill.arg("for n = 1, 30000 do redis.call('SET', 'filler' .. n, string.rep('x', 100)) end").arg(0);
    let client = ::redis::Client::open(server.url()).unwrap();
    fill.query::<()>(&mut client.get_connection().unwrap()).unwrap();
    server.kill();
    // While it loads its data, Redis pauses for this many microseconds after each key, and serves its connections after
    // every thousand keys.
    server.start_loading(&["--key-load-delay", "100"]);
    let store = open(&settings).await.unwrap();
    let waiting = store.ping().await.unwrap_err().to_string();
    assert!(waiting.contains("still loading"), "{waiting}");
    assert!(store.clock_skew().await.is_err());
    let asked = Instant::now();
    while store.ping().await.is_err() {
        assert!(asked.elapsed() < PATIENCE, "it never came back");
    }
    assert_eq!(has(&store, "one").await, Ok(true));
}

#[tokio::test]
async fn data_of_an_earlier_layout_is_refused_with_what_to_do() {
    let server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let first = format!("HSET {}:{{accounts}}:names Customer acct_1", settings.prefix);
    let second = format!("SET {}:schema 5", settings.prefix);
    for earlier in [first, second] {
        server.ask("FLUSHALL").unwrap();
        server.ask(&earlier).unwrap();
        let refused = open(&settings).await.err().unwrap();
        assert!(
            refused.contains("layout of an earlier version") && refused.contains("FAREGATE_REDIS_PREFIX")
        );
        assert_eq!(server.ask("DBSIZE").unwrap(), ":1", "nothing was written");
    }
    let (_data_dir, other) = place(&server);
    open(&other).await.unwrap();
    open(&other).await.unwrap();
    server.ask(&format!("SET {}:schema 7", other.prefix)).unwrap();
    assert!(open(&other).await.err().unwrap().contains("layout 7"));
}

#[tokio::test]
async fn clocks_are_compared_with_that_of_redis() {
    let server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let near = Redis::open(&settings, Arc::new(System)).await.unwrap();
    let skew = near.clock_skew().await.unwrap().unwrap();
    assert!(skew.abs() < 1_000, "{skew:?}");
    let (_data_dir, settings) = place(&server);
    let ahead = at(System.now().plus(Duration::from_secs(40)));
    let skew = Redis::open(&settings, ahead).await.unwrap().clock_skew().await.unwrap().unwrap();
    assert!((38_000..42_000).contains(&skew), "{skew:?}");
}

#[tokio::test]
async fn a_redis_is_served_while_a_process_is_connected_that_stands_still() {
    for (url, _servers) in served_places() {
        let data_dir = tempfile::tempdir().unwrap();
        let settings = settings(&url, &data_dir);
        let mut store = open(&settings).await.unwrap();
        let copying = open(&Settings { is_marked: false, ..settings.clone() }).await.unwrap();
        // From now on, this store leaves no marks, like a process that was stopped.
        store.marking.take().unwrap().abort();
        assert_eq!(copying.is_served().await, Ok(true), "{url}");
        let other = Settings { prefix: format!("{}-other", settings.prefix), ..settings };
        let other = open(&Settings { is_marked: false, data_dir: None, ..other }).await.unwrap();
        assert_eq!(other.is_connected().await, Ok(false), "{url}: of another installation");
        drop(store);
        let began = Instant::now();
        while copying.is_connected().await != Ok(false) {
            assert!(began.elapsed() < PATIENCE, "{url}: nobody is connected");
        }
        assert_eq!(copying.is_served().await, Ok(false), "{url}");
    }
}

/// Returns the addresses of a server and a cluster.
fn served_places() -> [(String, Arc<dyn std::any::Any>); 2] {
    let (server, cluster) = (RedisServer::shared(), Cluster::shared());
    [(server.url(), server), (cluster.url(), cluster)]
}

#[tokio::test]
async fn who_may_not_see_connections_cannot_tell_whether_redis_is_served() {
    let server = RedisServer::start();
    server.ask("ACL SETUSER faregate on >secret ~* &* +@all -client|list").unwrap();
    let data_dir = tempfile::tempdir().unwrap();
    let store =
        open(&settings(&format!("{}?user=faregate&pass=secret", server.url()), &data_dir)).await.unwrap();
    let refused = store.is_served().await.unwrap_err().to_string();
    assert!(refused.contains("+client|list"), "{refused}");
}
