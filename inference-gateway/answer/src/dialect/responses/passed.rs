//! Remembers what is needed to end a response whose events are passed on unchanged.

use bytes::BytesMut;
use raw_json::RawString;
use serde::Deserialize;

use super::stream::{ResponsesStream, put_usage};
use crate::{
    dialect::{
        block::{Block, BlockContent},
        passed::{PassedWriter, UsageOf},
    },
    generation::put,
    pieces::{
        loose::{Raw, number, object, word},
        parts::short,
    },
    stream::Original,
};

/// Maximum length of a response's id to keep, in bytes.
const MAX_ID: usize = 1024;

/// An item as its first event shows it.
#[derive(Deserialize)]
struct Begun<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    id: Raw<'a>,
    call_id: Raw<'a>,
    name: Raw<'a>,
}

impl PassedWriter for ResponsesStream {
    fn pass(&mut self, event: &Original<'_>) {
        let number = event.number.and_then(|number| number.get().parse().ok());
        self.sequence = number.unwrap_or(self.sequence).saturating_add(1);
        match event.kind {
            "response.output_text.delta"
            | "response.function_call_arguments.delta"
            | "response.custom_tool_call_input.delta"
            | "response.refusal.delta" => {
                if let (Some(block), Some(delta)) = (&mut self.passed, event.delta.and_then(RawString::of)) {
                    if event.kind == "response.refusal.delta" {
                        block.content = BlockContent::Refusal;
                    }
                    delta.write_inner(&mut self.text);
                }
            }
            "response.output_item.added" => self.begin_passed(event),
            "response.output_item.done" => {
                self.forget_passed();
                if let Some(item) = event.item {
                    if !self.output.is_empty() {
                        put(&mut self.output, ",");
                    }
                    // JSON strings contain no line ends, so each line end is white space between tokens, and can be
                    // replaced by a blank.
                    self.output
                        .extend(item.get().bytes().map(|byte| if byte == b'\n' { b' ' } else { byte }));
                }
            }
            "response.created" => {
                if let Some(id) = event.id.filter(|id| id.inner().len() <= MAX_ID) {
                    self.id = id.sound().into_owned();
                }
            }
            _ => {}
        }
    }

    fn close_passed(&mut self, out: &mut BytesMut) {
        if let Some(block) = self.passed.take() {
            let start = self.keep_item(&block, false);
            self.item_done(&block, start, out);
        }
        self.forget_passed();
    }

    fn output(&mut self) -> Option<String> {
        if let Some(block) = self.passed.take() {
            self.keep_item(&block, true);
        }
        (!self.output.is_empty()).then(|| format!("[{}]", String::from_utf8_lossy(&self.output)))
    }

    fn behind(&self) -> &'static str {
        ""
    }

    fn usage(&self) -> UsageOf {
        put_usage
    }
}

impl ResponsesStream {
    /// Notes a message or a call that begins. Reasoning is not noted: if reasoning is cut, it lacks the encrypted part
    /// that the vendor sends at the end, and without that part the vendor refuses it in later requests.
    fn begin_passed(&mut self, event: &Original<'_>) {
        self.forget_passed();
        let item: Option<Begun<'_>> = object(event.item);
        let index = number(event.index);
        let (Some(Begun { kind, id, call_id, name }), Some(index)) = (item, index) else { return };
        // An item with an overlong id or name is not kept.
        let [Ok(id), Ok(call_id), Ok(name)] = [id, call_id, name].map(short) else { return };
        let spelled =
            |text: Option<RawString<'_>>| text.map(|text| text.sound().into_owned()).unwrap_or_default();
        let content = match word(kind) {
            "message" => BlockContent::Text,
            "function_call" | "custom_tool_call" => {
                BlockContent::Call { place: index, id: spelled(call_id), name: spelled(name) }
            }
            _ => return,
        };
        self.passed = Some(Block { index, content });
        self.item_id = id.map(|id| spelled(Some(id)));
    }

    fn forget_passed(&mut self) {
        (self.passed, self.item_id) = (None, None);
        self.text.clear();
    }
}
