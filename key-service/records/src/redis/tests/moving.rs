use std::time::Duration;

use ::redis::{Client, FromRedisValue, cmd};

use super::{
    Question, Records, Redis, SET, Settings, name, open, record,
    replicated::{Replicated, must, until},
    shards::put,
};
use crate::{
    records::{Answer, Commit, Committed, Durability, Name, Set, Space, Write},
    servers::{Cluster, RedisServer, settings},
};

const OTHER: Set = Set { table: 2, part: 7 };

/// A slot that moves from one master of a cluster to the next.
struct SlotMove<'a> {
    masters: &'a [RedisServer],
    slot: u16,
    from: usize,
    to: usize,
}

impl<'a> SlotMove<'a> {
    /// Begins to move the slot of a name. Its names move one by one.
    fn begin(masters: &'a [RedisServer], name: &str) -> Self {
        let slot: u16 = ask(&masters[0], &["CLUSTER", "KEYSLOT", name]);
        let from = usize::from(slot > 5_460) + usize::from(slot > 10_922);
        let moving = Self { masters, slot, from, to: (from + 1) % masters.len() };
        moving.set(moving.to, "IMPORTING", from);
        moving.set(from, "MIGRATING", moving.to);
        moving
    }

    fn name(&self, name: &str) {
        let port: (String, String) = ask(&self.masters[self.to], &["CONFIG", "GET", "port"]);
        let migrated: String =
            ask(&self.masters[self.from], &["MIGRATE", "127.0.0.1", &port.1, name, "0", "5000"]);
        assert_eq!(migrated, "OK");
    }

    /// Announces to all masters that the slot has moved.
    fn end(self) {
        for master in [self.to, self.from, 3 - self.to - self.from] {
            self.set(master, "NODE", self.to);
        }
    }

    fn set(&self, at: usize, state: &str, of: usize) {
        let id: String = ask(&self.masters[of], &["CLUSTER", "MYID"]);
        let set: String = ask(&self.masters[at], &["CLUSTER", "SETSLOT", &self.slot.to_string(), state, &id]);
        assert_eq!(set, "OK");
    }
}

fn ask<T: FromRedisValue>(server: &RedisServer, words: &[&str]) -> T {
    let mut connection = Client::open(server.url()).unwrap().get_connection().unwrap();
    let mut command = cmd(words[0]);
    command.arg(&words[1..]).query(&mut connection).unwrap()
}

fn other() -> Name {
    Name { set: OTHER, key: b"k"[..].into() }
}

/// Asks several questions about the same moment, and returns whether each set has its record.
async fn found(store: &Redis, space: &Space) -> Vec<bool> {
    let records = Question::Records(vec![name("one"), other()]);
    let answers =
        store.read(space, vec![records, Question::Set(SET, None), Question::Set(OTHER, None)]).await;
    match answers.unwrap().into_iter().next() {
        Some(Answer::Records(records)) => records.iter().map(Option::is_some).collect(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn questions_about_one_moment_follow_a_slot_that_moves() {
    let cluster = Cluster::start();
    let data_dir = tempfile::tempdir().unwrap();
    let settings = settings(&cluster.url(), &data_dir);
    let prefix = settings.prefix.clone();
    let store = open(&Settings { is_marked: false, ..settings }).await.unwrap();
    let put = async |space: &Space, name: Name| {
        let commit = Commit { guards: Vec::new(), writes: vec![Write::Put(name, record("1"))] };
        assert_eq!(store.commit(space, commit).await, Ok(Committed::Written));
    };

    // All names have moved, but the old server still has the slot.
    let space = Space::new("whole");
    put(&space, name("one")).await;
    put(&space, other()).await;
    let moving = SlotMove::begin(&cluster.masters, &format!("{prefix}:{{whole}}"));
    moving.name(&format!("{prefix}:{{whole}}:r1"));
    moving.name(&format!("{prefix}:{{whole}}:r2:7"));
    assert_eq!(found(&store, &space).await, [true, true]);
    moving.end();
    assert_eq!(found(&store, &space).await, [true, true]);

    // A name is absent and may be on either server, so both ask to try again until the slot has moved.
    let space = Space::new("part");
    put(&space, name("one")).await;
    let moving = SlotMove::begin(&cluster.masters, &format!("{prefix}:{{part}}"));
    moving.name(&format!("{prefix}:{{part}}:r1"));
    let end = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        moving.end();
    };
    let (found, ()) = tokio::join!(found(&store, &space), end);
    assert_eq!(found, [true, false]);
}

/// Redis moves a name without waiting for the new master's replicas.
#[tokio::test]
async fn what_a_slot_brings_along_is_lost_with_its_new_master_until_replicas_have_it() {
    let cluster = Replicated::start().await;
    let data_dir = tempfile::tempdir().unwrap();
    let settings = settings(&cluster.url(), &data_dir);
    let prefix = settings.prefix.clone();
    let store = open(&Settings { is_marked: false, wait_replicas: 1, ..settings }).await.unwrap();
    let space = cluster.space_in(5_461..10_923);
    let term = store.term(&space).await;
    assert_eq!(put(&store, &space).await, Ok(Committed::Written));
    store.settle(&space, Durability::Durable, term).await.unwrap();

    cluster.keep_replicas_from_last();
    let moving = SlotMove::begin(&cluster.nodes[..3], &format!("{prefix}:{{{}}}", space.as_str()));
    let names = ["r1", "barrier"].map(|name| format!("{prefix}:{{{}}}:{name}", space.as_str()));
    for name in &names {
        moving.name(name);
    }
    let (slot, new) = (moving.slot.to_string(), cluster.nodes[2].node_id());
    moving.end();
    until("the replica to know", || {
        let nodes = cluster.nodes[5].whole("CLUSTER NODES");
        nodes.lines().any(|line| line.starts_with(&new) && line.split(' ').any(|word| word == slot))
    })
    .await;
    must(&cluster.nodes[5], "CLUSTER FAILOVER TAKEOVER");
    until("the replica to take over", || cluster.nodes[5].info("replication").contains("role:master")).await;
    let asked = async || store.read(&space, vec![Question::Records(vec![name("one")])]).await;
    let found = loop {
        match asked().await {
            Ok(found) => break found,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    assert_eq!(found, [Answer::Records(vec![None])]);
}
