//! Items of a response's output: in events, and in the whole output.

use raw_json::RawString;
use serde::Deserialize;
use shared::json::{RawValue, each_element};

use super::state::{EMPTY_LINE, ResponsesReader};
use crate::{
    pieces::{
        loose::{Raw, filled, object, text, word},
        nonsense::Nonsense,
        oddity::Oddity,
        parts::{CallArguments, Delta, SignedPart, short},
    },
    reader::{
        pieces::Pieces,
        progress::{PartKey, PartKind},
    },
};

/// Indexes for items that no event announced, above all others.
const UNNAMED: u64 = 1 << 32;
/// Maximum number of items in a response: more than any model makes.
const MAX_ITEMS: u64 = 4096;

/// An item of the output. Only messages, reasoning and calls are shown.
#[derive(Deserialize)]
pub(super) struct RawItem<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Raw<'a>,
    call_id: Raw<'a>,
    name: Raw<'a>,
    arguments: Raw<'a>,
    input: Raw<'a>,
    content: Raw<'a>,
    summary: Raw<'a>,
    id: Raw<'a>,
    encrypted_content: Raw<'a>,
}

/// A part of a message or of reasoning.
#[derive(Deserialize)]
struct RawPart<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    text: Raw<'a>,
    refusal: Raw<'a>,
    logprobs: Raw<'a>,
}

/// Counts the parts seen in a whole output, by kind, and the bytes of texts and refusals.
#[derive(Default)]
struct ToldOutput {
    texts: usize,
    refusals: usize,
    calls: usize,
    encrypted: usize,
    bytes: [usize; 2],
}

/// Returns whether an item is a call of a tool that the client may know.
pub(super) fn is_call(kind: &str) -> bool {
    matches!(kind, "function_call" | "custom_tool_call")
}

impl ResponsesReader {
    /// Gives calls without arguments an empty object, once nothing more can come.
    pub(super) fn end_calls(&mut self, out: &mut Pieces<'_>) {
        for at in 0..usize::try_from(self.progress.calls()).unwrap_or(0) {
            let Some(key) = self.progress.nth(PartKind::Call, at) else { return };
            if let Some(place) = self.progress.call(key).filter(|_| !self.progress.is_given(key)) {
                self.progress.add(key, CallArguments::NONE.raw());
                out.add(Delta::of_call(place, [None, None], Some(CallArguments::NONE)));
            }
        }
    }

    /// Adds whatever content of the whole output no event gave.
    pub(super) fn output<'a>(&mut self, output: &'a RawValue, out: &mut Pieces<'a>) -> Result<(), Nonsense> {
        let (mut read, mut items) = (Ok(()), 0);
        let mut told = ToldOutput::default();
        let _ = each_element(output, |item: &RawValue| {
            items += 1;
            match object(Some(item)) {
                Some(item) => read = self.again_in_output(&item, &mut told, out),
                None => out.odd.add(Oddity::UnknownItem),
            }
            if items > MAX_ITEMS {
                read = Err(Nonsense::Beyond);
            }
            read.is_ok()
        });
        read
    }

    pub(super) fn begin_call<'a>(
        &mut self,
        item: &RawItem<'a>,
        key: PartKey,
        out: &mut Pieces<'a>,
    ) -> Result<(), Nonsense> {
        let name = [short(item.call_id)?, short(item.name)?];
        let place = self.progress.begin_call(key)?;
        out.add(Delta::of_call(place, name, Some(CallArguments::Text(RawString::EMPTY))));
        Ok(())
    }

    /// Adds a call's arguments that no piece gave.
    pub(super) fn late_arguments<'a>(&mut self, key: PartKey, told: Raw<'a>, out: &mut Pieces<'a>) {
        let Some(place) = self.progress.call(key) else { return };
        let Some(told) = told.and_then(|told| CallArguments::read(told, &mut out.odd)) else { return };
        let rest = match told {
            CallArguments::Text(whole) => self.progress.rest(key, Some(whole)).map(CallArguments::Text),
            CallArguments::Spelled(_) if self.progress.is_given(key) => None,
            spelled @ CallArguments::Spelled(_) => {
                self.progress.add(key, spelled.raw());
                Some(spelled)
            }
        };
        if let Some(rest) = rest {
            out.odd.add(Oddity::LateArguments);
            out.add(Delta::of_call(place, [None, None], Some(rest)));
        }
    }

    pub(super) fn done<'a>(
        &mut self,
        item: &RawItem<'a>,
        place: u64,
        out: &mut Pieces<'a>,
    ) -> Result<(), Nonsense> {
        match word(item.kind) {
            kind if is_call(kind) => {
                let key = PartKey { kind: PartKind::Call, item: place, part: 0 };
                if self.progress.call(key).is_none() {
                    out.odd.add(Oddity::LateArguments);
                    self.begin_call(item, key, out)?;
                }
                self.late_arguments(key, item.arguments.or(item.input), out);
            }
            "message" => {
                let mut part = 0;
                each_part(item.content, |told| {
                    let kind = told.kind();
                    self.late(PartKey { kind, item: place, part }, told.told(), out);
                    part += 1;
                });
            }
            "reasoning" => {
                self.encrypted(item, PartKey { kind: PartKind::Encrypted, item: place, part: 0 }, out);
                if self.state.reasoning.is_none_or(|(of, _)| of != place) {
                    self.thoughts(item, place, out);
                }
            }
            kind => out.odd.add_if(Oddity::UnknownItem, !is_of_the_vendor(kind)),
        }
        Ok(())
    }

    /// Reads an item of the whole output. It is matched by its position among the items of its kind, since indexes and
    /// ids may differ from those in events.
    fn again_in_output<'a>(
        &mut self,
        item: &RawItem<'a>,
        told: &mut ToldOutput,
        out: &mut Pieces<'a>,
    ) -> Result<(), Nonsense> {
        match word(item.kind) {
            kind if is_call(kind) => {
                let unnamed = PartKey { kind: PartKind::Call, item: UNNAMED + told.calls as u64, part: 0 };
                let key = self.progress.nth(PartKind::Call, told.calls).unwrap_or(unnamed);
                told.calls += 1;
                if self.progress.call(key).is_none() {
                    out.odd.add(Oddity::LateArguments);
                    self.begin_call(item, key, out)?;
                }
                self.late_arguments(key, item.arguments.or(item.input), out);
            }
            "message" => self.message_in_output(item, told, out),
            "reasoning" => {
                let unnamed =
                    PartKey { kind: PartKind::Encrypted, item: UNNAMED + told.encrypted as u64, part: 0 };
                let key = self.progress.nth(PartKind::Encrypted, told.encrypted).unwrap_or(unnamed);
                told.encrypted += usize::from(filled(item.encrypted_content).is_some());
                self.encrypted(item, key, out);
                if self.state.reasoning.is_none_or(|(of, _)| of >= UNNAMED) {
                    let place = self.state.reasoning.map_or(UNNAMED, |(of, _)| of + 1);
                    self.thoughts(item, place, out);
                }
            }
            kind => out.odd.add_if(Oddity::UnknownItem, !is_of_the_vendor(kind)),
        }
        Ok(())
    }

    /// Adds the parts of a message that no event gave. Clients expect a list of parts, even an empty one.
    fn message_in_output<'a>(&mut self, item: &RawItem<'a>, told: &mut ToldOutput, out: &mut Pieces<'a>) {
        out.odd.add_if(Oddity::ContentType, item.content.is_none());
        each_part(item.content, |part| {
            let kind = part.kind();
            let (nth, bytes) = match kind {
                PartKind::Refusal => (&mut told.refusals, &mut told.bytes[1]),
                PartKind::Text | PartKind::Thought | PartKind::Encrypted | PartKind::Call => {
                    (&mut told.texts, &mut told.bytes[0])
                }
            };
            let unnamed = PartKey { kind, item: UNNAMED, part: *nth as u64 };
            let key = self.progress.nth(kind, *nth).unwrap_or(unnamed);
            *nth += 1;
            *bytes += text(part.told()).map_or(0, |text| text.inner().len());
            // If the pieces of all parts came as one, nothing is missing.
            if self.progress.given(kind) < *bytes {
                let from = out.list.len();
                self.late(key, part.told(), out);
                if let Some(piece) = out.list.get_mut(from) {
                    piece.list_tokens(part.logprobs);
                }
            }
        });
    }

    /// Adds the encrypted part of reasoning once, in its final form.
    fn encrypted<'a>(&mut self, item: &RawItem<'a>, key: PartKey, out: &mut Pieces<'a>) {
        let Some(content) = filled(item.encrypted_content).filter(|_| !self.progress.is_given(key)) else {
            return;
        };
        self.progress.add(key, content);
        let id = text(item.id).unwrap_or(RawString::EMPTY);
        out.add(Delta::of_signed(SignedPart::Encrypted { id, content }));
    }

    /// Adds the thoughts of an item that showed nothing so far: its content, or else its summary.
    fn thoughts<'a>(&mut self, item: &RawItem<'a>, place: u64, out: &mut Pieces<'a>) {
        let from = out.list.len();
        add_thoughts(item.content, out);
        let is_summary = out.list.len() == from;
        if is_summary {
            add_thoughts(item.summary, out);
        }
        if out.list.len() > from {
            out.odd.add(Oddity::LateOutput);
            self.state.reasoning = Some((place, is_summary));
        }
    }
}

impl<'a> RawPart<'a> {
    fn kind(&self) -> PartKind {
        if word(self.kind) == "refusal" { PartKind::Refusal } else { PartKind::Text }
    }

    /// Returns the text to show.
    fn told(&self) -> Raw<'a> {
        match word(self.kind) {
            "output_text" | "text" | "" => self.text,
            "refusal" => self.refusal,
            _ => None,
        }
    }
}

/// Returns whether the item belongs to a tool that the vendor runs, which other clients do not know.
fn is_of_the_vendor(kind: &str) -> bool {
    kind.ends_with("_call") || kind.ends_with("_output") || kind.starts_with("mcp_") || kind == "compaction"
}

/// Adds the parts of reasoning, with empty lines between them.
fn add_thoughts<'a>(parts: Raw<'a>, out: &mut Pieces<'a>) {
    let mut is_first = true;
    each_part(parts, |part| {
        if let Some(text) = filled(part.text) {
            if !std::mem::take(&mut is_first) {
                out.add(Delta::of_reasoning(EMPTY_LINE));
            }
            out.add(Delta::of_reasoning(text));
        }
    });
}

/// Passes on each part, or a text in place of the list.
fn each_part<'a>(parts: Raw<'a>, mut take: impl FnMut(RawPart<'a>)) {
    let Some(parts) = parts else { return };
    if text(Some(parts)).is_some() {
        return take(RawPart { kind: None, text: Some(parts), refusal: None, logprobs: None });
    }
    // Anything that is not a list has no parts.
    let _ = each_element(parts, |part: &RawValue| {
        if let Some(part) = object(Some(part)) {
            take(part);
        }
        true
    });
}
