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

/// Part of the context that a shortened prompt leaves to the answer: an eighth.
const ANSWER_SHARE: usize = 8;
/// Part of the room that an answer of a tool gets in a shortened prompt: a quarter.
const TOOL_SHARE: usize = 4;

/// Tokens of a prompt.
pub(crate) struct Prompt {
    pub(crate) tokens: Vec<u32>,
    /// True if messages and tools were left out.
    pub(crate) is_shortened: bool,
}

/// A prompt that does not fit, with its tokens unless they are far too many.
pub(crate) struct TooLong(pub(crate) Option<Vec<u32>>);

/// Encodes a prompt up to the beginning of the answer. Of a conversation that is longer than `context`, such as that of
/// an agent, the model reads the last question and its aftermath alone.
pub(crate) fn encode(
    tokenizer: &Tokenizer,
    context: usize,
    messages: &[Message],
    tools: &[Tool],
) -> Result<Prompt, TooLong> {
    let (system, rest) = match messages {
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
    for message in rest {
        push_message(&mut pieces, tokenizer, message, message.text());
    }
    begin_turn(&mut pieces, tokenizer, MessageRole::Assistant);
    let whole = tokens(tokenizer, context, pieces);
    match whole {
        Some(tokens) if tokens.len() < context => Ok(Prompt { tokens, is_shortened: false }),
        whole if messages.len() > 1 || !tools.is_empty() => {
            let tokens = shortened(tokenizer, context, messages).ok_or(TooLong(whole))?;
            Ok(Prompt { tokens, is_shortened: true })
        }
        whole => Err(TooLong(whole)),
    }
}

/// Encodes the last message of the user, of which the last part is the question, and the latest of the messages behind.
/// `None` if the question is too long.
fn shortened(tokenizer: &Tokenizer, context: usize, messages: &[Message]) -> Option<Vec<u32>> {
    let asked = messages.iter().rposition(|message| message.role == MessageRole::User)?;
    let mut turn = Vec::new();
    push_message(&mut turn, tokenizer, &messages[asked], messages[asked].last_text());
    let mut turns = vec![tokens(tokenizer, context, turn)?];
    let mut end = Vec::new();
    begin_turn(&mut end, tokenizer, MessageRole::Assistant);
    let end = tokens(tokenizer, context, end)?;
    let mut room = (context - context / ANSWER_SHARE).checked_sub(turns[0].len() + end.len())?;
    for message in messages[asked + 1..].iter().rev() {
        let mut text = message.text();
        if message.role == MessageRole::Tool {
            // No token is shorter than a byte.
            text.truncate(text.floor_char_boundary(room / TOOL_SHARE));
        }
        let mut turn = Vec::new();
        push_message(&mut turn, tokenizer, message, text);
        let Some(turn) = tokens(tokenizer, context, turn).filter(|turn| turn.len() <= room) else { break };
        room -= turn.len();
        turns.insert(1, turn);
    }
    turns.push(end);
    Some(turns.concat())
}

/// Encodes pieces. `None` for those that are certainly longer than `context`: their tokens are not worth the work.
fn tokens(tokenizer: &Tokenizer, context: usize, pieces: Vec<Piece>) -> Option<Vec<u32>> {
    let bytes = pieces.iter().map(|piece| match piece {
        Piece::Special(_) => 0,
        Piece::Text(text) | Piece::Answer(text) => text.len(),
    });
    let fits = tokenizer.min_tokens(bytes.sum()) < context;
    let encoded = |piece| match piece {
        Piece::Special(token) => vec![token],
        Piece::Text(text) => tokenizer.encode(&text),
        Piece::Answer(text) => tokenizer.encode_answer(&text),
    };
    fits.then(|| pieces.into_iter().flat_map(encoded).collect())
}

fn push_message(pieces: &mut Vec<Piece>, tokenizer: &Tokenizer, message: &Message, text: String) {
    begin_turn(pieces, tokenizer, message.role);
    let is_answer = message.role == MessageRole::Assistant;
    pieces.push(if is_answer { Piece::Answer(text) } else { Piece::Text(text) });
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

    /// The text, or the last one of several parts.
    fn last_text(&self) -> String {
        match &self.content {
            Some(Content::Parts(parts)) => {
                parts.last().and_then(|part| part.text.clone()).unwrap_or_default()
            }
            Some(Content::Text(_)) | None => self.text(),
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
