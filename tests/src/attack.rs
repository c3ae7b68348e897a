//! Attacks on a running installation, and figures that show whether it holds: what unauthenticated callers, and single
//! customers, can do to the others.
//!
//! The program `attack` runs all of them, at length; the end-to-end tests run the quick ones.

use std::{
    fmt,
    time::{Duration, Instant},
};

use http::{Method, Request, header};
use http_body_util::Full;
use serde_json::json;
use tokio::time::sleep;

use crate::{
    bench::process::memory,
    harness::{Answer, ApiKey, FLASH, Http, Options, Stack},
    upstream::Script,
};

pub mod bodies;
pub mod silent;
pub mod unread;

use bodies::StalledBodies;
use silent::Silence;

/// Time within which every silent socket has to be closed.
const SILENCE_ENDS: Duration = Duration::from_secs(35);
/// Time that a flood of silent sockets may add to a paying caller's request.
const DELAY: Duration = Duration::from_millis(100);
/// Bytes of memory that stalled bodies may leave behind.
const LEFT_BEHIND: u64 = 64 << 20;
/// Time that a client may take nothing of its stream, and for its slot to come free then.
const STALL: (Duration, Duration) = (Duration::from_mins(1), Duration::from_secs(5));
/// Slots of the gateway in the attack on them, and the share of one account.
const SLOTS: (usize, usize) = (64, 16);
/// Requests at once of the paying load.
const AT_ONCE: usize = 32;

/// The extent of the attacks.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Silent sockets of the flood.
    pub sockets: usize,
    /// Connections with stalled bodies, and bodies on each.
    pub bodies: (usize, usize),
    /// Requests while no scraper reads the metrics.
    pub requests: usize,
}

/// One attack, and how the installation held.
pub struct Row {
    name: String,
    expected: String,
    seen: String,
    held: bool,
}

/// The table of all attacks.
pub struct Report(Vec<Row>);

impl Report {
    /// Returns whether the installation held against all of them.
    pub fn held(&self) -> bool {
        self.0.iter().all(|row| row.held)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Row { name, expected, seen, held } in &self.0 {
            let verdict = if *held { "holds" } else { "BROKEN" };
            writeln!(f, "{verdict:<7} {name:<64} {expected:<28} {seen}")?;
        }
        Ok(())
    }
}

/// Runs all attacks, one after the other.
pub async fn run(plan: &Plan) -> Report {
    let mut rows = Vec::new();
    let stack = Stack::start().await;
    stack.others_spend();
    rows.extend(silences(&stack).await);
    rows.push(flood(&stack, plan.sockets).await);
    for management in [false, true] {
        rows.push(stalled_bodies(&stack, plan.bodies, management).await);
    }
    rows.push(unscraped(&stack, plan.requests).await);
    drop(stack);
    rows.extend(slots().await);
    Report(rows)
}

async fn silences(stack: &Stack) -> Vec<Row> {
    let mut tried = Vec::new();
    for port in ["public", "admin", "key-http", "key-grpc"] {
        let address = silent::address(stack.server().address(port));
        for silence in Silence::ALL {
            let patience = SILENCE_ENDS + Duration::from_secs(25);
            tried.push(tokio::spawn(async move {
                (port, silence, silent::time_to_close(address, silence, patience).await)
            }));
        }
    }
    let mut rows = Vec::new();
    for attempt in tried {
        let (port, silence, closed) = attempt.await.unwrap();
        rows.push(Row {
            name: format!("silent socket, {}, port {port}", silence.name()),
            expected: format!("closed in {SILENCE_ENDS:?}"),
            seen: closed.map_or("still open".into(), |after| format!("{:.1} s", after.as_secs_f64())),
            held: closed.is_some_and(|after| after <= SILENCE_ENDS),
        });
    }
    rows
}

async fn flood(stack: &Stack, sockets: usize) -> Row {
    let key = stack.key().await;
    let pooled = Http::new();
    let calm = slowest(stack, &key, &pooled).await;
    let address = silent::address(stack.server().public());
    let began = Instant::now();
    let opening = tokio::spawn(silent::flood(address, sockets));
    let mut worst = Duration::ZERO;
    while !opening.is_finished() {
        worst = worst.max(slowest(stack, &key, &pooled).await);
    }
    let flood = opening.await.unwrap();
    let took = began.elapsed();
    worst = worst.max(slowest(stack, &key, &pooled).await);
    let delay = worst.saturating_sub(calm);
    Row {
        name: format!("{} silent sockets in {:.1} s", flood.len(), took.as_secs_f64()),
        expected: format!("a paying caller waits {DELAY:?} longer"),
        seen: format!("{delay:.0?} ({calm:.0?}, then {worst:.0?})"),
        held: delay <= DELAY,
    }
}

/// The longest of some requests, half of them on new connections.
async fn slowest(stack: &Stack, key: &ApiKey, pooled: &Http) -> Duration {
    let mut longest = Duration::ZERO;
    for number in 0..20 {
        let http = if number % 2 == 0 { pooled.clone() } else { Http::new() };
        let began = Instant::now();
        // One that loses its connection tries again, as every SDK does; the time counts.
        while !asked(stack, key, &http).await {}
        longest = longest.max(began.elapsed());
    }
    longest
}

/// Asks for the models; whether there was an answer.
async fn asked(stack: &Stack, key: &ApiKey, http: &Http) -> bool {
    let mut request = plain(Method::GET, &stack.url("/v1/models"));
    let bearer = format!("Bearer {}", key.secret).parse().expect("a key fits into a header");
    request.headers_mut().insert(header::AUTHORIZATION, bearer);
    match http.open(request).await {
        Ok(response) => {
            let answer = Answer::read(response).await;
            answer.is_ok_and(|answer| answer.status == 200)
        }
        Err(_broken) => false,
    }
}

async fn stalled_bodies(stack: &Stack, (connections, each): (usize, usize), management: bool) -> Row {
    let pid = stack.server().pid();
    let before = memory(pid);
    let address = silent::address(stack.server().public());
    let bodies = StalledBodies::open(address, connections, each, management).await;
    let held = bodies.bytes();
    let mut peak = 0;
    for _ in 0..20 {
        sleep(Duration::from_millis(250)).await;
        peak = peak.max(memory(pid));
    }
    drop(bodies);
    sleep(Duration::from_secs(15)).await;
    let after = memory(pid);
    let grown = after.saturating_sub(before);
    let what = if management { "management bodies" } else { "chat bodies with invented keys" };
    Row {
        name: format!("{connections} × {each} stalled {what}, {} MiB", held >> 20),
        expected: format!("{} MiB more afterwards", LEFT_BEHIND >> 20),
        seen: format!("{} MiB more ({} MiB meanwhile)", grown >> 20, peak.saturating_sub(before) >> 20),
        held: grown <= LEFT_BEHIND && peak.saturating_sub(before) <= 3 * LEFT_BEHIND,
    }
}

async fn unscraped(stack: &Stack, requests: usize) -> Row {
    stack.upstream.set_default(Script::tokens(12, 1));
    let key = stack.key().await;
    let pid = stack.server().pid();
    pay(stack, &key, requests / 5).await;
    let mut looks = vec![memory(pid)];
    for _ in 0..4 {
        pay(stack, &key, requests / 5).await;
        looks.push(memory(pid));
    }
    let grown = looks[4].saturating_sub(looks[2]);
    let bound = 8 << 20;
    let looks: Vec<String> = looks.iter().map(|bytes| (bytes >> 20).to_string()).collect();
    Row {
        name: format!("{requests} requests that no scraper looks at"),
        expected: format!("{} MiB more in the last two fifths", bound >> 20),
        seen: format!("{} MiB after each fifth", looks.join(", ")),
        held: grown <= bound,
    }
}

/// Sends this many paid requests, some at once.
async fn pay(stack: &Stack, key: &ApiKey, requests: usize) {
    let url = stack.url("/v1/chat/completions");
    let http = Http::new();
    let body = json!({"model": FLASH, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1});
    let loads = (0..AT_ONCE).map(|_| {
        let (http, secret, url, body) = (http.clone(), key.secret.clone(), url.clone(), body.clone());
        tokio::spawn(async move {
            for _ in 0..requests / AT_ONCE {
                http.send_as(&secret, Method::POST, &url, Some(body.clone())).await;
            }
        })
    });
    for load in loads.collect::<Vec<_>>() {
        load.await.unwrap();
    }
}

/// One customer who reads nothing, beside another one.
async fn slots() -> Vec<Row> {
    let (all, share) = SLOTS;
    let env = vec![("FAREGATE_MAX_IN_FLIGHT", all.to_string())];
    let stack = Stack::with(Options { env, ..Options::default() }).await;
    stack.others_spend();
    let greedy = stack.key().await;
    let other = stack.open_account("other", crate::harness::usd("1"));
    let other = stack.key_of(&other, json!({})).await;
    let began = Instant::now();
    let unread = unread::open_streams(stack.server().public(), &greedy.secret, all).await;
    let (taken, refused) = (unread.begun(), unread.refused());
    let served = stack.call(&other, Script::tokens(12, 5)).send().await.status;
    let freed = loop {
        let tried = stack.call(&greedy, Script::tokens(12, 5)).send().await.status;
        if tried == 200 || began.elapsed() > 2 * STALL.0 {
            break began.elapsed();
        }
        sleep(Duration::from_millis(500)).await;
    };
    let bound = STALL.0 + STALL.1;
    vec![
        Row {
            name: format!("{all} streams of one customer that reads nothing"),
            expected: format!("{share} begin, others are served"),
            seen: format!("{taken} begin, {refused} are refused, another one gets {served}"),
            held: taken == share && served == 200,
        },
        Row {
            name: "slots of a client that stopped reading".into(),
            expected: format!("free in {bound:?}"),
            seen: format!("{:.1} s", freed.as_secs_f64()),
            held: freed <= bound,
        },
    ]
}

/// A request without a credential.
pub(crate) fn plain(method: Method, uri: &str) -> Request<Full<bytes::Bytes>> {
    Request::builder().method(method).uri(uri).body(Full::default()).unwrap()
}
