//! The messages and their content blocks.

use raw_json::{ANY_NUMBER, Members, Value};
use shared::error::{ApiError, Code};

use super::tools;
use crate::draft::{
    Arguments, Conversation, Draft, EarlierAnswer, ToolAnswer, image_data, image_url, plain, unsupported_kind,
};
use crate::{
    names::known::{self, PARTS},
    passage::CutWhen,
};

/// The errors' name for a list of blocks.
pub(super) const BLOCKS: &str = "an array of content blocks";

/// Types of blocks that are read here, refused, or counted by the upstream.
const TYPES: [&str; 12] = [
    "compaction",
    "container_upload",
    "document",
    "image",
    "redacted_thinking",
    "text",
    "thinking",
    "tool_addition",
    "tool_reference",
    "tool_removal",
    "tool_result",
    "tool_use",
];

/// Checks the messages and writes the chat's messages, after the texts of the system prompt.
pub(super) fn messages(list: &Value<'_, '_>, system: &[&str], draft: &mut Draft) -> Result<(), ApiError> {
    let mut conversation = Conversation::begin(draft);
    conversation.system(system);
    list.objects(ANY_NUMBER, |message| {
        known::check(message, PARTS, &["content"])?;
        let role = message.require("role")?.one_of(&["user", "assistant", "system"])?;
        let content = message.require("content")?;
        match role {
            "user" => user(&content, &mut conversation),
            "assistant" => assistant(&content, &mut conversation),
            _ => self::system(&content, &mut conversation),
        }
    })?;
    conversation.end(list)
}

/// Writes a system message within the conversation.
fn system(content: &Value<'_, '_>, conversation: &mut Conversation<'_>) -> Result<(), ApiError> {
    let mut texts = Vec::new();
    if content.is_text(BLOCKS)? {
        texts.push(content.string_token()?);
    } else {
        content.objects_if_any(ANY_NUMBER, |block| match &*block.require("type")?.string()? {
            // Only the vendor allows tools to change within a conversation.
            "tool_addition" | "tool_removal" => tools::change(block, conversation.draft),
            _ => {
                texts.push(text_of(block)?);
                Ok(())
            }
        })?;
    }
    conversation.system(&texts);
    Ok(())
}

/// Writes each tool result as a message, then the rest of the user's message with the results' images.
fn user(content: &Value<'_, '_>, conversation: &mut Conversation<'_>) -> Result<(), ApiError> {
    if content.is_text(BLOCKS)? {
        return conversation.user_text(content.string_token()?);
    }
    let mut has_parts = false;
    content.objects(ANY_NUMBER, |block| {
        let kind = block.require("type")?.string()?;
        known::check(block, PARTS, read_later(&kind))?;
        let is_result = kind == "tool_result";
        has_parts |= if is_result { tool_result(block, conversation)? } else { true };
        Ok(())
    })?;
    if !has_parts {
        return Ok(());
    }
    conversation.user(|draft| {
        let mut before = "[";
        content.objects(ANY_NUMBER, |block| parts(block, &mut before, draft))?;
        draft.push("]");
        Ok(())
    })
}

/// Returns the members of a block of this type that are checked when they are read.
fn read_later(kind: &str) -> &'static [&'static str] {
    match kind {
        "text" | "thinking" => &[],
        "image" => &["source"],
        "tool_result" => &["content"],
        "tool_use" => &["input"],
        _ => &["content", "input", "source"],
    }
}

/// Writes the parts that a block adds to a user message: a text, an image, or the images of a result.
fn parts(block: &Members<'_, '_>, before: &mut &'static str, draft: &mut Draft) -> Result<(), ApiError> {
    let kind = block.require("type")?;
    match &*kind.string()? {
        "text" => {
            draft.push(std::mem::replace(before, ","));
            draft.text_part(block.require("text")?.string_token()?);
            Ok(())
        }
        "image" => {
            draft.push(std::mem::replace(before, ","));
            image(block, draft)
        }
        "tool_result" => {
            let Some(content) = block.get("content") else { return Ok(()) };
            if content.is_text(BLOCKS)? {
                return Ok(());
            }
            content.objects_if_any(ANY_NUMBER, |part| {
                if part.require("type")?.string()? == "image" {
                    draft.push(std::mem::replace(before, ","));
                    image(part, draft)?;
                }
                Ok(())
            })?;
            Ok(())
        }
        _ => only_passed(block, "'text', 'image' or 'tool_result'", draft),
    }
}

/// Notes a block that only an upstream of this API accepts. The upstream counts a document in it. Stored files and
/// addresses are refused.
fn only_passed(block: &Members<'_, '_>, supported: &str, draft: &mut Draft) -> Result<(), ApiError> {
    let kind = block.require("type")?;
    known::refuse_lookalike_type(&kind, &TYPES)?;
    let fault = unsupported_kind(&kind, "blocks", supported);
    match &*kind.string()? {
        "container_upload" => Err(fault),
        "tool_addition" | "tool_removal" => tools::change(block, draft),
        "compaction" => {
            if let Some(changes) = block.get("tool_changes") {
                changes.objects_if_any(ANY_NUMBER, |change| tools::change(change, draft))?;
            }
            draft.pass_only(block, || fault)
        }
        "document" => {
            let source = block.require("source")?;
            let source = source.object()?;
            known::check(&source, PARTS, &["content"])?;
            let source = source.require("type")?;
            match &*source.string()? {
                "base64" | "text" | "content" => draft.document(block, fault),
                _ => Err(source.error(
                    Code::UnsupportedValue,
                    "must be 'base64', 'text' or 'content'; no files are stored or fetched here",
                )),
            }
        }
        _ => draft.pass_only(block, || fault),
    }
}

fn image(block: &Members<'_, '_>, draft: &mut Draft) -> Result<(), ApiError> {
    let source = block.require("source")?;
    let source = source.object()?;
    known::check(&source, PARTS, &[])?;
    let kind = source.require("type")?;
    match &*kind.string()? {
        "base64" => image_data(&source.require("media_type")?, &source.require("data")?, draft),
        "url" => image_url(&source.require("url")?, None, draft),
        _ => Err(kind.error(Code::UnsupportedValue, "must be 'base64' or 'url'; no files are stored here")),
    }
}

/// Writes a tool result. Returns whether its images follow.
fn tool_result(block: &Members<'_, '_>, conversation: &mut Conversation<'_>) -> Result<bool, ApiError> {
    let id = called(&block.require("tool_use_id")?, conversation.draft)?;
    let is_error = block.get("is_error").map_or(Ok(false), |value| value.boolean())?;
    let (mut texts, mut has_images) = (Vec::new(), false);
    match block.get("content") {
        None => {}
        Some(content) if content.is_text(BLOCKS)? => texts.push(content.string_token()?),
        Some(content) => {
            content.objects_if_any(ANY_NUMBER, |part| {
                let kind = part.require("type")?;
                known::check(part, PARTS, read_later(&kind.string()?))?;
                match &*kind.string()? {
                    "text" => texts.push(part.require("text")?.string_token()?),
                    "tool_reference" => texts.push(part.require("tool_name")?.string_token()?),
                    "image" => has_images = true,
                    _ => only_passed(part, "'text', 'image' or 'tool_reference'", conversation.draft)?,
                }
                Ok(())
            })?;
        }
    }
    conversation.tool(ToolAnswer { id, texts, has_images, is_error });
    Ok(has_images)
}

fn assistant(content: &Value<'_, '_>, conversation: &mut Conversation<'_>) -> Result<(), ApiError> {
    let mut answer = EarlierAnswer::default();
    if content.is_text(BLOCKS)? {
        answer.text(content.string_token()?);
    } else {
        let mut is_kept = Vec::new();
        content.objects_if_any(ANY_NUMBER, |block| {
            is_kept.push(earlier_block(block, &mut answer, conversation.draft)?);
            Ok(())
        })?;
        if is_kept.contains(&false) {
            // A vendor refuses thoughts signed by another model.
            conversation.draft.passage.cut_elements(content, &is_kept, CutWhen::Always, &[])?;
        }
    }
    conversation.assistant(&mut answer);
    Ok(())
}

/// Reads a block of an earlier answer. Thinking from any vendor's model is accepted, whatever its signature; a vendor's
/// own encrypted thinking is dropped. Returns whether a passed body keeps the block.
fn earlier_block<'a>(
    block: &Members<'a, '_>,
    answer: &mut EarlierAnswer<'a>,
    draft: &mut Draft,
) -> Result<bool, ApiError> {
    let kind = block.require("type")?;
    known::check(block, PARTS, read_later(&kind.string()?))?;
    match &*kind.string()? {
        "text" => answer.text(block.require("text")?.string_token()?),
        "thinking" => {
            answer.reasoning(block.require("thinking")?.string_token()?);
            if let Some(signature) = block.get("signature") {
                if carries(&signature, answer) {
                    return Ok(false);
                }
                draft.shown.text(signature.raw());
            }
        }
        "redacted_thinking" => {
            if block.get("data").is_some_and(|data| carries(&data, answer)) {
                return Ok(false);
            }
            block.iter().try_for_each(|(name, value)| draft.pass_value(name, &value))?;
        }
        "tool_use" => {
            let id = called(&block.require("id")?, draft)?;
            let name = block.require("name")?.filled_string_token()?;
            let input = block.require("input")?;
            input.object()?;
            draft.show_arguments(&input)?;
            answer.call(id, name.to_owned(), Arguments::Object(input.raw()));
        }
        _ => only_passed(block, "'text', 'thinking' or 'tool_use'", draft)?,
    }
    Ok(true)
}

/// Takes the parts for the server out of a text. Returns whether this gateway wrote the text.
fn carries(text: &Value<'_, '_>, answer: &mut EarlierAnswer<'_>) -> bool {
    text.string().is_ok_and(|text| answer.carry(&text))
}

/// Returns a call's id as a JSON string. In a passed body it is replaced if the vendor would refuse it, since another
/// server may have made it.
fn called<'a>(id: &Value<'a, '_>, draft: &mut Draft) -> Result<&'a str, ApiError> {
    let token = id.filled_string_token()?;
    if let Some(taken) = plain(&id.string()?) {
        draft.passage.replace_id(id, &taken);
    }
    Ok(token)
}

pub(super) fn text_of<'a>(block: &Members<'a, '_>) -> Result<&'a str, ApiError> {
    known::check(block, PARTS, &[])?;
    let kind = block.require("type")?;
    if kind.string()? != "text" {
        return Err(unsupported_kind(&kind, "blocks", "'text'"));
    }
    block.require("text")?.string_token()
}
