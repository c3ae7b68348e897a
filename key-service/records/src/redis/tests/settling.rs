//! Tests of waiting for a cluster's replicas while slots move and other calls are stuck.

use std::time::Duration;

use futures_util::{future::join, poll};
use tokio::time::timeout;

use super::{
    Committed, Durability, Failure, Records, Redis, Settings, Space, create, open,
    replicated::{Replicated, must},
    shards::put,
    space,
};
use crate::servers::{Cluster, PATIENCE, RedisServer, settings};

const SECOND: std::ops::Range<u32> = 5_461..10_923;

/// Sets up a store that waits for one replica, and a space on the second master with a record and a barrier.
async fn replicated() -> (Replicated, tempfile::TempDir, Redis, Space, String) {
    let cluster = Replicated::start().await;
    let data_dir = tempfile::tempdir().unwrap();
    let settings = settings(&cluster.url(), &data_dir);
    let prefix = settings.prefix.clone();
    let store = open(&Settings { wait_replicas: 1, is_marked: false, ..settings }).await.unwrap();
    let space = cluster.space_in(SECOND);
    let term = store.term(&space).await;
    assert_eq!(put(&store, &space).await, Ok(Committed::Written));
    store.settle(&space, Durability::Durable, term).await.unwrap();
    let names = format!("{prefix}:{{{}}}:", space.as_str());
    (cluster, data_dir, store, space, names)
}

/// Begins to move the slot of a space from the second master to the last, and moves one of its names.
fn begin_to_move(cluster: &Replicated, space: &Space, name: &str) {
    let [_, from, to, ..] = &cluster.nodes[..] else { panic!("there are three masters") };
    let slot = from.ask(&format!("CLUSTER KEYSLOT {}", space.as_str())).unwrap()[1..].to_owned();
    must(to, &format!("CLUSTER SETSLOT {slot} IMPORTING {}", from.node_id()));
    must(from, &format!("CLUSTER SETSLOT {slot} MIGRATING {}", to.node_id()));
    must(from, &format!("MIGRATE 127.0.0.1 {} {name} 0 5000", cluster.ports[2]));
}

#[tokio::test]
async fn a_commit_at_the_node_that_takes_its_slot_over_is_not_confirmed_by_the_replicas_of_the_node_before() {
    let (cluster, _data_dir, store, space, names) = replicated().await;
    begin_to_move(&cluster, &space, &format!("{names}r1"));
    cluster.keep_replicas_from_last();
    let term = store.term(&space).await;
    assert_eq!(put(&store, &space).await, Ok(Committed::Written), "the last master has the record");
    assert_eq!(cluster.nodes[1].ask(&format!("EXISTS {names}barrier")).unwrap(), ":1");
    let settled = store.settle(&space, Durability::Durable, term).await;
    assert!(matches!(settled, Err(Failure::Unknown(_))), "{settled:?}");
}

#[tokio::test]
async fn a_space_whose_slot_moves_fails_no_other_space_that_waits_with_it() {
    let (cluster, _data_dir, store, moving, names) = replicated().await;
    let other = Space::new(
        (0..1_000_000)
            .map(|n| format!("other-{n}"))
            .find(|other| {
                let slot = cluster.nodes[0].ask(&format!("CLUSTER KEYSLOT {other}")).unwrap();
                SECOND.contains(&slot[1..].parse().unwrap())
            })
            .unwrap(),
    );
    let term = store.term(&other).await;
    assert_eq!(put(&store, &other).await, Ok(Committed::Written));
    begin_to_move(&cluster, &moving, &format!("{names}barrier"));
    let settle = |space| store.settle(space, Durability::Durable, term);
    // Both join during a third wait, so they share the next one.
    let mut first = settle(&other);
    assert!(poll!(&mut first).is_pending());
    let (mut of_moving, mut of_other) = (settle(&moving), settle(&other));
    assert!(poll!(&mut of_moving).is_pending() && poll!(&mut of_other).is_pending());
    first.await.unwrap();
    let (of_moving, of_other) = join(of_moving, of_other).await;
    assert!(matches!(of_moving, Err(Failure::Unknown(_))), "{of_moving:?}");
    assert_eq!(of_other, Ok(()));
}

#[tokio::test]
async fn a_wait_that_nobody_goes_on_with_holds_up_no_other_for_ever() {
    let server = RedisServer::start();
    let (_data_dir, settings) = super::place(&server);
    let store = open(&Settings { wait_replicas: 1, ..settings }).await.unwrap();
    let space = space();
    let term = store.term(&space).await;
    assert_eq!(create(&store, "one").await, Ok(Committed::Written));
    let mut parked = store.settle(&space, Durability::Durable, term);
    assert!(poll!(&mut parked).is_pending());
    let settled = timeout(PATIENCE, store.settle(&space, Durability::Durable, term)).await;
    assert!(matches!(settled, Ok(Err(Failure::Unknown(_)))), "{settled:?}");
    drop(parked);
    let settled = store.settle(&space, Durability::Durable, term).await;
    assert!(matches!(&settled, Err(Failure::Unknown(why)) if why.contains("too few")), "{settled:?}");
}

#[tokio::test]
async fn calls_that_wait_for_one_master_leave_room_for_those_to_others() {
    let cluster = Cluster::start();
    let data_dir = tempfile::tempdir().unwrap();
    let store = open(&Settings { is_marked: false, ..settings(&cluster.url(), &data_dir) }).await.unwrap();
    let [stopped, other] = [2, 0].map(|master: usize| {
        let slots = [0..5_461, 0..0, 10_923..16_384][master].clone();
        let name = (0..1_000_000).map(|n| format!("account-{n}")).find(|name| {
            let slot = cluster.masters[0].ask(&format!("CLUSTER KEYSLOT {name}")).unwrap();
            slots.contains(&slot[1..].parse::<u32>().unwrap())
        });
        Space::new(name.unwrap())
    });
    cluster.masters[2].signal("STOP");
    let mut waiting: Vec<_> = (0..4096).map(|_| Box::pin(put(&store, &stopped))).collect();
    for call in &mut waiting {
        assert!(poll!(call).is_pending());
    }
    let refused = put(&store, &stopped).await;
    assert!(matches!(&refused, Err(Failure::NotDone(why)) if why.contains("too many calls")), "{refused:?}");
    assert_eq!(put(&store, &other).await, Ok(Committed::Written));
    drop(waiting);
    cluster.masters[2].signal("CONT");
    let began = std::time::Instant::now();
    while put(&store, &stopped).await.is_err() {
        assert!(began.elapsed() < PATIENCE, "it is not served again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
