//! The messages: roles, texts, images, and calls.

use raw_json::{ANY_NUMBER, Members, Value};
use shared::{
    error::{ApiError, Code},
    json::Kind,
};

use crate::draft::{AnswerEnd, Draft, MessageList, image_url, of_details, of_extra};

const EMPTY: &str = r#""""#;

/// Role of a message's author.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChatRole {
    System,
    User,
    Assistant,
    Tool,
}

impl ChatRole {
    fn read(value: &Value<'_, '_>) -> Result<Self, ApiError> {
        match value.one_of(&["system", "developer", "user", "assistant", "tool"])? {
            "user" => Ok(Self::User),
            "assistant" => Ok(Self::Assistant),
            "tool" => Ok(Self::Tool),
            // `developer` is the newer name for the same role, but few chat templates know it.
            _ => Ok(Self::System),
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// Checks the messages, and writes the known members.
pub(super) fn messages(list: &Value<'_, '_>, draft: &mut Draft) -> Result<(), ApiError> {
    draft.name("messages");
    let mut written = MessageList::new(draft.len());
    draft.array(list, ANY_NUMBER, |draft, message| {
        let start = draft.len();
        match self::message(message, draft)? {
            ChatRole::System => written.system(start..draft.len()),
            ChatRole::User => written.user(draft.len()),
            ChatRole::Assistant | ChatRole::Tool => written.other(),
        }
        Ok(())
    })?;
    draft.messages(written);
    Ok(())
}

fn message(message: &Members<'_, '_>, draft: &mut Draft) -> Result<ChatRole, ApiError> {
    let role = ChatRole::read(&message.require("role")?)?;
    draft.shown.message();
    draft.push("{\"role\":\"");
    draft.push(role.as_str());
    draft.push("\"");
    if let Some(name) = message.get("name") {
        draft.shown_member("name", name.string_token()?);
    }
    match role {
        ChatRole::System | ChatRole::User => content(&message.require("content")?, role, draft)?,
        ChatRole::Assistant => assistant(message, draft)?,
        ChatRole::Tool => {
            draft.answered_call(message.require("tool_call_id")?.filled_string_token()?);
            content(&message.require("content")?, role, draft)?;
        }
    }
    draft.push("}");
    Ok(role)
}

/// Checks and writes an earlier message of the model: its text or refusal, reasoning and calls.
fn assistant(message: &Members<'_, '_>, draft: &mut Draft) -> Result<(), ApiError> {
    let calls = message.get("tool_calls");
    let reasoning = reasoning(message)?;
    match (message.get("content"), message.get("refusal")) {
        (Some(text), None) => content(&text, ChatRole::Assistant, draft)?,
        (None, Some(refusal)) => draft.shown_member("content", refusal.string_token()?),
        (Some(text), Some(refusal)) => content_and_refusal(&text, &refusal, draft)?,
        (None, None) if calls.is_some() || reasoning.is_some() => draft.member("content", "null"),
        // If the content is absent or null, the error names it as required.
        (None, None) => content(&message.require("content")?, ChatRole::Assistant, draft)?,
    }
    let mut carried = Vec::new();
    if let Some(calls) = &calls {
        draft.name("tool_calls");
        let mut place = 0;
        draft.array(calls, ANY_NUMBER, |draft, call| {
            if let Some(extra) = call.get("extra_content") {
                of_extra(&extra, Some(place), &mut |text| carried.push(text));
            }
            place += 1;
            tool_call(call, draft)
        })?;
    }
    if let Some(details) = message.get("reasoning_details") {
        of_details(&details, &mut |text| carried.push(text))?;
    }
    if let Some(extra) = message.get("extra_content") {
        of_extra(&extra, None, &mut |text| carried.push(text));
    }
    if let Some(reasoning) = reasoning {
        draft.shown.text(reasoning);
    }
    let is_as_sent = message.get("reasoning_content").is_some();
    draft.answered(&AnswerEnd { reasoning, is_as_sent, carried: &carried, has_calls: calls.is_some() });
    Ok(())
}

/// Returns an earlier message's reasoning as a JSON string. The member may have either of two names.
fn reasoning<'a>(message: &Members<'a, '_>) -> Result<Option<&'a str>, ApiError> {
    let known = message.get("reasoning_content").map(|reasoning| reasoning.string_token()).transpose()?;
    let other = message.get("reasoning").and_then(|reasoning| reasoning.string_token().ok());
    Ok(known.filter(|text| *text != EMPTY).or(other).or(known))
}

/// Writes a text and a refusal as one text. Templates and most servers do not know refusals, so the model gets both as
/// plain text.
fn content_and_refusal(
    content: &Value<'_, '_>,
    refusal: &Value<'_, '_>,
    draft: &mut Draft,
) -> Result<(), ApiError> {
    let refusal = refusal.string_token()?;
    match content.kind() {
        _ if refusal == EMPTY => self::content(content, ChatRole::Assistant, draft),
        Kind::Array => {
            draft.name("content");
            draft.push("[");
            content.objects(ANY_NUMBER, |part| {
                self::part(part, ChatRole::Assistant, draft)?;
                draft.push(",");
                Ok(())
            })?;
            text_part(refusal, ChatRole::Assistant, draft);
            draft.push("]");
            Ok(())
        }
        Kind::String => {
            let text = content.string_token()?;
            if text == EMPTY {
                draft.shown_member("content", refusal);
            } else {
                draft.shown_member("content", &format!("{}\\n\\n{}", &text[..text.len() - 1], &refusal[1..]));
            }
            Ok(())
        }
        Kind::Null | Kind::Bool | Kind::Number | Kind::Object => Err(wrong_content(content)),
    }
}

fn tool_call(call: &Members<'_, '_>, draft: &mut Draft) -> Result<(), ApiError> {
    let id = call.require("id")?.filled_string_token()?;
    call.require("type")?.one_of(&["function"])?;
    let function = call.require("function")?;
    let function = function.object()?;
    let name = function.require("name")?.filled_string_token()?;
    let arguments = function.require("arguments")?;
    draft.show_spelled_arguments(&arguments)?;
    draft.call(id, name, arguments.raw());
    Ok(())
}

/// Checks and writes content, which is a text or a list of parts.
fn content(content: &Value<'_, '_>, role: ChatRole, draft: &mut Draft) -> Result<(), ApiError> {
    match content.kind() {
        Kind::String => {
            shown_text("content", content.string_token()?, role, draft);
            Ok(())
        }
        Kind::Array => {
            draft.name("content");
            draft.array(content, ANY_NUMBER, |draft, part| self::part(part, role, draft))
        }
        Kind::Null | Kind::Bool | Kind::Number | Kind::Object => Err(wrong_content(content)),
    }
}

fn wrong_content(content: &Value<'_, '_>) -> ApiError {
    content.wrong_type("a string or an array of content parts")
}

fn part(part: &Members<'_, '_>, role: ChatRole, draft: &mut Draft) -> Result<(), ApiError> {
    let kind = part.require("type")?;
    match &*kind.string()? {
        "text" => {
            text_part(part.require("text")?.string_token()?, role, draft);
            Ok(())
        }
        "refusal" if role == ChatRole::Assistant => {
            text_part(part.require("refusal")?.string_token()?, role, draft);
            Ok(())
        }
        "image_url" if role == ChatRole::User => {
            let image = part.require("image_url")?;
            let image = image.object()?;
            image_url(&image.require("url")?, image.get("detail").as_ref(), draft)
        }
        "image_url" => {
            let problem = format!(
                "only messages of the role 'user' may contain images, not those of '{}'",
                role.as_str()
            );
            Err(kind.error(Code::InvalidValue, &problem))
        }
        "input_audio" | "audio" | "file" => Err(kind
            .error(Code::UnsupportedValue, "audio and files are not supported; send 'text' or 'image_url'")),
        _ => Err(kind.error(Code::InvalidValue, "must be 'text' or 'image_url'")),
    }
}

/// Writes a text part. `token` is the text as spelled in JSON.
fn text_part(token: &str, role: ChatRole, draft: &mut Draft) {
    draft.push("{\"type\":\"text\"");
    shown_text("text", token, role, draft);
    draft.push("}");
}

/// Writes a member with a message's text, and counts the text. Only an earlier answer's text does not count towards the
/// lower bound of the prompt, since templates may leave out reasoning in it.
fn shown_text(name: &str, token: &str, role: ChatRole, draft: &mut Draft) {
    draft.shown_member(name, token);
    if role != ChatRole::Assistant {
        draft.shown.kept(token);
    }
}
