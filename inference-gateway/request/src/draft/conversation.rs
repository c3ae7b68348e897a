//! A conversation as upstreams read it, for dialects whose messages differ from chat's.

use raw_json::Value;
use serde::de::IgnoredAny;
use shared::error::{ApiError, Code};
use token_bounds::{MAX_DEPTH, TooDeep};

use super::body::Draft;

/// Text for a tool's answer that is only an image. The image follows in a message of the user, since templates know
/// images only there.
const IMAGE_FOLLOWS: &str = r#""(The image follows.)""#;
/// Text before a tool's answer that is an error.
const FAILED: &str = r#""Error:""#;

pub(crate) struct Conversation<'d> {
    pub(crate) draft: &'d mut Draft,
    before: &'static str,
    start: usize,
    /// End of the first message of a user.
    turn: Option<usize>,
}

/// Texts of system messages, as JSON strings. They are merged into the first, since many templates accept only one.
#[derive(Default)]
pub(crate) struct SystemTexts<'a>(Vec<&'a str>);

/// An earlier answer of the model, collected from its parts.
#[derive(Default)]
pub(crate) struct EarlierAnswer<'a> {
    reasoning: Vec<&'a str>,
    texts: Vec<&'a str>,
    calls: Vec<PastCall<'a>>,
}

struct PastCall<'a> {
    /// Id and name as JSON strings.
    id: &'a str,
    name: String,
    arguments: Arguments<'a>,
}

pub(crate) enum Arguments<'a> {
    /// A JSON string that spells an object.
    Spelled(&'a str),
    Object(&'a str),
    /// The text for a custom tool, a JSON string.
    Input(&'a str),
}

/// An answer of a tool.
pub(crate) struct ToolAnswer<'a> {
    /// Id of the call, as a JSON string.
    pub(crate) id: &'a str,
    pub(crate) texts: Vec<&'a str>,
    /// Images belong to the answer, and follow in a message of their own.
    pub(crate) has_images: bool,
    pub(crate) is_error: bool,
}

impl<'a> SystemTexts<'a> {
    /// Adds a text, a JSON string.
    pub(crate) fn add(&mut self, token: &'a str) {
        push_filled(&mut self.0, token);
    }
}

/// Adds a JSON string that is not empty.
fn push_filled<'a>(texts: &mut Vec<&'a str>, token: &'a str) {
    if token != r#""""# {
        texts.push(token);
    }
}

impl<'a> EarlierAnswer<'a> {
    /// Adds reasoning, a JSON string.
    pub(crate) fn reasoning(&mut self, token: &'a str) {
        push_filled(&mut self.reasoning, token);
    }

    /// Adds a text, a JSON string.
    pub(crate) fn text(&mut self, token: &'a str) {
        push_filled(&mut self.texts, token);
    }

    /// Adds a call; id and name are JSON strings.
    pub(crate) fn call(&mut self, id: &'a str, name: String, arguments: Arguments<'a>) {
        self.calls.push(PastCall { id, name, arguments });
    }
}

impl<'d> Conversation<'d> {
    /// Begins the messages, with a system message if it has any text.
    pub(crate) fn begin(draft: &'d mut Draft, system: &SystemTexts<'_>) -> Self {
        draft.name("messages");
        let start = draft.len();
        let mut conversation = Self { draft, before: "[", start, turn: None };
        if !system.0.is_empty() {
            let draft = conversation.message("system");
            draft.joined("content", &system.0);
            for text in &system.0 {
                draft.shown.kept(text);
            }
            draft.push("}");
        }
        conversation
    }

    fn message(&mut self, role: &str) -> &mut Draft {
        self.draft.push(self.before);
        self.before = ",";
        self.draft.shown.message();
        self.draft.push("{\"role\":\"");
        self.draft.push(role);
        self.draft.push("\"");
        self.draft
    }

    /// Writes a message of the user, whose content `content` writes.
    pub(crate) fn user(
        &mut self,
        content: impl FnOnce(&mut Draft) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        let draft = self.message("user");
        draft.name("content");
        content(draft)?;
        draft.push("}");
        self.turn.get_or_insert(self.draft.len());
        Ok(())
    }

    /// Writes a message of the user that is one text, a JSON string.
    pub(crate) fn user_text(&mut self, token: &str) -> Result<(), ApiError> {
        self.user(|draft| {
            draft.text_content(token);
            Ok(())
        })
    }

    /// Writes an earlier answer of the model if it has texts or calls.
    pub(crate) fn assistant(&mut self, answer: &mut EarlierAnswer<'_>) {
        let EarlierAnswer { reasoning, texts, calls } = std::mem::take(answer);
        if texts.is_empty() && calls.is_empty() {
            return;
        }
        let draft = self.message("assistant");
        match &texts[..] {
            [] => draft.member("content", "null"),
            texts => draft.joined("content", texts),
        }
        if !reasoning.is_empty() {
            draft.optional(|draft| draft.joined("reasoning_content", &reasoning));
        }
        for (place, PastCall { id, name, arguments }) in calls.iter().enumerate() {
            draft.push(if place == 0 { ",\"tool_calls\":[" } else { "," });
            draft.earlier_calls.add(id);
            match arguments {
                Arguments::Spelled(token) => draft.call(id, name, token),
                Arguments::Object(json) => draft.call(id, name, &spelled(json)),
                Arguments::Input(token) => {
                    let json = format!("{{\"input\":{token}}}");
                    draft.shown.maybe_json(&json);
                    draft.call(id, name, &spelled(&json));
                }
            }
        }
        draft.push(if calls.is_empty() { "}" } else { "]}" });
    }

    /// Writes the answer of a tool.
    pub(crate) fn tool(&mut self, answer: ToolAnswer<'_>) {
        let ToolAnswer { id, mut texts, has_images, is_error } = answer;
        texts.retain(|text| *text != r#""""#);
        if texts.is_empty() && has_images {
            texts.push(IMAGE_FOLLOWS);
        }
        if is_error {
            texts.insert(0, FAILED);
        }
        if texts.is_empty() {
            texts.push(r#""""#);
        }
        let draft = self.message("tool");
        draft.shown_member("tool_call_id", id);
        draft.joined("content", &texts);
        for text in texts {
            draft.shown.kept(text);
        }
        draft.push("}");
    }

    /// Ends the messages, of which there must be one. `list` is their place.
    pub(crate) fn end(self, list: &Value<'_, '_>) -> Result<(), ApiError> {
        if self.before == "[" {
            return Err(list.error(Code::InvalidValue, "must have at least one message for the model"));
        }
        self.draft.push("]");
        self.draft.open_at(self.start, self.turn.unwrap_or(self.draft.len()));
        Ok(())
    }
}

fn spelled(json: &str) -> String {
    serde_json::Value::from(json).to_string()
}

impl Draft {
    /// Writes a part of text, a JSON string of the user.
    pub(crate) fn text_part(&mut self, token: &str) {
        self.push("{\"type\":\"text\"");
        self.shown_member("text", token);
        self.shown.kept(token);
        self.push("}");
    }

    /// Writes the whole content of a user's message, a JSON string.
    pub(crate) fn text_content(&mut self, token: &str) {
        self.shown.text(token);
        self.shown.kept(token);
        self.push(token);
    }

    /// Counts a text that is shown as the arguments of a call, and notes the first one that is no JSON.
    pub(crate) fn show_spelled_arguments(&mut self, arguments: &Value<'_, '_>) -> Result<(), ApiError> {
        let text = arguments.string()?;
        self.shown.maybe_json(&text);
        if self.places.arguments.is_none() && serde_json::from_str::<IgnoredAny>(&text).is_err() {
            self.places.arguments = Some(arguments.place());
        }
        Ok(())
    }

    /// Counts an object that is shown as the arguments of a call.
    pub(crate) fn show_arguments(&mut self, object: &Value<'_, '_>) -> Result<(), ApiError> {
        self.shown.json(object.raw()).map_err(|TooDeep| {
            object.error(Code::InvalidValue, &format!("is nested deeper than {MAX_DEPTH} levels"))
        })
    }
}
