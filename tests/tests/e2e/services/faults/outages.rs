//! Processes that are killed or hang. No charge is lost or billed twice, and the installation recovers by itself.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use http::Method;
use serde_json::json;
use shared::money::NanoUsd;
use tests::{
    harness::{Answer, ApiKey, Form, LOOK_EVERY, PATIENCE, Server, Stack, cost_of, nanos, usd},
    upstream::Script,
};
use tokio::time::sleep;

use crate::services::{CLIENTS, two_of_each, with_lease};

/// The shortest lease allowed, because tests wait until holds expire. If a store carries out calls that were given up,
/// their holds end only when they expire.
pub(crate) const LEASE: Duration = Duration::from_secs(3);
/// Time within which a stream is stopped if it has used up its grant and gets no extension: the five seconds that are
/// promised, and two more for slow machines. It does not matter whether a call is in flight.
const EXTENDED_WITHIN: Duration = Duration::from_secs(7);
/// Time within which it is noticed that a hold has expired: the second that is promised, and three more for slow
/// machines.
const NOTICING: Duration = Duration::from_secs(4);
/// How often a gateway, a key-service and a Redis are each killed, unless `FAREGATE_TEST_KILLS` sets another number;
/// and the seed that decides the order.
const KILLS: usize = 4;
const SEED: u64 = 4_715_620;

#[apply(fact)]
async fn what_a_killed_gateway_held_is_billed_as_last_reported_while_the_other_serves_on() {
    let stack = with_lease(Form::Cluster, LEASE).await;
    let doomed = stack.open_account("doomed", usd("1"));
    let mut keys = Vec::new();
    for index in 0..12 {
        let account = if index % 2 == 0 { &doomed } else { &stack.account };
        keys.push(stack.key_of(account, json!({})).await);
    }
    let script = Script::tokens(12, 400).pace(25);
    let streams = join_all(
        keys.iter()
            .enumerate()
            .map(|(index, key)| stack.call_at(&stack.gateways[index % 2], key, script.clone()).stream()),
    )
    .await;
    let tags: Vec<_> = streams.iter().map(|stream| stream.tag.clone()).collect();
    let reading: Vec<_> = streams.into_iter().map(|stream| tokio::spawn(stream.rest())).collect();
    sleep(LEASE + LEASE / 3).await;

    stack.kill_gateway(0);
    let killed = Instant::now();
    let other = stack.key().await;
    for _ in 0..20 {
        let answer = stack.call(&other, Script::tokens(12, 5)).send().await;
        assert_eq!((answer.status, answer.cost()), (200, cost_of(12, 5)), "{answer}");
    }
    while stack.balance(&doomed).held != NanoUsd::ZERO {
        assert!(killed.elapsed() < LEASE + NOTICING, "a hold outlives its lease");
        sleep(LOOK_EVERY).await;
    }
    let ended: Vec<_> = join_all(reading).await.into_iter().map(Result::unwrap).collect();

    let mut billed = Vec::new();
    for (index, (key, tag)) in keys.iter().zip(&tags).enumerate() {
        let stopped = stack.upstream.wait_for(tag, "stop", |generation| generation.ended.is_some()).await;
        let used = stack.used(key).await;
        if index % 2 == 0 {
            assert!(ended[index].broken.is_some() && !ended[index].done, "it may not look complete");
            let range = cost_of(12, 1)..=cost_of(12, stopped.served.completion);
            assert!(range.contains(&used), "{used} for {:?}", stopped.served);
        } else {
            assert_eq!((ended[index].assert_done().cost(), used), (cost_of(12, 400), cost_of(12, 400)));
        }
        billed.push(used);
    }
    stack.gateways[0].restart().await;
    sleep(LEASE).await;
    for (key, before) in keys.iter().zip(billed) {
        assert_eq!(stack.used(key).await, before, "billed once");
    }
}

#[apply(fact)]
async fn key_services_that_end_are_not_felt_while_one_is_left() {
    let stack = two_of_each(Form::Alone).await;
    let key = stack.key().await;
    let load = Load::default();
    let end_all_twice = async {
        for (number, key_service) in stack.key_services.iter().chain(&stack.key_services).enumerate() {
            sleep(Duration::from_millis(400)).await;
            if number < stack.key_services.len() {
                key_service.kill();
            } else {
                key_service.interrupt();
                assert!(key_service.ended().await.success());
            }
            sleep(Duration::from_millis(400)).await;
            key_service.restart().await;
        }
        sleep(Duration::from_millis(200)).await;
    };
    load.run(&stack, &key, end_all_twice).await;
    assert_eq!(load.refused(), 0, "calls to the key-service that ended are answered by the other");
    load.assert_billed(&stack, &key, NanoUsd::ZERO).await;
}

#[apply(fact)]
async fn a_key_service_that_hangs_is_left_for_another_and_does_no_harm_when_it_goes_on() {
    let stack = two_of_each(Form::Cluster).await;
    let key = stack.key().await;
    let load = Load::default();
    let hang = async {
        sleep(Duration::from_millis(400)).await;
        for key_service in &stack.key_services {
            key_service.hang();
            sleep(Duration::from_secs(3)).await;
            key_service.resume();
            sleep(Duration::from_millis(400)).await;
        }
    };
    load.run(&stack, &key, hang).await;
    assert_eq!(load.refused(), 0, "calls to the key-service that hung are answered by the other");
    load.assert_billed(&stack, &key, NanoUsd::ZERO).await;
}

#[apply(fact)]
async fn without_a_key_service_nothing_new_is_served_and_what_runs_goes_on_to_the_end_of_its_grant() {
    let stack = two_of_each(Form::Alone).await;
    let key = stack.key().await;
    let start = async |index: usize, tokens| {
        let script = Script::tokens(12, tokens).pace(2);
        let mut stream = stack.call_at(&stack.gateways[index], &key, script).stream().await;
        stream.read_tokens(5).await;
        stream
    };
    let (short, mut long) = tokio::join!(start(0, 500), start(1, 20_000));
    for key_service in &stack.key_services {
        key_service.kill();
    }
    let asked = stack.upstream.generations().len();
    let refused = async {
        let calls = (0..6).map(|_| stack.call(&key, Script::tokens(12, 5)).send());
        for answer in join_all(calls).await {
            answer.assert_error(503, "service_unavailable");
        }
        for gateway in &stack.gateways {
            let url = format!("{}/v1/management/keys", gateway.public());
            let answer = stack.http.send_as(&stack.account.management_key, Method::GET, &url, None).await;
            answer.assert_error(503, "service_unavailable");
        }
    };
    let tag = long.tag.clone();
    let to_the_end = async {
        long.read_tokens(1_000).await;
        let near_the_end = Instant::now();
        (long.rest().await, near_the_end)
    };
    let (short, (long, near_the_end), ()) = tokio::join!(short.rest(), to_the_end, refused);
    assert_eq!(short.assert_done().tokens(), 500, "its grant covers all of it");
    long.assert_error(503, "service_unavailable");
    assert!(long.tokens() >= 1_000, "it goes on to the end of its grant: {long:?}");
    let (_, stopped) = stack.upstream.tagged(&tag).pop().unwrap().ended.unwrap();
    let waited = stopped.duration_since(near_the_end);
    assert!(waited < EXTENDED_WITHIN, "its upstream is stopped after {waited:?}");
    assert_eq!(stack.upstream.generations().len(), asked, "nothing new reached the upstream");

    join_all(stack.key_services.iter().map(Server::restart)).await;
    heals(&stack, &key).await;
    stack.released(PATIENCE).await;
    let since = stack.upstream.generations().len() - asked;
    let short_and_since = cost_of(12, 500).nanos() + times(cost_of(12, 5), since).nanos();
    let of_long = stack.used(&key).await.nanos() - short_and_since;
    // The upstream may have sent tokens while the stream waited for its extension. They are billed too.
    let most = stack.cost_of_served(&key).nanos() - short_and_since;
    assert!((cost_of(12, long.tokens() as u64).nanos()..=most).contains(&of_long), "{of_long} of {most}");
}

#[apply(fact)]
async fn a_redis_that_is_killed_under_load_comes_back_with_every_nano_usd() {
    let stack = with_lease(Form::Cluster, LEASE).await;
    let key = stack.key().await;
    let load = Load::default();
    let kill_twice = async {
        sleep(Duration::from_millis(500)).await;
        stack.redis().kill();
        load.all_refused().await;
        stack.redis().restart().await;
        heals(&stack, &key).await;
        // The next outage is so short that requests only have to wait.
        stack.redis().kill();
        stack.redis().restart().await;
        sleep(Duration::from_millis(500)).await;
    };
    load.run(&stack, &key, kill_twice).await;
    load.assert_billed(&stack, &key, times(cost_of(12, 5), stack.gateways.len())).await;
}

#[apply(fact)]
async fn while_redis_hangs_requests_fail_soon_and_are_billed_once_when_it_goes_on() {
    let stack = with_lease(Form::Alone, LEASE).await;
    let key = stack.key().await;
    let load = Load::default();
    let hang = async {
        sleep(Duration::from_millis(500)).await;
        stack.redis().hang();
        load.all_refused().await;
        stack.redis().resume();
        heals(&stack, &key).await;
    };
    load.run(&stack, &key, hang).await;
    load.assert_billed(&stack, &key, times(cost_of(12, 5), stack.gateways.len())).await;
}

#[apply(fact)]
async fn an_outage_that_outlasts_a_lease_loses_no_charge() {
    let stack = with_lease(Form::Cluster, LEASE).await;
    let key = stack.key().await;
    let script = Script { head_after_ms: 1_000, ..Script::tokens(30, 7) };
    let answers = join_all((0..10).map(|_| stack.call(&key, script.clone()).send()));
    let outage = async {
        sleep(Duration::from_millis(500)).await;
        stack.redis().kill();
        sleep(LEASE + Duration::from_secs(2)).await;
        stack.redis().restart().await;
    };
    let (answers, ()) = tokio::join!(answers, outage);
    assert!(answers.iter().all(|answer| answer.status == 200), "they were authorized before: {answers:?}");
    billed_at_last(&stack, &key, times(cost_of(30, 7), answers.len())).await;
}

/// When the stack is dropped, it checks the bills. Each request that was answered must be billed the cost that the
/// answer reported, and every other request at most the cost of the tokens that were served.
#[apply(fact)]
async fn whatever_is_killed_in_whatever_order_no_nano_usd_is_lost_or_billed_twice() {
    let kills = std::env::var("FAREGATE_TEST_KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let stack = with_lease(Form::Alone, LEASE).await;
    let key = stack.key().await;
    let stop = AtomicBool::new(false);
    let (answered, lost) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let client = async |index: usize| {
        while !stop.load(Ordering::Relaxed) {
            let good = if index.is_multiple_of(2) {
                let script = Script { head_after_ms: 150, ..Script::tokens(30, 7) };
                stack.call(&key, script).try_send().await.is_ok_and(|answer| answer.status == 200)
            } else {
                match stack.call(&key, Script::tokens(30, 20).pace(10)).reach_stream().await {
                    Ok(Ok(stream)) => stream.rest().await.done,
                    Ok(Err(_)) | Err(_) => false,
                }
            };
            if good { &answered } else { &lost }.fetch_add(1, Ordering::Relaxed);
        }
    };
    let killer = async {
        for victim in shuffled(Victim::ALL.repeat(kills)) {
            kill_one(&stack, victim).await;
        }
        heals(&stack, &key).await;
        stop.store(true, Ordering::Relaxed);
    };
    tokio::join!(join_all((0..CLIENTS).map(client)), killer);
    let (answered, lost) = (answered.into_inner(), lost.into_inner());
    println!(
        "{answered} requests were answered and {lost} were not, with {kills} kills of each kind among them"
    );
    assert!(answered > lost, "{answered} requests were answered, {lost} were not");
}

/// A kind of process that is killed.
#[derive(Clone, Copy)]
enum Victim {
    Gateway,
    KeyService,
    Redis,
}

impl Victim {
    const ALL: [Self; 3] = [Self::Gateway, Self::KeyService, Self::Redis];
}

/// Shuffles the kinds, in the same way in every run. Each kind gets a number, which chooses one of the processes of
/// that kind.
fn shuffled(mut victims: Vec<Victim>) -> Vec<(Victim, usize)> {
    let mut chance = SEED;
    let mut next = |below: usize| {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(chance >> 33).unwrap() % below
    };
    for last in (1..victims.len()).rev() {
        victims.swap(last, next(last + 1));
    }
    victims.into_iter().map(|victim| (victim, next(6))).collect()
}

/// Ends one of the processes as a power failure would. Then starts it again.
async fn kill_one(stack: &Stack, (victim, which): (Victim, usize)) {
    let (away, between) = (Duration::from_millis(100), Duration::from_millis(250));
    match victim {
        Victim::Redis => {
            let which = which % stack.redis().masters();
            stack.redis().kill_node(which);
            sleep(away).await;
            stack.redis().restart_node(which).await;
        }
        Victim::KeyService => {
            let key_service = &stack.key_services[which % stack.key_services.len()];
            key_service.kill();
            sleep(away).await;
            key_service.restart().await;
        }
        Victim::Gateway => {
            let which = which % stack.gateways.len();
            stack.kill_gateway(which);
            sleep(away).await;
            stack.gateways[which].restart().await;
        }
    }
    sleep(between).await;
}

/// Clients that send one request after the other, for whole answers and for streams. Each request must be served, or be
/// refused with 503.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    served: AtomicUsize,
    refused: AtomicUsize,
}

impl Load {
    /// Sends requests until `meanwhile` is complete.
    async fn run(&self, stack: &Stack, key: &ApiKey, meanwhile: impl Future<Output = ()>) {
        let until = async {
            meanwhile.await;
            self.stop.store(true, Ordering::Relaxed);
        };
        tokio::join!(join_all((0..CLIENTS).map(|index| self.client(stack, key, index))), until);
    }

    async fn client(&self, stack: &Stack, key: &ApiKey, index: usize) {
        while !self.stop.load(Ordering::Relaxed) {
            let call = stack.call(key, Script::tokens(30, 7).pace(5));
            if index.is_multiple_of(2) {
                self.count(&call.send().await);
            } else {
                match call.try_stream().await {
                    Ok(stream) => {
                        stream.rest().await.assert_done();
                        self.served.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(answer) => self.count(&answer),
                }
            }
        }
    }

    fn count(&self, answer: &Answer) {
        if answer.status == 200 {
            self.served.fetch_add(1, Ordering::Relaxed);
        } else {
            answer.assert_error(503, "service_unavailable");
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until every client was refused at least once.
    async fn all_refused(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.refused() < CLIENTS {
            assert!(Instant::now() < deadline, "requests that cannot be authorized are refused");
            sleep(LOOK_EVERY).await;
        }
    }

    fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// Asserts that the key was billed the cost of the requests that were served, and in addition `beside`.
    async fn assert_billed(&self, stack: &Stack, key: &ApiKey, beside: NanoUsd) {
        let served = self.served.load(Ordering::Relaxed);
        println!("{served} requests were served and {} refused", self.refused());
        let billed = times(cost_of(30, 7), served).checked_add(beside).unwrap();
        billed_at_last(stack, key, billed).await;
    }
}

/// Waits until this amount is billed and nothing is held. A capture that could not reach its store is delivered later.
/// By then, its hold may have expired.
pub(crate) async fn billed_at_last(stack: &Stack, key: &ApiKey, amount: NanoUsd) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let shown = stack.manage_as(&key.account, Method::GET, &format!("/{}", key.id), None).await;
        // The store may not be available again yet.
        if shown.status == 200 && nanos(&shown.json()["used"]) == amount {
            break;
        }
        assert!(Instant::now() < deadline, "{shown}: {amount} was served");
        sleep(LOOK_EVERY).await;
    }
    stack.released(PATIENCE).await;
}

/// Waits until every gateway serves requests again, without any intervention.
pub(crate) async fn heals(stack: &Stack, key: &ApiKey) {
    let deadline = Instant::now() + PATIENCE;
    for gateway in &stack.gateways {
        loop {
            let answer = stack.call_at(gateway, key, Script::tokens(12, 5)).send().await;
            if answer.status == 200 {
                break;
            }
            answer.assert_error(503, "service_unavailable");
            assert!(Instant::now() < deadline, "it does not heal: {answer}");
            sleep(LOOK_EVERY).await;
        }
    }
}

fn times(amount: NanoUsd, count: usize) -> NanoUsd {
    NanoUsd::from_nanos(amount.nanos() * i64::try_from(count).unwrap())
}
