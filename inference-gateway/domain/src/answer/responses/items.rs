//! Output items of a response, and the events about one item.

use bytes::BytesMut;
use serde::Deserialize;
use shared::ids::GenerationId;

use super::{
    super::{
        parts::RawString,
        put,
        turn::{Block, BlockContent},
    },
    ResponsesReply, ToolName, hex,
};

/// An output item.
pub(super) struct Item<'a> {
    block: &'a Block,
    generation: GenerationId,
    /// The tool of a call, where its name differs for upstreams.
    tool: Option<&'a ToolName>,
    summary: bool,
}

/// An event with an addition to an item.
#[derive(Clone, Copy)]
pub(super) struct DeltaEvent {
    pub(super) name: &'static str,
    /// Member that names the part of the item.
    pub(super) index: &'static str,
}

/// Writer of the members of an event, from the item, its text and its log probabilities.
type Members = fn(&Item<'_>, &[u8], &[u8], &mut BytesMut);

const OF_CONTENT: &str = r#","content_index":0"#;
const OF_SUMMARY: &str = r#","summary_index":0"#;

impl<'a> Item<'a> {
    pub(super) fn new(block: &'a Block, generation: GenerationId, reply: &'a ResponsesReply) -> Self {
        let tool = match &block.content {
            BlockContent::Call { name, .. } => reply.names.of_function(name),
            BlockContent::Reasoning | BlockContent::Text | BlockContent::Refusal => None,
        };
        Self { block, generation, tool, summary: reply.summary }
    }

    /// Returns whether the item is a call that takes a text.
    pub(super) fn is_custom(&self) -> bool {
        self.tool.is_some_and(|tool| tool.is_custom)
    }

    /// Returns whether the item has a summary.
    pub(super) fn is_summarised(&self) -> bool {
        self.summary && matches!(self.block.content, BlockContent::Reasoning)
    }

    /// Id of the item.
    pub(super) fn id(&self) -> String {
        let prefix = match self.block.content {
            BlockContent::Reasoning => "rs",
            BlockContent::Text | BlockContent::Refusal => "msg",
            BlockContent::Call { .. } if self.is_custom() => "ctc",
            BlockContent::Call { .. } => "fc",
        };
        format!("{prefix}_{}{:04x}", hex(self.generation), self.block.index)
    }

    /// The part of the item's content before any text.
    pub(super) const fn empty_part(&self) -> Option<&'static str> {
        match self.block.content {
            BlockContent::Reasoning => Some(r#"{"type":"reasoning_text","text":""}"#),
            BlockContent::Text => Some(r#"{"type":"output_text","annotations":[],"logprobs":[],"text":""}"#),
            BlockContent::Refusal => Some(r#"{"type":"refusal","refusal":""}"#),
            BlockContent::Call { .. } => None,
        }
    }

    /// The event with an addition; `None` for a call whose input is known at the end only.
    pub(super) fn delta_event(&self) -> Option<DeltaEvent> {
        let event = |name, index| Some(DeltaEvent { name, index });
        match self.block.content {
            BlockContent::Reasoning => event("response.reasoning_text.delta", OF_CONTENT),
            BlockContent::Text => event("response.output_text.delta", OF_CONTENT),
            BlockContent::Refusal => event("response.refusal.delta", OF_CONTENT),
            BlockContent::Call { .. } if self.is_custom() => None,
            BlockContent::Call { .. } => event("response.function_call_arguments.delta", ""),
        }
    }

    /// The events that end the item's parts: name, the member that names the part, and the other members.
    pub(super) fn done_events(&self) -> Vec<(&'static str, &'static str, Members)> {
        let part: (_, _, Members) =
            ("response.content_part.done", OF_CONTENT, |item, text, logprobs, out| {
                put(out, r#","part":"#);
                item.put_part(text, logprobs, out);
            });
        match self.block.content {
            BlockContent::Reasoning => {
                let mut events: Vec<(_, _, Members)> = vec![
                    ("response.reasoning_text.done", OF_CONTENT, |_, text, _, out| {
                        put_text("text", text, out)
                    }),
                    part,
                ];
                if self.summary {
                    events.push(("response.reasoning_summary_text.done", OF_SUMMARY, |_, text, _, out| {
                        put_text("text", text, out);
                    }));
                    events.push(("response.reasoning_summary_part.done", OF_SUMMARY, |_, text, _, out| {
                        put(out, r#","part":{"type":"summary_text""#);
                        put_text("text", text, out);
                        put(out, "}");
                    }));
                }
                events
            }
            BlockContent::Text => vec![
                ("response.output_text.done", OF_CONTENT, |_, text, logprobs, out| {
                    put_text("text", text, out);
                    put_logprobs(logprobs, out);
                }),
                part,
            ],
            BlockContent::Refusal => vec![
                ("response.refusal.done", OF_CONTENT, |_, text, _, out| put_text("refusal", text, out)),
                part,
            ],
            BlockContent::Call { .. } if self.is_custom() => {
                vec![("response.custom_tool_call_input.done", "", |_, text, _, out| {
                    put_text("input", text, out)
                })]
            }
            BlockContent::Call { .. } => {
                vec![("response.function_call_arguments.done", "", |item, text, _, out| {
                    item.put_name(out);
                    put_text("arguments", text, out);
                })]
            }
        }
    }

    /// Writes the item before any text.
    pub(super) fn write_empty(&self, out: &mut BytesMut) {
        self.write_with(
            "in_progress",
            |item, out| match item.block.content {
                BlockContent::Reasoning => put(out, r#","summary":[],"content":[],"encrypted_content":null"#),
                BlockContent::Text | BlockContent::Refusal => put(out, r#","content":[]"#),
                BlockContent::Call { .. } => put_text(item.text_member(), b"", out),
            },
            out,
        );
    }

    /// Writes the item with its text.
    pub(super) fn write(&self, status: &str, text: &[u8], logprobs: &[u8], out: &mut BytesMut) {
        let content = |item: &Self, out: &mut BytesMut| match item.block.content {
            BlockContent::Reasoning => {
                put(out, r#","summary":["#);
                if item.summary {
                    put(out, r#"{"type":"summary_text""#);
                    put_text("text", text, out);
                    put(out, "}");
                }
                put(out, r#"],"content":["#);
                item.put_part(text, logprobs, out);
                put(out, r#"],"encrypted_content":null"#);
            }
            BlockContent::Text | BlockContent::Refusal => {
                put(out, r#","content":["#);
                item.put_part(text, logprobs, out);
                put(out, "]");
            }
            BlockContent::Call { .. } => put_text(item.text_member(), text, out),
        };
        self.write_with(status, content, out);
    }

    fn write_with(&self, status: &str, content: impl FnOnce(&Self, &mut BytesMut), out: &mut BytesMut) {
        let kind = match self.block.content {
            BlockContent::Reasoning => "reasoning",
            BlockContent::Text | BlockContent::Refusal => r#"message","role":"assistant"#,
            BlockContent::Call { .. } if self.is_custom() => "custom_tool_call",
            BlockContent::Call { .. } => "function_call",
        };
        put(out, &format!(r#"{{"id":"{}","type":"{kind}","status":"{status}""#, self.id()));
        if let BlockContent::Call { id, .. } = &self.block.content {
            put(out, r#","call_id":""#);
            put(out, id);
            put(out, "\"");
            self.put_name(out);
            if let Some(namespace) = self.tool.and_then(|tool| tool.namespace.as_deref()) {
                put(out, r#","namespace":"#);
                put(out, namespace);
            }
        }
        content(self, out);
        put(out, "}");
    }

    fn put_name(&self, out: &mut BytesMut) {
        put(out, r#","name":"#);
        match (&self.tool, &self.block.content) {
            (Some(tool), _) => put(out, &tool.name),
            (None, BlockContent::Call { name, .. }) => put(out, &format!("\"{name}\"")),
            (None, BlockContent::Reasoning | BlockContent::Text | BlockContent::Refusal) => put(out, "\"\""),
        }
    }

    fn text_member(&self) -> &'static str {
        if self.is_custom() { "input" } else { "arguments" }
    }

    fn put_part(&self, text: &[u8], logprobs: &[u8], out: &mut BytesMut) {
        match self.block.content {
            BlockContent::Reasoning => {
                put(out, r#"{"type":"reasoning_text""#);
                put_text("text", text, out);
            }
            BlockContent::Refusal => {
                put(out, r#"{"type":"refusal""#);
                put_text("refusal", text, out);
            }
            BlockContent::Text | BlockContent::Call { .. } => {
                put(out, r#"{"type":"output_text","annotations":[]"#);
                put_logprobs(logprobs, out);
                put_text("text", text, out);
            }
        }
        put(out, "}");
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

fn put_logprobs(logprobs: &[u8], out: &mut BytesMut) {
    put(out, r#","logprobs":["#);
    out.extend_from_slice(logprobs);
    put(out, "]");
}

/// The text that a call of a custom tool carries, as spelled in JSON without quotes: the `input` of the function's
/// arguments, or else all that the model wrote.
pub(super) fn input_of(arguments: &[u8]) -> BytesMut {
    #[derive(Deserialize)]
    struct Arguments {
        input: String,
    }
    let spelled = String::from_utf8_lossy(arguments);
    let quoted = format!("\"{spelled}\"");
    let text = RawString::trusted(&quoted).decoded();
    match serde_json::from_str::<Arguments>(&text) {
        Ok(Arguments { input }) => {
            let spelled = serde_json::Value::from(input).to_string();
            BytesMut::from(&spelled[1..spelled.len() - 1])
        }
        Err(_) => BytesMut::from(arguments),
    }
}
