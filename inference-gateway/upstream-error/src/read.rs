//! Finds an error's words, wherever its server puts them.

use serde_json::Value;

use crate::{
    error::{MAX_ERROR_BYTES, UpstreamError},
    sizes::ContextSizes,
};

/// Maximum nesting down to which an error is read, including JSON within texts.
const MOST_LEVELS: usize = 8;
/// Maximum number of values that are read from an error.
const MOST_VALUES: usize = 64;

/// Members that contain the message, or an object with it, in the order in which they are searched.
const MEMBERS: [&str; 17] = [
    "error",       // OpenAI and most others: an object, or a text
    "response",    // OpenAI, in a failed response
    "message",     // most; an object at Mistral
    "msg",         // FastAPI
    "faultstring", // Fireworks' proxy
    "fault",       // the same
    "status_msg",  // MiniMax
    "base_resp",   // MiniMax
    "errors",      // Cloudflare
    "detail",      // FastAPI: a text, or a list; an object at KoboldCpp
    "details",     // vLLM behind a proxy of IBM's
    "title",       // NVIDIA
    "reason",      // Google
    "description", // Google
    "raw",         // OpenRouter: the provider's own body
    "metadata",    // OpenRouter
    "innererror",  // Azure
];
/// Members that contain the cause of the surrounding error.
const CAUSES: [&str; 1] = ["raw"];

/// A sentence and its rank: a cause before its wrapper, and a message before a title.
struct Sentence {
    is_named_as_message: u8,
    is_cause: bool,
    text: String,
}

/// What was found in an error.
#[derive(Default)]
struct ErrorSearch {
    sentences: Vec<Sentence>,
    codes: Vec<(bool, String)>,
    kinds: Vec<(bool, String)>,
    params: Vec<String>,
    sizes: Option<ContextSizes>,
    looked_at: usize,
}

impl UpstreamError {
    /// Reads an error from a body or an event of a stream. Its words may be nested in objects and lists, in a text that
    /// contains JSON, or in an event.
    pub fn read(body: &[u8]) -> Self {
        if body.len() > MAX_ERROR_BYTES {
            return Self::default();
        }
        let Some(value) = parsed(body) else { return Self::default() };
        let mut search = ErrorSearch::default();
        search.look_at(&value, "", false, MOST_LEVELS);
        let best =
            search.sentences.into_iter().min_by_key(|found| (!found.is_cause, found.is_named_as_message));
        let first = |mut found: Vec<(bool, String)>| {
            found.sort_by_key(|(is_cause, _)| !is_cause);
            found.into_iter().map(|(_, text)| text).next().unwrap_or_default()
        };
        Self {
            message: best.map(|found| found.text).unwrap_or_default(),
            kind: first(search.kinds),
            code: first(search.codes),
            param: search.params.into_iter().next().unwrap_or_default(),
            sizes: search.sizes,
        }
    }
}

/// Reads a body as JSON, or the first event with JSON of a body that is framed as a stream.
fn parsed(body: &[u8]) -> Option<Value> {
    if let Ok(value) = serde_json::from_slice(body) {
        return Some(value);
    }
    let lines = body.split(|byte| *byte == b'\n' || *byte == b'\r');
    let data = lines.filter_map(|line| line.strip_prefix(b"data:"));
    data.filter_map(|data| serde_json::from_slice::<Value>(data).ok()).find(|value| !value.is_null())
}

impl ErrorSearch {
    fn look_at(&mut self, value: &Value, name: &str, is_cause: bool, levels: usize) {
        self.looked_at += 1;
        if levels == 0 || self.looked_at > MOST_VALUES {
            return;
        }
        match value {
            Value::Object(members) => {
                self.note_members(value, name, is_cause);
                for member in MEMBERS {
                    if let Some(inner) = members.get(member) {
                        self.look_at(inner, member, is_cause || CAUSES.contains(&member), levels - 1);
                    }
                }
            }
            Value::Array(elements) => {
                for element in elements {
                    self.look_at(element, name, is_cause, levels - 1);
                }
            }
            Value::String(text) => self.note_text(text, name, is_cause, levels - 1),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Notes the names that an object gives to its error.
    fn note_members(&mut self, object: &Value, name: &str, is_cause: bool) {
        // In a `response` object that encloses the error, members with these names mean something else.
        if name == "response" {
            return;
        }
        let text = |value: &Value| match value {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        let code = [&object["code"], &object["details"]["error_code"], &object["status_code"]];
        self.codes.extend(code.into_iter().find_map(text).map(|code| (is_cause, code)));
        // If an event encloses the error, `type` is the type of the event.
        let kind = [&object["type"], &object["error_type"]].into_iter().find_map(text);
        let is_of_event = object["error"].is_object() || object["response"].is_object();
        // In a validation detail, `type` names the failed check.
        let is_of_check = object["loc"].is_array();
        self.kinds.extend(kind.filter(|_| !is_of_event && !is_of_check).map(|kind| (is_cause, kind)));
        self.params.extend(text(&object["param"]));
        self.sizes = self.sizes.or_else(|| ContextSizes::of_members(object));
    }

    fn note_text(&mut self, text: &str, name: &str, is_cause: bool, levels: usize) {
        if text.trim_start().starts_with(['{', '['])
            && let Ok(inner) = serde_json::from_str::<Value>(text)
        {
            return self.look_at(&inner, name, true, levels);
        }
        let is_named_as_message = match name {
            "message" | "msg" | "faultstring" | "status_msg" | "raw" | "" => 0,
            "error" | "errors" | "detail" | "details" => 1,
            _ => 2,
        };
        if !text.is_empty() {
            self.sentences.push(Sentence { is_named_as_message, is_cause, text: text.to_owned() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_is_found_wherever_a_server_puts_it() {
        for (body, message, code) in [
            // Google
            (r#"[{"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT"}}]"#, "m", "400"),
            // OpenRouter
            (
                r#"{"error":{"code":400,"message":"Provider returned error","metadata":{"provider_name":"p","raw":"{\"error\":{\"message\":\"m\",\"code\":\"context_length_exceeded\"}}"}}}"#,
                "m",
                "context_length_exceeded",
            ),
            (
                r#"{"error":{"code":502,"message":"Provider returned error","metadata":{"raw":"m"}}}"#,
                "m",
                "502",
            ),
            // Mistral
            (
                r#"{"object":"error","message":{"detail":[{"type":"t","loc":["body"],"msg":"m"}]},"code":null}"#,
                "m",
                "",
            ),
            (r#"{"detail":[{"type":"t","loc":["body","messages"],"msg":"m"}]}"#, "m", ""),
            // DashScope, framed as a stream
            (
                "id:1\nevent:error\n:HTTP_STATUS/400\ndata:{\"error\":{\"code\":\"c\",\"message\":\"m\"}}\n\n",
                "m",
                "c",
            ),
            // Cloudflare
            (
                r#"{"result":null,"success":false,"errors":[{"code":7003,"message":"m"}],"messages":[]}"#,
                "m",
                "7003",
            ),
            // xAI
            (r#"{"code":"c","error":"m"}"#, "m", "c"),
            // KoboldCpp
            (r#"{"detail":{"msg":"m","type":"service_unavailable"}}"#, "m", ""),
            // Fireworks
            (r#"{"fault":{"faultstring":"m","detail":{"errorcode":"x"}}}"#, "m", ""),
            // NVIDIA
            (r#"{"status":404,"title":"Not Found","detail":"m"}"#, "m", ""),
            // MiniMax
            (r#"{"base_resp":{"status_code":1008,"status_msg":"m"},"choices":null}"#, "m", "1008"),
            // Spring, in front of some servers
            (r#"{"status":400,"error":"Bad Request","message":"m"}"#, "m", ""),
            // Cohere
            (r#"{"id":"x","message":"m"}"#, "m", ""),
            (r#""m""#, "m", ""),
        ] {
            let read = UpstreamError::read(body.as_bytes());
            assert_eq!((&*read.message, &*read.code), (message, code), "{body}");
        }
    }

    #[test]
    fn an_error_that_is_nested_without_end_is_read_up_to_a_bound() {
        let deep = format!("{}\"m\"{}", r#"{"error":"#.repeat(100), "}".repeat(100));
        assert!(UpstreamError::read(deep.as_bytes()).message.is_empty());
        let wide = format!("[{}]", vec!["{}"; 10_000].join(","));
        assert!(UpstreamError::read(wide.as_bytes()) == UpstreamError::default());
    }
}
