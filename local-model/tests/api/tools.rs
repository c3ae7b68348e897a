//! Tool calls follow their schemas, whatever the model considers likely.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::support::{ask, joined, post, question, router, stream};

fn tools() -> Value {
    json!([
        {"type": "function", "function": {
            "name": "book_table",
            "description": "Book a table",
            "parameters": {
                "type": "object",
                "properties": {
                    "guests": {"type": "integer", "minimum": 1, "maximum": 20},
                    "place": {"enum": ["inside", "terrace"]},
                    "name": {"type": "string", "maxLength": 12},
                    "notes": {"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 2},
                    "vegetarian": {"type": "boolean"},
                },
                "required": ["guests", "place", "name", "notes"],
            },
        }},
        {"type": "function", "function": {"name": "ping"}},
    ])
}

/// Returns a request unlike anything in training, for which no answer would call these tools unless forced to.
fn wild(seed: u64, more: Value) -> Value {
    let mut body = question("Tell me a story.", json!({"tools": tools(), "temperature": 2, "seed": seed}));
    let Value::Object(more) = more else { panic!("the fields are an object") };
    body.as_object_mut().unwrap().extend(more);
    body
}

fn calls(answer: &Value) -> &Vec<Value> {
    answer["choices"][0]["message"]["tool_calls"].as_array().unwrap()
}

fn check(call: &Value) {
    assert!(call["id"].as_str().unwrap().starts_with("call_"));
    assert_eq!(call["type"], "function");
    let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    let arguments = arguments.as_object().unwrap();
    match call["function"]["name"].as_str().unwrap() {
        "ping" => assert!(arguments.is_empty()),
        "book_table" => {
            assert!((1..=20).contains(&arguments["guests"].as_i64().unwrap()));
            assert!(["inside", "terrace"].contains(&arguments["place"].as_str().unwrap()));
            assert!(arguments["name"].as_str().unwrap().chars().count() <= 12);
            let notes = arguments["notes"].as_array().unwrap();
            assert!(notes.len() <= 2 && notes.iter().all(Value::is_string));
            assert!(arguments.get("vegetarian").is_none_or(Value::is_boolean));
            let known = ["guests", "place", "name", "notes", "vegetarian"];
            assert!(arguments.keys().all(|key| known.contains(&key.as_str())));
        }
        other => panic!("there is no tool {other}"),
    }
}

#[tokio::test]
async fn a_required_call_follows_its_schema_however_wild_the_text() {
    let router = router();
    for seed in 0..20 {
        let body = wild(seed, json!({"tool_choice": "required", "parallel_tool_calls": false}));
        let answer = ask(&router, &body).await;
        assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls", "{answer}");
        assert_eq!(answer["choices"][0]["message"]["content"], Value::Null);
        assert_eq!(calls(&answer).len(), 1);
        check(&calls(&answer)[0]);
    }
}

#[tokio::test]
async fn several_calls_each_follow_their_schemas() {
    let router = router();
    // Tokens that end answers are excluded, so that calls follow one another until the answer is cut off.
    let endless = json!({"tool_choice": "required", "logit_bias": {"0": -100, "2": -100}, "max_tokens": 400});
    for seed in 0..10 {
        let answer = ask(&router, &wild(seed, endless.clone())).await;
        assert_eq!(answer["choices"][0]["finish_reason"], "length");
        assert!(calls(&answer).len() > 1);
        // The last one is cut off.
        calls(&answer).iter().rev().skip(1).for_each(check);
    }
}

#[tokio::test]
async fn a_named_function_is_called_and_no_other() {
    let router = router();
    for (seed, name) in [(1, "ping"), (2, "book_table"), (3, "ping"), (4, "book_table")] {
        let choice = json!({"type": "function", "function": {"name": name}});
        let answer = ask(&router, &wild(seed, json!({"tool_choice": choice}))).await;
        assert_eq!(calls(&answer).len(), 1);
        assert_eq!(calls(&answer)[0]["function"]["name"], name);
        check(&calls(&answer)[0]);
    }
}

#[tokio::test]
async fn a_streamed_call_sends_its_name_first_and_then_its_arguments_in_pieces() {
    let router = router();
    for seed in 0..5 {
        let named = json!({"type": "function", "function": {"name": "book_table"}});
        let body = wild(seed, json!({"tool_choice": named}));
        let chunks = stream(&router, &body).await;
        let deltas: Vec<&Value> = chunks
            .iter()
            .flat_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"].as_array().into_iter().flatten())
            .collect();
        assert_eq!(deltas[0]["function"], json!({"name": "book_table", "arguments": ""}));
        assert!(deltas.len() > 10, "the arguments come as they are written");
        assert!(deltas[1..].iter().all(|delta| delta["index"] == 0 && delta.get("id").is_none()));
        let message = joined(&chunks, 0);
        check(&message["tool_calls"][0]);
        let whole = ask(&router, &body).await;
        assert_eq!(message["tool_calls"][0]["function"], calls(&whole)[0]["function"]);
    }
}

#[tokio::test]
async fn max_tokens_without_room_for_a_call_cut_it_and_say_so() {
    let named = json!({"type": "function", "function": {"name": "book_table"}});
    let answer = ask(&router(), &wild(1, json!({"tool_choice": named, "max_tokens": 30}))).await;
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["usage"]["completion_tokens"], 30);
    let arguments = calls(&answer)[0]["function"]["arguments"].as_str().unwrap();
    assert!(arguments.starts_with("{\"guests\": "), "{arguments}");
}

#[tokio::test]
async fn references_inside_of_a_schema_are_followed() {
    let parameters = json!({
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/Leaf"}, "kind": {"const": "tree"}},
        "required": ["root", "kind"],
        "$defs": {"Leaf": {
            "type": "object", "title": "Leaf", "properties": {"size": {"enum": [1, 2.5]}}, "required": ["size"],
        }},
    });
    let tools = json!([{"type": "function", "function": {"name": "grow", "parameters": parameters}}]);
    let body = wild(
        1,
        json!({"tools": tools, "tool_choice": "required", "parallel_tool_calls": false, "temperature": 1}),
    );
    let answer = ask(&router(), &body).await;
    let arguments: Value =
        serde_json::from_str(calls(&answer)[0]["function"]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments["kind"], "tree");
    assert_eq!(arguments["root"].as_object().unwrap().len(), 1);
    assert!(arguments["root"]["size"].is_number());
}

#[tokio::test]
async fn tools_that_cannot_be_forced_are_refused() {
    let router = router();
    let tool = |parameters: Value| json!([tools()[1], {"type": "function", "function": {"name": "odd", "parameters": parameters}}]);
    let cases = [
        json!({"tools": tool(json!({"type": "object", "if": {}}))}),
        json!({"tools": tool(json!({"type": "string"}))}),
        json!({"tools": tool(json!([1]))}),
        json!({"tools": tool(json!({"properties": {"a": {"pattern": "(?=a)"}}}))}),
        json!({"tools": tool(json!({"$ref": "https://example.com/schema"}))}),
        json!({"tools": [{"type": "web_search"}]}),
        json!({"tools": [], "tool_choice": "required"}),
        json!({"tools": tools(), "tool_choice": {"type": "function", "function": {"name": "x"}}}),
    ];
    for fields in cases {
        let (status, answer) = post(&router, "/v1/chat/completions", &question("Hi", fields.clone())).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{fields}: {answer}");
    }
}

#[tokio::test]
async fn a_schema_that_proves_too_hard_on_the_way_is_refused() {
    let router = router();
    let hard = json!({"type": "string", "pattern": "^(([a-z]{1,50}){1,50}){1,50}$"});
    let hard = json!({"type": "object", "properties": {"a": hard}, "required": ["a"]});
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": hard}});
    let tools = json!([tools()[1], {"type": "function", "function": {"name": "odd", "parameters": hard}}]);
    let choice = json!({"type": "function", "function": {"name": "odd"}});
    for fields in [json!({"response_format": format}), json!({"tools": tools, "tool_choice": choice})] {
        let (status, answer) = post(&router, "/v1/chat/completions", &question("odd", fields)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("This schema cannot be followed: "), "{answer}");
    }
}

#[tokio::test]
async fn a_costly_schema_is_followed_or_refused_soon() {
    let router = router();
    let costly = [
        json!({"type": "string", "pattern": "((a{1,100}){1,100}){1,100}"}),
        json!({"type": "array", "items": {"type": "string"}, "minItems": 1_000_000, "maxItems": 2_000_000}),
        json!({"type": "string", "minLength": 1_000_000, "maxLength": 9_000_000}),
        json!({"type": "string", "pattern": "^(a|b)*a(a|b){30}$"}),
        json!({"type": "integer", "multipleOf": 1_234_567, "maximum": 1_000_000_000}),
        json!({"type": "object", "properties": (0..2000).map(|name| (name.to_string(), json!({}))).collect::<serde_json::Map<_, _>>()}),
        json!({"$ref": "#"}),
    ];
    for schema in costly {
        let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
        let begun = std::time::Instant::now();
        let body = question("Hi", json!({"response_format": format, "max_tokens": 50}));
        let (status, answer) = post(&router, "/v1/chat/completions", &body).await;
        assert!(begun.elapsed().as_secs() < 5, "{schema}: {:?}", begun.elapsed());
        assert_ne!(status, StatusCode::INTERNAL_SERVER_ERROR, "{answer}");
    }
}
