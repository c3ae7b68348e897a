//! A hundred thousand keys of an account, listed page by page while more are made.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use shared::{
    clock::System,
    ids::{AccountId, KeyId},
};

use super::{digest, new_key, open_account, reference::Reference};
use super::{in_redis::settings, servers::RedisServer};
use crate::store::redis::{Redis, Settings};
use crate::store::{Order, Page, Store, sqlite::Sqlite};
use domain::ledger::histories::START;

/// Keys that exist when the listing begins.
const KEYS: u64 = 100_000;
/// Keys kept in memory at a time.
const PAGE: usize = 500;
/// Keys made at once, so that stores can batch them.
const MADE_AT_ONCE: usize = 256;

/// Ids of a kind, in the order of numbers: an id a millisecond.
fn id(n: u64, kind: u8) -> KeyId {
    KeyId::new(START.plus(Duration::from_millis(n)), [kind; 10])
}

/// Kinds of ids: for listed keys, and for keys made in the meantime.
const LISTED: u8 = 1;
const MEANWHILE: u8 = 2;

async fn make(store: &dyn Store, account: AccountId, id: KeyId) {
    let mut new = new_key(account, 0);
    (new.key.id, new.digest) = (id, digest(&id.to_string()));
    store.create_key(new, None).await.unwrap();
}

/// No page exceeds its limit, and there are no more pages than necessary. Every key that existed at the beginning comes
/// once and in order, although a key is made on either side of the cursor with every page.
async fn all_keys_come_once_and_a_page_at_a_time(store: Arc<dyn Store>) {
    let account = open_account(&*store, 1).await;
    let made = stream::iter(0..KEYS).map(|n| make(&*store, account, id(n, LISTED)));
    made.buffer_unordered(MADE_AT_ONCE).for_each(|()| async {}).await;
    let mut meanwhile = 0;
    for order in [Order::Ascending, Order::Descending] {
        let (mut after, mut pages, mut seen, mut others) = (None, 0, 0, 0);
        loop {
            let page = store.keys(account, Page { after, order, status: None, limit: PAGE }).await.unwrap();
            assert!(page.len() <= PAGE, "{}", page.len());
            pages += 1;
            for key in &page {
                let place = match order {
                    Order::Ascending => seen,
                    Order::Descending => KEYS - 1 - seen.min(KEYS - 1),
                };
                if key.id == id(place, LISTED) && seen < KEYS {
                    seen += 1;
                } else {
                    others += 1;
                }
            }
            after = page.last().map(|key| key.id);
            if page.len() < PAGE {
                break;
            }
            for n in [meanwhile, KEYS - 1 - meanwhile] {
                make(&*store, account, id(n, MEANWHILE)).await;
            }
            meanwhile += 1;
        }
        assert_eq!(seen, KEYS, "{order:?}");
        assert!(others <= 2 * meanwhile, "{order:?}: {others}");
        assert_eq!(pages, (seen + others) / PAGE as u64 + 1, "{order:?}");
    }
}

#[tokio::test]
async fn in_memory() {
    all_keys_come_once_and_a_page_at_a_time(Arc::new(Reference::new())).await;
}

#[tokio::test]
async fn in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&folder.path().join("store.db")).unwrap();
    all_keys_come_once_and_a_page_at_a_time(Arc::new(store)).await;
}

#[tokio::test]
async fn in_redis() {
    let server = RedisServer::start_with(&["--port", "0", "--appendonly", "no"]);
    let data_dir = tempfile::tempdir().unwrap();
    let settings = Settings { volatile_allowed: true, ..settings(&server.url(), &data_dir) };
    let store = Redis::open(&settings, Arc::new(System)).await.unwrap();
    all_keys_come_once_and_a_page_at_a_time(Arc::new(store)).await;
}
