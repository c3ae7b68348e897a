//! What is answered once replicas have it.

use std::time::Instant;

use super::{Durability, Records, Settings, create, has, open, place, space};
use crate::{
    records::{Committed, Failure},
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
        store.settle(&space(), durability).await.unwrap();
    }

    replica.kill();
    assert_eq!(create(&store, "two").await, Ok(Committed::Written));
    store.settle(&space(), Durability::Volatile).await.unwrap();
    let waits = async {
        for durability in [Durability::Replicated, Durability::Durable] {
            let failed = store.settle(&space(), durability).await;
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
    store.settle(&space(), Durability::Durable).await.unwrap();
    assert_eq!(store.persistence_warning().await, None);
    assert_eq!(server.ask(&format!("EXISTS {}:{{account}}:barrier", settings.prefix)).unwrap(), ":0");

    let slower = RedisServer::start_with(&["--port", "0", "--appendfsync", "everysec"]);
    let (_data_dir, settings) = place(&slower);
    let store = open(&settings).await.unwrap();
    assert!(store.persistence_warning().await.unwrap().contains("set appendfsync to always"));
}
