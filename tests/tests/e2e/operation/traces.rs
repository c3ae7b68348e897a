//! Traces, which lead from the client to the store and the upstream. They have standard names and contain no secrets.
//! Receivers may be slow or unavailable.

use std::{fmt::Write, time::Duration};

use futures_util::future::join_all;
use http::{Method, Request, header};
use http_body_util::Full;
use serde_json::{Map, Value, json};
use tests::{
    harness::{
        ApiKey, Call, Deployment, FLASH, Form, Options, OtlpReceiver, ReceivedMetric, ReceivedSpan, Stack,
        secret_in,
    },
    upstream::{Fault, Script, Told},
};

/// Id of the client's own span.
const CLIENT: &str = "00f067aa0ba902b7";

const CHAT: &str = "POST /v1/chat/completions";
const AUTHORIZE: &str = "keyservice.v1.KeyService/Authorize";
const CAPTURE: &str = "keyservice.v1.KeyService/Capture";
const GATEWAY: &str = "inference-gateway";
const KEY_SERVICE: &str = "key-service";

/// Starts services that log JSON and that send their spans to this receiver.
async fn services(receiver: &OtlpReceiver) -> Stack {
    let mut env = receiver.env();
    env.push(("FAREGATE_LOG_FORMAT", "json".into()));
    Stack::with(Options { deployment: Deployment::services(1, 1, Form::Alone), env, ..Options::default() })
        .await
}

/// Returns the id of the trace that has this number.
fn trace(number: u8) -> String {
    format!("4bf92f3577b34da6a3ce929d0e0e47{number:02x}")
}

/// Makes the call belong to a trace that its client has begun.
fn traced(call: Call, trace: &str) -> Call {
    call.header("traceparent", &format!("00-{trace}-{CLIENT}-01"))
}

/// Adds parameters for sampling the answer to the call.
fn sampled(call: Call) -> Call {
    call.with("temperature", 0.5).with("top_p", 0.25).with("seed", 7)
}

/// Returns the span of a process that has this name and kind. There must be only one.
fn one<'a>(spans: &'a [ReceivedSpan], (service, name, kind): (&str, &str, &str)) -> &'a ReceivedSpan {
    let mut found =
        spans.iter().filter(|span| (&*span.service, &*span.name, &*span.kind) == (service, name, kind));
    let span = found.next().unwrap_or_else(|| panic!("no {kind} span {name} of {service}: {spans:#?}"));
    assert!(found.next().is_none(), "two {kind} spans {name} of {service}: {spans:#?}");
    span
}

/// Returns whether the spans of a request have arrived: the gateway's, and those of this many calls to key-services.
fn complete(spans: &[ReceivedSpan], calls: usize) -> bool {
    let of =
        |service: &str| spans.iter().filter(|span| span.service == service && span.kind == "SERVER").count();
    of(GATEWAY) == 1 && of(KEY_SERVICE) == calls
}

/// Checks the spans of a call between the services, and the span of the store's work for it.
fn assert_called(spans: &[ReceivedSpan], method: &str, above: &ReceivedSpan) {
    let sent = one(spans, (GATEWAY, method, "CLIENT"));
    assert_eq!(sent.parent, above.id);
    assert_eq!(sent.get("rpc.system.name"), "grpc");
    assert_eq!((sent.get("rpc.method"), sent.get("rpc.response.status_code")), (json!(method), json!("OK")));
    assert_eq!(sent.get("server.address"), "127.0.0.1");
    let answered = one(spans, (KEY_SERVICE, method, "SERVER"));
    assert_eq!((&answered.parent, answered.get("rpc.response.status_code")), (&sent.id, json!("OK")));
    let mut stored = spans.iter().filter(|span| span.parent == answered.id);
    let stored = stored.next().unwrap_or_else(|| panic!("no span of the store below {method}: {spans:#?}"));
    assert_eq!((&*stored.name, &*stored.kind), ("execute ledger", "CLIENT"));
    assert_eq!(
        (stored.get("db.system.name"), stored.get("db.operation.name")),
        (json!("redis"), json!("execute"))
    );
}

/// Checks the trace of a chat that was served.
fn assert_served(stack: &Stack, key: &ApiKey, spans: &[ReceivedSpan]) {
    let server = one(spans, (GATEWAY, CHAT, "SERVER"));
    assert_eq!(server.parent, CLIENT);
    assert_eq!(server.get("http.route"), "/v1/chat/completions");
    assert_eq!(server.get("http.response.status_code"), 200);
    assert_called(spans, AUTHORIZE, server);
    assert_called(spans, CAPTURE, server);
    let inference = one(spans, (GATEWAY, &format!("chat {FLASH}"), "CLIENT"));
    assert_eq!(inference.parent, server.id);
    for (name, value) in [
        ("gen_ai.operation.name", json!("chat")),
        ("gen_ai.provider.name", json!("vllm")),
        ("gen_ai.request.model", json!(FLASH)),
        ("gen_ai.usage.input_tokens", json!(12)),
        ("gen_ai.usage.output_tokens", json!(9)),
        ("gen_ai.request.temperature", json!(0.5)),
        ("gen_ai.request.top_p", json!(0.25)),
        ("gen_ai.request.seed", json!(7)),
        ("gen_ai.response.finish_reasons", json!(["stop"])),
        ("gen_ai.response.id", inference.get("faregate.generation.id")),
        ("server.address", json!("127.0.0.1")),
    ] {
        assert_eq!(inference.get(name), value, "{name}");
    }
    let sent = stack.served(key).pop().unwrap().headers["traceparent"].to_str().unwrap().to_owned();
    assert_eq!(sent, format!("00-{}-{}-01", server.trace, inference.id), "the upstream's span is below");
    assert!(server.times.1 >= inference.times.1, "the server's span lasts as long as its answer");
    assert!(spans.iter().all(|span| !span.failed), "{spans:#?}");
}

#[apply(fact)]
async fn a_chat_is_one_trace_from_its_client_to_the_store_and_the_upstream() {
    let receiver = OtlpReceiver::start().await;
    let stack = services(&receiver).await;
    let key = stack.key().await;

    let whole = trace(1);
    traced(sampled(stack.call(&key, Script::tokens(12, 9))), &whole).send().await;
    let spans = receiver.trace(&whole, |spans| complete(spans, 2)).await;
    assert_served(&stack, &key, &spans);
    for server in [&stack.gateways[0], &stack.key_services[0]] {
        assert!(server.log().lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
    }
    let log = stack.gateways[0].log();
    let mut lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let line = lines.rfind(|line| line["message"] == "chat").unwrap();
    assert_eq!(
        (&line["trace_id"], line["span_id"].as_str().map(str::len)),
        (&json!(whole), Some(16)),
        "{line}"
    );

    let streamed = trace(2);
    let stream = traced(sampled(stack.call(&key, Script::tokens(12, 9).pace(5))), &streamed).stream().await;
    stream.rest().await.assert_done();
    let spans = receiver.trace(&streamed, |spans| complete(spans, 2)).await;
    assert_served(&stack, &key, &spans);
    let inference = one(&spans, (GATEWAY, &format!("chat {FLASH}"), "CLIENT"));
    assert_eq!(inference.get("gen_ai.request.stream"), true);
    assert!(inference.get("gen_ai.response.time_to_first_chunk").as_f64().is_some());
    assert_no_secret(&receiver, &[&key]);
}

#[apply(fact)]
async fn a_refused_chat_is_no_error_of_ours_and_a_cut_one_is() {
    let receiver = OtlpReceiver::start().await;
    let stack = services(&receiver).await;
    let (poor, key) = (stack.key_with(json!({"limit": 0.000_000_1})).await, stack.key().await);

    let refused = trace(1);
    let answer = traced(stack.call(&poor, Script::tokens(12, 9)), &refused).send().await;
    assert_eq!(answer.status, 402, "{answer}");
    // The gateway first asked for the prompt's upper bound, and then for the prompt's lowest possible cost. Both were
    // refused.
    let spans = receiver.trace(&refused, |spans| complete(spans, 2)).await;
    let server = one(&spans, (GATEWAY, CHAT, "SERVER"));
    assert_eq!((server.failed, server.get("http.response.status_code")), (false, json!(402)));
    let calls = spans.iter().filter(|span| span.name == AUTHORIZE && span.kind == "CLIENT");
    assert!(calls.clone().count() == 2 && calls.clone().all(|call| call.parent == server.id && !call.failed));
    assert!(!spans.iter().any(|span| span.name.starts_with("chat ")), "no upstream was asked: {spans:#?}");

    let failed = trace(2);
    let broken = Script::tokens(12, 9).fault(Fault::Cut { after: 3 });
    let answer = traced(stack.call(&key, broken.clone()), &failed).send().await;
    assert_eq!(answer.status, 502, "{answer}");
    let spans = receiver.trace(&failed, |spans| complete(spans, 2)).await;
    let server = one(&spans, (GATEWAY, CHAT, "SERVER"));
    assert_eq!((server.failed, server.get("error.type")), (true, json!("502")));
    let unanswered = trace(4);
    let hung_up = Script::tokens(12, 9).fault(Fault::CutBeforeHead);
    traced(stack.call(&key, hung_up), &unanswered).send().await;
    let spans = receiver.trace(&unanswered, |spans| complete(spans, 2)).await;
    let inference = one(&spans, (GATEWAY, &format!("chat {FLASH}"), "CLIENT"));
    assert_eq!((inference.failed, inference.get("gen_ai.provider.name")), (true, json!("vllm")));
    assert_eq!(inference.get("server.address"), "127.0.0.1");

    let cut = trace(3);
    traced(stack.call(&key, broken), &cut).stream().await.rest().await;
    let spans = receiver.trace(&cut, |spans| complete(spans, 2)).await;
    let server = one(&spans, (GATEWAY, CHAT, "SERVER"));
    assert_eq!((server.get("http.response.status_code"), server.failed), (json!(200), true));
    assert_eq!(server.get("error.type"), "upstream_error");
    assert!(one(&spans, (GATEWAY, &format!("chat {FLASH}"), "CLIENT")).failed);
    assert_no_secret(&receiver, &[&poor, &key]);
}

#[apply(fact)]
async fn a_created_key_is_one_trace_and_one_that_is_not_sampled_is_none() {
    let receiver = OtlpReceiver::start().await;
    let stack = services(&receiver).await;
    let created = trace(1);
    let create = |sampled: &str| {
        Request::builder()
            .method(Method::POST)
            .uri(stack.url("/v1/management/keys"))
            .header(header::AUTHORIZATION, format!("Bearer {}", stack.account.management_key))
            .header(header::CONTENT_TYPE, "application/json")
            .header("traceparent", format!("00-{created}-{CLIENT}-{sampled}"))
            .body(Full::from(r#"{"label": "a label"}"#))
            .unwrap()
    };
    let unsampled = stack.http.send(create("00")).await;
    assert_eq!(unsampled.status, 201, "{unsampled}");
    let answer = stack.http.send(create("01")).await;
    assert_eq!(answer.status, 201, "{answer}");
    // The gateway knows the account already. So only the key-service checks the credential, when it creates the key.
    let spans = receiver.trace(&created, |spans| complete(spans, 1)).await;
    let server = one(&spans, (GATEWAY, "POST /v1/management/{*rest}", "SERVER"));
    assert_eq!((&*server.parent, server.get("http.response.status_code")), (CLIENT, json!(201)));
    let passed = one(&spans, (GATEWAY, "POST", "CLIENT"));
    assert_eq!(passed.parent, server.id);
    let governed = one(&spans, (KEY_SERVICE, "POST /v1/management/keys", "SERVER"));
    assert_eq!((&governed.parent, governed.get("http.response.status_code")), (&passed.id, json!(201)));
    let stored = spans.iter().find(|span| span.parent == governed.id).expect("the store has a part");
    assert_eq!((&*stored.kind, stored.get("db.system.name")), ("CLIENT", json!("redis")));
    let secret = answer.json()["key"].as_str().unwrap().to_owned();
    let key = ApiKey { id: String::new(), account: stack.account.clone(), secret };
    assert_no_secret(&receiver, &[&key]);

    let key = stack.key().await;
    let quiet = trace(2);
    let call = stack.call(&key, Script::tokens(12, 9));
    call.header("traceparent", &format!("00-{quiet}-{CLIENT}-00")).send().await;
    let sent = stack.served(&key).pop().unwrap().headers["traceparent"].to_str().unwrap().to_owned();
    assert!(sent.starts_with(&format!("00-{quiet}-")) && sent.ends_with("-00"), "{sent}");
    assert!(receiver.spans().iter().all(|span| span.trace != quiet));
}

#[apply(fact)]
async fn a_receiver_that_is_away_or_never_answers_costs_spans_alone() {
    // Number of chats. They have more spans than fit into the queue and a batch.
    const CHATS: usize = 600;
    let hanging = OtlpReceiver::hanging().await;
    let away = vec![("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1".to_owned())];
    for (env, reason) in [(hanging.env(), "queue_full"), (away, "export_failed")] {
        let stack = Stack::with(Options { env, ..Options::default() }).await;
        let key = stack.key().await;
        for _ in 0..CHATS / 20 {
            let calls = (0..20).map(|_| stack.call(&key, Script::tokens(12, 9)).send());
            assert!(join_all(calls).await.iter().all(|answer| answer.status == 200));
        }
        dropped(&stack, reason).await;
        let log = stack.server().log();
        let warnings = log.lines().filter(|line| line.contains("spans were not exported")).count();
        assert!(warnings <= 2, "{warnings} warnings\n{log}");
    }
}

/// Waits until the metrics show that spans were dropped for this reason.
async fn dropped(stack: &Stack, reason: &str) {
    let counter = format!("faregate_spans_dropped_total{{reason=\"{reason}\"}} ");
    let deadline = std::time::Instant::now() + tests::harness::PATIENCE;
    loop {
        let metrics = stack.http.get(&format!("{}/metrics", stack.server().admin())).await;
        let spans = metrics.text().lines().find_map(|line| line.strip_prefix(&counter)?.parse::<u64>().ok());
        if spans > Some(0) {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "no span is dropped: {spans:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[apply(fact)]
async fn tokens_are_counted_under_the_names_of_the_conventions() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let usage = r#"{"prompt_tokens":12,"completion_tokens":9,"total_tokens":21,
        "prompt_tokens_details":{"cached_tokens":5,"cache_write_tokens":4},
        "completion_tokens_details":{"reasoning_tokens":2}}"#;
    stack.others_spend();
    stack.call(&key, Script { told: Told::json(usage), ..Script::tokens(12, 9) }).send().await;
    let metrics = stack.http.get(&format!("{}/metrics", stack.server().admin())).await;
    for (name, tokens) in [
        ("input", 12),
        ("output", 9),
        ("cache_read_input", 5),
        ("cache_write_input", 4),
        ("reasoning_output", 2),
    ] {
        let mut line = String::new();
        write!(line, "gen_ai_client_inference_usage_{name}_tokens_total{{").unwrap();
        write!(line, "gen_ai_operation_name=\"chat\",gen_ai_provider_name=\"vllm\",").unwrap();
        write!(line, "gen_ai_request_model=\"{FLASH}\"}} {tokens}").unwrap();
        assert!(metrics.text().lines().any(|shown| shown == line), "{line}\n{}", metrics.text());
    }
}

#[apply(fact)]
async fn metrics_are_sent_under_the_names_of_the_conventions() {
    let receiver = OtlpReceiver::start().await;
    let stack = services(&receiver).await;
    let key = stack.key().await;
    stack.call(&key, Script::tokens(12, 9)).send().await;
    stack.call(&key, Script::tokens(12, 9).pace(5)).stream().await.rest().await.assert_done();
    let cut = Script::tokens(12, 9).fault(Fault::Cut { after: 3 });
    stack.call(&key, cut).stream().await.rest().await;

    let complete = |sent: &[ReceivedMetric]| {
        let inferences = sent.iter().filter(|metric| metric.name == "gen_ai.client.inference.duration");
        calls(sent, KEY_SERVICE, "rpc.server.call.duration", CAPTURE) == 3
            && calls(sent, GATEWAY, "rpc.client.call.duration", CAPTURE) == 3
            && inferences.map(|metric| metric.count).sum::<u64>() == 3
            && sent
                .iter()
                .any(|metric| metric.name == "http.server.request.duration" && metric.service == KEY_SERVICE)
    };
    let sent = receiver.metrics(complete).await;
    for (service, name) in [(GATEWAY, "rpc.client.call.duration"), (KEY_SERVICE, "rpc.server.call.duration")]
    {
        assert_eq!(calls(&sent, service, name, AUTHORIZE), 3, "{name}: {sent:#?}");
    }
    let of = |name: &str, error: Option<&str>| {
        let attributes = [
            ("gen_ai.operation.name", Some("chat")),
            ("gen_ai.provider.name", Some("vllm")),
            ("gen_ai.request.model", Some(FLASH)),
            ("error.type", error),
        ];
        let wanted =
            attributes.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value?))));
        let wanted: Map<_, _> = wanted.collect();
        let mut found = sent.iter().filter(|metric| metric.name == name && metric.attributes == wanted);
        found.next().map(|metric| (&*metric.unit, metric.count))
    };
    let http = sent.iter().find(|metric| {
        metric.name == "http.server.request.duration"
            && metric.attributes["http.route"] == "/v1/chat/completions"
    });
    let http = http.unwrap_or_else(|| panic!("{sent:#?}"));
    assert_eq!((&*http.service, &*http.unit, http.count), (GATEWAY, "s", 3));
    assert_eq!(http.attributes["http.response.status_code"], 200);
    assert_eq!(
        (&http.attributes["url.scheme"], &http.attributes["http.request.method"]),
        (&json!("http"), &json!("POST"))
    );
    let made = sent.iter().find(|metric| {
        metric.name == "http.server.request.duration"
            && metric.service == KEY_SERVICE
            && metric.attributes["http.route"] == "/v1/management/keys"
    });
    let made = made.unwrap_or_else(|| panic!("{sent:#?}"));
    assert_eq!((&*made.unit, made.count), ("s", 1));
    let attributes = ["http.request.method", "http.response.status_code", "url.scheme"];
    assert_eq!(
        attributes.map(|name| made.attributes[name].clone()),
        [json!("POST"), json!(201), json!("http")]
    );
    let sent_tokens = of("gen_ai.client.inference.usage.input_tokens", None);
    assert_eq!(sent_tokens, Some(("{token}", 36)), "{sent:#?}");
    assert_eq!(of("gen_ai.client.inference.usage.output_tokens", None).unwrap().0, "{token}");
    assert_eq!(of("gen_ai.client.inference.duration", None), Some(("s", 2)), "{sent:#?}");
    assert_eq!(of("gen_ai.client.inference.duration", Some("upstream_error")), Some(("s", 1)), "{sent:#?}");
    assert_eq!(of("gen_ai.client.inference.time_to_first_chunk", None), Some(("s", 2)), "{sent:#?}");
    assert_no_secret(&receiver, &[&key]);
}

/// Returns how many calls to a method a process has counted in the metric of this name.
fn calls(sent: &[ReceivedMetric], service: &str, name: &str, method: &str) -> u64 {
    let of = |metric: &&ReceivedMetric| {
        (&*metric.service, &*metric.name, &metric.attributes["rpc.response.status_code"])
            == (service, name, &json!("OK"))
            && metric.attributes["rpc.method"] == method
    };
    sent.iter().filter(|metric| metric.name == name).find(of).map_or(0, |metric| metric.count)
}

#[apply(fact)]
async fn the_last_metrics_of_a_process_that_stops_are_sent() {
    let receiver = OtlpReceiver::start().await;
    let mut env = receiver.env();
    env.push(("OTEL_METRIC_EXPORT_INTERVAL", "3600000".into()));
    let stack = Stack::with(Options { env, ..Options::default() }).await;
    let key = stack.key().await;
    stack.call(&key, Script::tokens(12, 9)).send().await;
    stack.server().terminate();
    receiver.metrics(|sent| sent.iter().any(|metric| metric.count == 12)).await;
}

#[apply(fact)]
async fn a_wrong_setting_of_telemetry_is_refused_with_its_name() {
    let stack = Stack::start().await;
    let mut settings = stack.server().settings().clone();
    settings.data = stack.data().join("refused");
    std::fs::create_dir_all(&settings.data).unwrap();
    settings.env.push(("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1".into()));
    for (name, value) in [
        ("OTEL_TRACES_SAMPLER", "sometimes"),
        ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
        ("OTEL_TRACES_EXPORTER", "jaeger"),
        ("OTEL_METRICS_EXPORTER", "prometheus"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "often"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "not an address"),
    ] {
        let mut settings = settings.clone();
        settings.env.push((name, value.into()));
        let refused = tests::harness::Server::refuses(&settings).await;
        assert!(refused.contains(name), "{name}={value}: {refused}");
    }
}

/// Checks that the receiver got no key, no token and no prompt.
fn assert_no_secret(receiver: &OtlpReceiver, keys: &[&ApiKey]) {
    let told: String =
        receiver.requests().iter().map(|body| String::from_utf8_lossy(body).into_owned()).collect();
    assert_eq!(secret_in(&told), None);
    for key in keys {
        assert!(!told.contains(&key.secret) && !told.contains(&key.account.management_key));
    }
}
