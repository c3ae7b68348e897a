//! The processes of an installation, and how they find each other.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    servers::{
        redis::{Form, Redis},
        server::{Server, Settings},
    },
    wall_clock::WallClock,
};
use crate::{harness::catalogue::Models, upstream::Keep};

/// Pepper for hashing keys, and token between the services.
pub(super) const PEPPER: &str = "5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed";
pub(super) const INTERNAL_TOKEN: &str = "between-the-services";

/// Environment variable that swaps the single Redis and the cluster, so that each test also runs over the other one.
const SWAPPED: &str = "FAREGATE_TEST_SWAPPED";

/// Processes that make up an installation.
#[derive(Clone, Copy, Debug)]
pub enum Deployment {
    /// `faregate`: both services and the store in one process.
    AllInOne,
    /// Several `faregate` processes over a Redis.
    SideBySide { processes: usize, redis: Form },
    /// The services as separate processes over a Redis.
    Services { gateways: usize, key_services: usize, redis: Form },
}

impl Deployment {
    /// Services over this form of Redis, which `FAREGATE_TEST_SWAPPED` may replace.
    pub fn services(gateways: usize, key_services: usize, redis: Form) -> Self {
        Self::Services { gateways, key_services, redis: as_asked(redis) }
    }

    /// Several `faregate` processes over this form of Redis, which `FAREGATE_TEST_SWAPPED` may replace.
    pub fn side_by_side(processes: usize, redis: Form) -> Self {
        Self::SideBySide { processes, redis: as_asked(redis) }
    }
}

/// Half of the tests with services use a single Redis and half use a cluster; the variable swaps the two.
fn as_asked(form: Form) -> Form {
    let is_swapped = match std::env::var(SWAPPED).as_deref() {
        Ok("1") => true,
        Ok(other) => panic!("{SWAPPED} is {other:?}, which is not \"1\""),
        Err(_) => false,
    };
    match form {
        Form::Alone if is_swapped => Form::Cluster,
        Form::Cluster if is_swapped => Form::Alone,
        form => form,
    }
}

/// Running processes of an installation.
pub struct Processes {
    /// Processes that accept client connections.
    pub gateways: Vec<Server>,
    /// Key-services. Empty if the gateway's process contains the key-service.
    pub key_services: Vec<Server>,
    /// The Redis. `None` if the store is not a separate process.
    pub redis: Option<Redis>,
    /// Clocks of the key-services, if each has its own.
    pub clocks: Vec<WallClock>,
}

impl Deployment {
    /// Starts the processes and creates the first run's account. Each process has a directory in `data` and this
    /// environment. If `options.clocks` has a number for a key-service, or for the only process, its clock is that many
    /// seconds ahead of the machine's.
    pub async fn start(self, data: &Path, env: Vec<(&'static str, String)>, options: &Options) -> Processes {
        let clocks = &options.clocks;
        match self {
            Self::AllInOne => {
                let clocks: Vec<WallClock> =
                    clocks.first().map(|seconds| WallClock::ahead(data, *seconds)).into_iter().collect();
                let env = env.into_iter().chain(clocks.iter().flat_map(WallClock::env)).collect();
                let settings =
                    Settings { files_bounded: options.files_bounded, ..Settings::all_in_one(data, env) };
                let gateways = vec![Server::start(&settings).await];
                Processes { gateways, key_services: Vec::new(), redis: None, clocks }
            }
            Self::SideBySide { processes, redis } => {
                let redis = Redis::start(redis, &data.join("redis")).await;
                let mut gateways = Vec::new();
                for number in 0..processes {
                    let own = [("FAREGATE_PEPPER", PEPPER.to_owned()), ("FAREGATE_STORE", redis.url())];
                    let env = env.iter().cloned().chain(own).collect();
                    let data = folder(data, "faregate", number);
                    gateways.push(
                        Server::start(&in_version(options, number, Settings::all_in_one(&data, env))).await,
                    );
                }
                Processes { gateways, key_services: Vec::new(), redis: Some(redis), clocks: Vec::new() }
            }
            Self::Services { gateways, key_services, redis } => {
                let redis = Redis::start(redis, &data.join("redis")).await;
                let clock = |(number, seconds): (usize, &i64)| {
                    WallClock::ahead(&folder(data, "key-service", number), *seconds)
                };
                let clocks = clocks.iter().enumerate().map(clock).collect();
                services(data, &env, (gateways, key_services), (redis, clocks), options).await
            }
        }
    }
}

impl Processes {
    /// Returns the settings of a process with access to the store, which can run the operator's commands.
    pub fn operator(&self) -> &Settings {
        self.key_services.first().unwrap_or(&self.gateways[0]).settings()
    }
}

async fn services(
    data: &Path,
    env: &[(&'static str, String)],
    (gateways, key_services): (usize, usize),
    (redis, clocks): (Redis, Vec<WallClock>),
    options: &Options,
) -> Processes {
    let settings = |program: &'static str, number: usize, own: Vec<(&'static str, String)>| {
        let data = folder(data, program, number);
        let token = ("FAREGATE_INTERNAL_TOKEN", INTERNAL_TOKEN.to_owned());
        let env = env.iter().cloned().chain([token]).chain(own).collect();
        in_version(options, number, Settings { upgraded: true, ..Settings::of(program, &data, env) })
    };
    let of_key_service = |number| {
        let mut own = vec![("FAREGATE_PEPPER", PEPPER.to_owned()), ("FAREGATE_STORE", redis.url())];
        own.extend(clocks.get(number).into_iter().flat_map(WallClock::env));
        settings("key-service", number, own)
    };
    of_key_service(0).cli(&["accounts", "create", "--name", ACCOUNT, "--credit", FIRST_CREDIT]);
    let mut behind = Vec::new();
    for number in 0..key_services {
        behind.push(Server::start(&of_key_service(number)).await);
    }
    let mut before = Vec::new();
    for number in 0..gateways {
        // Each gateway prefers another key-service, so that all key-services receive calls.
        let mut in_turn: Vec<&Server> = behind.iter().collect();
        in_turn.rotate_left(number % key_services);
        let grpc: Vec<&str> = in_turn.iter().map(|server| server.address("key-grpc")).collect();
        let http: Vec<&str> = in_turn.iter().map(|server| server.address("key-http")).collect();
        let urls = vec![
            ("FAREGATE_KEY_SERVICE_URL", grpc.join(",")),
            ("FAREGATE_KEY_SERVICE_HTTP_URL", http.join(",")),
        ];
        let gateway = settings("inference-gateway", number, urls);
        before.push(Server::start(&Settings { files_bounded: options.files_bounded, ..gateway }).await);
    }
    Processes { gateways: before, key_services: behind, redis: Some(redis), clocks }
}

/// Chooses the version that a process runs: with `beside`, processes with even numbers run the other version.
fn in_version(options: &Options, number: usize, settings: Settings) -> Settings {
    let programs = options.beside.clone().filter(|_| number.is_multiple_of(2));
    Settings { programs, ..settings }
}

/// Returns the folder of a process, and creates it if it is missing.
fn folder(data: &Path, program: &str, number: usize) -> PathBuf {
    let folder = data.join(format!("{program}-{number}"));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Name of the account that a first run creates.
pub const ACCOUNT: &str = "default";
/// Credit of that account, in USD.
pub(super) const FIRST_CREDIT: &str = "10";

/// Settings of a stack.
pub struct Options {
    /// The processes that make up the installation.
    pub deployment: Deployment,
    /// Kind of upstream in the catalogue.
    pub kind: &'static str,
    /// Lease of a hold. The default is longer than the time in which a test expects holds to be resolved.
    pub lease: Duration,
    /// Models in the catalogue.
    pub models: Models,
    /// Additional environment variables.
    pub env: Vec<(&'static str, String)>,
    /// For each key-service, how many seconds its wall clock is ahead of the machine's. If empty, all use the machine's
    /// clock.
    pub clocks: Vec<i64>,
    /// How the upstream records requests.
    pub keep: Keep,
    /// Whether the file sizes of gateways can be limited with [`Server::bound_files`].
    pub files_bounded: bool,
    /// Folder with another version of the programs. If set, every second process of each kind runs that version.
    pub beside: Option<PathBuf>,
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
            keep: Keep::default(),
            files_bounded: false,
            beside: None,
        }
    }
}
