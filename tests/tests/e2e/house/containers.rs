//! Checks everything that `docker-compose.yml` and the `Dockerfile` rely on, without a container engine.

use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::Value;
use shared_door::serve::DRAIN;
use tests::harness::{ACCOUNT, Form, LOOK_EVERY, PATIENCE, Redis, Server, Settings};
use tokio::time::sleep;

/// Service in `docker-compose.yml` that runs to completion before the others start; not a program of this workspace.
const SECRETS: &str = "secrets";
/// User and group of all containers.
const USER: &str = "999:999";
/// Time that a gateway needs to stop, in addition to the grace period for requests: cutting streams and delivering
/// charges have separate time limits.
const LAST_WORDS: Duration = Duration::from_secs(32);

/// Number of key-services that start at once.
const MANY: usize = 4;

#[apply(fact)]
async fn key_services_that_start_at_once_have_one_first_run() {
    let data = tempfile::TempDir::new().unwrap();
    let redis = Redis::start(Form::Alone, &data.path().join("redis")).await;
    let store = data.path().join("store");
    fs::write(&store, redis.url()).unwrap();
    let settings: Vec<_> = (0..MANY)
        .map(|number| {
            let data = data.path().join(format!("key-service-{number}"));
            fs::create_dir(&data).unwrap();
            let env = vec![
                ("FAREGATE_STORE_FILE", store.display().to_string()),
                ("FAREGATE_PEPPER", "5eed".repeat(16)),
                ("FAREGATE_INTERNAL_TOKEN", "between-the-services".to_owned()),
                ("FAREGATE_FIRST_RUN", "true".to_owned()),
                ("FAREGATE_PUBLIC_URL", "https://models.example.com".to_owned()),
            ];
            Settings::of("key-service", &data, env)
        })
        .collect();
    let servers = join_all(settings.iter().map(Server::start)).await;

    let listed = settings[0].cli(&["management-keys", "list", "--account", ACCOUNT, "--json"]);
    let keys: Vec<Value> = serde_json::from_str(&listed).unwrap();
    assert_eq!(keys.len(), 1, "{listed}");
    let deadline = Instant::now() + PATIENCE;
    let to_paste = "curl https://models.example.com/v1/chat/completions";
    while !servers.iter().any(|server| server.stdout().contains(to_paste)) {
        assert!(Instant::now() < deadline, "no key-service prints the first keys");
        sleep(LOOK_EVERY).await;
    }
    let printed = servers.iter().filter(|server| server.stdout().contains("fg_mgmt_")).count();
    assert_eq!(printed, 1, "the key-service that made the key prints it, and no other does");
    assert!(servers.iter().all(|server| !server.log().contains("fg_mgmt_")), "no log contains it");
}

#[test]
fn the_containers_have_only_settings_that_their_programs_understand() {
    let dockerfile = read("Dockerfile");
    for (name, service) in compose().programs() {
        let help = help(name);
        assert_eq!(service.build.as_ref().unwrap().target, name);
        let stage = stage(&dockerfile, name);
        let in_image = stage.split_whitespace().filter_map(|word| word.split_once('=')).map(|(name, _)| name);
        let told: Vec<_> = service.environment.keys().map(String::as_str).chain(in_image).collect();
        let settings: Vec<_> = told.into_iter().filter(|word| word.starts_with("FAREGATE_")).collect();
        assert!(!settings.is_empty(), "{name} needs an address to listen on");
        for setting in settings {
            assert!(help.contains(&format!("[env: {setting}")), "{name} has no setting {setting}");
        }
        let program = format!("[\"{name}\", \"--health\"]");
        assert!(
            stage.contains(&format!("CMD {program}")) && help.contains("--health"),
            "{name}: no HEALTHCHECK"
        );
    }
}

#[test]
fn the_gateway_alone_is_published_and_on_loopback() {
    let published: Vec<_> = compose()
        .services
        .into_iter()
        .flat_map(|(name, s)| s.ports.into_iter().map(move |p| (name.clone(), p)))
        .collect();
    let gateway = ("inference-gateway".to_owned(), "${FAREGATE_PUBLISH:-127.0.0.1:8080}:8080".to_owned());
    assert_eq!(published, [gateway]);
}

#[test]
fn no_container_may_do_more_than_it_has_to() {
    for (name, service) in compose().services {
        assert!(service.read_only, "{name} can write beside its volumes");
        assert_eq!(service.user, USER, "{name}");
        assert_eq!(service.cap_drop, ["ALL"], "{name}");
        assert_eq!(service.security_opt, ["no-new-privileges:true"], "{name}");
        assert!(service.mem_limit.is_some(), "{name} may take all memory");
        assert!(service.pids_limit.is_some(), "{name} may start processes without end");
        assert_eq!(service.restart, if name == SECRETS { "no" } else { "unless-stopped" }, "{name}");
    }
}

#[test]
fn images_from_elsewhere_are_pinned_by_their_digests() {
    let (dockerfile, compose) = (read("Dockerfile"), compose());
    let bases = dockerfile.lines().filter_map(|line| line.strip_prefix("FROM ")?.split_once(" AS "));
    let (bases, stages): (Vec<_>, Vec<_>) = bases.unzip();
    // A stage may be replaced by programs that have already been built.
    let is_named = |base: &&str| *base == "scratch" || *base == "${PROGRAMS}" || stages.contains(base);
    let bases = bases.into_iter().filter(|base| !is_named(base));
    let others = compose.services.values().filter(|service| service.build.is_none());
    let images: Vec<_> = bases.chain(others.filter_map(|service| service.image.as_deref())).collect();
    assert!(images.len() >= 3, "{images:?}");
    for image in images {
        let (_, digest) = image.split_once("@sha256:").unwrap_or_else(|| panic!("{image} has no digest"));
        assert!(digest.len() == 64 && digest.chars().all(|digit| digit.is_ascii_hexdigit()), "{image}");
    }
}

/// Without a policy, Compose pulls a missing image, and builds it if the pull fails.
#[test]
fn images_of_a_release_are_pulled_or_else_built_and_are_those_of_this_version() {
    let one_process: BTreeMap<String, Value> =
        serde_saphyr::from_str(&read("deploy/compose/one-process.yml")).unwrap();
    let faregate: Service = serde_json::from_value(one_process["services"]["faregate"].clone()).unwrap();
    let services = compose().services.into_values().chain([faregate]);
    let built: Vec<_> = services.filter(|service| service.build.is_some()).collect();
    assert_eq!(built.len(), 5);
    let version = env!("CARGO_PKG_VERSION");
    for service in built {
        assert_eq!(service.pull_policy, None);
        let (target, image) = (service.build.unwrap().target, service.image.unwrap());
        assert!(image.starts_with("${FAREGATE_REGISTRY:-"), "{image}");
        assert!(image.ends_with(&format!("/}}{target}:${{FAREGATE_VERSION:-{version}}}")), "{image}");
    }
}

#[test]
fn the_gateway_alone_reads_the_keys_of_vendors_and_starts_without_any() {
    for (name, service) in compose().services {
        let files: &[EnvFile] = if name == "inference-gateway" {
            &[EnvFile { path: ".env".to_owned(), required: false }]
        } else {
            &[]
        };
        assert_eq!(service.env_file, files, "{name}");
    }
    let ignored = read(".gitignore");
    assert!(ignored.lines().any(|line| line == "/.env"), "it has secrets: {ignored}");
}

#[test]
fn a_container_is_given_the_time_that_its_program_takes_to_end() {
    let compose = compose();
    let grace = |name: &str| {
        let period = compose.services[name].stop_grace_period.as_deref().unwrap_or("10s");
        Duration::from_secs(period.strip_suffix('s').unwrap().parse().unwrap())
    };
    let help = help("inference-gateway");
    let (_, said) = help.split_once("[env: FAREGATE_DRAIN_SECONDS").unwrap();
    let (_, default) = said.split_once("[default: ").unwrap();
    let (drain, _) = default.split_once(']').unwrap();
    let drain = Duration::from_secs(drain.parse().unwrap());
    assert!(grace("inference-gateway") > drain + LAST_WORDS);
    assert!(grace("key-service") > DRAIN + Duration::from_secs(1));
    assert!(grace("local-model") > DRAIN);
}

/// Redis reads its configuration file as the user `default`, and drops everything that this user may not do.
#[apply(fact)]
async fn data_in_redis_survives_a_restart_under_its_users() {
    let data = tempfile::TempDir::new().unwrap();
    let socket = data.path().join("socket");
    let users = data.path().join("users.acl");
    let dockerfile = read("Dockerfile");
    let (_, listed) = dockerfile.split_once("<<USERS\n").unwrap();
    let (listed, _) = listed.split_once("USERS\n").unwrap();
    fs::write(&users, listed.replace("$password", "secret")).unwrap();
    let start = || {
        let mut redis = Command::new("redis-server");
        redis.args(["--port", "0", "--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
        redis.arg("--unixsocket").arg(&socket).arg("--aclfile").arg(&users).arg("--dir").arg(data.path());
        redis.stdout(Stdio::null()).spawn().unwrap()
    };
    let env = vec![
        ("FAREGATE_STORE", format!("unix://{}?user=key-service&pass=secret", socket.display())),
        ("FAREGATE_PEPPER", "5eed".repeat(16)),
    ];
    let key_service = Settings::of("key-service", data.path(), env);

    let mut redis = start();
    let made = eventually(&key_service, &["accounts", "create", "--name", ACCOUNT, "--credit", "7"]).await;
    redis.kill().unwrap();
    redis.wait().unwrap();
    fs::remove_file(&socket).unwrap();
    let mut redis = start();
    let listed = eventually(&key_service, &["accounts", "list", "--json"]).await;
    redis.kill().unwrap();
    redis.wait().unwrap();

    let accounts: Vec<Value> = serde_json::from_str(&listed).unwrap();
    assert_eq!(accounts.len(), 1, "{listed}");
    assert_eq!((accounts[0]["id"].as_str(), &accounts[0]["credit"]), (Some(made.trim()), &Value::from(7)));
}

/// Returns the output of a command, which is repeated until Redis is reachable.
async fn eventually(settings: &Settings, arguments: &[&str]) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (status, printed, error) = settings.try_cli(arguments);
        if status.success() {
            return printed;
        }
        assert!(Instant::now() < deadline, "{error}");
        sleep(LOOK_EVERY).await;
    }
}

/// The parts of `docker-compose.yml` that are tested.
#[derive(Deserialize)]
struct Compose {
    services: BTreeMap<String, Service>,
}

#[derive(Deserialize)]
struct Service {
    build: Option<Build>,
    image: Option<String>,
    pull_policy: Option<String>,
    #[serde(default)]
    env_file: Vec<EnvFile>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    #[serde(default)]
    ports: Vec<String>,
    user: String,
    read_only: bool,
    cap_drop: Vec<String>,
    security_opt: Vec<String>,
    restart: String,
    mem_limit: Option<String>,
    pids_limit: Option<u32>,
    stop_grace_period: Option<String>,
}

#[derive(Deserialize)]
struct Build {
    target: String,
}

#[derive(Debug, PartialEq, Deserialize)]
struct EnvFile {
    path: String,
    required: bool,
}

impl Compose {
    /// Returns the services that are programs of this workspace, by the program's name.
    fn programs(&self) -> impl Iterator<Item = (&'static str, &Service)> {
        ["inference-gateway", "key-service", "local-model"]
            .map(|name| (name, &self.services[name]))
            .into_iter()
    }
}

fn compose() -> Compose {
    serde_saphyr::from_str(&read("docker-compose.yml")).unwrap()
}

/// Returns the lines of one stage in the Dockerfile.
fn stage<'a>(dockerfile: &'a str, name: &str) -> &'a str {
    let (_, stage) = dockerfile.split_once(&format!(" AS {name}\n")).unwrap();
    stage.split("\nFROM ").next().unwrap()
}

/// Reads a file at the root of the workspace.
fn read(name: &str) -> String {
    fs::read_to_string(format!("{}/../{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Returns the output of a program's `--help`.
fn help(program: &'static str) -> String {
    let data = tempfile::TempDir::new().unwrap();
    Settings::of(program, data.path(), Vec::new()).cli(&["--help"])
}
