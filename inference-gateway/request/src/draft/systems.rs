//! Moves system messages that are not at the front of the list, for servers that accept them only there.

use raw_json::Members;
use shared::error::ApiError;
use shared_catalog::SystemMessages;

use super::{
    body::Draft,
    places::{MessageList, SystemPlace},
    terms::Edits,
};

/// Name of a list of parts in errors.
const PARTS: &str = "an array of content parts";
/// Beginning of a user message in the draft, up to its content.
const OF_USER: &[u8] = br#"{"role":"user","content":"#;

impl Draft {
    /// Ends the list of messages.
    pub(crate) fn messages(&mut self, list: MessageList) {
        self.open_at(list.start, list.opening_end(self.json.len()));
        self.list = list;
        self.list.end = self.json.len() - 1;
    }

    /// Lists the edits that move system messages to where servers accept them. Several system messages at the front are
    /// always merged into one message.
    pub(super) fn system_edits(&self, wanted: SystemMessages) -> Result<Edits, ApiError> {
        let (list, leading) = (&self.list, self.list.leading_systems());
        let mut edits = Edits::new();
        match wanted {
            SystemMessages::InPlace => return Ok(edits),
            SystemMessages::First if leading == list.systems.len() && leading < 2 => return Ok(edits),
            SystemMessages::First => return self.merged_first(&list.systems),
            SystemMessages::AsUser if leading > 1 => edits = self.merged_first(&list.systems[..leading])?,
            SystemMessages::AsUser => {}
        }
        let mut rest = &list.systems[leading..];
        while let Some(first) = rest.first() {
            let next = |pair: &[SystemPlace]| pair[0].at.end + 1 == pair[1].at.start;
            let run = 1 + rest.windows(2).take_while(|pair| next(pair)).count();
            self.as_user(&rest[..run], first.is_after_user, &mut edits)?;
            rest = &rest[run..];
        }
        Ok(edits)
    }

    /// Merges these messages into one message at the front.
    fn merged_first(&self, systems: &[SystemPlace]) -> Result<Edits, ApiError> {
        let (start, end) = (self.list.start + 1, self.list.end);
        let mut merged = format!(r#"{{"role":"system","content":"{}"}}"#, self.texts(systems)?);
        let mut edits = vec![(start..start, String::new())];
        let mut removed = 0;
        for SystemPlace { at, .. } in systems {
            removed += at.len() + 1;
            // Also removes the comma after the message.
            edits.push((at.start..(at.end + 1).min(end), String::new()));
        }
        if removed <= end - start {
            merged.push(',');
            without_last_comma(systems, end, &mut edits);
        }
        edits[0].1 = merged;
        Ok(edits)
    }

    /// Turns consecutive system messages into user text. The text is added to the user message before or after them,
    /// since many templates require alternating roles. It becomes a separate message only if there is no user message
    /// next to them.
    fn as_user(&self, run: &[SystemPlace], is_after_user: bool, edits: &mut Edits) -> Result<(), ApiError> {
        let (start, end, text) = (run[0].at.start, run[run.len() - 1].at.end, self.texts(run)?);
        if text.is_empty() {
            edits.push((start - 1..end, String::new()));
            return Ok(());
        }
        if is_after_user {
            // The content of the user message is followed by a brace and a comma.
            let close = start - 3;
            let is_text = self.json[close] == b'"';
            let more = if is_text { format!("\\n\\n{text}\"}}") } else { format!("{}]}}", part(",", &text)) };
            edits.push((close..end, more));
            return Ok(());
        }
        let next = self.json.get(end + 1..).unwrap_or_default();
        match next.strip_prefix(OF_USER).and_then(<[u8]>::first) {
            Some(b'"') => {
                edits.push((start..end + 1, String::new()));
                let content = end + 1 + OF_USER.len() + 1;
                edits.push((content..content, format!("{text}\\n\\n")));
            }
            Some(b'[') => {
                edits.push((start..end + 1, String::new()));
                let content = end + 1 + OF_USER.len() + 1;
                edits.push((content..content, format!("{},", part("", &text))));
            }
            Some(_) | None => {
                edits.push((start..end, format!(r#"{{"role":"user","content":"{text}"}}"#)));
            }
        }
        Ok(())
    }

    /// Joins the texts of messages, as spelled in JSON without quotes.
    fn texts(&self, systems: &[SystemPlace]) -> Result<String, ApiError> {
        let mut joined = String::new();
        for SystemPlace { at, .. } in systems {
            let message = Members::of_body(&self.json[at.clone()])?;
            message.require("content")?.each_text(PARTS, text_of, |token| {
                let text = &token[1..token.len() - 1];
                if !text.is_empty() {
                    joined.push_str(if joined.is_empty() { "" } else { "\\n\\n" });
                    joined.push_str(text);
                }
            })?;
        }
        Ok(joined)
    }
}

/// If the last messages of the list are system messages, also removes the comma before them.
fn without_last_comma(systems: &[SystemPlace], end: usize, edits: &mut Edits) {
    let mut behind = end + 1;
    let ends_list = |system: &&SystemPlace| {
        let ends = system.at.end + 1 == behind;
        behind = system.at.start;
        ends
    };
    let last = systems.iter().rev().take_while(ends_list).count();
    if let Some((at, _)) = edits.len().checked_sub(last).filter(|_| last > 0).and_then(|at| edits.get_mut(at))
    {
        at.start -= 1;
    }
}

/// Writes a text part, as spelled in JSON without quotes.
fn part(before: &str, text: &str) -> String {
    format!(r#"{before}{{"type":"text","text":"{text}"}}"#)
}

/// Returns the text of a part. In a system message, every part is a text.
fn text_of<'a>(part: &Members<'a, '_>) -> Result<&'a str, ApiError> {
    part.require("text")?.string_token()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use crate::{
        chat,
        forward::Forward,
        tests::{body, model, model_with},
    };

    fn forward(messages: &Value, kind: &str) -> Forward {
        let request = json!({"model": "m", "messages": messages}).to_string();
        chat::parse(&Bytes::from(request)).unwrap().forward(&model(kind)).unwrap()
    }

    fn sent(messages: &Value, kind: &str) -> Value {
        body(&forward(messages, kind))["messages"].take()
    }

    fn sent_first(messages: &Value) -> Value {
        let request = json!({"model": "m", "messages": messages}).to_string();
        let model = model_with("system_messages = \"first\"");
        body(&chat::parse(&Bytes::from(request)).unwrap().forward(&model).unwrap())["messages"].take()
    }

    fn message(role: &str, content: &str) -> Value {
        json!({"role": role, "content": content})
    }

    #[test]
    fn a_later_system_message_stays_in_place_and_is_a_users_text_where_templates_refuse_it() {
        let parts = json!({"role": "system", "name": "x", "content": [
            {"type": "text", "text": "b\n"}, {"type": "text", "text": ""}, {"type": "text", "text": "\u{e9}\""},
        ]});
        let text = "b\n\n\n\u{e9}\"";
        let [a, hi, yes, bye] = [("system", "a"), ("user", "hi"), ("assistant", "yes"), ("user", "bye")]
            .map(|(r, c)| message(r, c));
        let looks = json!({"role": "user", "content": [{"type": "text", "text": "see"}]});
        let with = |before: &str, after: &str| message("user", &format!("{before}\n\n{after}"));
        for (written, read) in [
            (json!([a, hi, yes, bye, parts]), json!([a, hi, yes, with("bye", text)])),
            (json!([a, hi, parts, yes, bye]), json!([a, with("hi", text), yes, bye])),
            (json!([a, hi, yes, parts, bye]), json!([a, hi, yes, with(text, "bye")])),
            (json!([a, hi, yes, parts, a, yes]), json!([a, hi, yes, with(text, "a"), yes])),
            (json!([hi, yes, parts]), json!([hi, yes, message("user", text)])),
            (
                json!([message("developer", "a"), parts, hi]),
                json!([message("system", &format!("a\n\n{text}")), hi]),
            ),
            (json!([hi, yes, message("system", ""), bye]), json!([hi, yes, bye])),
            (
                json!([a, looks, parts, yes, a, looks]),
                json!([
                    a,
                    {"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "text", "text": text}]},
                    yes,
                    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "see"}]},
                ]),
            ),
        ] {
            for kind in ["vllm", "sglang", "llama_cpp", "ollama"] {
                assert_eq!(sent(&written, kind), read, "{kind}: {written}");
            }
            let in_place = sent(&written, "openai");
            assert_eq!(in_place.as_array().unwrap().len(), written.as_array().unwrap().len(), "{in_place}");
        }
    }

    #[test]
    fn a_system_message_that_comes_first_alone_stays_as_it_is() {
        let first = json!({"role": "system", "name": "x", "content": [{"type": "text", "text": "a"}]});
        let messages = json!([first, message("user", "hi")]);
        assert_eq!(sent(&messages, "llama_cpp"), messages);
        let none = json!([message("user", "hi"), message("assistant", "yes")]);
        assert_eq!(sent(&none, "llama_cpp"), none);
        let empty = message("system", "");
        assert_eq!(sent(&json!([empty, empty]), "vllm"), json!([empty]));
    }

    #[test]
    fn a_conversation_begins_alike_whatever_system_messages_follow() {
        let opening = |more: &[Value]| {
            let mut messages = vec![message("system", "Be brief."), message("user", &"long ".repeat(300))];
            messages.extend_from_slice(more);
            let forward = forward(&messages.into(), "llama_cpp");
            String::from_utf8(forward.prompt_prefix().unwrap().to_vec()).unwrap()
        };
        let begin = opening(&[]);
        assert!(begin.starts_with(r#"[{"role":"system","content":"Be brief."},{"role":"user""#), "{begin}");
        assert!(begin.ends_with("long \"}"), "to the end of the first message of a user: {begin}");
        assert_eq!(opening(&[message("system", "yes"), message("user", "bye")]), begin);
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
            prop_assert_eq!(sent_first(&messages.clone().into()), Value::from(expected));
            let contents = |messages: &Value| -> String {
                let content = |m: &Value| m["content"].as_str().unwrap().replace("\n\n", "");
                messages.as_array().unwrap().iter().map(content).collect()
            };
            let in_order = Value::from(messages);
            prop_assert_eq!(contents(&sent(&in_order, "vllm")), contents(&in_order));
        }
    }
}
