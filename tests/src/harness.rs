//! Runs the real programs, which keep their data in a private directory and call a scripted upstream. At the end of a
//! test, checks that every hold was resolved and that every key was billed exactly the cost of its requests.

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
use shared::{key::without_keys, money::NanoUsd};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::upstream::{Generation, Script, Upstream};

mod book;
mod catalogue;
mod chat;
pub(crate) mod clients;
mod command;
mod deployment;
mod door;
mod patience;
pub(crate) mod servers;
mod terminal;
mod wall_clock;

pub use crate::upstream::UPSTREAM_KEY;
pub use book::{Account, Balance, billed};
pub use catalogue::{FLASH, MAX, Models, cost, cost_of};
pub use chat::{Call, Ended, Stream};
pub use clients::browser::{Browser, attribute};
pub use clients::client::{Answer, Http, nanos, raw, usd};
pub use clients::dialect::Dialect;
pub use clients::events::{Event, Events};
pub use command::run_to_end;
pub use deployment::{Deployment, Processes};
pub use door::{Door, Exchange};
pub use servers::balancer::Balancer;
pub use servers::otlp_receiver::{OtlpReceiver, ReceivedMetric, ReceivedSpan};
pub use servers::ports::free_port;
pub use servers::receiver::{Received, Receiver};
pub use servers::redis::{Form, Loss, Redis};
pub use servers::server::{PREVIOUS, Server, Settings, binary};
pub use servers::stand_in::{AskedOf, Given, StandIn};
pub use terminal::{Shown, on_terminal};
pub use wall_clock::WallClock;

pub use book::ApiKey;
use book::Book;
use deployment::FIRST_CREDIT;
pub use deployment::{ACCOUNT, Options};
use deployment::{INTERNAL_TOKEN, PEPPER};
pub use patience::{LOOK_EVERY, PATIENCE, SERVER_PATIENCE, until};

/// Maximum time, after the last request of a test, until all captures and releases have arrived. It is shorter than an
/// ordinary lease. So a hold that only expires does not count as resolved.
const SETTLING: Duration = Duration::from_secs(10);

/// A running installation.
pub struct Stack {
    /// The model server that the gateways call.
    pub upstream: Upstream,
    /// The processes that accept client connections: `faregate`, or the gateways.
    pub gateways: Vec<Server>,
    /// The key-services. There are none if `faregate` contains both services.
    pub key_services: Vec<Server>,
    /// HTTP client that sends all requests of the test.
    pub http: Http,
    /// The account in which keys are created unless a test chooses another.
    pub account: Account,
    /// The wall clocks of the key-services, if these do not use the machine's clock.
    pub clocks: Vec<WallClock>,
    redis: Option<Redis>,
    book: Arc<Book>,
    tags: AtomicU64,
    /// Number of requests sent so far. It decides which gateway gets the next request.
    turns: AtomicUsize,
    // This is the last member, so that the folder is removed only after the processes that write to it have ended.
    data: TempDir,
}

impl Stack {
    /// Starts a stack with the default options. Its upstream reports usage while it generates, the catalogue has two
    /// models, and the account has ten dollars of credit.
    pub async fn start() -> Self {
        Self::with(Options::default()).await
    }

    /// Starts a stack with these options.
    pub async fn with(options: Options) -> Self {
        let upstream = Upstream::keeping(options.keep);
        let data = TempDir::new().expect("a temporary folder can be made");
        let mut env = vec![("FAREGATE_HOLD_LEASE_SECONDS", options.lease.as_secs().to_string())];
        if let Some(text) = options.models.catalogue(options.kind, &upstream.url()) {
            let file = data.path().join("models.toml");
            std::fs::write(&file, text).unwrap();
            env.push(("FAREGATE_MODELS", file.display().to_string()));
        }
        env.extend(options.env.iter().cloned());
        let processes = options.deployment.start(data.path(), env, &options).await;
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

    /// Creates a key without a limit.
    pub async fn key(&self) -> ApiKey {
        self.key_with(json!({})).await
    }

    /// Creates a key with this spending limit.
    pub async fn key_limited(&self, limit: NanoUsd) -> ApiKey {
        let limit: Value = serde_json::from_str(&limit.to_string()).unwrap();
        self.key_with(json!({ "limit": limit })).await
    }

    /// Creates a key from this request body.
    pub async fn key_with(&self, body: Value) -> ApiKey {
        self.key_of(&self.account, body).await
    }

    pub async fn key_of(&self, account: &Account, body: Value) -> ApiKey {
        let answer = self.manage_as(account, Method::POST, "", Some(body)).await;
        assert_eq!(answer.status, 201, "{answer}");
        let object = answer.json();
        let field = |name: &str| object[name].as_str().unwrap().to_owned();
        ApiKey { id: field("id"), account: account.clone(), secret: field("key") }
    }

    /// Opens another account with this credit.
    pub fn open_account(&self, name: &str, credit: NanoUsd) -> Account {
        if credit == NanoUsd::ZERO {
            self.cli(&["accounts", "create", "--name", name]);
        } else {
            self.cli(&["accounts", "create", "--name", name, "--credit", &credit.to_string()]);
        }
        self.book.open(self.operator(), name, credit)
    }

    /// Declares that other clients spend too. The check at the end of the test then ignores what each key was charged.
    pub fn others_spend(&self) {
        self.book.others_spend();
    }

    /// From now on, everything that keys have spent so far counts as spent elsewhere, before the keys were imported.
    pub async fn moved_in(&self) {
        for (_, id, used) in self.listed_keys().await {
            self.book.moved_in(&id, used);
        }
    }

    /// Adds an amount to an account's credit, with a note.
    pub fn add_credit(&self, account: &Account, amount: NanoUsd, note: &str) {
        let amount_text = amount.to_string();
        self.cli(&["credits", "add", "--account", &account.name, "--amount", &amount_text, "--note", note]);
        self.credited(account, amount);
    }

    /// Enters a deposit in the book that the test made without the harness.
    pub fn credited(&self, account: &Account, amount: NanoUsd) {
        self.book.deposited(&account.name, amount);
    }

    /// Sends a management request about API keys; `path` is the part after `/v1/management/keys`.
    pub async fn manage(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        self.manage_as(&self.account, method, path, body).await
    }

    /// Sends a management request for another account.
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

    /// Reads a key through the management API.
    pub async fn show(&self, key: &ApiKey) -> Value {
        let answer = self.manage_as(&key.account, Method::GET, &format!("/{}", key.id), None).await;
        assert_eq!(answer.status, 200, "{answer}");
        answer.json()
    }

    /// Returns the amount billed to a key.
    pub async fn used(&self, key: &ApiKey) -> NanoUsd {
        nanos(&self.show(key).await["used"])
    }

    /// Returns the generations of a key at the upstream. Failed generations are included.
    pub fn served(&self, key: &ApiKey) -> Vec<Generation> {
        let tags = self.book.tags_of(&key.id);
        self.upstream.generations().into_iter().filter(|generation| tags.contains(&generation.tag)).collect()
    }

    /// Returns what all these generations cost with the model [`FLASH`].
    pub fn cost_of_served(&self, key: &ApiKey) -> NanoUsd {
        let costs = self.served(key).into_iter().map(|generation| cost(FLASH, generation.served).nanos());
        NanoUsd::from_nanos(costs.sum())
    }

    /// Returns the last journal entry of each generation of an account, as the command line exports it.
    pub fn journal(&self, account: &Account) -> Vec<Value> {
        let printed = self.cli(&["journal", "export", "--account", &account.name]);
        let entries = printed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        // The entry of a late capture has no generation id, because it is not the bill of its generation.
        let bill = |entry: Value| Some((entry["generation_id"].as_str()?.to_owned(), entry));
        let last: BTreeMap<String, Value> = entries.filter_map(bill).collect();
        last.into_values().collect()
    }

    /// Revokes a key.
    pub async fn revoke(&self, key: &ApiKey) {
        let answer = self.manage_as(&key.account, Method::DELETE, &format!("/{}", key.id), None).await;
        assert_eq!(answer.status, 200, "{answer}");
    }

    /// Disables a key, or enables it again.
    pub async fn disable(&self, key: &ApiKey, disabled: bool) {
        let (path, body) = (format!("/{}", key.id), serde_json::json!({ "disabled": disabled }));
        let answer = self.manage_as(&key.account, Method::PATCH, &path, Some(body)).await;
        assert_eq!(answer.status, 200, "{answer}");
    }

    /// Prepares a chat request that gets the scripted answer. If the script has no tag, it gets one.
    pub fn call(&self, key: &ApiKey, script: Script) -> Call {
        self.call_to(self.url(""), key, script)
    }

    /// Prepares a chat request that is sent to this gateway.
    pub fn call_at(&self, gateway: &Server, key: &ApiKey, script: Script) -> Call {
        self.call_to(gateway.public().to_owned(), key, script)
    }

    /// Prepares a chat request that is sent to the installation at this address.
    pub fn call_to(&self, base: String, key: &ApiKey, mut script: Script) -> Call {
        if script.tag.is_empty() {
            script.tag = format!("t{}", self.tags.fetch_add(1, Ordering::Relaxed));
        }
        Call::new(self.http.clone(), self.book.clone(), base, key, &script)
    }

    /// Sends a `GET` request with a key to a public path.
    pub async fn get(&self, key: &ApiKey, path: &str) -> Answer {
        self.http.send_as(&key.secret, Method::GET, &self.url(path), None).await
    }

    /// Returns the URL of a public path. The gateways take turns.
    pub fn url(&self, path: &str) -> String {
        let running: Vec<&Server> = self.gateways.iter().filter(|server| server.is_running()).collect();
        let server = match running.len() {
            0 => self.server(),
            many => running[self.turns.fetch_add(1, Ordering::Relaxed) % many],
        };
        format!("{}{path}", server.public())
    }

    /// Returns the process that accepts client connections. If there are several gateways, returns the first.
    pub fn server(&self) -> &Server {
        &self.gateways[0]
    }

    pub fn redis(&self) -> &Redis {
        self.redis.as_ref().expect("this deployment has a Redis")
    }

    /// Starts another gateway with additional environment variables. The test's requests do not go to it unless a test
    /// sends them there.
    pub async fn another_gateway(&self, env: Vec<(&'static str, String)>) -> Server {
        let mut settings = self.server().settings().clone();
        settings.data = self.data.path().join("another");
        std::fs::create_dir_all(&settings.data).unwrap();
        settings.env.extend(env);
        Server::start(&settings).await
    }

    /// Runs an operator's command on the data of the stack, and returns what it printed.
    pub fn cli(&self, arguments: &[&str]) -> String {
        self.operator().cli(arguments)
    }

    /// Returns the settings of a process that can access the store. Operator's commands can be run with them.
    pub fn operator(&self) -> &Settings {
        operator(&self.gateways, &self.key_services)
    }

    /// Ends the process as a power failure would, and starts it again with the same data.
    pub async fn crash(&self) {
        self.kill_gateway(0);
        self.server().restart().await;
    }

    /// Ends a process that accepts client connections as a power failure would.
    pub fn kill_gateway(&self, number: usize) {
        let gateway = &self.gateways[number];
        self.book.crashed(gateway.public());
        gateway.kill();
    }

    /// Returns the folder that contains all data of the stack.
    pub fn data(&self) -> PathBuf {
        self.data.path().to_owned()
    }

    /// Returns the credit of an account and the sum of its holds, as the command line shows them.
    pub fn balance(&self, account: &Account) -> Balance {
        book::balances(self.operator()).remove(&account.name).expect("the account is listed")
    }

    /// Waits until no account has a hold that is open.
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

    /// Asserts that no hold is open, that the books balance, and that each key was billed the cost of its requests.
    /// This is checked for every stack when it is dropped.
    async fn assert_settled(&self) {
        self.released(SETTLING).await;
        self.cli(&["audit"]);
        self.assert_discreet().await;
        let listed =
            if self.gateways.iter().any(Server::is_running) { Some(self.listed_keys().await) } else { None };
        self.book.assert_billed(self.operator(), &self.upstream, listed.as_deref());
    }

    /// Asserts that no prompt, key, token or pepper is in a log or in a metric.
    async fn assert_discreet(&self) {
        for server in self.gateways.iter().chain(&self.key_services) {
            let mut told = server.log();
            if server.is_running() {
                told += Http::new().get(&format!("{}/metrics", server.admin())).await.text();
            }
            let program = server.settings().program;
            assert_eq!(secret_in(&told), None, "{program} tells a secret in its log or metrics");
        }
    }

    /// Returns every key in every account: the account, the key's id, and the billed amount.
    async fn listed_keys(&self) -> Vec<(String, String, NanoUsd)> {
        // The stack's own client may belong to a runtime that no longer runs.
        let http = self.http.fresh();
        let mut keys = Vec::new();
        for account in self.book.accounts() {
            let url = self.url("/v1/management/keys");
            let answer = http.send_as(&account.management_key, Method::GET, &url, None).await;
            assert_eq!(answer.status, 200, "{answer}");
            for key in answer.json()["data"].as_array().unwrap() {
                let id = key["id"].as_str().unwrap();
                let used = self.book.used_here(id, nanos(&key["used"]));
                keys.push((account.name.clone(), id.into(), used));
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

/// Returns the first secret in what a process shows to operators: a key, one of the installation's secrets, or a
/// prompt.
pub fn secret_in(told: &str) -> Option<String> {
    let line = |line: &&str| {
        let secrets = [PEPPER, INTERNAL_TOKEN, UPSTREAM_KEY, r#""script":"#, r#"\"script\":"#];
        without_keys(line) != *line || secrets.iter().any(|secret| line.contains(secret))
    };
    told.lines().find(line).map(str::to_owned)
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
        // `drop` cannot wait for a future, so the check runs on a thread with a runtime of its own.
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
