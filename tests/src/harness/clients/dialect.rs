//! Model calls in dialects other than chat. Tests write them as chat requests, which are translated. Streams are
//! translated back to chat.

use serde_json::{Value, json};

use super::events::Event;

/// A dialect of model calls that the public API offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `POST /v1/chat/completions`
    Chat,
    /// `POST /v1/responses`
    Responses,
    /// `POST /v1/messages`
    Messages,
}

impl Dialect {
    pub const ALL: [Self; 3] = [Self::Chat, Self::Responses, Self::Messages];

    /// Returns the path for model calls in this dialect.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
        }
    }

    /// Returns what this dialect calls an error in a stream. `code` is the code of the error in chat.
    pub fn error(self, code: &'static str) -> &'static str {
        match (self, code) {
            (Self::Chat | Self::Responses, code) => code,
            (Self::Messages, "invalid_api_key") => "authentication_error",
            (Self::Messages, "overloaded") => "overloaded_error",
            (Self::Messages, _) => "api_error",
        }
    }

    /// Translates the body of a chat request to this dialect.
    pub(crate) fn body(self, chat: &Value) -> Value {
        let mut body = chat.clone();
        let members = body.as_object_mut().unwrap();
        members.remove("stream_options");
        match self {
            Self::Chat => return chat.clone(),
            Self::Responses => {
                let messages = members.remove("messages").unwrap_or_default();
                members.insert("input".into(), messages);
                if let Some(limit) = members.remove("max_tokens") {
                    members.insert("max_output_tokens".into(), limit);
                }
            }
            Self::Messages => {
                members.entry("max_tokens").or_insert(json!(131_072));
                members.entry("thinking").or_insert(json!({"type": "adaptive", "display": "summarized"}));
            }
        }
        body
    }

    /// Converts an event of this dialect to the equivalent events of the chat dialect.
    pub(crate) fn chat_events(self, event: Event) -> Vec<Event> {
        let Event::Data(data) = event else { return vec![event] };
        match self {
            Self::Chat => vec![Event::Data(data)],
            Self::Responses => of_responses(&data),
            Self::Messages => of_messages(&data),
        }
    }
}

fn of_responses(data: &Value) -> Vec<Event> {
    let name = data["type"].as_str().unwrap();
    let delta = |member: &str, value: Value| vec![chunk(&json!({ member: value }), &Value::Null)];
    let usage = &data["response"]["usage"];
    match name {
        "response.output_text.delta" => delta("content", data["delta"].clone()),
        "response.reasoning_text.delta" => delta("reasoning_content", data["delta"].clone()),
        "response.function_call_arguments.delta" => delta("tool_calls", json!([{}])),
        "response.completed" => end("stop", usage, &usage["input_tokens"]),
        "response.incomplete" => end("length", usage, &usage["input_tokens"]),
        "response.failed" => vec![Event::Data(json!({"error": data["response"]["error"]}))],
        _ => Vec::new(),
    }
}

fn of_messages(data: &Value) -> Vec<Event> {
    let delta = |member: &str, value: Value| vec![chunk(&json!({ member: value }), &Value::Null)];
    let piece = &data["delta"];
    match (data["type"].as_str().unwrap(), piece["type"].as_str().unwrap_or_default()) {
        ("content_block_delta", "text_delta") => delta("content", piece["text"].clone()),
        ("content_block_delta", "thinking_delta") => delta("reasoning_content", piece["thinking"].clone()),
        ("content_block_delta", "input_json_delta") => delta("tool_calls", json!([{}])),
        ("message_delta", _) => {
            let usage = &data["usage"];
            let parts = ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"];
            let prompt: u64 = parts.iter().map(|name| usage[name].as_u64().unwrap()).sum();
            let finish = if piece["stop_reason"] == "max_tokens" { "length" } else { "stop" };
            let mut events = end(finish, usage, &json!(prompt));
            events.truncate(1);
            events
        }
        ("message_stop", _) => vec![Event::Done],
        ("ping", _) => vec![Event::Comment("ping".into())],
        ("error", _) => {
            let error = &data["error"];
            vec![Event::Data(json!({"error": {"message": error["message"], "code": error["type"]}}))]
        }
        _ => Vec::new(),
    }
}

fn chunk(delta: &Value, finish: &Value) -> Event {
    Event::Data(json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}))
}

/// Returns the last chunk, which contains the usage, and the end of the stream.
fn end(finish: &str, usage: &Value, prompt: &Value) -> Vec<Event> {
    let mut told = json!({"prompt_tokens": prompt, "completion_tokens": usage["output_tokens"]});
    if let Some(cost) = usage.get("cost") {
        told["cost"] = cost.clone();
    }
    let choice = json!({"index": 0, "delta": {}, "finish_reason": finish});
    vec![Event::Data(json!({"choices": [choice], "usage": told})), Event::Done]
}
