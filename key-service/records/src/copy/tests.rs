//! Copies between backends, both complete and interrupted.

use std::{cell::Cell, sync::Arc};

use async_trait::async_trait;
use tokio::time::Instant;

use super::*;
use crate::{
    maps::Maps,
    records::{Commit, Committed, Durability, Failure, Index, Log, Term, Write},
    redis,
    sqlite::Sqlite,
    suite::record,
};

/// More than two pages of a set, of an index and of a log.
const MANY: u64 = 1_234;
const SET: Set = Set { table: 1, part: 7 };

fn maps() -> Arc<dyn Records> {
    Arc::new(Maps::default())
}

fn sqlite() -> Arc<dyn Records> {
    Arc::new(Sqlite::in_memory().unwrap())
}

fn space(n: u64) -> Space {
    Space::new(format!("space {n}"))
}

fn name(n: u64) -> Name {
    Name { set: SET, key: n.to_be_bytes().into() }
}

async fn write(records: &Arc<dyn Records>, space: &Space, writes: Vec<Write>) {
    let commit = Commit { writes, ..Commit::default() };
    assert_eq!(records.commit(space, commit).await, Ok(crate::records::Committed::Written));
}

/// Fills a store with a large space, whose log begins late, and many small ones.
async fn filled(records: Arc<dyn Records>) -> Arc<dyn Records> {
    for n in 0..MANY {
        let writes = vec![
            Write::Put(name(n), record(n.to_be_bytes())),
            Write::Enter(Index(2), n.to_be_bytes().to_vec()),
            Write::Append { log: Log(1), first: 40 + n, values: vec![vec![1; 9]], kept: u64::MAX },
        ];
        write(&records, &space(0), writes).await;
    }
    for n in 1..50 {
        write(&records, &space(n), vec![Write::Put(name(n), record("small"))]).await;
    }
    records
}

#[tokio::test]
async fn everything_is_copied_and_copied_back() {
    let all = Copied { places: 3 + 49, records: MANY + 49, entries: MANY, values: MANY };
    let (from, middle, back) = (filled(maps()).await, sqlite(), maps());
    let told = Cell::new(0);
    let count = |_: Step| told.set(told.get() + 1);
    assert_eq!(copy(&from, &middle, count).await, Ok(all));
    assert!(told.get() > 6, "{told:?}");
    assert_eq!(copy(&middle, &back, |_| ()).await, Ok(all));
    assert_eq!(copy(&from, &back, |_| ()).await, Ok(all), "again, over what is there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_goes_through_redis_and_a_cluster_and_comes_back() {
    let all = Copied { places: 3 + 49, records: MANY + 49, entries: MANY, values: MANY };
    let (from, back) = (filled(sqlite()).await, sqlite());
    let (redis, cluster) = (redis::tests::subject().await, redis::tests::cluster_subject().await);
    assert_eq!(copy(&from, &redis.records, |_| ()).await, Ok(all));
    assert_eq!(copy(&redis.records, &cluster.records, |_| ()).await, Ok(all));
    assert_eq!(copy(&cluster.records, &back, |_| ()).await, Ok(all));
    assert_eq!(copy(&from, &back, |_| ()).await, Ok(all));
}

/// Run by hand: a hundred thousand keys and a million entries of a journal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute"]
async fn a_large_store_is_copied_within_minutes() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| Arc::new(Sqlite::open(&folder.path().join(name)).unwrap()) as Arc<dyn Records>;
    let (from, back) = (file("from.db"), file("back.db"));
    for n in 0..1_000_u64 {
        let mut writes: Vec<_> = (100 * n..100 * (n + 1))
            .flat_map(|n| {
                let put =
                    |part| Write::Put(Name { set: Set { part, ..SET }, ..name(n) }, record([7_u8; 120]));
                [put(0), put(1), Write::Enter(Index(2), n.to_be_bytes().to_vec())]
            })
            .collect();
        writes.push(Write::Append {
            log: Log(1),
            first: 1 + 1_000 * n,
            values: vec![vec![1; 120]; 1_000],
            kept: u64::MAX,
        });
        write(&from, &space(0), writes).await;
        write(&from, &space(n + 1), vec![Write::Put(name(n), record("small"))]).await;
    }
    let redis = redis::tests::subject().await;
    for (from, to) in [(&from, &redis.records), (&redis.records, &back)] {
        let begun = Instant::now();
        let copied = copy(from, to, |_| ()).await.unwrap();
        println!("{copied:?} in {:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn a_copy_that_ended_early_is_completed() {
    let from = filled(maps()).await;
    for copied in [1_u64, 500, 777, 1_000] {
        let to = sqlite();
        for n in 0..copied {
            let (entry, asked) = (n.to_be_bytes().to_vec(), vec![Question::Records(vec![name(n)])]);
            let Some(Answer::Records(found)) = from.read(&space(0), asked).await.unwrap().pop() else {
                panic!()
            };
            let put = Write::Put(name(n), found[0].clone().unwrap());
            let append =
                Write::Append { log: Log(1), first: 40 + n, values: vec![vec![1; 9]], kept: u64::MAX };
            write(&to, &space(0), vec![put, append, Write::Enter(Index(2), entry)]).await;
        }
        assert_eq!(copy(&from, &to, |_| ()).await.unwrap().records, MANY + 49, "{copied}");
    }
}

#[tokio::test]
async fn a_target_that_has_anything_else_stays_as_it_is() {
    let from = filled(maps()).await;
    let others = [
        (space(99), Write::Put(name(1), record("of another space"))),
        (space(0), Write::Put(name(1), record("another"))),
        (space(0), Write::Put(name(MANY), record("one more"))),
        (space(0), Write::Enter(Index(2), vec![9])),
        (space(0), Write::Enter(Index(2), 5_u64.to_be_bytes().to_vec())),
        (space(0), Write::Append { log: Log(1), first: 40, values: vec![vec![2; 9]], kept: u64::MAX }),
        (space(0), Write::Append { log: Log(1), first: 41, values: vec![vec![1; 9]], kept: u64::MAX }),
    ];
    for (of, other) in others {
        let to = maps();
        write(&to, &of, vec![other.clone()]).await;
        let refused = copy(&from, &to, |_| ()).await;
        assert!(matches!(refused, Err(CopyError::NotEmpty(_))), "{other:?}: {refused:?}");
        assert_eq!(to.places().await.unwrap().len(), 1, "{other:?}");
    }
}

#[tokio::test]
async fn what_is_changed_in_the_source_meanwhile_is_found() {
    let from = filled(maps()).await;
    for late in [Write::Put(name(3), record("late")), Write::Remove(name(5))] {
        let (to, written) = (sqlite(), Cell::new(false));
        let writing = Arc::clone(&from);
        let meanwhile = |step: Step| {
            if step.phase == Phase::Copying && !written.replace(true) {
                let commit = Commit { writes: vec![late.clone()], ..Commit::default() };
                let done = futures_util::FutureExt::now_or_never(writing.commit(&space(0), commit));
                done.unwrap().unwrap();
            }
        };
        let differs = copy(&from, &to, meanwhile).await;
        assert!(matches!(differs, Err(CopyError::Differs(_))), "{late:?}: {differs:?}");
    }
}

/// A target that reconnects during some of the writes.
struct Reconnecting {
    maps: Maps,
    term: AtomicU64,
    settled: AtomicU64,
}

#[async_trait]
impl Records for Reconnecting {
    fn system(&self) -> &'static str {
        self.maps.system()
    }

    async fn read(&self, space: &Space, questions: Vec<Question>) -> Result<Vec<Answer>, Failure> {
        self.maps.read(space, questions).await
    }

    async fn commit(&self, space: &Space, commit: Commit) -> Result<Committed, Failure> {
        self.term.fetch_add(1, Ordering::Relaxed);
        self.maps.commit(space, commit).await
    }

    async fn places(&self) -> Result<Vec<(Space, Place)>, Failure> {
        self.maps.places().await
    }

    async fn term(&self, _space: &Space) -> Term {
        Term(self.term.load(Ordering::Relaxed))
    }

    async fn settle(&self, space: &Space, _durability: Durability, since: Term) -> Result<(), Failure> {
        if since != self.term(space).await {
            return Err(Failure::Unknown("the connection was replaced".into()));
        }
        self.settled.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[tokio::test]
async fn a_target_that_connects_anew_during_the_copy_is_waited_for_all_the_same() {
    let from = filled(maps()).await;
    let target =
        Arc::new(Reconnecting { maps: Maps::default(), term: AtomicU64::new(1), settled: AtomicU64::new(0) });
    let to: Arc<dyn Records> = Arc::clone(&target) as Arc<dyn Records>;
    copy(&from, &to, |_| ()).await.unwrap();
    assert_eq!(target.settled.load(Ordering::Relaxed), 50, "each space");
}
