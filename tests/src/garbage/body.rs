//! Request bodies: valid ones, valid ones with one fault, and damaged ones.

use crate::upstream::{Fault, Script, Shape, Style};
use serde_json::json;

use super::rng::Rng;

/// A generated request body.
#[derive(Default)]
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    /// Whether the body may make the model fail.
    pub(super) blames_upstream: bool,
}

/// Replacements for valid values.
const JUNK: [&str; 28] = [
    "null",
    "true",
    "false",
    "0",
    "-0",
    "1",
    "-1",
    "1.5",
    "1e5",
    "1e400",
    "-1e-400",
    "9223372036854775807",
    "9223372036854775808",
    "99999999999999999999999999",
    "\"\"",
    "\"x\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"\\ud83d\\ude00\"",
    "\"Model Flash\"",
    "[]",
    "{}",
    "[null]",
    "[[]]",
    "{\"\":{}}",
    "{\"type\":\"text\"}",
    "[1,\"a\",{}]",
    "01",
];
/// Members of a chat request with valid values.
const OPTIONS: [(&str, &str); 24] = [
    ("temperature", "0.5"),
    ("top_p", "1"),
    ("stop", "[\"a\",\"b\"]"),
    ("seed", "-7"),
    ("n", "3"),
    ("logprobs", "true"),
    ("frequency_penalty", "-2"),
    ("presence_penalty", "2"),
    ("max_tokens", "7"),
    ("max_completion_tokens", "7"),
    ("reasoning_effort", "\"low\""),
    ("logit_bias", "{\"5\":1}"),
    ("user", "\"u\""),
    ("metadata", "{\"a\":\"b\"}"),
    ("tools", r#"[{"type":"function","function":{"name":"lookup","parameters":{"type":"object"}}}]"#),
    ("tool_choice", "\"auto\""),
    ("parallel_tool_calls", "false"),
    ("response_format", r#"{"type":"json_object"}"#),
    ("stream_options", r#"{"include_usage":true}"#),
    ("top_k", "5"),
    ("chat_template", "\"x\""),
    ("functions", "[]"),
    ("modalities", "[\"text\"]"),
    ("top_logprobs", "2"),
];
/// Messages; the last message of a request contains the model's script.
const MESSAGES: [&str; 8] = [
    r#"{"role":"system","content":"s"}"#,
    r#"{"role":"developer","content":[{"type":"text","text":"s"}]}"#,
    r#"{"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"https://a.example/b.png"}}]}"#,
    r#"{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,QUJD"}}]}"#,
    r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}"#,
    r#"{"role":"tool","tool_call_id":"c","content":"42"}"#,
    r#"{"role":"assistant","content":"a","reasoning_content":"r"}"#,
    r#"{"role":"user","content":"\u00e9 \ud83d\ude00"}"#,
];

impl Body {
    /// Generates a chat request.
    pub(super) fn chat(rng: &mut Rng) -> Self {
        let fault = if rng.percent(15) { fault(rng) } else { Fault::None };
        let script = Script {
            pace_ms: rng.below(3) as u64,
            tool_calls: rng.below(2) as u64,
            reasoning_tokens: rng.below(4) as u64,
            // As vLLM does, which the catalogue names as the kind of upstream.
            style: Style { usage_by_choice: true, ..Style::default() },
            ..Script::tokens(rng.below(500) as u64, rng.below(60) as u64).fault(fault)
        };
        let damaged = rng.percent(20);
        let mut messages: Vec<String> = Vec::new();
        while rng.percent(40) {
            messages.push((*rng.pick(&MESSAGES)).into());
        }
        // A damaged script would make the scripted model itself fail.
        if !damaged {
            messages.push(json!({"role": "user", "content": script.message()}).to_string());
        } else if messages.is_empty() {
            messages.push(MESSAGES[0].into());
        }
        let stream = if rng.percent(50) { "true" } else { "false" };
        let mut members: Vec<(String, String)> = vec![
            ("model".into(), "\"Model Flash\"".into()),
            ("messages".into(), format!("[{}]", messages.join(","))),
            ("stream".into(), stream.into()),
        ];
        while rng.percent(60) {
            let (name, value) = *rng.pick(&OPTIONS);
            if members.iter().all(|(known, _)| known != name) {
                members.push((name.into(), value.into()));
            }
        }
        let mut bytes = object(rng, members);
        if damaged {
            damage(rng, &mut bytes);
        }
        Self { bytes, blames_upstream: fault != Fault::None }
    }

    /// Generates a body that creates or changes a key.
    pub(super) fn key(rng: &mut Rng) -> Self {
        let members =
            [("label", "\"fuzz\""), ("limit", "0.000000001"), ("expires_at", "\"2099-01-01T00:00:00Z\"")];
        let mut chosen: Vec<(String, String)> = Vec::new();
        for (name, value) in members {
            if rng.percent(60) {
                chosen.push((name.into(), value.into()));
            }
        }
        let mut bytes = object(rng, chosen);
        if rng.percent(20) {
            damage(rng, &mut bytes);
        }
        Self { bytes, blames_upstream: false }
    }
}

fn fault(rng: &mut Rng) -> Fault {
    let after = rng.below(20) as u64;
    let shape = *rng.pick(&[Shape::Nested, Shape::Flat, Shape::TooLong, Shape::Html]);
    let status = *rng.pick(&[302, 400, 401, 404, 413, 422, 429, 500, 503, 504]);
    *rng.pick(&[
        Fault::Error { status, shape },
        Fault::CutBeforeHead,
        Fault::Cut { after },
        Fault::End { after },
        Fault::ErrorEvent { after, shape },
        Fault::Nonsense { after },
        Fault::CutBeforeUsage,
        Fault::NoFinishReason,
        Fault::NoDone,
    ])
}

/// Builds an object from these members. Sometimes a member is missing, duplicated or of the wrong type.
fn object(rng: &mut Rng, mut members: Vec<(String, String)>) -> Vec<u8> {
    while rng.percent(25) && !members.is_empty() {
        let place = rng.below(members.len());
        match rng.below(6) {
            0 => drop(members.remove(place)),
            1 => members.push(members[place].clone()),
            2 => members[place].1 = nested(rng),
            3 => members[place].0 = (*rng.pick(&["", "x", "\\u0000", "mod\\u0065l", "store"])).into(),
            4 => {
                let value = format!("\"{}\"", "x".repeat(rng.below(100_000)));
                members[place].1 = value;
            }
            _ => members[place].1 = (*rng.pick(&JUNK)).into(),
        }
    }
    let members: Vec<String> = members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    let blank = if rng.percent(10) { " \n\t" } else { "" };
    format!("{blank}{{{}}}{blank}", members.join(",")).into_bytes()
}

/// Generates nested arrays or objects, possibly deeper than any parser accepts.
fn nested(rng: &mut Rng) -> String {
    let depth = rng.below(2_000);
    if rng.percent(50) {
        "[".repeat(depth) + &"]".repeat(depth)
    } else {
        "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth)
    }
}

/// Changes, inserts, removes or repeats bytes.
pub(super) fn damage(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..=rng.below(4) {
        if bytes.is_empty() {
            return;
        }
        let place = rng.below(bytes.len());
        match rng.below(5) {
            0 => bytes[place] = rng.byte(),
            1 => bytes.insert(place, rng.byte()),
            2 => drop(bytes.remove(place)),
            3 => bytes.truncate(place),
            _ => {
                let end = bytes.len().min(place + 1 + rng.below(40));
                bytes.extend_from_within(place..end);
            }
        }
    }
}
