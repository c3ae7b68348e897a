//! Clusters whose nodes join, leave and change their addresses.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use tokio::task::spawn_blocking;

use super::{
    Commit, Committed, Durability, Question, Records, Redis, START, Settings, Space, Write, name, open,
    record,
    replicated::{LOOK_AGAIN, Replicated, until},
    secured::Signed,
    shards::{all_are_served, put},
};
use crate::{
    records::{Answer, MissingServers},
    servers::{Cluster, PATIENCE, RedisServer, settings},
};

/// Number of spaces that are written to at once.
const WRITERS: usize = 24;
/// Number of slots that move to an added node.
const MOVED: usize = 600;
/// Long enough for each node to be asked for the slots, some of them twice.
const EACH_IS_ASKED: Duration = Duration::from_secs(8);

/// Writes increasing numbers to a space until `over` is set. Returns the last number, and how often a write was
/// refused.
async fn write(store: &Redis, space: &Space, over: &AtomicBool, written: &AtomicUsize) -> (usize, usize) {
    let (mut number, mut refused) = (0, 0);
    while !over.load(Ordering::Relaxed) {
        number += 1;
        let began = Instant::now();
        loop {
            let term = store.term(space).await;
            let writes = vec![Write::Put(name("number"), record(number.to_string()))];
            let committed = store.commit(space, Commit { writes, ..Commit::default() }).await;
            if committed == Ok(Committed::Written)
                && store.settle(space, Durability::Durable, term).await.is_ok()
            {
                break;
            }
            refused += 1;
            assert!(began.elapsed() < PATIENCE, "{committed:?}");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        written.fetch_add(1, Ordering::Relaxed);
    }
    (number, refused)
}

/// Writes to many spaces while `happens` runs, and asserts that no write is missing.
async fn loses_nothing(store: &Redis, happens: impl Future) {
    let (over, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    let spaces: Vec<_> = (0..WRITERS).map(|n| Space::new(format!("account {n}"))).collect();
    let writers = join_all(spaces.iter().map(|space| write(store, space, &over, &written)));
    let happens = async {
        happens.await;
        let before = written.load(Ordering::Relaxed);
        while written.load(Ordering::Relaxed) < before + 10 * WRITERS {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        over.store(true, Ordering::Relaxed);
    };
    let (of_spaces, ()) = tokio::join!(writers, happens);
    for (space, (number, refused)) in spaces.iter().zip(of_spaces) {
        let found = store.read(space, vec![Question::Records(vec![name("number")])]).await.unwrap();
        let [Answer::Records(records)] = &found[..] else { panic!("{found:?}") };
        let last = records[0].as_ref().unwrap().as_bytes();
        assert!(last.ends_with(number.to_string().as_bytes()), "{last:?} is not {number}");
        assert!(refused < number, "{refused} of {number} writes were refused");
    }
}

#[tokio::test]
async fn a_node_is_added_takes_slots_over_and_goes_again_and_nothing_is_lost() {
    let cluster = Cluster::start();
    let data_dir = tempfile::tempdir().unwrap();
    let settings = settings(&cluster.url(), &data_dir);
    let store = open(&settings).await.unwrap();
    let coming_and_going = async {
        let coming_and_going = spawn_blocking(move || {
            let (address, added) = cluster.add_node();
            for master in &cluster.masters {
                cluster.move_slots(master, &added, MOVED);
            }
            let taken = added.whole("DBSIZE");
            for master in &cluster.masters {
                cluster.move_slots(&added, master, MOVED);
            }
            cluster.remove_node(&added);
            (cluster, address, added, taken)
        });
        coming_and_going.await.unwrap()
    };
    let mut gone = None;
    loses_nothing(&store, async { gone = Some(coming_and_going.await) }).await;
    let (cluster, address, added, taken) = gone.unwrap();
    assert!(!taken.starts_with(":0\r"), "no space has moved");
    drop(added);
    misses_none(&store).await;
    // A process may start with the address of the node that is gone; it asks the others.
    let url = cluster.url().replace("://", &format!("://{address},"));
    let again = Settings { address: crate::redis::Address::parse(&url).unwrap(), ..settings };
    let again = open(&again).await.unwrap();
    assert_eq!(again.ping().await, Ok(MissingServers::default()));
    all_are_served(&again).await;
}

/// Waits until the store reaches all masters that it knows. Some may have left the cluster.
async fn misses_none(store: &Redis) {
    let began = Instant::now();
    loop {
        let answered = store.ping().await;
        if answered == Ok(MissingServers::default()) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{answered:?}");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Waits until another client connects to a server.
async fn is_asked(server: &RedisServer) {
    let connections = || {
        let info = server.info("stats");
        let (_, count) = info.split_once("total_connections_received:").unwrap();
        count.lines().next().unwrap().parse::<usize>().unwrap()
    };
    let (began, mut own) = (Instant::now(), connections() + 1);
    while connections() == own {
        assert!(began.elapsed() < PATIENCE, "nobody asks it");
        tokio::time::sleep(LOOK_AGAIN).await;
        own += 1;
    }
}

#[tokio::test]
async fn a_master_is_found_at_its_new_address_and_what_has_the_old_one_is_not_taken_for_it() {
    let mut cluster = Cluster::start();
    let data_dir = tempfile::tempdir().unwrap();
    let store = open(&settings(&cluster.url(), &data_dir)).await.unwrap();
    all_are_served(&store).await;
    for of_another_cluster in [false, true] {
        cluster.kill_one();
        let port = cluster.address(2).rsplit_once(':').unwrap().1.to_owned();
        let mut options = vec!["--port", &port];
        if of_another_cluster {
            options.extend(["--cluster-enabled", "yes"]);
        }
        let other = RedisServer::start_with(&options);
        if of_another_cluster {
            other.must("CLUSTER ADDSLOTSRANGE 0 16383");
        }
        is_asked(&other).await;
        cluster.start_one_elsewhere();
        all_are_served(&store).await;
        misses_none(&store).await;
        assert_eq!(other.ask("KEYS *").as_deref(), Some("*0"));
    }
}

/// The node still believes that it has its slots, although a replica took over, and clients can still reach it.
#[tokio::test]
async fn a_node_that_missed_a_change_of_masters_is_not_believed_even_if_no_other_answers() {
    const FIRST: std::ops::Range<u32> = 0..5_461;
    let cluster = Replicated::start().await;
    let data_dir = tempfile::tempdir().unwrap();
    let store = open(&settings(&cluster.url(), &data_dir)).await.unwrap();
    let space = cluster.space_in(FIRST);
    all_are_served(&store).await;
    cluster.cut_off(0, &Signed::new());
    let took_over = &cluster.nodes[3];
    until("a replica to take over", || took_over.info("replication").contains("role:master")).await;
    let had = took_over.ask("DBSIZE");
    let began = Instant::now();
    while took_over.ask("DBSIZE") == had {
        assert!(began.elapsed() < PATIENCE, "the new master is not found");
        // Marking the store also looks for other masters.
        let _ = (store.client.mark(START).await, put(&store, &space).await);
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    for other in &cluster.nodes[1..] {
        other.signal("STOP");
    }
    let began = Instant::now();
    while began.elapsed() < EACH_IS_ASKED {
        assert!(put(&store, &space).await.is_err(), "the master that was replaced has taken it");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    for other in &cluster.nodes[1..] {
        other.signal("CONT");
    }
    all_are_served(&store).await;
}
