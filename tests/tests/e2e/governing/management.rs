//! The management API, called through the gateway's address as clients do.

use std::time::Duration;

use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};
use shared::money::NanoUsd;
use tests::harness::{Answer, Deployment, Form, Options, Stack};
use tokio::time::sleep;

#[apply(fact)]
async fn a_key_is_made_shown_changed_and_revoked() {
    let stack = Stack::start().await;
    let made = stack.manage(Method::POST, "", Some(json!({"label": "Customer A", "limit": 25}))).await;
    assert_eq!(made.status, 201, "{made}");
    made.assert_request_id();
    let mut object = made.json();
    let id = object["id"].as_str().unwrap().to_owned();
    let path = format!("/{id}");
    assert_eq!(made.header("location"), format!("/v1/management/keys/{id}"));
    assert_eq!(made.header("cache-control"), "no-store");
    let plaintext = object.as_object_mut().unwrap().remove("key").unwrap();
    let plaintext = plaintext.as_str().unwrap();
    assert!(plaintext.starts_with("fg_api_") && plaintext.len() == "fg_api_".len() + 49, "{plaintext}");
    let hint = object["key_hint"].as_str().unwrap();
    assert!(plaintext.starts_with(&hint[..11]) && plaintext.ends_with(&hint[hint.len() - 4..]), "{hint}");
    let created_at = object["created_at"].clone();
    let expected = json!({"id": id, "object": "api_key", "label": "Customer A", "key_hint": hint, "status": "active",
        "limit": 25, "used": 0, "limit_remaining": 25, "limit_raised": null, "limits": null, "models": null, "requests_per_minute": null,
        "tokens_per_minute": null, "max_in_flight": null, "created_at": created_at, "expires_at": null,
        "disabled": false, "last_used_at": null, "revoked_at": null, "previous_key_expires_at": null, "group_id": null, "metadata": {}});
    assert_eq!(object, expected);

    assert_eq!(stack.manage(Method::GET, &path, None).await.json(), expected);
    let change = json!({"label": "B", "limit": null, "expires_at": "2999-12-31T23:59:59+02:00"});
    let changed = stack.manage(Method::PATCH, &path, Some(change)).await;
    assert_eq!(changed.status, 200, "{changed}");
    let changed = changed.json();
    assert_eq!(
        (&changed["label"], &changed["limit"], &changed["limit_remaining"]),
        (&json!("B"), &Value::Null, &Value::Null)
    );
    assert_eq!(changed["expires_at"], "2999-12-31T21:59:59Z");
    assert_eq!(
        stack.manage(Method::PATCH, &path, Some(json!({}))).await.json(),
        changed,
        "nothing asked, nothing changed"
    );

    let revoked = stack.manage(Method::DELETE, &path, None).await;
    assert_eq!((revoked.status, &revoked.json()["status"]), (200, &json!("revoked")), "{revoked}");
    assert_eq!(
        stack.manage(Method::DELETE, &path, None).await.json(),
        revoked.json(),
        "the same instant again"
    );
    let late = stack.manage(Method::PATCH, &path, Some(json!({"label": "C"}))).await;
    late.assert_error(409, "key_revoked");
    assert_eq!(late.header("x-should-retry"), "false");
}

#[apply(fact)]
async fn keys_are_listed_newest_first_whole_or_in_pages() {
    let stack = Stack::start().await;
    let empty = stack.manage(Method::GET, "", None).await.json();
    assert_eq!(
        empty,
        json!({"object": "list", "data": [], "first_id": null, "last_id": null, "has_more": false})
    );
    let mut ids = Vec::new();
    for _ in 0..7 {
        // Keys that are created within the same millisecond have no defined order.
        sleep(Duration::from_millis(2)).await;
        ids.insert(0, stack.key().await.id);
    }
    let ids_of = |list: &Value| -> Vec<String> {
        list["data"].as_array().unwrap().iter().map(|key| key["id"].as_str().unwrap().to_owned()).collect()
    };
    let all = stack.manage(Method::GET, "", None).await.json();
    assert_eq!((ids_of(&all), &all["has_more"]), (ids.clone(), &json!(false)));
    assert_eq!((&all["first_id"], &all["last_id"]), (&json!(ids[0]), &json!(ids[6])));
    assert!(all["data"].as_array().unwrap().iter().all(|key| key.get("key").is_none()));

    let mut paged = Vec::new();
    let mut query = "?limit=3".to_owned();
    loop {
        let page = stack.manage(Method::GET, &query, None).await.json();
        paged.extend(ids_of(&page));
        if page["has_more"] == false {
            break;
        }
        query = format!("?limit=3&after={}", page["last_id"].as_str().unwrap());
    }
    assert_eq!(paged, ids);
    let oldest = stack.manage(Method::GET, "?limit=1&order=asc", None).await.json();
    assert_eq!(ids_of(&oldest), &ids[6..]);
    stack.manage(Method::DELETE, &format!("/{}", ids[2]), None).await;
    let revoked = stack.manage(Method::GET, "?limit=10&status=revoked", None).await.json();
    assert_eq!(ids_of(&revoked), &ids[2..3]);
    for (query, code, param) in [
        ("?limit=0", "integer_below_min_value", "limit"),
        ("?limit=1001", "integer_above_max_value", "limit"),
        ("?limit=2&after=ak_0", "invalid_value", "after"),
        ("?limit=2&order=up", "invalid_value", "order"),
    ] {
        let answer = stack.manage(Method::GET, query, None).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, code), "{query}: {answer}");
        answer.assert_error(400, code).assert_param(Some(param));
    }
}

#[apply(fact)]
async fn accounts_do_not_see_each_others_keys() {
    let stack = Stack::start().await;
    let other = stack.open_account("other", NanoUsd::ZERO);
    let key = stack.key().await;
    let path = format!("/{}", key.id);
    for (method, body) in
        [(Method::GET, None), (Method::PATCH, Some(json!({"label": "x"}))), (Method::DELETE, None)]
    {
        stack.manage_as(&other, method, &path, body).await.assert_error(404, "key_not_found");
    }
    stack
        .manage(Method::GET, "/ak_0198f3c2a7b84d5e9f60718293a4b5c6", None)
        .await
        .assert_error(404, "key_not_found");
    let listed = stack.manage_as(&other, Method::GET, "", None).await.json();
    assert_eq!(listed["data"], json!([]));
    assert_eq!(stack.show(&key).await["status"], "active");
}

#[apply(fact)]
async fn an_idempotent_creation_makes_one_key_however_often_it_is_sent() {
    let stack = Stack::start().await;
    let create = |body: Value| {
        let request = Request::post(stack.url("/v1/management/keys"))
            .header("authorization", format!("Bearer {}", stack.account.management_key))
            .header("content-type", "application/json")
            .header("idempotency-key", "once")
            .body(Full::new(body.to_string().into()))
            .unwrap();
        let http = stack.http.clone();
        async move { http.send(request).await }
    };
    let at_once = futures_util::future::join_all((0..8).map(|_| create(json!({"label": "one"})))).await;
    let (new, replayed): (Vec<&Answer>, Vec<&Answer>) =
        at_once.iter().partition(|answer| answer.header("idempotent-replayed").is_empty());
    assert_eq!((new.len(), replayed.len()), (1, 7), "{at_once:?}");
    for answer in replayed {
        assert_eq!((answer.status, answer.header("idempotent-replayed")), (201, "true"), "{answer}");
        assert_eq!(answer.json()["id"], new[0].json()["id"]);
        assert!(answer.json().get("key").is_none(), "the plaintext is shown once");
    }
    let other = create(json!({"label": "two"})).await;
    other.assert_error(409, "idempotency_key_reuse");
    assert_eq!(stack.manage(Method::GET, "", None).await.json()["data"].as_array().unwrap().len(), 1);
}

#[apply(fact)]
async fn a_merge_patch_has_a_content_type_of_its_own() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let patch = |content_type: &'static str| {
        let request = Request::patch(stack.url(&format!("/v1/management/keys/{}", key.id)))
            .header("authorization", format!("Bearer {}", stack.account.management_key))
            .header("content-type", content_type)
            .body(Full::from(r#"{"limit":0.000000001}"#))
            .unwrap();
        let http = stack.http.clone();
        async move { http.send(request).await }
    };
    let answer = patch("application/merge-patch+json").await;
    assert!(answer.status == 200 && answer.text().contains(r#""limit":0.000000001"#), "{answer}");
    patch("text/plain").await.assert_error(415, "unsupported_media_type");
}

#[apply(fact)]
async fn one_id_follows_a_request_from_the_client_through_the_logs_of_both_services() {
    let deployment = Deployment::services(1, 1, Form::Alone);
    let stack = Stack::with(Options { deployment, ..Options::default() }).await;
    let request = Request::get(stack.url("/v1/management/keys"))
        .header("authorization", format!("Bearer {}", stack.account.management_key))
        .header("x-request-id", "trace\t7f3a");
    let answer = stack.http.send(request.body(Full::default()).unwrap()).await;
    assert_eq!(answer.status, 200, "{answer}");
    let id = answer.header("x-request-id");
    let line = |log: String| {
        let lines: Vec<_> = log.lines().filter(|line| line.contains(id)).map(str::to_owned).collect();
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines.concat()
    };
    let (gateway, key_service) = (line(stack.server().log()), line(stack.key_services[0].log()));
    for line in [&gateway, &key_service] {
        assert!(line.contains("trace") && line.contains("7f3a") && !line.contains('\t'), "{line}");
        assert!(line.contains("/v1/management/keys") && line.contains("200"), "{line}");
    }
    assert!(key_service.contains("acct_") && key_service.contains("mk_"), "{key_service}");
    assert!(!key_service.contains(&stack.account.management_key));
}

#[apply(fact)]
async fn a_credential_that_was_accepted_is_judged_once_a_request_and_refused_once_revoked() {
    let deployment = Deployment::services(1, 1, Form::Alone);
    let stack = Stack::with(Options { deployment, ..Options::default() }).await;
    let calls = async || {
        let metrics = stack.http.get(&format!("{}/metrics", stack.server().admin())).await;
        let sum = metrics.text().lines().find_map(|line| line.strip_prefix("gateway_frame_calls_sum "));
        sum.unwrap().to_owned()
    };
    let account = ["--account", stack.account.name.as_str()];
    let made = stack.cli(&[&["management-keys", "create", "--name", "second"][..], &account].concat());
    let (secret, url) = (made.trim(), stack.url("/v1/management/keys"));
    let ask = async |method, body| stack.http.send_as(secret, method, &url, body).await;
    assert_eq!(ask(Method::GET, None).await.status, 200);
    let before = calls().await;
    for _ in 0..5 {
        assert_eq!(ask(Method::GET, None).await.status, 200);
    }
    assert_eq!(calls().await, before, "the gateway asks nothing more");

    let listed = stack.cli(&[&["management-keys", "list", "--json"][..], &account].concat());
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let second = listed.as_array().unwrap().iter().find(|key| key["name"] == "second").unwrap();
    stack.cli(&["management-keys", "revoke", "--id", second["id"].as_str().unwrap()]);
    for _ in 0..2 {
        ask(Method::POST, Some(json!({}))).await.assert_error(401, "invalid_management_key");
    }
}

#[apply(fact)]
async fn an_unauthenticated_client_writes_no_long_line_into_the_log() {
    let stack = Stack::start().await;
    for path in ["/v1/management/keys/", "/v1/management/", "/"] {
        let url = stack.url(&format!("{path}{}", "x".repeat(20_000)));
        let answer =
            stack.http.send_as("nobody", Method::from_bytes(&[b'X'; 2_000]).unwrap(), &url, None).await;
        assert!(answer.status >= 400 && answer.body.len() < 2_000, "{answer}");
    }
    let longest = stack.server().log().lines().map(str::len).max();
    assert!(longest.is_some_and(|longest| longest < 2_000), "{longest:?}");
}
