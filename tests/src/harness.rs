//! The real programs in a private folder, a scripted upstream behind them, and a check at the end that every hold was
//! resolved and every key was billed exactly what its requests cost.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use http::Method;
use serde_json::{Value, json};
use shared::money::NanoUsd;
use tempfile::TempDir;
use tokio::time::sleep;

use crate::upstream::{Generation, Script, Upstream};

mod book;
mod browser;
mod catalogue;
mod chat;
mod client;
mod deployment;
mod door;
mod events;
mod redis;
mod server;
mod wall_clock;

pub use book::{Account, Balance, billed};
pub use browser::{Browser, attribute};
pub use catalogue::{FLASH, MAX, Models, UPSTREAM_KEY, cost, cost_of};
pub use chat::{Call, Ended, Stream};
pub use client::{Answer, Http, nanos, raw, usd};
pub use deployment::Deployment;
pub use door::{Door, Exchange};
pub use events::{Event, Events};
pub use redis::{Form, Redis};
pub use server::{Server, Settings, binary};
pub use wall_clock::WallClock;

use book::Book;
pub(crate) use deployment::Processes;

/// How long anything may take before a test fails rather than hangs.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long the last captures and releases may take after a test's last request: less than an ordinary lease, so that a
/// hold which only expires does not pass for one that was resolved.
const SETTLING: Duration = Duration::from_secs(10);

/// Pause between two looks at something that is waited for.
pub const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The account that a first run makes.
pub const ACCOUNT: &str = "default";
/// And its credit, in USD.
const FIRST_CREDIT: &str = "10";

/// How a stack is set up.
pub struct Options {
    /// Which processes it is made of.
    pub deployment: Deployment,
    /// What kind of upstream the catalogue says it is.
    pub kind: &'static str,
    /// The lease of a hold. The default is too long to hide a hold that was not resolved.
    pub lease: Duration,
    /// Which models are offered.
    pub models: Models,
    /// More of the environment.
    pub env: Vec<(&'static str, String)>,
    /// Seconds that the wall clock of each key-service is ahead of the machine's; without any, all have the machine's.
    pub clocks: Vec<i64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            deployment: Deployment::AllInOne,
            kind: "vllm",
            lease: Duration::from_secs(30),
            models: Models::Scripted,
            env: Vec::new(),
            clocks: Vec::new(),
        }
    }
}

/// A running installation.
pub struct Stack {
    /// The model server behind it.
    pub upstream: Upstream,
    /// The processes that clients speak to: one `faregate`, or the gateways.
    pub gateways: Vec<Server>,
    /// The processes behind the gateways; none where `faregate` is all in one.
    pub key_services: Vec<Server>,
    /// The client that everything is sent with.
    pub http: Http,
    /// The account that keys are made in by default.
    pub account: Account,
    /// The wall clocks of the key-services, where they have some of their own.
    pub clocks: Vec<WallClock>,
    redis: Option<Redis>,
    book: Arc<Book>,
    tags: AtomicU64,
    /// Requests sent so far: they go to the gateways in turn.
    turns: AtomicUsize,
    // Last: the folder goes after the processes that write into it.
    data: TempDir,
}

/// An API key with its plaintext.
#[derive(Clone, Debug)]
pub struct ApiKey {
    /// `ak_…`
    pub id: String,
    /// The account that it belongs to.
    pub account: Account,
    /// The plaintext.
    pub secret: String,
}

impl Stack {
    /// The usual one: an upstream that reports usage as it goes, two models, ten dollars.
    pub async fn start() -> Self {
        Self::with(Options::default()).await
    }

    /// One that is set up otherwise.
    pub async fn with(options: Options) -> Self {
        let upstream = Upstream::start();
        let data = TempDir::new().expect("a temporary folder can be made");
        let mut env = vec![("FAREGATE_HOLD_LEASE_SECONDS", options.lease.as_secs().to_string())];
        if let Some(text) = options.models.catalogue(options.kind, &upstream.url()) {
            let file = data.path().join("models.toml");
            std::fs::write(&file, text).unwrap();
            env.push(("FAREGATE_MODELS", file.display().to_string()));
        }
        env.extend(options.env);
        let processes = options.deployment.start(data.path(), env, &options.clocks).await;
        let Processes { gateways, key_services, redis, clocks } = processes;
        let book = Arc::new(Book::default());
        let account = book.open(operator(&gateways, &key_services), ACCOUNT, usd(FIRST_CREDIT));
        Self {
            upstream,
            gateways,
            key_services,
            http: Http::new(),
            account,
            clocks,
            redis,
            book,
            tags: AtomicU64::new(0),
            turns: AtomicUsize::new(0),
            data,
        }
    }

    /// A key without a limit.
    pub async fn key(&self) -> ApiKey {
        self.key_with(json!({})).await
    }

    /// A key that may spend so much, in USD.
    pub async fn key_limited(&self, limit: NanoUsd) -> ApiKey {
        let limit: Value = serde_json::from_str(&limit.to_string()).unwrap();
        self.key_with(json!({ "limit": limit })).await
    }

    /// A key made from this body.
    pub async fn key_with(&self, body: Value) -> ApiKey {
        self.key_of(&self.account, body).await
    }

    /// A key of this account.
    pub async fn key_of(&self, account: &Account, body: Value) -> ApiKey {
        let answer = self.manage_as(account, Method::POST, "", Some(body)).await;
        assert_eq!(answer.status, 201, "{answer}");
        let object = answer.json();
        let field = |name: &str| object[name].as_str().unwrap().to_owned();
        ApiKey { id: field("id"), account: account.clone(), secret: field("key") }
    }

    /// Another account, with so much credit.
    pub fn open_account(&self, name: &str, credit: NanoUsd) -> Account {
        if credit == NanoUsd::ZERO {
            self.cli(&["accounts", "create", "--name", name]);
        } else {
            self.cli(&["accounts", "create", "--name", name, "--credit", &credit.to_string()]);
        }
        self.book.open(self.operator(), name, credit)
    }

    /// Somebody else makes requests as well: what single keys were billed is not asserted in the end.
    pub fn others_spend(&self) {
        self.book.others_spend();
    }

    /// Adds to an account's credit.
    pub fn add_credit(&self, account: &Account, amount: NanoUsd) {
        self.cli(&["credits", "add", "--account", &account.name, "--amount", &amount.to_string()]);
        self.book.deposited(&account.name, amount);
    }

    /// A request of the management API about API keys; `path` is what follows `/v1/management/keys`.
    pub async fn manage(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        self.manage_as(&self.account, method, path, body).await
    }

    /// The same for another account.
    pub async fn manage_as(
        &self,
        account: &Account,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Answer {
        let url = self.url(&format!("/v1/management/keys{path}"));
        self.http.send_as(&account.management_key, method, &url, body).await
    }

    /// The key as the management API shows it.
    pub async fn show(&self, key: &ApiKey) -> Value {
        let answer = self.manage_as(&key.account, Method::GET, &format!("/{}", key.id), None).await;
        assert_eq!(answer.status, 200, "{answer}");
        answer.json()
    }

    /// What was billed to a key.
    pub async fn used(&self, key: &ApiKey) -> NanoUsd {
        nanos(&self.show(key).await["used"])
    }

    /// What the upstream generated for the requests of a key, whatever came of them.
    pub fn served(&self, key: &ApiKey) -> Vec<Generation> {
        let tags = self.book.tags_of(&key.id);
        self.upstream.generations().into_iter().filter(|generation| tags.contains(&generation.tag)).collect()
    }

    /// What all of that costs, with [`FLASH`].
    pub fn cost_of_served(&self, key: &ApiKey) -> NanoUsd {
        let costs = self.served(key).into_iter().map(|generation| cost(FLASH, generation.served).nanos());
        NanoUsd::from_nanos(costs.sum())
    }

    /// The last entry of each generation in an account's journal, as the command line exports them.
    pub fn journal(&self, account: &Account) -> Vec<Value> {
        let printed = self.cli(&["journal", "export", "--account", &account.name]);
        let entries = printed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let last: BTreeMap<String, Value> =
            entries.map(|entry| (entry["generation_id"].as_str().unwrap().to_owned(), entry)).collect();
        last.into_values().collect()
    }

    /// Revokes a key.
    pub async fn revoke(&self, key: &ApiKey) {
        let answer = self.manage_as(&key.account, Method::DELETE, &format!("/{}", key.id), None).await;
        assert_eq!(answer.status, 200, "{answer}");
    }

    /// A chat request for the scripted answer. The script is tagged if it has no tag of its own.
    pub fn call(&self, key: &ApiKey, script: Script) -> Call {
        self.call_to(self.url(""), key, script)
    }

    /// The same, to this gateway.
    pub fn call_at(&self, gateway: &Server, key: &ApiKey, script: Script) -> Call {
        self.call_to(gateway.public().to_owned(), key, script)
    }

    fn call_to(&self, base: String, key: &ApiKey, mut script: Script) -> Call {
        if script.tag.is_empty() {
            script.tag = format!("t{}", self.tags.fetch_add(1, Ordering::Relaxed));
        }
        let url = base + "/v1/chat/completions";
        Call::new(self.http.clone(), self.book.clone(), url, key, &script)
    }

    /// `GET` of a public path with a key.
    pub async fn get(&self, key: &ApiKey, path: &str) -> Answer {
        self.http.send_as(&key.secret, Method::GET, &self.url(path), None).await
    }

    /// The address of a public path, at one gateway after the other of those that run.
    pub fn url(&self, path: &str) -> String {
        let running: Vec<&Server> = self.gateways.iter().filter(|server| server.is_running()).collect();
        let server = match running.len() {
            0 => self.server(),
            many => running[self.turns.fetch_add(1, Ordering::Relaxed) % many],
        };
        format!("{}{path}", server.public())
    }

    /// The process that clients speak to; the first of several gateways.
    pub fn server(&self) -> &Server {
        &self.gateways[0]
    }

    /// Where everything is kept, where that is a process of its own.
    pub fn redis(&self) -> &Redis {
        self.redis.as_ref().expect("this deployment has a Redis")
    }

    /// One more gateway, with more of the environment. It gets none of the requests that are sent in turn.
    pub async fn another_gateway(&self, env: Vec<(&'static str, String)>) -> Server {
        let mut settings = self.server().settings().clone();
        settings.data = self.data.path().join("another");
        std::fs::create_dir_all(&settings.data).unwrap();
        settings.env.extend(env);
        Server::start(&settings).await
    }

    /// What a command of the operator prints, on the same data.
    pub fn cli(&self, arguments: &[&str]) -> String {
        self.operator().cli(arguments)
    }

    /// Whoever has the store has the commands.
    fn operator(&self) -> &Settings {
        operator(&self.gateways, &self.key_services)
    }

    /// Ends the process as a power cut would, and starts it again on the same data.
    pub async fn crash(&self) {
        self.kill_gateway(0);
        self.server().restart().await;
    }

    /// Ends the process that clients speak to, one of several maybe, as a power cut would.
    pub fn kill_gateway(&self, number: usize) {
        let gateway = &self.gateways[number];
        self.book.crashed(gateway.public());
        gateway.kill();
    }

    /// The folder that everything is kept in.
    pub fn data(&self) -> PathBuf {
        self.data.path().to_owned()
    }

    /// What an account has and holds, as the command line tells it.
    pub fn balance(&self, account: &Account) -> Balance {
        book::balances(self.operator()).remove(&account.name).expect("the account is listed")
    }

    /// Waits until no account holds anything.
    pub async fn released(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        loop {
            let held: Vec<_> = book::balances(self.operator())
                .into_iter()
                .filter(|(_, balance)| balance.held != NanoUsd::ZERO)
                .collect();
            if held.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "held for good: {held:?}");
            sleep(LOOK_EVERY).await;
        }
    }

    /// No hold is open, the books balance, and what was billed is what requests cost: asserted of every stack when it is
    /// dropped.
    async fn assert_settled(&self) {
        self.released(SETTLING).await;
        self.cli(&["audit"]);
        let listed =
            if self.gateways.iter().any(Server::is_running) { Some(self.listed_keys().await) } else { None };
        self.book.assert_billed(self.operator(), &self.upstream, listed.as_deref());
    }

    /// Every key of every account: its account, its id and what was billed to it.
    async fn listed_keys(&self) -> Vec<(String, String, NanoUsd)> {
        // A client of this runtime: the stack's own may belong to one that has stopped.
        let http = Http::new();
        let mut keys = Vec::new();
        for account in self.book.accounts() {
            let url = self.url("/v1/management/keys");
            let answer = http.send_as(&account.management_key, Method::GET, &url, None).await;
            assert_eq!(answer.status, 200, "{answer}");
            for key in answer.json()["data"].as_array().unwrap() {
                keys.push((account.name.clone(), key["id"].as_str().unwrap().into(), nanos(&key["used"])));
            }
        }
        keys
    }

    fn print_last_words(&self) {
        for server in self.gateways.iter().chain(&self.key_services) {
            eprintln!("{}", server.last_words());
        }
    }
}

fn operator<'a>(gateways: &'a [Server], key_services: &'a [Server]) -> &'a Settings {
    key_services.first().unwrap_or(&gateways[0]).settings()
}

impl Drop for Stack {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print_last_words();
            return;
        }
        // Checking takes waiting, which a drop cannot do; a thread with a runtime of its own can.
        let check = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(self.assert_settled());
        };
        if let Err(panic) = std::thread::scope(|scope| scope.spawn(check).join()) {
            self.print_last_words();
            std::panic::resume_unwind(panic);
        }
    }
}
