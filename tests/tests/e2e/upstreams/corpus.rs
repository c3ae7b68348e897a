//! Real servers' answers, passed through the real gateway, as clients in every dialect read them.

use std::collections::HashMap;

use futures_util::future::join_all;
use http::{Method, Request, header};
use serde_json::json;
use shared::money::NanoUsd;
use shared_corpus::{Case, ClientDialect, Read, cases};
use tests::harness::{Answer, ApiKey, AskedOf, Models, Options, Stack, StandIn};

/// One model for each upstream API. The prices are those in the cases: input, cached input and
/// output per million tokens.
const CATALOGUE: &str = r#"
[service]
name = "Faregate"
provider = "Model"
docs = "https://docs.example.com"
"#;

/// Maximum number of cases that are checked at the same time.
const AT_ONCE: usize = 8;

fn model(api: &str, url: &str) -> String {
    let upstream = match api {
        "responses" => "kind = \"openai\"\nspeaks = [\"responses\"]",
        "messages" => "kind = \"anthropic\"",
        _ => "kind = \"openai\"",
    };
    format!(
        r#"
[[model]]
id = "{api}"
owned_by = "model-service"
context_window = 131072
max_output_tokens = 8192

[model.price]
input = "1.00"
cached_input = "0.25"
output = "4.00"

[[model.upstream]]
{upstream}
url = "{url}"
model = "scripted"
api_key_env = "UPSTREAM_KEY"
"#
    )
}

fn price([prompt, cached, completion]: [u64; 3]) -> NanoUsd {
    let nanos = (prompt - cached) * 1_000 + cached * 250 + completion * 4_000;
    NanoUsd::from_nanos(i64::try_from(nanos).unwrap())
}

/// Sends a request for a case. The stand-in finds the case's name in the request.
async fn ask(stack: &Stack, key: &ApiKey, case: &Case, dialect: ClientDialect, stream: bool) -> Answer {
    let words = format!("case {} end", case.name);
    let said = json!([{"role": "user", "content": words}]);
    let (path, body) = match dialect {
        ClientDialect::Chat => {
            let mut body = json!({"messages": said, "max_tokens": 1024, "stream": stream});
            if stream {
                body["stream_options"] = json!({"include_usage": true});
            }
            ("/v1/chat/completions", body)
        }
        ClientDialect::Responses => {
            ("/v1/responses", json!({"input": said, "max_output_tokens": 1024, "stream": stream}))
        }
        ClientDialect::Messages => {
            let thinking = json!({"type": "adaptive", "display": "summarized"});
            let body = json!({"messages": said, "max_tokens": 1024, "stream": stream, "thinking": thinking});
            ("/v1/messages", body)
        }
    };
    let mut body = body;
    body["model"] = json!(case.api);
    let request = Request::post(stack.url(path))
        .header(header::AUTHORIZATION, format!("Bearer {}", key.secret))
        .header(header::CONTENT_TYPE, "application/json")
        .header("anthropic-version", "2023-06-01")
        .body(http_body_util::Full::new(body.to_string().into()))
        .unwrap();
    stack.http.send(request).await
}

/// Checks what a client reads, and returns how it differs.
fn difference(
    case: &Case,
    place: &str,
    answer: &Answer,
    dialect: ClientDialect,
    stream: bool,
) -> Option<String> {
    let is_stream = stream && answer.header("content-type").starts_with("text/event-stream");
    let mut read =
        if is_stream { Read::stream(dialect, answer.text()) } else { Read::whole(dialect, &answer.json()) };
    if case.error.is_some() {
        let told = read.error.take().filter(|code| !code.is_empty());
        let is_exact = case.status != 200 && dialect == ClientDialect::Chat;
        let is_told = if is_exact { told == case.error } else { told.is_some() };
        return (!is_told).then(|| format!("{place} is no error: {} {}", answer.status, answer.text()));
    }
    let expected = case.expected_in(dialect);
    if expected.usage.is_none() {
        read.usage = None;
    }
    (read != expected).then(|| format!("{place}: {read:?}\n  in place of {expected:?}"))
}

/// Sends requests for a case in every way, and returns what is wrong.
async fn check(stack: &Stack, case: &Case) -> Vec<String> {
    let key = stack.key().await;
    let mut wrong = Vec::new();
    let mut asked = 0;
    for dialect in ClientDialect::ALL {
        for (stream, form) in [(false, "whole"), (true, "stream")] {
            if !case.is_asked_for(form) {
                continue;
            }
            asked += 1;
            let place = format!("{} to {dialect:?}, {form}", case.name);
            let answer = ask(stack, &key, case, dialect, stream).await;
            wrong.extend(difference(case, &place, &answer, dialect, stream));
        }
    }
    let used = stack.used(&key).await;
    let billed = match (&case.error, case.expected.usage) {
        (None, Some(usage)) => Some(price(usage).nanos() * asked),
        (Some(_), _) | (None, None) => None,
    };
    if let Some(billed) = billed.filter(|billed| *billed != used.nanos()) {
        wrong.push(format!("{}: {} nano-USD were billed in place of {billed}", case.name, used.nanos()));
    }
    wrong
}

#[apply(fact)]
async fn an_error_with_status_200_to_a_request_for_embeddings_is_understood_too() {
    let words = "This model's maximum context length is 8192 tokens, however you requested 9000 tokens.";
    let error = json!({"error": {"message": words, "code": "context_length_exceeded"}}).to_string();
    let stand_in = StandIn::start(move |_: &AskedOf| (200, error.clone())).await;
    let serves = "serves = [\"embeddings\"]\ncontext_window";
    let model = model("chat", &stand_in.url("/v1")).replacen("context_window", serves, 1);
    let model = model.replacen("max_output_tokens = 8192\n", "", 1);
    let text: &'static str = Box::leak(format!("{CATALOGUE}{model}").into_boxed_str());
    let stack = Stack::with(Options { models: Models::Text(text), ..Options::default() }).await;
    let key = stack.key().await;
    for _ in 0..4 {
        let body = json!({"model": "chat", "input": "a"});
        let url = stack.url("/v1/embeddings");
        let answer = stack.http.send_as(&key.secret, Method::POST, &url, Some(body)).await;
        answer.assert_error(400, "context_length_exceeded");
    }
    assert_eq!(stack.used(&key).await, NanoUsd::ZERO);
}

#[apply(fact)]
async fn every_client_reads_and_pays_for_what_every_server_says() {
    let cases = cases();
    let bodies: HashMap<String, (u16, String)> = cases
        .iter()
        .map(|case| (case.name.clone(), (case.status, String::from_utf8(case.body.clone()).unwrap())))
        .collect();
    let stand_in = StandIn::start(move |asked: &AskedOf| {
        let body = String::from_utf8_lossy(&asked.body);
        let named = body.split_once("case ").and_then(|(_, rest)| rest.split_once(" end"));
        named
            .and_then(|(name, _)| bodies.get(name).cloned())
            .unwrap_or_else(|| (404, json!({"error": {"message": "no such case"}}).to_string()))
    })
    .await;
    let url = stand_in.url("/v1");
    let models = ["chat", "responses", "messages"].map(|api| model(api, &url)).concat();
    let text: &'static str = Box::leak(format!("{CATALOGUE}{models}").into_boxed_str());
    let stack = Stack::with(Options { models: Models::Text(text), ..Options::default() }).await;
    stack.others_spend();
    let mut wrong = Vec::new();
    let (well, ill): (Vec<&Case>, Vec<&Case>) = cases.iter().partition(|case| case.is_well);
    for some in well.chunks(AT_ONCE) {
        wrong.extend(join_all(some.iter().map(|case| check(&stack, case))).await.concat());
    }
    let scraped = stack.http.get(&format!("{}/metrics", stack.server().admin())).await;
    let blamed = scraped.text().lines().find(|line| line.starts_with("gateway_upstreams_set_aside_total"));
    assert_eq!(blamed, Some("gateway_upstreams_set_aside_total 0"), "a server that answers is well");
    for some in ill.chunks(AT_ONCE) {
        wrong.extend(join_all(some.iter().map(|case| check(&stack, case))).await.concat());
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
