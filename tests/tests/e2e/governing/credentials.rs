//! Authentication and authorization: accepted credentials, and the order in which errors are reported.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use shared::money::NanoUsd;
use tests::{
    harness::{Answer, ApiKey, Stack, cost_of, raw},
    upstream::{End, Fault, Script},
};

/// Time within which a revocation ends streams: the promised five seconds, plus one for slow machines.
const REVOCATION: Duration = Duration::from_secs(6);

async fn models(stack: &Stack, secret: &str) -> Answer {
    stack.http.send_as(secret, Method::GET, &stack.url("/v1/models"), None).await
}

#[apply(fact)]
async fn only_one_bearer_token_with_a_right_checksum_is_a_credential() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let answer = |authorization: String| {
        let request =
            format!("GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{authorization}\r\n");
        let base = stack.server().public();
        async move { raw(base, &request).await }
    };
    let good = format!("authorization: bEaReR {}\r\n", key.secret);
    assert!(answer(good.clone()).await.starts_with("HTTP/1.1 200"), "the scheme is case-insensitive");
    let changed = key.secret.replacen("_api_", "_api_x", 1);
    let cases = [
        (String::new(), "missing_api_key"),
        ("authorization: Basic abc\r\n".into(), "invalid_authorization_header"),
        ("authorization: Bearer\r\n".into(), "invalid_authorization_header"),
        (format!("authorization: {}\r\n", key.secret), "invalid_authorization_header"),
        (format!("{good}{good}"), "invalid_authorization_header"),
        ("authorization: Bearer sk-other\r\n".into(), "invalid_api_key"),
        (format!("authorization: Bearer {changed}\r\n"), "invalid_api_key"),
        (format!("authorization: Bearer {}\r\n", &key.secret[..key.secret.len() - 1]), "invalid_api_key"),
    ];
    for (authorization, code) in cases {
        let said = answer(authorization.clone()).await;
        assert!(said.starts_with("HTTP/1.1 401"), "{authorization}: {said}");
        assert!(said.contains(&format!("\"code\":\"{code}\"")), "{authorization}: {said}");
        assert!(said.to_lowercase().contains("www-authenticate: bearer realm=\"api\""), "{said}");
    }
}

#[apply(fact)]
async fn each_class_of_key_opens_its_own_doors_only() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let management = &stack.account.management_key;
    let keys = stack.url("/v1/management/keys");

    let wrong = models(&stack, management).await;
    wrong.assert_error(403, "management_key_not_allowed");
    assert!(wrong.header("www-authenticate").contains("insufficient_scope"), "{wrong}");
    stack
        .http
        .send_as(&key.secret, Method::GET, &keys, None)
        .await
        .assert_error(403, "management_key_required");
    stack
        .http
        .send_as("nonsense", Method::GET, &keys, None)
        .await
        .assert_error(401, "invalid_management_key");

    // Keys of the wrong class that are also unknown or revoked get the error for an unknown key.
    let revoked = stack.key().await;
    stack.revoke(&revoked).await;
    let answer = stack.http.send_as(&revoked.secret, Method::GET, &keys, None).await;
    answer.assert_error(401, "invalid_management_key");
    let printed =
        stack.cli(&["management-keys", "create", "--account", &stack.account.name, "--name", "gone"]);
    let gone = printed.trim();
    let listed: Value = serde_json::from_str(&stack.cli(&[
        "management-keys",
        "list",
        "--account",
        &stack.account.name,
        "--json",
    ]))
    .unwrap();
    let id = listed.as_array().unwrap().iter().find(|key| key["name"] == "gone").unwrap()["id"].clone();
    stack.cli(&["management-keys", "revoke", "--id", id.as_str().unwrap()]);
    models(&stack, gone).await.assert_error(401, "invalid_api_key");
    stack.http.send_as(gone, Method::GET, &keys, None).await.assert_error(401, "invalid_management_key");
}

#[apply(fact)]
async fn checks_have_an_order_and_begin_with_whether_the_caller_may_call() {
    let stack = Stack::start().await;
    let poor = stack.open_account("poor", NanoUsd::ZERO);
    let past = "2020-01-01T00:00:00Z";
    let revoked = stack.key_of(&poor, json!({"limit": 0, "expires_at": past})).await;
    stack.revoke(&revoked).await;
    let disabled = json!({"limit": 0, "expires_at": past, "disabled": true});
    let cases = [
        (revoked, 401, "invalid_api_key"),
        (stack.key_of(&poor, disabled).await, 401, "key_disabled"),
        (stack.key_of(&poor, json!({"limit": 0, "expires_at": past})).await, 401, "key_expired"),
        (stack.key_of(&poor, json!({"limit": 0})).await, 402, "key_limit_reached"),
        (stack.key_of(&poor, json!({})).await, 402, "insufficient_credits"),
    ];
    for (key, status, code) in &cases {
        models(&stack, &key.secret).await.assert_error(*status, code);
        stack.get(key, "/v1/models/nothing").await.assert_error(*status, code);
        let wrong = stack.call(key, Script::default()).with("model", "nothing").without("messages");
        wrong.clone().send().await.assert_error(*status, code);
        let url = stack.url("/v1/chat/completions");
        let typed = http::Request::post(url)
            .header("authorization", format!("Bearer {}", key.secret))
            .header("content-type", "text/plain")
            .body(http_body_util::Full::from("{"))
            .unwrap();
        stack.http.send(typed).await.assert_error(*status, code);
    }
    // Next come errors in the body, then an unknown model, and the balance last.
    let nearly_empty = stack.key_limited(NanoUsd::from_nanos(1)).await;
    let call = stack.call(&nearly_empty, Script::default());
    let unknown = call.clone().with("model", "nothing");
    unknown.clone().with("temperature", 9).send().await.assert_error(400, "decimal_above_max_value");
    unknown.send().await.assert_error(404, "model_not_found");
    call.send().await.assert_error(402, "key_limit_reached");
    assert!(stack.upstream.generations().is_empty());
}

#[apply(fact)]
async fn a_caller_who_is_not_known_never_makes_us_read_a_large_body() {
    let stack = Stack::start().await;
    let request = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
        authorization: Bearer sk-unknown\r\ncontent-length: 60000000\r\nconnection: close\r\n\r\n{";
    let said = raw(stack.server().public(), request).await;
    assert!(said.starts_with("HTTP/1.1 401") && said.contains("invalid_api_key"), "{said}");
}

#[apply(fact)]
async fn a_revoked_key_fails_on_its_very_next_request() {
    let stack = Stack::start().await;
    for _ in 0..5 {
        let key = stack.key().await;
        assert_eq!(stack.call(&key, Script::default()).send().await.status, 200);
        assert_eq!(models(&stack, &key.secret).await.status, 200);
        stack.revoke(&key).await;
        stack.call(&key, Script::default()).send().await.assert_error(401, "invalid_api_key");
        models(&stack, &key.secret).await.assert_error(401, "invalid_api_key");
    }
}

#[apply(fact)]
async fn a_revocation_ends_streams_under_way_and_lets_whole_answers_finish() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let mut stream = stack.call(&key, Script::tokens(10, 5_000).pace(20)).stream().await;
    stream.read_tokens(5).await;
    let mut silent = stack.call(&key, Script::tokens(10, 50).fault(Fault::Stall { after: 3 })).stream().await;
    silent.read_tokens(3).await;
    let slow = stack.call(&key, Script { head_after_ms: 1_500, ..Script::tokens(10, 5) });
    let slow_tag = slow.tag.clone();
    let whole = tokio::spawn(slow.send());
    stack.upstream.wait_for(&slow_tag, "arrive", |_| true).await;

    stack.revoke(&key).await;
    let revoked = Instant::now();
    let tags = [stream.tag.clone(), silent.tag.clone()];
    let (ended, silenced) = tokio::join!(stream.rest(), silent.rest());
    assert!(revoked.elapsed() < REVOCATION, "after {:?}", revoked.elapsed());
    ended.assert_error(401, "invalid_api_key");
    silenced.assert_error(401, "invalid_api_key");
    for tag in tags {
        stack.upstream.wait_for(&tag, "stop", |generation| generation.ended.is_some()).await;
    }
    let answer = whole.await.unwrap();
    assert_eq!((answer.status, answer.cost()), (200, cost_of(10, 5)), "{answer}");
    stack.released(Duration::from_secs(5)).await;
    let least = cost_of(10, ended.tokens() as u64).nanos() + cost_of(10, 3).nanos() + cost_of(10, 5).nanos();
    assert!(stack.used(&key).await.nanos() >= least, "the tokens generated until then are billed");
}

#[apply(fact)]
async fn a_disabled_key_fails_on_its_very_next_request_until_it_is_enabled_again() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    for _ in 0..3 {
        assert_eq!(stack.call(&key, Script::default()).send().await.status, 200);
        assert_eq!(models(&stack, &key.secret).await.status, 200);
        stack.disable(&key, true).await;
        let refused = stack.call(&key, Script::default()).send().await;
        refused.assert_error(401, "key_disabled");
        assert_eq!(refused.header("x-should-retry"), "false");
        models(&stack, &key.secret).await.assert_error(401, "key_disabled");
        stack.get(&key, "/v1/key").await.assert_error(401, "key_disabled");
        stack.disable(&key, false).await;
    }
    assert_eq!(stack.call(&key, Script::default()).send().await.status, 200);
}

#[apply(fact)]
async fn streams_of_a_key_that_is_disabled_end_and_its_whole_answers_finish() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let mut stream = stack.call(&key, Script::tokens(10, 5_000).pace(20)).stream().await;
    stream.read_tokens(5).await;
    let slow = stack.call(&key, Script { head_after_ms: 1_500, ..Script::tokens(10, 5) });
    let slow_tag = slow.tag.clone();
    let whole = tokio::spawn(slow.send());
    stack.upstream.wait_for(&slow_tag, "arrive", |_| true).await;

    stack.disable(&key, true).await;
    let disabled = Instant::now();
    let tag = stream.tag.clone();
    let ended = stream.rest().await;
    assert!(disabled.elapsed() < REVOCATION, "after {:?}", disabled.elapsed());
    ended.assert_error(401, "key_disabled");
    stack.upstream.wait_for(&tag, "stop", |generation| generation.ended.is_some()).await;
    let answer = whole.await.unwrap();
    assert_eq!((answer.status, answer.cost()), (200, cost_of(10, 5)), "{answer}");
    stack.released(Duration::from_secs(5)).await;
    stack.disable(&key, false).await;
    assert_eq!(stack.call(&key, Script::default()).send().await.status, 200);
}

#[apply(fact)]
async fn a_revocation_ends_a_stream_whose_upstream_has_not_begun_and_costs_nothing() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let stream = stack.call(&key, Script { head_after_ms: 20_000, ..Script::tokens(10, 5) });
    let slow = stack.call(&key, Script { head_after_ms: 5_000, ..Script::tokens(10, 5) });
    let (tag, slow_tag) = (stream.tag.clone(), slow.tag.clone());
    let (streamed, whole) = (tokio::spawn(stream.try_stream()), tokio::spawn(slow.send()));
    for tag in [&tag, &slow_tag] {
        stack.upstream.wait_for(tag, "arrive", |_| true).await;
    }

    stack.revoke(&key).await;
    let revoked = Instant::now();
    let refused = streamed.await.unwrap().err().expect("the stream is refused");
    assert!(revoked.elapsed() < REVOCATION, "after {:?}", revoked.elapsed());
    refused.assert_error(401, "invalid_api_key");
    assert!(refused.header("www-authenticate").contains("error=\"invalid_token\""), "{refused}");
    let served = stack.upstream.wait_for(&tag, "stop", |generation| generation.ended.is_some()).await;
    assert!(served.ended_by(End::ClientLeft), "{served:?}");
    let answer = whole.await.unwrap();
    assert_eq!((answer.status, answer.cost()), (200, cost_of(10, 5)), "{answer}");
    stack.released(Duration::from_secs(5)).await;
    assert_eq!(stack.used(&key).await, cost_of(10, 5), "only the whole answer is billed");
}

#[apply(fact)]
async fn a_key_expires_at_its_time_and_can_be_revived() {
    let stack = Stack::start().await;
    let key = stack.key_with(json!({"expires_at": "2999-01-01T00:00:00Z"})).await;
    let patch = |key: &ApiKey, at: Value| {
        let path = format!("/{}", key.id);
        let (stack, body) = (&stack, json!({ "expires_at": at }));
        async move { stack.manage(Method::PATCH, &path, Some(body)).await.json() }
    };
    assert_eq!(stack.call(&key, Script::default()).send().await.status, 200);
    assert_eq!(patch(&key, json!("2020-01-01T00:00:00Z")).await["status"], "expired");
    stack.call(&key, Script::default()).send().await.assert_error(401, "key_expired");
    assert_eq!(patch(&key, Value::Null).await["status"], "active");
    assert_eq!(stack.call(&key, Script::default()).send().await.status, 200);
    let born_expired = stack.key_with(json!({"expires_at": "2020-01-01T00:00:00Z"})).await;
    models(&stack, &born_expired.secret).await.assert_error(401, "key_expired");
}
