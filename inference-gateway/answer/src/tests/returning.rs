//! What a server signs is returned to it with the next turn, in every dialect, and to no other server.

use request::{BodyPieces, ProgressReports, UpstreamParams};
use shared_catalog::{Catalog, LimitParam, Model, UpstreamApi};

use super::*;

const CALL: &str = "D681PevKs";

/// Returns a model whose only upstream is configured with these lines.
fn model(host: &str, lines: &str) -> Model {
    let catalogue = format!(
        r#"
        [service]
        name = "n"
        provider = "p"
        docs = "d"
        [[model]]
        id = "m"
        owned_by = "o"
        context_window = 1048576
        max_output_tokens = 4096
        [model.price]
        input = "1"
        cached_input = "1"
        output = "1"
        [[model.upstream]]
        url = "https://{host}/v1"
        model = "up"
        {lines}
    "#
    );
    Catalog::parse(&catalogue, "test").unwrap().models.remove(0)
}

/// A server, and its answer: as a whole, and as events.
struct Server {
    lines: &'static str,
    api: UpstreamApi,
    whole: Value,
    events: Vec<Value>,
    /// What the server must get back in its next request.
    returned: Vec<Value>,
    /// Texts that no other server may get.
    secrets: &'static [&'static str],
}

fn gemini() -> Server {
    let extra = json!({"google": {"thought_signature": "c2lnbmVk+/="}});
    let call = json!({"id": CALL, "type": "function", "function": {"name": "f", "arguments": "{}"}, "extra_content": extra});
    let chunk = |delta: Value, finish: Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    Server {
        lines: "kind = \"openai\"\nthought_signatures = true",
        api: UpstreamApi::Chat,
        whole: json!({"choices": [{"message": {"role": "assistant", "tool_calls": [call]}, "finish_reason": "tool_calls"}]}),
        events: vec![
            chunk(json!({"role": "assistant", "tool_calls": [call]}), json!(null)),
            chunk(json!({}), json!("stop")),
        ],
        returned: vec![extra],
        secrets: &["c2lnbmVk"],
    }
}

fn openrouter() -> Server {
    let detail = |text: Value, signature: Value| json!({"type": "reasoning.text", "text": text, "signature": signature, "format": "x", "index": 0});
    let call =
        json!({"index": 0, "id": CALL, "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let chunk = |delta: Value, finish: Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    let whole = detail(json!("one two"), json!("c2ln"));
    Server {
        lines: "kind = \"openai\"\nreasoning_param = \"reasoning_details\"",
        api: UpstreamApi::Chat,
        whole: json!({"choices": [{"message": {"role": "assistant", "content": "Hi", "reasoning": "one two",
            "reasoning_details": [whole], "tool_calls": [call]}, "finish_reason": "tool_calls"}]}),
        events: vec![
            chunk(
                json!({"reasoning": "one ", "reasoning_details": [detail(json!("one "), json!(null))]}),
                json!(null),
            ),
            chunk(
                json!({"reasoning": "two", "reasoning_details": [detail(json!("two"), json!(null))]}),
                json!(null),
            ),
            chunk(json!({"reasoning_details": [detail(json!(null), json!("c2ln"))]}), json!(null)),
            chunk(json!({"content": "Hi"}), json!(null)),
            chunk(json!({"tool_calls": [call]}), json!(null)),
            chunk(json!({}), json!("tool_calls")),
        ],
        returned: vec![json!({"reasoning_details": [whole]})],
        secrets: &["c2ln"],
    }
}

fn anthropic() -> Server {
    let thought = json!({"type": "thinking", "thinking": "one two", "signature": "c2ln"});
    let redacted = json!({"type": "redacted_thinking", "data": "aGlkZGVu"});
    let start = |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta =
        |index: u64, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index: u64| json!({"type": "content_block_stop", "index": index});
    let call = json!({"type": "tool_use", "id": CALL, "name": "f", "input": {}});
    Server {
        lines: "kind = \"anthropic\"",
        api: UpstreamApi::Messages,
        whole: json!({"type": "message", "content": [thought, redacted, {"type": "text", "text": "Hi"}, call], "stop_reason": "tool_use"}),
        events: vec![
            json!({"type": "message_start", "message": {"content": []}}),
            start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
            delta(0, json!({"type": "thinking_delta", "thinking": "one "})),
            delta(0, json!({"type": "thinking_delta", "thinking": "two"})),
            delta(0, json!({"type": "signature_delta", "signature": "c2ln"})),
            stop(0),
            start(1, redacted.clone()),
            stop(1),
            start(2, json!({"type": "text", "text": ""})),
            delta(2, json!({"type": "text_delta", "text": "Hi"})),
            stop(2),
            start(3, call),
            stop(3),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}),
            json!({"type": "message_stop"}),
        ],
        returned: vec![thought, redacted],
        secrets: &["c2ln", "aGlkZGVu"],
    }
}

fn openai() -> Server {
    let reasoning = |content: Value| json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": content});
    let call = json!({"type": "function_call", "id": "fc_1", "call_id": CALL, "name": "f", "arguments": "{}", "status": "completed"});
    let event =
        |kind: &str, index: u64, item: &Value| json!({"type": kind, "output_index": index, "item": item});
    let done = reasoning(json!("OPAQUE77"));
    let whole = json!({"id": "resp_1", "status": "completed", "output": [done, call]});
    Server {
        lines: "kind = \"openai\"\nspeaks = [\"responses\"]",
        api: UpstreamApi::Responses,
        events: vec![
            event("response.output_item.added", 0, &reasoning(json!(null))),
            event("response.output_item.done", 0, &done),
            event("response.output_item.added", 1, &call),
            json!({"type": "response.function_call_arguments.done", "output_index": 1, "arguments": "{}"}),
            event("response.output_item.done", 1, &call),
            json!({"type": "response.completed", "response": whole}),
        ],
        whole,
        returned: vec![
            json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "OPAQUE77", "summary": []}),
        ],
        secrets: &["OPAQUE77"],
    }
}

/// Parses a client's first request.
fn first(api: UpstreamApi) -> request::Request {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let body = match api {
        UpstreamApi::Chat => json!({"model": "m", "messages": messages}),
        UpstreamApi::Messages => {
            json!({"model": "m", "max_tokens": 9, "messages": messages, "thinking": {"type": "adaptive"}})
        }
        UpstreamApi::Responses => json!({"model": "m", "input": messages}),
    };
    parse(api, &body)
}

fn parse(api: UpstreamApi, body: &Value) -> request::Request {
    let body = Bytes::from(body.to_string());
    let parsed = match api {
        UpstreamApi::Chat => request::chat::parse(&body),
        UpstreamApi::Messages => request::messages::parse(&body),
        UpstreamApi::Responses => request::responses::parse(&body, |_| false),
    };
    parsed.unwrap_or_else(|error| panic!("{error:?} {body:?}"))
}

/// Parses the request in which a client sends back an earlier answer and the output of its call.
fn parsed(api: UpstreamApi, earlier: &Value) -> request::Request {
    let body = match api {
        UpstreamApi::Chat => {
            let messages = json!([{"role": "user", "content": "Hi"}, earlier, {"role": "tool", "tool_call_id": CALL, "content": "x"}]);
            json!({"model": "m", "messages": messages})
        }
        UpstreamApi::Messages => {
            let result = json!([{"type": "tool_result", "tool_use_id": CALL, "content": "x"}]);
            let messages = json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": earlier}, {"role": "user", "content": result}]);
            json!({"model": "m", "max_tokens": 9, "messages": messages, "thinking": {"type": "adaptive"}})
        }
        UpstreamApi::Responses => {
            let mut items = vec![json!({"role": "user", "content": "Hi"})];
            items.extend(earlier.as_array().unwrap().iter().cloned());
            items.push(json!({"type": "function_call_output", "call_id": CALL, "output": "x"}));
            json!({"model": "m", "input": items})
        }
    };
    parse(api, &body)
}

/// Returns the body that the model's upstream gets.
fn sent(request: request::Request, model: &Model) -> Value {
    let forward = request.forward(model).unwrap_or_else(|error| panic!("{error:?}"));
    let to = UpstreamParams {
        form: forward.form(&model.upstreams[0]),
        account: None,
        model: "up",
        limit_param: LimitParam::MaxTokens,
        max_tokens: Some(9),
        progress: ProgressReports::None,
        cache_salt: None,
        folded: false,
        refused: upstream_error::RefusedMembers::default(),
    };
    let BodyPieces { head, rest } = forward.body(to);
    serde_json::from_slice(&[head, rest].concat()).unwrap()
}

fn of(model: &Model) -> Generation<'static> {
    Generation { server: ServerId::of(&model.upstreams[0]), ..generation() }
}

/// Returns the answer that a client reads whole, as the client sends it back.
fn read_whole(api: UpstreamApi, server: &Server, model: &Model) -> Value {
    if server.api == UpstreamApi::Chat {
        return written(api, server.whole.to_string().as_bytes(), model);
    }
    read_folded(api, server, model)
}

/// Returns the same as [`read_whole`], for an answer that was first folded into a chat.
fn read_folded(api: UpstreamApi, server: &Server, model: &Model) -> Value {
    let body = Bytes::from(server.whole.to_string());
    let Ok(folded) = whole_as_chat(AnswerReader::new(server.api), body) else { panic!("{}", server.whole) };
    written(api, &folded.body, model)
}

fn written(api: UpstreamApi, body: &[u8], model: &Model) -> Value {
    let reply = first(api).reply;
    let completion = Completion::read(&reply, body).ok().unwrap();
    let mut answer: Value = serde_json::from_slice(&completion.write(of(model), &reply, SETTLED)).unwrap();
    match api {
        UpstreamApi::Chat => answer["choices"][0]["message"].take(),
        UpstreamApi::Messages => answer["content"].take(),
        UpstreamApi::Responses => answer["output"].take(),
    }
}

/// Returns the answer that a client reads as a stream, as the client sends it back.
fn read_stream(api: UpstreamApi, server: &Server, model: &Model) -> Value {
    let reply = first(api).reply;
    let (mut writer, mut out) = (StreamWriter::new(of(model), &reply, 10, false), BytesMut::new());
    let mut reader = AnswerReader::new(server.api);
    for event in &server.events {
        let event = event.to_string();
        match reader.event(event.as_bytes()).ok().unwrap() {
            Event::Chunk(chunk) => writer.chunk(&chunk, &mut out).ok().unwrap(),
            Event::Done => {}
            Event::Failed(..) => panic!("{event}"),
        }
    }
    writer.done(SETTLED, &mut out);
    let events = events(&mut out);
    match api {
        UpstreamApi::Chat => message_of(&events),
        UpstreamApi::Messages => blocks_of(&events),
        UpstreamApi::Responses => events.last().unwrap()["response"]["output"].clone(),
    }
}

/// Joins the chunks of a chat like a client that understands calls and reasoning.
fn message_of(events: &[Value]) -> Value {
    let mut message = json!({"role": "assistant", "content": "", "tool_calls": []});
    let text = |message: &mut Value, name: &str, delta: &Value| {
        if let Some(more) = delta[name].as_str() {
            message[name] = json!(format!("{}{more}", message[name].as_str().unwrap_or_default()));
        }
    };
    for delta in events.iter().filter(|event| event.is_object()).map(|event| &event["choices"][0]["delta"]) {
        text(&mut message, "content", delta);
        text(&mut message, "reasoning_content", delta);
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let calls = message["tool_calls"].as_array_mut().unwrap();
            match calls.get_mut(usize::try_from(call["index"].as_u64().unwrap()).unwrap()) {
                Some(known) => text(&mut known["function"], "arguments", &call["function"]),
                None => calls.push(call.clone()),
            }
        }
        if let Some(details) = delta.get("reasoning_details") {
            assert!(message.get("reasoning_details").is_none(), "they are told once");
            message["reasoning_details"] = details.clone();
        }
    }
    message
}

/// Joins the events of a message.
fn blocks_of(events: &[Value]) -> Value {
    let mut blocks: Vec<Value> = Vec::new();
    for event in events {
        if event["type"] == "content_block_start" {
            blocks.push(event["content_block"].clone());
        }
        if event["type"] != "content_block_delta" {
            continue;
        }
        let (block, delta) = (blocks.last_mut().unwrap(), &event["delta"]);
        for name in ["thinking", "text", "signature"] {
            if let Some(more) = delta[name].as_str() {
                block[name] = json!(format!("{}{more}", block[name].as_str().unwrap()));
            }
        }
    }
    blocks.into()
}

/// Returns an earlier answer that consists only of a call.
fn empty(api: UpstreamApi) -> Value {
    match api {
        UpstreamApi::Chat => {
            json!({"role": "assistant", "content": null, "tool_calls": [{"id": CALL, "type": "function", "function": {"name": "f", "arguments": "{}"}}]})
        }
        UpstreamApi::Messages => json!([{"type": "tool_use", "id": CALL, "name": "f", "input": {}}]),
        UpstreamApi::Responses => {
            json!([{"type": "function_call", "call_id": CALL, "name": "f", "arguments": "{}"}])
        }
    }
}

/// Returns whether a value is contained in another. An object is contained in an object that has all of its members.
fn is_within(part: &Value, whole: &Value) -> bool {
    let fits = match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => part.iter().all(|(name, value)| {
            value.is_null() || whole.get(name).is_some_and(|other| is_within(value, other))
        }),
        (Value::Array(part), Value::Array(whole)) => {
            part.len() == whole.len() && part.iter().zip(whole).all(|(part, whole)| is_within(part, whole))
        }
        (part, whole) => part == whole,
    };
    let inner = || match whole {
        Value::Array(inner) => inner.iter().any(|inner| is_within(part, inner)),
        Value::Object(inner) => inner.values().any(|inner| is_within(part, inner)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    fits || inner()
}

#[test]
fn what_a_server_signs_comes_back_to_it_and_to_no_other() {
    for server in [gemini(), openrouter(), anthropic(), openai()] {
        let own = model("own.example.com", server.lines);
        let others = [
            model("other.example.com", server.lines),
            model("own2.example.com", "kind = \"vllm\""),
            model("own2.example.com", "kind = \"openai\"\nspeaks = [\"responses\"]"),
            model("own2.example.com", "kind = \"anthropic\""),
        ];
        for client in [UpstreamApi::Chat, UpstreamApi::Messages, UpstreamApi::Responses] {
            if own.upstreams[0].api_for(client) == client && client != UpstreamApi::Chat {
                continue;
            }
            for read in [read_whole, read_folded, read_stream] {
                let earlier = read(client, &server, &own);
                let body = sent(parsed(client, &earlier), &own);
                for returned in &server.returned {
                    assert!(is_within(returned, &body), "{returned} of {earlier} in {body}");
                }
                assert!(!body.to_string().contains("fg1."), "{body}");
                for secret in server.secrets {
                    assert!(
                        !earlier.to_string().contains(secret),
                        "a client reads what it only carries: {earlier}"
                    );
                    for other in &others {
                        let body = sent(parsed(client, &earlier), other).to_string();
                        assert!(!body.contains(secret) && !body.contains("fg1."), "{body}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_lost_signature_is_googles_placeholder_and_its_own_form_is_taken_as_it_is() {
    let model = model("own.example.com", gemini().lines);
    let signature = |earlier: &Value, client| {
        let body = sent(parsed(client, earlier), &model);
        body["messages"][1]["tool_calls"][0]["extra_content"]["google"]["thought_signature"].clone()
    };
    for client in [UpstreamApi::Chat, UpstreamApi::Messages, UpstreamApi::Responses] {
        assert_eq!(signature(&empty(client), client), "skip_thought_signature_validator", "{client:?}");
    }
    let mut message = empty(UpstreamApi::Chat);
    message["tool_calls"][0]["extra_content"] =
        json!({"google": {"thought_signature": "of another gateway"}});
    assert_eq!(signature(&message, UpstreamApi::Chat), "of another gateway");
}

#[test]
fn earlier_reasoning_has_the_name_that_its_server_takes() {
    let called = |thought: bool| {
        let mut blocks = empty(UpstreamApi::Messages);
        if thought {
            blocks
                .as_array_mut()
                .unwrap()
                .insert(0, json!({"type": "thinking", "thinking": "hm", "signature": "s"}));
        }
        blocks
    };
    let answered = |lines: &str, blocks: &Value| {
        let model = model("own.example.com", lines);
        let message = sent(parsed(UpstreamApi::Messages, blocks), &model)["messages"][1].take();
        ["reasoning_content", "reasoning"].map(|name| message[name].clone())
    };
    let none = json!(null);
    let hosted = "kind = \"openai\"";
    for (lines, with, without) in [
        (hosted.to_owned(), [none.clone(), none.clone()], [none.clone(), none.clone()]),
        (
            format!("{hosted}\nreasoning_param = \"reasoning_content\""),
            [json!("hm"), none.clone()],
            [json!(""), none.clone()],
        ),
        (
            format!("{hosted}\nreasoning_param = \"reasoning\""),
            [none.clone(), json!("hm")],
            [none.clone(), none.clone()],
        ),
        (
            format!("{hosted}\nreasoning_param = \"reasoning_details\""),
            [none.clone(), json!("hm")],
            [none.clone(), none.clone()],
        ),
        ("kind = \"vllm\"".to_owned(), [none.clone(), json!("hm")], [none.clone(), none.clone()]),
        ("kind = \"ollama\"".to_owned(), [none.clone(), json!("hm")], [none.clone(), none.clone()]),
        ("kind = \"sglang\"".to_owned(), [json!("hm"), none.clone()], [none.clone(), none.clone()]),
        ("kind = \"llama_cpp\"".to_owned(), [json!("hm"), none.clone()], [none.clone(), none.clone()]),
    ] {
        assert_eq!(answered(&lines, &called(true)), with, "{lines}");
        assert_eq!(answered(&lines, &called(false)), without, "{lines}");
    }
}

#[test]
fn ids_of_calls_have_the_form_that_their_server_takes_at_the_call_and_at_its_answer() {
    let ids = |lines: &str, id: &str| {
        let call = json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
        let messages = json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": id, "content": "x"}]);
        let body = Bytes::from(json!({"model": "m", "messages": messages}).to_string());
        let body = sent(request::chat::parse(&body).unwrap(), &model("own.example.com", lines));
        let [call, answer] =
            [&body["messages"][1]["tool_calls"][0]["id"], &body["messages"][2]["tool_call_id"]];
        assert_eq!(call, answer);
        call.as_str().unwrap().to_owned()
    };
    let (any, nine) = ("kind = \"openai\"", "kind = \"openai\"\ncall_ids = \"nine\"");
    let long = "x".repeat(200);
    assert_eq!(ids(any, "functions.read:0"), "functions.read:0");
    assert!(ids(any, &long).starts_with("call_"));
    assert_eq!(ids(nine, CALL), CALL);
    for other in ["functions.read:0", "toolu_01A", &long] {
        let id = ids(nine, other);
        assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
    }
    assert_ne!(ids(nine, "toolu_01"), ids(nine, "toolu_02"));
}

#[test]
fn a_vendors_own_api_gets_no_thoughts_and_no_ids_that_others_made() {
    let other = model("gemini.example.com", gemini().lines);
    let own = model("own.example.com", "kind = \"anthropic\"");
    let earlier = read_whole(UpstreamApi::Messages, &gemini(), &other);
    assert!(earlier.to_string().contains("redacted_thinking"), "{earlier}");
    let blocks = sent(parsed(UpstreamApi::Messages, &earlier), &own)["messages"][1]["content"].take();
    assert_eq!(blocks, json!([{"type": "tool_use", "id": CALL, "name": "f", "input": {}}]));
    let odd = json!([{"type": "tool_use", "id": "functions.read:0", "name": "f", "input": {}}]);
    let blocks = sent(parsed(UpstreamApi::Messages, &odd), &own)["messages"][1]["content"].take();
    assert!(blocks[0]["id"].as_str().unwrap().starts_with("call_"), "{blocks}");

    let own = model("own.example.com", "kind = \"openai\"\nspeaks = [\"responses\"]");
    let earlier = read_whole(UpstreamApi::Responses, &gemini(), &other);
    let body = sent(parsed(UpstreamApi::Responses, &earlier), &own);
    assert!(earlier.to_string().contains("fg1.") && !body.to_string().contains("fg1."), "{body}");
    assert_eq!(body["input"].as_array().unwrap().len(), 3, "{body}");
}

#[test]
fn what_a_client_makes_up_is_no_more_than_a_text_in_a_known_place() {
    let model = model("own.example.com", openrouter().lines);
    for data in
        [r#"fg1.","role":"system","x":""#, "fg1.0000000000000000.!", "fg1.", "fg1.00000000000000zz.W10"]
    {
        let mut message = empty(UpstreamApi::Chat);
        message["reasoning_details"] = json!([{"type": "reasoning.encrypted", "data": data}]);
        message["tool_calls"][0]["extra_content"] = json!({"google": {"thought_signature": data}});
        let body = sent(parsed(UpstreamApi::Chat, &message), &model);
        assert_eq!(body["messages"][1], empty(UpstreamApi::Chat), "{data}");
    }
    let mut message = empty(UpstreamApi::Chat);
    message["reasoning_details"] = json!([{"type": "reasoning.text", "text": "hm", "price": 1, "index": 0}]);
    let body = sent(parsed(UpstreamApi::Chat, &message), &model);
    let kept = json!([{"type": "reasoning.text", "text": "hm", "index": 0}]);
    assert_eq!(body["messages"][1]["reasoning_details"], kept);
}
