//! Removes what a server refuses from a body. This is repeated for each request, since few servers refuse anything.

use bytes::Bytes;
use memchr::memmem;
use raw_json::{ANY_NUMBER, Members, Value};
use shared::error::ApiError;
use upstream_error::{RefusedMember, RefusedMembers};

use crate::{
    draft::{Edits, edited, nine},
    trimmed::trimmed,
};

/// Member that clients send and some servers refuse.
const PARALLEL: &str = "parallel_tool_calls";
/// Beginning of an escape that stands for an ASCII character, among others.
const ESCAPED_ASCII: &[u8] = br"\u00";
/// Member that asks for parts of the answer.
const INCLUDE: &str = "include";

/// Removes what its server refuses from a body, which begins with a comma.
pub(super) fn without(rest: Bytes, refused: RefusedMembers) -> Bytes {
    let is_refused = |member| refused.contains(member);
    if !names_any(&rest, refused) {
        return rest;
    }
    let mut body = Vec::from(&rest[..]);
    body[0] = b'{';
    let edits = {
        let start = body.as_ptr() as usize;
        let place = |raw: &str| {
            let from = raw.as_ptr() as usize - start;
            from..from + raw.len()
        };
        // This crate wrote the body, so it can be parsed.
        let Ok(members) = Members::of_body(&body) else { return rest };
        let mut edits = Edits::new();
        for (name, member) in
            [(PARALLEL, RefusedMember::ParallelToolCalls), (INCLUDE, RefusedMember::Include)]
        {
            if let Some(value) = members.get(name).filter(|_| is_refused(member)) {
                let value = place(value.raw());
                // A comma, the quoted name and a colon precede the value.
                edits.push((value.start - name.len() - 4..value.end, String::new()));
            }
        }
        if is_refused(RefusedMember::CallIds) {
            let read = members.get("messages").map_or(Ok(()), |messages| {
                each_id(&messages, &mut |id| {
                    if let Some(taken) = nine(id.raw()) {
                        edits.push((place(id.raw()), taken));
                    }
                })
            });
            if read.is_err() {
                return rest;
            }
        }
        edits
    };
    if edits.is_empty() {
        return rest;
    }
    body[0] = b',';
    trimmed(edited(&body, edits))
}

/// Returns whether a body may name anything that its server refuses, so that most bodies are neither copied nor parsed.
/// Names within texts do not match, since their quotes are escaped. An escape may hide a letter of a name.
fn names_any(body: &[u8], refused: RefusedMembers) -> bool {
    let names = [
        (RefusedMember::ParallelToolCalls, r#""parallel_tool_calls""#),
        (RefusedMember::Include, r#""include""#),
        (RefusedMember::CallIds, r#""tool_calls""#),
        (RefusedMember::CallIds, r#""tool_call_id""#),
    ];
    let mut names = names.into_iter().filter(|(member, _)| refused.contains(*member)).peekable();
    let may_name = |text| memmem::find(body, text).is_some();
    names.peek().is_some() && (names.any(|(_, name)| may_name(name.as_bytes())) || may_name(ESCAPED_ASCII))
}

/// Passes the id of each call to `take`, both in the call and in its answer.
fn each_id(messages: &Value<'_, '_>, take: &mut dyn FnMut(&Value<'_, '_>)) -> Result<(), ApiError> {
    messages.objects_if_any(ANY_NUMBER, |message| {
        if let Some(id) = message.get("tool_call_id") {
            take(&id);
        }
        let Some(calls) = message.get("tool_calls") else { return Ok(()) };
        calls.objects_if_any(ANY_NUMBER, |call| {
            take(&call.require("id")?);
            Ok(())
        })?;
        Ok(())
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        chat,
        forward::{BodyPieces, UpstreamParams},
        tests::{TO, model, model_with, to_first},
    };

    fn sent(lines: &str, to: UpstreamParams<'_>) -> Value {
        let call = json!({"id": "toolu_1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        let body = json!({"model": "m", "stream": true, "parallel_tool_calls": false, "temperature": 1,
            "tools": [{"type": "function", "function": {"name": "f"}}],
            "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": null, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "toolu_1", "content": "x"}]});
        let model = if lines.is_empty() { model("vllm") } else { model_with(lines) };
        let forward = chat::parse(&Bytes::from(body.to_string())).unwrap().forward(&model).unwrap();
        let BodyPieces { head, rest } = forward.body(to_first(&forward, to));
        serde_json::from_slice(&[head, rest].concat()).unwrap()
    }

    #[test]
    fn a_body_is_without_what_its_server_refuses_and_otherwise_as_it_was() {
        let of = |member| UpstreamParams {
            refused: RefusedMembers::default().with(member),
            max_tokens: Some(9),
            cache_salt: Some("s"),
            ..TO
        };
        let all = sent("", UpstreamParams { refused: RefusedMembers::default(), ..of(RefusedMember::Store) });
        let without = |name: &str| {
            let mut all = all.clone();
            all.as_object_mut().unwrap().remove(name).unwrap();
            all
        };
        for (member, name) in [
            (RefusedMember::StreamOptions, "stream_options"),
            (RefusedMember::ParallelToolCalls, "parallel_tool_calls"),
            (RefusedMember::CacheSalt, "cache_salt"),
        ] {
            assert_eq!(sent("", of(member)), without(name), "{member:?}");
        }
        let mut named = without("max_tokens");
        named["max_completion_tokens"] = json!(9);
        assert_eq!(sent("", of(RefusedMember::LimitName)), named);
        let ids = sent("", of(RefusedMember::CallIds));
        let id = ids["messages"][1]["tool_calls"][0]["id"].as_str().unwrap();
        assert!(id.len() == 9 && ids["messages"][2]["tool_call_id"] == id, "{ids}");
    }

    #[test]
    fn a_request_of_responses_is_without_what_its_server_refuses() {
        let lines = "speaks = [\"responses\"]";
        let all = sent(lines, TO);
        assert!(
            all["include"].is_array() && all["store"] == false && all["parallel_tool_calls"] == false,
            "{all}"
        );
        let refused = [RefusedMember::Include, RefusedMember::Store, RefusedMember::ParallelToolCalls];
        let refused = refused.into_iter().fold(RefusedMembers::default(), RefusedMembers::with);
        let left = sent(lines, UpstreamParams { refused, ..TO });
        for name in ["include", "store", "parallel_tool_calls"] {
            assert!(left.get(name).is_none(), "{left}");
        }
        assert_eq!(left["input"], all["input"]);
    }

    #[test]
    fn a_body_is_read_only_if_it_names_what_its_server_refuses() {
        let members = [RefusedMember::ParallelToolCalls, RefusedMember::Include, RefusedMember::CallIds];
        let all = members.into_iter().fold(RefusedMembers::default(), RefusedMembers::with);
        let said = r#""parallel_tool_calls" "include" "tool_calls" "tool_call_id""#;
        let plain =
            format!(",{}", &json!({"messages": [{"role": "user", "content": said}]}).to_string()[1..]);
        assert!(!names_any(plain.as_bytes(), all), "{plain}");
        let plain = Bytes::from(plain);
        assert_eq!(without(plain.clone(), all).as_ptr(), plain.as_ptr());
        for (member, body) in [
            (RefusedMember::ParallelToolCalls, r#","parallel_tool_calls":true}"#),
            (RefusedMember::Include, r#","include":[]}"#),
            (RefusedMember::Include, r#","\u0069nclude":[]}"#),
            (RefusedMember::CallIds, r#","messages":[{"role":"assistant","tool_calls":[]}]}"#),
            (RefusedMember::CallIds, r#","messages":[{"role":"tool","tool_call_id":"a"}]}"#),
        ] {
            assert!(names_any(body.as_bytes(), RefusedMembers::default().with(member)), "{body}");
            assert!(
                !names_any(body.as_bytes(), RefusedMembers::default().with(RefusedMember::Store)),
                "{body}"
            );
        }
    }
}
