//! Compares answers with their schemas: every written member is described, and every described member is written.

use std::collections::BTreeSet;

use schemars::{JsonSchema, SchemaGenerator};

use super::*;
use crate::schema;

/// Paths of members, such as `choices[].index`.
type Paths = BTreeSet<String>;

/// Collects the members that a schema describes.
fn described(schema: &Value, path: &str, paths: &mut Paths) {
    if let Some(items) = schema.get("items") {
        described(items, &format!("{path}[]"), paths);
    }
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        described(member, &path, paths);
        paths.insert(path);
    }
}

/// Collects the members of a value, and asserts that it has those that its schema requires.
fn written(value: &Value, schema: &Value, path: &str, paths: &mut Paths) {
    for element in value.as_array().into_iter().flatten() {
        written(element, &schema["items"], &format!("{path}[]"), paths);
    }
    let Some(members) = value.as_object() else { return };
    for required in schema["required"].as_array().into_iter().flatten() {
        assert!(members.contains_key(required.as_str().unwrap()), "{path} has no {required}: {value}");
    }
    for (name, member) in members {
        let path = format!("{path}.{name}");
        written(member, &schema["properties"][name], &path, paths);
        paths.insert(path);
    }
}

/// Asserts that the members of these values are those that the schema of `T` describes.
fn assert_described<T: JsonSchema>(values: &[Value]) {
    let schema = T::json_schema(&mut SchemaGenerator::default()).to_value();
    let (mut there, mut expected) = (Paths::new(), Paths::new());
    described(&schema, "", &mut expected);
    for value in values {
        written(value, &schema, "", &mut there);
    }
    let (undescribed, unwritten) = (there.difference(&expected), expected.difference(&there));
    let (undescribed, unwritten): (Vec<_>, Vec<_>) = (undescribed.collect(), unwritten.collect());
    assert!(undescribed.is_empty() && unwritten.is_empty(), "{undescribed:?} {unwritten:?}");
}

/// Returns a token with its alternatives.
fn tokens() -> Value {
    let token = json!({"token": "a", "logprob": -1, "bytes": [97]});
    json!([{"token": "a", "logprob": -1, "bytes": [97], "top_logprobs": [token]}])
}

/// Returns everything that an upstream can report about a choice.
fn everything() -> (Value, Value) {
    let call =
        json!({"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let text = json!({"role": "assistant", "content": "a", "refusal": "b", "reasoning_content": "c", "tool_calls": [call]});
    (text, json!({"content": tokens(), "refusal": tokens()}))
}

#[test]
fn the_members_of_a_whole_answer_are_those_of_its_schema() {
    let (message, logprobs) = everything();
    let choice = json!({"index": 0, "message": message, "logprobs": logprobs, "finish_reason": "tool_calls"});
    let plain = json!({"index": 0, "message": {"content": "a"}, "finish_reason": "stop"});
    let answers = [choice, plain].map(|choice| whole(&json!({"choices": [choice]})).unwrap());
    assert_described::<schema::CompletionSchema>(&answers);
}

#[test]
fn the_members_of_chunks_are_those_of_their_schema() {
    let (delta, logprobs) = everything();
    let mut rewriter = Rewriter::new(generation(), true);
    let mut out = BytesMut::new();
    for chunk in [
        json!({"choices": [{"index": 0, "delta": delta, "logprobs": logprobs}]}),
        json!({"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]}),
    ] {
        let chunk = chunk.to_string();
        let Event::Chunk(chunk) = Event::read(chunk.as_bytes()).unwrap() else { panic!("{chunk}") };
        rewriter.chunk(&chunk, &mut out);
    }
    rewriter.done(USAGE, COST, &mut out);
    let events = events(&mut out);
    let (done, chunks) = events.split_last().unwrap();
    assert_eq!(*done, json!("[DONE]"));
    assert_described::<schema::ChunkSchema>(chunks);
}

#[test]
fn a_response_has_every_member_that_is_described() {
    let described = schema::ResponseObject::json_schema(&mut SchemaGenerator::default()).to_value();
    let described: BTreeSet<&String> = described["properties"].as_object().unwrap().keys().collect();
    let body = Bytes::from_static(br#"{"model":"m","input":"Hi"}"#);
    let reply = request::responses::parse(&body, |_| false).unwrap().reply;
    let upstream = json!({"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]});
    let response = whole_of(&reply, &upstream);
    let members: BTreeSet<_> = response.as_object().unwrap().keys().collect();
    assert!(described.is_subset(&members), "{members:?}");
}
