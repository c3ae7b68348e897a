use serde_json::{Value, json};

use super::{Client, joined, types};
use crate::upstream::{
    faults::{
        fault::{Fault, Shape},
        vendor_error::{ORGANIZATION, VendorError},
    },
    record::{Api, End},
    script::{Script, Told, Usage, text},
};

const BOTH: [Api; 2] = [Api::Messages, Api::Responses];

/// Returns the last event of a stream with this fault after two of five tokens.
async fn last_event(api: Api, fault: Fault) -> (Value, Option<String>) {
    let client = Client::of(api);
    let (mut events, broken) = client.stream(&Script::tokens(9, 5).fault(fault), json!({})).await;
    let deltas = joined(&events, "content_block_delta", "/delta/text")
        + &joined(&events, "response.output_text.delta", "/delta");
    let after = fault.after().unwrap_or(5);
    assert_eq!(deltas, text(after), "{fault:?}");
    let record = client.upstream.generations().pop().unwrap();
    assert!(record.ended_by(End::Failed) || fault.after().is_none(), "{record:?}");
    assert_eq!(record.served.completion, after);
    (events.pop().unwrap(), broken)
}

#[tokio::test]
async fn a_stream_breaks_where_its_script_says() {
    for api in BOTH {
        let (last, broken) = last_event(api, Fault::Cut { after: 2 }).await;
        assert!(last["type"].as_str().unwrap().ends_with("delta") && broken.is_some(), "{last}");
        let (last, broken) = last_event(api, Fault::End { after: 2 }).await;
        assert!(last["type"].as_str().unwrap().ends_with("delta") && broken.is_none(), "{last}");
        let (last, broken) = last_event(api, Fault::CutBeforeUsage).await;
        let ends = ["content_block_stop", "response.output_item.done"];
        assert!(ends.contains(&last["type"].as_str().unwrap()) && broken.is_some(), "{last}");
    }
}

#[tokio::test]
async fn a_failure_within_a_stream_has_the_vendors_event() {
    let fault = Fault::ErrorEvent { after: 2, shape: Shape::Nested };
    let (last, _) = last_event(Api::Messages, fault).await;
    assert_eq!((&last["type"], &last["error"]["type"]), (&json!("error"), &json!("overloaded_error")));
    let (last, _) = last_event(Api::Responses, fault).await;
    let told = (&last["type"], &last["response"]["status"], &last["response"]["error"]["code"]);
    assert_eq!(told, (&json!("response.failed"), &json!("failed"), &json!("server_error")));
    let (last, _) = last_event(Api::Responses, Fault::ErrorEvent { after: 2, shape: Shape::Flat }).await;
    assert_eq!((&last["type"], &last["code"]), (&json!("error"), &json!("server_error")));
}

#[tokio::test]
async fn a_finish_reason_may_be_missing() {
    let (last, _) = last_event(Api::Messages, Fault::NoFinishReason).await;
    assert_eq!(last, json!({"type": "message_stop"}));
    let (last, _) = last_event(Api::Responses, Fault::NoFinishReason).await;
    assert_eq!(last["response"]["status"], "in_progress");
}

#[tokio::test]
async fn usage_may_be_missing_or_wrong_or_anything() {
    let usages = |told| async {
        let script = Script { told, ..Script::tokens(9, 5) };
        let (events, _) = Client::of(Api::Messages).stream(&script, json!({})).await;
        let (first, last) =
            (events[0]["message"].get("usage").cloned(), events[events.len() - 2].get("usage").cloned());
        let (events, _) = Client::of(Api::Responses).stream(&script, json!({})).await;
        [first, last, events.last().unwrap()["response"].get("usage").cloned()]
    };
    assert_eq!(usages(Told::Nothing).await, [None, None, Some(Value::Null)]);
    for usage in usages(Told::Lie(Usage { prompt: 7, cached: 2, completion: 3 })).await.map(Option::unwrap) {
        assert_eq!(usage["output_tokens"], 3, "{usage}");
    }
    let told = Told::Json { first: Some("[1.50]".into()), last: "{\"output_tokens\":1e2}".into() };
    let last = Some(json!({"output_tokens": 100.0}));
    assert_eq!(usages(told).await, [Some(json!([1.5])), last.clone(), last]);
}

#[tokio::test]
async fn an_error_has_the_vendors_format() {
    for (api, status, kind) in [
        (Api::Messages, 529, "overloaded_error"),
        (Api::Messages, 404, "not_found_error"),
        (Api::Responses, 500, "server_error"),
        (Api::Responses, 404, "invalid_request_error"),
    ] {
        let client = Client::of(api);
        let script = Script::tokens(9, 5).fault(Fault::Error { status, shape: Shape::Nested });
        let answer = client.send(&client.body(&script, json!({}))).await;
        assert_eq!((answer.status, &answer.json()["error"]["type"]), (status, &json!(kind)));
    }
}

#[tokio::test]
async fn vendors_say_what_is_wrong_with_the_operators_account() {
    for (api, error, status, words) in [
        (Api::Messages, VendorError::Overloaded, 529, "Overloaded"),
        (Api::Messages, VendorError::RateLimited, 429, ORGANIZATION),
        (
            Api::Messages,
            VendorError::NoCredit,
            400,
            "Your credit balance is too low to access the Anthropic API.",
        ),
        (
            Api::Messages,
            VendorError::PromptTooLong,
            400,
            "prompt is too long: 214431 tokens > 200000 maximum",
        ),
        (Api::Messages, VendorError::LimitTooLong, 400, "exceed context limit: 188059 + 20000 > 200000"),
        (Api::Messages, VendorError::WrongKey, 401, "invalid x-api-key"),
        (Api::Responses, VendorError::WrongKey, 401, "Incorrect API key provided: sk-scrip***ream."),
        (Api::Responses, VendorError::Overloaded, 503, "currently overloaded"),
        (Api::Responses, VendorError::RateLimited, 429, "in organization org-secret123"),
        (Api::Responses, VendorError::NoCredit, 429, "You exceeded your current quota"),
        (
            Api::Responses,
            VendorError::PromptTooLong,
            400,
            "Your input exceeds the context window of this model.",
        ),
    ] {
        let client = Client::of(api);
        let script = Script { says_error: Some(error), faults: 1, tag: "it".into(), ..Script::tokens(9, 5) };
        let body = client.body(&script, json!({}));
        let answer = client.send(&body).await;
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(answer.status == status && message.contains(words), "{answer}");
        let retry_after = if error == VendorError::RateLimited { "7" } else { "" };
        assert_eq!(answer.header("retry-after"), retry_after);
        assert_eq!(client.send(&body).await.status, 200, "the first request alone fails");
    }
}

#[tokio::test]
async fn events_may_be_unknown() {
    let script = Script { unknown_events: true, ..Script::tokens(9, 2) };
    let (events, _) = Client::of(Api::Messages).stream(&script, json!({})).await;
    let seen = types(&events);
    assert!(seen.contains(&"ping") && seen.contains(&"scripted_note"), "{seen:?}");
    assert!(events.iter().all(|event| event["scripted_member"] == true), "{events:?}");
    let (events, _) = Client::of(Api::Responses).stream(&script, json!({})).await;
    assert!(types(&events).contains(&"response.scripted_note"), "{events:?}");
    let numbers = events.iter().map(|event| event["sequence_number"].as_u64().unwrap());
    assert!(numbers.eq(0..events.len() as u64), "{events:?}");
}
