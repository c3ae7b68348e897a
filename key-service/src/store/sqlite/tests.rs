//! Tests specific to files: crashes, other processes, and locks between processes.

mod damage;
mod upgrade;

use crate::store::suite::act;
use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
};

use futures_util::{FutureExt, future::join_all};
use rusqlite::Connection;
use shared::{
    ids::{AccountId, GenerationId, KeyId},
    money::NanoUsd,
    time::Timestamp,
    tokens::Usage,
};
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::{OpenError, Sqlite};
use crate::store::{Accounts, Keys, Ledger, NewAccount, suite};
use domain::{
    digest::Digest,
    event::Actor,
    key::{ApiKey, NewKey},
    ledger::{
        Command, NewHold, Outcome, Progress,
        histories::{self, START, account, deposit, generation, key},
    },
};

/// First credit of every account.
const CREDIT: i64 = 1_000_000;

/// A folder for a store, removed on drop.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("store.db")
    }

    fn log(&self) -> PathBuf {
        self.0.path().join("store.db-wal")
    }

    /// A store with accounts 0 and 1, each with credit and key 0.
    async fn store(&self) -> Arc<Sqlite> {
        let store = Sqlite::open(&self.file()).unwrap();
        for n in 0..2 {
            open_account(&store, n).await;
        }
        Arc::new(store)
    }

    /// State after a crash at this moment: copies of the file and the log.
    fn crashed(&self) -> Self {
        let copy = Self::new();
        fs::copy(self.file(), copy.file()).unwrap();
        fs::copy(self.log(), copy.log()).unwrap();
        copy
    }
}

async fn open_account(store: &Sqlite, n: u8) {
    let (id, name) = (account(n), format!("Customer {n}"));
    assert!(store.create_account(NewAccount { id, name, created_at: START }).await.unwrap());
    let credit = Command::Deposit {
        id: deposit(0),
        amount: NanoUsd::from_nanos(CREDIT),
        note: String::new(),
        payment_id: None,
        actor: Actor::System,
    };
    store.execute(id, vec![credit], START).await.unwrap().remove(0).unwrap();
    let key = ApiKey { label: "Key".into(), ..ApiKey::new(key(0), "fg_api_…".into(), START) };
    store
        .create_key(NewKey { account: id, key, digest: Digest::of(&[n]), most: 1_000 }, None, &act(START))
        .await
        .unwrap();
}

fn hold(generation: GenerationId, amount: i64) -> Command {
    let amount = NanoUsd::from_nanos(amount);
    let (key, model) = (key(0), "Model Flash".into());
    Command::Hold(NewHold {
        key,
        credential: 0,
        generation,
        model,
        least: amount,
        enough: amount,
        most: amount,
        prompt_tokens: 1,
        readmitted: false,
        lease_ticks: 7,
    })
}

fn capture(generation: GenerationId, cost: i64) -> Command {
    let (model, total) = (
        "Model Flash".into(),
        Progress { usage: Usage::default(), cost: NanoUsd::from_nanos(cost), upstream_cost: None },
    );
    Command::Capture { key: key(0), generation, model, total, chargeable: None, estimated: false }
}

/// The generation of this number, for large numbers.
fn numbered(n: u32) -> GenerationId {
    GenerationId::new(Timestamp::from_millis(n.into()), [0; 10])
}

async fn used(store: &Sqlite, account: AccountId) -> i64 {
    store.key(account, key(0)).await.unwrap().unwrap().spend.budget.used.nanos()
}

/// Number of open holds of accounts 0 and 1.
async fn open_holds(store: &Sqlite) -> [usize; 2] {
    let mut open = [0; 2];
    for (n, open) in (0..).zip(&mut open) {
        suite::tick(store, account(n), 7).await;
        *open = suite::due_holds(store, account(n)).await.len();
    }
    open
}

/// Keeps the writer busy until the sender is dropped. Calls sent meanwhile share the next transaction.
async fn hold_up(store: &Arc<Sqlite>) -> mpsc::Sender<()> {
    let (go_on, wait) = mpsc::channel();
    let (started, begun) = oneshot::channel();
    let store = Arc::clone(store);
    tokio::spawn(async move {
        let busy = move |_: &Connection| {
            started.send(()).unwrap();
            wait.recv().unwrap_err();
            Ok(())
        };
        store.writer.write(busy).await.unwrap();
    });
    begun.await.unwrap();
    go_on
}

/// Reads the file as any other program would, checks the invariants of the ledger, and returns the number of billed
/// generations.
fn audit(path: &Path) -> i64 {
    let connection = Connection::open(path).unwrap();
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let wrong_keys = "
        SELECT count(*) FROM api_keys AS k
        WHERE used <> (SELECT coalesce(sum(delta), 0) FROM journal AS j WHERE (j.account, j.key) = (k.account, k.id))
           OR held <> (SELECT coalesce(sum(amount), 0) FROM holds AS h WHERE (h.account, h.key) = (k.account, k.id))";
    let wrong_accounts = "
        SELECT count(*) FROM accounts AS a
        WHERE credit + (SELECT coalesce(sum(delta), 0) FROM journal WHERE account = a.id)
                  <> (SELECT coalesce(sum(amount), 0) FROM deposits WHERE account = a.id)
           OR held <> (SELECT coalesce(sum(amount), 0) FROM holds WHERE account = a.id)";
    assert_eq!((number(wrong_keys), number(wrong_accounts)), (0, 0));
    let sound: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
    number("SELECT count(*) FROM journal")
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_crash() {
    let folder = Folder::new();
    let store = folder.store().await;
    let mut spent = 0;
    for n in 0..50 {
        let commands = vec![hold(numbered(n), 100), capture(numbered(n), n.into())];
        store.execute(account(0), commands, START).await.unwrap();
        spent += i64::from(n);
        store.execute(account(1), vec![hold(numbered(n), 7)], START).await.unwrap();
    }
    let crashed = folder.crashed();
    let revived = Sqlite::open(&crashed.file()).unwrap();
    assert_eq!(used(&revived, account(0)).await, spent);
    assert_eq!(open_holds(&revived).await, [0, 50]);
    drop(revived);
    assert_eq!(audit(&crashed.file()), 50);
}

#[tokio::test]
async fn a_log_that_is_torn_anywhere_leaves_books_that_balance() {
    let folder = Folder::new();
    let store = folder.store().await;
    for n in 0..20 {
        store.execute(account(0), vec![hold(numbered(n), 100)], START).await.unwrap();
        store.execute(account(0), vec![capture(numbered(n), n.into())], START).await.unwrap();
    }
    let whole = fs::read(folder.log()).unwrap();
    let mut billed_before = 0;
    for part in 0..=60 {
        let crashed = folder.crashed();
        fs::write(crashed.log(), &whole[..whole.len() * part / 60]).unwrap();
        drop(Sqlite::open(&crashed.file()).unwrap());
        let billed = audit(&crashed.file());
        assert!(billed_before <= billed);
        billed_before = billed;
    }
    assert_eq!(billed_before, 20);
}

#[tokio::test]
async fn callers_at_once_share_a_transaction_and_each_gets_its_own_outcomes() {
    let folder = Folder::new();
    let store = folder.store().await;
    let syncs = || fs::metadata(folder.log()).unwrap().len();
    let before = syncs();
    let go_on = hold_up(&store).await;
    let calls = (0..100_u8).map(|n| {
        let commands = vec![hold(generation(n), n.into()), capture(generation(n), n.into())];
        store.execute(account(n % 2), commands, START)
    });
    let (outcomes, ()) = tokio::join!(join_all(calls), async { drop(go_on) });
    for (n, outcomes) in (0..).zip(outcomes) {
        let outcomes = outcomes.unwrap();
        assert_eq!(outcomes[0], Ok(histories::held(NanoUsd::from_nanos(n))));
        let Ok(Outcome::Captured(settlement)) = &outcomes[1] else { panic!("{outcomes:?}") };
        assert_eq!(settlement.charged.nanos(), n);
    }
    // Two hundred commands wrote a few dozen pages in all, not several each.
    assert!(syncs() - before < 60 * 4_096, "{}", syncs() - before);
}

#[tokio::test]
async fn a_transaction_that_takes_long_does_not_delay_readers() {
    let folder = Folder::new();
    let store = folder.store().await;
    let go_on = hold_up(&store).await;
    let writing = store.execute(account(0), vec![hold(generation(1), 10), capture(generation(1), 10)], START);
    let reading = async {
        store.ping().await.unwrap();
        let used = used(&store, account(0)).await;
        drop(go_on);
        used
    };
    let (written, used_meanwhile) = tokio::join!(writing, reading);
    written.unwrap();
    assert_eq!(used_meanwhile, 0);
    assert_eq!(used(&store, account(0)).await, 10);
}

#[tokio::test]
async fn dropping_a_store_finishes_what_is_queued() {
    let folder = Folder::new();
    let store = folder.store().await;
    let go_on = hold_up(&store).await;
    for n in 0..20 {
        // The caller is gone as soon as the call is queued.
        let commands = vec![hold(generation(n), 10), capture(generation(n), 10)];
        assert!(store.execute(account(0), commands, START).now_or_never().is_none());
    }
    drop(go_on);
    // The task that keeps the writer busy drops the store after receiving the answer.
    let mut store = Some(store);
    while let Some(shared) = store.take() {
        tokio::task::yield_now().await;
        store = Arc::try_unwrap(shared).map_or_else(Some, |alone| {
            drop(alone);
            None
        });
    }
    assert!(!folder.log().exists(), "the log is folded into the file, and gone");
    assert_eq!(audit(&folder.file()), 20);
}

#[tokio::test]
async fn two_processes_share_a_file_and_see_what_the_other_did_at_once() {
    let folder = Folder::new();
    let (server, command_line) = (folder.store().await, Sqlite::open(&folder.file()).unwrap());
    for n in 0..20 {
        let credit = Command::Deposit {
            id: deposit(n + 1),
            amount: NanoUsd::from_nanos(5),
            note: String::new(),
            payment_id: None,
            actor: Actor::System,
        };
        let (deposited, spent) = tokio::join!(
            command_line.execute(account(0), vec![credit], START),
            server.execute(account(0), vec![hold(generation(n), 1), capture(generation(n), 1)], START),
        );
        deposited.unwrap().remove(0).unwrap();
        spent.unwrap().remove(1).unwrap();
    }
    for store in [&*server, &command_line] {
        let summary = store.accounts().await.unwrap().remove(0);
        assert_eq!(summary.credit.nanos(), CREDIT + 20 * 5 - 20);
        assert_eq!(used(store, account(0)).await, 20);
    }
}

#[test]
fn a_new_file_may_be_opened_by_many_at_once() {
    let folder = Folder::new();
    std::thread::scope(|scope| {
        let opening: Vec<_> =
            (0..8).map(|_| scope.spawn(|| Sqlite::open(&folder.file()).map(drop))).collect();
        for opened in opening {
            opened.join().unwrap().unwrap();
        }
    });
    assert_eq!(audit(&folder.file()), 0);
}

#[test]
fn a_file_of_a_newer_version_is_refused_and_left_alone() {
    let folder = Folder::new();
    drop(Sqlite::open(&folder.file()).unwrap());
    Connection::open(folder.file()).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let refused = Sqlite::open(&folder.file()).err().unwrap();
    assert!(matches!(refused, OpenError::Newer { found: 99, .. }), "{refused:?}");
    assert!(refused.to_string().contains("newer version"), "{refused}");
}

#[test]
fn what_is_not_ours_is_refused_and_left_alone() {
    let folder = Folder::new();
    let of_another_program = |path: &Path| {
        let connection = Connection::open(path).unwrap();
        connection.execute_batch("CREATE TABLE notes (text TEXT); PRAGMA application_id = 7").unwrap();
    };
    let without_a_name = |path: &Path| {
        Connection::open(path).unwrap().execute_batch("CREATE TABLE notes (text TEXT)").unwrap();
    };
    let no_database = |path: &Path| fs::write(path, "Dear diary, ".repeat(999)).unwrap();
    let cases: HashMap<&str, &dyn Fn(&Path)> = HashMap::from([
        ("another.db", &of_another_program as &dyn Fn(&Path)),
        ("nameless.db", &without_a_name),
        ("diary.txt", &no_database),
    ]);
    for (name, make) in cases {
        let path = folder.0.path().join(name);
        make(&path);
        let before = fs::read(&path).unwrap();
        let refused = Sqlite::open(&path).err().unwrap();
        assert!(matches!(refused, OpenError::NotOurs(_)), "{name}: {refused:?}");
        assert_eq!(fs::read(&path).unwrap(), before, "{name}");
    }
    let nowhere = Sqlite::open(&folder.0.path().join("no such folder/store.db")).err().unwrap();
    assert!(matches!(nowhere, OpenError::NotMade(..)), "{nowhere:?}");
}

/// A refusal for an unknown key writes nothing.
#[tokio::test]
async fn a_refusal_writes_nothing() {
    let folder = Folder::new();
    let store = folder.store().await;
    let written = || fs::metadata(folder.log()).unwrap().len();
    let before = written();
    let check = |key: KeyId| Command::Check { key, credential: 0 };
    let outcomes = store.execute(account(0), vec![check(key(0)), check(key(9))], START).await.unwrap();
    assert_eq!(outcomes[0], Ok(Outcome::Allowed { models: None }));
    outcomes[1].clone().unwrap_err();
    assert_eq!(written(), before);
}
