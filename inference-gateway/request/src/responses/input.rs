//! The input: items of the earlier conversation, and the user's new message.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use raw_json::{ANY_NUMBER, Members, ParamPath, Value};
use reply::ToolNames;
use shared::{
    error::{ApiError, Code},
    json::{Kind, RawValue},
};

use super::{
    passage::is_run_by_vendor,
    tools::{Tools, flat_name},
};
use crate::draft::{
    Arguments, Conversation, Draft, EarlierAnswer, ToolAnswer, image_url, name, plain, unsupported_kind,
};
use crate::{names::known, passage::CutWhen};

/// The errors' name for a list of parts.
const PARTS: &str = "an array";

/// Advice in errors about stored state.
pub(super) const NOTHING_STORED: &str = "nothing is stored here; send the items, and set 'store' to false";

/// Types of items that are read here, and types of items to which further rules apply.
const TYPES: [&str; 13] = [
    "additional_tools",
    "compaction",
    "compaction_trigger",
    "configuration_update",
    "custom_tool_call",
    "custom_tool_call_output",
    "function_call",
    "function_call_output",
    "item_reference",
    "mcp_list_tools",
    "message",
    "reasoning",
    "tool_search_output",
];

/// Role of a message's author.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InputRole {
    System,
    User,
    Assistant,
}

impl InputRole {
    fn read(item: &Members<'_, '_>) -> Result<Self, ApiError> {
        Ok(match item.require("role")?.one_of(&["user", "assistant", "system", "developer"])? {
            "user" => Self::User,
            "assistant" => Self::Assistant,
            _ => Self::System,
        })
    }
}

/// Type of the item with additional tools. These tools are written before everything else.
static FIRST: LazyLock<[Finder<'_>; 1]> = LazyLock::new(|| [Finder::new("additional_tools")]);

/// Reads the additional tools in the items.
pub(super) fn additional_tools(
    input: &Value<'_, '_>,
    tools: &mut Tools,
    draft: &mut Draft,
) -> Result<(), ApiError> {
    if input.is_text(PARTS)? || !input.may_have(&*FIRST) {
        return Ok(());
    }
    input.objects(ANY_NUMBER, |item| {
        if kind(item)? != "additional_tools" {
            return Ok(());
        }
        let list = item.require("tools")?;
        tools.offer(&list, draft)?;
        draft.passage.tools(&list, is_run_by_vendor)
    })
}

/// Checks the items, and writes the messages of the chat.
pub(super) fn messages(
    body: &Members<'_, '_>,
    input: &Value<'_, '_>,
    names: &ToolNames,
    draft: &mut Draft,
) -> Result<(), ApiError> {
    let mut conversation = Conversation::begin(draft);
    if let Some(instructions) = body.get("instructions") {
        conversation.system(&[instructions.string_token()?]);
    }
    let mut items = Items { conversation, names, answer: EarlierAnswer::default(), images: Vec::new() };
    if input.is_text(PARTS)? {
        items.conversation.user_text(input.string_token()?)?;
    } else {
        let mut is_kept = Vec::new();
        input.objects(ANY_NUMBER, |item| {
            is_kept.push(items.item(item, is_kept.len())?);
            Ok(())
        })?;
        items.flush()?;
        if is_kept.contains(&false) {
            // These items are cut, since the vendor refuses reasoning that another model has encrypted.
            let passage = &mut items.conversation.draft.passage;
            passage.cut_elements(input, &is_kept, CutWhen::Always, &[])?;
        }
    }
    items.conversation.end(input)
}

/// The items, while they become messages.
struct Items<'a, 'd> {
    conversation: Conversation<'d>,
    names: &'d ToolNames,
    /// The earlier answer to which the last items belong.
    answer: EarlierAnswer<'a>,
    /// Tool outputs with images, each with the index of its item. Their images are written after the last tool output.
    images: Vec<(usize, &'a RawValue)>,
}

impl<'a> Items<'a, '_> {
    /// Reads an item. Returns whether a body that is passed on keeps the item.
    fn item(&mut self, item: &Members<'a, '_>, index: usize) -> Result<bool, ApiError> {
        if kind(item)? == "reasoning" {
            known::check(item, known::PARTS, &["tools"])?;
            return self.reasoning(item);
        }
        self.other_item(item, index)?;
        Ok(true)
    }

    fn other_item(&mut self, item: &Members<'a, '_>, index: usize) -> Result<(), ApiError> {
        let kind = kind(item)?;
        let read_later: &[&str] = match &*kind {
            "message" => &["content"],
            "function_call_output" | "custom_tool_call_output" => &["output"],
            "function_call" | "custom_tool_call" | "reasoning" | "item_reference" => &[],
            _ => &["tools"],
        };
        known::check(item, known::PARTS, read_later)?;
        match &*kind {
            "message" => self.message(item),
            "function_call" => {
                let arguments = item.require("arguments")?;
                self.conversation.draft.show_spelled_arguments(&arguments)?;
                self.call(item, Arguments::Spelled(arguments.raw()))
            }
            "custom_tool_call" => {
                let input = item.require("input")?.string_token()?;
                self.call(item, Arguments::Input(input))
            }
            "function_call_output" | "custom_tool_call_output" => self.output(item, index),
            "additional_tools" => Ok(()),
            update if update == "configuration_update" || update.starts_with("compaction") => {
                let draft = &mut *self.conversation.draft;
                if !matches!(update, "configuration_update" | "compaction" | "compaction_summary") {
                    draft.passage.compacts(&item.require("type")?);
                }
                if let Some(found) = item.get("tools") {
                    draft.passage.tools(&found, is_run_by_vendor)?;
                }
                item.iter().try_for_each(|(name, value)| draft.pass_value(name, &value))
            }
            "item_reference" => {
                let id = item.require("id")?;
                if id.string()?.starts_with("rs_") {
                    return Ok(());
                }
                Err(id.error(Code::UnsupportedParameter, NOTHING_STORED))
            }
            _ => {
                let supported = "messages, calls of functions and custom tools, and their outputs";
                let draft = &mut *self.conversation.draft;
                let place = item.require("type")?;
                known::refuse_lookalike_type(&place, &TYPES)?;
                // An `mcp_list_tools` item only reports the tools of an MCP server. It does not offer them.
                if kind != "mcp_list_tools"
                    && let Some(found) = item.get("tools")
                {
                    draft.passage.tools(&found, is_run_by_vendor)?;
                }
                draft.pass_only(item, || unsupported_kind(&place, "items", supported))
            }
        }
    }

    fn message(&mut self, item: &Members<'a, '_>) -> Result<(), ApiError> {
        let content = item.require("content")?;
        match InputRole::read(item)? {
            InputRole::System => {
                self.flush()?;
                let mut texts = Vec::new();
                content.each_text(PARTS, text_of, |text| texts.push(text))?;
                self.conversation.system(&texts);
                Ok(())
            }
            InputRole::Assistant => {
                self.images()?;
                content.each_text(PARTS, text_of, |text| self.answer.text(text))
            }
            InputRole::User => {
                self.flush()?;
                if content.is_text(PARTS)? {
                    return self.conversation.user_text(content.string_token()?);
                }
                self.conversation.user(|draft| draft.array(&content, ANY_NUMBER, part))
            }
        }
    }

    fn call(&mut self, item: &Members<'a, '_>, arguments: Arguments<'a>) -> Result<(), ApiError> {
        self.images()?;
        let id = self.call_id(item)?;
        let called = item.require("name")?;
        let token = called.filled_string_token()?;
        let Some(namespace) = item.get("namespace") else {
            self.answer.call(id, token.to_owned(), arguments);
            return Ok(());
        };
        let flat = match self.names.of_tool(Some(namespace.string_token()?), token) {
            Some(tool) => tool.flat.clone(),
            // The tool is no longer offered.
            None => flat_name(Some(&name(&namespace)?), &name(&called)?, |_| false),
        };
        self.answer.call(id, format!("\"{flat}\""), arguments);
        Ok(())
    }

    fn output(&mut self, item: &Members<'a, '_>, index: usize) -> Result<(), ApiError> {
        self.conversation.assistant(&mut self.answer);
        let id = self.call_id(item)?;
        let output = item.require("output")?;
        let (mut texts, mut has_images) = (Vec::new(), false);
        if output.is_text(PARTS)? {
            texts.push(output.string_token()?);
        } else {
            output.objects_if_any(ANY_NUMBER, |part| {
                match &*kind_of(part)? {
                    "input_image" => has_images = true,
                    "input_file" => file(part, self.conversation.draft)?,
                    _ => texts.push(text_of(part)?),
                }
                Ok(())
            })?;
        }
        if has_images {
            self.images.push((index, output.unplaced()));
        }
        self.conversation.tool(ToolAnswer { id, texts, has_images, is_error: false });
        Ok(())
    }

    /// Returns a call's id as a JSON string. In a body that is passed on, the id is replaced if the vendor would refuse
    /// it.
    fn call_id(&mut self, item: &Members<'a, '_>) -> Result<&'a str, ApiError> {
        let id = item.require("call_id")?;
        let token = id.filled_string_token()?;
        if let Some(taken) = plain(&id.string()?) {
            self.conversation.draft.passage.replace_id(&id, &taken);
        }
        Ok(token)
    }

    /// Adds reasoning to the answer that follows: its text or, without a text, its summary, and the parts that its
    /// server needs back. Returns whether a body that is passed on keeps the item.
    fn reasoning(&mut self, item: &Members<'a, '_>) -> Result<bool, ApiError> {
        self.images()?;
        let mut is_carried = false;
        if let Some(encrypted) = item.get("encrypted_content") {
            is_carried = encrypted.string().is_ok_and(|text| self.answer.carry(&text));
            if !is_carried {
                self.conversation.draft.shown.text(encrypted.raw());
            }
        }
        let content = item.get("content").filter(|content| content.raw() != "[]");
        let Some(texts) = content.or_else(|| item.get("summary")) else { return Ok(!is_carried) };
        texts.objects_if_any(ANY_NUMBER, |part| {
            self.answer.reasoning(part.require("text")?.string_token()?);
            Ok(())
        })?;
        Ok(!is_carried)
    }

    /// Writes everything that belongs to earlier messages.
    fn flush(&mut self) -> Result<(), ApiError> {
        self.conversation.assistant(&mut self.answer);
        self.images()
    }

    /// Writes the last outputs' images as a user message.
    fn images(&mut self) -> Result<(), ApiError> {
        let images = std::mem::take(&mut self.images);
        if images.is_empty() {
            return Ok(());
        }
        self.conversation.user(|draft| {
            let mut before = "[";
            for (index, output) in images {
                let (input, name) = (ParamPath::Member(None, "input"), "output");
                let item = ParamPath::Element(&input, index);
                Value::at(output, ParamPath::Member(Some(&item), name)).objects(ANY_NUMBER, |part| {
                    if kind_of(part)? == "input_image" {
                        draft.push(before);
                        before = ",";
                        self::part(draft, part)?;
                    }
                    Ok(())
                })?;
            }
            draft.push("]");
            Ok(())
        })
    }
}

/// Returns the kind of an item. An item with a role and without a type is a message.
fn kind<'a>(item: &Members<'a, '_>) -> Result<std::borrow::Cow<'a, str>, ApiError> {
    match item.get("type") {
        None if item.get("role").is_some() => Ok("message".into()),
        Some(_) | None => kind_of(item),
    }
}

fn text_of<'a>(part: &Members<'a, '_>) -> Result<&'a str, ApiError> {
    known::check(part, known::PARTS, &[])?;
    match &*kind_of(part)? {
        "input_text" | "output_text" | "text" => part.require("text")?.string_token(),
        "refusal" => part.require("refusal")?.string_token(),
        _ => Err(wrong_part(part)),
    }
}

/// Checks and writes a part of a user's message.
fn part(draft: &mut Draft, part: &Members<'_, '_>) -> Result<(), ApiError> {
    match &*kind_of(part)? {
        "input_image" => {}
        "input_file" => {
            draft.push("null");
            return file(part, draft);
        }
        _ => {
            draft.text_part(text_of(part)?);
            return Ok(());
        }
    }
    known::check(part, known::PARTS, &[])?;
    if let Some(file) = part.get("file_id") {
        return Err(file.error(Code::UnsupportedParameter, "no files are stored here; send 'image_url'"));
    }
    let url = part.require("image_url")?;
    if url.kind() != Kind::String {
        return Err(url.wrong_type("a string"));
    }
    image_url(&url, part.get("detail").as_ref(), draft)
}

/// Notes a file whose content is in the request. Only an upstream of this API accepts and counts such a file.
fn file(part: &Members<'_, '_>, draft: &mut Draft) -> Result<(), ApiError> {
    known::check(part, known::PARTS, &[])?;
    for elsewhere in ["file_id", "file_url"] {
        if let Some(value) = part.get(elsewhere) {
            let problem = "no files are stored or fetched here; send 'file_data'";
            return Err(value.error(Code::UnsupportedParameter, problem));
        }
    }
    draft.document(part, wrong_part(part))
}

fn wrong_part(part: &Members<'_, '_>) -> ApiError {
    let supported = "'input_text', 'output_text' or 'refusal'; in user messages and in outputs of tools also \
                     'input_image'";
    match part.require("type") {
        Ok(kind) => unsupported_kind(&kind, "parts", supported),
        Err(missing) => missing,
    }
}

/// Returns the `type` of an item or a part.
fn kind_of<'a>(members: &Members<'a, '_>) -> Result<std::borrow::Cow<'a, str>, ApiError> {
    members.require("type")?.string()
}
