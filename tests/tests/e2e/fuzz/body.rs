//! Request bodies: valid ones, valid ones with one fault, and damaged ones.

use serde_json::json;
use tests::upstream::{Fault, Script, Shape};

use super::dice::Dice;

/// A generated request body.
#[derive(Default)]
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    /// The body may make the model fail.
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
    /// A chat request.
    pub(super) fn chat(dice: &mut Dice) -> Self {
        let fault = if dice.percent(15) { fault(dice) } else { Fault::None };
        let script = Script {
            pace_ms: dice.below(3) as u64,
            tool_calls: dice.below(2) as u64,
            reasoning_tokens: dice.below(4) as u64,
            ..Script::tokens(dice.below(500) as u64, dice.below(60) as u64).fault(fault)
        };
        let damaged = dice.percent(20);
        let mut messages: Vec<String> = Vec::new();
        while dice.percent(40) {
            messages.push((*dice.pick(&MESSAGES)).into());
        }
        // A damaged script would make the scripted model itself fail.
        if !damaged {
            messages.push(json!({"role": "user", "content": script.message()}).to_string());
        } else if messages.is_empty() {
            messages.push(MESSAGES[0].into());
        }
        let stream = if dice.percent(50) { "true" } else { "false" };
        let mut members: Vec<(String, String)> = vec![
            ("model".into(), "\"Model Flash\"".into()),
            ("messages".into(), format!("[{}]", messages.join(","))),
            ("stream".into(), stream.into()),
        ];
        while dice.percent(60) {
            let (name, value) = *dice.pick(&OPTIONS);
            if members.iter().all(|(known, _)| known != name) {
                members.push((name.into(), value.into()));
            }
        }
        let mut bytes = object(dice, members);
        if damaged {
            damage(dice, &mut bytes);
        }
        Self { bytes, blames_upstream: fault != Fault::None }
    }

    /// Body that makes or changes a key.
    pub(super) fn key(dice: &mut Dice) -> Self {
        let members =
            [("label", "\"fuzz\""), ("limit", "0.000000001"), ("expires_at", "\"2099-01-01T00:00:00Z\"")];
        let mut chosen: Vec<(String, String)> = Vec::new();
        for (name, value) in members {
            if dice.percent(60) {
                chosen.push((name.into(), value.into()));
            }
        }
        let mut bytes = object(dice, chosen);
        if dice.percent(20) {
            damage(dice, &mut bytes);
        }
        Self { bytes, blames_upstream: false }
    }
}

fn fault(dice: &mut Dice) -> Fault {
    let after = dice.below(20) as u64;
    let shape = *dice.pick(&[Shape::Nested, Shape::Flat, Shape::TooLong, Shape::Html]);
    let status = *dice.pick(&[302, 400, 401, 404, 413, 422, 429, 500, 503, 504]);
    *dice.pick(&[
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

/// Makes an object of these members. Sometimes a member is missing, duplicated or of the wrong type.
fn object(dice: &mut Dice, mut members: Vec<(String, String)>) -> Vec<u8> {
    while dice.percent(25) && !members.is_empty() {
        let place = dice.below(members.len());
        match dice.below(6) {
            0 => drop(members.remove(place)),
            1 => members.push(members[place].clone()),
            2 => members[place].1 = nested(dice),
            3 => members[place].0 = (*dice.pick(&["", "x", "\\u0000", "mod\\u0065l", "store"])).into(),
            4 => {
                let value = format!("\"{}\"", "x".repeat(dice.below(100_000)));
                members[place].1 = value;
            }
            _ => members[place].1 = (*dice.pick(&JUNK)).into(),
        }
    }
    let members: Vec<String> = members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    let blank = if dice.percent(10) { " \n\t" } else { "" };
    format!("{blank}{{{}}}{blank}", members.join(",")).into_bytes()
}

/// Nested arrays or objects, possibly deeper than any parser accepts.
fn nested(dice: &mut Dice) -> String {
    let depth = dice.below(2_000);
    if dice.percent(50) {
        "[".repeat(depth) + &"]".repeat(depth)
    } else {
        "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth)
    }
}

/// Changes, inserts, removes or repeats bytes.
pub(super) fn damage(dice: &mut Dice, bytes: &mut Vec<u8>) {
    for _ in 0..=dice.below(4) {
        if bytes.is_empty() {
            return;
        }
        let place = dice.below(bytes.len());
        match dice.below(5) {
            0 => bytes[place] = dice.byte(),
            1 => bytes.insert(place, dice.byte()),
            2 => drop(bytes.remove(place)),
            3 => bytes.truncate(place),
            _ => {
                let end = bytes.len().min(place + 1 + dice.below(40));
                bytes.extend_from_within(place..end);
            }
        }
    }
}
