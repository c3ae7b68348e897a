//! Answers made to break their readers.

use super::*;

/// Levels of nesting that overflow the stack of a recursive parser.
const LEVELS: usize = 100_000;
/// As many levels as fit into an event of a few megabytes.
const MOST_LEVELS: usize = 2_000_000;

/// Returns the bytes that clients get for one chunk, or why it is not an answer.
fn written(chunk: &str) -> Result<String, Nonsense> {
    let mut out = BytesMut::new();
    match Event::read(chunk.as_bytes())? {
        Event::Chunk(chunk) => Rewriter::new(generation(), false).chunk(&chunk, &mut out),
        Event::Failed(..) | Event::Done => panic!("{chunk}"),
    }
    Ok(String::from_utf8(out.to_vec()).unwrap())
}

/// Asserts that an event is one line of JSON.
#[track_caller]
fn assert_event(written: &str) -> Value {
    let payload = written.strip_prefix("data: ").and_then(|rest| rest.strip_suffix("\n\n")).unwrap();
    assert!(!payload.contains(['\n', '\r']));
    serde_json::from_str(payload).unwrap()
}

#[test]
fn nesting_of_any_depth_neither_overflows_nor_gets_through() {
    let deep = format!("{}{}", "[".repeat(LEVELS), "]".repeat(LEVELS));
    let objects = format!("{}1{}", r#"{"a":"#.repeat(LEVELS), "}".repeat(LEVELS));
    for deep in [&deep, &objects] {
        for place in [
            r#"{"x":DEEP,"choices":[{"index":0,"delta":{"content":"a"}}]}"#,
            r#"{"usage":DEEP,"timings":DEEP,"object":DEEP,"choices":[{"index":0,"delta":{"content":"a"}}]}"#,
            r#"{"usage":{"prompt_tokens":DEEP,"prompt_tokens_details":DEEP},"choices":[{"index":0,"delta":{"content":"a"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":DEEP}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":DEEP,"refusal":DEEP}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":DEEP,"bytes":DEEP,"top_logprobs":DEEP}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"token":"a","top_logprobs":[{"token":"b","logprob":-1,"x":DEEP}]}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"a","reasoning":DEEP,"thinking":DEEP}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"a","tool_calls":[{"index":0,"x":DEEP,"function":{"name":"f","x":DEEP}}]}}]}"#,
        ] {
            let written = written(&place.replace("DEEP", deep)).unwrap();
            assert!(written.len() < 1_000, "{place}");
            assert_eq!(assert_event(&written)["choices"][0]["delta"]["content"], "a", "{place}");
        }
        for place in [
            "DEEP",
            r#"{"choices":DEEP}"#,
            r#"{"choices":[DEEP]}"#,
            r#"{"choices":[{"index":0,"delta":DEEP}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":DEEP}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":DEEP}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"id":DEEP}]}}]}"#,
            r#"{"choices":[{"index":0,"finish_reason":DEEP}]}"#,
        ] {
            // A list of lists is a chunk without choices, as an empty list would be.
            let read = written(&place.replace("DEEP", deep));
            assert!(read.is_err() || read.is_ok_and(|written| written.len() < 1_000), "{place}");
        }
        let error = format!(r#"{{"error":{deep}}}"#);
        assert!(matches!(Event::read(error.as_bytes()), Ok(Event::Failed(..))));
    }
    let deep = format!("{}{}", "[".repeat(MOST_LEVELS), "]".repeat(MOST_LEVELS));
    let chunk = r#"{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":DEEP}}]}"#;
    assert!(written(&chunk.replace("DEEP", &deep)).unwrap().len() < 1_000);
}

#[test]
fn halves_of_surrogate_pairs_become_replacement_characters_wherever_a_text_is_written() {
    let texts = [
        (r"\ud83d\ude00", "😀"),
        (r"a\ud83d", "a\u{fffd}"),
        (r"\uDE00b", "\u{fffd}b"),
        (r"\ud83d\ud83d\ude00", "\u{fffd}😀"),
        (r"\ud83dx\ude00", "\u{fffd}x\u{fffd}"),
        (r"\\ud83d", r"\ud83d"),
        (r"\\\ud83d\n", "\\\u{fffd}\n"),
        (r"\ud83d\u00e9", "\u{fffd}é"),
        (r"\u00d8\ud7ff\ue000", "Ø\u{d7ff}\u{e000}"),
    ];
    for (spelled, expected) in texts {
        let chunk = r#"{"choices":[{"index":0,"delta":{"content":"TEXT","reasoning":"TEXT","refusal":"TEXT",
            "tool_calls":[{"index":0,"id":"TEXT","function":{"name":"TEXT","arguments":"TEXT"}}]},
            "logprobs":{"content":[{"token":"TEXT","logprob":-1,"top_logprobs":[{"token":"TEXT","logprob":-1}]}]}}]}"#;
        let event = assert_event(&written(&chunk.replace("TEXT", spelled)).unwrap());
        let choice = &event["choices"][0];
        let (call, token) = (&choice["delta"]["tool_calls"][0], &choice["logprobs"]["content"][0]);
        for text in [
            &choice["delta"]["content"],
            &choice["delta"]["reasoning_content"],
            &choice["delta"]["refusal"],
            &call["id"],
            &call["function"]["name"],
            &call["function"]["arguments"],
            &token["token"],
            &token["top_logprobs"][0]["token"],
        ] {
            assert_eq!(text, expected, "{spelled}");
        }
        let body = r#"{"choices":[{"message":{"content":"TEXT","refusal":"TEXT","reasoning":"TEXT",
            "tool_calls":[{"id":"TEXT","function":{"name":"TEXT","arguments":"TEXT"}}]},"finish_reason":"stop"}]}"#;
        let body = body.replace("TEXT", spelled);
        let written = Completion::read(&Reply::Chat { include_usage: false }, body.as_bytes())
            .unwrap()
            .write(generation(), &CHAT, SETTLED);
        let message = &serde_json::from_slice::<Value>(&written).unwrap()["choices"][0]["message"];
        assert_eq!(message["content"], expected, "{spelled}");
        assert_eq!(message["tool_calls"][0]["function"]["arguments"], expected, "{spelled}");
    }
}

#[test]
fn log_probabilities_are_numbers_that_every_client_can_hold() {
    for number in ["1e400", "-1e99999", &format!("-0.{}", "1".repeat(1_000_000))] {
        let chunk = format!(
            r#"{{"choices":[{{"index":0,"delta":{{}},"logprobs":{{"content":[{{"token":"a","logprob":{number}}}]}}}}]}}"#
        );
        let event = assert_event(&written(&chunk).unwrap());
        assert_eq!(event["choices"][0]["logprobs"]["content"][0]["logprob"], json!(-9999.0));
    }
}

#[test]
fn what_is_kept_of_an_answer_has_a_bound() {
    let call = |id: &str, name: &str| {
        format!(
            r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{{"index":0,"id":"{id}","function":{{"name":"{name}"}}}}]}}}}]}}"#
        )
    };
    let long = "n".repeat(100_000);
    assert!(written(&call("call_1", "f")).is_ok());
    assert!(written(&call(&long, "f")).is_err());
    assert!(written(&call("call_1", &long)).is_err());
    let many = format!("[{}{{}}]", "{},".repeat(5_000));
    assert!(written(&format!(r#"{{"choices":{many}}}"#)).is_err());
    assert!(written(&format!(r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":{many}}}}}]}}"#)).is_err());
    let whole = format!(r#"{{"choices":[{{"message":{{"tool_calls":{many}}},"finish_reason":"stop"}}]}}"#);
    assert!(Completion::read(&Reply::Chat { include_usage: false }, whole.as_bytes()).is_err());
}
