use proptest::prelude::*;
use serde_json::{Value, json};
use shared::error::Code;
use shared_catalog::{Effort, Model};

use super::*;
use crate::tests::{json_of, model, sent};

fn parse(body: &Value) -> Result<Request, ApiError> {
    super::parse(&Bytes::from(body.to_string()), |_| false)
}

/// Returns the request that an upstream reads for this body, without `model`.
fn chat(mut body: Value) -> Value {
    body["model"] = "Model Flash".into();
    sent(parse(&body).unwrap_or_else(|error| panic!("{error:?}")), "vllm")
}

/// Returns the messages that an upstream reads for this input.
fn messages(input: &Value) -> Value {
    chat(json!({"input": input}))["messages"].clone()
}

/// Returns the code and the location in the error for this body.
fn refused(mut body: Value) -> (Code, String) {
    body["model"] = "Model Flash".into();
    if body.get("input").is_none() {
        body["input"] = "Hi".into();
    }
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

/// Returns the members of the response that repeat the request's.
fn echo(mut body: Value) -> Value {
    body["model"] = "Model Flash".into();
    let Reply::Responses(reply) = parse(&body).unwrap().reply else { panic!() };
    assert!(!reply.echo.contains('\n'));
    serde_json::from_str(&format!("{{{}}}", &reply.echo[1..])).unwrap()
}

#[test]
fn a_text_is_a_message_of_the_user() {
    assert_eq!(chat(json!({"input": "Hi"})), json!({"messages": [{"role": "user", "content": "Hi"}]}));
}

#[test]
fn what_is_known_is_translated_and_nothing_else() {
    let body = json!({
        "instructions": "Be brief.", "stream": true, "max_output_tokens": 100, "temperature": 0.5, "top_p": 1,
        "top_logprobs": 2, "parallel_tool_calls": false, "tool_choice": {"type": "function", "name": "look"},
        "reasoning": {"effort": "minimal", "summary": "auto"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": true}, "verbosity": "low"},
        "store": true, "include": ["reasoning.encrypted_content"], "metadata": {"a": "b"}, "user": "u", "x": 1,
        "safety_identifier": "s", "prompt_cache_key": "k", "service_tier": "auto", "truncation": "auto",
        "client_metadata": {}, "previous_response_id": null, "background": false,
        "tools": [{"type": "function", "name": "look", "description": "d", "parameters": {"type": "object"}, "strict": false}],
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"},
            {"type": "input_image", "image_url": "data:image/png;base64,QUJD", "detail": "auto"}]}],
    });
    assert_eq!(
        chat(body),
        json!({
            "temperature": 0.5, "top_p": 1, "logprobs": true, "top_logprobs": 2, "reasoning_effort": "low",
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": true}},
            "tools": [{"type": "function", "function": {"name": "look", "description": "d",
                "parameters": {"type": "object"}, "strict": false}}],
            "tool_choice": {"type": "function", "function": {"name": "look"}}, "parallel_tool_calls": false,
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [
                {"type": "text", "text": "Hi"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD", "detail": "auto"}}]}],
        })
    );
}

#[test]
fn items_become_messages() {
    let items = json!([
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "One."}]},
        {"role": "user", "content": "Look."},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": "{\"q\":1}"},
        {"type": "custom_tool_call", "call_id": "call_2", "name": "patch", "input": "a \"b\"\n"},
        {"type": "function_call_output", "call_id": "call_1", "output": "42"},
        {"type": "custom_tool_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "ok"},
            {"type": "input_image", "image_url": "https://example.com/a.png"}]},
        {"type": "message", "role": "system", "content": "Two."},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "user", "content": "Why?"},
    ]);
    assert_eq!(
        messages(&items),
        json!([
            {"role": "system", "content": "One."},
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": "I look.", "reasoning": "hm", "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{\"q\":1}"}},
                {"id": "call_2", "type": "function",
                 "function": {"name": "patch", "arguments": "{\"input\":\"a \\\"b\\\"\\n\"}"}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "42"},
            {"role": "tool", "tool_call_id": "call_2", "content": "ok"},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
                {"type": "text", "text": "Two."}]},
            {"role": "assistant", "content": "No."},
            {"role": "user", "content": "Why?"},
        ])
    );
}

#[test]
fn an_output_of_images_alone_says_that_they_follow() {
    let items = json!([{"type": "function_call_output", "call_id": "c",
        "output": [{"type": "input_image", "image_url": "data:image/png;base64,QUJD"}]}]);
    let sent = messages(&items);
    assert_eq!(sent[0], json!({"role": "tool", "tool_call_id": "c", "content": "(The image follows.)"}));
    assert_eq!(sent[1]["content"][0]["image_url"]["url"], "data:image/png;base64,QUJD");
}

#[test]
fn reasoning_goes_only_to_upstreams_that_take_it() {
    let body = json!({"model": "m", "input": [
        {"role": "user", "content": "Hi"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "x"},
        {"role": "assistant", "content": "Hi."}, {"role": "user", "content": "Go on."}]});
    for (kind, reasoning) in [("sglang", json!("hm")), ("llama_cpp", json!("hm")), ("openai", json!(null))] {
        let sent = sent(parse(&body).unwrap(), kind);
        assert_eq!(sent["messages"][1]["reasoning_content"], reasoning, "{kind}");
        assert_eq!(sent["messages"][2]["content"], "Go on.");
    }
    let alone =
        json!([{"role": "user", "content": "Hi"}, {"type": "reasoning", "summary": [{"text": "hm"}]}]);
    assert_eq!(messages(&alone).as_array().unwrap().len(), 1, "no message follows");
}

#[test]
fn custom_tools_and_namespaces_become_functions() {
    let tools = json!([
        {"type": "custom", "name": "patch", "description": "Patches.", "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"}},
        {"type": "namespace", "name": "mcp", "tools": [{"type": "function", "name": "look", "parameters": null}, {"type": "custom", "name": "run"}]},
        {"type": "web_search", "x": 1}, {"type": "local_shell"}, {"type": "web_search"},
    ]);
    let sent = chat(json!({"input": "Hi", "tools": tools}));
    let one_text = json!({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"],
        "additionalProperties": false});
    assert_eq!(
        sent["tools"],
        json!([
            {"type": "function", "function": {"name": "patch", "parameters": one_text,
                "description": "Patches.\n\nThe input follows this Lark grammar:\n\nstart: x"}},
            {"type": "function", "function": {"name": "mcp__look"}},
            {"type": "function", "function": {"name": "mcp__run", "parameters": one_text}},
        ])
    );
    let request = parse(&json!({"model": "m", "input": "Hi", "tools": tools})).unwrap();
    let forward = request.forward(&model("vllm")).unwrap();
    assert_eq!(forward.dropped_tools.as_deref(), Some("web_search, local_shell"));
}

#[test]
fn tools_may_come_as_an_item() {
    let sent = chat(json!({"input": [
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "f"}]},
        {"role": "user", "content": "Hi"}]}));
    assert_eq!(sent["tools"][0]["function"]["name"], "f");
    assert_eq!(sent["messages"].as_array().unwrap().len(), 1);
}

#[test]
fn without_a_tool_nothing_is_said_of_tools() {
    for tools in [json!([]), json!([{"type": "web_search"}]), json!(null)] {
        let body = json!({"input": "Hi", "tools": tools, "tool_choice": "auto", "parallel_tool_calls": true});
        assert_eq!(chat(body), json!({"messages": [{"role": "user", "content": "Hi"}]}));
    }
}

#[test]
fn an_earlier_call_has_the_name_of_its_tool() {
    let call = |name: &str| json!({"type": "function_call", "call_id": "c", "namespace": "mcp", "name": name, "arguments": "{}"});
    let name = |tools: Value, name: &str| {
        let sent = chat(json!({"input": [{"role": "user", "content": "Hi"}, call(name)], "tools": tools}));
        sent["messages"][1]["tool_calls"][0]["function"]["name"].as_str().unwrap().to_owned()
    };
    let offered =
        json!([{"type": "namespace", "name": "mcp", "tools": [{"type": "function", "name": "look"}]}]);
    assert_eq!(name(offered.clone(), "look"), "mcp__look");
    assert_eq!(name(json!([]), "gone"), "mcp__gone");
    // A function with the same name is offered too, so the namespace's tool gets another name.
    let mut taken = vec![json!({"type": "function", "name": "mcp__look"})];
    taken.push(offered[0].clone());
    let other = name(json!(taken), "look");
    assert!(other.starts_with("mcp__look_") && other.len() <= 128, "{other}");
    let long = "x".repeat(128);
    let offered =
        json!([{"type": "namespace", "name": "mcp", "tools": [{"type": "function", "name": long}]}]);
    let flat = name(offered.clone(), &long);
    assert_eq!(flat.len(), 128);
    assert_eq!(chat(json!({"input": "Hi", "tools": offered}))["tools"][0]["function"]["name"], flat);
}

#[test]
fn a_choice_of_tools_is_translated() {
    let with = |choice: Value| {
        let tools = json!([{"type": "function", "name": "f"},
            {"type": "namespace", "name": "n", "tools": [{"type": "custom", "name": "g"}]}]);
        chat(json!({"input": "Hi", "tools": tools, "tool_choice": choice}))
    };
    for mode in ["auto", "none", "required"] {
        assert_eq!(with(json!(mode))["tool_choice"], mode);
    }
    let named = with(json!({"type": "custom", "name": "g", "namespace": "n"}));
    assert_eq!(named["tool_choice"], json!({"type": "function", "function": {"name": "n__g"}}));
    let allowed = with(json!({"type": "allowed_tools", "mode": "required",
        "tools": [{"type": "function", "name": "f"}, {"type": "web_search"}]}));
    assert_eq!(allowed["tool_choice"], "required");
    assert_eq!(allowed["tools"].as_array().unwrap().len(), 1);
}

#[test]
fn the_effort_nearest_to_what_was_asked_for_is_written() {
    for (effort, sent) in [
        ("none", json!("low")),
        ("minimal", json!("low")),
        ("low", json!("low")),
        ("medium", json!(null)),
        ("high", json!("high")),
        ("xhigh", json!("high")),
        ("max", json!("high")),
    ] {
        assert_eq!(
            chat(json!({"input": "Hi", "reasoning": {"effort": effort}}))["reasoning_effort"],
            sent,
            "{effort}"
        );
    }
    let sent = |word: &str, efforts: &[Effort]| {
        let asked = json!({"model": "Model Flash", "input": "Hi", "reasoning": {"effort": word}});
        let model = Model { efforts: efforts.to_vec(), ..model("vllm") };
        crate::tests::body(&parse(&asked).unwrap().forward(&model).unwrap())["reasoning_effort"].clone()
    };
    assert_eq!(sent("medium", &[Effort::Minimal, Effort::Medium]), "medium");
    assert_eq!(sent("minimal", &[Effort::None, Effort::Low]), "low");
    assert_eq!(
        refused(json!({"reasoning": {"effort": "secret"}})),
        (Code::InvalidValue, "reasoning.effort".into())
    );
}

#[test]
fn stored_state_is_refused_by_name() {
    for (body, place) in [
        (json!({"previous_response_id": "resp_1"}), "previous_response_id"),
        (json!({"conversation": "conv_1"}), "conversation"),
        (json!({"prompt": {"id": "p"}}), "prompt"),
        (json!({"background": true}), "background"),
        (json!({"input": [{"type": "item_reference", "id": "msg_1"}]}), "input[0].id"),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]}),
            "input[0].content[0].file_id",
        ),
    ] {
        let (code, param) = refused(body);
        assert_eq!((code, param.as_str()), (Code::UnsupportedParameter, place));
    }
    let dropped = json!([{"role": "user", "content": "Hi"}, {"type": "item_reference", "id": "rs_1"},
        {"type": "compaction", "encrypted_content": "x"}, {"type": "compaction_trigger"}, {"type": "configuration_update"}]);
    assert_eq!(messages(&dropped), json!([{"role": "user", "content": "Hi"}]));
}

#[test]
fn a_fault_of_a_setting_is_named_by_its_place() {
    assert_refused(&[
        (json!({"max_output_tokens": 0}), Code::IntegerBelowMinValue, "max_output_tokens"),
        (json!({"temperature": 3}), Code::DecimalAboveMaxValue, "temperature"),
        (json!({"top_logprobs": 21}), Code::IntegerAboveMaxValue, "top_logprobs"),
        (json!({"text": {"format": {"type": "secret"}}}), Code::InvalidValue, "text.format.type"),
        (
            json!({"text": {"format": {"type": "json_schema", "name": "n"}}}),
            Code::MissingRequiredParameter,
            "text.format.schema",
        ),
        (json!({"reasoning": {"summary": "secret"}}), Code::InvalidValue, "reasoning.summary"),
    ]);
}

#[test]
fn a_fault_of_a_tool_is_named_by_its_place() {
    let tool = |tool: Value| json!({"tools": [tool]});
    assert_refused(&[
        (json!({"tool_choice": {"type": "web_search"}}), Code::UnsupportedValue, "tool_choice.type"),
        (
            json!({"tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "function", "name": "g"}}),
            Code::InvalidValue,
            "tool_choice",
        ),
        (tool(json!({"type": "function"})), Code::MissingRequiredParameter, "tools[0].name"),
        (tool(json!({"type": "function", "name": "a b"})), Code::InvalidValue, "tools[0].name"),
        (
            tool(json!({"type": "function", "name": "x".repeat(129)})),
            Code::StringAboveMaxLength,
            "tools[0].name",
        ),
        (
            tool(json!({"type": "function", "name": "f", "parameters": 1})),
            Code::InvalidType,
            "tools[0].parameters",
        ),
        (
            tool(json!({"type": "namespace", "name": "n", "tools": [{"type": "mcp"}]})),
            Code::InvalidValue,
            "tools[0].tools[0].type",
        ),
        (
            json!({"tools": vec![json!({"type": "function", "name": "f"}); 513]}),
            Code::ArrayAboveMaxLength,
            "tools",
        ),
    ]);
}

#[test]
fn a_fault_of_the_input_is_named_by_its_place() {
    assert_refused(&[
        (json!({"input": []}), Code::EmptyArray, "input"),
        (json!({"input": 1}), Code::InvalidType, "input"),
        (json!({"input": [{"role": "system", "content": ""}]}), Code::InvalidValue, "input"),
    ]);
    let missing = super::parse(&Bytes::from_static(br#"{"model":"m"}"#), |_| false).err().unwrap();
    assert_eq!((missing.code, missing.param.as_deref()), (Code::MissingRequiredParameter, Some("input")));
}

#[test]
fn a_fault_of_an_item_is_named_by_its_place() {
    let item = |item: Value| json!({"input": [{"role": "user", "content": "Hi"}, item]});
    let part = |part: Value| item(json!({"role": "user", "content": [part]}));
    assert_refused(&[
        (item(json!({"role": "tool", "content": "x"})), Code::InvalidValue, "input[1].role"),
        (item(json!({"type": "web_search_call"})), Code::UnsupportedValue, "input[1].type"),
        (item(json!({"type": "other"})), Code::UnsupportedValue, "input[1].type"),
        (item(json!({})), Code::MissingRequiredParameter, "input[1].type"),
        (
            item(json!({"type": "function_call", "call_id": "", "name": "f", "arguments": ""})),
            Code::EmptyString,
            "input[1].call_id",
        ),
        (
            item(json!({"type": "function_call", "call_id": "c", "name": "f"})),
            Code::MissingRequiredParameter,
            "input[1].arguments",
        ),
        (
            item(json!({"type": "function_call_output", "output": ""})),
            Code::MissingRequiredParameter,
            "input[1].call_id",
        ),
        (
            item(json!({"role": "assistant", "content": [{"type": "input_image"}]})),
            Code::UnsupportedValue,
            "input[1].content[0].type",
        ),
        (
            part(json!({"type": "input_file", "file_id": "f"})),
            Code::UnsupportedParameter,
            "input[1].content[0].file_id",
        ),
        (
            part(json!({"type": "input_image", "image_url": "file:///secret"})),
            Code::InvalidValue,
            "input[1].content[0].image_url",
        ),
        (part(json!({"type": "input_text"})), Code::MissingRequiredParameter, "input[1].content[0].text"),
        (
            item(
                json!({"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": "x"}]}),
            ),
            Code::InvalidValue,
            "input[1].output[0].image_url",
        ),
    ]);
}

#[test]
fn a_limit_beyond_the_models_is_refused() {
    let body = json!({"model": "m", "input": "Hi", "max_output_tokens": 5000});
    let error = parse(&body).unwrap().forward(&model("vllm")).err().unwrap();
    assert_eq!((error.code, error.param.as_deref()), (Code::IntegerAboveMaxValue, Some("max_output_tokens")));
}

#[test]
fn a_response_repeats_the_request_and_has_every_member() {
    let silent = echo(json!({"input": "Hi"}));
    for (name, value) in [
        ("temperature", json!(1)),
        ("top_p", json!(1)),
        ("presence_penalty", json!(0)),
        ("frequency_penalty", json!(0)),
        ("top_logprobs", json!(0)),
        ("tools", json!([])),
        ("tool_choice", json!("auto")),
        ("truncation", json!("disabled")),
        ("parallel_tool_calls", json!(true)),
        ("text", json!({"format": {"type": "text"}, "verbosity": "medium"})),
        ("service_tier", json!("default")),
        ("metadata", json!({})),
        ("store", json!(false)),
        ("background", json!(false)),
        ("reasoning", json!({"effort": null, "summary": null})),
    ] {
        assert_eq!(silent[name], value, "{name}");
    }
    for name in [
        "previous_response_id",
        "instructions",
        "user",
        "max_output_tokens",
        "max_tool_calls",
        "safety_identifier",
        "prompt_cache_key",
    ] {
        assert_eq!(silent.get(name), Some(&json!(null)), "{name}");
    }
    let tools = json!([{"type": "web_search", "x": [1]},
        {"type": "function", "name": "f", "description": "d", "parameters": null}]);
    let told = echo(
        json!({"input": "Hi", "tools": tools, "instructions": "a\nb", "metadata": {"a": "b"}, "temperature": 0.70,
        "reasoning": {"effort": "high", "summary": "auto"}, "text": {"verbosity": "low"}, "store": true}),
    );
    assert_eq!((&told["instructions"], &told["metadata"]), (&json!("a\nb"), &json!({"a": "b"})));
    let function =
        json!({"type": "function", "name": "f", "description": "d", "parameters": null, "strict": null});
    assert_eq!(told["tools"], json!([tools[0], function]));
    assert_eq!(
        (&told["reasoning"], &told["store"]),
        (&json!({"effort": "high", "summary": "auto"}), &json!(false))
    );
    assert_eq!(told["text"], json!({"format": {"type": "text"}, "verbosity": "low"}));
}

#[test]
fn what_is_repeated_is_on_one_line_however_it_was_spelled() {
    let body = "{\"model\": \"m\", \"input\": \"Hi\", \"tools\": [\n  {\"type\":\r\n \"web_search\"}\n]}";
    let Reply::Responses(reply) = super::parse(&Bytes::from(body), |_| false).unwrap().reply else {
        panic!()
    };
    assert!(!reply.echo.contains(['\n', '\r']));
}

/// Generates JSON that contains words of this dialect.
fn hostile() -> impl Strategy<Value = Value> {
    json_of(vec![
        "input",
        "type",
        "role",
        "content",
        "message",
        "user",
        "assistant",
        "developer",
        "function_call",
        "call_id",
        "name",
        "arguments",
        "output",
        "function_call_output",
        "input_image",
        "image_url",
        "input_text",
        "text",
        "tools",
        "function",
        "namespace",
        "custom",
        "reasoning",
        "summary",
        "additional_tools",
        "tool_choice",
        "allowed_tools",
        "mode",
        "auto",
        "data:image/png;base64,QUJD",
        "item_reference",
        "id",
        "rs_1",
        "format",
        "json_schema",
        "schema",
        "custom_tool_call",
    ])
}

proptest! {
    #[test]
    fn whatever_comes_is_refused_or_becomes_a_chat(input in hostile(), tools in hostile(), more in hostile()) {
        let mut body = json!({"model": "Model Flash", "input": input, "tools": tools});
        if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
            body.extend(more);
        }
        if let Ok(request) = parse(&body)
            && let Ok(forward) = request.forward(&model("vllm"))
        {
            let sent = crate::tests::body(&forward);
            prop_assert!(!sent["messages"].as_array().unwrap().is_empty());
        }
    }

    #[test]
    fn bytes_of_any_kind_are_survived(body in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = super::parse(&Bytes::from(body), |_| false);
    }
}

#[test]
fn metadata_is_bounded_as_at_the_vendor() {
    let refusal = |metadata: serde_json::Value| {
        let body = json!({"model": "m", "input": "Hi", "metadata": metadata}).to_string();
        crate::tests::responses(&Bytes::from(body)).err().map(|e| (e.code, e.param.unwrap_or_default()))
    };
    let pairs =
        |count: usize| (0..count).map(|n| (format!("k{n}"), json!("v"))).collect::<serde_json::Value>();
    let named = |name: usize, text: usize| json!({"n".repeat(name): "\u{e9}".repeat(text)});
    for taken in [pairs(16), named(64, 512), json!({}), json!(null)] {
        assert_eq!(refusal(taken), None);
    }
    let metadata = || "metadata".to_owned();
    assert_eq!(refusal(pairs(17)), Some((Code::ObjectAboveMaxProperties, metadata())));
    assert_eq!(refusal(named(65, 1)), Some((Code::InvalidValue, metadata())));
    assert_eq!(
        refusal(json!({"a": "x".repeat(513)})),
        Some((Code::StringAboveMaxLength, "metadata.a".into()))
    );
    assert_eq!(refusal(json!({"a": ["x"]})), Some((Code::InvalidType, "metadata.a".into())));
}
