mod refused;

use proptest::{prelude::*, sample::Index};
use serde_json::{Value, json};
use shared::error::{ApiError, Code};
use shared_catalog::{Catalog, Effort, ImageUrls, LimitParam, Model, Serves, Upstream};

use super::*;
use crate::{
    draft::ChatTerms,
    forward::{BodyForm, BodyPieces, Forward, ProgressReports, UpstreamParams},
    tests::{catalogue, to_first},
};

/// A body with everything that is read.
const RICH: &str = r#"{
  "model": "Model Flash", "stream": true, "stream_options": {"include_usage": true, "x": 1},
  "max_completion_tokens": 100, "max_tokens": 100, "n": 2, "temperature": 0.70, "top_p": 1, "seed": -9223372036854775808,
  "frequency_penalty": -2, "presence_penalty": 2.0, "stop": ["a", "\n"], "logprobs": true, "top_logprobs": 20,
  "logit_bias": {"50256": -100, "7": 1.5}, "reasoning_effort": "low", "parallel_tool_calls": false,
  "user": "u", "metadata": {"a": "b"}, "store": true, "service_tier": "auto", "prompt_cache_key": "k",
  "safety_identifier": "s", "verbosity": "low", "prediction": {}, "chat_template": "evil", "top_k": 40,
  "kv_transfer_params": {}, "modalities": ["text"], "functions": null, "audio": null,
  "tools": [{"type": "function", "x": 1, "function": {"name": "look-up_2", "description": "d", "x": 1, "strict": true,
    "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}}],
  "tool_choice": {"type": "function", "function": {"name": "look-up_2"}},
  "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}, "x": 1}},
  "messages": [
    {"role": "developer", "content": "Be brief.", "name": "op"},
    {"role": "user", "x": 1, "content": [{"type": "text", "text": "\u0048\ud83d\ude00", "cache_control": {}},
      {"type": "image_url", "image_url": {"url": "data:image\/png;base64,QUJD", "detail": "low", "x": 1}},
      {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]},
    {"role": "assistant", "content": null, "refusal": null, "audio": null, "reasoning_content": "hm", "tool_calls": [
      {"id": "call_1", "index": 0, "type": "function", "function": {"name": "look-up_2", "arguments": "{\"q\":1}"}}]},
    {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "42"}]},
    {"role": "assistant", "content": "It is 42."}
  ]}"#;

/// Returns a model whose upstream accepts only images within the body.
fn model() -> Model {
    let text = catalogue("openai").replace("image_urls = \"any\"", "");
    Catalog::parse(&text, "test").unwrap().models.remove(0)
}

fn parse(body: &str) -> Result<Request, ApiError> {
    super::parse(&Bytes::copy_from_slice(body.as_bytes()))
}

fn forward(body: &str) -> Forward {
    parse(body).unwrap().forward(&model()).unwrap()
}

/// Parameters of an upstream that reports usage during a stream.
const THERE: UpstreamParams<'_> = UpstreamParams {
    form: BodyForm::Checked(ChatTerms::NO_CHAT),
    account: None,
    model: "up/stream",
    limit_param: LimitParam::MaxTokens,
    max_tokens: Some(7),
    progress: ProgressReports::Usage,
    cache_salt: None,
    folded: false,
    refused: upstream_error::RefusedMembers::of_bits(0),
};

/// Returns the body that an upstream gets.
fn sent(forward: &Forward, to: UpstreamParams<'_>) -> Value {
    let BodyPieces { head, rest } = forward.body(to_first(forward, to));
    serde_json::from_slice(&[head, rest].concat()).unwrap()
}

/// Returns a body with these messages.
fn with_messages(messages: &Value) -> String {
    json!({"model": "Model Flash", "messages": messages}).to_string()
}

#[test]
fn what_is_known_is_forwarded_and_nothing_else() {
    assert_eq!(
        sent(&forward(RICH), THERE),
        json!({
            "model": "up/stream", "max_tokens": 7, "stream": true,
            "stream_options": {"include_usage": true, "continuous_usage_stats": true},
            "n": 2, "temperature": 0.7, "top_p": 1, "seed": i64::MIN, "frequency_penalty": -2, "presence_penalty": 2.0,
            "stop": ["a", "\n"], "logprobs": true, "top_logprobs": 20, "logit_bias": {"50256": -100, "7": 1.5},
            "reasoning_effort": "low", "parallel_tool_calls": false,
            "tools": [{"type": "function", "function": {"name": "look-up_2", "description": "d", "strict": true,
                "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}}],
            "tool_choice": {"type": "function", "function": {"name": "look-up_2"}},
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
            "messages": [
                {"role": "system", "content": "Be brief.", "name": "op"},
                {"role": "user", "content": [{"type": "text", "text": "H😀"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD", "detail": "low"}},
                    {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]},
                {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "look-up_2", "arguments": "{\"q\":1}"}}]},
                {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "42"}]},
                {"role": "assistant", "content": "It is 42."},
            ],
        })
    );
}

#[test]
fn what_is_asked_for_is_known() {
    let chat = parse(RICH).unwrap();
    assert_eq!((chat.model.as_str(), chat.stream), ("Model Flash", true));
    assert_eq!((chat.limit.map(|limit| limit.tokens), chat.n, chat.draft.shown.images), (Some(100), 2, 2));
    let forward = forward(&with_messages(&json!([{"role": "user", "content": ""}])));
    assert_eq!((forward.stream, forward.n, forward.image_tokens), (false, 1, 0));
    assert_eq!(
        (forward.max_tokens, forward.limited),
        (4096, false),
        "the model's most, where the request says nothing"
    );
}

#[test]
fn a_whole_answer_is_asked_for_without_stream_options() {
    let body = with_messages(&json!([{"role": "user", "content": "Hi"}]));
    let expected = json!({"model": "up/stream", "max_tokens": 7, "stream": false, "messages": [{"role": "user", "content": "Hi"}]});
    assert_eq!(sent(&forward(&body), THERE), expected);
}

#[test]
fn a_bias_towards_nothing_is_left_out() {
    let body = r#"{"model":"m","logit_bias":{},"messages":[{"role":"user","content":"Hi"}]}"#;
    let forward = forward(body);
    assert!(sent(&forward, THERE).get("logit_bias").is_none() && !forward.may_hide_tokens);
}

#[test]
fn a_request_with_a_bias_may_hide_tokens() {
    let hides = |members: &str| {
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"Hi"}}]{members}}}"#);
        forward(&body).may_hide_tokens
    };
    assert!(hides(r#","logit_bias":{"7":100}"#));
    assert!(!hides(r#","logit_bias":null,"temperature":1"#));
}

#[test]
fn a_whole_answer_that_is_folded_is_asked_for_as_a_stream_with_its_usage() {
    let whole = r#"{"model":"m","messages":[{"role":"user","content":"Hi"}]}"#;
    let to = UpstreamParams { progress: ProgressReports::None, folded: true, ..THERE };
    let sent = sent(&forward(whole), to);
    assert_eq!((&sent["stream"], &sent["stream_options"]), (&json!(true), &json!({"include_usage": true})));
    assert!(sent.get("timings_per_token").is_none());
}

#[test]
fn each_upstream_is_sent_what_it_understands() {
    let streamed = |progress| {
        let body = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "Hi"}]});
        sent(&forward(&body.to_string()), UpstreamParams { progress, ..THERE })
    };
    let usage = json!({"include_usage": true});
    assert_eq!(streamed(ProgressReports::None)["stream_options"], usage);
    assert_eq!(streamed(ProgressReports::Usage)["stream_options"]["continuous_usage_stats"], true);
    let timings = streamed(ProgressReports::Timings);
    assert_eq!((&timings["stream_options"], &timings["timings_per_token"]), (&usage, &json!(true)));
    let whole = forward(&with_messages(&json!([{"role": "user", "content": "Hi"}])));
    let named = sent(&whole, UpstreamParams { limit_param: LimitParam::MaxCompletionTokens, ..THERE });
    assert_eq!((named.get("max_tokens"), &named["max_completion_tokens"]), (None, &json!(7)));
    let forwarded = sent(&whole, UpstreamParams { max_tokens: None, cache_salt: Some("s\"t"), ..THERE });
    assert_eq!((forwarded.get("max_tokens"), &forwarded["cache_salt"]), (None, &json!("s\"t")));
}

/// Returns the beginning that a request shares with others.
fn opening(messages: &Value) -> Option<Vec<u8>> {
    forward(&with_messages(messages)).prompt_prefix().map(<[u8]>::to_vec)
}

#[test]
fn a_conversation_keeps_its_opening_while_it_grows() {
    let long = |text: &str| text.repeat(100);
    let turn = [
        json!({"role": "system", "content": long("Be brief. ")}),
        json!({"role": "user", "content": long("What is it? ")}),
        json!({"role": "assistant", "content": "It."}),
        json!({"role": "user", "content": "Why?"}),
    ];
    let first = opening(&json!(turn[..2]));
    assert!(first.is_some());
    assert_eq!(opening(&json!(turn[..3])), first);
    assert_eq!(opening(&json!(turn)), first);
    let other = json!([turn[0], {"role": "user", "content": long("What was it? ")}]);
    assert_ne!(opening(&other), first, "another conversation");
}

#[test]
fn a_refusal_is_sent_back_as_the_text_that_it_was() {
    let forwarded_message = |message: Value| {
        let body = with_messages(&json!([message, {"role": "user", "content": "Why?"}]));
        sent(&forward(&body), THERE)["messages"][0].take()
    };
    let text = |text: &str| json!({"role": "assistant", "content": text});
    for refusal in [
        json!({"role": "assistant", "refusal": "I \"cannot\"."}),
        json!({"role": "assistant", "content": null, "refusal": "I \"cannot\"."}),
        json!({"role": "assistant", "content": "", "refusal": "I \"cannot\"."}),
        json!({"role": "assistant", "content": "I \"cannot\".", "refusal": ""}),
    ] {
        assert_eq!(forwarded_message(refusal.clone()), text("I \"cannot\"."), "{refusal}");
    }
    let both = json!({"role": "assistant", "content": "Well \"\"", "refusal": "no"});
    assert_eq!(forwarded_message(both), text("Well \"\"\n\nno"));
    let (a, b) = (json!({"type": "text", "text": "a"}), json!({"type": "text", "text": "b"}));
    let part = json!({"role": "assistant", "content": [a, {"type": "refusal", "refusal": "b"}]});
    let beside = json!({"role": "assistant", "content": [a], "refusal": "b"});
    for parts in [part, beside] {
        assert_eq!(forwarded_message(parts), json!({"role": "assistant", "content": [a, b]}));
    }
}

#[test]
fn tools_that_are_not_allowed_are_not_offered() {
    let tool =
        |name: &str| json!({"type": "function", "function": {"name": name, "description": "x".repeat(100)}});
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    let chat = |choice: Value| {
        forward(
            &json!({"model": "m", "messages": [{"role": "user", "content": ""}],
            "tools": [tool("a"), tool("b"), tool("c")], "tool_choice": choice})
            .to_string(),
        )
    };
    let allowed = json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named("c"), named("b")]}});
    let forward = chat(allowed);
    let body = sent(&forward, THERE);
    assert_eq!(body["tools"], json!([tool("b"), tool("c")]));
    assert_eq!(body["tool_choice"], "required");
    assert!(forward.prompt_bound + 100 < chat(json!("auto")).prompt_bound);
    assert_eq!(sent(&chat(named("a")), THERE)["tool_choice"], named("a"));
}

#[test]
fn an_image_by_its_other_name_is_a_jpeg() {
    let body = r#"{"model":"m","messages":[{"role":"user","content":[
        {"type":"image_url","image_url":{"url":"data:image\/JPG;base64,QU\/D"}}]}]}"#;
    let sent = sent(&forward(body), THERE);
    assert_eq!(sent["messages"][0]["content"][0]["image_url"]["url"], "data:image/jpeg;base64,QU/D");
}

#[test]
fn conversations_with_one_long_beginning_have_one_opening() {
    let ask = |question: &str| json!([{"role": "system", "content": "x".repeat(5_000)}, {"role": "user", "content": question}]);
    assert!(opening(&ask("a")).is_some_and(|opening| opening.len() < 5_000));
    assert_eq!(opening(&ask("a")), opening(&ask("b")));
}

#[test]
fn messages_that_are_soon_read_have_no_opening() {
    assert_eq!(opening(&json!([{"role": "user", "content": "Hi"}])), None);
    assert!(
        opening(&json!([{"role": "system", "content": "x".repeat(2_000)}])).is_some(),
        "with no user in it"
    );
}

#[test]
fn numbers_and_texts_are_forwarded_as_they_were_spelled() {
    let body = r#"{"model":"m","temperature":7.0E-1,"messages":[{"role":"user","content":"\u00e9\/é"}]}"#;
    let forward = forward(body);
    let rest = forward.body(to_first(&forward, THERE)).rest;
    assert_eq!(rest, r#","temperature":7.0E-1,"messages":[{"role":"user","content":"\u00e9\/é"}]}"#);
}

#[test]
fn null_means_absent() {
    let nulls = PARAMETERS.iter().map(|name| format!(r#""{name}":null,"#)).collect::<Vec<_>>().concat();
    let body = format!(r#"{{{nulls}"model":"m","messages":[{{"role":"user","content":"Hi","name":null}}]}}"#);
    let sent = sent(&forward(&body), THERE);
    assert_eq!(sent.as_object().unwrap().len(), 4, "{sent}");
}

/// Every optional parameter.
const PARAMETERS: [&str; 22] = [
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "n",
    "temperature",
    "top_p",
    "seed",
    "stop",
    "frequency_penalty",
    "presence_penalty",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "reasoning_effort",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "functions",
    "function_call",
    "top_k",
];

#[test]
fn a_model_may_let_more_through_but_nothing_that_is_read_here() {
    let names = ["top_k", "user", "stream", "messages", "kv_transfer_params", "absent"];
    let model = Model { extra_params: names.map(str::to_owned).to_vec(), ..model() };
    let sent = sent(&parse(RICH).unwrap().forward(&model).unwrap(), THERE);
    assert_eq!(
        (&sent["top_k"], &sent["user"], &sent["kv_transfer_params"]),
        (&json!(40), &json!("u"), &json!({}))
    );
    assert_eq!(sent["stream"], json!(true));
    assert_eq!(sent["messages"].as_array().unwrap().len(), 5);
    assert!(sent.get("absent").is_none() && sent.get("chat_template").is_none());
}

#[test]
fn a_model_bounds_what_may_be_asked_of_it() {
    for name in ["max_tokens", "max_completion_tokens"] {
        let chat = |tokens| {
            parse(&format!(
                r#"{{"model":"m","{name}":{tokens},"messages":[{{"role":"user","content":""}}]}}"#
            ))
        };
        assert_eq!(chat(4096).unwrap().forward(&model()).unwrap().max_tokens, 4096);
        let error = chat(4097).unwrap().forward(&model()).err().unwrap();
        assert_eq!((error.code, error.param.as_deref()), (Code::IntegerAboveMaxValue, Some(name)));
    }
}

#[test]
fn what_a_model_lets_through_is_nested_within_bounds() {
    let deep = "[".repeat(65) + &"]".repeat(65);
    let chat =
        parse(&format!(r#"{{"model":"m","top_k":{deep},"messages":[{{"role":"user","content":""}}]}}"#))
            .unwrap();
    let model = Model { extra_params: vec!["top_k".into()], ..model() };
    let error = chat.forward(&model).err().unwrap();
    assert_eq!((error.code, error.param.as_deref()), (Code::InvalidValue, Some("top_k")));
}

#[test]
fn the_bound_counts_text_by_its_bytes_and_images_by_their_number() {
    let bound = |messages: Value| forward(&with_messages(&messages)).prompt_bound;
    let user = |content: Value| json!([{"role": "user", "content": content}]);
    let empty = bound(user(json!("")));
    assert_eq!(bound(user(json!("x".repeat(1000)))), empty + 1000);
    let image = format!("data:image/png;base64,{}", "A".repeat(4000));
    let image = json!({"type": "image_url", "image_url": {"url": image}});
    let text = json!({"type": "text", "text": ""});
    assert_eq!(bound(user(json!([image, text, image]))), empty + 2000);
}

#[test]
fn an_estimate_takes_a_token_for_four_bytes_of_text_and_images_at_their_bound() {
    let estimate = |content: Value| {
        forward(&with_messages(&json!([{"role": "user", "content": content}]))).prompt_estimate
    };
    let text = json!({"type": "text", "text": "x".repeat(4_000)});
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    assert_eq!(estimate(json!([text])) - estimate(json!("")), 1_000);
    assert_eq!(estimate(json!([text, image, image])), estimate(json!([text])) + 2_000);
}

#[test]
fn a_prompt_of_texts_alone_is_plain() {
    let plain = |more: Value| {
        let mut body = json!({"model": "m", "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        ]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        forward(&body.to_string()).is_plain
    };
    assert!(plain(json!({"temperature": 1, "stop": "x"})));
    let tool = json!({"type": "function", "function": {"name": "f"}});
    let call = json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    for more in [
        json!({ "tools": [tool] }),
        json!({"response_format": {"type": "json_object"}}),
        json!({"messages": [{"role": "user", "content": [image]}]}),
        json!({"messages": [{"role": "user", "content": ""}, {"role": "assistant", "tool_calls": [call]}]}),
    ] {
        assert!(!plain(more.clone()), "{more}");
    }
    let chat = r#"{"model":"m","top_k":1,"messages":[{"role":"user","content":"Hi"}]}"#;
    let model = Model { extra_params: vec!["top_k".into()], ..model() };
    assert!(!parse(chat).unwrap().forward(&model).unwrap().is_plain, "a parameter of the template");
}

#[test]
fn the_bound_covers_prompts_beyond_the_catalogues_window() {
    let body = with_messages(&json!([{"role": "user", "content": "x".repeat(2 << 20)}]));
    assert!(forward(&body).prompt_bound > 2 << 20);
}

#[test]
fn a_request_without_images_or_tools_has_a_small_constant() {
    let body = with_messages(&json!([{"role": "user", "content": "Say hello."}]));
    assert_eq!(forward(&body).prompt_bound, 64 + 16 + 12);
}

/// Counts the bytes of all texts in a value.
fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(text_bytes).sum(),
        Value::Object(members) => members.values().map(text_bytes).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// Generates messages as received, each with the form in which it should be forwarded.
fn message() -> impl Strategy<Value = (Value, Value)> {
    let part = |text: String| json!({"type": "text", "text": text});
    let content = prop_oneof![
        ".{0,20}".prop_map(Value::from),
        prop::collection::vec(".{0,9}".prop_map(part), 1..4).prop_map(Value::Array)
    ];
    let role = prop::sample::select(&["system", "developer", "user", "assistant", "tool"][..]);
    (role, content, ".{1,5}", any::<bool>()).prop_map(|(role, content, id, named)| {
        let mut message = json!({"content": content});
        if role == "tool" {
            message["tool_call_id"] = json!(id);
        }
        if named {
            message["name"] = json!(id);
        }
        if role == "assistant" {
            let call = json!({"id": id, "type": "function", "function": {"name": id, "arguments": id}});
            message["tool_calls"] = json!([call]);
        }
        let mut forwarded = message.clone();
        message["role"] = json!(role);
        message["unknown"] = json!([1]);
        forwarded["role"] = json!(if role == "developer" { "system" } else { role });
        (message, forwarded)
    })
}

proptest! {
    #[test]
    fn messages_keep_their_meaning_and_the_bound_covers_their_text(
        messages in prop::collection::vec(message(), 1..6)
    ) {
        let (came, expected): (Vec<_>, Vec<_>) = messages.into_iter().unzip();
        let forward = forward(&with_messages(&Value::Array(came)));
        let sent = sent(&forward, THERE);
        prop_assert_eq!(&sent["messages"], &Value::Array(expected));
        prop_assert!(forward.prompt_bound >= text_bytes(&sent["messages"]) as u64);
    }

    #[test]
    fn whatever_bytes_come_are_survived(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = super::parse(&Bytes::from(body));
    }

    #[test]
    fn a_damaged_body_is_refused_or_still_forwarded_as_json(
        damage in prop::collection::vec((any::<Index>(), prop::sample::select(&b"{}[]\":,\\u0-1eEnt\x00\xff d"[..]), 0..3), 1..4)
    ) {
        let mut body = RICH.as_bytes().to_vec();
        for (at, byte, how) in damage {
            let at = at.index(body.len());
            match how {
                0 => body[at] = byte,
                1 => body.insert(at, byte),
                _ => drop(body.remove(at)),
            }
        }
        if let Ok(chat) = super::parse(&Bytes::from(body)) {
            let model = Model { extra_params: vec!["top_k".into(), "metadata".into()], ..model() };
            if let Ok(forward) = chat.forward(&model) {
                sent(&forward, THERE);
            }
        }
    }

    #[test]
    fn what_is_cut_out_of_a_body_leaves_an_error_that_names_a_place(at in any::<Index>(), instead in "null|true|1|1\\.5|\"\"|\"x\"|\\[\\]|\\{\\}|\\[null\\]") {
        // Replaces one value, wherever it is, with another.
        let mut body: Value = serde_json::from_str(RICH).unwrap();
        let mut places = Vec::new();
        pointers(&body, String::new(), &mut places);
        *body.pointer_mut(&places[at.index(places.len())]).unwrap() = serde_json::from_str(&instead).unwrap();
        if let Err(error) = parse(&body.to_string()) {
            prop_assert!(error.param.is_some() || error.code == Code::InvalidJson, "{:?}", error);
        }
    }
}

/// Lists the locations of all values.
fn pointers(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            for (i, v) in items.iter().enumerate() {
                pointers(v, format!("{at}/{i}"), found);
            }
        }
        Value::Object(members) => {
            for (name, v) in members {
                pointers(v, format!("{at}/{name}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    found.push(at);
}

#[test]
fn an_image_is_refused_where_no_upstream_may_be_handed_its_url() {
    let body = |url: &str| {
        with_messages(&json!([{"role": "user", "content": "Hi"}, {"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
            {"type": "image_url", "image_url": {"url": url}},
        ]}]))
    };
    let checked = |url: &str, taken: &[ImageUrls]| {
        let mut model = model();
        let upstream = model.upstreams.remove(0);
        model.upstreams =
            taken.iter().map(|taken| Upstream { image_urls: *taken, ..upstream.clone() }).collect();
        parse(&body(url)).unwrap().forward(&model).map(|forward| forward.image_urls)
    };
    let (public, inside) = ("https://example.com/a.png", "http://169.254.169.254/latest");
    assert_eq!(checked("data:image/png;base64,QUJD", &[ImageUrls::Data]), Ok(ImageUrls::Data));
    assert_eq!(checked(public, &[ImageUrls::Data, ImageUrls::Https]), Ok(ImageUrls::Https));
    assert_eq!(checked(inside, &[ImageUrls::Any]), Ok(ImageUrls::Any));
    for (url, taken) in [(public, ImageUrls::Data), (inside, ImageUrls::Https), (inside, ImageUrls::Data)] {
        let error = checked(url, &[taken]).unwrap_err();
        assert_eq!(error.code, Code::InvalidValue, "{url}");
        assert_eq!(error.param.as_deref(), Some("messages[1].content[1].image_url.url"), "{url}");
    }
}

#[test]
fn what_is_passed_on_counts_with_the_prompt_and_the_prompt_has_a_least() {
    let with = |more: &str| {
        forward(&format!(r#"{{"model":"m",{more}"messages":[{{"role":"user","content":"Hi"}}]}}"#))
    };
    let (plain, long) = (with(""), with(&format!(r#""stop":"{}","#, "a".repeat(1_000))));
    assert_eq!(long.prompt_bound, plain.prompt_bound + 1_002);
    assert_eq!((plain.prompt_least, with(r#""temperature":1,"#).prompt_bound), (1, plain.prompt_bound));
    let message = json!([{"role": "user", "content": " ".repeat(1 << 20)}]);
    let blanks = forward(&with_messages(&message));
    // The fewest possible: some tokenizers have a token of 128 blanks.
    assert!(blanks.prompt_least > 1_000 && blanks.prompt_least <= (1 << 20) / 128, "{}", blanks.prompt_least);
    let words = "all sorts of words ".repeat(100_000);
    let least = |role: &str| forward(&with_messages(&json!([{"role": role, "content": words}]))).prompt_least;
    assert!(
        least("user") > 4 * least("assistant"),
        "words have more tokens than blanks, and are not left out"
    );
    assert!(least("user") < 100_000);
}

#[test]
fn a_model_of_embeddings_takes_no_chat() {
    let body = br#"{"model":"Model Flash","messages":[{"role":"user","content":"x"}]}"#;
    let chat = || super::parse(&Bytes::from_static(body)).unwrap();
    let serving = |chat, embeddings| Model { serves: Serves { chat, embeddings }, ..model() };
    assert!(chat().forward(&serving(true, true)).is_ok());
    let refused = chat().forward(&serving(false, true)).err().unwrap();
    assert_eq!((refused.code, refused.param.as_deref()), (Code::UnsupportedValue, Some("model")));
}
