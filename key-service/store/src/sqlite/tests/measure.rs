//! How long a commit takes, for those who change the backend.

use std::time::Instant;

use futures_util::future::join_all;

use super::{Folder, Guard, LOG, Name, Record, Space, Sqlite, Write, absent, fresh, name, seen};
use crate::records::{Commit, Committed, Index, Records};

/// Commits of a measurement.
const COMMITS: usize = 4_000;

/// A caller that changes records of its own, in a space that all share.
struct Caller {
    number: usize,
    names: [Name; 4],
    present: [Option<Record>; 4],
}

impl Caller {
    fn new(number: usize) -> Self {
        let names = [0, 1, 2, 3].map(|n| name(format!("{number:0>16}{n}")));
        Self { number, names, present: [None, None, None, None] }
    }

    /// Four guards, four puts of 80 bytes, one value of a log, one entry that moves.
    fn commit(&mut self, round: usize) -> Commit {
        let (names, present) = (&self.names, &self.present);
        let guard = |n: usize| {
            present[n].as_ref().map_or_else(|| absent(&names[n]), |record| seen(&names[n], record))
        };
        let guards: Vec<Guard> = (0..4).map(guard).collect();
        let records = [0; 4].map(|_: u8| Record::new(fresh(), 1, &[7; 71]));
        let entry = |round: usize| format!("{round:0>16}{:0>16}", self.number).into_bytes();
        let mut writes: Vec<_> = names
            .iter()
            .zip(&records)
            .map(|(name, record)| Write::Put(name.clone(), record.clone()))
            .collect();
        writes.extend([Write::Leave(Index(1), entry(round)), Write::Enter(Index(1), entry(round + 1))]);
        self.present = records.map(Some);
        Commit { guards, writes }
    }
}

/// Commits of so many callers at once.
async fn measure(store: &Sqlite, callers: usize, label: &str) {
    let id = u64::from_be_bytes(fresh().0) >> 16;
    let space = Space::new(format!("0190f3a1-7b3c-7def-8abc-{id:0>12x}"));
    let mut all: Vec<_> = (0..callers).map(Caller::new).collect();
    let began = Instant::now();
    let mut number = 0;
    for round in 0..COMMITS / callers {
        let commits: Vec<_> = all
            .iter_mut()
            .map(|caller| {
                let mut commit = caller.commit(round);
                number += 1;
                commit.writes.insert(
                    0,
                    Write::Append { log: LOG, first: number, values: vec![vec![7; 80]], kept: 1_000 },
                );
                commit
            })
            .collect();
        for committed in join_all(commits.into_iter().map(|commit| store.commit(&space, commit))).await {
            assert_eq!(committed, Ok(Committed::Written(None)));
        }
    }
    let took = began.elapsed();
    let each = took.as_micros() / u128::from(number);
    println!("{label}, {callers} at once: {each} µs a commit, {} commits a second", 1_000_000 / each.max(1));
}

#[tokio::test]
#[ignore = "a measurement: run it alone, optimised, with --nocapture"]
async fn commits_are_measured() {
    let folder = Folder::new();
    let (file, memory) = (folder.open(), Sqlite::in_memory().unwrap());
    for callers in [1, 16] {
        measure(&memory, callers, "memory").await;
        measure(&file, callers, "file").await;
    }
    let unsynced = |connection: &rusqlite::Connection| {
        connection
            .pragma_update(None, "synchronous", "off")
            .map_err(|e| super::Failure::NotDone(e.to_string()))
    };
    file.writer.run(unsynced).await.unwrap();
    for callers in [1, 16] {
        measure(&file, callers, "file without syncs").await;
    }
}
