//! Random pauses, kills, restarts and clock steps. There are two gateways and two key-services, and the upstream
//! reports usage by choice, late and sometimes falsely. Bills are compared with what the upstream itself counted. Every
//! generation whose bill differs from that is listed with a reason.

use std::{
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
    harness::{ApiKey, Deployment, Form, Options, PATIENCE, Stack, nanos, usd},
    upstream::{End, Generation, Script, Style, Told, Usage},
};
use tokio::time::sleep;

use super::outages::{LEASE, heals};
use crate::services::{
    end, from_environment,
    money::bills::{self, CUT, Difference, Sent},
};

/// For how many seconds faults happen, unless `FAREGATE_TEST_FAULT_SECONDS` sets another number.
const SECONDS: u64 = 20;
/// Seed of the random numbers, unless `FAREGATE_TEST_FAULT_SEED` sets another.
const SEED: u64 = 20_261_121;
/// Number of clients, each of which sends one request after the other.
const CLIENTS: usize = 12;
/// Number of keys that each client has. The keys of the first client have a low limit.
const KEYS: usize = 8;
/// Limit in USD of each of the first client's keys. It pays for about fifty requests.
const LIMIT: &str = "0.0005";
/// Maximum number of attempts that a client makes at each request. Each attempt is made at another gateway.
const TRIES: usize = 3;
/// Number of seconds for which a gateway that is asked to end waits for its running requests. The slowest streams last
/// longer than that.
const DRAIN: &str = "2";
/// A number of output tokens that the gateway does not believe for any request.
const UNBELIEVABLE: u64 = 1 << 31;
/// One of this many requests gets a false report.
const FALSE_ONE_IN: u64 = 50;

/// A fault. If there are two processes that it can concern, it contains the number of one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    HangGateway(usize),
    KillGateway(usize),
    HangKeyService(usize),
    KillKeyService(usize),
    RestartGateway(usize),
    RestartKeyService(usize),
    HangRedis,
    KillRedis,
    StepClock(usize),
}

/// A fault, and when it began and ended.
struct Happened {
    fault: Fault,
    from: Instant,
    to: Instant,
}

#[apply(fact)]
#[ignore = "slow: `make test-slow`"]
async fn whatever_fails_at_random_what_the_upstream_served_is_billed_or_accounted_for() {
    let seconds = from_environment("FAREGATE_TEST_FAULT_SECONDS", SECONDS);
    let seed = from_environment("FAREGATE_TEST_FAULT_SEED", SEED);
    let deployment = Deployment::services(2, 2, Form::Cluster);
    let env = vec![("FAREGATE_DRAIN_SECONDS", DRAIN.into())];
    let options = Options { deployment, lease: LEASE, clocks: vec![0, 0], env, ..Options::default() };
    let stack = Stack::with(options).await;
    stack.add_credit(&stack.account, usd("100"), "");
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
    let clients = keys.iter().enumerate().map(|(number, keys)| {
        let rng = Rng(seed.wrapping_add(1 + number as u64));
        client(&stack, number, keys, rng, (&over, &sent))
    });
    let (happened, _) = tokio::join!(faults, join_all(clients));
    heals(&stack, &stack.key().await).await;
    stack.released(PATIENCE).await;

    let sent = sent.into_inner().unwrap();
    println!("seed {seed}: {} faults, {} requests", happened.len(), sent.len());
    let reason = |generation: &Generation, sent: &Sent, entry: Option<&Value>| {
        reason(generation, sent, entry, &happened)
    };
    let differences = bills::differences_at_last(&stack, &sent, reason).await;
    bills::assert_explained(&differences);
    for key in &keys[0] {
        assert_within_its_limit(&stack, key, &differences);
    }
}

/// Sends requests of all kinds, one after the other. The gateways take turns, and a request is retried on the other
/// gateway.
async fn client(
    stack: &Stack,
    number: usize,
    keys: &[ApiKey],
    mut rng: Rng,
    (over, sent): (&AtomicBool, &Mutex<Vec<Sent>>),
) {
    let prompts = || bills::FEWEST..bills::MOST;
    let mut left = keys.iter().flat_map(|key| prompts().map(move |prompt| (key, prompt))).peekable();
    let mut turn = number;
    while !over.load(Ordering::Relaxed) {
        turn += 1;
        let streamed = !turn.is_multiple_of(2);
        let pace = if turn.is_multiple_of(7) { 120 } else { 10 };
        for again in 0..TRIES {
            let Some((key, prompt)) = left.next() else { return };
            let (script, choices) = script(prompt, pace, &mut rng);
            let gateway = (turn + again) % stack.gateways.len();
            let one = bills::send(stack, gateway, key, script, (streamed, choices)).await;
            if one.status == 402 {
                while left.next_if(|(next, _)| next.id == key.id).is_some() {}
            }
            let (good, again) = (one.status == 200, one.may_be_repeated);
            sent.lock().unwrap().push(one);
            sleep(Duration::from_millis(if good { 20 } else { 200 })).await;
            if !again {
                break;
            }
        }
    }
}

/// Returns the script of an answer like vLLM's. It has one to four choices, which finish at different times. Its usage
/// may come late or be false.
fn script(prompt: u64, pace: u64, rng: &mut Rng) -> (Script, u64) {
    let lengths: Vec<u64> = (0..=rng.below(4)).map(|_| 5 + rng.below(30)).collect();
    let usage_after_ms = if rng.below(4) == 0 { rng.below(300) } else { 0 };
    let total = lengths.iter().sum::<u64>();
    let told = match rng.below(3 * FALSE_ONE_IN) {
        // These numbers are not credible. They look like an unsigned -1, and like a counter that was never reset.
        0 => Told::First(Usage { prompt: u32::MAX.into(), cached: 0, completion: 0 }),
        1 => Told::Lie(Usage { prompt, cached: 0, completion: UNBELIEVABLE }),
        // Nobody who reads this report can know that it is false.
        2 => Told::Lie(Usage { prompt, cached: 0, completion: total + 7 }),
        _ => Told::Truth,
    };
    let style = Style::vllm();
    let script =
        Script { head_after_ms: 100, usage_after_ms, told, style, ..Script::choices(prompt, &lengths) };
    (script.pace(pace), lengths.len() as u64)
}

/// Causes one fault after the other until `until`. At the end, all processes run and all clocks are right.
async fn fail(stack: &Stack, mut rng: Rng, until: Instant) -> Vec<Happened> {
    let mut happened = Vec::new();
    while Instant::now() < until {
        sleep(Duration::from_millis(300 + rng.below(700))).await;
        let which = usize::try_from(rng.below(2)).unwrap();
        let fault = match rng.below(11) {
            0 | 1 => Fault::HangGateway(which),
            2 => Fault::KillGateway(which),
            3 | 4 => Fault::HangKeyService(which),
            5 => Fault::KillKeyService(which),
            6 => Fault::HangRedis,
            7 => Fault::KillRedis,
            8 => Fault::RestartGateway(which),
            9 => Fault::RestartKeyService(which),
            _ => Fault::StepClock(which),
        };
        // Most faults are short. Some last longer than a lease.
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
        Fault::RestartGateway(which) => {
            end(&stack.gateways[which]).await;
            sleep(lasts).await;
            stack.gateways[which].restart_supervised().await;
        }
        Fault::RestartKeyService(which) => {
            end(&stack.key_services[which]).await;
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
        // The step is small, because a key-service whose clock differs too much from the store's is not ready.
        Fault::StepClock(which) => stack.clocks[which].set(step),
    }
}

fn reason(
    generation: &Generation,
    sent: &Sent,
    entry: Option<&Value>,
    happened: &[Happened],
) -> Option<&'static str> {
    let meanwhile = |fault: Fault| {
        // A request may continue for this long after its client has left.
        let last = sent.to + bills::GIVEN_UP;
        happened
            .iter()
            .any(|happened| happened.fault == fault && happened.from < last && happened.to > sent.from)
    };
    let estimated = bills::is_estimated(entry);
    if bills::is_above(generation, entry) {
        // If the bill exceeds what was served, only a false report or an estimate explains it.
        return match generation.script.told {
            Told::Lie(usage) if usage.completion < UNBELIEVABLE => Some("reported falsely"),
            _ => estimated.then_some("estimated"),
        };
    }
    if entry.is_some_and(|entry| nanos(&entry["shortfall"]) > NanoUsd::ZERO) {
        Some("shortfall recorded")
    } else if meanwhile(Fault::KillGateway(sent.gateway)) {
        Some("its gateway was killed: billed as last reported")
    } else if estimated {
        Some("estimated")
    } else if meanwhile(Fault::HangGateway(sent.gateway))
        && !generation.ended_by(End::Finished)
        && sent.received == 0
    {
        Some("its gateway was frozen, and nothing arrived")
    } else if bills::lacks_only_tokens_on_their_way(generation, sent, entry) {
        Some(CUT)
    } else if meanwhile(Fault::RestartGateway(sent.gateway)) && !generation.streamed && entry.is_none() {
        Some("a whole answer, cut at the end of its gateway's drain")
    } else {
        None
    }
}

/// Asserts that what was served does not cost more than the key's limit. There are two exceptions: recorded shortfall,
/// and differences that have a reason, such as tokens that a killed gateway could not report or that were on their way
/// when a stream was cut off.
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

/// Random numbers. With the same seed, they are the same in every run.
struct Rng(u64);

impl Rng {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % count
    }
}
