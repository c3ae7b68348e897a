//! Tests that only concern files: crashes, full disks, other processes.

mod copies;
mod crashes;
mod files;

use std::{
    path::PathBuf,
    sync::{Arc, mpsc},
};

use rusqlite::Connection;
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::{Sqlite, tables::Tables};
use crate::{
    records::{
        Answer, Commit, Committed, Failure, Guard, Log, Name, Order, Question, Record, Records, Space, Write,
    },
    suite::{absent, name, record, seen},
};

const LOG: Log = Log(1);

/// A folder for a file, removed on drop.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("store.db")
    }

    fn wal(&self) -> PathBuf {
        self.0.path().join("store.db-wal")
    }

    fn open(&self) -> Arc<Sqlite> {
        Arc::new(Sqlite::open(&self.file()).unwrap())
    }
}

fn space() -> Space {
    Space::new("account")
}

async fn commit(store: &Sqlite, guards: &[Guard], writes: &[Write]) -> Result<Committed, Failure> {
    store.commit(&space(), Commit { guards: guards.to_vec(), writes: writes.to_vec() }).await
}

async fn look_up(store: &Sqlite, name: Name) -> Option<Record> {
    match store.read(&space(), vec![Question::Records(vec![name])]).await.unwrap().as_slice() {
        [Answer::Records(records)] => records[0].clone(),
        other => panic!("{other:?}"),
    }
}

/// Makes commit number `n`: raises the number in a record and logs it.
async fn count(store: &Sqlite, n: u64) -> Result<Committed, Failure> {
    let counted = |n: u64| Record::new(crate::records::Revision(n.to_be_bytes()), 1, &[]);
    let guard = if n == 1 { absent(&name("last")) } else { seen(&name("last"), &counted(n - 1)) };
    let append = Write::Append { log: LOG, first: n, values: vec![vec![1; 50]], kept: u64::MAX };
    commit(store, &[guard], &[append, Write::Put(name("last"), counted(n))]).await
}

/// Returns the number of the last commit of [`count`], after checking that the log and the record agree and that no
/// number is missing.
async fn counted(store: &Sqlite) -> u64 {
    let values =
        Question::Values { log: LOG, from: 0, to: u64::MAX, order: Order::Ascending, limit: 1 << 40 };
    let answers = store.read(&space(), vec![values, Question::Records(vec![name("last")])]).await.unwrap();
    let [Answer::Values(values), Answer::Records(records)] = answers.as_slice() else { panic!() };
    let last = records[0].as_ref().map_or(0, |record| u64::from_be_bytes(record.revision().0));
    assert!(values.iter().map(|(number, _)| *number).eq(1..=last));
    last
}

/// Keeps the writer busy until the sender is dropped. Commits sent meanwhile share the next transaction.
async fn hold_up(store: &Arc<Sqlite>) -> mpsc::Sender<()> {
    let (go_on, wait) = mpsc::channel();
    let (started, begun) = oneshot::channel();
    let store = Arc::clone(store);
    tokio::spawn(async move {
        let busy = move |_: &mut Tables<'_>| {
            started.send(()).unwrap();
            wait.recv().unwrap_err();
            Ok(())
        };
        store.writer.run(busy).await.unwrap();
    });
    begun.await.unwrap();
    go_on
}

#[tokio::test]
async fn commits_that_wait_share_a_transaction_and_each_is_compared_after_those_before() {
    let folder = Folder::new();
    let store = folder.open();
    count(&store, 1).await.unwrap();
    let written = || std::fs::metadata(folder.wal()).unwrap().len();
    let before = written();
    let go_on = hold_up(&store).await;
    let prize = name("prize");
    let rivals: Vec<_> = (0..20).map(|n| record(n.to_string())).collect();
    let writes: Vec<_> = rivals.iter().map(|rival| [Write::Put(prize.clone(), rival.clone())]).collect();
    let guards = [absent(&prize)];
    let calls = futures_util::future::join_all(writes.iter().map(|writes| commit(&store, &guards, writes)));
    let (outcomes, ()) = tokio::join!(calls, async { drop(go_on) });
    let lost = Committed::Conflict(vec![(0, Some(rivals[0].clone()))]);
    assert_eq!(outcomes[0], Ok(Committed::Written));
    assert!(outcomes[1..].iter().all(|outcome| outcome.as_ref() == Ok(&lost)), "{outcomes:?}");
    assert!(written() - before < 5 * 4_096, "{}", written() - before);
}

#[tokio::test]
async fn a_commit_at_fault_harms_no_other_of_its_transaction() {
    let folder = Folder::new();
    let store = folder.open();
    count(&store, 1).await.unwrap();
    let go_on = hold_up(&store).await;
    let wrong = Write::Append { log: LOG, first: 1, values: vec![Vec::new()], kept: 9 };
    let never = record("");
    let wrong = [Write::Put(name("never"), never.clone()), wrong];
    let guards = [absent(&name("never"))];
    let (one, two) = ([Write::Put(name("one"), record(""))], [Write::Put(name("two"), record(""))]);
    let (one, wrong, two, ()) = tokio::join!(
        commit(&store, &[], &one),
        commit(&store, &guards, &wrong),
        commit(&store, &[], &two),
        async { drop(go_on) },
    );
    assert!(matches!(wrong, Err(Failure::NotDone(_))), "{wrong:?}");
    assert_eq!([one, two], [Ok(Committed::Written), Ok(Committed::Written)]);
    assert!(look_up(&store, name("one")).await.is_some() && look_up(&store, name("two")).await.is_some());
    assert_eq!(look_up(&store, name("never")).await, None);
    // The writer has forgotten the revisions that the failed commit wrote.
    let asked = commit(&store, &[seen(&name("never"), &never)], &[]).await;
    assert_eq!(asked, Ok(Committed::Conflict(vec![(0, None)])));
}

#[tokio::test]
async fn a_transaction_that_takes_long_does_not_delay_readers() {
    let folder = Folder::new();
    let store = folder.open();
    let go_on = hold_up(&store).await;
    let reading = async {
        assert_eq!(counted(&store).await, 0);
        drop(go_on);
    };
    let (written, ()) = tokio::join!(count(&store, 1), reading);
    written.unwrap();
    assert_eq!(counted(&store).await, 1);
}

#[tokio::test]
async fn a_value_that_is_no_record_is_damaged_and_harms_no_other() {
    let folder = Folder::new();
    let store = folder.open();
    let bad = [("short", "x'0102'"), ("other", "5")];
    for (bad, value) in bad {
        commit(&store, &[], &[Write::Put(name(bad), record(""))]).await.unwrap();
        let other = Connection::open(folder.file()).unwrap();
        let spoil =
            format!("UPDATE records SET value = {value} WHERE substr(key, -5) = CAST('{bad}' AS BLOB)");
        other.execute(&spoil, []).unwrap();
    }
    for bad in bad.map(|(bad, _)| name(bad)) {
        let (guards, put) = ([absent(&bad)], [Write::Put(name("x"), record(""))]);
        let (asked, sound) = tokio::join!(commit(&store, &guards, &[]), commit(&store, &[], &put));
        assert!(matches!(asked, Err(Failure::Damaged(_))), "{asked:?}");
        sound.unwrap();
        let read = store.read(&space(), vec![Question::Records(vec![bad])]).await;
        assert!(matches!(read, Err(Failure::Damaged(_))), "{read:?}");
    }
}

#[tokio::test]
async fn two_connections_see_at_once_what_the_other_wrote() {
    let folder = Folder::new();
    let stores = [folder.open(), folder.open()];
    let [even, odd] = &stores;
    for n in 1..=60 {
        let (one, other) = if n % 2 == 0 { (even, odd) } else { (odd, even) };
        assert_eq!(count(one, n).await, Ok(Committed::Written));
        // The revisions that the other process knows are old.
        let conflict = count(other, n).await.unwrap();
        assert!(matches!(conflict, Committed::Conflict(_)), "{conflict:?}");
    }
    assert_eq!([counted(&stores[0]).await, counted(&stores[1]).await], [60, 60]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_connections_at_full_speed_lose_nothing() {
    let folder = Folder::new();
    let writer = |store: Arc<Sqlite>| {
        tokio::spawn(async move {
            let (mut done, mut last) = (0, 0);
            while last < 400 {
                match count(&store, last + 1).await.unwrap() {
                    Committed::Written => (done, last) = (done + 1, last + 1),
                    Committed::Conflict(present) => {
                        let record = present[0].1.as_ref().unwrap();
                        last = u64::from_be_bytes(record.revision().0);
                    }
                }
            }
            done
        })
    };
    let (one, two) = tokio::join!(writer(folder.open()), writer(folder.open()));
    let last = counted(&folder.open()).await;
    assert_eq!(one.unwrap() + two.unwrap(), last);
    assert!((400..=401).contains(&last));
}
