//! Customers of upstreams with the Responses or Messages API. One customer's request is repeated in an answer that
//! exceeds the largest event; a vendor refuses another customer's query and headers.

use http::{Request, header};
use http_body_util::Full;
use serde_json::{Value, json};

use crate::attack::row::Row;
use tests::{
    harness::{Answer, ApiKey, Dialect, Models, Options, PATIENCE, Stack, cost_of, usd},
    upstream::{Fault, Script, Upstream},
};

/// Bytes of instructions that an answer repeats: more than an event may contain.
const REPEATED: usize = 17 << 20;
/// Number of tokens in the instructions. Spaces need few.
const PROMPT: u64 = 440_000;
/// Number of requests that a vendor refuses because of their query or headers, and of another customer's requests after
/// them.
const REQUESTS: (usize, usize) = (40, 30);

/// Runs a customer whose instructions are spaces, which each event about the response repeats.
pub(crate) async fn repeated() -> Row {
    let models = Models::With("speaks = [\"responses\"]");
    let stack = Stack::with(Options { kind: "openai", models, ..Options::default() }).await;
    stack.others_spend();
    let key = stack.key().await;
    let input = json!([{"role": "user", "content": Script::tokens(PROMPT, 9).message()}]);
    let body = json!({"model": "Model Flash", "stream": true, "max_output_tokens": 50,
        "instructions": " ".repeat(REPEATED), "input": input});
    let status = send(&stack, &key, "/v1/responses", "", &body).await.status;
    stack.released(PATIENCE).await;
    let (used, wanted) = (stack.used(&key).await, cost_of(PROMPT, 9));
    Row {
        name: format!("a response that repeats {} MiB of blanks", REPEATED >> 20),
        expected: format!("billed {wanted}"),
        seen: format!("status {status}, billed {used}"),
        held: status == 200 && used == wanted,
    }
}

/// Runs a customer whose query and headers one of two upstreams refuses, next to another customer.
pub(crate) async fn refused() -> Row {
    let second = Upstream::start();
    let lines = "pass_query = [\"region\"]";
    let models = Models::Apart { scripted: lines, other: second.url(), lines };
    let stack = Stack::with(Options { kind: "anthropic", models, ..Options::default() }).await;
    stack.others_spend();
    let greedy = stack.key().await;
    let other = stack.open_account("other", usd("1"));
    let other = stack.key_of(&other, json!({})).await;
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let body = json!({"model": "Model Flash", "max_tokens": 50, "messages": messages});
    let (mut fewest, mut served) = (usize::MAX, 0);
    for status in [401, 403, 500, 503] {
        second.set_default(Script::default().fault(Fault::ErrorOfHead { status }));
        for request in 0..REQUESTS.0 {
            let heads = [("?key=wrong&region=x", ""), ("?beta=true", ""), ("", "oauth-2025-04-20")];
            let (query, beta) = heads[request % heads.len()];
            send(&stack, &greedy, &format!("/v1/messages{query}"), beta, &body).await;
        }
        let before = second.generations().len();
        for _ in 0..REQUESTS.1 {
            let mut call = stack.call(&other, Script::default()).speaking(Dialect::Chat);
            call.body["messages"] = messages.clone();
            served += usize::from(call.send().await.status == 200);
        }
        fewest = fewest.min(second.generations().len() - before);
    }
    let all = 4 * REQUESTS.1;
    Row {
        name: format!("{} requests whose query and headers a vendor refuses", 4 * REQUESTS.0),
        expected: format!("another's {all} are served, by both"),
        seen: format!("{served} are served, {fewest} of {} by the vendor", REQUESTS.1),
        held: served == all && fewest > REQUESTS.1 / 5,
    }
}

async fn send(stack: &Stack, key: &ApiKey, path: &str, beta: &str, body: &Value) -> Answer {
    let request = Request::post(stack.url(path))
        .header(header::AUTHORIZATION, format!("Bearer {}", key.secret))
        .header(header::CONTENT_TYPE, "application/json")
        .header("anthropic-version", "2023-06-01")
        .header("anthropic-beta", beta)
        .body(Full::new(body.to_string().into()))
        .unwrap();
    stack.http.send(request).await
}
