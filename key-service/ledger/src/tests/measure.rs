//! Measures what a request costs, for developers who change the ledger or the backend.

use std::{
    env, fs,
    sync::Arc,
    time::{Duration, Instant},
};

use domain::ledger::{
    Account, Command, Group, Key, NewHold, Outcome, Progress,
    histories::{group, new_hold},
};
use records::{
    Records,
    redis::Redis,
    servers::{RedisServer, settings},
    sqlite::Sqlite,
};
use shared::{
    clock::{Clock, System},
    generation::{ModelApi, Origin},
    ids::{AccountId, GenerationId, GroupId, KeyId, RequestId},
    money::NanoUsd,
};

use super::{Lanes, Retention};
use crate::{
    error::StoreError,
    kept::{EVENTS_KEPT, EventBounds},
};

/// Requests in a measurement: 64,000, or with `MEASURE_SMALLER=10` a tenth.
fn all_requests() -> usize {
    let smaller = env::var("MEASURE_SMALLER").map_or(1, |smaller| smaller.parse().unwrap());
    64_000 / smaller
}

/// Number of keys that the callers share.
const KEYS: u8 = 16;

fn account() -> AccountId {
    AccountId::new(System.now(), [1; 10])
}

fn key(n: u8) -> KeyId {
    KeyId::new(shared::time::Timestamp::from_millis(1), [n; 10])
}

/// Who sends the requests: keys without a group or user, or keys in a group with a parent, for many users.
#[derive(Clone, Copy)]
enum Callers {
    Plain,
    InGroupsForUsers,
}

impl Callers {
    fn group(self) -> Option<GroupId> {
        matches!(self, Self::InGroupsForUsers).then(|| group(1))
    }

    fn user(self, n: usize) -> Option<String> {
        matches!(self, Self::InGroupsForUsers).then(|| format!("user-{}", n % 1_000))
    }
}

async fn ledger(store: Arc<dyn Records>, account: AccountId, callers: Callers) -> Arc<Lanes> {
    let events = EventBounds::with_life(EVENTS_KEPT);
    let ledger = Lanes::new(
        store,
        Arc::new(System),
        Retention { journal_entries: 20_000, events, expired: Duration::from_hours(24), usage_days: None },
    );
    let made = ledger.change::<_, StoreError>(account, |change| {
        change.account()?;
        change.set_account(Account { credit: NanoUsd::from_usd(1_000), ..Default::default() });
        for key in (0..KEYS).map(key) {
            change.key(key)?;
            change.set_key(key, Key { group: callers.group(), ..Key::default() });
        }
        for (n, parent) in [(0, None), (1, Some(group(0)))] {
            change.group(group(n))?;
            change.set_group(group(n), Group { parent, ..Group::default() });
        }
        Ok(())
    });
    made.await.unwrap();
    Arc::new(ledger)
}

/// Sends a hold and a capture.
async fn request(ledger: &Lanes, account: AccountId, key: KeyId, user: Option<String>) {
    let (generation, cost) = (GenerationId::generate(&System), NanoUsd::from_nanos(700));
    let request = Some(RequestId::generate(&System));
    let origin = Some(Arc::new(Origin { api: ModelApi::Chat, stream: true, user, request }));
    let hold = Command::Hold(NewHold { origin, ..new_hold(key, generation, cost) });
    let outcome = ledger.execute(account, vec![hold], System.now()).await.unwrap().remove(0);
    assert!(matches!(outcome, Ok(Outcome::Held { .. })), "{outcome:?}");
    let total = Progress { cost, ..Progress::default() };
    let model = "Model Flash".into();
    let capture = Command::Capture { key, generation, model, total, chargeable: None, estimated: false };
    let captured = ledger.execute(account, vec![capture], System.now()).await.unwrap().remove(0);
    assert!(matches!(captured, Ok(Outcome::Captured(_))), "{captured:?}");
}

/// Returns the CPU time of this process and the kernel's part of it, to a hundredth of a second.
fn processor_time() -> (Duration, Duration) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = |n: usize| Duration::from_millis(10 * fields[n].parse::<u64>().unwrap());
    (ticks(11) + ticks(12), ticks(12))
}

/// Measures requests from this many concurrent callers.
async fn measure(store: &Arc<dyn Records>, of: Callers, (callers, requests): (usize, usize), label: &str) {
    let account = account();
    let ledger = ledger(Arc::clone(store), account, of).await;
    let (began, (before, before_system)) = (Instant::now(), processor_time());
    let calls = (0..callers).map(|n| {
        let (ledger, key) = (Arc::clone(&ledger), key(u8::try_from(n % usize::from(KEYS)).unwrap()));
        tokio::spawn(async move {
            for request_of_caller in 0..requests / callers {
                let user = of.user(n + callers * request_of_caller);
                request(&ledger, account, key, user).await;
            }
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    let (after, after_system) = processor_time();
    let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(u32::try_from(requests).unwrap());
    println!(
        "{label}, {callers} at once: {:.1} µs of processors a request, {:.1} of them the kernel's; {:.1} µs",
        each(after.saturating_sub(before)),
        each(after_system.saturating_sub(before_system)),
        each(began.elapsed()),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: run it alone, optimised, with --nocapture"]
async fn requests_are_measured() {
    let (folder, all) = (tempfile::tempdir().unwrap(), all_requests());
    let path = folder.path().join("store.db");
    let file: Arc<dyn Records> = Arc::new(Sqlite::open(&path).unwrap());
    for callers in [64, 16, 1, 64] {
        let requests = if callers == 1 { all / 16 } else { all };
        measure(&file, Callers::Plain, (callers, requests), "file").await;
        measure(&file, Callers::InGroupsForUsers, (callers, requests), "file, in groups for users").await;
    }
    println!("{} KiB", fs::metadata(&path).unwrap().len() / 1024);
    let memory: Arc<dyn Records> = Arc::new(Sqlite::in_memory().unwrap());
    measure(&memory, Callers::Plain, (64, all), "memory").await;
    measure(&memory, Callers::InGroupsForUsers, (64, all), "memory, in groups for users").await;
    let server = RedisServer::shared();
    let redis = Redis::open(&settings(&server.url(), &folder), Arc::new(System)).await.unwrap();
    let redis: Arc<dyn Records> = Arc::new(redis);
    for callers in [64, 16, 1] {
        let requests = if callers == 1 { all / 16 } else { all };
        measure(&redis, Callers::Plain, (callers, requests), "Redis").await;
        measure(&redis, Callers::InGroupsForUsers, (callers, requests), "Redis, in groups for users").await;
    }
}
