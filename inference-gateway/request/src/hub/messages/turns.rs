//! Writes the messages of a chat as alternating turns of user and assistant.

use std::borrow::Cow;

use raw_json::{Members, Value};
use reply::carried::{CarriedPart, PlacedPart};
use shared::{error::ApiError, json::Kind};

use super::cache::Breakpoints;
use crate::{
    draft::parts_at,
    hub::{
        calls,
        chat::{EMPTY, member},
    },
};

#[derive(Default)]
pub(super) struct Turns {
    open: Option<Author>,
    has_begun: bool,
    /// Whether the open turn has a block.
    has_block: bool,
    /// Closing brace of the system prompt's last block.
    system: Option<usize>,
    prompt: PromptList,
    /// Closing braces of the last blocks in the user's last two turns.
    ends: [Option<usize>; 2],
}

/// How far the system prompt's list of blocks is written.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum PromptList {
    #[default]
    Unwritten,
    Open,
    Written,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Author {
    User,
    Assistant,
}

impl Turns {
    /// Writes a message, with the parts of an earlier answer for the server. Answers of tools share a turn with what
    /// the user says next. System messages that are not at the front become texts of the user.
    pub(super) fn add(
        &mut self,
        message: &Members<'_, '_>,
        carried: &[PlacedPart],
        out: &mut String,
    ) -> Result<(), ApiError> {
        let role = message.require("role")?.string()?;
        match &*role {
            "system" if !self.has_begun && self.prompt == PromptList::Written => Ok(()),
            "system" if !self.has_begun => self.system(message, out),
            "assistant" => {
                self.thoughts(carried, 0, out);
                self.texts(Author::Assistant, &message.require("content")?, out)?;
                self.calls(message, carried, out)
            }
            "tool" => self.tool_result(message, out),
            _ => self.texts(Author::User, &message.require("content")?, out),
        }
    }

    pub(super) fn end(&mut self, breakpoints: &mut Breakpoints, out: &mut String) {
        self.close_system(out);
        self.close(out);
        out.push_str(if self.has_begun { "]" } else { ",\"messages\":[]" });
        if let Some(brace) = self.system {
            breakpoints.after_system(brace);
        }
        breakpoints.after_turns(self.ends);
    }

    /// Writes a message of the system prompt, which this API separates from the messages.
    fn system(&mut self, message: &Members<'_, '_>, out: &mut String) -> Result<(), ApiError> {
        each_part(&message.require("content")?, |part| {
            out.push_str(if self.prompt == PromptList::Open { "," } else { ",\"system\":[" });
            self.prompt = PromptList::Open;
            put_part(part, out);
            self.system = Some(out.len() - 1);
            Ok(())
        })
    }

    /// Ends the list of the system prompt's blocks.
    fn close_system(&mut self, out: &mut String) {
        if self.prompt == PromptList::Open {
            out.push(']');
        }
        self.prompt = PromptList::Written;
    }

    /// Writes the rest of a system prompt after its first block, and ends it.
    pub(super) fn system_first(
        &mut self,
        messages: &Value<'_, '_>,
        out: &mut String,
    ) -> Result<(), ApiError> {
        self.prompt = PromptList::Written;
        let mut leads = true;
        messages.objects(usize::MAX, |message| {
            leads &= message.require("role")?.string()? == "system";
            if !leads {
                return Ok(());
            }
            each_part(&message.require("content")?, |part| {
                out.push(',');
                put_part(part, out);
                self.system = Some(out.len() - 1);
                Ok(())
            })
        })?;
        out.push(']');
        Ok(())
    }

    /// Writes the thoughts that preceded the call at this index in an earlier answer.
    fn thoughts(&mut self, carried: &[PlacedPart], place: u64, out: &mut String) {
        for part in parts_at(carried, place) {
            let (kind, members) = match part {
                CarriedPart::Thought { text, signature } => {
                    ("thinking", vec![("thinking", text), ("signature", signature)])
                }
                CarriedPart::Redacted { data } => ("redacted_thinking", vec![("data", data)]),
                CarriedPart::Encrypted { .. }
                | CarriedPart::Detail(_)
                | CarriedPart::CallSignature { .. }
                | CarriedPart::TextSignature { .. } => continue,
            };
            self.block(Author::Assistant, out, |out| {
                out.push_str("{\"type\":\"");
                out.push_str(kind);
                out.push('"');
                for (name, text) in members {
                    member(name, &serde_json::Value::from(text.as_str()).to_string(), out);
                }
                out.push('}');
            });
        }
    }

    /// Writes texts and images as blocks of a turn.
    fn texts(&mut self, author: Author, content: &Value<'_, '_>, out: &mut String) -> Result<(), ApiError> {
        each_part(content, |part| {
            self.block(author, out, |out| put_part(part, out));
            Ok(())
        })
    }

    fn calls(
        &mut self,
        message: &Members<'_, '_>,
        carried: &[PlacedPart],
        out: &mut String,
    ) -> Result<(), ApiError> {
        let Some(calls) = message.get("tool_calls") else { return Ok(()) };
        let mut place = 0;
        calls.objects(usize::MAX, |call| {
            if place > 0 {
                self.thoughts(carried, place, out);
            }
            place += 1;
            let id = calls::id(call, "id")?;
            let function = call.require("function")?;
            let function = function.object()?;
            let (name, arguments) = (function.require("name")?, function.require("arguments")?);
            let input = calls::object(&arguments.string()?);
            self.block(Author::Assistant, out, |out| {
                out.push_str("{\"type\":\"tool_use\",\"id\":");
                out.push_str(&id);
                member("name", name.raw(), out);
                member("input", &input, out);
                out.push('}');
            });
            Ok(())
        })
    }

    fn tool_result(&mut self, message: &Members<'_, '_>, out: &mut String) -> Result<(), ApiError> {
        let id = calls::id(message, "tool_call_id")?;
        let content = message.require("content")?;
        let mut texts = String::new();
        each_part(&content, |part| {
            texts.push_str(if texts.is_empty() { "" } else { "," });
            put_part(part, &mut texts);
            Ok(())
        })?;
        self.block(Author::User, out, |out| {
            out.push_str("{\"type\":\"tool_result\",\"tool_use_id\":");
            out.push_str(&id);
            if !texts.is_empty() {
                member("content", &format!("[{texts}]"), out);
            }
            out.push('}');
        });
        Ok(())
    }

    /// Writes a block in the turn of this author.
    fn block(&mut self, author: Author, out: &mut String, write: impl FnOnce(&mut String)) {
        if self.open != Some(author) {
            self.close_system(out);
            self.close(out);
            out.push_str(if self.has_begun { "," } else { ",\"messages\":[" });
            self.has_begun = true;
            out.push_str("{\"role\":\"");
            out.push_str(match author {
                Author::User => "user",
                Author::Assistant => "assistant",
            });
            out.push_str("\",\"content\":[");
            self.open = Some(author);
            if author == Author::User {
                self.ends = [self.ends[1], None];
            }
        }
        out.push_str(if self.has_block { "," } else { "" });
        self.has_block = true;
        write(out);
        if author == Author::User {
            self.ends[1] = Some(out.len() - 1);
        }
    }

    fn close(&mut self, out: &mut String) {
        if self.open.take().is_some() {
            out.push_str("]}");
        }
        self.has_block = false;
    }
}

enum TurnPart<'a> {
    /// A text, a JSON string.
    Text(&'a str),
    /// The URL of an image.
    Image(Cow<'a, str>),
}

/// Passes each part of content to `take`, except empty texts, which the API refuses.
fn each_part<'a>(
    content: &Value<'a, '_>,
    mut take: impl FnMut(TurnPart<'a>) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    match content.kind() {
        Kind::String if content.raw() == EMPTY => Ok(()),
        Kind::String => take(TurnPart::Text(content.raw())),
        Kind::Array => content
            .objects_if_any(usize::MAX, |part| match part.get("text") {
                Some(text) if text.raw() == EMPTY => Ok(()),
                Some(text) => take(TurnPart::Text(text.raw())),
                None => take(TurnPart::Image(part.require("image_url")?.object()?.require("url")?.string()?)),
            })
            .map(drop),
        Kind::Null | Kind::Bool | Kind::Number | Kind::Object => Ok(()),
    }
}

fn put_part(part: TurnPart<'_>, out: &mut String) {
    match part {
        TurnPart::Text(token) => put_text(token, out),
        TurnPart::Image(url) => put_image(&url, out),
    }
}

fn put_text(token: &str, out: &mut String) {
    out.push_str("{\"type\":\"text\"");
    member("text", token, out);
    out.push('}');
}

/// Writes an image from its data URL or address.
fn put_image(url: &str, out: &mut String) {
    let data = url
        .split_once(',')
        .filter(|(head, _)| head.get(..5).is_some_and(|s| s.eq_ignore_ascii_case("data:")));
    out.push_str("{\"type\":\"image\",\"source\":{\"type\":");
    if let Some((head, data)) = data {
        let media_type = head[5..].split(';').next().unwrap_or_default().to_ascii_lowercase();
        out.push_str("\"base64\"");
        // The parsers made sure of this: a media type and base64 digits, which need no escapes in JSON.
        member("media_type", &format!("\"{media_type}\""), out);
        member("data", "", out);
        out.push('"');
        out.push_str(data);
        out.push('"');
    } else {
        out.push_str("\"url\"");
        member("url", &serde_json::Value::from(url).to_string(), out);
    }
    out.push_str("}}");
}
