//! Requests in the Responses and Messages APIs: the scripts in them, the lengths of their prompts, and their limits.

use serde_json::Value;

use crate::upstream::{conversation::script_of, record::Api, script::Script};

/// A request in one of the two APIs.
pub(crate) struct Prompt {
    /// API of the request.
    pub api: Api,
    /// Body of the request. It is an object.
    pub body: Value,
}

impl Prompt {
    /// Returns the names of the members that form the prompt, in the order in which they are cached.
    const fn parts(&self) -> [&'static str; 3] {
        match self.api {
            Api::Messages => ["tools", "system", "messages"],
            Api::Responses | Api::Chat => ["tools", "instructions", "input"],
        }
    }

    /// Returns the script in the last user message that contains one, for the present round of tool calls.
    pub(crate) fn script(&self) -> Option<Script> {
        match &self.body["input"] {
            Value::String(text) if self.api == Api::Responses => Script::in_message(text),
            _ => script_of(self.items(), has_result),
        }
    }

    /// Returns the number of tokens in the prompt. Four bytes are a token, and cache breakpoints do not count.
    pub(crate) fn tokens(&self, script: &Script) -> u64 {
        script.prompt_tokens.unwrap_or_else(|| self.text().len() as u64 / 4)
    }

    /// Returns the text of the whole prompt, in the order in which it is cached.
    pub(crate) fn text(&self) -> String {
        self.parts().map(|part| written(&self.body[part])).concat()
    }

    pub(crate) fn limit(&self) -> Option<u64> {
        match self.api {
            Api::Messages => self.body["max_tokens"].as_u64(),
            Api::Responses | Api::Chat => self.body["max_output_tokens"].as_u64(),
        }
    }

    /// Returns whether the client asks for a stream.
    pub(crate) fn streams(&self) -> bool {
        self.body["stream"] == true
    }

    /// Returns the upstream's own name for the model.
    pub(crate) fn model(&self) -> &str {
        self.body["model"].as_str().unwrap_or_default()
    }

    /// Returns the messages or items of the conversation. There are none if the conversation is a single string.
    pub(crate) fn items(&self) -> &[Value] {
        let member = if self.api == Api::Messages { "messages" } else { "input" };
        self.body[member].as_array().map_or(&[], Vec::as_slice)
    }
}

/// Returns whether a message or an item contains the result of a tool.
fn has_result(item: &Value) -> bool {
    let outputs = ["function_call_output", "custom_tool_call_output"];
    let blocks = item["content"].as_array().into_iter().flatten();
    item["type"].as_str().is_some_and(|kind| outputs.contains(&kind))
        || blocks.into_iter().any(|block| block["type"] == "tool_result")
}

/// Returns a part of the prompt as the text that the upstream reads. It is empty if the request does not have this
/// part.
pub(crate) fn written(part: &Value) -> String {
    if part.is_null() { String::new() } else { without_marks(part).to_string() }
}

/// Returns the value without `cache_control`. A member of that name stays only within inputs and definitions of tools.
fn without_marks(value: &Value) -> Value {
    match value {
        Value::Array(values) => values.iter().map(without_marks).collect(),
        Value::Object(members) => {
            let kept = members.iter().filter(|(name, _)| *name != "cache_control");
            let one = |(name, value): (&String, &Value)| {
                let opaque = matches!(name.as_str(), "input" | "input_schema" | "parameters");
                (name.clone(), if opaque { value.clone() } else { without_marks(value) })
            };
            Value::Object(kept.map(one).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}
