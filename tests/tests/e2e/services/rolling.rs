//! Rolling restarts. Gateways and key-services are asked to stop and are started again, one after the other. Meanwhile,
//! clients retry at another gateway, or are behind a load balancer. Bills are compared, to the nano-dollar, with what
//! the upstream itself counted.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use serde_json::Value;
use tests::{
    harness::{
        ApiKey, Balancer, Deployment, Dialect, FLASH, Form, Http, Options, PATIENCE, PREVIOUS, Server, Stack,
        cost, nanos, usd,
    },
    upstream::{End, Generation, Script},
};
use tokio::time::sleep;

use super::{
    end,
    faults::outages::{LEASE, heals},
    from_environment,
    money::bills::{self, CUT, Sent},
};

/// Number of rounds, unless `FAREGATE_TEST_ROLLING_ROUNDS` sets another. In each round, each process is restarted once.
const ROUNDS: u64 = 3;
/// Number of clients. Each has a key of its own, and sends one request after the other.
const CLIENTS: usize = 60;
/// Maximum number of attempts that a client makes at each request.
const TRIES: usize = 4;
/// Pause before a retry, and between two requests.
const PAUSE: Duration = Duration::from_millis(100);
/// Number of seconds for which a gateway that is asked to end waits for its running requests. Some streams last longer,
/// and are cut off.
const DRAIN: &str = "2";

/// Number of clients behind a balancer. Each has connections of its own, and every fourth client uses HTTP/2.
const BALANCED: usize = 200;
const BALANCED_KEYS: usize = 20;
/// For this many seconds, a gateway announces that it will stop but still serves. The time is longer than a request
/// takes on a busy machine, so that every connection learns of the stop.
const DRAIN_PAUSE: &str = "8";

/// A restart, and when it began and ended.
struct Restart {
    gateway: usize,
    from: Instant,
    to: Instant,
}

#[apply(fact)]
async fn rolling_restarts_under_clients_that_try_again_bill_what_was_served() {
    let rounds = from_environment("FAREGATE_TEST_ROLLING_ROUNDS", ROUNDS);
    let options = Options {
        deployment: Deployment::services(2, 2, Form::Cluster),
        lease: LEASE,
        env: vec![("FAREGATE_DRAIN_SECONDS", DRAIN.into())],
        ..Options::default()
    };
    let stack = Stack::with(options).await;
    stack.add_credit(&stack.account, usd("100"), "");
    let keys = join_all((0..CLIENTS).map(|_| stack.key())).await;
    let (over, sent) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let restarts = async {
        let mut restarts = Vec::new();
        for _ in 0..rounds {
            for which in 0..2 {
                let from = Instant::now();
                restart(&stack.gateways[which]).await;
                restarts.push(Restart { gateway: which, from, to: Instant::now() });
                restart(&stack.key_services[which]).await;
            }
        }
        over.store(true, Ordering::Relaxed);
        restarts
    };
    let clients = keys.iter().enumerate().map(|(number, key)| client(&stack, number, key, &over, &sent));
    let (restarts, _) = tokio::join!(restarts, join_all(clients));
    heals(&stack, &stack.key().await).await;
    stack.released(PATIENCE).await;

    let sent = sent.into_inner().unwrap();
    let answered = sent.iter().filter(|sent| sent.status == 200).count();
    println!("{rounds} rounds, {} requests, {answered} of them answered", sent.len());
    let reason = |generation: &Generation, sent: &Sent, entry: Option<&Value>| {
        reason(generation, sent, entry, &restarts)
    };
    let differences = bills::differences_at_last(&stack, &sent, reason).await;
    bills::assert_explained(&differences);
    assert_used_is_served(&stack, &keys, &differences).await;
    let in_vain = bills::billed_in_vain(&stack, &sent);
    assert!(in_vain.is_empty(), "{} were billed without an answer: {in_vain:#?}", in_vain.len());
}

#[apply(fact)]
async fn a_rolling_restart_behind_a_balancer_fails_no_request() {
    let rounds = from_environment("FAREGATE_TEST_BALANCED_ROUNDS", 1);
    let options = Options {
        deployment: Deployment::services(2, 2, Form::Alone),
        env: vec![("FAREGATE_DRAIN_PAUSE_SECONDS", DRAIN_PAUSE.into())],
        ..Options::default()
    };
    let stack = Stack::with(options).await;
    stack.add_credit(&stack.account, usd("100"), "");
    let balancer = Balancer::before(&stack.gateways).await;
    // Release 1.0.0 does not close connections before it begins to refuse requests.
    let connections_are_told = std::env::var_os(PREVIOUS).is_none();
    let keys = join_all((0..BALANCED_KEYS).map(|_| stack.key())).await;
    let (over, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    let restarts = async {
        sleep(Duration::from_secs(1)).await;
        for _ in 0..rounds {
            for which in 0..2 {
                restart(&stack.gateways[which]).await;
                restart(&stack.key_services[which]).await;
            }
        }
        sleep(Duration::from_secs(1)).await;
        over.store(true, Ordering::Relaxed);
    };
    let client = async |number: usize, key: &ApiKey| {
        let mut http = if number.is_multiple_of(4) { Http::http2() } else { Http::new() };
        for turn in number.. {
            if over.load(Ordering::Relaxed) {
                break;
            }
            if !connections_are_told {
                http = http.fresh();
            }
            let script = Script { head_after_ms: 400, ..Script::tokens(12, 20).pace(40) };
            let call = stack.call_to(balancer.url(), key, script).over(&http);
            let call = call.speaking(Dialect::ALL[turn % Dialect::ALL.len()]);
            if turn % 2 == 0 {
                let answer = call.try_send().await.unwrap_or_else(|e| panic!("request {turn}: {e}"));
                assert_eq!(answer.status, 200, "{answer}");
            } else {
                match call.reach_stream().await {
                    Ok(Ok(stream)) => _ = stream.rest().await.assert_done(),
                    Ok(Err(answer)) => panic!("{answer}"),
                    Err(e) => panic!("request {turn}: {e}"),
                }
            }
            sent.fetch_add(1, Ordering::Relaxed);
            sleep(PAUSE).await;
        }
    };
    let clients = keys.iter().cycle().take(BALANCED).enumerate().map(|(number, key)| client(number, key));
    tokio::join!(restarts, join_all(clients));
    println!("{rounds} rounds, {} requests, none failed", sent.into_inner());
    stack.cli(&["audit"]);
}

async fn restart(server: &Server) {
    end(server).await;
    server.restart().await;
    sleep(PAUSE).await;
}

/// Sends requests of all kinds. If a request is refused, or ends before its answer begins, retries it at the other
/// gateway. A balancer or an SDK would do the same.
async fn client(stack: &Stack, number: usize, key: &ApiKey, over: &AtomicBool, sent: &Mutex<Vec<Sent>>) {
    let mut prompts = bills::FEWEST..bills::MOST;
    let mut turn = number;
    while !over.load(Ordering::Relaxed) {
        turn += 1;
        for again in 0..TRIES {
            let prompt = prompts.next().unwrap();
            let (script, streamed) = match turn % 8 {
                // Some streams last longer than a gateway waits for them.
                0 => (Script::tokens(prompt, 150).pace(20), true),
                1 => (Script { head_after_ms: 1_500, ..Script::tokens(prompt, 150) }, false),
                even if even % 2 == 0 => (Script::tokens(prompt, 30).pace(10), true),
                _ => (Script { head_after_ms: 100, ..Script::tokens(prompt, 30) }, false),
            };
            let gateway = (turn + again) % stack.gateways.len();
            let one = bills::send(stack, gateway, key, script, (streamed, 1)).await;
            let again = one.may_be_repeated;
            sent.lock().unwrap().push(one);
            sleep(PAUSE).await;
            if !again {
                break;
            }
        }
    }
}

fn reason(
    generation: &Generation,
    sent: &Sent,
    entry: Option<&Value>,
    restarts: &[Restart],
) -> Option<&'static str> {
    let drained = restarts
        .iter()
        .any(|restart| restart.gateway == sent.gateway && restart.from < sent.to && restart.to > sent.from);
    // When the gateway stops reading, the upstream may already have sent its last tokens. So only the journal entry
    // shows that the stream was cut off.
    let unfinished = entry.is_some_and(|entry| entry["finish_reason"].is_null());
    let cut = drained && generation.streamed && unfinished;
    let right = !bills::is_above(generation, entry) && !bills::is_estimated(entry);
    (cut && right && bills::lacks_only_tokens_on_their_way(generation, sent, entry)).then_some(CUT)
}

/// Asserts that the `used` of each key is the cost of everything that was served with the key, except for differences
/// that have a reason, and that it is the sum of the key's journal.
async fn assert_used_is_served(stack: &Stack, keys: &[ApiKey], differences: &[bills::Difference]) {
    let journal = stack.journal(&stack.account);
    for key in keys {
        let served: i64 =
            stack.served(key).iter().filter(|g| counts(g)).map(|g| cost(FLASH, g.served).nanos()).sum();
        let of_key = differences.iter().filter(|difference| difference.key == key.id);
        let lacking: i64 = of_key.map(|d| d.served.nanos() - d.charged.nanos()).sum();
        let entries = journal.iter().filter(|entry| entry["key_id"] == key.id);
        let charged: i64 = entries.map(|entry| nanos(&entry["charged"]).nanos()).sum();
        let used = stack.used(key).await.nanos();
        assert_eq!((used, charged), (served - lacking, used), "{} used, and its journal", key.id);
    }
}

/// Returns whether a generation is billed. A whole answer is billed if it was finished, and a stream if it had begun.
fn counts(generation: &Generation) -> bool {
    generation.streamed || generation.ended_by(End::Finished)
}
