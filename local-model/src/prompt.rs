//! Messages and tools as a prompt, written as in training (the same template as `weights/chat_template.jinja`).

use serde::Deserialize;
use serde_json::Value;

use crate::tokenizer::Tokenizer;

/// Message of a chat request.
#[derive(Clone, Deserialize)]
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

/// Content of a message, as one text or as parts of it.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

/// Part of a message's content. The model reads texts alone.
#[derive(Clone, Deserialize)]
pub(crate) struct ContentPart {
    pub(crate) r#type: String,
    pub(crate) text: Option<String>,
}

/// Tool call of an earlier answer.
#[derive(Clone, Deserialize)]
struct ToolCall {
    function: CalledFunction,
}

#[derive(Clone, Deserialize)]
struct CalledFunction {
    name: String,
    arguments: Value,
}

/// Tool that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tool {
    /// Place among the request's tools.
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    /// JSON schema of the arguments.
    pub(crate) parameters: Value,
}

/// Encodes a prompt up to where the answer begins. None for one that is certainly longer than `context`, which is not encoded.
pub(crate) fn encode(
    tokenizer: &Tokenizer,
    context: usize,
    messages: &[Message],
    tools: &[Tool],
) -> Option<Vec<u32>> {
    let mut prompt = Prompt { tokenizer, context, tokens: Vec::new(), bytes: 0 };
    let (system, messages) = match messages {
        [first, rest @ ..] if first.role == MessageRole::System => (first.text(), rest),
        messages => (String::new(), messages),
    };
    let system = with_tools(system, tools);
    if !system.is_empty() {
        prompt.begin_turn(MessageRole::System)?;
        prompt.push_text(&system)?;
        prompt.end_turn()?;
    }
    for message in messages {
        prompt.push_message(message)?;
    }
    prompt.begin_turn(MessageRole::Assistant)?;
    Some(prompt.tokens)
}

/// Prompt in the making.
struct Prompt<'a> {
    tokenizer: &'a Tokenizer,
    context: usize,
    tokens: Vec<u32>,
    /// Bytes of the texts so far.
    bytes: usize,
}

impl Prompt<'_> {
    fn push_message(&mut self, message: &Message) -> Option<()> {
        self.begin_turn(message.role)?;
        let text = message.text();
        self.count(text.len())?;
        // An answer may hold the tool calls that the model wrote.
        let answered = message.role == MessageRole::Assistant;
        let tokens =
            if answered { self.tokenizer.encode_answer(&text) } else { self.tokenizer.encode(&text) };
        self.tokens.extend(tokens);
        for (place, ToolCall { function }) in message.tool_calls.iter().flatten().enumerate() {
            if place > 0 {
                self.push_text("\n")?;
            }
            let name = spaced(&function.name.as_str().into());
            let call = format!("\n{{\"name\": {name}, \"arguments\": {}}}\n", arguments(&function.arguments));
            self.tokens.push(self.tokenizer.call_begin);
            self.push_text(&call)?;
            self.tokens.push(self.tokenizer.call_end);
        }
        self.end_turn()
    }

    fn begin_turn(&mut self, role: MessageRole) -> Option<()> {
        self.tokens.push(self.tokenizer.turn_begin);
        self.push_text(match role {
            MessageRole::System => "system\n",
            MessageRole::User => "user\n",
            MessageRole::Assistant => "assistant\n",
            MessageRole::Tool => "tool\n",
        })
    }

    fn end_turn(&mut self) -> Option<()> {
        self.tokens.push(self.tokenizer.turn_end);
        self.push_text("\n")
    }

    fn push_text(&mut self, text: &str) -> Option<()> {
        self.count(text.len())?;
        self.tokens.extend(self.tokenizer.encode(text));
        Some(())
    }

    /// Counts bytes of text. None once they have more tokens than the context.
    fn count(&mut self, bytes: usize) -> Option<()> {
        self.bytes += bytes;
        (self.tokenizer.min_tokens(self.bytes) < self.context).then_some(())
    }
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

/// System message with a line for each tool: name, description, and the type or values of each parameter.
fn with_tools(mut system: String, tools: &[Tool]) -> String {
    if !tools.is_empty() {
        system.push_str(if system.is_empty() { "# Tools" } else { "\n\n# Tools" });
    }
    for Tool { name, description, parameters, .. } in tools {
        let shown = |(name, schema): (&String, &Value)| {
            let kind = schema.get("type").filter(|kind| kind.is_string());
            let kind = schema.get("enum").or(kind).map_or_else(|| "\"any\"".to_owned(), spaced);
            format!("{}: {kind}", spaced(&name.as_str().into()))
        };
        let properties = parameters["properties"].as_object().into_iter().flatten();
        let properties: Vec<String> = properties.map(shown).collect();
        let (name, description) = (name.as_str(), description.as_ref().unwrap_or(name).as_str());
        let (name, description) = (spaced(&name.into()), spaced(&description.into()));
        let head = format!("\n{{\"name\": {name}, \"description\": {description}, \"parameters\": {{");
        system.extend([head.as_str(), &properties.join(", "), "}}"]);
    }
    system
}

/// Arguments of a call, which the API carries as a string of JSON, spelled as in training. Others stay as they are.
fn arguments(given: &Value) -> String {
    let Some(text) = given.as_str() else { return spaced(given) };
    let object = serde_json::from_str(text).ok().filter(Value::is_object);
    object.map_or_else(|| text.to_owned(), |object| spaced(&object))
}

/// JSON with a blank after every comma and colon, as Python's `json.dumps` spells it.
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
    use crate::{model::Model, reference};

    #[test]
    fn prompts_are_those_of_the_training_s_template() {
        let tokenizer = Model::shipped().unwrap().tokenizer;
        for case in reference::cases() {
            let bytes = case.prompt_ids.iter().flat_map(|&token| tokenizer.bytes(token)).copied().collect();
            assert_eq!(String::from_utf8(bytes), Ok(case.prompt));
            assert_eq!(case.prompt_ids.len(), case.prompt_tokens);
        }
    }

    #[test]
    fn json_is_spelled_as_python_spells_it() {
        let value: Value = serde_json::from_str(r#"{"b":[1,2.5,null,true],"a":"<é>,\":"}"#).unwrap();
        assert_eq!(spaced(&value), r#"{"b": [1, 2.5, null, true], "a": "<é>,\":"}"#);
    }
}
