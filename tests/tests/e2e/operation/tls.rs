use std::fs;

use chrono::NaiveDate;
use http::Method;
use tempfile::TempDir;
use tests::{
    harness::{Http, Options, PATIENCE, Server, Settings, Stack, cost_of, raw},
    upstream::Script,
};
use tokio::{io::AsyncReadExt, net::TcpStream, time::timeout};

use crate::operation::{
    certificates::Signed,
    reload::{NOT_RELOADED, RELOADED, logged},
};

const CERT: &str = "FAREGATE_TLS_CERT";
const KEY: &str = "FAREGATE_TLS_KEY";

/// Returns options of a stack whose public port uses this certificate.
pub(crate) fn options(signed: &Signed) -> Options {
    let env = vec![(CERT, signed.file("cert.pem")), (KEY, signed.file("key.pem"))];
    Options { env, ..Options::default() }
}

async fn over_tls(signed: &Signed, more: &[(&'static str, &str)]) -> Stack {
    let mut options = options(signed);
    options.env.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
    let mut stack = Stack::with(options).await;
    stack.http = Http::trusting(&signed.text("ca.pem"), false);
    stack
}

#[apply(fact)]
async fn a_public_port_with_a_certificate_speaks_tls_over_both_versions_of_http_and_nothing_else() {
    let signed = Signed::new();
    let mut stack = over_tls(&signed, &[]).await;
    let key = stack.key().await;
    assert!(stack.server().public().starts_with("https://"));
    for http2 in [false, true] {
        stack.http = Http::trusting(&signed.text("ca.pem"), http2);
        let answer = stack.call(&key, Script::tokens(12, 5)).send().await;
        assert_eq!((answer.status, answer.cost()), (200, cost_of(12, 5)), "{answer}");
        stack.call(&key, Script::tokens(12, 50)).stream().await.rest().await.assert_done();
    }
    let plain = stack.server().public().replace("https://", "http://");
    let answer = raw(&plain, "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(!answer.contains("HTTP/1.1"), "{answer:?}");
    // Links use https, and pages tell browsers to keep using it.
    let link = stack.cli(&["sign-in-link", "--account", "default"]);
    assert!(link.contains("https://"), "{link}");
    let page = stack.http.get(&stack.url("/dashboard/sign-in")).await;
    assert!(page.header("strict-transport-security").contains("max-age"), "{page}");
}

#[apply(fact)]
async fn connections_that_never_agree_on_tls_are_closed_in_time_and_yield_to_others() {
    let signed = Signed::new();
    let bounds = [("FAREGATE_HEAD_SECONDS", "2"), ("FAREGATE_MAX_CONNECTIONS", "64")];
    let stack = over_tls(&signed, &bounds).await;
    let address = stack.server().public().trim_start_matches("https://").to_owned();
    let mut silent = Vec::new();
    // Opens more connections than the port has for unauthenticated callers.
    for _ in 0..100 {
        silent.push(TcpStream::connect(&address).await.unwrap());
    }
    assert_eq!(stack.http.get(&stack.url("/health")).await.status, 200, "others are served meanwhile");
    for mut stream in silent {
        let mut received = Vec::new();
        // If a connection is closed to make room for another, it may be reset.
        let closed = timeout(PATIENCE, stream.read_to_end(&mut received)).await;
        assert!(closed.is_ok() && received.is_empty(), "{closed:?}");
    }
}

#[apply(fact)]
async fn files_that_do_not_fit_are_refused_at_start_with_setting_and_file() {
    let (ours, other) = (Signed::new(), Signed::new());
    for (env, error) in [
        (vec![(CERT, ours.file("cert.pem"))], format!("error: {KEY}: is not set")),
        (vec![(KEY, ours.file("key.pem"))], format!("error: {CERT}: is not set")),
        (
            vec![(CERT, ours.file("cert.pem")), (KEY, other.file("key.pem"))],
            format!("error: {KEY}: {}: does not match the certificate of", other.file("key.pem")),
        ),
        (
            vec![(CERT, ours.file("none.pem")), (KEY, ours.file("key.pem"))],
            format!("error: {CERT}: {}", ours.file("none.pem")),
        ),
    ] {
        let folder = TempDir::new().unwrap();
        let log = Server::refuses(&Settings::all_in_one(folder.path(), env)).await;
        assert!(log.contains(&error), "{log}");
    }
}

#[apply(fact)]
async fn a_certificate_is_reloaded_with_the_catalogue_whole_or_not_at_all() {
    let signed = Signed::new();
    let mut stack = over_tls(&signed, &[]).await;
    let key = stack.key().await;
    let mut running = stack.call(&key, Script::tokens(12, 100).pace(20)).stream().await;
    running.read_tokens(5).await;
    let before = signed.text("ca.pem");

    // The catalogue is valid by itself, but the key does not fit the certificate.
    let file = stack.data().join("models.toml");
    let first = fs::read_to_string(&file).unwrap();
    fs::write(&file, first.replace("output = \"0.40\"", "output = \"0.80\"")).unwrap();
    let fitting = signed.text("key.pem");
    signed.write("key.pem", &Signed::new().text("key.pem"));
    stack.server().reload();
    logged(stack.server(), NOT_RELOADED, 1).await;
    let reason = format!("{KEY}: {}: does not match the certificate of", signed.file("key.pem"));
    assert!(stack.server().log().contains(&reason), "{}", stack.server().last_words());
    stack.http = Http::trusting(&before, false);
    let answer = stack.call(&key, Script::tokens(12, 5)).send().await;
    assert_eq!(answer.cost(), cost_of(12, 5), "the certificate and the price are those before");

    signed.write("key.pem", &fitting);
    fs::write(&file, first).unwrap();
    signed.renew();
    stack.server().reload();
    logged(stack.server(), RELOADED, 1).await;
    let outdated = Http::trusting(&before, false);
    let request = http::Request::get(stack.url("/health")).body(http_body_util::Full::default()).unwrap();
    assert!(outdated.open(request).await.is_err(), "the old authority is trusted by nobody");
    stack.http = Http::trusting(&signed.text("ca.pem"), false);
    let url = stack.url("/v1/management/keys");
    let listed = stack.http.send_as(&stack.account.management_key, Method::GET, &url, None).await;
    assert_eq!(listed.status, 200, "{listed}");
    assert_eq!(running.rest().await.assert_done().cost(), cost_of(12, 100), "what runs goes on");
}

#[apply(fact)]
async fn the_end_of_a_certificate_is_a_metric_and_one_that_has_ended_is_warned_of_at_its_reload() {
    let day = |year, of_january| NaiveDate::from_ymd_opt(year, 1, of_january).unwrap();
    let signed = Signed::new();
    signed.renew_until(day(2099, 1));
    let stack = over_tls(&signed, &[]).await;
    let ends = async || {
        let metrics = Http::new().get(&format!("{}/metrics", stack.server().admin())).await;
        let name = "faregate_certificate_not_after_timestamp_seconds{setting=\"FAREGATE_TLS_CERT\"}";
        let line = metrics.text().lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        line.parse::<f64>().unwrap()
    };
    assert!((ends().await - 4_070_908_800.0).abs() < 0.5, "{}", ends().await);
    assert!(!stack.server().log().contains("the certificate expired"), "{}", stack.server().last_words());

    signed.renew_until(day(2020, 31));
    stack.server().reload();
    logged(stack.server(), RELOADED, 1).await;
    assert!((ends().await - 1_580_428_800.0).abs() < 0.5, "{}", ends().await);
    let log = stack.server().log();
    assert!(log.contains("WARN") && log.contains("the certificate expired"), "{log}");
    signed.renew_until(day(2099, 1));
    stack.server().reload();
    logged(stack.server(), RELOADED, 2).await;
    // When the stack is dropped, the harness compares the books. It reads them over the connection that is set here.
    let mut stack = stack;
    stack.http = Http::trusting(&signed.text("ca.pem"), false);
}
