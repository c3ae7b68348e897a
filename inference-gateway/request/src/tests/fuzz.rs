//! Fuzz targets for the bodies of requests.

use serde_json::Value;
use shared::json::Object;
use shared_fuzz::{Examples, Input, fuzz};

use super::*;
use crate::{chat, embeddings, messages, responses};

#[test]
fn chat_requests() {
    let models = models();
    fuzz(&Examples::folder("chat"), |input: &Input| {
        let Some(forward) = check(chat::parse, input, &models) else { return };
        // What was written as a chat is a valid chat, and is written the same way again.
        let written = checked(&forward);
        let again = chat::parse(&written).and_then(|request| request.forward(&models[0]));
        let again = again.unwrap_or_else(|error| panic!("{error:?} {written:?}"));
        assert_eq!(checked(&again), written);
        assert!(again.prompt_bound <= forward.prompt_bound);
    });
}

#[test]
fn messages_requests() {
    let models = models();
    fuzz(&Examples::folder("messages"), |input: &Input| {
        if let Some(forward) = check(messages::parse, input, &models) {
            assert!(chat::parse(&checked(&forward)).is_ok());
        }
        let _ = messages::parse_to_count(&Bytes::copy_from_slice(input.bytes()));
    });
}

#[test]
fn responses_requests() {
    let models = models();
    fuzz(&Examples::folder("responses"), |input: &Input| {
        if let Some(forward) = check(super::responses, input, &models) {
            assert!(chat::parse(&checked(&forward)).is_ok());
        }
        check(|body| responses::parse(body, |_| true), input, &models);
    });
}

#[test]
fn embeddings_requests() {
    let models = models();
    fuzz(&Examples::folder("embeddings"), |input: &Input| {
        check(embeddings::parse, input, &models);
    });
}

/// Returns a model for chats, followed by models of other servers and APIs.
fn models() -> Vec<Model> {
    vec![
        model("openai"),
        model("vllm"),
        model("llama_cpp"),
        model_with("speaks = [\"responses\"]"),
        model_with("speaks = [\"messages\"]\n        cache_breakpoints = true"),
        model_of_all(),
    ]
}

/// Checks everything that a request becomes for each model. Returns what it becomes for the first one.
fn check(
    parse: impl Fn(&Bytes) -> Result<Request, ApiError>,
    input: &Input,
    models: &[Model],
) -> Option<Forward> {
    let body = Bytes::copy_from_slice(input.bytes());
    let mut first = None;
    for (number, model) in models.iter().enumerate() {
        let forward = match parse(&body).and_then(|request| request.forward(model)) {
            Ok(forward) => forward,
            Err(error) => {
                assert!(serde_json::from_str::<Value>(&error.to_json()).is_ok());
                continue;
            }
        };
        assert!(
            forward.prompt_least <= forward.prompt_bound && forward.prompt_estimate <= forward.prompt_bound
        );
        assert!(forward.least_output > 0 && (1..=8).contains(&forward.n));
        for upstream in &model.upstreams {
            check_body(&forward, forward.form(upstream));
        }
        if number == 0 {
            first = Some(forward);
        }
    }
    first
}

/// Asserts that the body is an object with unique names, and that its texts are not longer than the prompt's bound.
fn check_body(forward: &Forward, form: BodyForm) {
    let to = UpstreamParams {
        form,
        account: Some(account()),
        max_tokens: Some(forward.max_tokens),
        cache_salt: Some("salt"),
        ..TO
    };
    let BodyPieces { head, rest } = forward.body(to);
    let body = [head, rest].concat();
    let members = Object::from_slice(&body).unwrap_or_else(|error| panic!("{error} {}", lossy(&body)));
    assert_eq!(members.get("model").map(shared::json::RawValue::get), Some(r#""m""#));
    let BodyPieces { head, rest } = match forward.count_body(to) {
        crate::CountBody::Written(body) => body,
        crate::CountBody::Unwritten(count) => count.write(),
    };
    let counted = [head, rest].concat();
    assert!(Object::from_slice(&counted).is_ok(), "{}", lossy(&counted));
    // A tree can hold neither every number nor every depth that a body may have.
    if let Ok(tree) = serde_json::from_slice::<Value>(&body) {
        let shown =
            shown_bytes(&tree["messages"]) + shown_bytes(&tree["input"]) + shown_bytes(&tree["tools"]);
        assert!(shown <= forward.prompt_bound, "{shown} of {} {}", forward.prompt_bound, lossy(&body));
    }
}

/// Counts the bytes of the texts that a model reads, whatever its template.
fn shown_bytes(value: &Value) -> u64 {
    const SHOWN: [&str; 6] = ["arguments", "content", "description", "name", "output", "text"];
    match value {
        Value::Array(elements) => elements.iter().map(shown_bytes).sum(),
        Value::Object(members) => {
            let is_shown = |name: &String, value: &Value| value.is_string() && SHOWN.contains(&name.as_str());
            let bytes = |(name, value): (&String, &Value)| match value {
                Value::String(text) if is_shown(name, value) => text.len() as u64,
                other => shown_bytes(other),
            };
            members.iter().map(bytes).sum()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Returns the chat that an upstream reads, under the client's name for the model.
fn checked(forward: &Forward) -> Bytes {
    let BodyPieces { head, rest } =
        forward.body(to_first(forward, UpstreamParams { model: "Model Flash", ..TO }));
    [head, rest].concat().into()
}

fn lossy(body: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(body)
}
