//! Limits of keys and groups. They hold at every level, a refusal says at which level the limit is, and windows are
//! renewed.

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use shared::money::NanoUsd;
use tests::{
    harness::{Answer, ApiKey, FLASH, MAX, Stack, Stream, cost_of, nanos},
    upstream::Script,
};

/// Number of prompt tokens, and of output tokens, in the requests of several tests.
pub(crate) const PROMPT: u64 = 30;
pub(crate) const COMPLETION: u64 = 40;

/// Returns an amount as a number for JSON.
pub(crate) fn number(amount: NanoUsd) -> Value {
    serde_json::from_str(&amount.to_string()).unwrap()
}

/// Returns the cost of this many requests.
pub(crate) fn requests(count: i64) -> NanoUsd {
    NanoUsd::from_nanos(cost_of(PROMPT, COMPLETION).nanos() * count)
}

/// Sends a management request to a path. `path` is the part after `/v1/management`.
pub(crate) async fn manage(stack: &Stack, method: Method, path: &str, body: Option<Value>) -> Answer {
    let url = stack.url(&format!("/v1/management{path}"));
    stack.http.send_as(&stack.account.management_key, method, &url, body).await
}

/// Creates a group, and returns its object.
pub(crate) async fn group(stack: &Stack, body: Value) -> Value {
    let answer = manage(stack, Method::POST, "/groups", Some(body)).await;
    assert_eq!(answer.status, 201, "{answer}");
    answer.json()
}

/// Reads a group again.
pub(crate) async fn shown(stack: &Stack, group: &Value) -> Value {
    let answer =
        manage(stack, Method::GET, &format!("/groups/{}", group["id"].as_str().unwrap()), None).await;
    assert_eq!(answer.status, 200, "{answer}");
    answer.json()
}

/// Sends a request that is not streamed. Its `max_tokens` is exactly the number of tokens that the upstream generates.
pub(crate) async fn send(stack: &Stack, key: &ApiKey) -> Answer {
    stack.call(key, Script::tokens(PROMPT, COMPLETION)).with("max_tokens", COMPLETION).send().await
}

/// Sends requests with `send`, one after the other, until one is refused. Returns how many were served, and the
/// refusal.
async fn until_refused(stack: &Stack, key: &ApiKey) -> (i64, Answer) {
    for count in 0..100 {
        let answer = send(stack, key).await;
        if answer.status != 200 {
            return (count, answer);
        }
    }
    panic!("no request was refused");
}

#[apply(fact)]
async fn the_tightest_level_of_key_group_and_parent_refuses_and_is_named() {
    let stack = Stack::start().await;
    let course = group(&stack, json!({"name": "Course 101", "limit": number(requests(8))})).await;
    let team =
        group(&stack, json!({"name": "Team A", "parent_id": course["id"], "limit": number(requests(5))}))
            .await;
    let first = stack.key_with(json!({"group_id": team["id"], "limit": number(requests(3))})).await;
    let second = stack.key_with(json!({"group_id": team["id"]})).await;
    let third = stack.key_with(json!({"group_id": course["id"]})).await;

    let (count, refused) = until_refused(&stack, &first).await;
    assert_eq!(count, 3);
    refused.assert_error(402, "key_limit_reached");
    assert_eq!(refused.json()["error"]["resets_at"], Value::Null, "a lifetime limit does not renew");
    let (count, refused) = until_refused(&stack, &second).await;
    assert_eq!(count, 2);
    refused.assert_error(402, "group_limit_reached");
    let (count, refused) = until_refused(&stack, &third).await;
    assert_eq!(count, 3, "the parent has what the team did not use");
    refused.assert_error(402, "group_limit_reached");

    assert_eq!(nanos(&shown(&stack, &team).await["used"]), requests(5));
    let course = shown(&stack, &course).await;
    assert_eq!((nanos(&course["used"]), nanos(&course["limit_remaining"])), (requests(8), NanoUsd::ZERO));
}

#[apply(fact)]
async fn a_window_that_is_used_up_tells_when_it_renews() {
    let stack = Stack::start().await;
    let limits = json!([{"amount": number(requests(2)), "per": "month"}, {"amount": number(requests(3)), "per": "hour"}]);
    let key = stack.key_with(json!({ "limits": limits })).await;
    let (count, refused) = until_refused(&stack, &key).await;
    assert_eq!(count, 2);
    refused.assert_error(402, "key_limit_reached");
    let shown = stack.show(&key).await;
    let month = shown["limits"].as_array().unwrap().iter().find(|limit| limit["per"] == "month").unwrap();
    assert_eq!(refused.json()["error"]["resets_at"], month["resets_at"], "{refused}");
    assert!(month["resets_at"].as_str().unwrap().ends_with("-01T00:00:00Z"), "{month}");
    assert_eq!((nanos(&month["used"]), nanos(&month["remaining"])), (requests(2), NanoUsd::ZERO));
}

#[apply(fact)]
async fn streams_of_a_group_end_at_the_last_token_that_the_group_can_pay() {
    let stack = Stack::start().await;
    let limit = cost_of(100, 3_000);
    let group = group(&stack, json!({"name": "one stream", "limit": number(limit)})).await;
    let key = stack.key_with(json!({"group_id": group["id"]})).await;
    let ended = stack.call(&key, Script::tokens(100, 50_000)).stream().await.rest().await;
    assert_eq!(ended.assert_done().finish_reasons(), ["length"]);
    assert_eq!(nanos(&shown(&stack, &group).await["used"]), limit);
}

#[apply(fact)]
async fn a_group_holds_against_200_requests_at_once_of_twenty_keys() {
    let stack = Stack::start().await;
    let limit = requests(25);
    let group = group(&stack, json!({"name": "many", "limit": number(limit)})).await;
    let keys = join_all((0..20).map(|_| stack.key_with(json!({"group_id": group["id"]})))).await;
    let script = Script { head_after_ms: 30, ..Script::tokens(PROMPT, COMPLETION) };
    let calls = (0..200)
        .zip(keys.iter().cycle())
        .map(|(_, key)| stack.call(key, script.clone()).with("max_tokens", COMPLETION).send());
    let answers = join_all(calls).await;
    let billed: i64 = answers.iter().filter(|a| a.status == 200).map(|a| a.cost().nanos()).sum();
    for refused in answers.iter().filter(|answer| answer.status != 200) {
        match refused.status {
            402 => refused.assert_error(402, "group_limit_reached"),
            _ => refused.assert_error(429, "spend_reserved"),
        };
    }
    let used = nanos(&shown(&stack, &group).await["used"]);
    assert!(used <= limit && used.nanos() == billed, "{used} of {limit}, {billed} n$ were billed");
}

#[apply(fact)]
async fn a_key_sees_and_calls_only_the_models_that_all_its_levels_allow() {
    let stack = Stack::start().await;
    let group = group(&stack, json!({"name": "flash only", "models": [FLASH, "Model Later"]})).await;
    let key = stack.key_with(json!({"group_id": group["id"], "models": [FLASH, MAX]})).await;
    let listed = stack.get(&key, "/v1/models").await.json();
    let ids: Vec<&str> =
        listed["data"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [FLASH]);
    assert_eq!(send(&stack, &key).await.status, 200);
    let refused = stack.call(&key, Script::tokens(3, 1)).with("model", MAX).send().await;
    refused.assert_error(403, "model_not_allowed");
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains(FLASH), "{refused}");
    stack
        .call(&key, Script::tokens(3, 1))
        .with("model", "Model Typo")
        .send()
        .await
        .assert_error(404, "model_not_found");
}

#[apply(fact)]
async fn requests_per_minute_admit_exactly_as_many_at_once() {
    let stack = Stack::start().await;
    let key = stack.key_with(json!({"requests_per_minute": 20})).await;
    let answers = join_all((0..100).map(|_| send(&stack, &key))).await;
    let admitted = answers.iter().filter(|answer| answer.status == 200).count();
    // While the requests arrive, the rate allows one more every three seconds.
    assert!((20..=24).contains(&admitted), "{admitted} were admitted");
    let refused = answers.iter().find(|answer| answer.status != 200).unwrap();
    assert_eq!((refused.status, refused.code().as_str()), (429, "rate_limit_exceeded"), "{refused}");
    let wait: u64 = refused.header("retry-after").parse().unwrap_or_else(|_| panic!("{refused}"));
    assert!((1..=3).contains(&wait), "{refused}");
    let answered = answers.iter().find(|answer| answer.status == 200).unwrap();
    assert_eq!(answered.header("x-ratelimit-limit-requests"), "20", "{answered}");
    assert!(answered.header("x-ratelimit-remaining-requests").parse::<u64>().unwrap() < 20, "{answered}");
    assert!(!answered.header("x-ratelimit-reset-requests").is_empty(), "{answered}");
    assert_eq!(stack.get(&key, "/v1/models").await.status, 200, "a listing does not count");
}

#[apply(fact)]
async fn tokens_per_minute_count_what_was_used_and_not_the_bound() {
    let stack = Stack::start().await;
    let key = stack.key_with(json!({"tokens_per_minute": 1_000})).await;
    let mut used = 0;
    for _ in 0..5 {
        let answer = stack.call(&key, Script::tokens(30, 20)).with("max_tokens", 20).send().await;
        assert_eq!(answer.status, 200, "{answer}");
        used += 50;
        let remaining: u64 = answer.header("x-ratelimit-remaining-tokens").parse().unwrap();
        assert!(remaining <= 1_000, "{used} are used: {answer}");
    }
    // An answer in flight may exceed the rate. Then the next request has to wait.
    let answer = stack.call(&key, Script::tokens(30, 2_000)).with("max_tokens", 2_000).send().await;
    assert_eq!(answer.status, 200, "{answer}");
    let refused = send(&stack, &key).await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "rate_limit_exceeded"), "{refused}");
    assert!(refused.header("retry-after").parse::<u64>().unwrap() > 30, "{refused}");
}

#[apply(fact)]
async fn requests_in_flight_are_bounded_at_the_parent_and_free_when_they_end() {
    let stack = Stack::start().await;
    let course = group(&stack, json!({"name": "two at once", "max_in_flight": 2})).await;
    let team = group(&stack, json!({"name": "team", "parent_id": course["id"]})).await;
    let key = stack.key_with(json!({"group_id": team["id"]})).await;
    let long = Script::tokens(10, 500).pace(10);
    let mut streams: Vec<Stream> = Vec::new();
    for _ in 0..2 {
        let mut stream = stack.call(&key, long.clone()).stream().await;
        stream.read_tokens(2).await;
        streams.push(stream);
    }
    let refused = send(&stack, &key).await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "rate_limit_exceeded"), "{refused}");
    assert!(!refused.header("retry-after").is_empty(), "{refused}");
    for ended in join_all(streams.into_iter().map(Stream::rest)).await {
        ended.assert_done();
    }
    assert_eq!(send(&stack, &key).await.status, 200);
}

#[apply(fact)]
async fn an_archived_group_refuses_its_keys_and_those_of_its_children_and_ends_their_streams() {
    let stack = Stack::start().await;
    let course = group(&stack, json!({"name": "course"})).await;
    let team = group(&stack, json!({"name": "team", "parent_id": course["id"]})).await;
    let key = stack.key_with(json!({"group_id": team["id"]})).await;
    let mut stream = stack.call(&key, Script::tokens(10, 5_000).pace(20)).stream().await;
    stream.read_tokens(5).await;
    let path = format!("/groups/{}", course["id"].as_str().unwrap());
    let archived = manage(&stack, Method::DELETE, &path, None).await;
    assert_eq!(archived.status, 200, "{archived}");
    assert!(archived.json()["archived_at"].is_string(), "{archived}");
    let again = manage(&stack, Method::DELETE, &path, None).await;
    assert_eq!((again.status, &again.json()["archived_at"]), (200, &archived.json()["archived_at"]));
    send(&stack, &key).await.assert_error(401, "group_archived");
    stack.get(&key, "/v1/models").await.assert_error(401, "group_archived");
    stream.rest().await.assert_error(401, "group_archived");
    let body = json!({"group_id": team["id"]});
    let made = manage(&stack, Method::POST, "/keys", Some(body)).await;
    assert_eq!((made.status, made.code().as_str()), (409, "group_archived"), "{made}");
}

#[apply(fact)]
async fn a_key_that_moves_leaves_history_and_open_holds_with_its_group() {
    let stack = Stack::start().await;
    let [old, new] =
        [group(&stack, json!({"name": "old"})).await, group(&stack, json!({"name": "new"})).await];
    let key = stack.key_with(json!({"group_id": old["id"]})).await;
    assert_eq!(send(&stack, &key).await.status, 200);
    let mut stream = stack.call(&key, Script::tokens(10, 200).pace(5)).stream().await;
    stream.read_tokens(5).await;
    let moved =
        stack.manage(Method::PATCH, &format!("/{}", key.id), Some(json!({"group_id": new["id"]}))).await;
    assert_eq!((moved.status, &moved.json()["group_id"]), (200, &new["id"]), "{moved}");
    let streamed = stream.rest().await.assert_done().cost();
    assert_eq!(send(&stack, &key).await.status, 200);
    let before = NanoUsd::from_nanos(requests(1).nanos() + streamed.nanos());
    assert_eq!(nanos(&shown(&stack, &old).await["used"]), before);
    assert_eq!(nanos(&shown(&stack, &new).await["used"]), requests(1));
}

#[apply(fact)]
async fn all_keys_of_a_group_are_revoked_at_once() {
    let stack = Stack::start().await;
    let group = group(&stack, json!({"name": "leavers"})).await;
    let keys = join_all((0..30).map(|_| stack.key_with(json!({"group_id": group["id"]})))).await;
    let other = stack.key().await;
    let path = format!("/groups/{}/revoke_keys", group["id"].as_str().unwrap());
    let answer = manage(&stack, Method::POST, &path, None).await;
    assert_eq!(answer.status, 200, "{answer}");
    for key in &keys {
        send(&stack, key).await.assert_error(401, "invalid_api_key");
    }
    assert_eq!(send(&stack, &other).await.status, 200);
}

#[apply(fact)]
async fn an_own_key_is_shown_to_its_holder_with_its_groups_even_when_nothing_is_left() {
    let stack = Stack::start().await;
    let course = group(&stack, json!({"name": "course"})).await;
    let team = group(&stack, json!({"name": "team", "parent_id": course["id"]})).await;
    let key = stack.key_with(json!({"group_id": team["id"], "limit": number(requests(1))})).await;
    assert_eq!(send(&stack, &key).await.status, 200);
    send(&stack, &key).await.assert_error(402, "key_limit_reached");
    let own = stack.get(&key, "/v1/key").await;
    assert_eq!(own.status, 200, "{own}");
    let own = own.json();
    assert_eq!((&own["id"], nanos(&own["used"])), (&json!(key.id), requests(1)));
    assert_eq!((&own["group"]["name"], &own["group"]["parent"]["name"]), (&json!("team"), &json!("course")));
    assert_eq!(own.get("key"), None);
}

#[apply(fact)]
async fn a_group_is_made_once_for_each_external_id() {
    let stack = Stack::start().await;
    let made = group(&stack, json!({"name": "Acme", "external_id": "cus_1"})).await;
    let again =
        manage(&stack, Method::POST, "/groups", Some(json!({"name": "Other", "external_id": "cus_1"}))).await;
    assert_eq!((again.status, &again.json()["id"], &again.json()["name"]), (200, &made["id"], &made["name"]));
    let found = manage(&stack, Method::GET, "/groups?external_id=cus_1", None).await.json();
    assert_eq!(found["data"].as_array().unwrap().len(), 1);
}

#[apply(fact)]
async fn reading_shows_credit_usage_and_generations_by_group() {
    let stack = Stack::start().await;
    let team = group(&stack, json!({"name": "team"})).await;
    let key = stack.key_with(json!({"group_id": team["id"]})).await;
    let lone = stack.key().await;
    let answer = send(&stack, &key).await;
    let id = answer.header("x-generation-id").to_owned();
    assert_eq!(send(&stack, &lone).await.status, 200);

    let credits = manage(&stack, Method::GET, "/credits", None).await.json();
    assert_eq!(nanos(&credits["total_used"]), requests(2), "{credits}");
    let usage = manage(&stack, Method::GET, "/usage?group_by=group", None).await.json();
    let of_team = usage["data"].as_array().unwrap().iter().find(|line| line["group_id"] == team["id"]);
    let of_team = of_team.unwrap_or_else(|| panic!("{usage}"));
    assert_eq!((nanos(&of_team["cost"]), &of_team["requests"]), (requests(1), &json!(1)));
    let path = format!("/generations?group_id={}", team["id"].as_str().unwrap());
    let listed = manage(&stack, Method::GET, &path, None).await.json();
    assert_eq!(listed["data"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed["data"][0]["id"], id);
    let one = manage(&stack, Method::GET, &format!("/generations/{id}"), None).await.json();
    assert_eq!((&one["group_id"], nanos(&one["cost"])), (&team["id"], requests(1)));
}
