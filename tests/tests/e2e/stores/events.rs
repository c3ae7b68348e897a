//! Changes and bills, and their events, while processes are killed. There is never a change or a bill without its
//! event, and never an event without what it reports.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Method, Request, header};
use http_body_util::Full;
use serde_json::{Value, json};
use shared::money::NanoUsd;
use tests::{
    harness::{Answer, ApiKey, Deployment, Form, LOOK_EVERY, Options, PATIENCE, Stack, cost_of, nanos},
    upstream::Script,
};
use tokio::time::{Instant, sleep};

use crate::services::from_environment;

/// Number of kills with both stores together, unless `FAREGATE_TEST_EVENT_KILLS` sets another.
const KILLS: u64 = 40;
/// Seed from which the changes follow.
const SEED: u64 = 20_261_123;
/// Number of clients that make changes, and number of clients that spend.
const GOVERNORS: u64 = 4;
const SPENDERS: usize = 2;
/// After this many kills, a client that spends gets another key. `REQUESTS` is the number of requests for which the
/// limit of such a key pays.
const KILLS_A_KEY: u64 = 4;
const REQUESTS: i64 = 4;
/// Minimum number of changes that are made between two kills.
const ACTS: u64 = 3;
/// The shortest lease allowed, because the test waits until it expires.
const LEASE: Duration = Duration::from_secs(3);

/// The objects that the clients have created, and numbers of what they have done.
#[derive(Default)]
struct Made {
    keys: Mutex<Vec<String>>,
    groups: Mutex<Vec<String>>,
    acts: AtomicU64,
    stop: AtomicBool,
}

#[apply(fact)]
async fn every_act_and_every_threshold_leaves_one_event_whatever_is_killed() {
    kill_and_compare(Deployment::AllInOne).await;
}

#[apply(fact)]
async fn every_act_and_every_threshold_leaves_one_event_over_a_redis_whatever_is_killed() {
    kill_and_compare(Deployment::services(1, 1, Form::Alone)).await;
}

/// While clients make changes and spend, kills the process that writes. Then compares the result with the events.
async fn kill_and_compare(deployment: Deployment) {
    let kills = from_environment("FAREGATE_TEST_EVENT_KILLS", KILLS) / 2;
    let stack = Stack::with(Options { deployment, lease: LEASE, ..Options::default() }).await;
    let limit: Value = serde_json::from_str(&spent(REQUESTS).to_string()).unwrap();
    let limited = || stack.key_with(json!({"label": "spends", "limit": limit}));
    let mut spenders: Vec<Vec<ApiKey>> = Vec::new();
    for _ in 0..SPENDERS {
        spenders.push(join_all((0..=kills / KILLS_A_KEY).map(|_| limited())).await);
    }
    let made = Made::default();
    let killer = async {
        for _ in 0..kills {
            let before = made.acts.load(Ordering::Relaxed);
            let deadline = Instant::now() + PATIENCE;
            while made.acts.load(Ordering::Relaxed) < before + ACTS {
                assert!(Instant::now() < deadline, "nothing is done any more");
                sleep(Duration::from_millis(1)).await;
            }
            match stack.key_services.first() {
                Some(key_service) => {
                    key_service.kill();
                    key_service.restart().await;
                }
                None => stack.crash().await,
            }
        }
        made.stop.store(true, Ordering::Relaxed);
    };
    let governors = join_all((0..GOVERNORS).map(|n| govern(&stack, &made, SEED + n)));
    let spending = join_all(spenders.iter().map(|keys| spend(&stack, &made, keys)));
    tokio::join!(killer, governors, spending);
    stack.released(PATIENCE).await;

    let events = exported(&stack);
    let acts = compare_objects(&stack, &events).await;
    let passed = compare_thresholds(&stack, &events, &spenders.concat()).await;
    assert!(acts > 0 && passed > 0, "{acts} events of acts, {passed} of thresholds");
    let (sent, total) = (made.acts.into_inner(), events.len());
    println!("{kills} kills, {sent} acts answered, {total} events: {acts} of acts, {passed} of thresholds");
}

/// Returns the cost of this many requests of a client that spends.
fn spent(requests: i64) -> NanoUsd {
    NanoUsd::from_nanos(requests * cost_of(10, 5).nanos())
}

/// Creates, changes and ends keys and groups at random until it is told to stop.
async fn govern(stack: &Stack, made: &Made, mut chance: u64) {
    let mut next = move |below: u64| {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (chance >> 33) % below
    };
    while !made.stop.load(Ordering::Relaxed) {
        let (kind, number) = (next(20), next(1 << 20));
        let pick = |of: &Mutex<Vec<String>>| {
            let of = of.lock().unwrap();
            usize::try_from(number).ok().and_then(|number| of.get(number % of.len().max(1)).cloned())
        };
        let label = format!("label {number}");
        let (key, group) = (pick(&made.keys), pick(&made.groups));
        let of = |kind: &str, id: &Option<String>| id.as_ref().map(|id| format!("/{kind}/{id}"));
        let act = match kind {
            0..6 => Some((Method::POST, "/keys".to_owned(), json!({"label": label}))),
            6..13 => {
                of("keys", &key).map(|path| (Method::PATCH, path, json!({"label": label, "limit": number})))
            }
            13..15 => of("keys", &key).map(|path| (Method::DELETE, path, Value::Null)),
            15..17 => Some((Method::POST, "/groups".to_owned(), json!({"name": label}))),
            17..19 => of("groups", &group).map(|path| (Method::PATCH, path, json!({"name": label}))),
            _ => of("groups", &group).map(|path| (Method::DELETE, path, Value::Null)),
        };
        let Some((method, path, body)) = act else { continue };
        // If there is no answer, the change may have been made or not. The comparison finds out.
        let Ok(answer) = manage(stack, method, &path, &body).await else {
            sleep(LOOK_EVERY).await;
            continue;
        };
        if answer.status == 201 {
            let of = if path == "/keys" { &made.keys } else { &made.groups };
            of.lock().unwrap().push(answer.json()["id"].as_str().unwrap().to_owned());
        }
        made.acts.fetch_add(u64::from(answer.status < 300), Ordering::Relaxed);
    }
}

/// Sends one request after the other. Uses one key until its limit is used up, and then the next key.
async fn spend(stack: &Stack, made: &Made, keys: &[ApiKey]) {
    for key in keys.iter().cycle() {
        if made.stop.load(Ordering::Relaxed) {
            return;
        }
        for _ in 0..REQUESTS {
            // If the process is killed, there is no answer. The books are compared when the stack is dropped.
            if stack.call(key, Script::tokens(10, 5)).try_send().await.is_err() {
                sleep(LOOK_EVERY).await;
            }
        }
    }
}

/// Sends a management request. Returns an error if there is no answer.
async fn manage(stack: &Stack, method: Method, path: &str, body: &Value) -> Result<Answer, String> {
    let mut request = Request::builder().method(method).uri(stack.url(&format!("/v1/management{path}")));
    request = request.header(header::AUTHORIZATION, format!("Bearer {}", stack.account.management_key));
    let mut bytes = Bytes::new();
    if !body.is_null() {
        request = request.header(header::CONTENT_TYPE, "application/json");
        bytes = Bytes::from(body.to_string());
    }
    Answer::read(stack.http.open(request.body(Full::new(bytes)).unwrap()).await?).await
}

/// Returns all events of the account in their order. Asserts that their numbers have no gaps, and that no two have the
/// same id.
fn exported(stack: &Stack) -> Vec<Value> {
    let printed = stack.cli(&["events", "export", "--account", &stack.account.name]);
    let events: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ids: BTreeSet<&str> = events.iter().map(|event| event["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), events.len(), "an id comes twice");
    assert!((1..).zip(&events).all(|(n, event)| event["seq"] == n), "a number is missing");
    events
}

/// Compares each key and each group with the events about it. Returns the number of these events.
async fn compare_objects(stack: &Stack, events: &[Value]) -> usize {
    let mut compared = 0;
    for (kind, plural, member, ended) in
        [("key", "keys", "key_id", "revoked"), ("group", "groups", "group_id", "archived")]
    {
        for object in all(stack, plural).await {
            let id = &object["id"];
            let created = format!("{kind}.created");
            let of_acts = [created.as_str(), &format!("{kind}.updated"), &format!("{kind}.{ended}")];
            let its: Vec<&Value> = events
                .iter()
                .filter(|event| event[member] == *id && of_acts.iter().any(|kind| event["type"] == *kind))
                .collect();
            let count = |name: &str| its.iter().filter(|event| event["type"] == name).count();
            assert_eq!((count(&created), &its[0]["type"]), (1, &json!(created)), "{object}: {its:#?}");
            let has_ended = !object[format!("{ended}_at")].is_null();
            assert_eq!(count(of_acts[2]), usize::from(has_ended), "{object}: {its:#?}");
            assert_leads_to(&object, &its);
            compared += its.len();
        }
    }
    let of_acts = |event: &&Value| {
        let kind = event["type"].as_str().unwrap();
        (kind.starts_with("key.") || kind.starts_with("group."))
            && !kind.ends_with("threshold_reached")
            && !kind.ends_with("limit_reached")
    };
    assert_eq!(events.iter().filter(of_acts).count(), compared, "an event is of no object");
    compared
}

/// Asserts that each change of an object begins where the change before it ended, and that the last one ends in the
/// object's present state.
fn assert_leads_to(object: &Value, events: &[&Value]) {
    let mut state: BTreeMap<&str, &Value> = BTreeMap::new();
    for event in events {
        let Some(changes) = event["data"]["changes"].as_object() else { continue };
        for (field, change) in changes {
            if let Some(before) = state.insert(field, &change[1]) {
                assert_eq!(*before, change[0], "`{field}` of {object}: {events:#?}");
            }
        }
    }
    for (field, now) in state {
        assert_eq!(object[field], *now, "`{field}` of {object}: {events:#?}");
    }
}

/// Compares what the keys of clients that spend have used with the events about thresholds. Returns the number of these
/// events.
async fn compare_thresholds(stack: &Stack, events: &[Value], keys: &[ApiKey]) -> usize {
    let mut compared = 0;
    for key in keys {
        let object = stack.show(key).await;
        let (used, limit) = (nanos(&object["used"]).nanos(), nanos(&object["limit"]).nanos());
        let told = |name: &str| {
            let its = events.iter().filter(|event| event["key_id"] == *key.id && event["type"] == name);
            its.map(|event| event["data"]["percent"].as_i64().unwrap()).collect::<Vec<_>>()
        };
        let passed: Vec<i64> =
            [50, 80, 95].into_iter().filter(|percent| used * 100 >= limit * percent).collect();
        assert_eq!(told("key.threshold_reached"), passed, "{object}");
        let at_limit = told("key.limit_reached");
        // The event is also recorded when what is left cannot pay for a request.
        assert!(at_limit.is_empty() && used < limit || at_limit == [100], "{object}: {at_limit:?}");
        compared += passed.len() + at_limit.len();
    }
    compared
}

/// Returns all objects of a kind. They are listed page by page.
async fn all(stack: &Stack, plural: &str) -> Vec<Value> {
    let mut objects: Vec<Value> = Vec::new();
    loop {
        let after =
            objects.last().map_or(String::new(), |last| format!("&after={}", last["id"].as_str().unwrap()));
        let page = manage(stack, Method::GET, &format!("/{plural}?limit=1000{after}"), &Value::Null).await;
        let page = page.unwrap().json();
        objects.extend(page["data"].as_array().unwrap().iter().cloned());
        if page["has_more"] == false {
            return objects;
        }
    }
}
