//! Outages slightly shorter and longer than a lease, while another client competes for the held money. The books are
//! compared with the tokens that the upstream generated.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use serde_json::Value;
use shared::money::NanoUsd;
use tests::{
    harness::{
        Answer, ApiKey, Call, Deployment, Form, Options, PATIENCE, Server, Stack, Stream, cost_of, nanos,
    },
    upstream::{End, Script},
};
use tokio::time::sleep;

/// The shortest lease that is allowed.
const LEASE: Duration = Duration::from_secs(3);
/// Durations of outages slightly shorter and longer than a lease.
const SHORTER: Duration = Duration::from_millis(2_500);
const LONGER: Duration = Duration::from_secs(5);
/// Number of prompt tokens in every request.
const PROMPT: u64 = 30;
const COMPLETION: u64 = 400;
/// Pace of a stream and duration of a whole answer, in milliseconds. Both last longer than the longest outage.
const PACE_MS: u64 = 25;
const TAKES_MS: u64 = 9_000;

/// Returns the limit of a key that pays for four requests at the same time, but not for a fifth.
fn limit() -> NanoUsd {
    cost_of(4 * PROMPT + 1_600, 4 * COMPLETION + 100)
}

/// Runs two streams and two whole requests through an outage, while another client keeps sending similar requests. With
/// `at_risk`, answers may be cut; otherwise, all must arrive complete and be billed.
async fn survives(stack: &Stack, at_risk: bool, outage: impl Future<Output = ()>) {
    let limit = limit();
    let key = stack.key_limited(limit).await;
    let first = &stack.gateways[0];
    let last = stack.gateways.last().unwrap();
    let costing = |call: Call| {
        let call = call.with("max_tokens", COMPLETION);
        if at_risk { call.costing(NanoUsd::ZERO, cost_of(PROMPT, COMPLETION)) } else { call }
    };
    let stream = || costing(stack.call_at(first, &key, Script::tokens(PROMPT, COMPLETION).pace(PACE_MS)));
    let whole = || {
        let script = Script { head_after_ms: TAKES_MS, ..Script::tokens(PROMPT, COMPLETION) };
        costing(stack.call_at(first, &key, script))
    };
    let over = AtomicBool::new(false);
    let streams = join_all([stream(), stream()].map(Call::stream)).await;
    let mut received: Vec<Received> = streams.iter().map(Received::nothing_yet).collect();
    let wholes = join_all([whole(), whole()].map(Call::try_send));
    let running = async {
        let ended = join_all(streams.into_iter().map(Stream::rest));
        let outcome = tokio::join!(ended, wholes);
        over.store(true, Ordering::Relaxed);
        outcome
    };
    let competing = async {
        let mut received = Vec::new();
        // By now, all four requests are authorized.
        sleep(Duration::from_secs(1)).await;
        while !over.load(Ordering::Relaxed) {
            let call = stack.call_at(last, &key, Script::tokens(PROMPT, COMPLETION));
            if let Ok(answer) = call.with("max_tokens", COMPLETION).try_send().await {
                assert!(matches!(answer.status, 200 | 402 | 429 | 503), "{answer}");
                received.push(Received::of(&answer));
            }
            sleep(Duration::from_millis(100)).await;
        }
        received
    };
    let outage = async {
        sleep(Duration::from_millis(1_500)).await;
        outage.await;
    };
    let ((ended, answers), competed, ()) = tokio::join!(running, competing, outage);
    stack.released(PATIENCE).await;
    for (received, ended) in received.iter_mut().zip(&ended) {
        received.tokens = ended.tokens() as u64;
    }
    received.extend(answers.iter().flatten().map(Received::of));
    received.extend(competed);
    if !at_risk {
        for ended in &ended {
            assert_eq!(ended.assert_done().tokens() as u64, COMPLETION, "no stream is cut: {ended:?}");
        }
        for answer in answers {
            let answer = answer.unwrap_or_else(|e| panic!("there is no answer: {e}"));
            assert_eq!(answer.status, 200, "{answer}");
        }
    }
    assert_accounted_for(stack, &key, &received, at_risk).await;
}

/// What a client received of an answer.
struct Received {
    tag: Option<String>,
    generation: String,
    tokens: u64,
}

impl Received {
    fn nothing_yet(stream: &Stream) -> Self {
        let generation = stream.header("x-generation-id").to_owned();
        Self { tag: Some(stream.tag.clone()), generation, tokens: 0 }
    }

    /// Reads a whole answer, or a refusal, which has no tokens.
    fn of(answer: &Answer) -> Self {
        let tokens = answer.json()["usage"]["completion_tokens"].as_u64().unwrap_or(0);
        Self { tag: None, generation: answer.header("x-generation-id").to_owned(), tokens }
    }
}

/// Asserts that everything received is recorded, and everything served is billed or recorded as shortfall. With
/// `at_risk`, tokens on their way to a client whose stream was cut may be neither.
async fn assert_accounted_for(stack: &Stack, key: &ApiKey, received: &[Received], at_risk: bool) {
    let (limit, served, used) = (limit(), stack.cost_of_served(key), stack.used(key).await);
    let entries = stack.journal(&stack.account);
    let shortfall = entries.iter().map(|entry: &Value| nanos(&entry["shortfall"]).nanos()).sum::<i64>();
    println!("{served} served, {used} billed, {shortfall} n$ recorded as shortfall, of {limit}");
    assert!(used <= limit, "{used} of {limit} is billed");
    for received in received {
        assert_recorded(received, &entries);
    }
    if !at_risk {
        assert_eq!((used, shortfall), (served, 0), "the served tokens are billed");
        return;
    }
    let generations = stack.served(key);
    let cut = generations.iter().filter(|one| one.streamed && one.ended_by(End::ClientLeft));
    let on_their_way = cut.map(|one| {
        let received = received.iter().find(|received| received.tag.as_ref() == Some(&one.tag));
        let tokens = received.map_or(0, |received| received.tokens);
        cost_of(0, one.served.completion.saturating_sub(tokens)).nanos()
    });
    let (beyond, on_their_way) = (served.nanos() - limit.nanos(), on_their_way.sum::<i64>());
    assert!(
        beyond <= shortfall + on_their_way,
        "{beyond} n$ beyond the limit are served, {shortfall} recorded, {on_their_way} on their way"
    );
}

/// Asserts that the bill and the shortfall for an answer together cover everything that its client received, in tokens
/// and in money.
fn assert_recorded(received: &Received, entries: &[Value]) {
    let Received { tag: _, generation, tokens } = received;
    if *tokens == 0 {
        return;
    }
    let entry = entries.iter().find(|entry| entry["generation_id"] == *generation);
    let entry = entry.unwrap_or_else(|| panic!("{tokens} tokens of {generation} are not recorded"));
    let recorded = entry["completion_tokens"].as_u64().unwrap();
    let cost = nanos(&entry["charged"]).nanos() + nanos(&entry["shortfall"]).nanos();
    assert!(
        *tokens <= recorded && cost_of(PROMPT, *tokens).nanos() <= cost,
        "a client received {tokens} tokens of {entry}"
    );
}

async fn services(gateways: usize, key_services: usize) -> Stack {
    let deployment = Deployment::services(gateways, key_services, Form::Alone);
    Stack::with(Options { deployment, lease: LEASE, ..Options::default() }).await
}

#[apply(fact)]
async fn a_redis_that_hangs_for_about_a_lease_frees_nothing_that_is_held() {
    for away in [SHORTER, LONGER] {
        let stack = services(1, 1).await;
        let outage = async {
            stack.redis().hang();
            sleep(away).await;
            stack.redis().resume();
        };
        survives(&stack, false, outage).await;
    }
}

#[apply(fact)]
async fn a_redis_that_is_killed_for_about_a_lease_frees_nothing_that_is_held() {
    for away in [SHORTER, LONGER] {
        let stack = services(1, 2).await;
        let outage = async {
            stack.redis().kill();
            sleep(away).await;
            stack.redis().restart().await;
        };
        survives(&stack, false, outage).await;
    }
}

#[apply(fact)]
async fn a_key_service_that_hangs_for_about_a_lease_frees_nothing_that_is_held() {
    for away in [SHORTER, LONGER] {
        let stack = services(1, 1).await;
        let outage = async {
            stack.key_services[0].hang();
            sleep(away).await;
            stack.key_services[0].resume();
        };
        survives(&stack, false, outage).await;
    }
}

#[apply(fact)]
async fn key_services_that_are_killed_for_longer_than_a_lease_free_nothing_that_is_held() {
    let stack = services(1, 2).await;
    let outage = async {
        stack.key_services.iter().for_each(Server::kill);
        sleep(LONGER).await;
        join_all(stack.key_services.iter().map(Server::restart)).await;
    };
    survives(&stack, false, outage).await;
}

#[apply(fact)]
async fn a_database_that_is_locked_for_about_a_lease_frees_nothing_that_is_held() {
    for away in [SHORTER, LONGER] {
        let stack = Stack::with(Options { lease: LEASE, ..Options::default() }).await;
        let outage = async {
            let lock = Lock::take(&stack.data().join("data/faregate.db"));
            sleep(away).await;
            drop(lock);
        };
        survives(&stack, false, outage).await;
    }
}

#[apply(fact)]
async fn a_gateway_that_is_frozen_for_less_than_a_lease_loses_nothing() {
    let stack = services(2, 1).await;
    let frozen = async {
        stack.gateways[0].hang();
        sleep(LEASE / 2).await;
        stack.gateways[0].resume();
    };
    survives(&stack, false, frozen).await;
}

#[apply(fact)]
async fn a_gateway_that_is_frozen_for_longer_than_its_lease_has_what_is_unpaid_recorded() {
    let stack = services(2, 1).await;
    let frozen = async {
        stack.gateways[0].hang();
        sleep(LONGER).await;
        stack.gateways[0].resume();
    };
    survives(&stack, true, frozen).await;
}

/// Another process that holds a database's exclusive lock until it is dropped.
struct Lock(Child);

impl Lock {
    fn take(file: &Path) -> Self {
        const TAKE: &str = "import sqlite3, sys\n\
                            db = sqlite3.connect(sys.argv[1], timeout=10, isolation_level=None)\n\
                            db.execute('BEGIN EXCLUSIVE')\n\
                            print('locked', flush=True)\n\
                            sys.stdin.read()\n";
        assert!(file.is_file(), "the database is {}", file.display());
        let mut command = Command::new("python3");
        command.args(["-c", TAKE]).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "locked\n");
        Self(child)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
