//! Moving a store's content from a file to Redis and back, completely or not at all.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::{
    harness::{Deployment, Form, Options, Redis, Settings, Stack, cost_of},
    upstream::Script,
};

/// A lease that tests can wait for.
const LEASE: Duration = Duration::from_secs(3);

fn copy(settings: &Settings, from: &str, to: &str) -> Result<String, String> {
    let (status, said, error) = settings.try_cli(&["store", "copy", "--from", from, "--to", to]);
    if status.success() { Ok(said) } else { Err(error) }
}

/// Returns the lines that `store show` prints.
fn show(settings: &Settings, of: &[&str]) -> Vec<Value> {
    let said = settings.cli(&[&["store", "show"], of].concat());
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns everything that the installation reports about its account. No copy may change it.
async fn told(stack: &Stack) -> Vec<String> {
    let name = stack.account.name.as_str();
    let mut told: Vec<_> = [
        &["accounts", "list", "--json"][..],
        &["members", "list", "--account", name],
        &["webhooks", "list", "--account", name],
        &["management-keys", "list", "--account", name],
        &["groups", "list", "--account", name],
        &["events", "export", "--account", name],
        &["journal", "export", "--account", name],
        &["usage", "--account", name, "--json"],
    ]
    .map(|command| stack.cli(command))
    .into();
    told.push(stack.manage(Method::GET, "", None).await.text().to_owned());
    told
}

#[apply(fact)]
async fn an_installation_moves_to_redis_and_back_with_all_that_it_has() {
    // Created before the stack, which needs it until the end.
    let folder = TempDir::new().unwrap();
    let redis = Redis::start(Form::Alone, folder.path()).await;
    let mut stack = Stack::with(Options { lease: LEASE, ..Options::default() }).await;
    let name = stack.account.name.clone();
    stack.cli(&["groups", "create", "--account", &name, "--name", "team", "--external-id", "t-1"]);
    stack.cli(&["members", "invite", "--account", &name, "--name", "erna", "--role", "viewer"]);
    stack.cli(&[
        "webhooks",
        "create",
        "--account",
        &name,
        "--url",
        "https://hooks.example/f",
        "--type",
        "key.created",
    ]);
    let (key, other) = (stack.key().await, stack.key_limited(cost_of(1_000, 10)).await);
    for _ in 0..3 {
        assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
        assert_eq!(stack.call(&other, Script::tokens(3, 4)).send().await.status, 200);
    }
    let mut open = stack.call(&key, Script::tokens(12, 1_000).pace(50)).stream().await;
    open.read_tokens(3).await;
    stack.kill_gateway(0);
    drop(open);
    let settings = stack.operator().clone();
    let file = format!("sqlite:{}", settings.data.join("data/faregate.db").display());

    let said = copy(&settings, &file, &redis.url()).unwrap();
    assert_eq!(said.matches("the books balance").count(), 2, "{said}");
    assert!(said.contains("keep the pepper") && !said.contains("redis-seen"), "{said}");
    let again = copy(&settings, &file, &redis.url()).unwrap();
    assert_eq!(again.lines().next(), said.lines().next(), "what is there already is the copy");
    let pepper = settings.data.join("data/pepper").display().to_string();
    assert!(said.contains(&format!("FAREGATE_PEPPER_FILE={pepper}")), "{said}");
    let env = vec![("FAREGATE_STORE", redis.url()), ("FAREGATE_PEPPER_FILE", pepper)];
    stack.gateways[0].restart_with(env, &[]).await;
    stack.released(2 * LEASE + Duration::from_secs(5)).await;
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
    assert_eq!(stack.used(&other).await.nanos(), 3 * cost_of(3, 4).nanos());
    let before = told(&stack).await;

    stack.kill_gateway(0);
    let back = format!("sqlite:{}", settings.data.join("data/back.db").display());
    copy(&settings, &redis.url(), &back).unwrap();
    stack.gateways[0].restart_with(vec![("FAREGATE_STORE", back)], &["FAREGATE_STORE"]).await;
    assert_eq!(told(&stack).await, before);
    assert_eq!(stack.call(&other, Script::tokens(3, 4)).send().await.status, 200);
    assert_eq!(stack.used(&other).await.nanos(), 4 * cost_of(3, 4).nanos());
}

#[apply(fact)]
async fn a_store_that_is_served_or_full_is_neither_copied_nor_written() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
    let settings = stack.operator().clone();
    let sqlite = |name: &str| format!("sqlite:{}", settings.data.join("data").join(name).display());
    let (served, absent) = (sqlite("faregate.db"), sqlite("absent.db"));
    let refused = |from: &str, to: &str, reason: &str| {
        let error = copy(&settings, from, to).unwrap_err();
        assert!(error.contains(reason), "{from} {to}: {error}");
    };
    refused(&served, &sqlite("new.db"), "is in use: stop the program");
    refused(&absent, &sqlite("new.db"), "there is no file");
    refused(&served, &served, "is the same store as --from");
    refused("memory:", &served, "cannot be copied");
    assert!(!settings.data.join("data/new.db").exists() && !settings.data.join("data/absent.db").exists());

    let deployment = Deployment::Services { gateways: 1, key_services: 1, redis: Form::Alone };
    let other = Stack::with(Options { deployment, ..Options::default() }).await;
    let redis = other.redis().url();
    refused(&redis, &sqlite("new.db"), "this Redis is in use");
    stack.kill_gateway(0);
    refused(&served, &redis, "this Redis is in use");
    // A suspended process may continue at any time.
    other.key_services[0].hang();
    refused(&redis, &sqlite("new.db"), "this Redis is in use");
    other.key_services[0].resume();
    other.key_services[0].kill();
    let before = other.redis().ask(0, "DBSIZE");
    refused(&served, &redis, "the target is not empty");
    assert_eq!(other.redis().ask(0, "DBSIZE"), before);
    other.key_services[0].restart().await;
    stack.server().restart().await;
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
}

#[apply(fact)]
async fn a_data_directory_that_remembers_another_redis_is_told_what_to_do() {
    // Created before the stack, which needs it until the end.
    let folder = TempDir::new().unwrap();
    let redis = Redis::start(Form::Alone, folder.path()).await;
    let deployment = Deployment::Services { gateways: 1, key_services: 1, redis: Form::Alone };
    let mut stack = Stack::with(Options { deployment, ..Options::default() }).await;
    let key = stack.key().await;
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
    stack.key_services[0].kill();
    let settings = stack.operator().clone();
    let said = copy(&settings, &stack.redis().url(), &redis.url()).unwrap();
    let seen = settings.data.join("data/redis-seen");
    assert!(said.contains(&format!("{} remembers another Redis", seen.display())), "{said}");

    let moved = Settings {
        env: settings
            .env
            .iter()
            .filter(|(name, _)| *name != "FAREGATE_STORE")
            .cloned()
            .chain([("FAREGATE_STORE", redis.url())])
            .collect(),
        ..settings
    };
    let error = tests::harness::Server::refuses(&moved).await;
    assert!(error.contains("no mark of this data directory"), "{error}");
    std::fs::remove_file(&seen).unwrap();
    stack.key_services[0].restart_with(vec![("FAREGATE_STORE", redis.url())], &["FAREGATE_STORE"]).await;
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
    assert_eq!(stack.used(&key).await.nanos(), 2 * cost_of(12, 5).nanos());
}

#[apply(fact)]
async fn records_are_shown_without_secrets() {
    let stack = Stack::start().await;
    let name = stack.account.name.clone();
    stack.others_spend();
    let link = stack.cli(&["members", "invite", "--account", &name, "--name", "erna"]);
    let hook = stack.cli(&["webhooks", "create", "--account", &name, "--url", "https://hooks.example/f"]);
    let key = stack.key_with(json!({"label": "café", "metadata": {"team": "x"}})).await;
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
    let rotated = stack.cli(&["keys", "rotate", "--account", &name, "--id", &key.id]);
    let settings = stack.operator();
    let of_account = show(settings, &["--account", &name]);
    let of = |records: &[Value], set: &str, name: &str| {
        let found = records.iter().find(|record| record["set"] == set && record["name"] == name);
        found.unwrap_or_else(|| panic!("{set} {name} in {records:?}"))["record"].clone()
    };
    assert!(of(&of_account, "money", "a")["money"]["credit"].as_f64().unwrap() > 0.0);
    assert_eq!(of(&of_account, "profiles", "a")["name"], name);
    let id_of = |text: &str, prefix: &str| {
        let at = text.find(prefix).unwrap();
        text[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect::<String>()
    };
    let webhook = id_of(&stack.cli(&["webhooks", "list", "--account", &name]), "wh_");
    let members = stack.cli(&["members", "list", "--account", &name]);
    let member = id_of(members.lines().find(|line| line.contains("erna")).unwrap(), "mem_");
    let mut all = of_account;
    for id in [&key.id, &webhook, &member] {
        let shown = show(settings, &["--account", &name, "--id", id]);
        assert!(!shown.is_empty(), "{id}");
        assert!(shown.iter().all(|record| record["record"]["damaged"].is_null()), "{shown:?}");
        all.extend(shown);
    }
    let bare = |id: &str| id.split_once('_').unwrap().1.to_owned();
    assert_eq!(of(&all, "profiles", &format!("k{}", bare(&key.id)))["rotated"][0]["digest"], "hidden");
    assert_eq!(of(&all, "webhooks", &format!("w{}", bare(&webhook)))["secret"], "hidden");
    assert_eq!(of(&all, "expiring", &format!("m{}", bare(&member)))["digest"], "hidden");
    assert_eq!(of(&all, "members", "nerna")["member"], member);
    let entry = &stack.journal(&stack.account)[0];
    let generation = show(settings, &["--account", &name, "--id", entry["generation_id"].as_str().unwrap()]);
    assert_eq!(generation[0]["record"]["closed"]["charged"], entry["cost"]);
    assert_eq!(generation[0]["record"]["closed"]["payer"]["key"], key.id);
    let text = serde_json::to_string(&all).unwrap();
    let hook: Value = serde_json::from_str(&hook).unwrap();
    let hook = hook["secret"].as_str().unwrap();
    for secret in [&key.secret, rotated.trim(), link.trim(), hook] {
        let secret = secret.trim_end_matches('=').rsplit([' ', '\n', '=', '#']).next().unwrap();
        assert!(secret.len() > 20 && !text.contains(secret), "{secret}");
    }
    for (arguments, reason) in [
        (["--account", "nobody", "--id", key.id.as_str()], "there is no account nobody"),
        (["--account", name.as_str(), "--id", "ak_00000000000000000000000000000001"], "nothing with this id"),
        (["--account", name.as_str(), "--id", "x"], "must be the id of a key"),
    ] {
        let (status, _, error) = settings.try_cli(&[&["store", "show"], &arguments[..]].concat());
        assert!(!status.success() && error.contains(reason), "{error}");
    }
}
