//! A conversation as upstreams read it, for dialects whose messages differ from those of chat.

use std::borrow::Cow;

use raw_json::Value;
use reply::carried;
use serde::de::IgnoredAny;
use shared::error::{ApiError, Code};
use token_bounds::{MAX_DEPTH, TooDeep};

use super::{
    body::{AnswerEnd, Draft},
    places::MessageList,
};

/// Text that a tool's answer gets if it contains only an image. The image follows in a user message, since templates
/// allow images only in user messages.
const IMAGE_FOLLOWS: &str = r#""(The image follows.)""#;
/// Role of a tool's answer.
const TOOL: &str = "tool";
/// Text that is put before a tool's answer if the answer is an error.
const FAILED: &str = r#""Error:""#;

pub(crate) struct Conversation<'d> {
    pub(crate) draft: &'d mut Draft,
    before: &'static str,
    list: MessageList,
    /// Number of tool calls in the model's last message that have no result yet.
    unanswered: usize,
    /// System message to write after the answers to these calls, as a JSON string, because servers require the answers
    /// right after the calls.
    waiting: Option<String>,
}

/// An earlier answer of the model, collected from its parts.
#[derive(Default)]
pub(crate) struct EarlierAnswer<'a> {
    reasoning: Vec<&'a str>,
    texts: Vec<&'a str>,
    calls: Vec<PastCall<'a>>,
    /// Parts that its server needs back.
    carried: Vec<String>,
}

struct PastCall<'a> {
    /// The call's id, a JSON string, like its name.
    id: &'a str,
    name: String,
    arguments: Arguments<'a>,
}

pub(crate) enum Arguments<'a> {
    /// A JSON string that contains an object.
    Spelled(&'a str),
    Object(&'a str),
    /// The input of a custom tool, a JSON string.
    Input(&'a str),
}

pub(crate) struct ToolAnswer<'a> {
    /// Id of the call, as a JSON string.
    pub(crate) id: &'a str,
    pub(crate) texts: Vec<&'a str>,
    /// Whether the answer has images. They follow in a separate message.
    pub(crate) has_images: bool,
    pub(crate) is_error: bool,
}

/// Adds a JSON string unless it is empty.
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

    /// If this text carries parts for the server, adds them. Returns whether the text looks as if it carried parts.
    pub(crate) fn carry(&mut self, text: &str) -> bool {
        if carried::read(text).is_some_and(|(_, parts)| !parts.is_empty()) {
            self.carried.push(text.to_owned());
        }
        carried::is_carried(text)
    }
}

impl<'d> Conversation<'d> {
    /// Begins the list of messages.
    pub(crate) fn begin(draft: &'d mut Draft) -> Self {
        draft.name("messages");
        let list = MessageList::new(draft.len());
        Self { draft, before: "[", list, unanswered: 0, waiting: None }
    }

    /// Writes a system message with these texts, which are JSON strings, unless all are empty.
    pub(crate) fn system(&mut self, texts: &[&str]) {
        let mut filled = Vec::with_capacity(texts.len());
        for text in texts {
            push_filled(&mut filled, text);
        }
        if filled.is_empty() {
            return;
        }
        if self.unanswered > 0 {
            let waiting = self.waiting.take();
            let all: Vec<&str> = waiting.as_deref().into_iter().chain(filled).collect();
            self.waiting = Some(joined(&all).into_owned());
            return;
        }
        self.write_system(&filled);
    }

    fn write_system(&mut self, filled: &[&str]) {
        let (draft, start) = self.message("system");
        draft.joined("content", filled);
        for text in filled {
            draft.shown.kept(text);
        }
        draft.push("}");
        self.list.system(start..self.draft.len());
    }

    /// Begins a message. Returns the draft, and the position at which the message starts.
    fn message(&mut self, role: &str) -> (&mut Draft, usize) {
        if role != TOOL
            && let Some(text) = self.waiting.take()
        {
            self.write_system(&[&text]);
        }
        self.draft.push(self.before);
        self.before = ",";
        let start = self.draft.len();
        self.draft.shown.message();
        self.draft.push("{\"role\":\"");
        self.draft.push(role);
        self.draft.push("\"");
        (&mut *self.draft, start)
    }

    /// Writes a user message. `content` writes its content.
    pub(crate) fn user(
        &mut self,
        content: impl FnOnce(&mut Draft) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        let (draft, _) = self.message("user");
        draft.name("content");
        content(draft)?;
        draft.push("}");
        self.list.user(self.draft.len());
        self.unanswered = 0;
        Ok(())
    }

    /// Writes a user message of a single text, a JSON string.
    pub(crate) fn user_text(&mut self, token: &str) -> Result<(), ApiError> {
        self.user(|draft| {
            draft.text_content(token);
            Ok(())
        })
    }

    /// Writes an earlier answer of the model if it has texts or calls.
    pub(crate) fn assistant(&mut self, answer: &mut EarlierAnswer<'_>) {
        let EarlierAnswer { reasoning, texts, calls, carried } = std::mem::take(answer);
        if texts.is_empty() && calls.is_empty() {
            return;
        }
        let unanswered = calls.len();
        let (draft, _) = self.message("assistant");
        match &texts[..] {
            [] => draft.member("content", "null"),
            texts => draft.joined("content", texts),
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
        draft.push(if calls.is_empty() { "" } else { "]" });
        let reasoning = (!reasoning.is_empty()).then(|| {
            for text in &reasoning {
                draft.shown.text(text);
            }
            joined(&reasoning)
        });
        draft.answered(&AnswerEnd {
            reasoning: reasoning.as_deref(),
            is_as_sent: false,
            carried: &carried,
            has_calls: !calls.is_empty(),
        });
        draft.push("}");
        self.list.other();
        self.unanswered = unanswered;
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
        let (draft, _) = self.message(TOOL);
        draft.answered_call(id);
        draft.joined("content", &texts);
        for text in texts {
            draft.shown.kept(text);
        }
        draft.push("}");
        self.list.other();
        self.unanswered = self.unanswered.saturating_sub(1);
        if self.unanswered == 0
            && let Some(text) = self.waiting.take()
        {
            self.write_system(&[&text]);
        }
    }

    /// Ends the messages; there must be at least one. If there is none, the error has the location of `list`.
    pub(crate) fn end(mut self, list: &Value<'_, '_>) -> Result<(), ApiError> {
        if let Some(text) = self.waiting.take() {
            self.write_system(&[&text]);
        }
        if self.before == "[" {
            return Err(list.error(Code::InvalidValue, "must have at least one message for the model"));
        }
        self.draft.push("]");
        self.draft.messages(self.list);
        Ok(())
    }
}

/// Joins texts, all JSON strings, with an empty line between them.
fn joined<'a>(texts: &[&'a str]) -> Cow<'a, str> {
    if let [only] = texts {
        return Cow::Borrowed(only);
    }
    let inner: Vec<&str> = texts.iter().map(|text| &text[1..text.len() - 1]).collect();
    Cow::Owned(format!("\"{}\"", inner.join("\\n\\n")))
}

fn spelled(json: &str) -> String {
    serde_json::Value::from(json).to_string()
}

impl Draft {
    /// Writes a text part of a user message, from a JSON string.
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

    /// Adds to the prompt's count a text that the model will see as a call's arguments. Notes the first such text that
    /// is not JSON.
    pub(crate) fn show_spelled_arguments(&mut self, arguments: &Value<'_, '_>) -> Result<(), ApiError> {
        let text = arguments.string()?;
        self.shown.maybe_json(&text);
        if self.places.arguments.is_none() && serde_json::from_str::<IgnoredAny>(&text).is_err() {
            self.places.arguments = Some(arguments.place());
        }
        Ok(())
    }

    /// Counts the characters of an object towards the prompt, since the model will see it as a call's arguments.
    pub(crate) fn show_arguments(&mut self, object: &Value<'_, '_>) -> Result<(), ApiError> {
        self.shown.json(object.raw()).map_err(|TooDeep| {
            object.error(Code::InvalidValue, &format!("is nested deeper than {MAX_DEPTH} levels"))
        })
    }
}
