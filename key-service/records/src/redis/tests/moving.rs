//! A cluster whose slots move.

use std::time::Duration;

use super::{Question, Records, Redis, SET, Settings, name, open, record};
use crate::{
    records::{Answer, Commit, Committed, Name, Set, Space, Write},
    servers::{Cluster, settings},
};

const OTHER: Set = Set { table: 2, part: 7 };

fn other() -> Name {
    Name { set: OTHER, key: b"k"[..].into() }
}

/// Asks several questions about one moment, and returns whether each set has its record.
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

    // All names have gone over, and the server before still has the slot.
    let space = Space::new("whole");
    put(&space, name("one")).await;
    put(&space, other()).await;
    let moving = cluster.begin_to_move(&format!("{prefix}:{{whole}}"));
    moving.name(&format!("{prefix}:{{whole}}:r1"));
    moving.name(&format!("{prefix}:{{whole}}:r2:7"));
    assert_eq!(found(&store, &space).await, [true, true]);
    moving.end();
    assert_eq!(found(&store, &space).await, [true, true]);

    // A name is absent, and may be at either server: they ask to try again until the slot has moved.
    let space = Space::new("part");
    put(&space, name("one")).await;
    let moving = cluster.begin_to_move(&format!("{prefix}:{{part}}"));
    moving.name(&format!("{prefix}:{{part}}:r1"));
    let end = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        moving.end();
    };
    let (found, ()) = tokio::join!(found(&store, &space), end);
    assert_eq!(found, [true, false]);
}
