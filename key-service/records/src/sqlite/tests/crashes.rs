//! Interruptions: a killed process, a lost machine, a full disk.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
};

use futures_util::FutureExt;

use super::{Folder, count, counted, hold_up};
use crate::{records::Failure, sqlite::Sqlite};

/// Environment variable with the file that the child process writes.
const CHILD_FILE: &str = "STORE_TEST_FILE";
const CHILD: &str = "sqlite::tests::crashes::child_that_counts_until_it_is_killed";

/// Does nothing unless it runs as the child of the next test.
#[tokio::test]
async fn child_that_counts_until_it_is_killed() {
    let Ok(file) = env::var(CHILD_FILE) else { return };
    let store = Sqlite::open(Path::new(&file)).unwrap();
    let mut output = std::io::stdout();
    for n in counted(&store).await + 1.. {
        count(&store, n).await.unwrap();
        writeln!(output, "\nwritten {n}").unwrap();
    }
}

#[tokio::test]
async fn what_was_answered_survives_a_kill() {
    let folder = Folder::new();
    let mut survived = 0;
    for lines in [1, 17, 60] {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", CHILD, "--nocapture", "--test-threads=1"])
            .env(CHILD_FILE, folder.file())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let numbers = output.filter_map(|line| line.strip_prefix("written ")?.parse::<u64>().ok());
        let mut answered = 0;
        for (line, number) in (1..).zip(numbers) {
            answered = number;
            if line == lines {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        let found = counted(&folder.open()).await;
        assert!(answered >= survived + lines, "{answered} {survived}");
        assert!((answered..=answered + 1).contains(&found), "{answered} {found}");
        survived = found;
    }
}

#[tokio::test]
async fn a_log_that_is_torn_anywhere_leaves_whole_commits() {
    let folder = Folder::new();
    let store = folder.open();
    for n in 1..=20 {
        count(&store, n).await.unwrap();
    }
    let whole = fs::read(folder.wal()).unwrap();
    let mut before = 0;
    for part in 0..=60 {
        let crashed = Folder::new();
        fs::copy(folder.file(), crashed.file()).unwrap();
        fs::write(crashed.wal(), &whole[..whole.len() * part / 60]).unwrap();
        let found = counted(&crashed.open()).await;
        assert!(before <= found);
        before = found;
    }
    assert_eq!(before, 20);
}

#[tokio::test]
async fn a_full_disk_writes_nothing_and_heals() {
    let folder = Folder::new();
    let store = folder.open();
    let grow_to = |pages: i64| {
        store.writer.run(move |tables| {
            let set = tables.connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()));
            set.map_err(|e| Failure::NotDone(e.to_string()))
        })
    };
    // SQLite does not shrink the limit below the file's current size, so no page can be added.
    grow_to(1).await.unwrap();
    let (mut written, mut failed) = (0, 0);
    while failed < 50 {
        // Several commits share a transaction and fail together.
        let go_on = hold_up(&store).await;
        let calls = (written + 1..written + 9).map(|n| count(&store, n));
        let (outcomes, ()) = tokio::join!(futures_util::future::join_all(calls), async { drop(go_on) });
        for outcome in outcomes {
            match outcome {
                Ok(_) => written += 1,
                Err(Failure::NotDone(reason)) => {
                    assert!(reason.contains("full"), "{reason}");
                    failed += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(counted(&store).await, written);
    }
    assert!(written > 0);
    grow_to(1_000_000).await.unwrap();
    count(&store, written + 1).await.unwrap();
    assert_eq!(counted(&store).await, written + 1);
}

#[tokio::test]
async fn dropping_a_store_finishes_what_is_queued() {
    let folder = Folder::new();
    let store = folder.open();
    let go_on = hold_up(&store).await;
    for n in 1..=20 {
        // The caller is dropped as soon as the call is queued.
        assert!(count(&store, n).now_or_never().is_none());
    }
    drop(go_on);
    // The task that keeps the writer busy drops the store after receiving the answer.
    let mut store = Some(store);
    while let Some(shared) = store.take() {
        tokio::task::yield_now().await;
        store = std::sync::Arc::try_unwrap(shared).map_or_else(Some, |alone| {
            drop(alone);
            None
        });
    }
    assert!(!folder.wal().exists(), "the log is folded into the file, and gone");
    assert_eq!(counted(&folder.open()).await, 20);
}
