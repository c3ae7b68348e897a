//! Tests of clusters with a master that is away, silent or replaced.

use std::time::{Duration, Instant};

use ::redis::{Value, cmd};

use super::{
    Commit, Committed, Durability, Failure, Question, Records, Redis, START, Settings, Space, Write, name,
    open, record,
    replicated::{LOOK_AGAIN, Replicated, follows, must, until},
};
use crate::{
    records::{Answer, MissingServers, Term},
    redis::{failover::Losses, key_space::PARTS},
    servers::{Cluster, PATIENCE, RedisServer, settings},
};

/// With this many spaces, the probability that a master has none is one in 10⁸.
const SPACES: usize = 48;
fn spaces() -> Vec<Space> {
    (0..SPACES).map(|n| Space::new(format!("account {n}"))).collect()
}

pub(super) async fn put(store: &Redis, space: &Space) -> Result<Committed, Failure> {
    let writes = vec![Write::Put(name("one"), record("1"))];
    store.commit(space, Commit { writes, ..Commit::default() }).await
}

/// Writes to every space, and returns the spaces that accept the write.
async fn served(store: &Redis) -> Vec<Space> {
    let mut served = Vec::new();
    for space in spaces() {
        if put(store, &space).await.is_ok() {
            served.push(space);
        }
    }
    served
}

/// Waits for one space after another until it accepts a write.
pub(super) async fn all_are_served(store: &Redis) {
    let began = Instant::now();
    for space in spaces() {
        while let Err(failure) = put(store, &space).await {
            assert!(began.elapsed() < PATIENCE, "{failure}");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

#[tokio::test]
async fn of_a_cluster_that_lost_a_master_the_spaces_of_the_others_are_served() {
    let mut cluster = Cluster::start();
    let data_dir = tempfile::tempdir().unwrap();
    let store = open(&settings(&cluster.url(), &data_dir)).await.unwrap();
    assert_eq!(served(&store).await.len(), SPACES);
    assert_eq!(store.try_write().await, Ok(MissingServers::default()));
    cluster.kill_one();
    let left = served(&store).await;
    assert!((3..SPACES).contains(&left.len()), "{} of {SPACES} spaces", left.len());
    let MissingServers(missing) = store.try_write().await.unwrap();
    let last = cluster.url().rsplit(',').next().unwrap().to_owned();
    assert!(missing.len() == 1 && missing[0].starts_with(&last), "{missing:?}");
    assert_eq!(store.ping().await.map(|MissingServers(missing)| missing.len()), Ok(1));
    assert!(store.clock_skew().await.unwrap().is_some() && !store.is_nearly_full().await.unwrap());
    for space in &left {
        store.settle(space, Durability::Durable, store.term(space).await).await.unwrap();
    }
    cluster.start_one_again();
    all_are_served(&store).await;
    assert_eq!(store.ping().await, Ok(MissingServers::default()));
}

#[tokio::test]
async fn a_process_comes_up_without_one_master_and_serves_the_spaces_of_the_others() {
    let mut cluster = Cluster::start();
    let data_dir = tempfile::tempdir().unwrap();
    let settings = settings(&cluster.url(), &data_dir);
    let clock = || super::at(super::START.plus(Duration::from_hours(1)));
    drop(open(&settings).await.unwrap());
    cluster.kill_one();
    // The first mark of this store is an hour above the marks of the part that is away.
    let store = Redis::open(&settings, clock()).await.unwrap();
    assert!((3..SPACES).contains(&served(&store).await.len()));
    assert_eq!(store.ping().await.map(|MissingServers(missing)| missing.len()), Ok(1));
    cluster.start_one_again();
    all_are_served(&store).await;
    // A part that was away for long has not lost anything.
    let again = Redis::open(&settings, clock()).await.unwrap();
    assert_eq!(again.ping().await, Ok(MissingServers::default()));
}

#[tokio::test]
async fn a_shard_that_was_away_for_long_may_lose_its_next_mark_like_any_other() {
    let mut cluster = Cluster::start();
    let data_dir = tempfile::tempdir().unwrap();
    let settings = Settings { is_marked: false, ..settings(&cluster.url(), &data_dir) };
    let store = open(&settings).await.unwrap();
    store.client.mark(START).await.unwrap();
    cluster.kill_one();
    let later = START.plus(Duration::from_hours(1));
    let store = Redis::open(&settings, super::at(later)).await.unwrap();
    store.client.mark(later).await.unwrap();
    cluster.start_one_again();
    all_are_served(&store).await;
    let file = std::fs::read_to_string(data_dir.path().join("redis-seen")).unwrap();
    let directory = file.split(' ').next().unwrap();
    let mut before = Vec::new();
    for part in 0..PARTS {
        let mut count = cmd("HGET");
        count.arg(store.key_space.marks(part)).arg(directory);
        before.push(store.client.ask::<i64>(&count).await.unwrap());
    }
    assert!(before.contains(&START.millis()), "no part was away: {before:?}");
    store.client.mark(later).await.unwrap();
    for (part, count) in before.into_iter().enumerate() {
        let mut lose = cmd("HSET");
        lose.arg(store.key_space.marks(part)).arg(directory).arg(count);
        store.client.ask::<Value>(&lose).await.unwrap();
    }
    let losses = store.client.mark(later).await.unwrap();
    assert!(losses.forgotten > Duration::ZERO && losses.forgotten < Duration::from_mins(1), "{losses:?}");
    all_are_served(&store).await;
}

#[tokio::test]
async fn a_cluster_without_any_master_does_not_answer() {
    let mut cluster = Replicated::start().await;
    let data_dir = tempfile::tempdir().unwrap();
    let store = open(&settings(&cluster.url(), &data_dir)).await.unwrap();
    cluster.nodes.iter_mut().for_each(RedisServer::kill);
    store.ping().await.unwrap_err();
    store.try_write().await.unwrap_err();
    store.clock_skew().await.unwrap_err();
}

#[tokio::test]
async fn a_master_that_falls_silent_is_left_for_its_replica() {
    let cluster = Replicated::start().await;
    let data_dir = tempfile::tempdir().unwrap();
    let store = open(&settings(&cluster.url(), &data_dir)).await.unwrap();
    assert_eq!(served(&store).await.len(), SPACES);
    cluster.nodes[2].signal("STOP");
    // No error shows that the master is silent: its connections stay open, and it accepts new connections.
    all_are_served(&store).await;
    let began = Instant::now();
    while store.ping().await != Ok(MissingServers::default()) {
        assert!(began.elapsed() < PATIENCE, "the silent master is still asked");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    cluster.nodes[2].signal("CONT");
    all_are_served(&store).await;
}

/// Opens a store that waits for one replica.
async fn awaiting(cluster: &Replicated) -> (tempfile::TempDir, Redis) {
    let data_dir = tempfile::tempdir().unwrap();
    let settings = settings(&cluster.url(), &data_dir);
    let store = open(&Settings { wait_replicas: 1, is_marked: false, ..settings }).await.unwrap();
    (data_dir, store)
}

#[tokio::test]
async fn a_shard_whose_replicas_do_not_follow_is_missing() {
    let cluster = Replicated::start().await;
    let (_data_dir, store) = awaiting(&cluster).await;
    assert_eq!(store.ping().await, Ok(MissingServers::default()));
    cluster.nodes[3].signal("STOP");
    let MissingServers(missing) = store.ping().await.unwrap();
    let first = format!("127.0.0.1:{} ", cluster.ports[0]);
    assert!(missing.len() == 1 && missing[0].starts_with(&first), "{missing:?}");
    assert!(missing[0].contains("too few replicas"), "{missing:?}");
    // The other masters confirm writes, because each master is asked separately.
    let space = cluster.space_of_last();
    let term = store.term(&space).await;
    assert_eq!(put(&store, &space).await, Ok(Committed::Written));
    store.settle(&space, Durability::Durable, term).await.unwrap();
}

/// Cuts the last master off from its replicas, and then makes a commit that only this master has. Returns the term
/// before the commit.
async fn unreplicated(cluster: &Replicated, store: &Redis, space: &Space) -> Term {
    put(store, space).await.unwrap();
    store.settle(space, Durability::Durable, store.term(space).await).await.unwrap();
    cluster.keep_replicas_from_last();
    until("the replicas to lose their master", || !cluster.nodes[5..].iter().any(follows)).await;
    let term = store.term(space).await;
    let writes = vec![Write::Put(name("two"), record("2"))];
    assert_eq!(store.commit(space, Commit { writes, ..Commit::default() }).await, Ok(Committed::Written));
    term
}

/// Asserts that a commit from this term is neither confirmed nor present, and that the next commits are confirmed.
async fn is_not_confirmed(store: &Redis, space: &Space, since: Term) {
    let failed = store.settle(space, Durability::Durable, since).await;
    assert!(matches!(failed, Err(Failure::Unknown(_))), "{failed:?}");
    let began = Instant::now();
    loop {
        let term = store.term(space).await;
        let is_written = put(store, space).await.is_ok();
        if is_written && store.settle(space, Durability::Durable, term).await.is_ok() {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "the new master confirms nothing");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    let found = store.read(space, vec![Question::Records(vec![name("two")])]).await.unwrap();
    assert_eq!(found, [Answer::Records(vec![None])], "it is lost");
}

#[tokio::test]
async fn a_replica_of_a_shard_that_took_over_confirms_nothing_that_it_lacks() {
    let cluster = Replicated::start().await;
    let (_data_dir, store) = awaiting(&cluster).await;
    let space = cluster.space_of_last();
    let term = unreplicated(&cluster, &store, &space).await;
    cluster.take_over(5, 2).await;
    is_not_confirmed(&store, &space, term).await;
}

/// The master accepts no writes without its replicas. The other nodes cannot tell it that it was replaced.
#[tokio::test]
async fn a_master_of_a_shard_that_refuses_writes_for_want_of_replicas_is_left_for_the_one_that_took_over() {
    let cluster = Replicated::start().await;
    let data_dir = tempfile::tempdir().unwrap();
    let settings = settings(&cluster.url(), &data_dir);
    let written = format!("EXISTS {}:{{{}}}:r1", settings.prefix, cluster.space_of_last().as_str());
    let store = open(&Settings { is_marked: false, ..settings }).await.unwrap();
    cluster.isolate_last();
    must(&cluster.nodes[5], "CLUSTER FAILOVER TAKEOVER");
    until("the replica to take over", || cluster.nodes[5].info("replication").contains("role:master")).await;
    let (space, began) = (cluster.space_of_last(), Instant::now());
    while let Err(failure) = put(&store, &space).await {
        assert!(began.elapsed() < PATIENCE, "it stays with the old master: {failure}");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    assert_eq!(cluster.nodes[5].ask(&written).unwrap(), ":1");
    assert!(cluster.nodes[2].info("replication").contains("role:master"), "the old one knows nothing");
    all_are_served(&store).await;
}

#[tokio::test]
async fn a_failover_of_a_shard_is_counted_and_dated_while_another_shard_is_away() {
    let mut cluster = Replicated::start().await;
    let data_dir = tempfile::tempdir().unwrap();
    let settings = settings(&cluster.url(), &data_dir);
    let store = open(&Settings { wait_replicas: 2, is_marked: false, ..settings }).await.unwrap();
    assert_eq!(store.client.mark(START).await.unwrap(), Losses::default());
    let space = cluster.space_of_last();
    let term = store.term(&space).await;
    put(&store, &space).await.unwrap();
    // Both replicas have the mark.
    store.settle(&space, Durability::Durable, term).await.unwrap();
    for node in [0, 3] {
        cluster.nodes[node].kill();
    }
    cluster.take_over(5, 2).await;
    let later = START.plus(Duration::from_hours(1));
    let began = Instant::now();
    while !store.client.mark(later).await.is_ok_and(|losses| losses.promoted == 1) {
        assert!(began.elapsed() < PATIENCE, "nobody counts it");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    let since = Ok(vec![START.millis() - 15_000]);
    assert_eq!(store.losses().await, since);
    for node in [0, 3] {
        cluster.nodes[node].start_again();
    }
    all_are_served(&store).await;
    assert_eq!(store.client.mark(later).await.unwrap().promoted, 0, "the others were only started anew");
    assert_eq!(store.losses().await, since);
}

#[tokio::test]
async fn a_master_that_was_a_replica_meanwhile_confirms_nothing_that_it_has_lost() {
    let cluster = Replicated::start().await;
    let (_data_dir, store) = awaiting(&cluster).await;
    let space = cluster.space_of_last();
    let term = unreplicated(&cluster, &store, &space).await;
    cluster.take_over(5, 2).await;
    must(&cluster.nodes[2], "ACL SETUSER replication on");
    cluster.take_over(2, 5).await;
    // The connection of the commit is still open, and its server is still the master.
    is_not_confirmed(&store, &space, term).await;
}
