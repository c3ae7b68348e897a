//! Messages and tools as a prompt, written as in training (the same template as `weights/chat_template.jinja`).

use serde::Deserialize;
use serde_json::Value;

use crate::tokenizer::Tokenizer;

/// Message of a chat request.
#[derive(Deserialize)]
pub(crate) struct Message {
    role: MessageRole,
    pub(crate) content: Option<Content>,
    tool_calls: Option<Vec<ToolCall>>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum MessageRole {
    #[serde(alias = "developer")]
    System,
    User,
    Assistant,
    Tool,
}

/// Content of a message, as one text or in parts.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

/// Part of a message's content. The model reads texts alone.
#[derive(Deserialize)]
pub(crate) struct ContentPart {
    pub(crate) r#type: String,
    pub(crate) text: Option<String>,
}

/// Tool call of an earlier answer.
#[derive(Deserialize)]
struct ToolCall {
    function: CalledFunction,
}

#[derive(Deserialize)]
struct CalledFunction {
    name: String,
    arguments: Value,
}

/// Tool that the model may call.
#[derive(Clone, Deserialize)]
pub(crate) struct Tool {
    pub(crate) function: Function,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Function {
    pub(crate) name: String,
    description: Option<String>,
    /// JSON schema of the arguments.
    pub(crate) parameters: Option<Value>,
}

/// Piece of a prompt.
enum Piece {
    Special(u32),
    Text(String),
    /// Text of the model, which may hold tool calls as the model wrote them.
    Answer(String),
}

/// Encodes a prompt up to the beginning of the answer. None for a prompt that is certainly longer than `context`.
pub(crate) fn encode(
    tokenizer: &Tokenizer,
    context: usize,
    messages: &[Message],
    tools: &[Tool],
) -> Option<Vec<u32>> {
    let (system, messages) = match messages {
        [first, rest @ ..] if first.role == MessageRole::System => (first.text(), rest),
        messages => (String::new(), messages),
    };
    let mut pieces = Vec::new();
    let system = with_tools(system, tools);
    if !system.is_empty() {
        begin_turn(&mut pieces, tokenizer, MessageRole::System);
        pieces.push(Piece::Text(system));
        end_turn(&mut pieces, tokenizer);
    }
    for message in messages {
        push_message(&mut pieces, tokenizer, message);
    }
    begin_turn(&mut pieces, tokenizer, MessageRole::Assistant);

    let bytes = pieces.iter().map(|piece| match piece {
        Piece::Special(_) => 0,
        Piece::Text(text) | Piece::Answer(text) => text.len(),
    });
    // Far too long a text is not worth the work on its tokens.
    let fits = tokenizer.min_tokens(bytes.sum()) < context;
    let encoded = |piece| match piece {
        Piece::Special(token) => vec![token],
        Piece::Text(text) => tokenizer.encode(&text),
        Piece::Answer(text) => tokenizer.encode_answer(&text),
    };
    fits.then(|| pieces.into_iter().flat_map(encoded).collect())
}

fn push_message(pieces: &mut Vec<Piece>, tokenizer: &Tokenizer, message: &Message) {
    begin_turn(pieces, tokenizer, message.role);
    let is_answer = message.role == MessageRole::Assistant;
    pieces.push(if is_answer { Piece::Answer(message.text()) } else { Piece::Text(message.text()) });
    for (place, ToolCall { function }) in message.tool_calls.iter().flatten().enumerate() {
        if place > 0 {
            pieces.push(Piece::Text("\n".to_owned()));
        }
        let name = spaced(&function.name.as_str().into());
        let call = format!("\n{{\"name\": {name}, \"arguments\": {}}}\n", arguments(&function.arguments));
        let (begin, end) = (Piece::Special(tokenizer.call_begin), Piece::Special(tokenizer.call_end));
        pieces.extend([begin, Piece::Text(call), end]);
    }
    end_turn(pieces, tokenizer);
}

fn begin_turn(pieces: &mut Vec<Piece>, tokenizer: &Tokenizer, role: MessageRole) {
    let role = match role {
        MessageRole::System => "system\n",
        MessageRole::User => "user\n",
        MessageRole::Assistant => "assistant\n",
        MessageRole::Tool => "tool\n",
    };
    pieces.extend([Piece::Special(tokenizer.turn_begin), Piece::Text(role.to_owned())]);
}

fn end_turn(pieces: &mut Vec<Piece>, tokenizer: &Tokenizer) {
    pieces.extend([Piece::Special(tokenizer.turn_end), Piece::Text("\n".to_owned())]);
}

impl Message {
    fn text(&self) -> String {
        match &self.content {
            None => String::new(),
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => parts.iter().filter_map(|part| part.text.as_deref()).collect(),
        }
    }
}

/// Adds a line for each tool to the system message: name, description, and the type or values of each parameter.
fn with_tools(mut system: String, tools: &[Tool]) -> String {
    if !tools.is_empty() {
        system.push_str(if system.is_empty() { "# Tools" } else { "\n\n# Tools" });
    }
    for Function { name, description, parameters } in tools.iter().map(|tool| &tool.function) {
        let shown = |(name, schema): (&String, &Value)| {
            let kind = schema.get("type").filter(|kind| kind.is_string());
            let kind = schema.get("enum").or(kind).map_or_else(|| "\"any\"".to_owned(), spaced);
            format!("{}: {kind}", spaced(&name.as_str().into()))
        };
        let properties = parameters.as_ref().and_then(|schema| schema["properties"].as_object());
        let properties: Vec<String> = properties.into_iter().flatten().map(shown).collect();
        let (name, description) =
            (name.as_str(), description.as_ref().filter(|text| !text.is_empty()).unwrap_or(name).as_str());
        let (name, description) = (spaced(&name.into()), spaced(&description.into()));
        let head = format!("\n{{\"name\": {name}, \"description\": {description}, \"parameters\": {{");
        system.extend([head.as_str(), &properties.join(", "), "}}"]);
    }
    system
}

/// Spells the arguments of a call, a string of JSON, as in training. Any other string stays as sent.
fn arguments(given: &Value) -> String {
    let Some(text) = given.as_str() else { return spaced(given) };
    let object = serde_json::from_str(text).ok().filter(Value::is_object);
    object.map_or_else(|| text.to_owned(), |object| spaced(&object))
}

/// JSON with a blank after every comma and colon, as of Python's `json.dumps`.
fn spaced(value: &Value) -> String {
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
    fn json_is_spelled_as_python_spells_it() {
        let value: Value = serde_json::from_str(r#"{"b":[1,2.5,null,true],"a":"<é>,\":"}"#).unwrap();
        assert_eq!(spaced(&value), r#"{"b": [1, 2.5, null, true], "a": "<é>,\":"}"#);
    }
}
