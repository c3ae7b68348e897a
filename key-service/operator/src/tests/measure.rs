//! Measures how fast the pages load in an installation with many accounts, over SQLite and over Redis. Nothing is
//! asserted.
//!
//! `cargo test --release --workspace --lib -- --ignored --nocapture pages_of_many_accounts` prints a table.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{Router, body::Body};
use domain::{
    digest::{Pepper, Peppers},
    event::Actor,
    key::{ApiKey, KeyPatch},
    ledger::{Command, NewHold, Progress, histories::new_hold},
    second_factor::FactorId,
};
use http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use key_service_credentials::Credentials;
use key_service_management::{
    Management,
    governed::Governed as _,
    members::SignInClient,
    testing::{catalog, store_over},
};
use key_service_page::app::Site;
use key_service_records::{
    redis::Redis,
    servers::{RedisServer, settings},
    sqlite::Sqlite,
};
use key_service_store::store::{Ledger as _, Store};
use shared::{
    clock::{Clock, System},
    ids::{AccountId, GenerationId},
    key::Prefix,
    money::NanoUsd,
    secret::ExposeSecret,
    time::Timestamp,
    tokens::Usage,
};
use tempfile::TempDir;
use tower::ServiceExt;

use crate::{process_metrics::ProgramFacts, router};

const ACCOUNTS: usize = 10_000;
/// Number of accounts that spend every day: the newest accounts, which fill one page of the list.
const SPENDING: usize = 50;
/// Number of days on which these accounts spend money on each model.
const DAYS: u64 = 30;
const MODELS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
/// Number of loads of each page.
const LOADS: usize = 21;

async fn bill(store: &Store, account: AccountId, key: &ApiKey, at: Timestamp, model: &str) {
    let (generation, amount) =
        (GenerationId::new(at, shared::clock::random_bytes(&System)), NanoUsd::from_nanos(10));
    let hold = Command::Hold(NewHold { model: model.into(), ..new_hold(key.id, generation, amount) });
    let total = Progress { usage: Usage::of(1, 0, 1), cost: amount, ..Progress::default() };
    let (model, chargeable, estimated) = (model.into(), None, false);
    let capture = Command::Capture { key: key.id, generation, model, total, chargeable, estimated };
    store.execute(account, vec![hold, capture], at).await.unwrap();
}

async fn fill(store: &Store, management: &Management, now: Timestamp) -> AccountId {
    let mut last = None;
    for n in 0..ACCOUNTS {
        let credit = if n + SPENDING < ACCOUNTS { NanoUsd::ZERO } else { NanoUsd::from_usd(10) };
        let account =
            management.create_account(&format!("Customer {n}"), credit, Actor::System).await.unwrap();
        if n + SPENDING >= ACCOUNTS {
            let made = ApiKey::create(management.by(account, Actor::System), KeyPatch::default(), None).await;
            let key = made.unwrap().made.into_inner();
            for day in (0..DAYS).rev() {
                for model in MODELS {
                    bill(store, account, &key, now.minus(Duration::from_hours(24 * day)), model).await;
                }
            }
        }
        last = Some(account);
    }
    last.unwrap()
}

async fn measure(name: &str, store: Arc<Store>) {
    let clock: Arc<dyn Clock> = Arc::new(System);
    let peppers = Peppers { current: Pepper::new([7; 32]), previous: None };
    let credentials = Arc::new(Credentials::new(store.clone(), peppers, Prefix::parse("fg").unwrap()));
    let management = Arc::new(Management::new(store.clone(), clock.clone(), credentials));
    let began = Instant::now();
    let account = fill(&store, &management, clock.now()).await;
    eprintln!("{name}: filled in {:?}", began.elapsed());
    let link = management.create_operator("ann", Actor::System).await.unwrap();
    let token = management.sign_in_operator(&link, "", SignInClient::default()).await.unwrap();
    let session = management.operator_session(&token).await.unwrap().unwrap();
    let offered = management.offered_factor(&session, "operators", None::<FactorId>).unwrap();
    let secret = totp_rs::Secret::try_from_base32(offered.secret.expose_secret()).unwrap();
    let app = totp_rs::Builder::new().with_secret(secret).build_noncompliant();
    let code = app.generate(u64::try_from(clock.now().seconds()).unwrap()).to_string();
    management.enable_second_factor(&session, offered.id, &code, "".into()).await.unwrap();
    let program = ProgramFacts { version: "1", metrics: Arc::new(String::new) };
    let router = router(management, catalog(), Site::default(), program);
    let cookie = format!("faregate-operator={}", token.reveal().expose_secret());
    for path in [
        "/operator".into(),
        "/operator?q=customer+99".into(),
        "/operator?q=nobody".into(),
        format!("/operator/accounts/{account}"),
        "/operator/upstreams".into(),
        "/operator/catalogue".into(),
        "/operator/installation".into(),
    ] {
        let mut times = Vec::new();
        let mut size = 0;
        for _ in 0..LOADS {
            let (time, page) = load(&router, &path, &cookie).await;
            times.push(time);
            size = page.len();
        }
        times.sort();
        let ms = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
        println!(
            "| {name} | `{path}` | {} | {} | {} |",
            ms(times[LOADS / 2]),
            ms(times[LOADS - 1]),
            size / 1_000
        );
    }
}

async fn load(router: &Router, path: &str, cookie: &str) -> (Duration, Vec<u8>) {
    let request = Request::get(path).header(header::COOKIE, cookie).header(header::HOST, "localhost");
    let began = Instant::now();
    let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    let page = response.into_body().collect().await.unwrap().to_bytes();
    (began.elapsed(), page.to_vec())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement that takes minutes; see the head of this file"]
async fn pages_of_many_accounts() {
    println!("| store | page | median of {LOADS}, ms | longest | kB, plain |");
    println!("|---|---|---|---|---|");
    let folder = TempDir::new().unwrap();
    measure("SQLite", store_over(Sqlite::open(&folder.path().join("store.db")).unwrap())).await;
    let server = RedisServer::start();
    let redis = Redis::open(&settings(&server.url(), &folder), Arc::new(System)).await.unwrap();
    measure("Redis", store_over(redis)).await;
}
