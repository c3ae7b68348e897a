//! What was said so far, in the form that chat templates read.

use minijinja::Value;
use serde::{Deserialize, Deserializer, Serialize};

use super::super::error::ApiError;

/// One message. What is absent stays absent, as templates ask whether it is there.
#[derive(Deserialize, Serialize)]
pub(super) struct Message {
    role: Role,
    content: Option<Content>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Vec<Call>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    System,
    /// The newer word for system, which few templates know.
    #[serde(rename(serialize = "system"))]
    Developer,
    User,
    Assistant,
    Tool,
}

/// Parts are read as the one text that they make.
#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    r#type: String,
    text: Option<String>,
}

#[derive(Deserialize, Serialize)]
struct Call {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    r#type: Option<String>,
    function: Function,
}

#[derive(Deserialize, Serialize)]
struct Function {
    name: String,
    #[serde(deserialize_with = "arguments")]
    arguments: Value,
}

/// Refuses what this server cannot read.
pub(super) fn check(messages: &[Message]) -> Result<(), ApiError> {
    if messages.is_empty() {
        return Err(ApiError::invalid("messages", "There must be at least one message."));
    }
    for (index, message) in messages.iter().enumerate() {
        let Some(Content::Parts(parts)) = &message.content else { continue };
        for (place, part) in parts.iter().enumerate() {
            check_part(part).map_err(|error| error.about(format!("messages[{index}].content[{place}]")))?;
        }
    }
    Ok(())
}

fn check_part(part: &Part) -> Result<(), ApiError> {
    match part.r#type.as_str() {
        "text" if part.text.is_some() => Ok(()),
        "text" => Err(ApiError::invalid("text", "A text part needs its text.")),
        "image_url" => {
            let message = "This model sees no images. Send text, or connect a model that sees them.";
            Err(ApiError::unsupported("image_url", message))
        }
        other => Err(ApiError::unsupported("type", format!("Parts of the type {other} are not read."))),
    }
}

impl Serialize for Content {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Parts(parts) => {
                let texts = parts.iter().filter_map(|part| part.text.as_deref());
                serializer.serialize_str(&texts.collect::<String>())
            }
        }
    }
}

/// The arguments of a call, which the API carries as a string of JSON, as the object that they are: templates spell it
/// the way that their model learnt to. What is no object stays a string.
fn arguments<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    let given = Value::deserialize(deserializer)?;
    let object = given.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    Ok(object.filter(|value| value.kind() == minijinja::value::ValueKind::Map).unwrap_or(given))
}
