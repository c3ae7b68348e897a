//! What an operator sees in probes, metrics, alerts and the log, step by step.

use std::{
    collections::BTreeSet,
    fs,
    process::Command,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use chrono::{DateTime, Days};
use futures_util::future::join_all;
use http::Method;
use serde_json::json;
use shared::clock::{Clock as _, System};
use tests::{
    harness::{
        Answer, ApiKey, Deployment, Form, Http, LOOK_EVERY, Options, PATIENCE, Server, Stack, run_to_end,
    },
    upstream::Script,
};
use tokio::time::sleep;

use super::{faults::outages::heals, money::tokens::reload_all};
use crate::{
    house::documents::root,
    operation::{certificates::Signed, metrics::promtool_path, reload::RELOADED},
};

/// The alerts see the programs for this many minutes. That is longer than any alert waits.
const WATCHED_MINUTES: u32 = 90;

/// Number of bytes by which Redis's memory is filled at a time.
const BALLAST: u32 = 1_000_000;

/// Number of clients, each of which sends one request after the other during a rotation.
const CLIENTS: usize = 4;

#[apply(fact)]
async fn a_reboot_with_redis_last_is_told_and_ends_without_a_restart() {
    let stack = over(Form::Alone).await;
    let (gateway, key_service, key) = (stack.server(), &stack.key_services[0], stack.key().await);
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
    assert_fires(&stack, &[]).await;

    stack.kill_gateway(0);
    key_service.kill();
    stack.redis().kill();
    let [of_gateway, of_key_service] = [gateway, key_service].map(|server| server.log().len());
    key_service.launch_again();
    let pid = key_service.pid();
    let said = readiness(&stack, key_service, 503).await;
    assert!(said.text().contains("waiting for the store"), "{said}");
    gateway.restart().await;
    readiness(&stack, gateway, 503).await;
    for (server, name) in
        [(key_service, "keyservice_ready"), (key_service, "keyservice_store_up"), (gateway, "gateway_ready")]
    {
        shows(&stack, server, name, |value| value < 0.5).await;
    }
    assert_fires(&stack, &["GatewayWithoutKeyService", "KeyServiceSessionsMissing", "StoreUnreachable"])
        .await;
    stack.call(&key, Script::tokens(12, 5)).send().await.assert_error(503, "service_unavailable");
    assert_told_once(key_service, of_key_service, "waiting for the store");

    stack.redis().restart().await;
    readiness(&stack, key_service, 200).await;
    heals(&stack, &key).await;
    for (server, name) in
        [(key_service, "keyservice_ready"), (key_service, "keyservice_store_up"), (gateway, "gateway_ready")]
    {
        shows(&stack, server, name, |value| value > 0.5).await;
    }
    assert_fires(&stack, &[]).await;
    assert_told_once(key_service, of_key_service, "waiting for the store");
    let log = gateway.log();
    let told = |words: &str| log[of_gateway..].matches(words).count();
    assert_eq!([told("a key-service is unavailable"), told("a key-service is back")], [1, 1], "{log}");
    assert!(key_service.is_running() && key_service.pid() == pid, "it waited");
}

#[apply(fact)]
async fn a_redis_that_fills_is_told_before_its_end_at_it_and_when_it_is_enlarged() {
    let stack = over(Form::Alone).await;
    let (key_service, key) = (&stack.key_services[0], stack.key().await);
    assert!(stack.redis().ask(0, "CONFIG SET maxmemory 64mb").starts_with("+OK"));
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
    shows(&stack, key_service, RATIO, |ratio| ratio < 0.5).await;
    assert_fires(&stack, &[]).await;

    let mut ballast = fill(&stack, 0, 0.75).await;
    assert_fires(&stack, &["StoreFilling"]).await;
    readiness(&stack, key_service, 200).await;
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);

    ballast = fill(&stack, ballast, 0.93).await;
    assert_fires(&stack, &["StoreFilling", "StoreNearlyFull"]).await;
    readiness(&stack, key_service, 200).await;
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200, "chats go on");
    let refused = stack.manage(Method::POST, "", Some(json!({}))).await;
    assert_eq!(refused.json()["error"]["code"], "store_full", "{refused}");

    let mark = key_service.log().len();
    while add(&stack, ballast) {
        ballast += 1;
    }
    // The limit is lowered too, because the last pieces may have left space for small writes.
    assert!(stack.redis().ask(0, "CONFIG SET maxmemory 48mb").starts_with("+OK"));
    let said = readiness(&stack, key_service, 503).await;
    assert!(said.text().contains("the store refuses writes") && said.text().contains("OOM"), "{said}");
    shows(&stack, key_service, "keyservice_ready", |ready| ready < 0.5).await;
    shows(&stack, key_service, "keyservice_store_up", |up| up > 0.5).await;
    assert_fires(&stack, &["KeyServiceNotReady", "StoreFilling", "StoreNearlyFull"]).await;
    for _ in 0..3 {
        assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 503);
    }
    assert_each_told_once(key_service, mark, "ERROR not ready: the store refuses writes");

    assert!(stack.redis().ask(0, "CONFIG SET maxmemory 256mb").starts_with("+OK"));
    readiness(&stack, key_service, 200).await;
    heals(&stack, &key).await;
    shows(&stack, key_service, RATIO, |ratio| ratio < 0.5).await;
    assert_fires(&stack, &[]).await;
    let log = key_service.log();
    assert_eq!(log[mark..].matches("the store accepts writes again").count(), 1, "{log}");
    assert_eq!(stack.key().await.account.name, key.account.name, "keys are made again");
}

#[apply(fact)]
async fn the_internal_token_and_all_certificates_are_rotated_under_load_without_a_failed_request() {
    let (internal, public) = (Signed::new(), Signed::new());
    let (next_internal, next_public) = (Signed::new(), Signed::new());
    let today = DateTime::from_timestamp_millis(System.now().millis()).unwrap().date_naive();
    public.renew_until(today.checked_add_days(Days::new(8)).unwrap());
    for (file, token) in [("of-key-services", OLD), ("of-gateways", OLD), ("previous", "")] {
        internal.write(file, token);
    }
    let env = vec![
        ("FAREGATE_INTERNAL_TLS_CERT", internal.file("cert.pem")),
        ("FAREGATE_INTERNAL_TLS_KEY", internal.file("key.pem")),
        ("FAREGATE_INTERNAL_TLS_CA", internal.file("ca.pem")),
        ("FAREGATE_TLS_CERT", public.file("cert.pem")),
        ("FAREGATE_TLS_KEY", public.file("key.pem")),
    ];
    let deployment = Deployment::services(2, 2, Form::Alone);
    let mut stack = Stack::with(Options { deployment, env, ..Options::default() }).await;
    stack.http = Http::trusting(&(public.text("ca.pem") + &next_public.text("ca.pem")), false);
    let of_key_services = vec![
        ("FAREGATE_INTERNAL_TOKEN_FILE", internal.file("of-key-services")),
        ("FAREGATE_PREVIOUS_INTERNAL_TOKEN_FILE", internal.file("previous")),
    ];
    for key_service in &mut stack.key_services {
        key_service.restart_with(of_key_services.clone(), &["FAREGATE_INTERNAL_TOKEN"]).await;
    }
    for gateway in &mut stack.gateways {
        let env = vec![("FAREGATE_INTERNAL_TOKEN_FILE", internal.file("of-gateways"))];
        gateway.restart_with(env, &["FAREGATE_INTERNAL_TOKEN"]).await;
    }
    let key = stack.key().await;
    assert_fires(&stack, &["CertificateEndsSoon"]).await;

    let (stop, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let client = async || {
        while !stop.load(Ordering::Relaxed) {
            serves(&stack, &key).await;
            served.fetch_add(1, Ordering::Relaxed);
        }
    };
    let rotation = async {
        sleep(Duration::from_millis(300)).await;
        rotate_token(&stack, &internal).await;
        rotate_certificates(&stack, &internal, &next_internal).await;
        for file in ["cert.pem", "key.pem"] {
            public.write(file, &next_public.text(file));
        }
        reload_all(&stack, &stack.gateways).await;
        let reloads = [(&stack.key_services, 5), (&stack.gateways, 5)];
        for (server, times) in
            reloads.iter().flat_map(|(servers, times)| servers.iter().map(|it| (it, *times)))
        {
            assert_eq!(server.log().matches(RELOADED).count(), times, "{}", server.last_words());
            shows(&stack, server, "faregate_reloads_total{result=\"refused\"}", |refused| refused < 0.5)
                .await;
        }
        // New sessions use the new token, over connections with the new certificates.
        for key_service in &stack.key_services {
            key_service.restart().await;
            sleep(Duration::from_millis(500)).await;
        }
        stop.store(true, Ordering::Relaxed);
    };
    tokio::join!(join_all((0..CLIENTS).map(|_| client())), rotation);
    assert!(served.into_inner() > CLIENTS, "requests were served meanwhile");
    assert_fires(&stack, &[]).await;
    stack.http = Http::trusting(&next_public.text("ca.pem"), false);
    serves(&stack, &key).await;
}

const OLD: &str = "between-the-services";
const NEW: &str = "a-newer-one-between-them";

/// Replaces the internal token in the three steps that `docs/upgrade.md` describes.
async fn rotate_token(stack: &Stack, files: &Signed) {
    files.write("previous", OLD);
    files.write("of-key-services", NEW);
    reload_all(stack, &stack.key_services).await;
    files.write("of-gateways", NEW);
    reload_all(stack, &stack.gateways).await;
    files.write("previous", "");
    reload_all(stack, &stack.key_services).await;
}

/// Replaces the services' certificate and its authority. Meanwhile, both authorities are trusted.
async fn rotate_certificates(stack: &Stack, files: &Signed, next: &Signed) {
    files.write("ca.pem", &(files.text("ca.pem") + &next.text("ca.pem")));
    reload_everywhere(stack).await;
    for file in ["cert.pem", "key.pem"] {
        files.write(file, &next.text(file));
    }
    reload_everywhere(stack).await;
    files.write("ca.pem", &next.text("ca.pem"));
    reload_everywhere(stack).await;
}

async fn reload_everywhere(stack: &Stack) {
    reload_all(stack, &stack.key_services).await;
    reload_all(stack, &stack.gateways).await;
}

/// Asserts that three requests are answered: a chat, a management request, and a request for the models over a new
/// connection.
async fn serves(stack: &Stack, key: &ApiKey) {
    let answer = stack.call(key, Script::tokens(12, 5)).send().await;
    assert_eq!(answer.status, 200, "{answer}");
    // This request is forwarded over HTTP. A header contains the token.
    stack.show(key).await;
    let anew = stack.http.fresh();
    let listed = anew.send_as(&key.secret, Method::GET, &stack.url("/v1/models"), None).await;
    assert_eq!(listed.status, 200, "{listed}");
}

const RATIO: &str = "keyservice_store_used_ratio";

async fn over(redis: Form) -> Stack {
    let deployment = Deployment::Services { gateways: 1, key_services: 1, redis };
    Stack::with(Options { deployment, ..Options::default() }).await
}

/// Fills Redis until this share of its memory is used, and until the key-service reports that. Returns how many pieces
/// Redis then contains.
async fn fill(stack: &Stack, pieces: u32, to: f64) -> u32 {
    let mut pieces = pieces;
    let field = |info: &str, name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap().trim().parse::<f64>().unwrap()
    };
    loop {
        let info = stack.redis().ask(0, "INFO memory");
        if field(&info, "used_memory") >= to * field(&info, "maxmemory") {
            break;
        }
        assert!(add(stack, pieces), "there is room");
        pieces += 1;
    }
    shows(stack, &stack.key_services[0], RATIO, |ratio| (to - 0.02..to + 0.05).contains(&ratio)).await;
    pieces
}

/// Adds the piece that has this number to Redis. Returns false if Redis has no space for it.
fn add(stack: &Stack, piece: u32) -> bool {
    let said = stack.redis().ask(0, &format!("SETRANGE ballast-{piece} {BALLAST} x"));
    assert!(said.starts_with([':', '-']), "{said}");
    said.starts_with(':')
}

/// Asks a process whether it is ready, until the answer has this status.
pub(crate) async fn readiness(stack: &Stack, server: &Server, status: u16) -> Answer {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = stack.http.try_get(&format!("{}/readyz", server.admin())).await;
        if let Some(answer) = &answer
            && answer.status == status
        {
            return answer.clone();
        }
        assert!(Instant::now() < deadline, "{answer:?}\n{}", server.last_words());
        sleep(LOOK_EVERY).await;
    }
}

/// Waits until a process shows a value of this series that `is_right` accepts.
pub(crate) async fn shows(stack: &Stack, server: &Server, series: &str, is_right: impl Fn(f64) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let metrics = stack.http.get(&format!("{}/metrics", server.admin())).await;
        let line = metrics.text().lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        let value: Option<f64> = line.map(|value| value.parse().unwrap());
        if value.is_some_and(&is_right) {
            return;
        }
        assert!(Instant::now() < deadline, "{series} is {value:?}\n{}", server.last_words());
        sleep(LOOK_EVERY).await;
    }
}

/// Asserts that, after this position in its log, a process has written exactly one warning or error, which contains
/// these words.
pub(crate) fn assert_told_once(server: &Server, since: usize, words: &str) {
    let log = server.log();
    let lines = log[since..].lines().filter(|line| line.contains("WARN") || line.contains("ERROR"));
    let lines: Vec<_> = lines.collect();
    assert!(lines.len() == 1 && lines[0].contains(words), "{words}: {lines:#?}");
}

/// Asserts that, after this position in the log, exactly one line contains these words, and that no warning or error is
/// there twice.
pub(crate) fn assert_each_told_once(server: &Server, since: usize, words: &str) {
    let log = server.log();
    let lines = log[since..].lines().filter(|line| line.contains("WARN") || line.contains("ERROR"));
    // This takes the text of each line up to the first field, without the time. It adds the reason, because calls may
    // fail for several reasons.
    let said: Vec<String> = lines
        .map(|line| {
            let text = line.split(' ').skip(1).take_while(|word| !word.contains('='));
            let reason = line.split(' ').find(|word| word.starts_with("reason="));
            text.chain(reason).collect::<Vec<_>>().join(" ")
        })
        .collect();
    assert_eq!(said.iter().filter(|line| line.contains(words)).count(), 1, "{said:#?}");
    let once: BTreeSet<_> = said.iter().collect();
    assert_eq!(once.len(), said.len(), "{said:#?}");
}

/// Asserts that exactly these alerts would fire if the programs always reported what they report now. It may take a
/// moment until gauges have the right values.
pub(crate) async fn assert_fires(stack: &Stack, alerts: &[&str]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (fires, said) = fires(stack, alerts).await;
        if fires {
            return;
        }
        assert!(Instant::now() < deadline, "{alerts:?}: {said}");
        sleep(Duration::from_millis(300)).await;
    }
}

/// Returns whether exactly these alerts fire in Prometheus if the programs always report what they report now. Also
/// returns the output of Prometheus.
async fn fires(stack: &Stack, alerts: &[&str]) -> (bool, String) {
    let mut series = Vec::new();
    for server in stack.gateways.iter().chain(&stack.key_services) {
        let at = format!("job=\"faregate\",instance=\"{}\"", server.admin());
        let metrics = stack.http.try_get(&format!("{}/metrics", server.admin())).await;
        let is_up = u8::from(metrics.is_some());
        series.push(json!({"series": format!("up{{{at}}}"), "values": format!("{is_up}x{WATCHED_MINUTES}")}));
        let Some(metrics) = metrics else { continue };
        series.extend(metrics.text().lines().filter_map(|line| constant(line, &at)));
    }
    let expected: Vec<_> = alerts
        .iter()
        .map(|name| json!({"labels": format!("{{alertname=\"{name}\"}}"), "value": 1}))
        .collect();
    let case = json!({
        "rule_files": [root().join("deploy/prometheus/alerts.yml")],
        "evaluation_interval": "1m",
        "tests": [{
            "interval": "1m",
            "input_series": series,
            "promql_expr_test": [{
                "expr": "group by (alertname) (ALERTS{alertstate=\"firing\"})",
                "eval_time": format!("{WATCHED_MINUTES}m"),
                "exp_samples": expected,
            }],
        }],
    });
    // The document is JSON, which is also valid YAML.
    let file = stack.data().join("told.test.yml");
    fs::write(&file, case.to_string()).unwrap();
    let mut promtool = Command::new(promtool_path());
    promtool.args(["test", "rules"]).arg(&file);
    let output = tokio::task::spawn_blocking(move || run_to_end(&mut promtool)).await.unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.success(), said.concat())
}

/// Returns a series that always has the value in this line, with additional labels. Times are converted to the clock of
/// Prometheus's test, which begins at zero.
fn constant(line: &str, labels: &str) -> Option<serde_json::Value> {
    let (series, value) = line.rsplit_once(' ').filter(|_| !line.starts_with('#'))?;
    let mut value: f64 = value.parse().ok().filter(|value: &f64| value.is_finite())?;
    if series.contains("_timestamp_seconds") && value > 0.0 {
        let now = i32::try_from(System.now().millis() / 1_000).unwrap();
        value += f64::from(60 * WATCHED_MINUTES) - f64::from(now);
    }
    let series = match series.split_once('{') {
        Some((name, own)) => format!("{name}{{{labels},{own}"),
        None => format!("{series}{{{labels}}}"),
    };
    Some(json!({"series": series, "values": format!("{value}x{WATCHED_MINUTES}")}))
}
