//! Keys that are rotated under load, with two gateways and two key-services.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use shared::{
    clock::{Clock as _, System},
    time::Timestamp,
};
use tests::{
    harness::{ApiKey, Form, PATIENCE, Stack},
    upstream::Script,
};
use tokio::time::sleep;

use super::two_of_each;

/// Grace period, in seconds, of the rotation under load.
const GRACE: u64 = 3;
/// Number of clients that use the old plaintext. The same number of clients use the new one.
const CLIENTS: usize = 4;
/// After a plaintext has ended, this many requests with it must be refused.
const REFUSED: usize = 200;
/// Number of rotations that have no grace period.
const ROTATIONS: usize = 6;

/// Rotates a key. Returns the object, and the key with its new plaintext.
async fn rotate(stack: &Stack, key: &ApiKey, terms: Value) -> (Value, ApiKey) {
    let answer = stack.manage(Method::POST, &format!("/{}/rotate", key.id), Some(terms)).await;
    assert_eq!(answer.status, 200, "{answer}");
    let object = answer.json();
    let secret = object["key"].as_str().unwrap().to_owned();
    (object, ApiKey { secret, ..key.clone() })
}

/// Sends a small request, or asks for the key or for the models. Returns the status.
async fn status(stack: &Stack, key: &ApiKey, turn: usize) -> u16 {
    let answer = match turn % 4 {
        0 => stack.get(key, "/v1/key").await,
        1 => stack.get(key, "/v1/models").await,
        _ => stack.call(key, Script::tokens(3, 1)).send().await,
    };
    if answer.status == 401 {
        answer.assert_error(401, "invalid_api_key");
    }
    answer.status
}

#[apply(fact)]
async fn both_plaintexts_are_served_until_the_grace_is_over_and_then_the_new_one_alone() {
    let stack = two_of_each(Form::Cluster).await;
    let old = stack.key().await;
    assert_eq!(status(&stack, &old, 2).await, 200);
    let mut running = Vec::new();
    for gateway in &stack.gateways {
        running.push(stack.call_at(gateway, &old, Script::tokens(10, 400).pace(20)).stream().await);
    }
    let (object, new) = rotate(&stack, &old, json!({"grace_seconds": GRACE})).await;
    let ends = Timestamp::parse(object["previous_key_expires_at"].as_str().unwrap()).unwrap();
    let (refused, served_old, served_new) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let is_over = || refused.load(Ordering::Relaxed) >= REFUSED;
    let with_old = async |client: usize| {
        for turn in client.. {
            if is_over() {
                break;
            }
            let began = System.now();
            let status = status(&stack, &old, turn).await;
            let ended = System.now();
            assert!(status == 200 || status == 401 && ended >= ends, "{status} at {ended}, before {ends}");
            assert!(status == 401 || began < ends, "{status} at {began}, after {ends}");
            let count = if status == 200 { &served_old } else { &refused };
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    let with_new = async |client: usize| {
        for turn in client.. {
            if is_over() {
                break;
            }
            assert_eq!(status(&stack, &new, turn).await, 200);
            served_new.fetch_add(1, Ordering::Relaxed);
        }
    };
    tokio::join!(join_all((0..CLIENTS).map(with_old)), join_all((0..CLIENTS).map(with_new)));
    let [served_old, served_new, refused] = [served_old, served_new, refused].map(AtomicUsize::into_inner);
    println!(
        "served: {served_old} with the old plaintext, {served_new} with the new one; refused: {refused}"
    );
    assert!(served_old > 0 && served_new > 0);
    // Streams that began with the old plaintext go on.
    for stream in running {
        stream.rest().await.assert_done();
    }
}

#[apply(fact)]
async fn without_a_grace_no_gateway_serves_the_old_plaintext_once_the_rotation_is_answered() {
    let stack = two_of_each(Form::Alone).await;
    let mut key = stack.key().await;
    let mut plaintexts = BTreeSet::from([key.secret.clone()]);
    for round in 0..ROTATIONS {
        let (rotated, tries) = (AtomicBool::new(false), AtomicUsize::new(0));
        let old = key.clone();
        let client = async |client: usize| {
            for turn in client.. {
                if tries.load(Ordering::Relaxed) >= REFUSED {
                    break;
                }
                let must_fail = rotated.load(Ordering::Relaxed);
                let status = status(&stack, &old, turn).await;
                assert!(status == 401 || status == 200 && !must_fail, "{status} in round {round}");
                if must_fail {
                    tries.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        let rotation = async {
            sleep(Duration::from_millis(50)).await;
            let (_, new) = rotate(&stack, &old, json!({})).await;
            rotated.store(true, Ordering::Relaxed);
            for turn in 0..8 {
                assert_eq!(status(&stack, &new, turn).await, 200, "round {round}");
            }
            new
        };
        (_, key) = tokio::join!(join_all((0..CLIENTS).map(client)), rotation);
        assert!(plaintexts.insert(key.secret.clone()));
    }
    // All earlier plaintexts are still refused, at both gateways.
    for secret in plaintexts.iter().filter(|secret| **secret != key.secret) {
        for turn in 0..4 {
            let earlier = ApiKey { secret: secret.clone(), ..key.clone() };
            assert_eq!(status(&stack, &earlier, turn).await, 401);
        }
    }
}

#[apply(fact)]
async fn a_revocation_ends_both_plaintexts_on_every_gateway() {
    let stack = two_of_each(Form::Cluster).await;
    let old = stack.key().await;
    let (_, new) = rotate(&stack, &old, json!({"grace_seconds": 2_592_000})).await;
    let (revoked, tries) = (AtomicBool::new(false), AtomicUsize::new(0));
    let client = async |number: usize| {
        let key = if number.is_multiple_of(2) { &old } else { &new };
        for turn in number.. {
            if tries.load(Ordering::Relaxed) >= 2 * REFUSED {
                break;
            }
            let must_fail = revoked.load(Ordering::Relaxed);
            let status = status(&stack, key, turn).await;
            assert!(status == 401 || status == 200 && !must_fail, "{status}");
            if must_fail {
                tries.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let revocation = async {
        sleep(Duration::from_millis(100)).await;
        stack.revoke(&old).await;
        revoked.store(true, Ordering::Relaxed);
    };
    tokio::join!(join_all((0..2 * CLIENTS).map(client)), revocation);
    stack.released(PATIENCE).await;
}

#[apply(fact)]
async fn the_operator_rotates_a_key_with_a_command() {
    let stack = two_of_each(Form::Alone).await;
    let old = stack.key().await;
    let arguments = ["keys", "rotate", "--account", &old.account.name, "--id", &old.id];
    let printed = stack.cli(&[&arguments[..], &["--grace-seconds", "600"]].concat());
    let new = ApiKey { secret: printed.trim().to_owned(), ..old.clone() };
    for (turn, key) in [&old, &new, &old, &new].into_iter().enumerate() {
        assert_eq!(status(&stack, key, turn).await, 200);
    }
    let forced = stack.cli(&[&arguments[..], &["--force"]].concat());
    let forced = ApiKey { secret: forced.trim().to_owned(), ..old.clone() };
    for (key, expected) in [(&old, 401), (&new, 401), (&forced, 200)] {
        assert_eq!(status(&stack, key, 2).await, expected);
    }
}
