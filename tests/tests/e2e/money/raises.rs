//! Limits that are raised until a certain time. Each request is subject to the limit that is in force when the request
//! is made.

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use shared::{
    clock::{Clock, System},
    ids::GenerationId,
    money::NanoUsd,
    time::Timestamp,
};
use tests::{
    harness::{Answer, ApiKey, Deployment, Form, LOOK_EVERY, Options, PATIENCE, Stack, cost_of, nanos},
    upstream::Script,
};
use tokio::time::{Duration, Instant, sleep};

use crate::money::budgets::{COMPLETION, PROMPT, group, manage, number, requests, send, shown};

/// Number of requests for which the limits in these tests pay while they are not raised.
const PLAIN: i64 = 10;
/// Number of requests in flight around the end of a raise.
const AT_ONCE: usize = 24;
/// How long requests are sent before the end of a raise, and how long after it.
const RACE: Duration = Duration::from_millis(1_500);

/// Returns a time after now, in whole milliseconds. Times in answers are in whole milliseconds too.
fn soon(duration: Duration) -> Timestamp {
    System.now().plus(duration)
}

/// Waits until this instant, according to the clock that the services use.
async fn reached(instant: Timestamp) {
    while System.now() < instant {
        sleep(Duration::from_millis(5)).await;
    }
}

fn raise(requests_paid: i64, until: Timestamp) -> Value {
    json!({"amount": number(requests(requests_paid)), "until": until.to_string()})
}

/// Returns a monthly limit. It pays for `paid` requests and, until `until`, for `raised` requests.
fn month(paid: i64, raised: i64, until: Timestamp) -> Value {
    json!([{"amount": number(requests(paid)), "per": "month", "raised": raise(raised, until)}])
}

async fn patch(stack: &Stack, path: &str, body: Value) -> Answer {
    manage(stack, Method::PATCH, path, Some(body)).await
}

#[apply(fact)]
async fn a_raise_counts_on_the_next_request_and_ends_without_anybodys_act() {
    let stack = Stack::start().await;
    let key = stack.key_with(json!({"limit": number(requests(1))})).await;
    let team = group(&stack, json!({"name": "Team", "limit": number(requests(1))})).await;
    let inside = stack.key_with(json!({"group_id": team["id"]})).await;
    let cases = [
        (&key, format!("/keys/{}", key.id), "key_limit_reached"),
        (&inside, format!("/groups/{}", team["id"].as_str().unwrap()), "group_limit_reached"),
    ];
    for (key, path, code) in cases {
        assert_eq!(send(&stack, key).await.status, 200);
        send(&stack, key).await.assert_error(402, code);
        let until = soon(Duration::from_secs(4));
        let raised = patch(&stack, &path, json!({"limit_raised": raise(9_000, until)})).await;
        assert_eq!(raised.status, 200, "{raised}");
        assert_eq!(nanos(&raised.json()["limit_remaining"]), requests(8_999));
        assert_eq!(raised.json()["limit_raised"]["until"], until.to_string());
        // A stream that begins before the raise ends is billed completely, even if the stream ends later.
        let stream = stack.call(key, Script::tokens(PROMPT, COMPLETION).pace(120)).stream().await;
        assert_eq!(send(&stack, key).await.status, 200);
        reached(until).await;
        send(&stack, key).await.assert_error(402, code);
        assert_eq!(stream.rest().await.assert_done().cost(), cost_of(PROMPT, COMPLETION));
        let over = manage(&stack, Method::GET, &path, None).await.json();
        assert_eq!((&over["limit_raised"], nanos(&over["used"])), (&Value::Null, requests(3)));
        assert_eq!(nanos(&over["limit_remaining"]).nanos(), -requests(2).nanos());
        // A later change does not bring the raise back. A raise that would end in the past is refused.
        assert_eq!(patch(&stack, &path, json!({"metadata": {"a": "b"}})).await.status, 200);
        send(&stack, key).await.assert_error(402, code);
        let late = patch(&stack, &path, json!({"limit_raised": raise(9, until)})).await;
        late.assert_error(400, "invalid_value");
        assert_eq!(late.json()["error"]["param"], "limit_raised.until");
    }
}

/// Keeps sending requests with these keys, many at the same time, until a while after the end of a raise. Returns the
/// answers, each with the time just before its request was sent.
async fn race(stack: &Stack, keys: &[ApiKey], until: Timestamp) -> Vec<(Timestamp, Answer)> {
    reached(until.minus(RACE)).await;
    let last = until.plus(RACE);
    let sender = async |key: &ApiKey| {
        let mut answers = Vec::new();
        while System.now() < last {
            let sent = System.now();
            answers.push((sent, send(stack, key).await));
        }
        answers
    };
    let senders = keys.iter().cycle().take(AT_ONCE).map(sender);
    join_all(senders).await.into_iter().flatten().collect()
}

/// Checks that no request that began after the end of the raise is billed, and that the requests before the end cost no
/// more than the raised limit.
fn judge(stack: &Stack, answers: &[(Timestamp, Answer)], raised: NanoUsd, until: Timestamp, code: &str) {
    let mut served = 0;
    for (sent, answer) in answers {
        match answer.status {
            200 => served += 1,
            402 => drop(answer.assert_error(402, code)),
            _ => drop(answer.assert_error(429, "spend_reserved")),
        }
        assert!(answer.status != 200 || *sent < until, "it was sent at {sent}, after {until}: {answer}");
    }
    let entries = stack.journal(&stack.account);
    let billed: i64 = entries.iter().map(|entry| nanos(&entry["charged"]).nanos()).sum();
    assert_eq!(billed, requests(served).nanos());
    assert!(billed <= raised.nanos(), "{billed} n$ of {raised}");
    assert!(served > PLAIN, "the raise was used: {served} requests");
    for entry in &entries {
        let id: GenerationId = entry["generation_id"].as_str().unwrap().parse().unwrap();
        assert!(id.created_at() < until, "{entry}");
    }
    let refused = answers.iter().filter(|(sent, answer)| *sent >= until && answer.status == 402).count();
    assert!(refused > 0, "requests were sent after the end");
}

/// Sends many requests around the end of a raise, for keys and groups, with a raised limit that they nearly reach and
/// one that they do not.
async fn the_end_of_a_raise_holds_against_many_at_once(deployment: fn() -> Deployment) {
    for (is_of_group, raised) in [(false, 10_000), (true, 10_000), (false, 60), (true, 60)] {
        let stack = Stack::with(Options { deployment: deployment(), ..Options::default() }).await;
        let until = soon(Duration::from_secs(3));
        let limits = json!({"limits": month(PLAIN, raised, until)});
        let (keys, code) = if is_of_group {
            let team = group(&stack, limits).await;
            let keys = join_all((0..4).map(|_| stack.key_with(json!({"group_id": team["id"]})))).await;
            (keys, "group_limit_reached")
        } else {
            (vec![stack.key_with(limits).await], "key_limit_reached")
        };
        let answers = race(&stack, &keys, until).await;
        judge(&stack, &answers, requests(raised), until, code);
    }
}

#[apply(fact)]
async fn no_request_is_held_beyond_the_bound_in_force_while_many_race_over_the_end_of_a_raise() {
    the_end_of_a_raise_holds_against_many_at_once(|| Deployment::AllInOne).await;
}

#[apply(fact)]
async fn no_request_is_held_beyond_the_bound_in_force_on_two_key_services_either() {
    the_end_of_a_raise_holds_against_many_at_once(|| Deployment::services(2, 2, Form::Alone)).await;
}

#[apply(fact)]
async fn the_limit_itself_is_exact_again_after_a_raise_that_was_not_used_up() {
    let stack = Stack::start().await;
    let until = soon(Duration::from_secs(2));
    let key = stack.key_with(json!({"limits": month(PLAIN, 3 * PLAIN, until)})).await;
    for _ in 0..3 {
        assert_eq!(send(&stack, &key).await.status, 200);
    }
    reached(until).await;
    let answers = join_all((0..60).map(|_| send(&stack, &key))).await;
    let served = answers.iter().filter(|answer| answer.status == 200).count();
    let deadline = Instant::now() + PATIENCE;
    let mut more = 0;
    while nanos(&stack.show(&key).await["limits"][0]["used"]) < requests(PLAIN) {
        assert!(Instant::now() < deadline, "the limit cannot be used up");
        more += i64::from(send(&stack, &key).await.status == 200);
        sleep(LOOK_EVERY).await;
    }
    send(&stack, &key).await.assert_error(402, "key_limit_reached");
    let month = stack.show(&key).await["limits"][0].clone();
    assert_eq!((nanos(&month["used"]), &month["raised"]), (requests(PLAIN), &Value::Null));
    assert_eq!(i64::try_from(served).unwrap() + more, PLAIN - 3);
}

#[apply(fact)]
async fn events_tell_what_was_raised_and_which_parts_of_the_bound_in_force_are_used() {
    let stack = Stack::start().await;
    let team = group(&stack, json!({"name": "Team", "limit": number(requests(2))})).await;
    let key = stack.key_with(json!({"group_id": team["id"]})).await;
    let until = soon(Duration::from_secs(3));
    let path = format!("/groups/{}", team["id"].as_str().unwrap());
    let raised = patch(&stack, &path, json!({"limit_raised": raise(4, until)})).await;
    assert_eq!(raised.status, 200, "{raised}");
    for _ in 0..3 {
        assert_eq!(send(&stack, &key).await.status, 200);
    }
    reached(until).await;
    send(&stack, &key).await.assert_error(402, "group_limit_reached");
    let events = manage(&stack, Method::GET, "/events", None).await.json();
    let events = events["data"].as_array().unwrap().iter().rev();
    let told = events.filter(|event| event["data"]["percent"].is_number());
    let told: Vec<_> = told
        .map(|event| (event["data"]["percent"].as_i64().unwrap(), nanos(&event["data"]["amount"])))
        .collect();
    assert_eq!(told, [(50, requests(4)), (100, requests(2))]);
    let updated = manage(&stack, Method::GET, "/events?type=group.updated", None).await.json();
    let changes = &updated["data"][0]["data"]["changes"];
    assert_eq!(changes, &json!({"limit_raised": [null, raise(4, until)]}));
    assert_eq!(shown(&stack, &team).await["limit_raised"], Value::Null);
}
