//! Tests of replaced masters, and of replicas that lacked writes.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tokio::{sync::watch, time::sleep};

use super::{Records, Redis, START, Settings, at, create, durability::address_of, has, place};
use crate::{
    records::Committed,
    servers::{PATIENCE, RedisServer, Watched, copy, free_port, settings},
};

/// Milliseconds by which losses are backdated.
const MARGIN: i64 = 15_000;

const LOOK_AGAIN: Duration = Duration::from_millis(20);

fn start(port: u16, of: Option<u16>, more: &[&str]) -> RedisServer {
    let (port, of) = (port.to_string(), of.map(|of| format!("127.0.0.1 {of}")));
    let of = of.iter().flat_map(|of| ["--replicaof", of]);
    RedisServer::start_with(
        &["--port", &port].into_iter().chain(of).chain(more.iter().copied()).collect::<Vec<_>>(),
    )
}

async fn follows(replica: &RedisServer, port: u16) {
    let began = Instant::now();
    let facts = ["master_link_status:up".to_owned(), format!("master_port:{port}")];
    while !facts.iter().all(|fact| replica.info("replication").contains(fact)) {
        assert!(began.elapsed() < PATIENCE, "the replica does not follow");
        sleep(LOOK_AGAIN).await;
    }
}

/// Waits until a replica has all writes of its master.
async fn has_all_of(replica: &RedisServer, master: &RedisServer) {
    let offset = |server: &RedisServer| {
        let info = server.info("replication");
        info.split_once("master_repl_offset:").unwrap().1.lines().next().map(str::to_owned)
    };
    let began = Instant::now();
    while offset(replica) != offset(master) {
        assert!(began.elapsed() < PATIENCE, "the replica is not in step");
        sleep(LOOK_AGAIN).await;
    }
}

/// Waits until a master has counted its replica, which it does once a second.
async fn takes_writes(master: &RedisServer) {
    let began = Instant::now();
    while master.ask("DEL nothing").unwrap() != ":0" {
        assert!(began.elapsed() < PATIENCE, "the master takes no writes");
        sleep(LOOK_AGAIN).await;
    }
}

/// A master, a replica, and an address that leads new connections to either.
struct Pair {
    master: RedisServer,
    replica: RedisServer,
    ports: [u16; 2],
    address: watch::Sender<u16>,
    settings: Settings,
    _data_dir: TempDir,
}

impl Pair {
    async fn start(more: &[&str]) -> Self {
        let ports = [(); 2].map(|()| free_port());
        let (master, replica) = (start(ports[0], None, more), start(ports[1], Some(ports[0]), &[]));
        follows(&replica, ports[0]).await;
        takes_writes(&master).await;
        let (address, port) = watch::channel(ports[0]);
        let data_dir = tempfile::tempdir().unwrap();
        let settings = settings(&format!("redis://{}", address_of(port).await), &data_dir);
        // Tests mark the store themselves.
        let settings = Settings { is_marked: false, ..settings };
        Self { master, replica, ports, address, settings, _data_dir: data_dir }
    }

    async fn open(&self) -> Redis {
        Redis::open(&self.settings, at(START)).await.unwrap()
    }

    /// Lets the replica take over while the old master still serves those who are connected.
    async fn split(&self) {
        has_all_of(&self.replica, &self.master).await;
        self.replica.ask("REPLICAOF NO ONE").unwrap();
        self.address.send_replace(self.ports[1]);
    }
}

#[tokio::test]
async fn a_master_that_refuses_writes_for_want_of_replicas_is_left_for_the_one_that_took_over() {
    let pair = Pair::start(&["--min-replicas-to-write", "1"]).await;
    let store = pair.open().await;
    pair.split().await;
    let began = Instant::now();
    while create(&store, "one").await != Ok(Committed::Written) {
        assert!(began.elapsed() < PATIENCE, "it stays with the old master");
        sleep(LOOK_AGAIN).await;
    }
    let written = format!("EXISTS {}:{{account}}:r1", pair.settings.prefix);
    assert_eq!([&pair.master, &pair.replica].map(|server| server.ask(&written).unwrap()), [":0", ":1"]);
}

/// Its connections stay open, and it accepts new ones.
#[tokio::test]
async fn a_master_that_falls_silent_is_left_for_the_one_that_sentinels_name() {
    let watched = Watched::start();
    watched.replace_after(500);
    let data_dir = tempfile::tempdir().unwrap();
    let store = Redis::open(&settings(&watched.url(), &data_dir), at(START)).await.unwrap();
    assert_eq!(create(&store, "one").await, Ok(Committed::Written));
    has_all_of(&watched.servers[1], &watched.servers[0]).await;
    watched.servers[0].signal("STOP");
    let began = Instant::now();
    while create(&store, "two").await != Ok(Committed::Written) {
        assert!(began.elapsed() < PATIENCE, "the silent master is still asked");
        sleep(LOOK_AGAIN).await;
    }
    assert!(watched.servers[1].info("replication").contains("role:master"));
    watched.servers[0].signal("CONT");
    assert_eq!((has(&store, "one").await, has(&store, "two").await), (Ok(true), Ok(true)));
}

#[tokio::test]
async fn a_master_that_takes_writes_alone_is_left_at_the_next_mark() {
    let pair = Pair::start(&[]).await;
    let store = pair.open().await;
    store.client.mark(START).await.unwrap();
    pair.split().await;
    assert_eq!(create(&store, "one").await, Ok(Committed::Written), "it is lost");
    let began = Instant::now();
    while store.client.mark(START).await.unwrap().promoted == 0 {
        assert!(began.elapsed() < PATIENCE, "it stays with the old master");
        sleep(LOOK_AGAIN).await;
    }
    assert_eq!(has(&store, "one").await, Ok(false));
    assert_eq!(store.losses().await, Ok(vec![START.millis() - MARGIN]));
}

#[tokio::test]
async fn the_second_of_two_failovers_is_noticed_although_nobody_saw_the_first() {
    let pair = Pair::start(&[]).await;
    let port = free_port();
    let third = start(port, Some(pair.ports[0]), &[]);
    follows(&third, pair.ports[0]).await;
    let store = pair.open().await;
    store.client.mark(START).await.unwrap();
    assert_eq!(store.losses().await, Ok(Vec::new()));
    for replica in [&pair.replica, &third] {
        has_all_of(replica, &pair.master).await;
    }
    pair.replica.ask("REPLICAOF NO ONE").unwrap();
    third.ask(&format!("REPLICAOF 127.0.0.1 {}", pair.ports[1])).unwrap();
    follows(&third, pair.ports[1]).await;
    third.ask("REPLICAOF NO ONE").unwrap();
    pair.address.send_replace(port);
    let began = Instant::now();
    while store.client.mark(START).await.unwrap().promoted == 0 {
        assert!(began.elapsed() < PATIENCE, "it is not noticed");
        sleep(LOOK_AGAIN).await;
    }
    assert_eq!(store.losses().await, Ok(vec![START.millis() - MARGIN]));
}

#[tokio::test]
async fn a_failover_while_no_key_service_ran_is_noticed_and_dated_by_the_last_look() {
    let pair = Pair::start(&[]).await;
    let store = pair.open().await;
    store.client.mark(START).await.unwrap();
    drop(store);
    pair.split().await;
    let later = at(START.plus(Duration::from_secs(30)));
    let reading = Redis::open(&pair.settings, Arc::clone(&later)).await.unwrap();
    let since = Ok(vec![START.millis() - MARGIN]);
    assert_eq!(reading.losses().await, since, "nobody has marked the store since");
    let store = Redis::open(&pair.settings, Arc::clone(&later)).await.unwrap();
    assert_eq!(store.client.mark(later.now()).await.unwrap().promoted, 1);
    assert_eq!(store.client.mark(later.now()).await.unwrap().promoted, 0, "once");
    let another = Redis::open(&pair.settings, later).await.unwrap();
    assert_eq!(another.client.mark(START).await.unwrap().promoted, 0, "it was noticed by another one");
    assert_eq!(another.losses().await, since);
}

#[tokio::test]
async fn masters_that_go_on_without_their_replicas_are_warned_of() {
    let pair = Pair::start(&[]).await;
    let store = pair.open().await;
    let warnings = store.persistence_warnings().await;
    assert!(warnings.len() == 1 && warnings[0].contains("set min-replicas-to-write"), "{warnings:?}");
    pair.master.ask("CONFIG SET min-replicas-to-write 1").unwrap();
    assert!(store.persistence_warnings().await.is_empty());
    let alone = RedisServer::start();
    let data_dir = tempfile::tempdir().unwrap();
    let store = Redis::open(&settings(&alone.url(), &data_dir), at(START)).await.unwrap();
    assert!(store.persistence_warnings().await.is_empty(), "without replicas nothing takes over");
}

#[tokio::test]
async fn what_a_server_forgot_is_dated_by_the_last_look_that_it_remembers() {
    let mut server = RedisServer::start();
    let (data_dir, settings) = place(&server);
    let store = Redis::open(&Settings { is_marked: false, ..settings }, at(START)).await.unwrap();
    store.client.mark(START).await.unwrap();
    let snapshot = data_dir.path().join("snapshot");
    server.kill();
    copy(&server.data(), &snapshot);
    server.start_again();
    let later = START.plus(Duration::from_secs(10));
    assert!(store.client.mark(later).await.unwrap().forgotten.is_zero());
    assert_eq!(store.losses().await, Ok(Vec::new()), "it was only started anew");
    server.kill();
    fs::remove_dir_all(server.data()).unwrap();
    copy(&snapshot, &server.data());
    server.start_again();
    assert!(!store.client.mark(later).await.unwrap().forgotten.is_zero());
    assert_eq!(store.losses().await, Ok(vec![START.millis() - MARGIN]));
}
