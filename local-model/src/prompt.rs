//! Encodes messages and tools as a prompt in the same template as in training (`weights/chat_template.jinja`).

use local_model_transformer::CONTEXT_TOKENS;
use serde::Deserialize;
use serde_json::Value;

use crate::tokenizer::Tokenizer;

/// Maximum size of a prompt that can fit. Longer prompts are not worth encoding, since no token has more than 32 bytes.
const MAX_PROMPT_BYTES: usize = 32 * CONTEXT_TOKENS;

#[derive(Deserialize)]
pub(crate) struct Message {
    role: String,
    /// Text, or parts. Images and files among the parts have no text.
    #[serde(default)]
    content: Value,
    tool_calls: Option<Vec<Tool>>,
}

/// A tool that the model may call, or a call in an earlier answer.
#[derive(Deserialize)]
pub(crate) struct Tool {
    pub(crate) function: ToolFunction,
}

#[derive(Deserialize)]
pub(crate) struct ToolFunction {
    pub(crate) name: String,
    description: Option<String>,
    /// JSON schema for a tool's arguments.
    pub(crate) parameters: Option<Value>,
    /// Arguments of a call, as the model spelled them.
    arguments: Option<String>,
}

pub(crate) struct Prompt {
    pub(crate) tokens: Vec<u32>,
    /// Whether messages and tools were left out.
    pub(crate) is_shortened: bool,
}

/// Encodes a prompt up to the beginning of the answer. If the conversation is longer than the context, as agents'
/// conversations are, the model reads only the last question. `None` if that is also too long.
pub(crate) fn encode(tokenizer: &Tokenizer, messages: &[Message], tools: &[Tool]) -> Option<Prompt> {
    let is_system = |message: &Message| ["system", "developer"].contains(&message.role.as_str());
    let (system, rest) = match messages {
        [first, rest @ ..] if is_system(first) => (first.texts().concat(), rest),
        messages => (String::new(), messages),
    };
    let system = Some(with_tools(system, tools)).filter(|system| !system.is_empty());
    let system = system.map(|system| turn(tokenizer, "system", &system, &[]));
    let written = |message: &Message| {
        let role = if is_system(message) { "system" } else { &message.role };
        let calls = message.tool_calls.as_deref().unwrap_or_default();
        turn(tokenizer, role, &message.texts().concat(), calls)
    };
    let turns = system.into_iter().chain(rest.iter().map(written)).collect();
    if let Some(tokens) = finish(tokenizer, turns) {
        return Some(Prompt { tokens, is_shortened: false });
    }
    // Agents send messages with several parts, and the last part is the question.
    let asked = messages.iter().rfind(|message| message.role == "user")?;
    let question = turn(tokenizer, "user", asked.texts().last()?, &[]);
    finish(tokenizer, question).map(|tokens| Prompt { tokens, is_shortened: true })
}

/// Writes a turn. Nothing that a client wrote in it can be mistaken for a special token.
fn turn(tokenizer: &Tokenizer, role: &str, text: &str, calls: &[Tool]) -> String {
    let call = |Tool { function }: &Tool| {
        let name = Value::from(function.name.as_str());
        let sent = function.arguments.as_deref().unwrap_or("{}");
        // Arguments that are not JSON are written as sent.
        let arguments = serde_json::from_str(sent).map_or_else(|_| sent.to_owned(), |json| spaced(&json));
        let call = tokenizer.plain(&format!("{{\"name\": {name}, \"arguments\": {arguments}}}"));
        format!("<tool_call>\n{call}\n</tool_call>")
    };
    let calls: Vec<String> = calls.iter().map(call).collect();
    let (role, text, calls) = (tokenizer.plain(role), tokenizer.plain(text), calls.join("\n"));
    format!("<|im_start|>{role}\n{text}{calls}<|im_end|>\n")
}

/// Begins the answer and encodes everything. `None` if there is no room for any token of the answer.
fn finish(tokenizer: &Tokenizer, mut turns: String) -> Option<Vec<u32>> {
    turns.push_str("<|im_start|>assistant\n");
    let tokens = (turns.len() <= MAX_PROMPT_BYTES).then(|| tokenizer.encode(&turns))?;
    (tokens.len() < CONTEXT_TOKENS).then_some(tokens)
}

impl Message {
    fn texts(&self) -> Vec<&str> {
        match &self.content {
            Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
            content => content.as_str().into_iter().collect(),
        }
    }

    /// Returns whether the model can read all of the message.
    pub(crate) fn is_text(&self) -> bool {
        self.content.as_array().is_none_or(|parts| parts.len() == self.texts().len())
    }
}

/// Adds a line for each tool to the system message: name, description, and the type or values of each parameter.
fn with_tools(mut system: String, tools: &[Tool]) -> String {
    if !tools.is_empty() {
        system.push_str(if system.is_empty() { "# Tools" } else { "\n\n# Tools" });
    }
    for ToolFunction { name, description, parameters, .. } in tools.iter().map(|tool| &tool.function) {
        let shown = |(name, schema): (&String, &Value)| {
            let kind = schema.get("type").filter(|kind| kind.is_string());
            let kind = schema.get("enum").or(kind).map_or_else(|| "\"any\"".to_owned(), spaced);
            format!("{}: {kind}", Value::from(name.as_str()))
        };
        let properties = parameters.as_ref().and_then(|schema| schema["properties"].as_object());
        let properties: Vec<String> = properties.into_iter().flatten().map(shown).collect();
        let description = description.as_deref().filter(|text| !text.is_empty()).unwrap_or(name);
        let (name, description) = (Value::from(name.as_str()), Value::from(description));
        let head = format!("\n{{\"name\": {name}, \"description\": {description}, \"parameters\": {{");
        system.extend([head.as_str(), &properties.join(", "), "}}"]);
    }
    system
}

/// Writes JSON with a space after every comma and colon, as Python's `json.dumps` does.
pub(crate) fn spaced(value: &Value) -> String {
    let (mut spaced, mut in_string, mut escaped) = (String::new(), false, false);
    for character in value.to_string().chars() {
        spaced.push(character);
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => in_string = !in_string,
            ',' | ':' if !in_string => spaced.push(' '),
            _ => {}
        }
    }
    spaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_token_is_longer_than_the_bound_of_prompts_takes_it_to_be() {
        let tokenizer = Tokenizer::shipped().unwrap();
        assert!(tokenizer.bytes.iter().all(|bytes| bytes.len() * CONTEXT_TOKENS <= MAX_PROMPT_BYTES));
    }

    #[test]
    fn json_is_spelled_as_python_spells_it() {
        let value: Value = serde_json::from_str(r#"{"b":[1,2.5,null,true],"a":"<é>,\":"}"#).unwrap();
        assert_eq!(spaced(&value), r#"{"b": [1, 2.5, null, true], "a": "<é>,\":"}"#);
    }
}
