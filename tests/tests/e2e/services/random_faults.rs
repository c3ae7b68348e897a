//! Random pauses, kills, delays and clock steps over two gateways and two key-services. The upstream's own count is the
//! reference: every generation that was billed differently is listed with its reason.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use serde_json::{Value, json};
use shared::money::NanoUsd;
use tests::{
    harness::{ApiKey, Deployment, FLASH, Options, PATIENCE, Stack, billed, cost_of, nanos, usd},
    upstream::{End, Generation, Script, TOKENS_IN_TRANSIT},
};
use tokio::time::{sleep, timeout};

use super::outages::{LEASE, heals};

/// Seconds of faults, unless `FAREGATE_TEST_FAULT_SECONDS` sets them.
const SECONDS: u64 = 20;
/// Seed of the random numbers, unless `FAREGATE_TEST_FAULT_SEED` sets it.
const SEED: u64 = 20_261_121;
/// Number of clients that send one request after the other.
const CLIENTS: usize = 12;
/// Number of keys per client. The keys of the first client have a low limit.
const KEYS: usize = 8;
/// Limit of the first client's keys in USD: it pays for some fifty requests.
const LIMIT: &str = "0.0005";
/// Smallest prompt in tokens. Each prompt of a key has a different length, so that a journal entry identifies its
/// request.
const FEWEST: u64 = 10;
const MOST: u64 = 2_000;
const CUT: &str = "cut, with tokens on their way";
/// Longest time that a client waits for an answer.
const GIVEN_UP: Duration = Duration::from_secs(20);

/// A fault; where there are two processes of its kind, with the number of one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    HangGateway(usize),
    KillGateway(usize),
    HangKeyService(usize),
    KillKeyService(usize),
    HangRedis,
    KillRedis,
    StepClock(usize),
}

/// A fault, and how long it lasted.
struct Happened {
    fault: Fault,
    from: Instant,
    to: Instant,
}

/// A request and the time during which its client waited.
struct Sent {
    tag: String,
    key: String,
    prompt: u64,
    gateway: usize,
    from: Instant,
    to: Instant,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn whatever_fails_at_random_what_the_upstream_served_is_billed_or_accounted_for() {
    let seconds = from_environment("FAREGATE_TEST_FAULT_SECONDS", SECONDS);
    let seed = from_environment("FAREGATE_TEST_FAULT_SEED", SEED);
    let deployment = Deployment::services(2, 2);
    let stack =
        Stack::with(Options { deployment, lease: LEASE, clocks: vec![0, 0], ..Options::default() }).await;
    stack.add_credit(&stack.account, usd("100"));
    let mut keys = Vec::new();
    for client in 0..CLIENTS {
        let body = if client == 0 { json!({"limit": LIMIT.parse::<f64>().unwrap()}) } else { json!({}) };
        keys.push(join_all((0..KEYS).map(|_| stack.key_with(body.clone()))).await);
    }
    let (over, sent) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let faults = async {
        let happened = fail(&stack, Rng(seed), Instant::now() + Duration::from_secs(seconds)).await;
        over.store(true, Ordering::Relaxed);
        happened
    };
    let clients = keys.iter().enumerate().map(|(number, keys)| client(&stack, number, keys, &over, &sent));
    let (happened, _) = tokio::join!(faults, join_all(clients));
    heals(&stack, &stack.key().await).await;
    stack.released(PATIENCE).await;

    let sent = sent.into_inner().unwrap();
    let deadline = Instant::now() + PATIENCE;
    // Captures that could not reach their store are delivered later.
    let differences = loop {
        let differences = differences(&stack, &sent, &happened);
        if Instant::now() > deadline || differences.iter().all(|difference| difference.reason.is_some()) {
            break differences;
        }
        sleep(Duration::from_millis(500)).await;
    };
    println!(
        "seed {seed}: {} faults, {} requests, {} differences",
        happened.len(),
        sent.len(),
        differences.len()
    );
    let cut = differences.iter().filter(|difference| difference.reason == Some(CUT)).count();
    println!("{cut} of them were cut with tokens on their way; the others:");
    for difference in differences.iter().filter(|difference| difference.reason != Some(CUT)) {
        println!("{difference}");
    }
    let unexplained = differences.iter().filter(|difference| difference.reason.is_none()).count();
    assert_eq!(unexplained, 0, "{unexplained} differences have no reason");
    for key in &keys[0] {
        assert_within_its_limit(&stack, key, &differences);
    }
}

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Sends one request after the other, alternately whole and streamed, to the gateways in turn.
async fn client(stack: &Stack, number: usize, keys: &[ApiKey], over: &AtomicBool, sent: &Mutex<Vec<Sent>>) {
    let mut left = keys.iter().flat_map(|key| (FEWEST..MOST).map(move |prompt| (key, prompt))).peekable();
    let mut turn = number;
    while !over.load(Ordering::Relaxed) {
        let (key, prompt) = left.next().unwrap();
        turn += 1;
        let gateway = turn % stack.gateways.len();
        let pace = if turn.is_multiple_of(7) { 120 } else { 10 };
        let script = Script { head_after_ms: 100, ..Script::tokens(prompt, 30).pace(pace) };
        let padding = "x".repeat(usize::try_from(MOST).unwrap());
        let messages =
            json!([{"role": "system", "content": padding}, {"role": "user", "content": Value::Null}]);
        let call = stack.call_at(&stack.gateways[gateway], key, script);
        let tag = call.tag.clone();
        let mut messages = messages;
        messages[1]["content"] = call.body["messages"][0]["content"].clone();
        let call = call.with("messages", messages).with("max_tokens", 100).costing(NanoUsd::ZERO, usd("1"));
        let from = Instant::now();
        let status = if turn.is_multiple_of(2) {
            timeout(GIVEN_UP, call.try_send())
                .await
                .map_or(0, |answer| answer.map_or(0, |answer| answer.status))
        } else {
            let stream = async {
                match call.reach_stream().await {
                    Ok(Ok(stream)) => stream.rest().await.chunks.len().min(1) * 200,
                    Ok(Err(refused)) => refused.status.into(),
                    Err(_) => 0,
                }
            };
            u16::try_from(timeout(GIVEN_UP, stream).await.unwrap_or(0)).unwrap()
        };
        let key = key.id.clone();
        sent.lock().unwrap().push(Sent { tag, key: key.clone(), prompt, gateway, from, to: Instant::now() });
        if status == 402 {
            while left.next_if(|(next, _)| next.id == key).is_some() {}
            if left.peek().is_none() {
                return;
            }
        }
        sleep(Duration::from_millis(if status == 200 { 20 } else { 200 })).await;
    }
}

/// Causes one fault after the other until the deadline, and finally resumes all processes.
async fn fail(stack: &Stack, mut rng: Rng, until: Instant) -> Vec<Happened> {
    let mut happened = Vec::new();
    while Instant::now() < until {
        sleep(Duration::from_millis(300 + rng.below(700))).await;
        let which = usize::try_from(rng.below(2)).unwrap();
        let fault = match rng.below(9) {
            0 | 1 => Fault::HangGateway(which),
            2 => Fault::KillGateway(which),
            3 | 4 => Fault::HangKeyService(which),
            5 => Fault::KillKeyService(which),
            6 => Fault::HangRedis,
            7 => Fault::KillRedis,
            _ => Fault::StepClock(which),
        };
        // Most faults are short; some outlast a lease.
        let longest = if rng.below(4) == 0 { 2 * LEASE } else { LEASE / 4 };
        let lasts = Duration::from_millis(50 + rng.below(u64::try_from(longest.as_millis()).unwrap()));
        let from = Instant::now();
        let step = 10 - i64::try_from(rng.below(20)).unwrap();
        happen(stack, fault, lasts, step).await;
        happened.push(Happened { fault, from, to: Instant::now() });
    }
    stack.clocks.iter().for_each(|clock| clock.set(0));
    happened
}

async fn happen(stack: &Stack, fault: Fault, lasts: Duration, step: i64) {
    match fault {
        Fault::HangGateway(which) => {
            stack.gateways[which].hang();
            sleep(lasts).await;
            stack.gateways[which].resume();
        }
        Fault::KillGateway(which) => {
            stack.kill_gateway(which);
            sleep(lasts).await;
            stack.gateways[which].restart_supervised().await;
        }
        Fault::HangKeyService(which) => {
            stack.key_services[which].hang();
            sleep(lasts).await;
            stack.key_services[which].resume();
        }
        Fault::KillKeyService(which) => {
            stack.key_services[which].kill();
            sleep(lasts).await;
            stack.key_services[which].restart_supervised().await;
        }
        Fault::HangRedis => {
            stack.redis().hang();
            sleep(lasts).await;
            stack.redis().resume();
        }
        Fault::KillRedis => {
            stack.redis().kill();
            sleep(lasts).await;
            stack.redis().restart().await;
        }
        // The step is small: a key-service too far from its store's clock is not ready.
        Fault::StepClock(which) => stack.clocks[which].set(step),
    }
}

/// A generation whose bill differs from the tokens served.
struct Difference {
    tag: String,
    key: String,
    served: NanoUsd,
    charged: NanoUsd,
    entry: Option<Value>,
    /// The contract's reason for the difference; `None` if it gives none.
    reason: Option<&'static str>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tag, key: _, served, charged, entry, reason } = self;
        let entry = entry.as_ref().map_or_else(|| "no entry".into(), ToString::to_string);
        write!(f, "{tag}: {served} served, {charged} billed: {}; {entry}", reason.unwrap_or("NO REASON"))
    }
}

fn differences(stack: &Stack, sent: &[Sent], happened: &[Happened]) -> Vec<Difference> {
    let entries: HashMap<(String, u64), Value> = stack
        .journal(&stack.account)
        .into_iter()
        .map(|entry| {
            let key = entry["key_id"].as_str().unwrap().to_owned();
            ((key, entry["prompt_tokens"].as_u64().unwrap()), entry)
        })
        .collect();
    let by_tag: HashMap<&str, &Sent> = sent.iter().map(|sent| (sent.tag.as_str(), sent)).collect();
    let generations = stack.upstream.generations();
    let known =
        generations.iter().filter_map(|generation| Some((generation, *by_tag.get(generation.tag.as_str())?)));
    known
        .filter_map(|(generation, sent)| {
            let entry = entries.get(&(sent.key.clone(), sent.prompt)).cloned();
            let charged = entry.as_ref().map_or(NanoUsd::ZERO, |entry| nanos(&entry["charged"]));
            let (least, most) = billed(FLASH, generation);
            let served = cost_of(generation.served.prompt, generation.served.completion);
            let reason = reason(generation, sent, entry.as_ref(), happened);
            // A cut stream is billed for the tokens generated until then.
            let cut = generation.streamed && least < most;
            let right = if cut { charged == served } else { (least..=most).contains(&charged) };
            let (tag, key) = (sent.tag.clone(), sent.key.clone());
            (!right).then_some(Difference { tag, key, served, charged, entry, reason })
        })
        .collect()
}

fn reason(
    generation: &Generation,
    sent: &Sent,
    entry: Option<&Value>,
    happened: &[Happened],
) -> Option<&'static str> {
    let meanwhile = |fault: Fault| {
        // A request may continue for this long after its client gave up.
        let last = sent.to + GIVEN_UP;
        happened
            .iter()
            .any(|happened| happened.fault == fault && happened.from < last && happened.to > sent.from)
    };
    if entry.is_some_and(|entry| nanos(&entry["shortfall"]) > NanoUsd::ZERO) {
        Some("shortfall recorded")
    } else if meanwhile(Fault::KillGateway(sent.gateway)) {
        Some("its gateway was killed: billed as last reported")
    } else if entry.is_some_and(|entry| entry["estimated"] == true) {
        Some("estimated")
    } else if meanwhile(Fault::HangGateway(sent.gateway)) && !generation.ended_by(End::Finished) {
        Some("its gateway was frozen")
    } else if entry.is_some_and(|entry| on_their_way(generation, entry) <= TOKENS_IN_TRANSIT) {
        Some(CUT)
    } else {
        None
    }
}

/// Number of tokens that the upstream generated and the bill lacks.
fn on_their_way(generation: &Generation, entry: &Value) -> u64 {
    generation.served.completion.saturating_sub(entry["completion_tokens"].as_u64().unwrap())
}

/// Asserts that no more than a key's limit was served, apart from recorded shortfalls and explained differences: tokens
/// that a killed gateway could not report, and tokens in transit when a stream was cut.
fn assert_within_its_limit(stack: &Stack, key: &ApiKey, differences: &[Difference]) {
    let journal = stack.journal(&stack.account);
    let of_key = journal.iter().filter(|entry| entry["key_id"] == key.id);
    let shortfall: i64 = of_key.map(|entry| nanos(&entry["shortfall"]).nanos()).sum();
    let unbilled = differences.iter().filter(|difference| difference.key == key.id);
    let unbilled: i64 =
        unbilled.map(|difference| difference.served.nanos() - difference.charged.nanos()).sum();
    let beyond = stack.cost_of_served(key).nanos() - usd(LIMIT).nanos();
    assert!(
        beyond <= shortfall + unbilled,
        "{}: {beyond} n$ beyond its limit are served, {shortfall} recorded, {unbilled} explained",
        key.id
    );
}

/// Random numbers that are the same in every run with the same seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % count
    }
}
