//! A web page whose host name resolves to the programs' ports (DNS rebinding), open in a browser on the operator's
//! machine; and changes that stall.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{row::Row, silent::address};
use tests::{
    harness::{Http, Server, Stack, raw},
    upstream::Script,
};

/// Host of the page.
const FOREIGN: &str = "evil.example:9090";
/// Number of changes that stall at once, and the time within which each must be answered.
const STALLED: usize = 16;
const ANSWERED: Duration = Duration::from_secs(10);
/// How long a probe may take meanwhile.
const PROBED: Duration = Duration::from_secs(1);

/// Sends a page's requests to the admin ports of these servers, and to the public port's pages.
pub async fn rows(stack: &Stack) -> Vec<Row> {
    let mut rows = Vec::new();
    let upstream = stack.http.get(&format!("{}/upstreams", stack.server().admin())).await.json()[0].take();
    let upstream = upstream["address"].as_str().expect("the upstream has an address").to_owned();
    for (named, page) in [(FOREIGN, "of a foreign host"), ("localhost:9090", "with an origin")] {
        let lines = format!("host: {named}\r\norigin: http://{FOREIGN}\r\n");
        for path in ["/upstreams/drain", "/log-level"] {
            rows.push(refused(stack.server().admin(), ("PUT", path), &lines, &upstream, page).await);
        }
    }
    let foreign = format!("host: {FOREIGN}\r\n");
    for path in ["/metrics", "/upstreams", "/readyz"] {
        rows.push(refused(stack.server().admin(), ("GET", path), &foreign, "", "of a foreign host").await);
    }
    let unnamed = "host: localhost:9090\r\n";
    rows.push(
        refused(stack.server().admin(), ("PUT", "/upstreams/drain"), unnamed, &upstream, "without the token")
            .await,
    );
    for path in ["/dashboard", "/dashboard/sign-in", "/operator", "/operator/sign-in"] {
        rows.push(
            refused(stack.server().public(), ("GET", path), &foreign, "", "of a foreign host, public").await,
        );
    }
    rows.push(still_serving(stack).await);
    rows.push(stalled_changes(stack.server()).await);
    rows
}

/// Sends a request that must be refused.
async fn refused(base: &str, (method, path): (&str, &str), lines: &str, body: &str, of: &str) -> Row {
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\n{lines}connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    let answer = raw(base, &request).await;
    let status = answer.split(' ').nth(1).unwrap_or("no answer").to_owned();
    Row {
        name: format!("{method} {path} {of}"),
        expected: "401, 403 or 421".into(),
        held: ["401", "403", "421"].contains(&&*status),
        seen: status,
    }
}

/// Checks that the page changed nothing.
async fn still_serving(stack: &Stack) -> Row {
    let key = stack.key_with(json!({"limit": 1})).await;
    let status = stack.call(&key, Script::tokens(12, 5)).send().await.status;
    Row {
        name: "a request after all changes of the page".into(),
        expected: "200: no upstream is drained".into(),
        seen: status.to_string(),
        held: status == 200,
    }
}

/// Sends authorized changes whose bodies stall, next to a probe.
async fn stalled_changes(server: &Server) -> Row {
    let file = server.settings().data.join("data").join("admin-token");
    let token = std::fs::read_to_string(file).unwrap_or_default();
    let head = format!(
        "PUT /log-level HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\ncontent-length: 100\r\n\r\nde",
        token.trim()
    );
    let address = address(server.admin());
    let stalled = join_all((0..STALLED).map(|_| async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let ended = timeout(ANSWERED, stream.read_to_end(&mut answer)).await.is_ok();
        ended && answer.starts_with(b"HTTP/1.1 408 ")
    }));
    let probed = async {
        let began = Instant::now();
        let status = Http::new().get(&format!("{}/livez", server.admin())).await.status;
        (status, began.elapsed())
    };
    let (ended, (status, took)) = tokio::join!(stalled, probed);
    let ended = ended.into_iter().filter(|ended| *ended).count();
    Row {
        name: format!("{STALLED} changes that stall at the admin port, and a probe"),
        expected: format!("408 in {ANSWERED:?}; 200 in {PROBED:?}"),
        seen: format!("{ended} ended; {status} in {took:.0?}"),
        held: ended == STALLED && status == 200 && took <= PROBED,
    }
}
