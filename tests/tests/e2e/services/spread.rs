//! As long as one key-service is healthy, another one that hangs or dies has no effect on requests, and abandoned calls
//! leave no holds.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::json;
use shared::money::NanoUsd;
use tests::{
    harness::{Form, Server, Stack, nanos},
    upstream::Script,
};
use tokio::time::{sleep, timeout};

use super::two_of_each;

/// Time within which holds are released: far less than a lease, so that the test fails if a hold merely expires.
const SETTLING: Duration = Duration::from_secs(10);
/// Maximum time that a management request may take while a key-service is down.
const BEARABLE: Duration = Duration::from_secs(5);
/// Longer than a gateway waits for an authorization.
const GIVEN_UP: Duration = Duration::from_secs(4);

/// Sends every kind of management request through both gateways; none may fail.
async fn govern(stack: &Stack, rounds: usize) {
    for round in 0..rounds {
        let began = Instant::now();
        let key = stack.key_with(json!({"label": format!("round {round}")})).await;
        let path = format!("/{}", key.id);
        let changed = stack.manage(Method::PATCH, &path, Some(json!({"limit": 1}))).await;
        assert_eq!(
            (changed.status, nanos(&changed.json()["limit"]).nanos()),
            (200, 1_000_000_000),
            "{changed}"
        );
        assert_eq!(stack.manage(Method::GET, "", None).await.status, 200);
        stack.revoke(&key).await;
        assert_eq!(stack.show(&key).await["status"], "revoked");
        assert!(began.elapsed() < 5 * BEARABLE, "after {:?}", began.elapsed());
    }
}

#[apply(fact)]
async fn management_goes_on_while_a_key_service_is_dead_or_hangs() {
    let stack = two_of_each(Form::Cluster).await;
    govern(&stack, 2).await;
    for key_service in &stack.key_services {
        key_service.kill();
        govern(&stack, 4).await;
        key_service.restart().await;
        key_service.hang();
        govern(&stack, 4).await;
        key_service.resume();
        govern(&stack, 1).await;
    }
}

#[apply(fact)]
async fn a_key_is_made_once_whichever_key_service_dies_meanwhile() {
    let stack = two_of_each(Form::Alone).await;
    let killer = async {
        for key_service in stack.key_services.iter().chain(&stack.key_services) {
            sleep(Duration::from_millis(150)).await;
            key_service.kill();
            sleep(Duration::from_millis(150)).await;
            key_service.restart().await;
        }
    };
    let mut made = 0;
    let maker = async {
        for number in 0..60 {
            let body = json!({"label": format!("number {number}")});
            let answer = stack.manage(Method::POST, "", Some(body)).await;
            // A call whose connection broke may have been carried out, so it is not repeated.
            assert!(matches!(answer.status, 201 | 503), "{answer}");
            made += usize::from(answer.status == 201);
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::join!(maker, killer);
    let listed = stack.manage(Method::GET, "", None).await.json();
    let labels: Vec<&str> =
        listed["data"].as_array().unwrap().iter().map(|k| k["label"].as_str().unwrap()).collect();
    let mut different = labels.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), labels.len(), "a key was made twice");
    assert!((made..=60).contains(&labels.len()) && made > 40, "{made} of {}", labels.len());
}

#[apply(fact)]
async fn calls_that_were_given_up_while_no_key_service_answered_leave_no_hold() {
    let stack = two_of_each(Form::Cluster).await;
    let key = stack.key().await;
    stack.key_services.iter().for_each(Server::hang);
    for number in 0..20 {
        let call = stack.call(&key, Script::tokens(12, 5));
        let given_up = if number % 2 == 0 {
            timeout(Duration::from_millis(50), call.try_send()).await.is_err()
        } else {
            timeout(Duration::from_millis(50), call.reach_stream()).await.is_err()
        };
        assert!(given_up, "no key-service could answer");
    }
    // After this time, no gateway waits for any of the calls.
    sleep(GIVEN_UP).await;
    stack.key_services.iter().for_each(Server::resume);
    // In this time, the key-services read the calls that were sent to them.
    sleep(Duration::from_secs(1)).await;
    stack.released(SETTLING).await;
    assert_eq!(stack.used(&key).await, NanoUsd::ZERO);
    assert!(stack.upstream.generations().is_empty(), "nothing reached the upstream");
}

#[apply(fact)]
async fn a_call_that_is_over_before_a_hung_key_service_goes_on_leaves_no_hold() {
    let stack = two_of_each(Form::Alone).await;
    let key = stack.key().await;
    for key_service in &stack.key_services {
        key_service.hang();
        for gateway in &stack.gateways {
            // The client leaves before the first token, and its hold is released.
            let script = Script { head_after_ms: 2_000, ..Script::tokens(12, 5) };
            let call = stack.call_at(gateway, &key, script);
            assert!(timeout(Duration::from_millis(1_500), call.reach_stream()).await.is_err());
        }
        stack.released(SETTLING).await;
        key_service.resume();
        sleep(Duration::from_secs(1)).await;
        stack.released(SETTLING).await;
    }
}
