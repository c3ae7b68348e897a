//! Cases about books in a Redis whose append-only file was torn.

use std::collections::BTreeMap;

use records::servers::{RedisServer, settings};
use shared::ids::{AccountId, GenerationId};

use crate::{
    store::{Ledger as _, Store},
    suite::{
        capture, due_holds, execute_one, hold, in_redis, make_key, nanos, open_account_with, spend, tick,
    },
};
use domain::ledger::{
    Command,
    histories::{self, START, generation},
};

/// Number of requests before the file is torn, and again after each start.
const REQUESTS: u8 = 6;
const COST: i64 = 7;

/// Opens holds, and captures all of them except the last.
async fn load(store: &Store, account: AccountId, numbers: std::ops::Range<u8>) {
    let key = histories::key(1);
    for n in numbers.clone() {
        execute_one(store, account, hold(key, generation(n), 2 * COST, 1)).await.unwrap();
    }
    for n in numbers.start..numbers.end - 1 {
        execute_one(store, account, capture(key, generation(n), COST)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_torn_file_leaves_books_that_balance_and_no_hold_after_any_number_of_starts() {
    for bytes in [20, 170, 410, 660, 900] {
        let (mut server, data_dir) = (RedisServer::start(), tempfile::tempdir().unwrap());
        let settings = settings(&server.url(), &data_dir);
        let store = in_redis::open(&settings).await;
        let account = open_account_with(&store, 1, 1_000_000).await;
        let key = make_key(&store, account, 1, Some(100_000)).await;
        load(&store, account, 0..REQUESTS).await;
        server.kill();
        server.tear(bytes);
        for round in 1..=2 {
            server.start_again();
            load(&store, account, round * REQUESTS..(round + 1) * REQUESTS).await;
            server.kill();
        }
        server.start_again();

        // Gateways send again what was not confirmed, and the other holds expire.
        let store = in_redis::open(&settings).await;
        let delivered = (0..3 * REQUESTS).filter(|n| n % REQUESTS != REQUESTS - 1);
        for n in delivered.clone() {
            execute_one(&store, account, capture(key, generation(n), COST)).await.unwrap();
        }
        tick(&store, account, 1).await;
        let due = due_holds(&store, account).await;
        let expire = due.iter().map(|hold| Command::Expire { key: hold.key, generation: hold.generation });
        store.execute(account, expire.collect(), START).await.unwrap();
        assert_eq!(due_holds(&store, account).await, [], "{bytes}: no hold is left");
        let audit = store.audit(account).await.unwrap().unwrap();
        assert!(audit.wrong.is_empty(), "{bytes}: {:?}", audit.wrong);
        let budget = spend(&store, account, key).await.budget;
        assert_eq!(
            (budget.used, budget.held),
            (nanos(COST * i64::try_from(delivered.count()).unwrap()), nanos(0)),
            "{bytes}"
        );
        let mut bills = BTreeMap::<GenerationId, i64>::new();
        for entry in store.journal(account, 0, 1_000).await.unwrap().entries {
            let before = bills.insert(entry.generation, entry.entry.delta.nanos());
            assert_eq!(before, None, "{bytes}: a generation has one final entry");
        }
    }
}
