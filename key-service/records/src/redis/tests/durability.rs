//! Tests of what is answered only after replicas have it.

use std::time::Instant;

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::{Durability, Records, Redis, Settings, create, has, open, place, settings, space};
use crate::{
    records::{Committed, Failure, Term},
    servers::{PATIENCE, RedisServer, free_port},
};

#[tokio::test]
async fn what_too_few_replicas_have_is_unknown_and_holds_up_no_other_commit() {
    let port = free_port().to_string();
    let server = RedisServer::start_with(&["--port", &port]);
    let of = format!("127.0.0.1 {port}");
    let mut replica = RedisServer::start_with(&["--port", &free_port().to_string(), "--replicaof", &of]);
    let (_data_dir, settings) = place(&server);
    let store = open(&Settings { wait_replicas: 1, ..settings }).await.unwrap();
    let began = Instant::now();
    while store.ping().await.is_err() {
        assert!(began.elapsed() < PATIENCE, "the replica does not follow");
    }
    assert_eq!(create(&store, "one").await, Ok(Committed::Written));
    for durability in [Durability::Volatile, Durability::Replicated, Durability::Durable] {
        store.settle(&space(), durability, store.term(&space()).await).await.unwrap();
    }

    replica.kill();
    assert_eq!(create(&store, "two").await, Ok(Committed::Written));
    store.settle(&space(), Durability::Volatile, store.term(&space()).await).await.unwrap();
    let waits = async {
        for durability in [Durability::Replicated, Durability::Durable] {
            let failed = store.settle(&space(), durability, store.term(&space()).await).await;
            assert!(
                matches!(&failed, Err(Failure::Unknown(cause)) if cause.contains("too few")),
                "{failed:?}"
            );
        }
    };
    let others = async {
        for key in ["three", "four", "five"] {
            assert_eq!(create(&store, key).await, Ok(Committed::Written));
            assert_eq!(has(&store, key).await, Ok(true));
        }
    };
    let mut waits = std::pin::pin!(waits);
    tokio::select! {
        biased;
        () = &mut waits => panic!("the others waited"),
        () = others => {}
    }
    waits.await;
    assert!(store.ping().await.is_err(), "it says that it cannot serve");
}

#[tokio::test]
async fn where_every_write_is_on_disk_first_nothing_is_awaited() {
    let server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    assert_eq!(create(&store, "one").await, Ok(Committed::Written));
    store.settle(&space(), Durability::Durable, store.term(&space()).await).await.unwrap();
    assert!(store.persistence_warnings().await.is_empty());
    assert_eq!(server.ask(&format!("EXISTS {}:{{account}}:barrier", settings.prefix)).unwrap(), ":0");

    let slower = RedisServer::start_with(&["--port", "0", "--appendfsync", "everysec"]);
    let (_data_dir, settings) = place(&slower);
    let store = open(&settings).await.unwrap();
    assert!(store.persistence_warnings().await[0].contains("set appendfsync to always"));
}

/// Asserts that a commit of this term is not confirmed, and that the server which answers now does not have it.
async fn is_not_confirmed(store: &Redis, since: Term) {
    let failed = store.settle(&space(), Durability::Durable, since).await;
    assert!(matches!(failed, Err(Failure::Unknown(_))), "{failed:?}");
    assert_eq!(has(store, "one").await, Ok(false), "it is lost");
    // Commits of the next term are confirmed again.
    let term = store.term(&space()).await;
    assert_eq!(create(store, "one").await, Ok(Committed::Written));
    store.settle(&space(), Durability::Durable, term).await.unwrap();
}

async fn follows(store: &Redis) {
    let began = Instant::now();
    while store.ping().await.is_err() {
        assert!(began.elapsed() < PATIENCE, "no replica follows");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_server_that_was_started_since_confirms_nothing_that_it_lacks() {
    let port = free_port().to_string();
    let mut server = RedisServer::start_with(&["--port", &port]);
    let of = format!("127.0.0.1 {port}");
    let _replica = RedisServer::start_with(&["--port", &free_port().to_string(), "--replicaof", &of]);
    let data_dir = tempfile::tempdir().unwrap();
    let settings = settings(&format!("redis://127.0.0.1:{port}"), &data_dir);
    let store = open(&Settings { wait_replicas: 1, is_marked: false, ..settings }).await.unwrap();
    follows(&store).await;
    let term = store.term(&space()).await;
    assert_eq!(create(&store, "one").await, Ok(Committed::Written));
    server.kill();
    let _without_data = RedisServer::start_with(&["--port", &port]);
    follows(&store).await;
    is_not_confirmed(&store, term).await;
}

/// Passes new connections on to the server at a port, which may change.
pub(super) async fn address_of(port: watch::Receiver<u16>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            let port = *port.borrow();
            tokio::spawn(async move {
                let mut to = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let _ended = copy_bidirectional(&mut from, &mut to).await;
            });
        }
    });
    address
}

/// Only if all replicas are awaited does every possible successor have everything.
#[tokio::test]
async fn a_replica_that_was_not_awaited_may_lack_what_was_answered() {
    let [one, two, three] = [(); 3].map(|()| free_port());
    let start = |port: u16, of: Option<u16>| {
        let (port, of) = (port.to_string(), of.map(|of| format!("127.0.0.1 {of}")));
        let of = of.iter().flat_map(|of| ["--replicaof", of]);
        RedisServer::start_with(&["--port", &port].into_iter().chain(of).collect::<Vec<_>>())
    };
    let mut before = start(one, None);
    let _awaited = start(two, Some(one));
    let other = start(three, Some(one));
    let (address, port) = watch::channel(one);
    let data_dir = tempfile::tempdir().unwrap();
    let settings = settings(&format!("redis://{}", address_of(port).await), &data_dir);
    let settings = Settings { is_marked: false, ..settings };
    let store = open(&Settings { wait_replicas: 1, ..settings.clone() }).await.unwrap();
    let careful = open(&Settings { wait_replicas: 2, ..settings }).await.unwrap();
    follows(&careful).await;
    // This replica receives no more writes.
    other.ask("REPLICAOF NO ONE").unwrap();
    let terms = [store.term(&space()).await, careful.term(&space()).await];
    assert_eq!(create(&store, "one").await, Ok(Committed::Written));
    store.settle(&space(), Durability::Durable, terms[0]).await.unwrap();
    careful.settle(&space(), Durability::Durable, terms[1]).await.unwrap_err();
    address.send_replace(three);
    before.kill();
    let began = Instant::now();
    let found = loop {
        match has(&store, "one").await {
            Ok(found) => break found,
            Err(failure) => assert!(began.elapsed() < PATIENCE, "{failure}"),
        }
    };
    assert!(!found, "it is lost");
}

#[tokio::test]
async fn a_replica_that_took_over_confirms_nothing_that_the_server_before_still_takes() {
    let [one, two, three] = [(); 3].map(|()| free_port());
    let start = |port: u16, of: Option<u16>| {
        let (port, of) = (port.to_string(), of.map(|of| format!("127.0.0.1 {of}")));
        let of = of.iter().flat_map(|of| ["--replicaof", of]);
        RedisServer::start_with(&["--port", &port].into_iter().chain(of).collect::<Vec<_>>())
    };
    let before = start(one, None);
    let after = start(two, Some(one));
    let _replica = start(three, Some(two));
    let (address, port) = watch::channel(one);
    let data_dir = tempfile::tempdir().unwrap();
    let url = format!("redis://{}", address_of(port).await);
    let settings = Settings { wait_replicas: 1, is_marked: false, ..settings(&url, &data_dir) };
    let store = open(&settings).await.unwrap();
    follows(&store).await;

    after.ask("REPLICAOF NO ONE").unwrap();
    let began = Instant::now();
    while !after.info("replication").contains("state=online") {
        assert!(began.elapsed() < PATIENCE, "its replica does not follow");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    address.send_replace(two);
    let term = store.term(&space()).await;
    assert_eq!(create(&store, "one").await, Ok(Committed::Written), "the server before does not know yet");
    // A wait on the old master fails, as its replica has left, and the next wait reconnects.
    store.settle(&space(), Durability::Durable, term).await.unwrap_err();
    is_not_confirmed(&store, term).await;
    drop(before);
}
