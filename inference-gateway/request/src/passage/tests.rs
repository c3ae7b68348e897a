//! Bodies that are passed on byte for byte, except for what is named here.

mod members;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use shared::error::{ApiError, Code};
use shared_catalog::ImageUrls;

use crate::{
    checked::Request,
    forward::{BodyPieces, CountBody, Forward, UpstreamParams},
    messages,
    names::pseudonym::pseudonym,
    tests::{account, model_with, responses, text_for},
};

const RESPONSES: &str = r#"speaks = ["responses"]"#;
const MESSAGES: &str = r#"speaks = ["messages", "chat"]"#;
/// An upstream that accepts undocumented members.
const TAKES_UNKNOWN: &str = "speaks = [\"responses\"]\npass_members = [\"x_unknown\"]";
/// The reasoning efforts that vendors accept.
const ALL_EFFORTS: &str = r#"efforts = ["none", "minimal", "low", "medium", "high", "xhigh", "max"]"#;

type Parse = fn(&Bytes) -> Result<Request, ApiError>;

fn forward(parse: Parse, body: &str, lines: &str) -> Result<Forward, ApiError> {
    parse(&Bytes::from(body.to_owned()))?.forward(&model_with(lines))
}

fn passed(parse: Parse, body: &str, lines: &str) -> String {
    let forward = forward(parse, body, lines).unwrap_or_else(|error| panic!("{body}: {error:?}"));
    text_for(&forward, &model_with(lines))
}

#[test]
fn a_body_passes_in_its_own_spelling_and_order() {
    let cache_key = pseudonym(account(), "");
    let head = format!(r#"{{"model":"m","store":false,"prompt_cache_key":"{cache_key}""#);
    let rest = "\n  \"input\" : [ {\"role\":\"user\",\"content\":\"H\\u00e9 \\/\"} ],\"x_unknown\":{\"b\":1.50,\"a\":[ ]},\"include\":[\"reasoning.encrypted_content\"],  \"stream\": true";
    let body = format!("{{ \"model\": \"Model Flash\",{rest} }}");
    assert_eq!(passed(responses, &body, TAKES_UNKNOWN), format!("{head},{rest}}}"));
    let body = format!(
        "{{{rest},\"max_output_tokens\":50,\"metadata\":{{\"a\":\"b\"}},\"store\":true,\"model\":\"Model Flash\"}}"
    );
    assert_eq!(passed(responses, &body, TAKES_UNKNOWN), format!("{head},{rest}}}"));
}

#[test]
fn names_of_users_and_caches_pass_as_pseudonyms_of_the_account() {
    let body =
        r#"{"model":"m","user":"u\u0031","input":"Hi","safety_identifier":"s","prompt_cache_key":"k"}"#;
    let json: Value = serde_json::from_str(&passed(responses, body, RESPONSES)).unwrap();
    for (name, text) in [("user", "u1"), ("safety_identifier", "s"), ("prompt_cache_key", "k")] {
        assert_eq!(json[name], pseudonym(account(), text), "{name}");
    }
    let body = r#"{"model":"m","max_tokens":9,"metadata":{"user_id":"u","x":1},"messages":[{"role":"user","content":"Hi"}]}"#;
    let json: Value = serde_json::from_str(&passed(messages::parse, body, MESSAGES)).unwrap();
    assert_eq!(json["metadata"], json!({"user_id": pseudonym(account(), "u")}));
}

#[test]
fn what_costs_more_than_the_usage_tells_is_left_out_and_named() {
    let body = r#"{"model":"m","input":"Hi","service_tier":"priority","tools":[ {"type":"web_search"}, {"type":"function","name":"f","parameters":{}}, {"type":"shell","environment":{"type":"container_auto"}}, {"type":"shell","environment":{"type":"local"}} ],"tool_choice":"auto"}"#;
    let asked = forward(responses, body, RESPONSES).unwrap();
    assert_eq!(asked.dropped_tools.as_deref(), Some("web_search, shell"));
    assert_eq!(asked.dropped_members.as_deref(), Some("service_tier"));
    let text = passed(responses, body, RESPONSES);
    assert!(text.ends_with(r#","input":"Hi","tools":[ {"type":"function","name":"f","parameters":{}}, {"type":"shell","environment":{"type":"local"}} ],"tool_choice":"auto"}"#), "{text}");

    let body = r#"{"model":"m","max_tokens":9,"speed":"fast","inference_geo":"us","mcp_servers":[],"tools":[{"type":"web_search_20250305","name":"web_search"}],"tool_choice":{"type":"auto"},"messages":[{"role":"user","content":"Hi"}]}"#;
    let asked = forward(messages::parse, body, MESSAGES).unwrap();
    assert_eq!(asked.dropped_tools.as_deref(), Some("web_search_20250305"));
    assert_eq!(asked.dropped_members.as_deref(), Some("speed, inference_geo, mcp_servers"));
    let text = passed(messages::parse, body, MESSAGES);
    assert_eq!(
        text, r#"{"model":"m","messages":[{"role":"user","content":"Hi"}]}"#,
        "no tools, no choice of tools"
    );
}

#[test]
fn a_word_of_effort_that_the_model_has_not_is_the_nearest_one() {
    let body = |word: &str| {
        format!(r#"{{"model":"m","input":"Hi","reasoning":{{"summary":"auto","effort":"{word}"}}}}"#)
    };
    let effort = |word: &str, lines: &str| {
        let json: Value = serde_json::from_str(&passed(responses, &body(word), lines)).unwrap();
        assert_eq!(json["reasoning"]["summary"], "auto");
        json["reasoning"]["effort"].clone()
    };
    assert_eq!(effort("xhigh", RESPONSES), "high");
    assert_eq!(effort("low", RESPONSES), "low");
    assert_eq!(effort("medium", RESPONSES), Value::Null, "the model's default lies halfway");
    let body = r#"{"model":"m","max_tokens":9,"output_config":{"effort":"max"},"messages":[{"role":"user","content":"Hi"}]}"#;
    let text = passed(messages::parse, body, MESSAGES);
    assert!(text.contains(r#""output_config":{"effort":"high"}"#), "{text}");
    assert!(ALL_EFFORTS.contains("xhigh"));
}

#[test]
fn a_mode_of_reasoning_with_another_price_is_the_usual_one() {
    let body = r#"{"model":"m","input":"Hi","reasoning":{"mode":"pro","summary":"auto"}}"#;
    let text = passed(responses, body, RESPONSES);
    assert!(text.contains(r#""reasoning":{"mode":"standard","summary":"auto"}"#), "{text}");
}

#[test]
fn parts_that_no_chat_has_pass_and_count() {
    let blocks = |block: &str| {
        format!(
            r#"{{"model":"m","max_tokens":9,"messages":[{{"role":"user","content":[{{"type":"text","text":"Hi"}},{block}]}}]}}"#
        )
    };
    let search =
        r#"{"type":"search_result","source":"s","title":"t","content":[{"type":"text","text":"found"}]}"#;
    let plain = forward(messages::parse, &blocks(r#"{"type":"text","text":"a"}"#), MESSAGES).unwrap();
    let asked = forward(messages::parse, &blocks(search), MESSAGES).unwrap();
    assert!(asked.prompt_bound > plain.prompt_bound + 40, "{} {}", asked.prompt_bound, plain.prompt_bound);
    assert!(passed(messages::parse, &blocks(search), MESSAGES).contains(search));
    // The chat API cannot express this.
    let error = forward(messages::parse, &blocks(search), "").err().unwrap();
    assert_eq!(
        (error.code, error.param.as_deref()),
        (Code::UnsupportedValue, Some("messages[0].content[1].type"))
    );

    let document =
        r#"{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AAAA"}}"#;
    assert!(forward(messages::parse, &blocks(document), MESSAGES).unwrap().needs_count);
    let elsewhere = r#"{"type":"document","source":{"type":"url","url":"https://example.com/a.pdf"}}"#;
    let error = forward(messages::parse, &blocks(elsewhere), MESSAGES).err().unwrap();
    assert_eq!(error.param.as_deref(), Some("messages[0].content[1].source.type"));

    let items = |item: &str| format!(r#"{{"model":"m","input":[{{"role":"user","content":"Hi"}},{item}]}}"#);
    let call = r#"{"type":"web_search_call","id":"ws_1","status":"completed"}"#;
    assert!(passed(responses, &items(call), RESPONSES).contains(call));
    let error = forward(responses, &items(call), "").err().unwrap();
    assert_eq!(error.param.as_deref(), Some("input[1].type"));
    let file = r#"{"role":"user","content":[{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,AA"}]}"#;
    assert!(forward(responses, &items(file), RESPONSES).unwrap().needs_count);
    for elsewhere in [r#""file_url":"https://example.com/a.pdf""#, r#""file_id":"file-1""#] {
        let file = format!(r#"{{"role":"user","content":[{{"type":"input_file",{elsewhere}}}]}}"#);
        assert!(forward(responses, &items(&file), RESPONSES).is_err(), "{file}");
    }
}

/// Returns the request with this item after a user message.
fn with_item(item: &Value) -> String {
    json!({"model": "m", "input": [{"role": "user", "content": "Hi"}, item]}).to_string()
}

/// Returns the request with these blocks as a system message after a user message.
fn with_system(blocks: &Value) -> String {
    let messages = json!([{"role": "user", "content": "Hi"}, {"role": "system", "content": blocks}]);
    json!({"model": "m", "max_tokens": 9, "messages": messages}).to_string()
}

#[test]
fn images_and_files_in_parts_that_no_chat_has_are_bounded_and_refused_like_others() {
    const INSIDE: &str = "http://169.254.169.254/latest";
    let screen = |output: &Value| {
        with_item(&json!({"type": "computer_call_output", "call_id": "c", "output": output}))
    };
    let shown = screen(&json!({"type": "computer_screenshot", "image_url": INSIDE}));
    let asked = forward(responses, &shown, RESPONSES).unwrap();
    assert_eq!((asked.images, asked.image_tokens, asked.image_urls), (1, 1000, ImageUrls::Any));
    assert!(!asked.is_plain, "nothing is learned of a template");
    let document = |source: &Value| {
        let blocks = json!([{"type": "document", "source": {"type": "content", "content": [{"type": "image", "source": source}]}}]);
        json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": blocks}]}).to_string()
    };
    let asked =
        forward(messages::parse, &document(&json!({"type": "url", "url": INSIDE})), MESSAGES).unwrap();
    assert_eq!((asked.images, asked.image_urls, asked.is_plain), (1, ImageUrls::Any, false));
    let data = json!({"type": "base64", "media_type": "image/png", "data": "AAAA"});
    assert_eq!(forward(messages::parse, &document(&data), MESSAGES).unwrap().images, 1);

    let refused = |output: Value, code: Code| {
        let error = forward(responses, &screen(&output), RESPONSES).err().unwrap();
        assert_eq!((error.code, error.param.as_deref()), (code, Some("input[1].output")), "{output}");
    };
    refused(json!({"type": "computer_screenshot", "file_id": "file-1"}), Code::UnsupportedParameter);
    refused(json!({"image_url": "ftp://example.com/a.png"}), Code::InvalidValue);
    refused(serde_json::from_str(&("[".repeat(70) + &"]".repeat(70))).unwrap(), Code::InvalidValue);
    let image = json!([{"type": "image", "source": {"type": "url", "url": INSIDE}}]);
    let error = forward(messages::parse, &with_system(&image), MESSAGES).err().unwrap();
    assert_eq!(error.param.as_deref(), Some("messages[1].content[0].type"));
}

#[test]
fn tools_that_the_vendor_runs_stay_behind_wherever_they_are_offered() {
    let found = json!({"type": "tool_search_output", "call_id": "c", "tools": [
        {"type": "web_search"}, {"type": "mcp", "server_label": "x", "server_url": "https://x.example"}, {"type": "function", "name": "f"},
    ]});
    let text = passed(responses, &with_item(&found), RESPONSES);
    let sent: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(sent["input"][1]["tools"], json!([{"type": "function", "name": "f"}]), "{text}");
    let asked = forward(responses, &with_item(&found), RESPONSES).unwrap();
    assert_eq!(asked.dropped_tools.as_deref(), Some("web_search, mcp"));
    // A tool other than a namespace has no tools within it.
    let inside = json!({"type": "function", "name": "f", "tools": [{"type": "mcp"}]});
    let offered = json!({"model": "m", "input": "Hi", "tools": [inside, {"type": "function", "name": "g"}]});
    assert!(!passed(responses, &offered.to_string(), RESPONSES).contains("mcp"));
    // Neither in a namespace nor in an item of another type.
    for inner in
        [json!({"type": "web_search"}), json!({"type": "namespace", "name": "t", "tools": [{"type": "mcp"}]})]
    {
        for kind in ["tool_search_output", "tool_search_result"] {
            let space = json!({"type": "namespace", "name": "s", "tools": [{"type": "function", "name": "f"}, inner]});
            let found =
                json!({"type": kind, "call_id": "c", "tools": [space, {"type": "function", "name": "g"}]});
            let sent: Value =
                serde_json::from_str(&passed(responses, &with_item(&found), RESPONSES)).unwrap();
            assert_eq!(sent["input"][1]["tools"], json!([{"type": "function", "name": "g"}]));
        }
    }

    let change = |tool: Value| with_system(&json!([{"type": "tool_addition", "tool": tool}]));
    let definition =
        |kind: &str| json!({"type": "tool_definition", "definition": {"type": kind, "name": "n"}});
    for tool in
        [json!({"type": "tool_reference", "name": "n"}), definition("custom"), definition("bash_20250124")]
    {
        assert!(forward(messages::parse, &change(tool.clone()), MESSAGES).is_ok(), "{tool}");
    }
    for tool in
        [definition("web_search_20250305"), json!({"type": "mcp_toolset_reference", "server_name": "x"})]
    {
        let error = forward(messages::parse, &change(tool), MESSAGES).err().unwrap();
        assert_eq!(error.param.as_deref(), Some("messages[1].content[0].tool.type"));
    }
}

#[test]
fn tools_beside_a_chats_count_where_their_vendor_is_asked() {
    let offer = |tools: Value, more: Value| {
        let body = json!({"model": "m", "input": "Hi", "tools": tools, "tool_choice": more}).to_string();
        forward(responses, &body, RESPONSES).unwrap().prompt_bound
    };
    let (f, g) = (
        json!({"type": "function", "name": "f"}),
        json!({"type": "function", "name": "g", "description": "x".repeat(900)}),
    );
    let both = offer(json!([f, g]), Value::Null);
    let allowed =
        json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]});
    assert_eq!(offer(json!([f, g]), allowed), both, "a tool that the choice leaves out is sent all the same");
    let shell = json!({"type": "shell", "environment": {"type": "local"}});
    assert!(offer(json!([f, shell]), Value::Null) > offer(json!([f]), Value::Null) + 1000);
    let bash = |tools: Value| {
        let body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "tools": tools});
        forward(messages::parse, &body.to_string(), MESSAGES).unwrap().prompt_bound
    };
    assert!(bash(json!([{"type": "bash_20250124", "name": "bash"}])) > bash(json!([])) + 1000);
}

#[test]
fn members_of_tools_that_only_a_vendor_shows_count_for_the_prompt() {
    const LONG: usize = 100_000;
    let long = "x".repeat(LONG);
    let of_responses = |tool: Value| {
        let body = json!({"model": "m", "input": "Hi", "tools": [tool]}).to_string();
        forward(responses, &body, RESPONSES).unwrap().prompt_bound
    };
    let inner = json!([{"type": "function", "name": "f"}]);
    for tool in [
        json!({"type": "function", "name": "f", "output_schema": {"description": long}}),
        json!({"type": "namespace", "name": "n", "description": long, "tools": inner}),
        json!({"type": "namespace", "name": "n",
            "tools": [{"type": "function", "name": "f", "output_schema": {"description": long}}]}),
    ] {
        assert!(of_responses(tool) > LONG as u64);
    }
    let body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"name": "f", "input_schema": {}, "input_examples": [{"a": long}]}]});
    assert!(forward(messages::parse, &body.to_string(), MESSAGES).unwrap().prompt_bound > LONG as u64);
}

#[test]
fn a_tool_that_the_vendor_runs_is_added_by_no_message() {
    let addition = json!({"type": "tool_addition",
        "tool": {"type": "tool_definition", "definition": {"type": "web_search_20250305", "name": "web_search"}}});
    let compaction = json!({"type": "compaction", "content": "a", "tool_changes": [addition]});
    for (role, block) in [("user", &addition), ("assistant", &addition), ("user", &compaction)] {
        let body = json!({"model": "m", "max_tokens": 9, "messages": [
            {"role": "user", "content": "Hi"}, {"role": role, "content": [block]}, {"role": "user", "content": "Go on"}]});
        let error = forward(messages::parse, &body.to_string(), MESSAGES).err();
        assert_eq!(error.unwrap_or_else(|| panic!("{role} {block}")).code, Code::UnsupportedValue);
    }
    let update = json!({"type": "configuration_update", "tools": [{"type": "web_search"}]});
    let sent: Value = serde_json::from_str(&passed(responses, &with_item(&update), RESPONSES)).unwrap();
    assert_eq!(sent["input"][1]["tools"], json!([]));
}

#[test]
fn more_tools_than_are_taken_are_refused_before_they_are_compared() {
    let many = |tools: Value| with_item(&json!({"type": "additional_tools", "tools": tools}));
    let dropped = many(vec![json!({"type": "x"}); 200_000].into());
    let spaces: Vec<Value> = (0..512)
        .map(|space| {
            let tools: Vec<Value> =
                (0..512).map(|tool| json!({"type": "function", "name": format!("t{tool}")})).collect();
            json!({"type": "namespace", "name": format!("s{space}"), "tools": tools})
        })
        .collect();
    for body in [dropped, many(spaces.into())] {
        assert_eq!(forward(responses, &body, RESPONSES).err().unwrap().code, Code::ArrayAboveMaxLength);
    }
}

#[test]
fn a_body_of_which_too_many_parts_would_be_cut_is_refused() {
    let found = |tools: Vec<Value>| with_item(&json!({"type": "tool_search_output", "tools": tools}));
    let unknown = |tools: usize| vec![json!({"type": "function", "name": "f", "a": 1}); tools];
    let (first, dropped) = (vec![json!({"type": "function", "name": "f"})], vec![json!({"type": "x"}); 8193]);
    assert!(forward(responses, &found(unknown(8192)), RESPONSES).is_ok());
    for tools in [unknown(8193), [first, dropped].concat()] {
        assert_eq!(forward(responses, &found(tools), RESPONSES).err().unwrap().code, Code::InvalidValue);
    }
}

#[test]
fn what_is_stored_elsewhere_is_refused_by_name() {
    for member in [r#""previous_response_id":"resp_1""#, r#""conversation":"c""#, r#""background":true"#] {
        let body = format!(r#"{{"model":"m","input":"Hi",{member}}}"#);
        assert_eq!(forward(responses, &body, RESPONSES).err().unwrap().code, Code::UnsupportedParameter);
    }
    let body = r#"{"model":"m","max_tokens":9,"container":"c","messages":[{"role":"user","content":"Hi"}]}"#;
    assert_eq!(forward(messages::parse, body, MESSAGES).err().unwrap().param.as_deref(), Some("container"));
}

#[test]
fn a_budget_of_thinking_needs_room_for_an_answer() {
    let body = r#"{"model":"m","max_tokens":4000,"thinking":{"type":"enabled","budget_tokens":2048},"messages":[{"role":"user","content":"Hi"}]}"#;
    let asked = forward(messages::parse, body, MESSAGES).unwrap();
    assert_eq!((asked.max_tokens, asked.least_output), (4000, 2049));
    assert_eq!(forward(messages::parse, body, "").unwrap().least_output, 1);
}

#[test]
fn a_limit_is_lowered_to_the_models_own() {
    let body = r#"{"model":"m","max_output_tokens":200000,"input":"Hi"}"#;
    assert_eq!(forward(responses, body, "").err().unwrap().code, Code::IntegerAboveMaxValue);
    let hi = r#""messages":[{"role":"user","content":"Hi"}]"#;
    let body = format!(r#"{{"model":"m","max_tokens":200000,{hi}}}"#);
    for lines in [MESSAGES, ""] {
        let asked = forward(messages::parse, &body, lines).unwrap();
        assert_eq!((asked.max_tokens, asked.asked_tokens), (4096, 200_000), "so that the client is told");
    }
    let body = r#"{"model":"m","max_output_tokens":5000,"input":"Hi"}"#;
    let asked = forward(responses, body, RESPONSES).unwrap();
    assert_eq!((asked.max_tokens, asked.asked_tokens), (4096, 5000));
    let unlimited = forward(responses, r#"{"model":"m","input":"Hi"}"#, RESPONSES).unwrap();
    assert_eq!((unlimited.max_tokens, unlimited.asked_tokens), (4096, 4096));
}

#[test]
fn a_count_is_asked_for_with_what_a_counter_takes() {
    let count = |parse: Parse, body: &str, lines: &str| {
        let (asked, model) = (forward(parse, body, lines).unwrap(), model_with(lines));
        let form = asked.form(&model.upstreams[0]);
        let to = UpstreamParams {
            form,
            account: None,
            model: "m",
            limit_param: shared_catalog::LimitParam::MaxTokens,
            max_tokens: None,
            progress: crate::forward::ProgressReports::None,
            cache_salt: None,
            folded: false,
            refused: upstream_error::RefusedMembers::of_bits(0),
        };
        let BodyPieces { head, rest } = match asked.count_body(to) {
            CountBody::Written(body) => body,
            CountBody::Unwritten(body) => body.write(),
        };
        String::from_utf8([head, rest].concat()).unwrap()
    };
    let body = r#"{"model":"x","max_tokens":9,"stream":true,"temperature":1,"system":"s","messages":[{"role":"user","content":"Hi"}],"thinking":{"type":"disabled"}}"#;
    assert_eq!(
        count(messages::parse, body, MESSAGES),
        r#"{"model":"m","system":"s","messages":[{"role":"user","content":"Hi"}],"thinking":{"type":"disabled"}}"#
    );
    let body = r#"{"model":"x","input":"Hi","stream":true,"instructions":"i","user":"u"}"#;
    assert_eq!(count(responses, body, RESPONSES), r#"{"model":"m","input":"Hi","instructions":"i"}"#);
    let body = r#"{"model":"x","max_tokens":9,"system":"s","messages":[{"role":"user","content":"Hi"}]}"#;
    let separate = "speaks = [\"messages\"]\nshare_cache = false";
    let zeros = "0".repeat(32);
    assert_eq!(
        count(messages::parse, body, separate),
        format!(
            r#"{{"model":"m","system":[{{"type":"text","text":"Account {zeros}."}},{{"type":"text","text":"s"}}],"messages":[{{"role":"user","content":"Hi"}}]}}"#
        )
    );
    assert_eq!(forward(messages::parse, body, separate).unwrap().uncounted, 32);
    let body = r#"{"model":"x", "include":[], "\u0069nput" : [ {"role":"user","content":"Hi"} ],"truncation":"auto" }"#;
    assert_eq!(
        count(responses, body, RESPONSES),
        r#"{"model":"m","input":[ {"role":"user","content":"Hi"} ],"truncation":"auto"}"#
    );
}

#[test]
fn names_of_any_length_pass_as_pseudonyms_of_their_own() {
    let pseudonym_of = |name: &str| {
        let body = json!({"model": "m", "input": "Hi", "user": name}).to_string();
        let json: Value = serde_json::from_str(&passed(responses, &body, RESPONSES)).unwrap();
        json["user"].as_str().unwrap().to_owned()
    };
    let long = "u".repeat(1 << 20);
    assert_ne!(pseudonym_of(&format!("{long}1")), pseudonym_of(&format!("{long}2")));
    let body = json!({"model": "m", "input": "Hi", "user": long}).to_string();
    let whole: Parse = |body| crate::responses::parse(body, |_| true);
    let kept = forward(whole, &body, RESPONSES).unwrap().kept_bytes();
    assert!(kept < 1 << 10, "{kept}");
}

proptest! {
    /// Members that pass stay in order and as spelled, whatever is next to them. Omitted members are gone.
    #[test]
    fn members_that_pass_are_never_touched(
        names in prop::collection::vec(prop::sample::select(vec!["include", "truncation", "max_tool_calls", "client_metadata", "prompt_cache_retention"]), 0..6),
        left in prop::sample::subsequence(vec!["model", "store", "service_tier", "metadata", "user"], 0..5),
        order in any::<prop::sample::Index>(),
        space in prop::sample::select(vec!["", " ", "\n\t"]),
    ) {
        let mut members: Vec<(String, String)> = Vec::new();
        for (at, name) in names.iter().enumerate() {
            if !members.iter().any(|(known, _)| known == name) {
                members.push(((*name).to_owned(), format!("{{\"v\":{space}{at}.0,\"model\":\"a,b\"}}")));
            }
        }
        let kept: Vec<_> = members.iter().map(|(name, value)| format!("\"{name}\"{space}:{space}{value}")).collect();
        let mut all = members;
        all.push(("input".into(), "\"Hi\"".into()));
        for name in left.iter().filter(|name| **name != "model") {
            let at = order.index(all.len() + 1);
            all.insert(at, ((*name).to_owned(), "\"x\"".into()));
        }
        all.insert(order.index(all.len() + 1), ("model".into(), "\"m\"".into()));
        let body: Vec<_> = all.iter().map(|(name, value)| format!("\"{name}\"{space}:{space}{value}")).collect();
        let body = format!("{space}{{{space}{}{space}}}", body.join(&format!(",{space}")));
        let text = passed(responses, &body, RESPONSES);
        let json: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&json["model"], "m");
        prop_assert!(json.get("service_tier").is_none() && json.get("metadata").is_none(), "{}", text);
        let mut from = 0;
        for member in kept {
            let at = text[from..].find(&member);
            prop_assert!(at.is_some(), "{} in {}", member, text);
            from += at.unwrap();
        }
    }
}
