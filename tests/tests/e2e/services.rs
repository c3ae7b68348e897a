//! Two gateways, two key-services, one Redis: the same facts, whichever of them a request meets and whichever dies.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use http::Method;
use serde_json::json;
use shared::money::NanoUsd;
use tests::{
    harness::{Answer, ApiKey, Deployment, LOOK_EVERY, Options, PATIENCE, Server, Stack, cost_of},
    upstream::Script,
};
use tokio::time::sleep;

use crate::caps;

/// A revocation ends streams within five seconds; the rest is for slow machines.
const REVOCATION: Duration = Duration::from_secs(7);
/// The shortest that is allowed, to be waited for.
const LEASE: Duration = Duration::from_secs(3);
/// Keys revoked under load, and the requests that each is tried with from then on.
const REVOKED: usize = 6;
const TRIES: usize = 400;
/// Clients that send one request after the other.
const CLIENTS: usize = 8;

async fn two_of_each() -> Stack {
    with_lease(Options::default().lease).await
}

async fn with_lease(lease: Duration) -> Stack {
    let deployment = Deployment::Services { gateways: 2, key_services: 2 };
    Stack::with(Options { deployment, lease, ..Options::default() }).await
}

fn times(amount: NanoUsd, count: usize) -> NanoUsd {
    NanoUsd::from_nanos(amount.nanos() * i64::try_from(count).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_request_costs_exactly_its_tokens_whichever_gateway_carries_it() {
    let stack = two_of_each().await;
    let key = stack.key().await;
    let mut spent = 0;
    for round in 0..4 {
        let answer = stack.call(&key, Script::tokens(12, 5)).send().await;
        assert_eq!((answer.status, answer.cost()), (200, cost_of(12, 5)), "{answer}");
        spent += cost_of(12, 5).nanos();
        assert_eq!(stack.used(&key).await.nanos(), spent, "whole, round {round}: the other gateway knows");
        let ended = stack.call(&key, Script::tokens(1_000, 50)).stream().await.rest().await;
        assert_eq!(ended.assert_done().cost(), cost_of(1_000, 50));
        spent += cost_of(1_000, 50).nanos();
        // One more, so that the next round meets the gateways the other way round.
        assert_eq!(stack.get(&key, "/v1/models").await.status, 200);
        assert_eq!(stack.used(&key).await.nanos(), spent, "streamed, round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_limit_holds_against_400_requests_over_both_gateways_and_can_be_spent_to_its_end() {
    let stack = two_of_each().await;
    let limit = caps::cap();
    let keys = [stack.key_limited(limit).await];
    caps::storm(&stack, &keys, limit, "key_limit_reached").await;
    caps::spend_the_rest(&stack, &keys, limit, "key_limit_reached").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn credit_holds_against_400_requests_of_several_keys_over_both_gateways() {
    let stack = two_of_each().await;
    let credit = caps::cap();
    let account = stack.open_account("tight", credit);
    let keys = join_all((0..4).map(|_| stack.key_of(&account, json!({})))).await;
    caps::storm(&stack, &keys, credit, "insufficient_credits").await;
    caps::spend_the_rest(&stack, &keys, credit, "insufficient_credits").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn once_a_revocation_is_answered_no_gateway_serves_the_key() {
    let stack = two_of_each().await;
    for _ in 0..REVOKED {
        let key = stack.key().await;
        let (revoked, tries) = (AtomicBool::new(false), AtomicUsize::new(0));
        let client = async || {
            while tries.load(Ordering::Relaxed) < TRIES {
                let must_fail = revoked.load(Ordering::Relaxed);
                let answer = stack.call(&key, Script::tokens(3, 1)).send().await;
                if must_fail {
                    answer.assert_error(401, "invalid_api_key");
                    tries.fetch_add(1, Ordering::Relaxed);
                } else {
                    assert!(matches!(answer.status, 200 | 401), "{answer}");
                }
            }
        };
        let revocation = async {
            sleep(Duration::from_millis(100)).await;
            stack.revoke(&key).await;
            revoked.store(true, Ordering::Relaxed);
        };
        tokio::join!(join_all((0..CLIENTS).map(|_| client())), revocation);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_revocation_ends_the_streams_of_both_gateways() {
    let stack = two_of_each().await;
    let key = stack.key().await;
    let mut streams = Vec::new();
    for gateway in &stack.gateways {
        let call = stack.call_at(gateway, &key, Script::tokens(10, 5_000).pace(20));
        streams.push(call.stream().await);
    }
    for stream in &mut streams {
        stream.read_tokens(5).await;
    }
    stack.revoke(&key).await;
    let revoked = Instant::now();
    let mut delivered = 0;
    for ended in join_all(streams.into_iter().map(tests::harness::Stream::rest)).await {
        ended.assert_error(401, "invalid_api_key");
        delivered += cost_of(10, ended.tokens() as u64).nanos();
    }
    assert!(revoked.elapsed() < REVOCATION, "after {:?}", revoked.elapsed());
    stack.released(PATIENCE).await;
    assert_eq!(stack.used(&key).await.nanos(), delivered, "what was delivered until then is billed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_a_killed_gateway_held_is_billed_as_last_reported_while_the_other_serves_on() {
    let stack = with_lease(LEASE).await;
    let keys = join_all((0..12).map(|_| stack.key())).await;
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
    let ended: Vec<_> = join_all(reading).await.into_iter().map(Result::unwrap).collect();
    stack.released(PATIENCE).await;
    println!("the last hold ended {:?} after the gateway", killed.elapsed());

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

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn killed_key_services_are_not_felt_while_one_is_left() {
    let stack = two_of_each().await;
    let key = stack.key().await;
    let stop = AtomicBool::new(false);
    let served = AtomicUsize::new(0);
    let client = async |index: usize| {
        while !stop.load(Ordering::Relaxed) {
            if index.is_multiple_of(2) {
                let answer = stack.call(&key, Script::tokens(30, 7)).send().await;
                assert_eq!(answer.status, 200, "{answer}");
            } else {
                let stream = stack.call(&key, Script::tokens(30, 7).pace(5)).stream().await;
                stream.rest().await.assert_done();
            }
            served.fetch_add(1, Ordering::Relaxed);
        }
    };
    let killer = async {
        for key_service in stack.key_services.iter().chain(&stack.key_services) {
            sleep(Duration::from_millis(400)).await;
            key_service.kill();
            sleep(Duration::from_millis(400)).await;
            key_service.restart().await;
        }
        sleep(Duration::from_millis(200)).await;
        stop.store(true, Ordering::Relaxed);
    };
    tokio::join!(join_all((0..CLIENTS).map(client)), killer);
    stack.released(PATIENCE).await;
    assert_eq!(stack.used(&key).await, times(cost_of(30, 7), served.load(Ordering::Relaxed)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn without_a_key_service_nothing_new_is_served_and_what_runs_goes_on_to_the_end_of_its_grant() {
    let stack = two_of_each().await;
    let key = stack.key().await;
    let start = async |index: usize, tokens| {
        let script = Script::tokens(12, tokens).pace(2);
        let mut stream = stack.call_at(&stack.gateways[index], &key, script).stream().await;
        stream.read_tokens(5).await;
        stream
    };
    let (short, long) = tokio::join!(start(0, 500), start(1, 20_000));
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
    let (short, long, ()) = tokio::join!(short.rest(), long.rest(), refused);
    assert_eq!(short.assert_done().tokens(), 500, "its grant covers all of it");
    long.assert_error(503, "service_unavailable");
    assert!(long.tokens() >= 1_000, "it goes on to the end of its grant: {long:?}");
    assert_eq!(stack.upstream.generations().len(), asked, "nothing new reached the upstream");

    join_all(stack.key_services.iter().map(Server::restart)).await;
    heals(&stack, &key).await;
    stack.released(PATIENCE).await;
    let delivered = cost_of(12, 500).nanos() + cost_of(12, long.tokens() as u64).nanos();
    let since = stack.upstream.generations().len() - asked;
    assert_eq!(stack.used(&key).await.nanos(), delivered + times(cost_of(12, 5), since).nanos());
}

/// Waits until requests are served again over every gateway, with nothing but time to help.
async fn heals(stack: &Stack, key: &ApiKey) {
    let deadline = Instant::now() + Duration::from_secs(10);
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

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_redis_that_is_killed_under_load_comes_back_with_every_nano_usd() {
    let stack = two_of_each().await;
    let key = stack.key().await;
    let stop = AtomicBool::new(false);
    let (served, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let count = |answer: Result<(), Answer>| match answer {
        Ok(()) => served.fetch_add(1, Ordering::Relaxed),
        Err(answer) => {
            answer.assert_error(503, "service_unavailable");
            refused.fetch_add(1, Ordering::Relaxed)
        }
    };
    let client = async |index: usize| {
        while !stop.load(Ordering::Relaxed) {
            let call = stack.call(&key, Script::tokens(30, 7).pace(5));
            if index.is_multiple_of(2) {
                let answer = call.send().await;
                count(if answer.status == 200 { Ok(()) } else { Err(answer) });
            } else {
                match call.try_stream().await {
                    Ok(stream) => {
                        stream.rest().await.assert_done();
                        count(Ok(()));
                    }
                    Err(answer) => {
                        count(Err(answer));
                    }
                }
            }
        }
    };
    let killer = async {
        sleep(Duration::from_millis(500)).await;
        stack.redis().kill();
        let deadline = Instant::now() + PATIENCE;
        while refused.load(Ordering::Relaxed) < CLIENTS {
            assert!(Instant::now() < deadline, "what cannot be authorized is refused");
            sleep(LOOK_EVERY).await;
        }
        stack.redis().restart().await;
        heals(&stack, &key).await;
        // And an end so short that it is only waited for.
        stack.redis().kill();
        stack.redis().restart().await;
        sleep(Duration::from_millis(500)).await;
        stop.store(true, Ordering::Relaxed);
    };
    tokio::join!(join_all((0..CLIENTS).map(client)), killer);
    stack.released(PATIENCE).await;
    let healing = times(cost_of(12, 5), stack.gateways.len());
    let load = times(cost_of(30, 7), served.load(Ordering::Relaxed));
    assert_eq!(stack.used(&key).await, healing.checked_add(load).unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_gateway_with_a_wrong_internal_token_serves_nobody_and_says_why() {
    let deployment = Deployment::Services { gateways: 1, key_services: 1 };
    let stack = Stack::with(Options { deployment, ..Options::default() }).await;
    let key = stack.key().await;
    let stranger = stack.another_gateway(vec![("FAREGATE_INTERNAL_TOKEN", "a-guess".into())]).await;
    let answer = stack.call_at(&stranger, &key, Script::tokens(12, 5)).send().await;
    answer.assert_error(503, "service_unavailable");
    assert!(stack.upstream.generations().is_empty());
    assert!(stranger.log().contains("token"), "{}", stranger.last_words());
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200, "others are served");
}
