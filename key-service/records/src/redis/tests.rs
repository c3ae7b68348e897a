//! Redis as a backend: the cases of the suite run on a server and on a cluster, each with its own prefix.

mod durability;
mod failovers;
mod full;
mod moving;
mod nodes;
mod outages;
mod replicated;
mod secured;
mod settling;
mod shards;
mod torn;

use std::{
    any::Any,
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use ::redis::{Cmd, Value, cmd};
use shared::{
    clock::{Clock, System},
    time::Timestamp,
};
use tempfile::TempDir;

use super::{Redis, Settings};
use crate::{
    records::{
        Commit, Committed, Durability, Failure, Index, Log, Name, Place, Question, Record, Records, Revision,
        Set, Space, Write,
    },
    servers::{Cluster, RedisServer, settings},
    suite::{SET, Subject, absent, name, record},
};

/// The fixed time of the tests' clocks.
const START: Timestamp = Timestamp::from_millis(1_790_000_000_000);

/// Returns an empty store on the server that all tests share.
pub(crate) async fn subject() -> Subject {
    let server = RedisServer::shared();
    let url = server.url();
    at_address(&url, server).await
}

/// Returns an empty store on the cluster that all tests share.
pub(crate) async fn cluster_subject() -> Subject {
    let cluster = Cluster::shared();
    let url = cluster.url();
    at_address(&url, cluster).await
}

async fn at_address(url: &str, servers: Arc<dyn Any + Send + Sync>) -> Subject {
    let data_dir = tempfile::tempdir().unwrap();
    let redis = Redis::open(&settings(url, &data_dir), Arc::new(System)).await.unwrap();
    Subject::new(redis, Some(Arc::new((data_dir, servers))))
}

struct Stopped(AtomicI64);

impl Clock for Stopped {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn random(&self, bytes: &mut [u8]) {
        System.random(bytes);
    }
}

fn at(now: Timestamp) -> Arc<dyn Clock> {
    Arc::new(Stopped(AtomicI64::new(now.millis())))
}

async fn open(settings: &Settings) -> Result<Redis, String> {
    Redis::open(settings, at(START)).await.map_err(|e| e.to_string())
}

/// Returns a data directory, and settings for it and a server.
fn place(server: &RedisServer) -> (TempDir, Settings) {
    let data_dir = tempfile::tempdir().unwrap();
    let settings = settings(&server.url(), &data_dir);
    (data_dir, settings)
}

fn space() -> Space {
    Space::new("account")
}

/// Writes a record that must not exist yet.
async fn create(store: &Redis, key: &str) -> Result<Committed, Failure> {
    let put = Write::Put(name(key), record(key));
    store.commit(&space(), Commit { guards: vec![absent(&name(key))], writes: vec![put] }).await
}

/// Returns whether the record exists.
async fn has(store: &Redis, key: &str) -> Result<bool, Failure> {
    let answers = store.read(&space(), vec![Question::Records(vec![name(key)])]).await?;
    match &answers[..] {
        [crate::records::Answer::Records(records)] => Ok(records[0].is_some()),
        other => panic!("{other:?}"),
    }
}

async fn ask(store: &Redis, command: &Cmd) -> Value {
    store.client.ask(command).await.unwrap()
}

/// Returns a separate store on the server that all tests share, the same store as a subject, and its prefix.
async fn alone() -> (Arc<Redis>, Subject, String) {
    let (server, data_dir) = (RedisServer::shared(), tempfile::tempdir().unwrap());
    let settings = settings(&server.url(), &data_dir);
    let redis = Arc::new(Redis::open(&settings, Arc::new(System)).await.unwrap());
    let records: Arc<dyn Records> = Arc::clone(&redis) as Arc<dyn Records>;
    (redis, Subject::over(records, Some(Arc::new((data_dir, server)))), settings.prefix)
}

/// Redis has no rollback, so what would fail halfway is refused beforehand.
#[tokio::test]
async fn a_name_of_another_type_fails_before_anything_is_written() {
    let (redis, subject, prefix) = alone().await;
    for name in ["i1", "l2", "r2"] {
        ask(&redis, cmd("SET").arg(format!("{prefix}:{{suite}}:{name}")).arg("a text")).await;
    }
    let put = Write::Put(name("one"), record("1"));
    let append = |log| Write::Append { log: Log(log), first: 1, values: vec![vec![1]], kept: 9 };
    let trim = Write::Trim { log: Log(2), first: 1 };
    // No guard reads this set.
    let other = || Name { set: Set { table: 2, part: 0 }, key: b"k"[..].into() };
    let failing = [
        Write::Enter(Index(1), vec![1]),
        Write::Leave(Index(1), vec![1]),
        append(2),
        trim,
        Write::Put(other(), record("")),
        Write::Remove(other()),
    ];
    for write in failing {
        let writes = [append(1), put.clone(), write.clone()];
        let failed = subject.try_commit(&[absent(&name("one"))], &writes).await;
        assert!(matches!(failed, Err(Failure::Damaged(_))), "{write:?}: {failed:?}");
        assert_eq!(subject.look_up(&[name("one")]).await, [None]);
    }
    let there = ask(&redis, cmd("EXISTS").arg(format!("{prefix}:{{suite}}:l1"))).await;
    assert_eq!(there, Value::Int(0));
}

#[tokio::test]
async fn a_commit_that_redis_cannot_take_whole_is_refused_unwritten() {
    let (redis, subject, prefix) = alone().await;
    let append = |first, values| Write::Append { log: Log(1), first, values, kept: 9 };
    let put = |part| Write::Put(Name { set: Set { table: 1, part }, key: b"k"[..].into() }, record(""));
    let too_large = [
        (0..300).map(put).collect(),
        (0..70_000_u32)
            .map(|n| Write::Enter(Index(1), n.to_be_bytes().to_vec()))
            .chain([put(0)])
            .cycle()
            .take(140_000)
            .collect(),
        vec![put(1), append(0, vec![vec![1]])],
        vec![put(1), append(1, Vec::new())],
        vec![put(1), append(u64::MAX, vec![vec![1]; 2])],
    ];
    for writes in too_large {
        let failed = subject.try_commit(&[], &writes).await;
        assert!(matches!(failed, Err(Failure::NotDone(_))), "{failed:?}");
    }
    let mut keys = cmd("KEYS");
    keys.arg(format!("{prefix}:{{suite}}:*"));
    assert_eq!(ask(&redis, &keys).await, Value::Array(Vec::new()));
}

/// A user who may run only some of the commands of a commit.
#[tokio::test]
async fn what_the_user_may_not_do_is_refused_before_anything_is_written() {
    let server = RedisServer::start();
    let data_dir = tempfile::tempdir().unwrap();
    let all = "ACL SETUSER faregate on >secret ~* &* +@all";
    for denied in ["zadd", "zrem", "hset", "hdel", "xadd", "xtrim", "unlink"] {
        server.ask(all).unwrap();
        let url = format!("{}?user=faregate&pass=secret", server.url());
        let store = open(&Settings { is_marked: false, ..settings(&url, &data_dir) }).await.unwrap();
        server.ask(&format!("ACL SETUSER faregate -{denied}")).unwrap();
        let set = |table| Name { set: Set { table, part: 0 }, key: b"k"[..].into() };
        let writes = vec![
            Write::Append { log: Log(1), first: 1, values: vec![vec![1]], kept: 9 },
            Write::Trim { log: Log(2), first: 1 },
            Write::Drop(Set { table: 3, part: 0 }),
            Write::Remove(set(2)),
            Write::Put(set(1), record("")),
            Write::Leave(Index(1), vec![1]),
            Write::Enter(Index(1), vec![2]),
        ];
        let space = Space::new(denied);
        let failed = store.commit(&space, Commit { guards: vec![absent(&set(1))], writes }).await;
        assert!(matches!(&failed, Err(Failure::NotDone(_))), "{denied}: {failed:?}");
        assert_eq!(server.ask(&format!("KEYS *{{{denied}}}*")).unwrap(), "*0", "{denied}");
    }
}

/// The stored data may come from another program.
#[tokio::test]
async fn bytes_that_are_no_record_are_damaged_and_nothing_panics() {
    let (redis, subject, prefix) = alone().await;
    let set = format!("{prefix}:{{suite}}:r1");
    ask(&redis, cmd("HSET").arg(&set).arg("short").arg("x")).await;
    let failed = subject.try_commit(&[absent(&name("short"))], &[]).await;
    assert!(matches!(failed, Err(Failure::Damaged(_))), "{failed:?}");
    let whole = Record::new(Revision([7; 8]), 9, b"text");
    ask(&redis, cmd("HSET").arg(&set).arg("whole").arg(whole.as_bytes())).await;
    assert_eq!(subject.look_up(&[name("whole")]).await, [Some(whole)]);
}

/// Returns all places of a store, from all pages.
async fn all_places(store: &Redis) -> BTreeSet<(Space, Place)> {
    store.places().await.unwrap().into_iter().collect()
}

async fn lists_its_places(url: &str) {
    let data_dir = tempfile::tempdir().unwrap();
    let settings = settings(url, &data_dir);
    // Prefixes of other stores that look alike.
    let prefixes = ["a[b]*", "a[b]*c", "ab", "a[b]*:{x}"];
    let mut stores = Vec::new();
    for prefix in prefixes {
        let settings = Settings { prefix: format!("{}{prefix}", settings.prefix), ..settings.clone() };
        // Opened without marks, since the marks of one prefix would be missing under another.
        stores.push(open(&Settings { is_marked: false, ..settings }).await.unwrap());
    }
    for store in &stores {
        assert_eq!(all_places(store).await, BTreeSet::new());
    }
    let store = &stores[0];
    let mut expected = BTreeSet::new();
    for n in 0..40 {
        let space = Space::new(format!("account:{n}"));
        let set = Set { table: 200, part: n };
        let writes = vec![
            Write::Put(Name { set, key: b"k"[..].into() }, record("")),
            Write::Put(name("one"), record("")),
            Write::Enter(Index(3), vec![1]),
            Write::Append { log: Log(255), first: 1, values: vec![vec![1]], kept: 9 },
        ];
        store.commit(&space, Commit { guards: Vec::new(), writes }).await.unwrap();
        store.settle(&space, Durability::Durable, store.term(&space).await).await.unwrap();
        let places = [Place::Set(set), Place::Set(SET), Place::Index(Index(3)), Place::Log(Log(255))];
        expected.extend(places.map(|place| (space.clone(), place)));
    }
    store.try_write().await.unwrap();
    assert_eq!(all_places(store).await, expected);
    for other in &stores[1..] {
        assert_eq!(all_places(other).await, BTreeSet::new());
    }
}

#[tokio::test]
async fn places_are_listed_and_nothing_else() {
    lists_its_places(&RedisServer::shared().url()).await;
}

#[tokio::test]
async fn places_of_all_masters_of_a_cluster_are_listed() {
    lists_its_places(&Cluster::shared().url()).await;
}
