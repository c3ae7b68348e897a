//! A complete installation for measurements, with keys that do not run out of credit.

use std::net::SocketAddr;

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{extent::Part, redis::Teller};
use tests::harness::{ACCOUNT, Deployment, Form, Http, Models, Options, Processes, Redis};

/// Credit in USD. It exceeds all that a measurement spends or holds.
const CREDIT: &str = "100000";
/// A limit in USD, and a rate limit. No measurement reaches either of them.
const MUCH: u32 = 100_000;
const FREQUENT: u64 = 1_000_000_000;
/// Number of keys that are created at once.
const MADE_TOGETHER: usize = 32;

/// The kind of installation.
#[derive(Clone, Copy)]
pub(super) enum Setup {
    /// `faregate`: one process, SQLite.
    AllInOne,
    /// `faregate`: one process, Redis.
    AllInOneOverRedis,
    /// Gateways and key-services, over TCP, that share one Redis.
    Services {
        /// Number of gateways. The number of key-services is the same.
        each: usize,
        /// Maximum number of journal entries, unless the default applies.
        journal: Option<u32>,
    },
    /// One gateway and one key-service over a Redis with a replica.
    Replicated {
        /// Number of replicas that must confirm each change.
        awaited: u32,
    },
}

impl Setup {
    /// One gateway, one key-service, one Redis.
    pub(super) const SERVICES: Self = Self::Services { each: 1, journal: None };
}

/// A running installation with an API key.
pub(super) struct Installation {
    processes: Processes,
    management_key: String,
    /// The plaintext of an API key.
    pub(super) key: String,
    // This is the last member, so that the directory is removed only after the processes that write to it have ended.
    _data: TempDir,
}

impl Installation {
    /// Starts an installation whose only upstream is at this address.
    pub(super) async fn start(setup: Setup, upstream: SocketAddr) -> Self {
        let data = TempDir::new().expect("a temporary folder can be made");
        let models = Models::At(format!("http://{upstream}/v1"));
        let file = data.path().join("models.toml");
        std::fs::write(&file, models.catalogue("openai", "").expect("models at an address are configured"))
            .unwrap();
        let mut env = vec![("FAREGATE_MODELS", file.display().to_string())];
        let deployment = match setup {
            Setup::AllInOne => Deployment::AllInOne,
            Setup::AllInOneOverRedis => Deployment::SideBySide { processes: 1, redis: Form::AsInstalled },
            Setup::Services { each, journal } => {
                env.extend(journal.map(|entries| ("FAREGATE_REDIS_JOURNAL_ENTRIES", entries.to_string())));
                Deployment::Services { gateways: each, key_services: each, redis: Form::AsInstalled }
            }
            Setup::Replicated { awaited } => {
                env.push(("FAREGATE_REDIS_WAIT_REPLICAS", awaited.to_string()));
                Deployment::Services { gateways: 1, key_services: 1, redis: Form::WithReplica }
            }
        };
        let processes = deployment.start(data.path(), env, &Options::default()).await;
        let operator = processes.operator();
        operator.cli(&["credits", "add", "--account", ACCOUNT, "--amount", CREDIT]);
        let management_key =
            operator.cli(&["management-keys", "create", "--account", ACCOUNT, "--name", "bench"]);
        let management_key = management_key.trim().to_owned();
        let mut installation = Self { processes, management_key, key: String::new(), _data: data };
        installation.key = installation.make_key(&Http::new()).await;
        installation
    }

    /// Ends the programs as a service manager would: first the gateways, then the key-services.
    pub(super) async fn end(self) {
        for server in self.processes.gateways.iter().chain(&self.processes.key_services) {
            server.terminate();
            let status = server.ended().await;
            assert!(status.success(), "{status}: {}", server.last_words());
        }
    }

    /// Makes API keys and returns their plaintexts.
    pub(super) async fn make_keys(&self, count: usize) -> Vec<String> {
        let (http, mut keys) = (Http::new(), Vec::with_capacity(count));
        while keys.len() < count {
            let more = MADE_TOGETHER.min(count - keys.len());
            keys.extend(join_all((0..more).map(|_| self.make_key(&http))).await);
        }
        keys
    }

    /// Creates a key with every kind of limit. It is in a group with every kind of limit, whose parent has them too.
    /// The load reaches none of them.
    pub(super) async fn make_bounded_key(&self) -> String {
        let http = Http::new();
        let limits = ["hour", "day", "week", "month"].map(|per| json!({"amount": MUCH, "per": per}));
        let bounded = |field: &str, above: Option<&str>| {
            json!({
                "limits": limits, "requests_per_minute": FREQUENT, "tokens_per_minute": FREQUENT,
                "max_in_flight": FREQUENT, field: above,
            })
        };
        let parent = self.make(&http, "groups", bounded("parent_id", None)).await;
        let group = self.make(&http, "groups", bounded("parent_id", parent["id"].as_str())).await;
        let key = self.make(&http, "keys", bounded("group_id", group["id"].as_str())).await;
        key["key"].as_str().expect("a key has a plaintext").to_owned()
    }

    async fn make_key(&self, http: &Http) -> String {
        let made = self.make(http, "keys", json!({"label": "bench"})).await;
        made["key"].as_str().expect("a key has a plaintext").to_owned()
    }

    async fn make(&self, http: &Http, objects: &str, body: Value) -> Value {
        let url = format!("{}/v1/management/{objects}", self.processes.gateways[0].public());
        let made = http.send_as(&self.management_key, Method::POST, &url, Some(body)).await;
        let object = made.json();
        assert!(object["error"].is_null(), "{made}");
        object
    }

    /// Returns the addresses that clients send requests to.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        let address = |public: &str| public.trim_start_matches("http://").parse().expect("it is an address");
        self.processes.gateways.iter().map(|gateway| address(gateway.public())).collect()
    }

    /// Returns the installation's processes; those that accept client connections come first.
    pub(super) fn parts(&self) -> Vec<Part> {
        let Processes { gateways, key_services, redis, clocks: _ } = &self.processes;
        let gateways = gateways.iter().map(|gateway| Part { name: "gateway", pid: gateway.pid() });
        let key_services =
            key_services.iter().map(|service| Part { name: "key-service", pid: service.pid() });
        let redis = redis.iter().flat_map(Redis::pids).map(|pid| Part { name: "redis", pid });
        gateways.chain(key_services).chain(redis).collect()
    }

    /// Returns the installation's Redis, for reading its counters.
    pub(super) fn redis(&self) -> Option<Teller> {
        let url = self.processes.redis.as_ref()?.url();
        Some(Teller(url.trim_start_matches("redis://").parse().expect("it is on a port")))
    }
}
