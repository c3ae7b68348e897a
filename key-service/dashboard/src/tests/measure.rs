//! Measures how fast the pages of an account with many keys and generations load, over SQLite and over Redis. Nothing
//! is asserted.
//!
//! `cargo test --release --workspace --lib -- --ignored --nocapture pages_of_a_large_account` prints a table.
//! `MEASURE_ONLY` limits the table to addresses that contain the variable's text. `MEASURE_ZONE` sets the reader's time
//! zone.

mod account;

use std::{
    io::Write,
    process::{Command as Program, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{Router, body::Body};
use http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use shared::{
    clock::{Clock, System},
    ids::AccountId,
    key::Prefix,
    money::NanoUsd,
    secret::ExposeSecret,
    time::Timestamp,
};
use shared_catalog::Catalog;
use shared_config::current::Current;
use tempfile::TempDir;
use tower::ServiceExt;

use self::account::{KEYS, fill, group_id, key_id};
use crate::router;
use domain::{
    digest::{Pepper, Peppers},
    event::Actor,
    member::Role,
};
use key_service_credentials::Credentials;
use key_service_management::{Management, members::SignInClient, statement::Month, testing::store_over};
use key_service_page::app::Site;
use key_service_records::{
    redis::Redis,
    servers::{RedisServer, settings},
    sqlite::Sqlite,
};
use key_service_store::store::Store;

// The programs use the same allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How often each page is loaded.
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

/// The pages of an account, as a signed-in owner.
struct Pages {
    router: Router,
    cookie: String,
    name: &'static str,
}

impl Pages {
    async fn of(name: &'static str, store: Arc<Store>) -> (Self, AccountId, Timestamp) {
        let clock: Arc<dyn Clock> = Arc::new(System);
        let peppers = Peppers { current: Pepper::new([7; 32]), previous: None };
        let credentials = Arc::new(Credentials::new(store.clone(), peppers, Prefix::parse("fg").unwrap()));
        let management = Arc::new(Management::new(store.clone(), clock.clone(), credentials));
        let account = management.create_account("large", NanoUsd::from_usd(10), Actor::System).await.unwrap();
        let end = clock.now();
        let began = Instant::now();
        fill(&store, &management, account, end).await;
        eprintln!("{name}: filled in {:?}", began.elapsed());
        let (_, link) = management.invite(account, "owner", Role::Owner, Actor::System).await.unwrap();
        let session = management.sign_in_with_link(&link, "", SignInClient::default()).await.unwrap().token;
        // In a zone other than UTC, days are summed from hours, which takes longer.
        let zone = std::env::var("MEASURE_ZONE").unwrap_or_else(|_| "Europe/Zurich".into());
        let cookie = format!("faregate={}; faregate-zone={zone}", session.reveal().expose_secret());
        let catalog = Arc::new(Current::new(Catalog::parse(CATALOG, "measure").unwrap()));
        let router = router(management, catalog, Site::default());
        (Self { router, cookie, name }, account, end)
    }

    /// Loads a page. Returns the time to its first byte, and the page.
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

/// Returns the size of a page after `gzip`.
fn compressed(page: &str) -> usize {
    let mut gzip =
        Program::new("gzip").arg("-c").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    gzip.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    gzip.wait_with_output().unwrap().stdout.len()
}

async fn measure(name: &'static str, store: Arc<Store>) {
    let (pages, _, end) = Pages::of(name, store).await;
    let key = |n| format!("/dashboard/keys/{}", key_id(n, end));
    let day = |before: u64| domain::usage::Day::of(end.minus(Duration::from_hours(24 * before)));
    let of_key = |n| format!("/dashboard/activity?key={}", key_id(n, end));
    let wanted = std::env::var("MEASURE_ONLY").ok();
    for path in [
        "/dashboard".to_owned(),
        "/dashboard?by=key".into(),
        "/dashboard?by=key&range=90".into(),
        "/dashboard?by=group".into(),
        "/dashboard?by=top-group".into(),
        "/dashboard?by=upstream".into(),
        "/dashboard?by=user".into(),
        "/dashboard?by=user&range=90".into(),
        "/dashboard?range=today".into(),
        "/dashboard?range=today&by=key".into(),
        "/dashboard?range=today&by=group".into(),
        "/dashboard/spend.csv?by=user".into(),
        "/dashboard/spend?by=key&range=today".into(),
        "/dashboard/spend?by=group".into(),
        "/dashboard?show=tokens&days=90".into(),
        "/dashboard?by=group&range=month&against=year".into(),
        "/dashboard/find?q=lima".into(),
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
        "/dashboard/keys?order=spent".into(),
        "/dashboard/keys/new".into(),
        key(4),
        key(*KEYS - 1),
        format!("{}?range=90", key(4)),
        format!("{}?range=today", key(4)),
        format!("{}/requests", key(4)),
        format!("{}/settings", key(4)),
        format!("{}/revoke", key(4)),
        format!("/dashboard/keys?group={}", group_id(42, end)),
        format!("/dashboard/keys/new?group={}", group_id(42, end)),
        "/dashboard/groups".into(),
        "/dashboard/groups?q=group-42".into(),
        "/dashboard/groups/new".into(),
        format!("/dashboard/groups/{}", group_id(2, end)),
        format!("/dashboard/groups/{}", group_id(42, end)),
        format!("/dashboard/groups/{}?by=key", group_id(42, end)),
        format!("/dashboard/groups/{}?by=key&range=90", group_id(2, end)),
        format!("/dashboard/groups/{}?range=today", group_id(2, end)),
        format!("/dashboard/groups/{}/requests", group_id(42, end)),
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
        "/dashboard/activity?outcome=refused".into(),
        "/dashboard/activity?user=user-7".into(),
        "/dashboard/activity?upstream=upstream-1".into(),
        "/dashboard/keys?status=trouble".into(),
        "/dashboard/margin".into(),
        "/dashboard/margin?by=key".into(),
        "/dashboard/margin?by=group".into(),
        "/dashboard/margin.csv?by=key&range=90".into(),
        "/dashboard/events".into(),
        "/dashboard/events?type=key.revoked".into(),
        format!("/dashboard/events?key={}", key_id(4, end)),
        format!("/dashboard/events?group={}", group_id(42, end)),
        "/dashboard/webhooks".into(),
        "/dashboard/alerts".into(),
        "/dashboard/credit".into(),
        format!("/dashboard/credit/{}", Month::of(day(0)).name()),
        format!("/dashboard/credit/{}", Month::of(day(0)).before().name()),
        "/dashboard/members".into(),
        "/dashboard/try-it".into(),
        "/dashboard/you".into(),
    ]
    .iter()
    .filter(|path| wanted.as_ref().is_none_or(|wanted| path.contains(wanted)))
    {
        pages.measure(path).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement that takes minutes; see the head of this file"]
async fn pages_of_a_large_account() {
    println!("| store | page | first load, ms | median | longest of {LOADS} | kB, gzip | rows |");
    println!("|---|---|---|---|---|---|---|");
    let folder = TempDir::new().unwrap();
    measure("SQLite", store_over(Sqlite::open(&folder.path().join("store.db")).unwrap())).await;
    let server = RedisServer::start();
    let redis = Redis::open(&settings(&server.url(), &folder), Arc::new(System)).await.unwrap();
    measure("Redis", store_over(redis)).await;
}
