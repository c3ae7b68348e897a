//! Pages of the dashboard that an unauthenticated client leaves unread, beside people who want to sign in.

use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::time::timeout;

use super::{
    Row, plain,
    silent::address,
    unauthenticated::{client_address, connect_from},
    unread::{UnreadStreams, leave_answers_of},
};
use tests::harness::Stack;

/// The page that anyone may ask for.
const PAGE: &str = "/dashboard/sign-in";
/// Connections of the client, and pages left unread on each: more than there are turns.
const LEFT: (usize, usize) = (10, 64);
/// Looks of others at the page.
const LOOKS: usize = 20;
/// Time that others may wait for it.
const DELAY: Duration = Duration::from_millis(500);
/// Memory that the pages may take: the bound on requests of unauthenticated clients allows for fewer than are asked for.
const MEMORY: u64 = 32 << 20;

/// Pages that one unauthenticated client leaves unread.
pub async fn leave_pages(stack: &Stack) -> Vec<UnreadStreams> {
    leave_answers_of(PAGE, address(stack.server().public()), LEFT.0, LEFT.1).await
}

/// The longest of some looks at the page, from the client's own network or from another one; `None` where one was refused.
pub async fn slowest_look(stack: &Stack, from: u8) -> Option<Duration> {
    let mut slowest = Duration::ZERO;
    for _ in 0..LOOKS {
        let began = Instant::now();
        let status = timeout(Duration::from_secs(10), look(stack, from)).await.ok()?;
        if status != StatusCode::OK {
            return None;
        }
        slowest = slowest.max(began.elapsed());
    }
    Some(slowest)
}

async fn look(stack: &Stack, from: u8) -> StatusCode {
    let stream = connect_from(client_address(from), address(stack.server().public())).await.unwrap();
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let carrying = tokio::spawn(connection);
    let status = sender.send_request(plain(Method::GET, &format!("http://x{PAGE}"))).await.unwrap().status();
    carrying.abort();
    status
}

/// Pages that an unauthenticated client leaves unread, beside others.
pub(super) async fn rows(stack: &Stack) -> Vec<Row> {
    let before = stack.server().peak_memory();
    let left = leave_pages(stack).await;
    let mut rows = Vec::new();
    for (who, from) in [("from another network", 2), ("from the same network", 1)] {
        let slowest = slowest_look(stack, from).await;
        rows.push(Row {
            name: format!("{} × {} pages left unread, a look {who}", LEFT.0, LEFT.1),
            expected: format!("a page in {DELAY:?}"),
            seen: slowest.map_or("refused".into(), |slowest| format!("{slowest:.0?}")),
            held: slowest.is_some_and(|slowest| slowest <= DELAY),
        });
    }
    let begun: usize = left.iter().map(UnreadStreams::begun).sum();
    let grown = stack.server().peak_memory().saturating_sub(before);
    rows.push(Row {
        name: "memory of pages left unread".into(),
        expected: format!("{} MiB", MEMORY >> 20),
        seen: format!("{} MiB, {begun} pages", grown >> 20),
        held: grown <= MEMORY && begun > 0,
    });
    rows
}
