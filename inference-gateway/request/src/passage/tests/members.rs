//! Members that pass, and members that pass to some servers only.

use shared_catalog::{Catalog, Model};

use super::*;
use crate::tests::catalogue;

/// Returns a model at this address that serves one of the newer APIs.
fn model_at(url: &str, api: &str) -> Model {
    let lines = format!("speaks = [\"{api}\"]");
    let catalogue = catalogue("openai").replace("image_urls", &format!("{lines}\n        image_urls"));
    let catalogue = catalogue.replace("http://127.0.0.1/v1", url);
    Catalog::parse(&catalogue, "test").unwrap().models.remove(0)
}

/// Members that aggregators and self-hosted servers know, but that the vendors' documentation does not mention.
const UNDOCUMENTED: [&str; 12] = [
    r#""models":["dear/pro"]"#,
    r#""provider":{"only":["dear"]}"#,
    r#""plugins":[{"id":"web"}]"#,
    r#""route":"fallback""#,
    r#""transforms":["middle-out"]"#,
    r#""cache_salt":"other""#,
    r#""priority":-100"#,
    r#""kv_transfer_params":{"do_remote_prefill":true}"#,
    r#""chat_template":"x""#,
    r#""n":8"#,
    r#""best_of":8"#,
    r#""x.y z":1"#,
];

#[test]
fn members_that_the_vendor_does_not_document_pass_to_the_vendor_alone() {
    let dropped = "models, provider, plugins, route, transforms, cache_salt, priority, kv_transfer_params, chat_template, n, best_of, x.yz";
    let more = UNDOCUMENTED.join(",");
    let of_responses = format!(r#"{{"model":"m",{more},"input":"Hi"}}"#);
    let of_messages =
        format!(r#"{{"model":"m","max_tokens":9,{more},"messages":[{{"role":"user","content":"Hi"}}]}}"#);
    let parsers: [(Parse, &str, &str, [&str; 3]); 2] = [
        (
            responses,
            &of_responses,
            "responses",
            ["https://api.openai.com/v1", "https://EU.api.OpenAI.com./v1", "https://api.anthropic.com/v1"],
        ),
        (
            messages::parse,
            &of_messages,
            "messages",
            [
                "https://api.anthropic.com/v1",
                "https://a.api.anthropic.com:443/v1",
                "https://api.openai.com/v1",
            ],
        ),
    ];
    for (parse, body, api, [own, below, others]) in parsers {
        for (url, is_own) in [
            (own, true),
            (below, true),
            (others, false),
            ("https://openrouter.ai/api/v1", false),
            ("https://xapi.openai.com.evil.example/v1", false),
            ("https://xapi.openai.com/v1", false),
            ("https://xapi.anthropic.com/v1", false),
        ] {
            let model = model_at(url, api);
            let asked = parse(&Bytes::from(body.to_owned())).unwrap().forward(&model).unwrap();
            let text = text_for(&asked, &model);
            assert_eq!(UNDOCUMENTED.map(|member| text.contains(member)), [is_own; 12], "{url}: {text}");
            let named = (!is_own).then_some(dropped);
            assert_eq!(asked.dropped_members.as_deref(), named, "{url}");
        }
    }
}

#[test]
fn undocumented_members_pass_where_the_upstream_names_them() {
    let body = r#"{"model":"m","top_k":5,"min_p":0.1,"reasoning":{"enabled":true,"max_tokens":9,"effort":"low"},"input":"Hi"}"#;
    let lines = "speaks = [\"responses\"]\npass_members = [\"top_k\", \"reasoning.enabled\"]";
    let text = passed(responses, body, lines);
    assert!(
        text.ends_with(r#","top_k":5,"reasoning":{"enabled":true,"effort":"low"},"input":"Hi"}"#),
        "{text}"
    );
    let asked = forward(responses, body, lines).unwrap();
    assert_eq!(asked.dropped_members.as_deref(), Some("reasoning.max_tokens, min_p"));
    // Naming a member that the gateway leaves out because of its cost does not bring it back.
    let body = r#"{"model":"m","service_tier":"flex","input":"Hi"}"#;
    let lines = "speaks = [\"responses\"]\npass_members = [\"service_tier\"]";
    assert!(!passed(responses, body, lines).contains("flex"));
}

#[test]
fn undocumented_members_of_documented_objects_and_of_tools_stay_behind() {
    let parsed =
        |text: &str| -> Value { serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}")) };
    let text = |reasoning: &str, tools: &str| {
        let body = format!(r#"{{"model":"m","input":"Hi","reasoning":{reasoning},"tools":{tools}}}"#);
        let text = passed(responses, &body, RESPONSES);
        let json = parsed(&text);
        (json["reasoning"].clone(), json["tools"].clone())
    };
    for (given, sent) in [
        (r#"{"x":1}"#, "{}"),
        (r#"{"x":1,"y":{"a":[1,2]}}"#, "{}"),
        (r#"{ "x" : 1 , "effort" : "low" , "y" : {"a":","} }"#, r#"{"effort":"low"}"#),
        (r#"{"effort":"xhigh","x":1,"summary":"auto","y":2}"#, r#"{"effort":"high","summary":"auto"}"#),
        (r#"{"x":1,"y":2,"mode":"pro","z":3}"#, r#"{"mode":"standard"}"#),
        ("{}", "{}"),
    ] {
        assert_eq!(text(given, "[]").0, parsed(sent), "{given}");
    }
    let f = r#"{"name":"f","type":"function"}"#;
    for tools in [
        r#"[{"x":1,"type":"function","name":"f","cost":2}]"#,
        r#"[{"type":"web_search","x":1},{"type":"function","x":{"type":"mcp"},"name":"f"},{"type":"mcp"}]"#,
    ] {
        assert_eq!(text("{}", tools).1, parsed(&format!("[{f}]")), "{tools}");
    }
    let space = r#"[{"type":"namespace","name":"s","y":1,"tools":[{"type":"function","name":"f","x":1}]}]"#;
    let kept = format!(r#"[{{"name":"s","tools":[{f}],"type":"namespace"}}]"#);
    assert_eq!(text("{}", space).1, parsed(&kept));
}

/// Asserts that the body is refused for a name at this location.
fn assert_named(parse: Parse, body: &str, lines: &str, place: &str) {
    let error = forward(parse, body, lines).err().unwrap_or_else(|| panic!("{body} passes"));
    assert_eq!((error.code, error.param.as_deref()), (Code::UnknownParameter, Some(place)), "{body}");
}

#[test]
fn a_name_that_differs_in_case_alone_is_refused_by_its_place() {
    for name in [
        "MODEL",
        "Max_Output_Tokens",
        "STORE",
        "Previous_Response_Id",
        "Tools",
        "Service_Tier",
        "\u{17f}tore",
        "Max_Output_To\u{212a}ens",
        "Conversation",
        "Context_Management",
        "BACKGROUND",
    ] {
        let name = serde_json::Value::from(name);
        let body = format!(r#"{{"model":"m","input":"Hi",{name}:null}}"#);
        for lines in [RESPONSES, TAKES_UNKNOWN, ""] {
            assert_named(responses, &body, lines, name.as_str().unwrap());
        }
    }
    let input =
        |items: &str| format!(r#"{{"model":"m","input":[{{"role":"user","content":"Hi"}},{items}]}}"#);
    for (item, place) in [
        (r#"{"role":"user","content":"Hi","Type":"additional_tools"}"#, "input[1].Type"),
        (
            r#"{"role":"user","content":[{"type":"input_text","text":"a","Image_Url":"http://x"}]}"#,
            "input[1].content[0].Image_Url",
        ),
        (
            r#"{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,AAAA","File_Id":"f"}]}"#,
            "input[1].content[0].File_Id",
        ),
        (
            r#"{"role":"system","content":[{"type":"input_text","text":"a","TEXT":"b"}]}"#,
            "input[1].content[0].TEXT",
        ),
        (
            r#"{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"a","File_Url":"b"}]}"#,
            "input[1].output[0].File_Url",
        ),
        (r#"{"type":"tool_search_output","call_id":"c","Tools":[{"type":"web_search"}]}"#, "input[1].Tools"),
        (
            r#"{"type":"tool_search_output","call_id":"c","tools":[{"type":"function","name":"f","Type":"mcp"}]}"#,
            "input[1].tools[0].Type",
        ),
        (
            r#"{"type":"additional_tools","tools":[{"type":"function","name":"f","TYPE":"mcp"}]}"#,
            "input[1].tools[0].TYPE",
        ),
    ] {
        assert_named(responses, &input(item), RESPONSES, place);
    }
    let tools = |tool: &str| format!(r#"{{"model":"m","input":"Hi","tools":[{tool}]}}"#);
    assert_named(
        responses,
        &tools(r#"{"type":"function","name":"f","Type":"web_search"}"#),
        RESPONSES,
        "tools[0].Type",
    );
    let inner = r#"{"type":"namespace","name":"s","tools":[{"type":"function","name":"f","Type":"mcp"}]}"#;
    assert_named(responses, &tools(inner), RESPONSES, "tools[0].tools[0].Type");
    let body = r#"{"model":"m","input":"Hi","reasoning":{"Mode":"pro"}}"#;
    assert_named(responses, body, RESPONSES, "reasoning.Mode");
}

#[test]
fn a_name_in_another_case_is_refused_in_messages_blocks_and_sources_too() {
    let hi = r#""messages":[{"role":"user","content":"Hi"}]"#;
    for name in ["Max_Tokens", "SPEED", "Fallbacks", "MCP_Servers", "Container", "Me\u{df}ages"] {
        let body = format!(r#"{{"model":"m","max_tokens":9,{hi},"{name}":null}}"#);
        assert_named(messages::parse, &body, MESSAGES, name);
    }
    let blocks = |block: &str| {
        format!(
            r#"{{"model":"m","max_tokens":9,"messages":[{{"role":"user","content":[{{"type":"text","text":"Hi"}},{block}]}}]}}"#
        )
    };
    for (block, place) in [
        (
            r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA","Type":"url"}}"#,
            "source.Type",
        ),
        (
            r#"{"type":"image","Source":{},"source":{"type":"base64","media_type":"image/png","data":"AAAA"}}"#,
            "Source",
        ),
        (
            r#"{"type":"document","source":{"type":"text","media_type":"text/plain","data":"a","URL":"x"}}"#,
            "source.URL",
        ),
        (
            r#"{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"a","Source":{}}]}"#,
            "content[0].Source",
        ),
        (r#"{"type":"search_result","Content":[]}"#, "Content"),
    ] {
        assert_named(messages::parse, &blocks(block), MESSAGES, &format!("messages[0].content[1].{place}"));
    }
    let body = format!(
        r#"{{"model":"m","max_tokens":9,{hi},"tools":[{{"name":"f","input_schema":{{}},"TYPE":"web_search_20250305"}}]}}"#
    );
    assert_named(messages::parse, &body, MESSAGES, "tools[0].TYPE");
    // Names within a schema or an input belong to the client.
    let body = format!(
        r#"{{"model":"m","max_tokens":9,{hi},"tools":[{{"name":"f","input_schema":{{"Type":1,"URL":2}}}}]}}"#
    );
    assert!(forward(messages::parse, &body, MESSAGES).is_ok());
}

#[test]
fn a_type_that_differs_in_case_alone_is_refused() {
    for kind in ["Tool_Search_Output", "ADDITIONAL_TOOLS", "Item_Reference", "Message"] {
        let body = with_item(&json!({"type": kind, "id": "rs_1", "role": "user", "content": "a"}));
        let error = forward(responses, &body, RESPONSES).err().unwrap();
        assert_eq!((error.code, error.param.as_deref()), (Code::UnsupportedValue, Some("input[1].type")));
    }
    for kind in ["Document", "Container_Upload", "IMAGE"] {
        let block = json!([{"type": kind, "source": {"type": "url", "url": "https://example.com/a.pdf"}}]);
        let messages = json!([{"role": "user", "content": block}]);
        let body = json!({"model": "m", "max_tokens": 9, "messages": messages}).to_string();
        let error = forward(messages::parse, &body, MESSAGES).err().unwrap();
        assert_eq!(error.param.as_deref(), Some("messages[0].content[0].type"), "{kind}");
    }
    // A part that nobody reads is searched for images and files, whether names are in upper or lower case.
    let screen =
        json!({"type": "computer_call_output", "call_id": "c", "output": {"Image_URL": "http://10.0.0.1/a"}});
    let asked = forward(responses, &with_item(&screen), RESPONSES).unwrap();
    assert_eq!((asked.images, asked.image_urls), (1, ImageUrls::Any));
    let file = json!({"type": "computer_call_output", "call_id": "c", "output": {"File_\u{130}d": 1, "FILE_ID": "f"}});
    assert!(forward(responses, &with_item(&file), RESPONSES).is_err());
}

#[test]
fn what_nobody_reads_may_not_be_nested_deeper_than_other_values() {
    let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let refused = |parse: Parse, body: &str, lines: &str, place: &str| {
        let error = forward(parse, body, lines).err().unwrap_or_else(|| panic!("{place} passes"));
        assert_eq!((error.code, error.param.as_deref()), (Code::InvalidValue, Some(place)));
    };
    let deepest = deep(10_000);
    for (members, place) in [
        (format!(r#""input":"Hi","include":{deepest}"#), "include"),
        (format!(r#""input":"Hi","x_unknown":{deepest}"#), "x_unknown"),
        (format!(r#""input":"Hi","text":{{"x":{deepest}}}"#), "text"),
        (
            format!(r#""input":"Hi","tools":[{{"type":"function","name":"f","output_schema":{deepest}}}]"#),
            "tools[0].output_schema",
        ),
        (
            format!(
                r#""input":"Hi","tools":[{{"type":"tool_search","execution":"client","parameters":{deepest}}}]"#
            ),
            "tools[0].parameters",
        ),
        (format!(r#""input":[{{"role":"user","content":"Hi","x":{deepest}}}]"#), "input[0].x"),
        (format!(r#""input":[{{"role":"user","content":"Hi","output":{deepest}}}]"#), "input[0].output"),
        (
            format!(
                r#""input":[{{"role":"user","content":[{{"type":"input_text","text":"Hi","x":{deepest}}}]}}]"#
            ),
            "input[0].content[0].x",
        ),
        (
            format!(
                r#""input":[{{"type":"reasoning","summary":[{{"type":"summary_text","text":"a","x":{deepest}}}]}},{{"role":"user","content":"Hi"}}]"#
            ),
            "input[0].summary",
        ),
    ] {
        for lines in [RESPONSES, TAKES_UNKNOWN] {
            refused(responses, &format!(r#"{{"model":"m",{members}}}"#), lines, place);
        }
    }
    for (members, place) in [
        (format!(r#""messages":[{{"role":"user","content":"Hi"}}],"x":{deepest}"#), "x"),
        (format!(r#""messages":[{{"role":"user","content":"Hi","x":{deepest}}}]"#), "messages[0].x"),
        (
            format!(
                r#""messages":[{{"role":"user","content":[{{"type":"text","text":"Hi","source":{deepest}}}]}}]"#
            ),
            "messages[0].content[0].source",
        ),
        (
            format!(
                r#""messages":[{{"role":"user","content":"Hi"}},{{"role":"assistant","content":[{{"type":"tool_use","id":"t","name":"f","input":{{}}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t","content":"a","x":{deepest}}}]}}]"#
            ),
            "messages[2].content[0].x",
        ),
        (
            format!(
                r#""messages":[{{"role":"user","content":[{{"type":"text","text":"Hi","citations":{deepest}}}]}}]"#
            ),
            "messages[0].content[0].citations",
        ),
        (
            format!(
                r#""messages":[{{"role":"user","content":"Hi"}}],"system":[{{"type":"text","text":"a","cache_control":{deepest}}}]"#
            ),
            "system[0].cache_control",
        ),
        (
            format!(
                r#""messages":[{{"role":"user","content":"Hi"}}],"tools":[{{"name":"f","input_schema":{{}},"input_examples":{deepest}}}]"#
            ),
            "tools[0].input_examples",
        ),
        (
            format!(
                r#""messages":[{{"role":"user","content":"Hi"}}],"tools":[{{"name":"f","input_schema":{{}},"parameters":{deepest}}}]"#
            ),
            "tools[0].parameters",
        ),
        (
            format!(
                r#""messages":[{{"role":"user","content":"Hi"}}],"tools":[{{"name":"f","input_schema":{{}},"x":1,"tools":{}}}]"#,
                r#"[{"tools":"#.repeat(100_000) + "[]" + &"}]".repeat(100_000)
            ),
            "tools[0].tools",
        ),
    ] {
        refused(messages::parse, &format!(r#"{{"model":"m","max_tokens":9,{members}}}"#), MESSAGES, place);
    }
    let fits = format!(r#"{{"model":"m","input":"Hi","include":{}}}"#, deep(64));
    assert!(forward(responses, &fits, RESPONSES).is_ok());
}

#[test]
fn a_request_to_compact_passes_only_where_the_upstream_may_be_asked() {
    const COMPACTS: &str = "speaks = [\"messages\", \"responses\"]\ncompaction = true";
    let hi = r#""messages":[{"role":"user","content":"Hi"}]"#;
    let body = |management: &str| {
        format!(r#"{{"model":"m","max_tokens":1,"context_management":{management},{hi}}}"#)
    };
    let (compact, clear) =
        (r#"{"type":"compact_20260112","trigger":null}"#, r#"{"type":"clear_tool_uses_20250919"}"#);
    let edits = |edits: &str| format!(r#"{{"edits":[{edits}]}}"#);
    for (given, sent) in [
        (edits(compact), None),
        (edits(&format!("{compact},{compact}")), None),
        (edits(r#"{"type":"summarise_20270101"}"#), None),
        (r#"[{"type":"compaction"}]"#.to_owned(), None),
        (edits(&format!("{compact},{clear}, {compact}")), Some(edits(clear))),
        (edits(clear), Some(edits(clear))),
        (edits(""), Some(edits(""))),
    ] {
        let asked = forward(messages::parse, &body(&given), MESSAGES).unwrap();
        let text = text_for(&asked, &model_with(MESSAGES));
        match &sent {
            Some(sent) => assert!(text.contains(&format!(r#""context_management":{sent}"#)), "{text}"),
            None => assert!(!text.contains("context_management"), "{text}"),
        }
        let is_whole = sent.as_ref() == Some(&given);
        assert_eq!(asked.dropped_members.as_deref(), (!is_whole).then_some("context_management"));
        assert!(passed(messages::parse, &body(&given), COMPACTS).contains(&given));
    }
    let managed =
        r#"{"model":"m","input":"Hi","context_management":[{"type":"compaction","compact_threshold":1000}]}"#;
    assert!(!passed(responses, managed, RESPONSES).contains("compaction"));
    assert!(passed(responses, managed, COMPACTS).contains("compaction"));
    // A request for a summary instead of an answer is refused.
    let whole = format!(r#"{{"model":"m","max_tokens":9,"compaction":{{"type":"summarize"}},{hi}}}"#);
    let error = forward(messages::parse, &whole, MESSAGES).err().unwrap();
    assert_eq!((error.code, error.param.as_deref()), (Code::UnsupportedParameter, Some("compaction")));
    assert!(passed(messages::parse, &whole, COMPACTS).contains("summarize"));
    let trigger = with_item(&json!({"type": "compaction_trigger"}));
    let error = forward(responses, &trigger, RESPONSES).err().unwrap();
    assert_eq!(error.param.as_deref(), Some("input[1].type"));
    assert!(passed(responses, &trigger, COMPACTS).contains("compaction_trigger"));
}

#[test]
fn a_separate_body_begins_with_a_block_of_the_account_and_shares_no_cached_tools() {
    const SEPARATE: &str = "speaks = [\"messages\"]\nshare_cache = false";
    let hi = r#""messages":[{"role":"user","content":"Hi"}]"#;
    let sent = |parse: Parse, body: &str| {
        let text = passed(parse, body, SEPARATE);
        serde_json::from_str::<Value>(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    };
    let ours = json!({"type": "text", "text": format!("Account {}.", &pseudonym(account(), "scope of the vendor's cache")[..32])});
    let cached = json!({"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}});
    for (system, rest) in [
        (String::new(), vec![]),
        (r#""system":"a\u00e9","#.into(), vec![json!({"type": "text", "text": "a\u{e9}"})]),
        (r#""system":"","#.into(), vec![]),
        (r#""system":[ ],"#.into(), vec![]),
        (format!(r#""system": [ {cached} ],"#), vec![cached.clone()]),
    ] {
        let body = format!(
            r#"{{"model":"m","max_tokens":9,{system}{hi},"tools":[{{"name":"f","input_schema":{{}},"cache_control":{{"type":"ephemeral"}}}},{{"type":"web_search_20250305","name":"w"}}]}}"#
        );
        let json = sent(messages::parse, &body);
        let expected: Vec<Value> = [ours.clone()].into_iter().chain(rest).collect();
        assert_eq!(json["system"], json!(expected), "{system}");
        assert_eq!(json["tools"], json!([{"name": "f", "input_schema": {}, "cache_control": null}]));
        assert_eq!(json["messages"][0]["content"], "Hi");
        // Another server gets the body unchanged.
        assert!(passed(messages::parse, &body, MESSAGES).contains(&format!("{system}{hi}")));
    }
    let chat = r#"{"model":"m","messages":[{"role":"system","content":"a"},{"role":"user","content":"Hi"}],"tools":[{"type":"function","function":{"name":"f"}}]}"#;
    let json = sent(crate::chat::parse, chat);
    assert_eq!((&json["system"][0], &json["system"][1]["text"]), (&ours, &json!("a")), "{json}");
    assert!(
        json["system"][1].get("cache_control").is_some() && json["tools"][0].get("cache_control").is_none()
    );
    let chat = r#"{"model":"m","messages":[{"role":"user","content":"Hi"}]}"#;
    assert_eq!(sent(crate::chat::parse, chat)["system"], json!([ours]));
}

#[test]
fn upstreams_of_a_model_get_each_what_passes_to_them() {
    let catalogue = catalogue("openai");
    let (service, upstream) = catalogue.split_once("[[model.upstream]]").unwrap();
    let with = |url: &str, lines: &str| {
        let upstream = upstream.replace("http://127.0.0.1/v1", url);
        format!("[[model.upstream]]\nspeaks = [\"responses\"]\n{lines}{upstream}\n")
    };
    let all = [
        with("https://openrouter.ai/api/v1", ""),
        with("https://api.openai.com/v1", ""),
        with("http://127.0.0.1/v1", "pass_members = [\"top_k\"]"),
        with("http://10.0.0.1/v1", ""),
    ];
    let model = Catalog::parse(&format!("{service}{}", all.concat()), "test").unwrap().models.remove(0);
    let body = r#"{"model":"m","top_k":1,"models":["x"],"input":"Hi"}"#;
    let asked = responses(&Bytes::from(body)).unwrap().forward(&model).unwrap();
    let sent: Vec<(bool, bool)> = (0..4)
        .map(|place| {
            let model = Model { upstreams: vec![model.upstreams[place].clone()], ..model.clone() };
            let text = text_for(&asked, &model);
            (text.contains("top_k"), text.contains("models"))
        })
        .collect();
    assert_eq!(sent, [(false, false), (true, true), (true, false), (false, false)]);
    assert_eq!(asked.dropped_members.as_deref(), Some("top_k, models"));
}
