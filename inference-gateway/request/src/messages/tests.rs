use proptest::prelude::*;
use serde_json::{Value, json};
use shared::error::Code;
use shared_catalog::{Effort, Model};

use super::*;
use crate::tests::{json_of, model, sent};

fn parse(body: &Value) -> Result<Request, ApiError> {
    super::parse(&Bytes::from(body.to_string()))
}

/// Returns a body with the required members and these.
fn with(members: Value) -> Value {
    let mut body =
        json!({"model": "Model Flash", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]});
    if let (Some(body), Value::Object(members)) = (body.as_object_mut(), members) {
        body.extend(members);
    }
    body
}

/// Returns the request that an upstream reads.
fn chat(members: Value) -> Value {
    sent(parse(&with(members)).unwrap_or_else(|error| panic!("{error:?}")), "vllm")
}

fn messages(messages: &Value) -> Value {
    chat(json!({"messages": messages}))["messages"].clone()
}

/// Returns the code and the location in the error for this body.
fn refused(members: Value) -> (Code, String) {
    let body = with(members);
    let forwarded = parse(&body).and_then(|request| request.forward(&model("vllm")));
    let error = forwarded.err().unwrap_or_else(|| panic!("{body} was not refused"));
    assert!(!error.message.contains("secret"), "{}", error.message);
    (error.code, error.param.unwrap_or_default())
}

/// Asserts that each body is refused with this code, and that the error names this location.
fn assert_refused(cases: &[(Value, Code, &str)]) {
    for (body, code, place) in cases {
        assert_eq!(refused(body.clone()), (*code, (*place).to_owned()), "{body}");
    }
}

fn thinking(members: Value) -> bool {
    let Reply::Messages(reply) = parse(&with(members)).unwrap().reply else { panic!() };
    reply.thinking
}

#[test]
fn what_is_known_is_translated_and_nothing_else() {
    let body = json!({
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "temperature": 1, "top_p": 0.5, "top_k": 40, "stop_sequences": ["END"], "stream": true,
        "tools": [{"name": "look", "description": "d", "input_schema": {"type": "object"}, "cache_control": {}, "defer_loading": true},
            {"type": "custom", "name": "run", "input_schema": {}}, {"type": "web_search_20250305", "name": "web_search"}],
        "tool_choice": {"type": "tool", "name": "look", "disable_parallel_tool_use": true},
        "thinking": {"type": "adaptive", "display": "updates"},
        "output_config": {"effort": "max", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        "metadata": {"user_id": "{}"}, "context_management": {}, "betas": [], "service_tier": "auto", "x": 1,
    });
    assert_eq!(
        chat(body.clone()),
        json!({
            "temperature": 1, "top_p": 0.5, "top_k": 40, "stop": ["END"], "reasoning_effort": "high",
            "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}},
            "tools": [{"type": "function", "function": {"name": "look", "description": "d", "parameters": {"type": "object"}}},
                {"type": "function", "function": {"name": "run", "parameters": {}}}],
            "tool_choice": {"type": "function", "function": {"name": "look"}}, "parallel_tool_calls": false,
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        })
    );
    let forward = parse(&with(body)).unwrap().forward(&model("openai")).unwrap();
    assert_eq!(forward.dropped_tools.as_deref(), Some("web_search_20250305"));
    let sent = crate::tests::body(&forward);
    assert!(sent.get("top_k").is_none(), "a strict upstream refuses what it does not know");
}

#[test]
fn blocks_become_messages() {
    let image =
        json!({"type": "image", "source": {"type": "base64", "media_type": "image/jpg", "data": "QUJD"}});
    let list = json!([
        {"role": "user", "content": [{"type": "text", "text": "Look."},
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}]},
        {"role": "system", "content": "And be kind."},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "of another vendor"},
            {"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"q": "é"}},
            {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}}]},
        {"role": "user", "content": [
            {"type": "text", "text": "There."},
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "42"},
            {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": true,
             "content": [{"type": "text", "text": "a"}, image, {"type": "tool_reference", "tool_name": "run"}]},
            {"type": "tool_result", "tool_use_id": "toolu_3"}]},
        {"role": "assistant", "content": "It is 42."},
    ]);
    assert_eq!(
        messages(&list),
        json!([
            {"role": "user", "content": [{"type": "text", "text": "Look."},
                {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
                {"type": "text", "text": "And be kind."}]},
            {"role": "assistant", "content": "I look.", "reasoning": "hm", "tool_calls": [
                {"id": "toolu_1", "type": "function", "function": {"name": "look", "arguments": "{\"q\":\"é\"}"}},
                {"id": "toolu_2", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "toolu_1", "content": "42"},
            {"role": "tool", "tool_call_id": "toolu_2", "content": "Error:\n\na\n\nrun"},
            {"role": "tool", "tool_call_id": "toolu_3", "content": ""},
            {"role": "user", "content": [{"type": "text", "text": "There."},
                {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,QUJD"}}]},
            {"role": "assistant", "content": "It is 42."},
        ])
    );
}

#[test]
fn thinking_of_any_vendor_is_taken_back() {
    let thinking = |signature: Value| {
        let mut block = json!({"type": "thinking", "thinking": "hm"});
        block["signature"] = signature;
        let earlier = json!({"role": "assistant", "content": [block, {"type": "text", "text": "a"}]});
        messages(&json!([{"role": "user", "content": "Hi"}, earlier]))[1]["reasoning"].clone()
    };
    for signature in [json!("EqQBCkYIARgCKkDsomeone+else=="), json!(""), json!(null), json!("gen_1")] {
        assert_eq!(thinking(signature.clone()), "hm", "{signature}");
    }
}

#[test]
fn results_alone_leave_no_message_of_the_user() {
    let list = json!([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "a"}]}]}]);
    assert_eq!(messages(&list), json!([{"role": "tool", "tool_call_id": "t", "content": "a"}]));
}

#[test]
fn bare_thinking_is_accepted_and_shown_where_asked_for() {
    assert!(thinking(json!({"thinking": {"type": "enabled"}})));
    assert!(thinking(json!({"thinking": {"type": "adaptive"}})));
    assert!(!thinking(json!({"thinking": {"type": "disabled"}})) && !thinking(json!({})));
    assert_eq!(chat(json!({"thinking": {"type": "disabled"}}))["reasoning_effort"], "low");
    assert!(
        chat(json!({"thinking": {"type": "enabled", "budget_tokens": 1}})).get("reasoning_effort").is_none()
    );
}

#[test]
fn the_effort_nearest_to_what_was_asked_for_is_written() {
    let sent = |members: Value, efforts: &[Effort]| {
        let model = Model { efforts: efforts.to_vec(), ..model("vllm") };
        let forward = parse(&with(members)).unwrap().forward(&model).unwrap();
        crate::tests::body(&forward)["reasoning_effort"].clone()
    };
    let asked = |effort: &str| json!({"output_config": {"effort": effort}});
    assert_eq!(sent(asked("max"), &[Effort::None, Effort::Medium]), "medium");
    assert_eq!(sent(asked("xhigh"), &[Effort::High, Effort::Xhigh]), "xhigh");
    assert_eq!(sent(json!({"thinking": {"type": "disabled"}}), &[Effort::None, Effort::High]), "none");
    assert_eq!(sent(asked("high"), &[]), json!(null));
}

#[test]
fn a_billing_block_at_the_head_of_the_system_prompt_is_left_out() {
    let billing = |rest: &str| json!({"type": "text", "text": format!("x-anthropic-billing-header: {rest}")});
    let brief = json!({"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}});
    let system = |system: Value| chat(json!({"system": system}))["messages"][0].clone();
    let said = |text: &str| json!({"role": "system", "content": text});
    assert_eq!(system(json!([billing("cc_version=2; cch=1a2b3;"), brief])), said("Be brief."));
    assert_eq!(system(json!([billing("cch=1;")])), json!({"role": "user", "content": "Hi"}));
    // Nothing else is left out: a later block, or a whole prompt that begins like this, is the caller's own.
    assert_eq!(system(json!([brief, billing("x")])), said("Be brief.\n\nx-anthropic-billing-header: x"));
    assert_eq!(
        system(json!("x-anthropic-billing-header: x\nBe brief.")),
        said("x-anthropic-billing-header: x\nBe brief.")
    );
}

#[test]
fn conversations_of_an_agent_begin_alike_although_their_billing_blocks_differ() {
    let forward = |billing: &str| {
        let system = json!([
            {"type": "text", "text": format!("x-anthropic-billing-header: cc_prev_req={billing};")},
            {"type": "text", "text": "All about the work of an agent. ".repeat(200)},
        ]);
        parse(&with(json!({ "system": system }))).unwrap().forward(&model("vllm")).unwrap()
    };
    let (first, second) = (forward("req_1"), forward("req_22"));
    assert_eq!(first.prompt_prefix().unwrap().len(), 4 << 10);
    assert_eq!(first.prompt_prefix(), second.prompt_prefix());
}

#[test]
fn stop_sequences_reach_the_upstream_and_the_writer() {
    assert_eq!(chat(json!({"stop_sequences": ["a", "\n"]}))["stop"], json!(["a", "\n"]));
    assert!(chat(json!({"stop_sequences": []})).get("stop").is_none());
    let Reply::Messages(reply) = parse(&with(json!({"stop_sequences": ["\n"]}))).unwrap().reply else {
        panic!()
    };
    assert_eq!(reply.stops, ["\n"]);
}

#[test]
fn a_limit_beyond_the_models_is_lowered() {
    let forward = parse(&with(json!({"max_tokens": 32000}))).unwrap().forward(&model("vllm")).unwrap();
    assert_eq!((forward.max_tokens, forward.limited), (4096, true));
}

#[test]
fn a_prompt_is_counted_without_a_limit() {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]});
    let bytes = Bytes::from(body.to_string());
    assert!(parse_to_count(&bytes).is_ok());
    let error = super::parse(&bytes).err().unwrap();
    assert_eq!((error.code, error.param.as_deref()), (Code::MissingRequiredParameter, Some("max_tokens")));
}

#[test]
fn without_a_tool_nothing_is_said_of_tools() {
    for tools in [json!([]), json!(null), json!([{"type": "bash_20250124", "name": "bash"}])] {
        let sent =
            chat(json!({"tools": tools, "tool_choice": {"type": "any", "disable_parallel_tool_use": true}}));
        assert_eq!(sent, json!({"messages": [{"role": "user", "content": "Hi"}]}));
    }
}

#[test]
fn a_choice_of_tools_is_translated() {
    let tools = json!([{"name": "f", "input_schema": {}}]);
    for (kind, expected) in [("auto", "auto"), ("any", "required"), ("none", "none")] {
        let sent = chat(json!({"tools": tools, "tool_choice": {"type": kind}}));
        assert_eq!(sent["tool_choice"], expected);
        assert!(sent.get("parallel_tool_calls").is_none());
    }
}

#[test]
fn a_fault_of_a_setting_is_named_by_its_place() {
    assert_refused(&[
        (json!({"max_tokens": 0}), Code::IntegerBelowMinValue, "max_tokens"),
        (json!({"system": 1}), Code::InvalidType, "system"),
        (json!({"system": [{"type": "image"}]}), Code::UnsupportedValue, "system[0].type"),
        (json!({"stop_sequences": ["a", "b", "c", "d", "e"]}), Code::ArrayAboveMaxLength, "stop_sequences"),
        (json!({"stop_sequences": [""]}), Code::EmptyString, "stop_sequences[0]"),
        (json!({"top_k": -1}), Code::IntegerBelowMinValue, "top_k"),
        (json!({"thinking": {"type": "secret"}}), Code::InvalidValue, "thinking.type"),
        (json!({"output_config": {"effort": "secret"}}), Code::InvalidValue, "output_config.effort"),
        (
            json!({"output_config": {"format": {"type": "json_schema"}}}),
            Code::MissingRequiredParameter,
            "output_config.format.schema",
        ),
    ]);
}

#[test]
fn a_fault_of_a_tool_is_named_by_its_place() {
    assert_refused(&[
        (json!({"tools": [{"name": "f"}]}), Code::MissingRequiredParameter, "tools[0].input_schema"),
        (json!({"tools": [{"name": "a b", "input_schema": {}}]}), Code::InvalidValue, "tools[0].name"),
        (
            json!({"tools": vec![json!({"name": "f", "input_schema": {}}); 513]}),
            Code::ArrayAboveMaxLength,
            "tools",
        ),
        (
            json!({"tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "tool", "name": "g"}}),
            Code::InvalidValue,
            "tool_choice.name",
        ),
    ]);
}

#[test]
fn a_fault_of_a_message_is_named_by_its_place() {
    assert_refused(&[
        (json!({"messages": []}), Code::EmptyArray, "messages"),
        (json!({"messages": [{"role": "system", "content": ""}]}), Code::InvalidValue, "messages"),
        (json!({"messages": [{"role": "tool", "content": "x"}]}), Code::InvalidValue, "messages[0].role"),
        (json!({"messages": [{"role": "user"}]}), Code::MissingRequiredParameter, "messages[0].content"),
    ]);
}

#[test]
fn a_fault_of_a_block_is_named_by_its_place() {
    let user = |block: Value| json!({"messages": [{"role": "user", "content": "Hi"}, {"role": "user", "content": [block]}]});
    let assistant = |block: Value| json!({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [block]}]});
    let image = |source: Value| user(json!({"type": "image", "source": source}));
    assert_refused(&[
        (
            user(json!({"type": "document", "source": {"type": "text"}})),
            Code::UnsupportedValue,
            "messages[1].content[0].type",
        ),
        (user(json!({"type": "other"})), Code::UnsupportedValue, "messages[1].content[0].type"),
        (
            user(
                json!({"type": "tool_result", "tool_use_id": "t", "content": [{"type": "document", "source": {"type": "text"}}]}),
            ),
            Code::UnsupportedValue,
            "messages[1].content[0].content[0].type",
        ),
        (
            assistant(json!({"type": "web_search_tool_result"})),
            Code::UnsupportedValue,
            "messages[1].content[0].type",
        ),
        (
            assistant(json!({"type": "tool_use", "id": "t", "name": "f", "input": []})),
            Code::InvalidType,
            "messages[1].content[0].input",
        ),
        (image(json!({"type": "file"})), Code::UnsupportedValue, "messages[1].content[0].source.type"),
        (
            image(json!({"type": "base64", "media_type": "image/svg+xml", "data": "QUJD"})),
            Code::InvalidValue,
            "messages[1].content[0].source.media_type",
        ),
        (
            image(json!({"type": "base64", "media_type": "image/png", "data": "QUJ"})),
            Code::InvalidValue,
            "messages[1].content[0].source.data",
        ),
        (
            image(json!({"type": "url", "url": "file:///secret"})),
            Code::InvalidValue,
            "messages[1].content[0].source.url",
        ),
    ]);
}

/// Generates JSON that contains words of this dialect.
fn hostile() -> impl Strategy<Value = Value> {
    json_of(vec![
        "messages",
        "role",
        "user",
        "assistant",
        "system",
        "content",
        "type",
        "text",
        "image",
        "source",
        "base64",
        "media_type",
        "image/png",
        "data",
        "QUJD",
        "url",
        "https://example.com",
        "tool_use",
        "id",
        "name",
        "input",
        "tool_result",
        "tool_use_id",
        "is_error",
        "thinking",
        "redacted_thinking",
        "tool_reference",
        "tool_name",
        "tools",
        "input_schema",
        "tool_choice",
        "any",
        "tool",
        "output_config",
        "effort",
        "format",
        "json_schema",
        "schema",
        "stop_sequences",
        "disabled",
        "enabled",
    ])
}

proptest! {
    #[test]
    fn whatever_comes_is_refused_or_becomes_a_chat(
        role in prop::sample::select(vec!["user", "assistant", "system"]), content in hostile(), more in hostile(),
    ) {
        let mut body = with(json!({"messages": [{"role": role, "content": content}]}));
        if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
            body.extend(more);
        }
        if let Ok(request) = parse(&body)
            && let Ok(forward) = request.forward(&model("openai"))
        {
            let sent = crate::tests::body(&forward);
            prop_assert!(!sent["messages"].as_array().unwrap().is_empty());
        }
    }

    #[test]
    fn bytes_of_any_kind_are_survived(body in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = super::parse(&Bytes::from(body));
    }
}
