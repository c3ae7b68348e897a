//! Output items of a response.

use bytes::BytesMut;
use raw_json::RawString;
use reply::{ResponsesReply, ToolName};
use serde::Deserialize;
use shared::ids::GenerationId;

use crate::{
    dialect::block::{Block, BlockContent},
    generation::put,
    pieces::parts::NO_ARGUMENTS,
};

/// The API's names for one kind of item.
pub(super) struct Words {
    item: &'static str,
    /// Prefix of the item's id.
    id: &'static str,
    /// Prefix of the names of events about the item's text.
    pub(super) event: &'static str,
    /// Type of the part that contains the text; `None` if the item itself contains it.
    part: Option<&'static str>,
    text: &'static str,
}

impl Words {
    const REASONING: Self =
        Self::new("reasoning", "rs", "response.reasoning_text", Some("reasoning_text"), "text");
    const CARRIED: Self = Self::new("reasoning", "rs", "", None, "");
    const TEXT: Self = Self::new("message", "msg", "response.output_text", Some("output_text"), "text");
    const REFUSAL: Self = Self::new("message", "msg", "response.refusal", Some("refusal"), "refusal");
    const FUNCTION: Self =
        Self::new("function_call", "fc", "response.function_call_arguments", None, "arguments");
    const CUSTOM: Self =
        Self::new("custom_tool_call", "ctc", "response.custom_tool_call_input", None, "input");

    const fn new(
        item: &'static str,
        id: &'static str,
        event: &'static str,
        part: Option<&'static str>,
        text: &'static str,
    ) -> Self {
        Self { item, id, event, part, text }
    }
}

pub(super) struct Item<'a> {
    block: &'a Block,
    /// Tool of a call, if its name was changed for upstreams.
    tool: Option<&'a ToolName>,
    pub(super) words: Words,
    /// Whether the text is also sent as the summary.
    pub(super) is_summarised: bool,
    pub(super) id: String,
}

/// An item's text and log probabilities, as spelled in JSON, without quotes and brackets.
#[derive(Clone, Copy, Default)]
pub(super) struct ItemText<'a> {
    pub(super) text: &'a [u8],
    pub(super) logprobs: &'a [u8],
}

impl<'a> Item<'a> {
    pub(super) fn new(block: &'a Block, generation: GenerationId, reply: &'a ResponsesReply) -> Self {
        let (words, tool) = match &block.content {
            BlockContent::Reasoning { .. } => (Words::REASONING, None),
            BlockContent::Carried(_) => (Words::CARRIED, None),
            BlockContent::Text => (Words::TEXT, None),
            BlockContent::Refusal => (Words::REFUSAL, None),
            BlockContent::Call { name, .. } => match reply.names.of_function(name) {
                Some(tool) if tool.is_custom => (Words::CUSTOM, Some(tool)),
                tool => (Words::FUNCTION, tool),
            },
        };
        let is_summarised = reply.summary && matches!(block.content, BlockContent::Reasoning { .. });
        let id = format!("{}_{}{:04x}", words.id, hex(generation), block.index);
        Self { block, tool, words, is_summarised, id }
    }

    /// Returns whether the item is a call of a custom tool. Its input is plain text, known only at the end.
    pub(super) fn is_custom(&self) -> bool {
        self.tool.is_some_and(|tool| tool.is_custom)
    }

    /// Returns the member that names the item's part in events; empty if the item has no parts.
    pub(super) fn part_index(&self) -> &'static str {
        if self.words.part.is_some() { r#","content_index":0"# } else { "" }
    }

    /// Writes the members of the event that ends the text.
    pub(super) fn put_done(&self, text: ItemText<'_>, out: &mut BytesMut) {
        if matches!(self.block.content, BlockContent::Call { .. }) && !self.is_custom() {
            self.put_name(out);
        }
        self.put_text(text, out);
    }

    /// Writes the part with the text. Returns `false` if the item has no parts.
    pub(super) fn put_part(&self, text: ItemText<'_>, out: &mut BytesMut) -> bool {
        let Some(part) = self.words.part else { return false };
        put(out, &format!(r#"{{"type":"{part}""#));
        if matches!(self.block.content, BlockContent::Text) {
            put(out, r#","annotations":[]"#);
        }
        self.put_text(text, out);
        put(out, "}");
        true
    }

    fn put_text(&self, ItemText { text, logprobs }: ItemText<'_>, out: &mut BytesMut) {
        put_text(self.words.text, text, out);
        if matches!(self.block.content, BlockContent::Text) {
            put(out, r#","logprobs":["#);
            out.extend_from_slice(logprobs);
            put(out, "]");
        }
    }

    /// Writes the item. Without a text, the item is written as it is when it opens.
    pub(super) fn write(&self, status: &str, text: Option<ItemText<'_>>, out: &mut BytesMut) {
        put(out, &format!(r#"{{"id":"{}","type":"{}","status":"{status}""#, self.id, self.words.item));
        match &self.block.content {
            BlockContent::Call { id, .. } => {
                put(out, &format!(r#","call_id":"{id}""#));
                self.put_name(out);
                if let Some(namespace) = self.tool.and_then(|tool| tool.namespace.as_deref()) {
                    put(out, &format!(r#","namespace":{namespace}"#));
                }
                self.put_text(text.unwrap_or_default(), out);
            }
            BlockContent::Carried(carried) => {
                put(out, &format!(r#","encrypted_content":"{carried}","summary":[]"#));
            }
            BlockContent::Reasoning { carried } => {
                match carried.as_ref().filter(|_| text.is_some()) {
                    Some(carried) => put(out, &format!(r#","encrypted_content":"{carried}","summary":["#)),
                    None => put(out, r#","encrypted_content":null,"summary":["#),
                }
                if let Some(ItemText { text, .. }) = text.filter(|_| self.is_summarised) {
                    put_summary(text, out);
                }
                put(out, "]");
            }
            BlockContent::Text | BlockContent::Refusal => put(out, r#","role":"assistant""#),
        }
        if self.words.part.is_some() {
            put(out, r#","content":["#);
            if let Some(text) = text {
                self.put_part(text, out);
            }
            put(out, "]");
        }
        put(out, "}");
    }

    fn put_name(&self, out: &mut BytesMut) {
        match (&self.tool, &self.block.content) {
            (Some(tool), _) => put(out, &format!(r#","name":{}"#, tool.name)),
            (None, BlockContent::Call { name, .. }) => put(out, &format!(r#","name":"{name}""#)),
            (
                None,
                BlockContent::Reasoning { .. }
                | BlockContent::Carried(_)
                | BlockContent::Text
                | BlockContent::Refusal,
            ) => {}
        }
    }
}

/// Writes a member with a text as spelled in JSON, without quotes.
pub(super) fn put_text(name: &str, text: &[u8], out: &mut BytesMut) {
    put(out, ",\"");
    put(out, name);
    put(out, "\":\"");
    out.extend_from_slice(text);
    put(out, "\"");
}

pub(super) fn put_summary(text: &[u8], out: &mut BytesMut) {
    put(out, r#"{"type":"summary_text""#);
    put_text("text", text, out);
    put(out, "}");
}

/// Returns the input of a call of a custom tool, as spelled in JSON without quotes: the `input` of the arguments, or
/// the whole arguments if they are not such an object. Without arguments, it is empty.
pub(super) fn input_of(arguments: &[u8]) -> BytesMut {
    #[derive(Deserialize)]
    struct Arguments {
        input: String,
    }
    if arguments == NO_ARGUMENTS.inner().as_bytes() {
        return BytesMut::new();
    }
    let quoted = format!("\"{}\"", String::from_utf8_lossy(arguments));
    match serde_json::from_str::<Arguments>(&RawString::trusted(&quoted).decoded()) {
        Ok(Arguments { input }) => {
            let spelled = serde_json::Value::from(input).to_string();
            BytesMut::from(&spelled[1..spelled.len() - 1])
        }
        Err(_) => BytesMut::from(arguments),
    }
}

pub(super) fn hex(id: GenerationId) -> String {
    let id = id.to_string();
    id.split_once('_').map(|(_, hex)| hex.to_owned()).unwrap_or(id)
}
