//! Cases about listing a hundred thousand keys in a thousand groups page by page, while more are created.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use records::{
    redis::{Redis, Settings},
    servers::{RedisServer, settings},
    sqlite::Sqlite,
};
use shared::{
    clock::System,
    ids::{AccountId, GroupId, KeyId},
};

use crate::{
    store::{GroupPage, Made, Order, Page, Store},
    suite::{act, digest, new_group, new_key, open_account, over},
};
use domain::ledger::histories::START;

/// Number of keys that exist when the listing begins.
const KEYS: u64 = 20_000;
/// Number of groups that exist when the listing begins; each has the same number of keys.
const GROUPS: u64 = 1_000;
/// Number of keys kept in memory at a time.
const PAGE: usize = 500;
/// Number of groups on a page, and of a group's keys on a page.
const GROUPS_ON_PAGE: usize = 90;
const KEYS_ON_PAGE: usize = 30;
/// Number of keys created concurrently, so that stores can batch them.
const MADE_AT_ONCE: usize = 256;

/// Returns the numbered id of a kind. Ids are one millisecond apart.
fn id(n: u64, kind: u8) -> KeyId {
    KeyId::new(START.plus(Duration::from_millis(n)), [kind; 10])
}

/// Kinds of ids: for listed keys, and for keys created in the meantime.
const LISTED: u8 = 1;
const MEANWHILE: u8 = 2;

/// Returns the id of a numbered group.
fn group_id(n: u64) -> GroupId {
    GroupId::new(START.plus(Duration::from_millis(n)), [LISTED; 10])
}

async fn make(store: &Store, account: AccountId, id: KeyId, group: Option<GroupId>) {
    let mut new = new_key(account, 0);
    (new.key.id, new.digest, new.key.spend.group) = (id, digest(&id.to_string()), group);
    assert!(matches!(store.create_key(new, None, &act(START)).await.unwrap(), Made::New(_)));
}

async fn make_group(store: &Store, account: AccountId, n: u64) {
    let mut new = new_group(account, 0);
    (new.group.id, new.most) = (group_id(n), GROUPS);
    assert!(matches!(store.create_group(new, None, &act(START)).await.unwrap(), Made::New(_)));
}

/// No page exceeds its limit, and there are no more pages than necessary. Every key that existed at the beginning
/// appears once and in order, although a key is created on either side of the cursor with every page.
async fn all_keys_come_once_and_a_page_at_a_time(store: Arc<Store>, groups: u64) {
    let account = open_account(&store, 1).await;
    let made = stream::iter(0..groups).map(|n| make_group(&store, account, n));
    made.buffer_unordered(MADE_AT_ONCE).for_each(|()| async {}).await;
    let in_group = |n: u64| n.checked_rem(groups).map(group_id);
    let made = stream::iter(0..KEYS).map(|n| make(&store, account, id(n, LISTED), in_group(n)));
    made.buffer_unordered(MADE_AT_ONCE).for_each(|()| async {}).await;
    every_group_has_its_keys(&store, account, groups).await;
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
                make(&store, account, id(n, MEANWHILE), None).await;
            }
            meanwhile += 1;
        }
        assert_eq!(seen, KEYS, "{order:?}");
        assert!(others <= 2 * meanwhile, "{order:?}: {others}");
        assert_eq!(pages, (seen + others) / PAGE as u64 + 1, "{order:?}");
    }
}

/// Lists all groups, and the keys of some. Every page but the last is full.
async fn every_group_has_its_keys(store: &Store, account: AccountId, groups: u64) {
    let each = KEYS.checked_div(groups).unwrap_or_default();
    let (mut after, mut seen) = (None, 0);
    loop {
        let page = GroupPage { after, order: Order::Ascending, limit: GROUPS_ON_PAGE };
        let page = store.groups(account, page).await.unwrap();
        for group in &page {
            assert_eq!((group.id, group.keys), (group_id(seen), each));
            seen += 1;
        }
        after = page.last().map(|group| group.id);
        if page.len() < GROUPS_ON_PAGE {
            break;
        }
    }
    assert_eq!(seen, groups);
    for n in [0, groups / 2, groups.saturating_sub(1)] {
        let (mut after, mut seen) = (None, 0);
        while seen < each {
            let page = Page { after, order: Order::Ascending, status: None, limit: KEYS_ON_PAGE };
            let page = store.keys_of_group(account, group_id(n), page).await.unwrap();
            assert!(!page.is_empty() && page.len() <= KEYS_ON_PAGE);
            for key in &page {
                assert_eq!(key.id, id(n + seen * groups, LISTED));
                seen += 1;
            }
            after = page.last().map(|key| key.id);
        }
    }
}

#[tokio::test]
async fn in_sqlite() {
    // In memory, because a file needs a sync for each key.
    let store = Sqlite::in_memory().unwrap();
    all_keys_come_once_and_a_page_at_a_time(over(Arc::new(store)), GROUPS).await;
}

#[tokio::test]
async fn in_redis() {
    let server = RedisServer::start_with(&["--port", "0", "--appendonly", "no"]);
    let data_dir = tempfile::tempdir().unwrap();
    let settings = Settings { volatile_allowed: true, ..settings(&server.url(), &data_dir) };
    let store = Redis::open(&settings, Arc::new(System)).await.unwrap();
    all_keys_come_once_and_a_page_at_a_time(over(Arc::new(store)), GROUPS).await;
}
