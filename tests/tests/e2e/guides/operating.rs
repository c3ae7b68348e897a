//! The pages for operators. Their commands are run as printed, and their tables are complete.

use std::{
    collections::{BTreeSet, HashMap},
    env, fs,
    path::Path,
    process::Command,
};

use http::Method;
use serde_json::json;
use shared::error::Code;
use tests::{
    harness::{
        ACCOUNT, ApiKey, Deployment, Form, Http, Options, Redis, Server, Settings, Stack, binary, cost_of,
        free_port, run_to_end, until,
    },
    upstream::Script,
};

use crate::operation::metrics::rows;

const RUN: &str = include_str!("../../../../docs/run.md");
const BACKUP: &str = include_str!("../../../../docs/backup.md");
const UPGRADE: &str = include_str!("../../../../docs/upgrade.md");
const COMMANDS: &str = include_str!("../../../../docs/commands.md");
const CALLERS: &str = include_str!("../../../../docs/callers.md");
const STORE: &str = include_str!("../../../../docs/store.md");
const OBSERVE: &str = include_str!("../../../../docs/observe.md");

/// All headings of these pages that have commands below them. For each of them, there is a test that runs the commands.
const WITH_COMMANDS: [&str; 8] = [
    "The services on one machine",
    "`faregate` over Redis",
    "SQLite",
    "SQLite, restored",
    "Redis",
    "Redis, restored",
    "From SQLite to Redis",
    "Rotating secrets",
];

/// Headings whose commands need a container engine. `tests/compose/checks.py` runs these commands.
const WITH_COMMANDS_OF_COMPOSE: [&str; 2] = ["With Compose", "Redis of Compose"];

/// Environment variables of the commands.
type Env = HashMap<&'static str, String>;

#[test]
fn every_command_of_the_pages_is_run() {
    let mut place = "";
    let mut fenced = false;
    let mut places = BTreeSet::new();
    for line in [RUN, BACKUP, UPGRADE, COMMANDS, CALLERS, STORE, OBSERVE].into_iter().flat_map(str::lines) {
        match line {
            "```sh" => {
                fenced = true;
                places.insert(place);
            }
            "```" => fenced = false,
            _ if !fenced => place = line.strip_prefix("## ").unwrap_or(place),
            _ => {}
        }
    }
    assert_eq!(places, WITH_COMMANDS.into_iter().chain(WITH_COMMANDS_OF_COMPOSE).collect());
    let run_elsewhere = include_str!("../../../compose/checks.py");
    for heading in WITH_COMMANDS_OF_COMPOSE {
        assert!(run_elsewhere.contains(&format!("\"{heading}\")")), "{heading}");
    }
}

#[test]
fn every_command_of_the_tables_is_there() {
    let data = tempfile::TempDir::new().unwrap();
    let mut asked = 0;
    for line in COMMANDS.lines().filter(|line| line.starts_with("| ")) {
        // The first command in a row of the table is complete. The commands after it may leave out its first word.
        let Some(command) = line.split('`').nth(1) else { continue };
        let words: Vec<_> = command
            .split(' ')
            .take_while(|word| word.starts_with(|c: char| c.is_ascii_lowercase()))
            .collect();
        // Of the separate services, only a gateway knows the upstreams.
        let apart = if words.first() == Some(&"upstreams") { "inference-gateway" } else { "key-service" };
        for program in ["faregate", apart] {
            let settings = Settings::of(program, data.path(), Vec::new());
            let help = settings.cli(&[&words[..], &["--help"]].concat());
            for flag in command.split([' ', '[', ']']).filter(|word| word.starts_with("--")) {
                assert!(help.contains(flag), "{program} {command}: {flag}");
            }
        }
        asked += 1;
    }
    assert!(asked > 15, "{asked}");
}

#[test]
fn every_refusal_says_what_to_tell_the_caller() {
    let there: BTreeSet<_> = Code::ALL.iter().map(|code| (code.as_str(), code.status().as_u16())).collect();
    let mut told = BTreeSet::new();
    for cells in rows(CALLERS) {
        let [codes, status, words] = cells[..] else { panic!("{cells:?}") };
        assert!(!words.is_empty(), "{codes}");
        told.extend(codes.split('`').skip(1).step_by(2).map(|code| (code, status.parse().unwrap())));
    }
    assert_eq!(told, there);
}

#[apply(fact)]
async fn a_restored_sqlite_file_knows_keys_and_what_they_had_used() {
    let stack = Stack::start().await;
    // The page says that everything that was spent after the backup is forgotten.
    stack.others_spend();
    let key = spending_key(&stack).await;
    let backup = stack.data().join("backup");
    let settings = stack.server().settings();
    let mut env: Env = settings.env.iter().cloned().collect();
    env.insert("FAREGATE_DATA_DIR", settings.data.join("data").display().to_string());
    env.insert("BACKUP", backup.display().to_string());
    run(BACKUP, "SQLite", &env, &stack.data()).await;
    spend_after_the_backup(&stack, &key).await;

    stack.server().kill();
    run(BACKUP, "SQLite, restored", &env, &stack.data()).await;
    stack.server().restart().await;
    assert_as_backed_up(&stack, &key).await;
}

#[apply(fact)]
async fn a_restored_redis_knows_keys_and_what_they_had_used() {
    let deployment = Deployment::Services { gateways: 1, key_services: 1, redis: Form::Alone };
    let stack = Stack::with(Options { deployment, ..Options::default() }).await;
    stack.others_spend();
    let key = spending_key(&stack).await;
    let settings = stack.key_services[0].settings();
    let mut env: Env = settings.env.iter().cloned().collect();
    env.insert("BACKUP", stack.data().join("backup").display().to_string());
    env.insert("REDIS", format!("-s {}", socket(stack.redis())));
    env.insert("REDIS_DIR", Path::new(&socket(stack.redis())).parent().unwrap().display().to_string());
    env.insert("FAREGATE_DATA_DIR", settings.data.join("data").display().to_string());
    run(BACKUP, "Redis", &env, &stack.data()).await;
    spend_after_the_backup(&stack, &key).await;

    let seen = settings.data.join("data/redis-seen");
    until("the file to be written", async || seen.exists()).await;
    stack.server().terminate();
    stack.key_services[0].kill();
    stack.redis().kill();
    see_later(&seen);
    let [restore, permit] = &blocks(BACKUP, "Redis, restored")[..] else { panic!("two blocks") };
    shell(restore, &env, &stack.data()).await;
    stack.redis().restart().await;
    let refused = Server::refuses(settings).await;
    assert!(refused.contains("came back with older data"), "{refused}");
    shell(permit, &env, &stack.data()).await;
    stack.key_services[0].restart().await;
    stack.server().restart().await;
    assert_as_backed_up(&stack, &key).await;
}

#[apply(fact)]
async fn a_file_moves_to_redis_as_the_page_says() {
    // This is created before the stack, because the stack needs it until the end.
    let folder = tempfile::TempDir::new().unwrap();
    let redis = Redis::start(Form::Alone, folder.path()).await;
    let mut stack = Stack::start().await;
    stack.others_spend();
    let key = spending_key(&stack).await;
    stack.server().kill();
    let settings = stack.server().settings().clone();
    let mut env: Env = settings.env.iter().cloned().collect();
    let data = settings.data.join("data");
    env.insert("FAREGATE_DATA_DIR", data.display().to_string());
    env.insert("REDIS_URL", redis.url());
    let printed = run(BACKUP, "From SQLite to Redis", &env, &stack.data()).await;
    assert_eq!(printed.matches("the books balance").count(), 3, "{printed}");
    let pepper = data.join("pepper").display().to_string();
    let env = vec![("FAREGATE_STORE", redis.url()), ("FAREGATE_PEPPER_FILE", pepper)];
    stack.gateways[0].restart_with(env, &[]).await;
    assert_as_backed_up(&stack, &key).await;
}

#[apply(fact)]
async fn a_pepper_is_rotated_while_keys_go_on_working() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    fs::write(file("pepper"), "5eed".repeat(16)).unwrap();
    let with = |peppers: &[(&'static str, &str)]| {
        let env = peppers.iter().map(|(variable, name)| (*variable, file(name))).collect();
        Settings::all_in_one(folder.path(), env)
    };
    let before = with(&[("FAREGATE_PEPPER_FILE", "pepper")]);
    let server = Server::start(&before).await;
    let printed = before.cli(&["management-keys", "create", "--account", ACCOUNT, "--name", "rotating"]);
    let management_key = printed.trim();
    let body = Some(json!({"label": "old"}));
    let url = format!("{}/v1/management/keys", server.public());
    let key = Http::new().send_as(management_key, Method::POST, &url, body).await.json();
    let old = key["key"].as_str().unwrap();
    server.kill();

    let [make, rotate] = &blocks(UPGRADE, "Rotating secrets")[..] else { panic!("two blocks") };
    shell(make, &Env::new(), folder.path()).await;
    let both = with(&[("FAREGATE_PEPPER_FILE", "pepper-new"), ("FAREGATE_PREVIOUS_PEPPER_FILE", "pepper")]);
    let server = Server::start(&both).await;
    let mut env: Env = both.env.iter().cloned().collect();
    env.insert("FAREGATE", server.public().to_owned());
    env.insert("MANAGEMENT_KEY", management_key.to_owned());
    env.insert("ACCOUNT", ACCOUNT.to_owned());
    env.insert("FAREGATE_STORE", format!("sqlite:{}", file("data/faregate.db")));
    shell(rotate, &env, folder.path()).await;
    let rotated = fs::read_to_string(file("rotated.tsv")).unwrap();
    let line = rotated.lines().find(|line| line.starts_with(key["id"].as_str().unwrap())).unwrap();
    let (_, new) = line.split_once('\t').unwrap();
    assert_eq!([models(&server, old).await, models(&server, new).await], [200, 200]);
    server.kill();

    let server = Server::start(&with(&[("FAREGATE_PEPPER_FILE", "pepper-new")])).await;
    assert_eq!([models(&server, old).await, models(&server, new).await], [401, 200]);
}

#[apply(fact)]
async fn both_forms_start_as_the_page_says() {
    let folder = tempfile::TempDir::new().unwrap();
    let free: Vec<_> = (0..10).map(|_| format!("127.0.0.1:{}", free_port())).collect();
    let redis_port = free_port();
    let started = |heading| {
        let commands = blocks(RUN, heading).concat().replace("\\\n", "");
        let lines = commands.lines().map(|line| {
            let line = at_free_addresses(line.split("  #").next().unwrap().trim_end(), redis_port, &free);
            // Each of these programs runs until the shell ends it.
            match line.strip_suffix(" &") {
                Some(program) => format!("{program} > /dev/null 2>&1 &\n"),
                None => line + "\n",
            }
        });
        lines.collect::<String>()
    };
    let is_ready = |address: &str| {
        let url = format!("http://{address}/readyz");
        format!("timeout 30 bash -c 'until curl -sfo /dev/null {url}; do sleep 0.1; done'\ncurl -sf {url}\n")
    };
    let script = [
        format!("trap 'kill $(jobs -p); redis-cli -p {redis_port} shutdown nosave' EXIT\n"),
        started("The services on one machine"),
        is_ready(&free[5]),
        "kill $(jobs -p)\nwait\n".to_owned(),
        started("`faregate` over Redis"),
        is_ready(&free[5]),
        is_ready(&free[9]),
    ];
    let said = shell(&script.concat(), &Env::new(), folder.path()).await;
    assert_eq!(said.matches("ready\n").count(), 3, "{said}");
}

/// Returns a command in which each address is replaced by an address that is free on this machine.
fn at_free_addresses(command: &str, redis_port: u16, free: &[String]) -> String {
    let variables = match command.split_whitespace().next().unwrap() {
        "key-service" => format!(
            "FAREGATE_KEY_GRPC_LISTEN={} FAREGATE_KEY_HTTP_LISTEN={} FAREGATE_ADMIN_LISTEN={} ",
            free[0], free[2], free[3]
        ),
        "local-model" => format!("FAREGATE_LOCAL_MODEL_LISTEN={} ", free[1]),
        "inference-gateway" => format!(
            "FAREGATE_LISTEN={} FAREGATE_ADMIN_LISTEN={} FAREGATE_KEY_SERVICE_HTTP_URL=http://{} ",
            free[4], free[5], free[2]
        ),
        // If the command starts a second process, it contains the flags of that process, which override these
        // variables.
        "faregate" => format!(
            "FAREGATE_KEY_GRPC_LISTEN={} FAREGATE_KEY_HTTP_LISTEN={} FAREGATE_LISTEN={} FAREGATE_ADMIN_LISTEN={} ",
            free[0], free[2], free[4], free[5]
        ),
        _ => String::new(),
    };
    let mut command = command
        .replace("redis://127.0.0.1:6379", &format!("redis://127.0.0.1:{redis_port}"))
        .replace("redis-server ", &format!("redis-server --port {redis_port} "));
    let places = [("50051", 0), ("8000", 1), ("8082", 6), ("8083", 7), ("50052", 8), ("9092", 9)];
    for (port, place) in places {
        command = command.replace(&format!("127.0.0.1:{port}"), &free[place]);
    }
    variables + &command
}

/// Creates a key, and spends the cost of one request with it.
async fn spending_key(stack: &Stack) -> ApiKey {
    let key = stack.key().await;
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
    assert_eq!(stack.used(&key).await, cost_of(12, 5));
    key
}

async fn spend_after_the_backup(stack: &Stack, key: &ApiKey) {
    assert_eq!(stack.call(key, Script::tokens(12, 50)).send().await.status, 200);
    assert!(stack.used(key).await > cost_of(12, 5));
}

/// Asserts that the key has spent what it had spent at the backup, and that it can spend more.
async fn assert_as_backed_up(stack: &Stack, key: &ApiKey) {
    assert_eq!(stack.used(key).await, cost_of(12, 5));
    assert_eq!(stack.call(key, Script::tokens(12, 5)).send().await.status, 200);
    assert_eq!(stack.used(key).await.nanos(), 2 * cost_of(12, 5).nanos());
}

/// Moves the time at which a key-service last saw the data of Redis, which it keeps in its data directory, by two
/// minutes into the future. Redis then seems to have lost two minutes of data, which is more than a crash can lose.
fn see_later(file: &Path) {
    let text = fs::read_to_string(file).unwrap();
    let (directory, millis) = text.trim_end().split_once(' ').unwrap();
    fs::write(file, format!("{directory} {}\n", millis.parse::<i64>().unwrap() + 120_000)).unwrap();
}

async fn models(server: &Server, key: &str) -> u16 {
    let url = format!("{}/v1/models", server.public());
    Http::new().send_as(key, Method::GET, &url, None).await.status
}

fn socket(redis: &Redis) -> String {
    redis.url().trim_start_matches("unix:").to_owned()
}

/// Returns the blocks of commands below a heading of a page.
fn blocks(page: &'static str, heading: &str) -> Vec<&'static str> {
    let found = page.split_once(&format!("\n## {heading}\n")).map(|(_, rest)| {
        let part = rest.split("\n## ").next().unwrap();
        part.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap()).collect::<Vec<_>>()
    });
    found.filter(|blocks| !blocks.is_empty()).unwrap_or_else(|| panic!("no commands in {heading}"))
}

/// Runs all commands below a heading of a page, and returns what they print.
async fn run(page: &'static str, heading: &str, env: &Env, folder: &Path) -> String {
    shell(&blocks(page, heading).concat(), env, folder).await
}

/// Runs commands in a folder, and returns what they print. The programs are in `PATH`.
async fn shell(commands: &str, env: &Env, folder: &Path) -> String {
    let programs = binary("faregate").parent().unwrap().display().to_string();
    let mut shell = Command::new("bash");
    shell.arg("-c").arg(format!("set -euo pipefail\n{commands}")).current_dir(folder).envs(env);
    shell.env("PATH", format!("{programs}:{}", env::var("PATH").unwrap()));
    let output = tokio::task::spawn_blocking(move || run_to_end(&mut shell)).await.unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{commands}\n{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    printed
}
