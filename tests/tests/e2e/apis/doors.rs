//! The routes of the API: their paths, methods, credentials and formats.

use futures_util::future::join_all;
use http::{Method, Request};
use http_body_util::Full;
use serde_json::json;
use tests::{
    harness::{Answer, Http, Stack, raw},
    upstream::{End, Script},
};

async fn send(stack: &Stack, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::builder().method(method).uri(stack.url(path));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    stack.http.send(request.body(Full::default()).unwrap()).await
}

#[apply(fact)]
async fn health_and_descriptions_need_no_credential() {
    let stack = Stack::start().await;
    let health = send(&stack, "GET", "/health", &[]).await;
    assert_eq!((health.status, health.json()), (200, json!({"status": "ok"})));
    health.assert_request_id();
    let expected = json!({"service": "Faregate", "provider": "Model", "version": "1.0.0",
        "endpoints": ["GET /health", "GET /v1/models", "POST /v1/chat/completions"], "docs": "https://docs.example.com"});
    for path in ["/", "/v1", "/v1/"] {
        let answer = send(&stack, "GET", path, &[]).await;
        assert_eq!((answer.status, answer.json()), (200, expected.clone()), "{path}");
        answer.assert_request_id();
    }
}

#[apply(fact)]
async fn models_are_listed_to_api_keys() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let listed = stack.get(&key, "/v1/models").await;
    assert_eq!(listed.status, 200, "{listed}");
    let body = listed.json();
    assert_eq!(body["object"], "list");
    let ids: Vec<_> = body["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(ids, ["Model Flash", "Model Max"]);
    let one = &body["data"][0];
    assert_eq!((&one["object"], &one["owned_by"]), (&json!("model"), &json!("model-service")));
    assert!(one["created"].is_u64());
    let windows = ["context_length", "max_model_len", "max_input_tokens"].map(|name| &one[name]);
    assert_eq!((windows, &one["max_output_tokens"]), ([&json!(1_048_576); 3], &json!(131_072)));
    let pricing = json!({"prompt": "0.0000001", "completion": "0.0000004", "input_cache_read": "0.000000025",
        "input_cache_write": "0.0000001", "image": "0", "request": "0"});
    assert_eq!(one["pricing"], pricing);
    assert_eq!(stack.get(&key, "/v1/models/Model%20Flash").await.json(), *one);
    let unknown = stack.get(&key, "/v1/models/gpt-4").await;
    unknown.assert_error(404, "model_not_found");
    assert_eq!(unknown.json()["error"]["valid_models"], json!(["Model Flash", "Model Max"]));
    assert_eq!(stack.show(&key).await["last_used_at"], json!(null), "looking around is no use of a key");
}

#[apply(fact)]
async fn unknown_routes_and_wrong_methods_are_json_with_or_without_a_credential() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let bearer = format!("Bearer {}", key.secret);
    let management = format!("Bearer {}", stack.account.management_key);
    for headers in [&[][..], &[("authorization", &*bearer)], &[("authorization", &*management)]] {
        for path in [
            "/nothing",
            "/v1/nothing",
            "/v1/moderations",
            "/v2/models",
            "/v1/management/nothing",
            "/metrics",
            "/livez",
        ] {
            send(&stack, "GET", path, headers).await.assert_error(404, "unknown_url");
        }
        for (method, path, allowed) in [
            ("GET", "/v1/chat/completions", "POST"),
            ("DELETE", "/v1/models", "GET"),
            ("POST", "/health", "GET"),
            ("POST", "/v1/models/x", "GET"),
            ("PUT", "/v1/management/keys", "POST"),
            ("POST", "/v1/management/keys/ak_0", "PATCH"),
        ] {
            let answer = send(&stack, method, path, headers).await;
            assert_eq!(answer.status, 405, "{method} {path}: {answer}");
            answer.assert_error(405, "method_not_allowed");
            assert!(answer.header("allow").contains(allowed), "{method} {path}: {answer}");
        }
    }
}

#[apply(fact)]
async fn a_trailing_slash_is_ignored_and_head_works_where_get_does() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    assert_eq!(stack.get(&key, "/v1/models/").await.status, 200);
    assert_eq!(stack.get(&key, "/v1/models/Model%20Max/").await.status, 200);
    assert_eq!(stack.manage(Method::GET, "/", None).await.status, 200);
    let call = stack.call(&key, Script::default());
    let url = stack.url("/v1/chat/completions/");
    // The harness did not send this request itself, so it does not count its usage.
    let wrong = stack.http.send_as(&key.secret, Method::POST, &url, Some(call.without("model").body)).await;
    wrong.assert_error(400, "missing_required_parameter");
    let bearer = format!("Bearer {}", key.secret);
    let management = format!("Bearer {}", stack.account.management_key);
    for (path, credential) in
        [("/health", ""), ("/v1", ""), ("/v1/models", &*bearer), ("/v1/management/keys", &*management)]
    {
        let get = send(&stack, "GET", path, &[("authorization", credential)]).await;
        let head = send(&stack, "HEAD", path, &[("authorization", credential)]).await;
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}: {head}");
        assert_eq!(head.header("content-type"), get.header("content-type"), "{path}");
        head.assert_request_id();
    }
}

#[apply(fact)]
async fn browsers_may_call_model_routes_from_anywhere_and_management_from_nowhere() {
    let stack = Stack::start().await;
    let preflight = [
        ("origin", "https://app.example.com"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization, content-type, x-stainless-os"),
    ];
    for path in ["/v1/chat/completions", "/v1/models", "/v1/models/x", "/health", "/v1", "/"] {
        let answer = send(&stack, "OPTIONS", path, &preflight).await;
        assert!(matches!(answer.status, 200 | 204), "answered before authentication: {path}: {answer}");
        assert_eq!(answer.header("access-control-allow-origin"), "*", "{path}: {answer}");
        let allowed = answer.header("access-control-allow-headers");
        assert!(allowed.contains("x-stainless-os") && allowed.contains("authorization"), "{path}: {answer}");
        assert_eq!(answer.header("access-control-allow-credentials"), "", "{path}: {answer}");
    }
    let refused = send(&stack, "GET", "/v1/models", &[("origin", "https://app.example.com")]).await;
    refused.assert_error(401, "missing_api_key");
    assert_eq!(refused.header("access-control-allow-origin"), "*", "{refused}");
    let exposed = refused.header("access-control-expose-headers").to_lowercase();
    for name in ["x-request-id", "retry-after", "x-should-retry"] {
        assert!(exposed.contains(name), "{name}: {refused}");
    }
    for (method, headers) in [("OPTIONS", &preflight[..]), ("GET", &preflight[..1])] {
        let answer = send(&stack, method, "/v1/management/keys", headers).await;
        let cors = answer.headers.keys().find(|name| name.as_str().starts_with("access-control-"));
        assert_eq!(cors, None, "{answer}");
    }
}

#[apply(fact)]
async fn request_ids_are_ours_and_never_twice_the_same() {
    let stack = Stack::start().await;
    let theirs = [("x-request-id", "req_00000000000000000000000000000000")];
    let first = send(&stack, "GET", "/health", &theirs).await;
    let second = send(&stack, "GET", "/health", &theirs).await;
    first.assert_request_id();
    assert_ne!(first.header("x-request-id"), theirs[0].1);
    assert_ne!(first.header("x-request-id"), second.header("x-request-id"));
}

#[apply(fact)]
async fn probes_and_metrics_have_a_port_of_their_own_and_name_no_key() {
    let stack = Stack::start().await;
    let key = stack.key_with(json!({"label": "a customer's label"})).await;
    stack.call(&key, Script::tokens(12, 5)).send().await;
    let admin = |path: &str| {
        let url = format!("{}{path}", stack.server().admin());
        async move { Http::new().get(&url).await }
    };
    assert_eq!(admin("/livez").await.status, 200);
    assert_eq!(admin("/readyz").await.status, 200);
    let metrics = admin("/metrics").await;
    assert_eq!(metrics.status, 200);
    for secret in [&*key.id, &*key.secret, "a customer's label"] {
        assert!(!metrics.text().contains(secret), "{secret} is in the metrics");
    }
}

#[apply(fact)]
async fn http_1_0_and_expectations_are_understood() {
    let stack = Stack::start().await;
    let old = raw(stack.server().public(), "GET /health HTTP/1.0\r\n\r\n").await;
    assert!(old.contains(" 200 ") && old.ends_with(r#"{"status":"ok"}"#), "{old}");
    let expecting = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\nexpect: 100-continue\r\n\
        content-length: 2\r\n\r\n{}";
    let answer = raw(stack.server().public(), expecting).await;
    assert!(answer.contains("missing_api_key"), "{answer}");
}

#[apply(fact)]
async fn http_2_carries_many_streams_on_one_connection() {
    let mut stack = Stack::start().await;
    stack.http = Http::http2();
    let key = stack.key().await;
    let streams = (0..20).map(|_| async {
        stack.call(&key, Script::tokens(12, 50).pace(2)).stream().await.rest().await.assert_done().tokens()
    });
    assert_eq!(join_all(streams).await, [50; 20]);
    let mut left = stack.call(&key, Script::tokens(12, 100_000).pace(10)).stream().await;
    left.read_tokens(3).await;
    let tag = left.tag.clone();
    drop(left);
    stack.upstream.wait_for(&tag, "stop", |generation| generation.ended_by(End::ClientLeft)).await;
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200, "the connection lives on");
}

#[apply(fact)]
async fn requests_that_two_readers_could_take_for_different_ones_are_refused() {
    let stack = Stack::start().await;
    let base = stack.url("");
    let path = "/v1/management/keys";
    for (lines, param) in [
        ("", "Host"),
        ("host: a\r\nhost: a\r\n", "Host"),
        ("host: a\r\nhost: b\r\n", "Host"),
        ("host: a\r\ntransfer-encoding: gzip, chunked\r\n", "Transfer-Encoding"),
        ("host: a\r\ntransfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n", "Transfer-Encoding"),
    ] {
        let answer = raw(&base, &format!("POST {path} HTTP/1.1\r\n{lines}\r\n0\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{lines:?}: {answer}");
        assert!(answer.contains(&format!(r#""param":"{param}""#)), "{lines:?}: {answer}");
        assert!(answer.contains("x-request-id: req_"), "{lines:?}: {answer}");
    }
    let old = raw(&base, "GET /health HTTP/1.0\r\n\r\n").await;
    assert!(old.contains(" 200 "), "HTTP/1.0 needs no host: {old}");
}
