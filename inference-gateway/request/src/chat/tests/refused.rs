//! Bodies that are refused: the code of the error, and the location that it names.

use super::*;

/// Replaces members of a valid body; `"-"` removes one. Returns the error.
fn refusal(members: &str) -> (Code, Option<String>) {
    let mut body = vec![
        ("model".to_owned(), r#""Model Flash""#.to_owned()),
        ("messages".to_owned(), r#"[{"role":"user","content":"Hi"}]"#.to_owned()),
    ];
    let changes = Members::of_body(members.as_bytes()).unwrap();
    for (name, value) in changes.iter() {
        body.retain(|(n, _)| n != name);
        if value.raw() != r#""-""# {
            body.push((name.to_owned(), value.raw().to_owned()));
        }
    }
    let members: Vec<_> = body.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    let body = format!("{{{}}}", members.join(","));
    let error = parse(&body).err().unwrap_or_else(|| panic!("{body} was not refused"));
    assert!(error.message.ends_with('.'), "{}", error.message);
    (error.code, error.param)
}

fn assert_refused(cases: &[(&str, Code, &str)]) {
    for (members, code, param) in cases {
        assert_eq!(refusal(members), (*code, Some((*param).to_owned())), "{members}");
    }
}

#[test]
fn what_is_no_json_object_is_refused_as_a_whole() {
    for body in [
        "",
        "null",
        "[]",
        "\"x\"",
        "{",
        "{}x",
        "{'model':'m'}",
        r#"{"model":"m","messages":[{"role":"user","content":"\x"}]}"#,
        r#"{"model":"m","messages":[{"role":"user","content":01}]}"#,
        r#"{"model":"m","messages":[],"messages":[]}"#,
        r#"{"model":"m","\u006dodel":"m","messages":[]}"#,
        r#"{"model":"m","x":NaN}"#,
        "\u{feff}{}",
    ] {
        let error = parse(body).err().unwrap();
        assert_eq!((error.code, error.param), (Code::InvalidJson, None), "{body}");
    }
    let latin1 = b"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"\xe9\"}]}";
    assert_eq!(crate::chat::parse(&Bytes::from_static(latin1)).err().unwrap().code, Code::InvalidJson);
}

#[test]
fn names_are_unique_wherever_they_are_read() {
    assert_refused(&[
        (r#"{"messages":[{"role":"user","content":"Hi","role":"user"}]}"#, Code::InvalidJson, "messages[0]"),
        (
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a","text":"b"}]}]}"#,
            Code::InvalidJson,
            "messages[0].content[0]",
        ),
        (r#"{"stream":true,"stream_options":{"a":1,"a":1}}"#, Code::InvalidJson, "stream_options"),
        (
            r#"{"tools":[{"type":"function","function":{"name":"a","name":"a"}}]}"#,
            Code::InvalidJson,
            "tools[0].function",
        ),
        (r#"{"logit_bias":{"1":1,"1":1}}"#, Code::InvalidJson, "logit_bias"),
    ]);
}

#[test]
fn half_a_surrogate_pair_is_no_text() {
    assert_refused(&[
        (r#"{"messages":[{"role":"user","content":"\ud83d"}]}"#, Code::InvalidJson, "messages[0].content"),
        (r#"{"messages":[{"role":"user","content":"\uDE00x"}]}"#, Code::InvalidJson, "messages[0].content"),
        (r#"{"model":"\ud83d"}"#, Code::InvalidJson, "model"),
    ]);
    assert!(
        parse(r#"{"model":"m","messages":[{"role":"user","content":"\\ud83d \ud83d\ude00 \ud55c"}]}"#)
            .is_ok()
    );
}

#[test]
fn model_and_messages_have_to_be_there() {
    assert_refused(&[
        (r#"{"model":"-"}"#, Code::MissingRequiredParameter, "model"),
        (r#"{"model":null}"#, Code::InvalidType, "model"),
        (r#"{"model":7}"#, Code::InvalidType, "model"),
        (r#"{"messages":"-"}"#, Code::MissingRequiredParameter, "messages"),
        (r#"{"messages":null}"#, Code::InvalidType, "messages"),
        (r#"{"messages":"Hi"}"#, Code::InvalidType, "messages"),
        (r#"{"messages":{}}"#, Code::InvalidType, "messages"),
        (r#"{"messages":[]}"#, Code::EmptyArray, "messages"),
    ]);
}

#[test]
fn scalars_have_types_and_bounds() {
    assert_refused(&[
        (r#"{"temperature":-0.1}"#, Code::DecimalBelowMinValue, "temperature"),
        (r#"{"temperature":2.1}"#, Code::DecimalAboveMaxValue, "temperature"),
        (r#"{"temperature":1e999}"#, Code::DecimalAboveMaxValue, "temperature"),
        (r#"{"temperature":"1"}"#, Code::InvalidType, "temperature"),
        (r#"{"top_p":1.01}"#, Code::DecimalAboveMaxValue, "top_p"),
        (r#"{"top_p":-1}"#, Code::DecimalBelowMinValue, "top_p"),
        (r#"{"frequency_penalty":2.5}"#, Code::DecimalAboveMaxValue, "frequency_penalty"),
        (r#"{"presence_penalty":-2.5}"#, Code::DecimalBelowMinValue, "presence_penalty"),
        (r#"{"max_tokens":0}"#, Code::IntegerBelowMinValue, "max_tokens"),
        (r#"{"max_tokens":-5}"#, Code::IntegerBelowMinValue, "max_tokens"),
        (r#"{"max_tokens":131073}"#, Code::IntegerAboveMaxValue, "max_tokens"),
        (r#"{"max_tokens":99999999999999999999999}"#, Code::IntegerAboveMaxValue, "max_tokens"),
        (r#"{"max_tokens":-99999999999999999999999}"#, Code::IntegerBelowMinValue, "max_tokens"),
        (r#"{"max_tokens":1.0}"#, Code::InvalidType, "max_tokens"),
        (r#"{"max_tokens":1e2}"#, Code::InvalidType, "max_tokens"),
        (r#"{"max_tokens":"5"}"#, Code::InvalidType, "max_tokens"),
        (r#"{"max_completion_tokens":0}"#, Code::IntegerBelowMinValue, "max_completion_tokens"),
        (r#"{"max_tokens":5,"max_completion_tokens":6}"#, Code::InvalidValue, "max_completion_tokens"),
        (r#"{"n":0}"#, Code::IntegerBelowMinValue, "n"),
        (r#"{"n":9}"#, Code::IntegerAboveMaxValue, "n"),
        (r#"{"n":true}"#, Code::InvalidType, "n"),
        (r#"{"seed":9223372036854775808}"#, Code::IntegerAboveMaxValue, "seed"),
        (r#"{"seed":-9223372036854775809}"#, Code::IntegerBelowMinValue, "seed"),
        (r#"{"seed":0.5}"#, Code::InvalidType, "seed"),
        (r#"{"logprobs":1}"#, Code::InvalidType, "logprobs"),
        (r#"{"logprobs":true,"top_logprobs":21}"#, Code::IntegerAboveMaxValue, "top_logprobs"),
        (r#"{"logprobs":true,"top_logprobs":-1}"#, Code::IntegerBelowMinValue, "top_logprobs"),
        (r#"{"top_logprobs":1}"#, Code::InvalidValue, "top_logprobs"),
        (r#"{"logprobs":false,"top_logprobs":1}"#, Code::InvalidValue, "top_logprobs"),
        (r#"{"reasoning_effort":1}"#, Code::InvalidType, "reasoning_effort"),
        (r#"{"stop":""}"#, Code::EmptyString, "stop"),
        (r#"{"stop":[]}"#, Code::EmptyArray, "stop"),
        (r#"{"stop":["a",""]}"#, Code::EmptyString, "stop[1]"),
        (r#"{"stop":["a",1]}"#, Code::InvalidType, "stop[1]"),
        (r#"{"stop":["a","b","c","d","e"]}"#, Code::ArrayAboveMaxLength, "stop"),
        (r#"{"stop":1}"#, Code::InvalidType, "stop"),
        (&format!(r#"{{"stop":"{}"}}"#, "a".repeat(1025)), Code::StringAboveMaxLength, "stop"),
        (&format!(r#"{{"stop":["a",{}"b"]}}"#, " ".repeat(1 << 18)), Code::InvalidValue, "stop"),
        (&format!(r#"{{"temperature":0.{}1}}"#, "0".repeat(100)), Code::InvalidValue, "temperature"),
        (&format!(r#"{{"seed":{}}}"#, "1".repeat(100)), Code::InvalidValue, "seed"),
        (&format!(r#"{{"logit_bias":{{"1":1{}}}}}"#, " ".repeat(1 << 18)), Code::InvalidValue, "logit_bias"),
        (r#"{"logit_bias":[]}"#, Code::InvalidType, "logit_bias"),
        (r#"{"logit_bias":{"a":1}}"#, Code::InvalidValue, "logit_bias"),
        (r#"{"logit_bias":{"-1":1}}"#, Code::InvalidValue, "logit_bias"),
        (r#"{"logit_bias":{"1":101}}"#, Code::DecimalAboveMaxValue, "logit_bias.1"),
        (r#"{"logit_bias":{"1":-101}}"#, Code::DecimalBelowMinValue, "logit_bias.1"),
        (r#"{"logit_bias":{"1":null}}"#, Code::InvalidType, "logit_bias.1"),
    ]);
}

#[test]
fn an_effort_that_the_model_does_not_take_is_refused_with_those_that_it_takes() {
    let refused = |word: &str, efforts: &[Effort]| {
        let body = format!(
            r#"{{"model":"m","reasoning_effort":"{word}","messages":[{{"role":"user","content":""}}]}}"#
        );
        let model = Model { efforts: efforts.to_vec(), ..model() };
        let error = parse(&body).unwrap().forward(&model).err().unwrap();
        assert_eq!(error.param.as_deref(), Some("reasoning_effort"));
        (error.code, error.message.into_owned())
    };
    let usual = model().efforts;
    let said = "Invalid 'reasoning_effort': must be 'low' or 'high' with the model 'Model Flash'.";
    for word in ["none", "medium", "xhigh", "Low", ""] {
        assert_eq!(refused(word, &usual), (Code::InvalidValue, said.into()), "{word}");
    }
    assert_eq!(refused("low", &[Effort::Max]).0, Code::InvalidValue);
    let said = "Invalid 'reasoning_effort': the model 'Model Flash' does not have this setting.";
    assert_eq!(refused("low", &[]), (Code::UnsupportedParameter, said.into()));
}

#[test]
fn streams_alone_have_stream_options() {
    assert_refused(&[
        (r#"{"stream":"true"}"#, Code::InvalidType, "stream"),
        (r#"{"stream_options":{"include_usage":true}}"#, Code::InvalidValue, "stream_options"),
        (r#"{"stream":false,"stream_options":{}}"#, Code::InvalidValue, "stream_options"),
        (r#"{"stream":true,"stream_options":true}"#, Code::InvalidType, "stream_options"),
        (
            r#"{"stream":true,"stream_options":{"include_usage":1}}"#,
            Code::InvalidType,
            "stream_options.include_usage",
        ),
    ]);
}

#[test]
fn what_is_known_and_not_supported_says_so() {
    assert_refused(&[
        (r#"{"functions":[]}"#, Code::UnsupportedParameter, "functions"),
        (r#"{"function_call":"auto"}"#, Code::UnsupportedParameter, "function_call"),
        (r#"{"audio":{"voice":"alloy"}}"#, Code::UnsupportedParameter, "audio"),
        (r#"{"modalities":["text","audio"]}"#, Code::UnsupportedValue, "modalities[1]"),
        (r#"{"modalities":"text"}"#, Code::InvalidType, "modalities"),
    ]);
}

#[test]
fn tools_are_functions_with_names() {
    let many = |n: usize| {
        let tools = vec![r#"{"type":"function","function":{"name":"f"}}"#; n];
        format!(r#"{{"tools":[{}]}}"#, tools.join(","))
    };
    let deep = "[".repeat(64) + &"]".repeat(64);
    let deep = format!(
        r#"{{"tools":[{{"type":"function","function":{{"name":"f","parameters":{{"a":{deep}}}}}}}]}}"#
    );
    let long = format!(r#"{{"tools":[{{"type":"function","function":{{"name":"{}"}}}}]}}"#, "f".repeat(129));
    assert_refused(&[
        (r#"{"tools":{}}"#, Code::InvalidType, "tools"),
        (r#"{"tools":[]}"#, Code::EmptyArray, "tools"),
        (&many(513), Code::ArrayAboveMaxLength, "tools"),
        (r#"{"tools":[1]}"#, Code::InvalidType, "tools[0]"),
        (r#"{"tools":[{"function":{"name":"f"}}]}"#, Code::MissingRequiredParameter, "tools[0].type"),
        (r#"{"tools":[{"type":"retrieval"}]}"#, Code::InvalidValue, "tools[0].type"),
        (r#"{"tools":[{"type":"function"}]}"#, Code::MissingRequiredParameter, "tools[0].function"),
        (r#"{"tools":[{"type":"function","function":"f"}]}"#, Code::InvalidType, "tools[0].function"),
        (
            r#"{"tools":[{"type":"function","function":{}}]}"#,
            Code::MissingRequiredParameter,
            "tools[0].function.name",
        ),
        (
            r#"{"tools":[{"type":"function","function":{"name":""}}]}"#,
            Code::EmptyString,
            "tools[0].function.name",
        ),
        (
            r#"{"tools":[{"type":"function","function":{"name":"a b"}}]}"#,
            Code::InvalidValue,
            "tools[0].function.name",
        ),
        (
            r#"{"tools":[{"type":"function","function":{"name":"é"}}]}"#,
            Code::InvalidValue,
            "tools[0].function.name",
        ),
        (&long, Code::StringAboveMaxLength, "tools[0].function.name"),
        (
            r#"{"tools":[{"type":"function","function":{"name":"f","description":1}}]}"#,
            Code::InvalidType,
            "tools[0].function.description",
        ),
        (
            r#"{"tools":[{"type":"function","function":{"name":"f","parameters":[]}}]}"#,
            Code::InvalidType,
            "tools[0].function.parameters",
        ),
        (
            r#"{"tools":[{"type":"function","function":{"name":"f","strict":1}}]}"#,
            Code::InvalidType,
            "tools[0].function.strict",
        ),
        (&deep, Code::InvalidValue, "tools[0].function.parameters"),
    ]);
    assert!(
        parse(&many(512).replacen('{', r#"{"model":"m","messages":[{"role":"user","content":""}],"#, 1))
            .is_ok()
    );
}

#[test]
fn a_choice_of_tools_is_one_that_is_offered() {
    let with =
        |choice: &str| format!(r#"{{"tools":[{{"type":"function","function":{{"name":"f"}}}}],{choice}}}"#);
    assert_refused(&[
        (r#"{"tool_choice":"auto"}"#, Code::InvalidValue, "tool_choice"),
        (r#"{"tool_choice":"none","tools":null}"#, Code::InvalidValue, "tool_choice"),
        (r#"{"parallel_tool_calls":true}"#, Code::InvalidValue, "parallel_tool_calls"),
        (&with(r#""parallel_tool_calls":"yes""#), Code::InvalidType, "parallel_tool_calls"),
        (&with(r#""tool_choice":"f""#), Code::InvalidValue, "tool_choice"),
        (&with(r#""tool_choice":1"#), Code::InvalidType, "tool_choice"),
        (&with(r#""tool_choice":{}"#), Code::MissingRequiredParameter, "tool_choice.type"),
        (&with(r#""tool_choice":{"type":"tool"}"#), Code::InvalidValue, "tool_choice.type"),
        (
            &with(r#""tool_choice":{"type":"function"}"#),
            Code::MissingRequiredParameter,
            "tool_choice.function",
        ),
        (
            &with(r#""tool_choice":{"type":"function","function":{}}"#),
            Code::MissingRequiredParameter,
            "tool_choice.function.name",
        ),
        (
            &with(r#""tool_choice":{"type":"function","function":{"name":"g"}}"#),
            Code::InvalidValue,
            "tool_choice.function.name",
        ),
        (
            &with(r#""tool_choice":{"type":"allowed_tools"}"#),
            Code::MissingRequiredParameter,
            "tool_choice.allowed_tools",
        ),
        (
            &with(r#""tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto"}}"#),
            Code::MissingRequiredParameter,
            "tool_choice.allowed_tools.tools",
        ),
        (
            &with(r#""tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}}"#),
            Code::EmptyArray,
            "tool_choice.allowed_tools.tools",
        ),
        (
            &with(
                r#""tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"none","tools":[{"type":"function","function":{"name":"f"}}]}}"#,
            ),
            Code::InvalidValue,
            "tool_choice.allowed_tools.mode",
        ),
        (
            &with(
                r#""tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"g"}}]}}"#,
            ),
            Code::InvalidValue,
            "tool_choice.allowed_tools.tools[0].function.name",
        ),
        (
            r#"{"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}}}"#,
            Code::InvalidValue,
            "tool_choice",
        ),
    ]);
}

#[test]
fn a_response_format_is_complete() {
    assert_refused(&[
        (r#"{"response_format":"json_object"}"#, Code::InvalidType, "response_format"),
        (r#"{"response_format":{}}"#, Code::MissingRequiredParameter, "response_format.type"),
        (r#"{"response_format":{"type":"xml"}}"#, Code::InvalidValue, "response_format.type"),
        (
            r#"{"response_format":{"type":"json_schema"}}"#,
            Code::MissingRequiredParameter,
            "response_format.json_schema",
        ),
        (
            r#"{"response_format":{"type":"json_schema","json_schema":{"schema":{}}}}"#,
            Code::MissingRequiredParameter,
            "response_format.json_schema.name",
        ),
        (
            r#"{"response_format":{"type":"json_schema","json_schema":{"name":"n"}}}"#,
            Code::MissingRequiredParameter,
            "response_format.json_schema.schema",
        ),
        (
            r#"{"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":[]}}}"#,
            Code::InvalidType,
            "response_format.json_schema.schema",
        ),
    ]);
}

#[test]
fn messages_have_roles_and_contents() {
    assert_refused(&[
        (r#"{"messages":["Hi"]}"#, Code::InvalidType, "messages[0]"),
        (r#"{"messages":[null]}"#, Code::InvalidType, "messages[0]"),
        (r#"{"messages":[{"content":"Hi"}]}"#, Code::MissingRequiredParameter, "messages[0].role"),
        (r#"{"messages":[{"role":null,"content":"Hi"}]}"#, Code::InvalidType, "messages[0].role"),
        (r#"{"messages":[{"role":"function","content":"Hi"}]}"#, Code::InvalidValue, "messages[0].role"),
        (r#"{"messages":[{"role":"user"}]}"#, Code::MissingRequiredParameter, "messages[0].content"),
        (r#"{"messages":[{"role":"user","content":null}]}"#, Code::InvalidType, "messages[0].content"),
        (r#"{"messages":[{"role":"user","content":1}]}"#, Code::InvalidType, "messages[0].content"),
        (r#"{"messages":[{"role":"user","content":{}}]}"#, Code::InvalidType, "messages[0].content"),
        (r#"{"messages":[{"role":"user","content":[]}]}"#, Code::EmptyArray, "messages[0].content"),
        (r#"{"messages":[{"role":"user","content":["Hi"]}]}"#, Code::InvalidType, "messages[0].content[0]"),
        (r#"{"messages":[{"role":"user","content":"Hi","name":1}]}"#, Code::InvalidType, "messages[0].name"),
        (
            r#"{"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"},{"role":"x"}]}"#,
            Code::InvalidValue,
            "messages[2].role",
        ),
        (
            r#"{"messages":[{"role":"tool","content":"42"}]}"#,
            Code::MissingRequiredParameter,
            "messages[0].tool_call_id",
        ),
        (
            r#"{"messages":[{"role":"tool","content":"42","tool_call_id":""}]}"#,
            Code::EmptyString,
            "messages[0].tool_call_id",
        ),
        (
            r#"{"messages":[{"role":"tool","tool_call_id":"c"}]}"#,
            Code::MissingRequiredParameter,
            "messages[0].content",
        ),
    ]);
}

#[test]
fn a_message_of_the_assistant_is_a_text_or_calls() {
    let call = |call: &str| format!(r#"{{"messages":[{{"role":"assistant","tool_calls":[{call}]}}]}}"#);
    assert_refused(&[
        (r#"{"messages":[{"role":"assistant"}]}"#, Code::MissingRequiredParameter, "messages[0].content"),
        (r#"{"messages":[{"role":"assistant","content":null}]}"#, Code::InvalidType, "messages[0].content"),
        (
            r#"{"messages":[{"role":"assistant","content":"a","tool_calls":[]}]}"#,
            Code::EmptyArray,
            "messages[0].tool_calls",
        ),
        (
            r#"{"messages":[{"role":"assistant","content":"a","tool_calls":{}}]}"#,
            Code::InvalidType,
            "messages[0].tool_calls",
        ),
        (
            r#"{"messages":[{"role":"assistant","content":"a","reasoning_content":1}]}"#,
            Code::InvalidType,
            "messages[0].reasoning_content",
        ),
        (r#"{"messages":[{"role":"assistant","refusal":1}]}"#, Code::InvalidType, "messages[0].refusal"),
        (
            r#"{"messages":[{"role":"assistant","content":1,"refusal":"no"}]}"#,
            Code::InvalidType,
            "messages[0].content",
        ),
        (
            r#"{"messages":[{"role":"assistant","content":[],"refusal":"no"}]}"#,
            Code::EmptyArray,
            "messages[0].content",
        ),
        (
            &call(r#"{"type":"function","function":{"name":"f","arguments":""}}"#),
            Code::MissingRequiredParameter,
            "messages[0].tool_calls[0].id",
        ),
        (
            &call(r#"{"id":"c","function":{"name":"f","arguments":""}}"#),
            Code::MissingRequiredParameter,
            "messages[0].tool_calls[0].type",
        ),
        (&call(r#"{"id":"c","type":"custom"}"#), Code::InvalidValue, "messages[0].tool_calls[0].type"),
        (
            &call(r#"{"id":"c","type":"function"}"#),
            Code::MissingRequiredParameter,
            "messages[0].tool_calls[0].function",
        ),
        (
            &call(r#"{"id":"c","type":"function","function":{"arguments":""}}"#),
            Code::MissingRequiredParameter,
            "messages[0].tool_calls[0].function.name",
        ),
        (
            &call(r#"{"id":"c","type":"function","function":{"name":"f"}}"#),
            Code::MissingRequiredParameter,
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            &call(r#"{"id":"c","type":"function","function":{"name":"f","arguments":{}}}"#),
            Code::InvalidType,
            "messages[0].tool_calls[0].function.arguments",
        ),
    ]);
}

#[test]
fn parts_are_texts_and_users_images() {
    let part = |role: &str, part: &str| {
        format!(
            r#"{{"messages":[{{"role":"{role}","tool_call_id":"c","content":[{{"type":"text","text":""}},{part}]}}]}}"#
        )
    };
    let image = |url: &str| part("user", &format!(r#"{{"type":"image_url","image_url":{{"url":{url}}}}}"#));
    assert_refused(&[
        (&part("user", "{}"), Code::MissingRequiredParameter, "messages[0].content[1].type"),
        (&part("user", r#"{"type":1}"#), Code::InvalidType, "messages[0].content[1].type"),
        (&part("user", r#"{"type":"video_url"}"#), Code::InvalidValue, "messages[0].content[1].type"),
        (
            &part("user", r#"{"type":"input_audio","input_audio":{}}"#),
            Code::UnsupportedValue,
            "messages[0].content[1].type",
        ),
        (
            &part("user", r#"{"type":"file","file":{}}"#),
            Code::UnsupportedValue,
            "messages[0].content[1].type",
        ),
        (&part("user", r#"{"type":"text"}"#), Code::MissingRequiredParameter, "messages[0].content[1].text"),
        (&part("user", r#"{"type":"text","text":1}"#), Code::InvalidType, "messages[0].content[1].text"),
        (
            &part("user", r#"{"type":"image_url"}"#),
            Code::MissingRequiredParameter,
            "messages[0].content[1].image_url",
        ),
        (
            &part("user", r#"{"type":"image_url","image_url":"https://a"}"#),
            Code::InvalidType,
            "messages[0].content[1].image_url",
        ),
        (
            &part("user", r#"{"type":"image_url","image_url":{}}"#),
            Code::MissingRequiredParameter,
            "messages[0].content[1].image_url.url",
        ),
        (&image("1"), Code::InvalidType, "messages[0].content[1].image_url.url"),
        (&image(r#""file:///etc/passwd""#), Code::InvalidValue, "messages[0].content[1].image_url.url"),
        (
            &image(r#""data:image/png;base64,AA\n=""#),
            Code::InvalidValue,
            "messages[0].content[1].image_url.url",
        ),
        (
            &image(r#""https://a","detail":"max""#),
            Code::InvalidValue,
            "messages[0].content[1].image_url.detail",
        ),
        (
            &part("user", r#"{"type":"refusal","refusal":"no"}"#),
            Code::InvalidValue,
            "messages[0].content[1].type",
        ),
        (
            &part("assistant", r#"{"type":"refusal"}"#),
            Code::MissingRequiredParameter,
            "messages[0].content[1].refusal",
        ),
        (
            &part("system", r#"{"type":"image_url","image_url":{"url":"https://a"}}"#),
            Code::InvalidValue,
            "messages[0].content[1].type",
        ),
        (
            &part("assistant", r#"{"type":"image_url","image_url":{"url":"https://a"}}"#),
            Code::InvalidValue,
            "messages[0].content[1].type",
        ),
        (
            &part("tool", r#"{"type":"image_url","image_url":{"url":"https://a"}}"#),
            Code::InvalidValue,
            "messages[0].content[1].type",
        ),
    ]);
}
