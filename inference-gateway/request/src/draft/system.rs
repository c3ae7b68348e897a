//! Merges the system messages of a chat into the first message, since templates of many models refuse any other order.

use std::{iter, mem, ops::Range};

use raw_json::Members;
use shared::error::ApiError;

use super::{body::Draft, places::MessageList};

/// Name of a list of parts in errors.
const PARTS: &str = "an array of content parts";

impl Draft {
    /// Notes the messages, which are all written.
    pub(crate) fn messages(&mut self, list: MessageList) {
        self.open_at(list.start, list.turn.min(self.json.len()));
        self.list = list;
    }

    /// Writes the texts of all system messages as the first message, unless there is only one and it is first.
    pub(crate) fn merge_system_messages(&mut self) -> Result<(), ApiError> {
        let list = mem::take(&mut self.list);
        if list.is_ordered() {
            return Ok(());
        }
        let written = mem::take(&mut self.json);
        let mut json = Vec::with_capacity(written.len());
        json.extend_from_slice(&written[..=list.start]);
        json.extend_from_slice(b"{\"role\":\"system\",\"content\":\"");
        let mut between: &[u8] = b"";
        for message in &list.systems {
            let message = Members::of_body(&written[message.clone()])?;
            message.require("content")?.each_text(PARTS, text_of, |token| {
                let text = &token.as_bytes()[1..token.len() - 1];
                if !text.is_empty() {
                    json.extend_from_slice(between);
                    json.extend_from_slice(text);
                    between = b"\\n\\n";
                }
            })?;
        }
        json.extend_from_slice(b"\"}");
        let (mut kept, mut turn) = (list.start + 1, None);
        let end = written.len() - 1;
        for cut in list.systems.iter().cloned().chain(iter::once(end..end)) {
            let others = kept..cut.start;
            kept = cut.end;
            let others = without_separators(&written, others);
            if !others.is_empty() {
                json.extend_from_slice(b",");
                if others.contains(&(list.turn - 1)) {
                    turn = Some(json.len() + list.turn - others.start);
                }
                json.extend_from_slice(&written[others]);
            }
        }
        json.extend_from_slice(b"]");
        self.json = json;
        self.open_at(list.start, turn.unwrap_or(self.json.len()));
        Ok(())
    }
}

/// Returns the text of a part. In a system message, every part is a text.
fn text_of<'a>(part: &Members<'a, '_>) -> Result<&'a str, ApiError> {
    part.require("text")?.string_token()
}

/// Finds the messages in a range, without the commas around them.
fn without_separators(json: &[u8], range: Range<usize>) -> Range<usize> {
    let is_message = |at: &usize| json[*at] != b',';
    let start = range.clone().find(is_message).unwrap_or(range.end);
    let end = range.rev().find(is_message).map_or(start, |last| last + 1);
    start..end
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use crate::{
        chat,
        forward::Forward,
        tests::{body, model},
    };

    fn forward(messages: &Value, kind: &str) -> Forward {
        let request = json!({"model": "m", "messages": messages}).to_string();
        chat::parse(&Bytes::from(request)).unwrap().forward(&model(kind)).unwrap()
    }

    fn sent(messages: &Value, kind: &str) -> Value {
        body(&forward(messages, kind))["messages"].take()
    }

    fn message(role: &str, content: &str) -> Value {
        json!({"role": role, "content": content})
    }

    #[test]
    fn system_messages_are_merged_into_the_first_where_templates_render_them() {
        let parts = json!({"role": "system", "name": "x", "content": [
            {"type": "text", "text": "b\n"}, {"type": "text", "text": ""}, {"type": "text", "text": "\u{e9}\""},
        ]});
        let [hi, yes, bye] =
            [("user", "hi"), ("assistant", "yes"), ("user", "bye")].map(|(r, c)| message(r, c));
        let merged = message("system", "a\n\nb\n\n\n\u{e9}\"");
        let others = json!([merged, hi, yes, bye]);
        for written in [
            json!([message("developer", "a"), parts, hi, yes, bye]),
            json!([message("system", "a"), hi, parts, yes, bye]),
            json!([hi, message("system", "a"), yes, bye, parts]),
            json!([hi, yes, message("system", "a"), parts, bye]),
        ] {
            for kind in ["vllm", "sglang", "llama_cpp", "ollama"] {
                assert_eq!(sent(&written, kind), others, "{kind}: {written}");
            }
            let as_it_was = sent(&written, "openai");
            assert_eq!(as_it_was.as_array().unwrap().len(), 5, "{as_it_was}");
        }
        assert_eq!(
            sent(&json!([message("system", ""), message("system", "")]), "vllm"),
            json!([message("system", "")])
        );
    }

    #[test]
    fn a_system_message_that_comes_first_alone_stays_as_it_is() {
        let first = json!({"role": "system", "name": "x", "content": [{"type": "text", "text": "a"}]});
        let messages = json!([first, message("user", "hi")]);
        assert_eq!(sent(&messages, "llama_cpp"), messages);
        let none = json!([message("user", "hi"), message("assistant", "yes")]);
        assert_eq!(sent(&none, "llama_cpp"), none);
    }

    #[test]
    fn a_conversation_whose_system_messages_are_merged_begins_as_before() {
        let opening = |more: &[Value]| {
            let mut messages = vec![message("user", &"long ".repeat(300)), message("system", "Be brief.")];
            messages.extend_from_slice(more);
            let forward = forward(&messages.into(), "llama_cpp");
            String::from_utf8(forward.prompt_prefix().unwrap().to_vec()).unwrap()
        };
        let begin = opening(&[]);
        assert!(begin.starts_with(r#"[{"role":"system","content":"Be brief."},{"role":"user""#), "{begin}");
        assert!(begin.ends_with("long \"}"), "to the end of the first message of a user: {begin}");
        assert_eq!(opening(&[message("assistant", "yes"), message("user", "bye")]), begin);
    }

    proptest! {
        #[test]
        fn no_text_and_no_order_of_the_others_is_lost(roles in prop::collection::vec(0..3_u8, 1..8), text in ".{0,9}") {
            let messages: Vec<Value> = roles.iter().enumerate().map(|(place, role)| {
                message(["system", "user", "assistant"][usize::from(*role)], &format!("{place}{text}"))
            }).collect();
            let texts = |role| messages.iter().filter(move |m| (m["role"] == "system") == role).cloned();
            let systems: Vec<_> = texts(true).map(|m| m["content"].as_str().unwrap().to_owned()).collect();
            let merged = (!systems.is_empty()).then(|| message("system", &systems.join("\n\n")));
            let expected: Vec<Value> = merged.into_iter().chain(texts(false)).collect();
            prop_assert_eq!(sent(&messages.into(), "vllm"), Value::from(expected));
        }
    }
}
