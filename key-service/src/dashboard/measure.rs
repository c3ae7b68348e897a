//! Measures the pages of an account with many keys and generations, over SQLite and over Redis. Nothing is asserted.
//!
//! `cargo test --release --workspace --lib -- --ignored --nocapture pages_of_a_large_account` prints a table.

use crate::store::suite::act;
use domain::event::Actor;
use std::{
    io::Write,
    process::{Command as Program, Stdio},
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use axum::{Router, body::Body};
use futures_util::{StreamExt, stream};
use http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use shared::{
    catalog::Catalog,
    clock::{Clock, System},
    current::Current,
    ids::{AccountId, DepositId, GenerationId, KeyId},
    key::Prefix,
    money::NanoUsd,
    secret::ExposeSecret,
    time::Timestamp,
    tokens::Usage,
};
use tempfile::TempDir;
use tower::ServiceExt;

use super::{Desk, router};
use crate::{
    credentials::Credentials,
    management::{Management, members::Client},
    store::{
        Store,
        redis::{Redis, Settings},
        sqlite::Sqlite,
        suite::{in_redis::settings, servers::RedisServer},
    },
};
use domain::{
    digest::{Digest, Pepper, Peppers},
    key::{ApiKey, NewKey},
    ledger::{Command, Progress},
    member::Role,
};

/// Size of the account; `MEASURE_SMALLER=10` divides the size by ten.
static KEYS: LazyLock<u64> = LazyLock::new(|| 100_000 / smaller());
static GENERATIONS: LazyLock<u64> = LazyLock::new(|| 1_000_000 / smaller());
/// Days over which the generations are spread.
const DAYS: u64 = 30;
/// Number of generations billed together, as where a few dozen requests run at once.
const TOGETHER: u64 = 8;
/// Keys made, and batches billed, at once, so that stores can group them.
const AT_ONCE: usize = 32;
/// Words of labels.
const TOWNS: [&str; 4] = ["Berlin", "Lagos", "Lima", "Osaka"];
/// Loads of each page.
const LOADS: usize = 21;

const CATALOG: &str = r#"
    [service]
    name = "Measured"
    provider = "Model"
    docs = "https://docs.example.com"
    [[model]]
    id = "Model Flash"
    owned_by = "model-service"
    context_window = 1048576
    max_output_tokens = 131072
    max_tokens_per_image = 16384
    [model.price]
    input = "0.10"
    cached_input = "0.025"
    output = "0.40"
    [[model.upstream]]
    kind = "openai"
    url = "http://127.0.0.1:9"
    model = "any"
"#;

fn smaller() -> u64 {
    std::env::var("MEASURE_SMALLER").map_or(1, |by| by.parse().expect("it is a number"))
}

/// The time of a generation: spread evenly, up to now.
fn time_of(n: u64, end: Timestamp) -> Timestamp {
    let all = DAYS * 24 * 3_600_000;
    end.minus(Duration::from_millis((*GENERATIONS - n) * (all / *GENERATIONS)))
}

/// The id of a key, made some minutes after the one before it.
fn key_id(n: u64, end: Timestamp) -> KeyId {
    KeyId::new(end.minus(Duration::from_secs((*KEYS - n) * 300)), [7; 10])
}

async fn make_keys(store: &dyn Store, account: AccountId, end: Timestamp) {
    let make = async |n: u64| {
        let id = key_id(n, end);
        let expires_at = n.is_multiple_of(10).then(|| end.minus(Duration::from_mins(1)));
        let hint = format!("fg_api_{:04}…{:04}", n % 9_973, n % 9_967);
        let mut key = ApiKey::new(id, hint, id.created_at().to_whole_seconds());
        key.label = format!("Customer {n:06} {}", TOWNS[usize::try_from(n % 4).unwrap()]);
        key.spend.expires_at = expires_at;
        let digest = Digest::of(&n.to_be_bytes());
        store.create_key(NewKey { account, key, digest, most: *KEYS }, None, &act(end)).await.unwrap();
        if n % 1_000 == 1 {
            store.revoke_key(account, id, &act(end)).await.unwrap();
        }
    };
    stream::iter(0..*KEYS).map(make).buffer_unordered(AT_ONCE).for_each(|()| async {}).await;
}

async fn bill(store: &dyn Store, account: AccountId, end: Timestamp) {
    let deposit = Command::Deposit {
        id: DepositId::new(end, [1; 10]),
        amount: NanoUsd::from_usd(100_000),
        note: String::new(),
        actor: Actor::System,
    };
    store.execute(account, vec![deposit], end).await.unwrap();
    let together = async |first: u64| {
        let at = time_of(first, end);
        let commands = (first..first + TOGETHER).flat_map(|n| {
            let mut unique = [0; 10];
            unique[..8].copy_from_slice(&n.to_be_bytes());
            // Keys that begin with an expiry or a revocation are left out.
            let key = key_id(n.wrapping_mul(7_919) % (*KEYS / 10) * 10 + 2 + n % 8, end);
            let (generation, amount) = (GenerationId::new(at, unique), NanoUsd::from_nanos(1_000_000));
            let model = if n % 3 == 0 { "Model Max" } else { "Model Flash" }.to_owned();
            let usage = Usage::of(1_000 + n % 500, 0, 300);
            let cost = NanoUsd::from_nanos(i64::try_from(200_000 + n % 1_000).unwrap());
            let (least, enough, most) = (amount, amount, amount);
            let hold = Command::Hold {
                key,
                credential: 0,
                generation,
                model: model.clone(),
                least,
                enough,
                most,
                prompt_tokens: 1,
                readmitted: false,
                lease_ticks: 7,
            };
            let (total, estimated) = (Progress { usage, cost, upstream_cost: None }, n % 50_000 == 7);
            [hold, Command::Capture { key, generation, model, total, estimated }]
        });
        store.execute(account, commands.collect(), at).await.unwrap();
    };
    let batches = stream::iter((0..*GENERATIONS).step_by(usize::try_from(TOGETHER).unwrap()));
    batches.map(together).buffered(AT_ONCE).for_each(|()| async {}).await;
}

/// The pages of an account, to a member who is signed in.
struct Pages {
    router: Router,
    cookie: String,
    name: &'static str,
}

impl Pages {
    async fn of(name: &'static str, store: Arc<dyn Store>) -> (Self, AccountId, Timestamp) {
        let clock: Arc<dyn Clock> = Arc::new(System);
        let peppers = Peppers { current: Pepper::new([7; 32]), previous: None };
        let credentials = Arc::new(Credentials::new(store.clone(), peppers, Prefix::parse("fg").unwrap()));
        let management = Arc::new(Management::new(store.clone(), clock.clone(), credentials));
        let account = management.create_account("large", NanoUsd::from_usd(10), Actor::System).await.unwrap();
        let end = clock.now();
        let began = Instant::now();
        make_keys(&*store, account, end).await;
        let keys = began.elapsed();
        bill(&*store, account, end).await;
        eprintln!("{name}: {} keys in {keys:?}, all of it in {:?}", *KEYS, began.elapsed());
        let (_, link) = management.invite(account, "owner", Role::Owner, Actor::System).await.unwrap();
        let session = management.sign_in_with_link(&link, "", Client::default()).await.unwrap().token;
        let cookie = format!("faregate={}", session.reveal().expose_secret());
        let catalog = Arc::new(Current::new(Catalog::parse(CATALOG, "measure").unwrap()));
        let router = router(Desk::new(management, catalog, false));
        (Self { router, cookie, name }, account, end)
    }

    /// Loads a page; the time until its first byte, and the page.
    async fn load(&self, path: &str) -> (Duration, String) {
        let request =
            Request::get(path).header(header::COOKIE, &self.cookie).header(header::HOST, "localhost");
        let request = request.body(Body::empty()).unwrap();
        let began = Instant::now();
        let mut response = self.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let first = response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
        let took = began.elapsed();
        let rest = response.into_body().collect().await.unwrap().to_bytes();
        (took, String::from_utf8([first, rest].concat()).unwrap())
    }

    async fn measure(&self, path: &str) {
        let (first, page) = self.load(path).await;
        let mut times = Vec::new();
        for _ in 0..LOADS {
            times.push(self.load(path).await.0);
        }
        times.sort();
        let ms = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
        let (median, longest) = (ms(times[LOADS / 2]), ms(times[LOADS - 1]));
        let (rows, size) = (page.matches("<tr").count(), compressed(&page));
        println!(
            "| {} | `{path}` | {} | {median} | {longest} | {}.{} | {rows} |",
            self.name,
            ms(first),
            size / 1000,
            size % 1000 / 100
        );
    }
}

/// The size of a page as `gzip` makes it.
fn compressed(page: &str) -> usize {
    let mut gzip =
        Program::new("gzip").arg("-c").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    gzip.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    gzip.wait_with_output().unwrap().stdout.len()
}

async fn measure(name: &'static str, store: Arc<dyn Store>) {
    let (pages, _, end) = Pages::of(name, store).await;
    let key = |n| format!("/dashboard/keys/{}", key_id(n, end));
    let day = |before: u64| domain::usage::Day::of(end.minus(Duration::from_hours(24 * before)));
    let of_key = |n| format!("/dashboard/activity?key={}", key_id(n, end));
    for path in [
        "/dashboard".into(),
        "/dashboard?by=key".into(),
        "/dashboard?show=tokens&days=90".into(),
        "/dashboard/keys".into(),
        "/dashboard/keys?status=active".into(),
        "/dashboard/keys?status=expired".into(),
        "/dashboard/keys?status=revoked".into(),
        "/dashboard/keys?q=customer+099".into(),
        "/dashboard/keys?q=customer+000123".into(),
        "/dashboard/keys?q=lima".into(),
        "/dashboard/keys?q=nothing".into(),
        "/dashboard/keys?order=label".into(),
        "/dashboard/keys?order=used".into(),
        "/dashboard/keys/new".into(),
        key(4),
        key(*KEYS - 1),
        format!("{}/revoke", key(4)),
        "/dashboard/management-keys".into(),
        "/dashboard/activity".into(),
        format!("/dashboard/activity?from={0}&to={0}", day(15)),
        format!("/dashboard/activity?from={}&model=Model+Max", day(10)),
        "/dashboard/activity?key=lima".into(),
        "/dashboard/activity?model=Model+Max".into(),
        "/dashboard/activity?model=None".into(),
        of_key(4),
        of_key(*KEYS - 1),
        "/dashboard/activity?outcome=estimated".into(),
        "/dashboard/activity?outcome=shortfall".into(),
        "/dashboard/margin".into(),
        "/dashboard/margin?by=key".into(),
        "/dashboard/credit".into(),
        "/dashboard/members".into(),
        "/dashboard/try-it".into(),
        "/dashboard/you".into(),
    ] {
        pages.measure(&path).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it takes minutes and measures: see the head of this file"]
async fn pages_of_a_large_account() {
    println!("| store | page | first load, ms | median | longest of {LOADS} | kB, gzip | rows |");
    println!("|---|---|---|---|---|---|---|");
    let folder = TempDir::new().unwrap();
    measure("SQLite", Arc::new(Sqlite::open(&folder.path().join("store.db")).unwrap())).await;
    let server = RedisServer::start();
    let kept = Settings { journal_entries: 2_000_000, ..settings(&server.url(), &folder) };
    measure("Redis", Arc::new(Redis::open(&kept, Arc::new(System)).await.unwrap())).await;
}
