//! Pages of the dashboard that an unauthenticated client leaves unread, next to people who want to sign in; and pages
//! of a group with thousands of subgroups, next to another customer.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, future::join_all, stream};
use http::{Method, StatusCode};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::time::timeout;

use super::{
    filling::owner_of,
    row::{Row, plain},
    silent::address,
    unauthenticated::{client_address, connect_from},
    unread::{UnreadStreams, leave_answers_of},
};
use serde_json::json;
use tests::harness::{Account, Stack, usd};

/// The page that anyone may ask for.
const PAGE: &str = "/dashboard/sign-in";
/// Number of the client's connections, and of pages left unread on each: more than may be served at once.
const LEFT: (usize, usize) = (10, 64);
/// Number of times that others load the page.
const LOOKS: usize = 20;
/// How long others may have to wait for the page.
const DELAY: Duration = Duration::from_millis(500);
/// Memory that the pages may use. The limit on unauthenticated requests admits fewer than the client asks for.
const MEMORY: u64 = 32 << 20;

/// Number of subgroups in a group, and number of readers of its page.
const CHILDREN: usize = 6_000;
const READERS: usize = 10;
/// Maximum size of a group's page.
const GROUP_PAGE: usize = 192 << 10;

/// Leaves pages unread as one unauthenticated client.
pub async fn leave_pages(stack: &Stack) -> Vec<UnreadStreams> {
    leave_answers_of(PAGE, address(stack.server().public()), LEFT.0, LEFT.1).await
}

/// Returns the duration of the slowest of several page loads, from the client's own network or another one; `None` if a
/// load was refused.
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

/// Leaves pages unread as an unauthenticated client, while others load the page.
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

/// Creates a group in this account with this many subgroups. Returns the path of its page.
pub async fn group_with_children(stack: &Stack, account: &Account, children: usize) -> String {
    let url = stack.url("/v1/management/groups");
    let make = async |body| {
        let made = stack.http.send_as(&account.management_key, Method::POST, &url, Some(body)).await;
        assert_eq!(made.status, 201, "{made}");
        made.json()["id"].as_str().unwrap().to_owned()
    };
    let parent = make(json!({"name": "All of them"})).await;
    let child = |n| make(json!({"name": format!("Customer {n}"), "parent_id": parent}));
    stream::iter(0..children).map(child).buffer_unordered(16).for_each(async |_| {}).await;
    format!("/dashboard/groups/{parent}")
}

/// Reads the page of a group with thousands of subgroups without a pause, next to another customer's pages and files.
pub(super) async fn of_groups(stack: &Stack) -> Vec<Row> {
    let greedy = stack.open_account("greedy", usd("1"));
    let path = group_with_children(stack, &greedy, CHILDREN).await;
    let (mut owner, mut other) = (owner_of(stack, &greedy).await, owner_of(stack, &stack.account).await);
    let page = owner.get(&path).await.text().len();
    let until = Instant::now() + Duration::from_secs(5);
    let readers = (0..READERS).map(|_| {
        let (mut owner, path) = (owner.clone(), &path);
        async move {
            while Instant::now() < until {
                owner.get(path).await;
            }
        }
    });
    let others = async {
        let (mut slowest, mut refused) = (Duration::ZERO, 0);
        while Instant::now() < until {
            for path in ["/dashboard/groups", "/dashboard/activity.csv"] {
                let began = Instant::now();
                refused += usize::from(other.get(path).await.status != 200);
                slowest = slowest.max(began.elapsed());
            }
        }
        (slowest, refused)
    };
    let (_, (slowest, refused)) = tokio::join!(join_all(readers), others);
    vec![
        Row {
            name: format!("the page of a group with {CHILDREN} groups in it"),
            expected: format!("{} kB", GROUP_PAGE >> 10),
            seen: format!("{} kB", page >> 10),
            held: page <= GROUP_PAGE,
        },
        Row {
            name: format!("{READERS} readers of it, another's pages and files meanwhile"),
            expected: format!("served in {DELAY:?}"),
            seen: format!("{slowest:.0?}, {refused} refused"),
            held: slowest <= DELAY && refused == 0,
        },
    ]
}
