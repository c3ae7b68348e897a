//! Reads content in all its forms: texts, lists of parts, objects. Used for every API, and for both whole answers and
//! streams.

use raw_json::RawString;
use serde::Deserialize;
use shared::json::{Kind, RawValue, each_element};

use super::pieces::Pieces;
use crate::pieces::{
    loose::{Raw, filled, object, text, word},
    oddity::Oddity,
    parts::{CallArguments, Delta, ToolCall},
};

/// Maximum number of pieces in an event. The rest of a longer list is not read.
const MOST_PIECES: usize = 4096;
/// Maximum nesting of lists and objects within content.
const MOST_LEVELS: u8 = 8;

/// Kinds of text in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextKind {
    Said,
    Thought,
}

/// A part of content, under the names of all vendors.
#[derive(Deserialize)]
struct RawContentPart<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    text: Raw<'a>,
    value: Raw<'a>,
    content: Raw<'a>,
    thinking: Raw<'a>,
    reasoning: Raw<'a>,
    summary: Raw<'a>,
    refusal: Raw<'a>,
    id: Raw<'a>,
    name: Raw<'a>,
    input: Raw<'a>,
}

#[derive(Clone, Copy)]
pub(super) struct ContentPlace {
    pub(super) choice: usize,
    pub(super) kind: TextKind,
}

/// Adds the texts in content that is not itself a text.
pub(super) fn add<'a>(value: &'a RawValue, place: ContentPlace, out: &mut Pieces<'a>) {
    let is_list = Kind::of(value) == Kind::Array;
    out.odd.add(match (place.kind, is_list) {
        (TextKind::Thought, _) => Oddity::ReasoningForm,
        (TextKind::Said, true) => Oddity::ContentList,
        (TextKind::Said, false) => Oddity::ContentType,
    });
    walk(value, place, MOST_LEVELS, out);
}

/// Returns the delta that adds a text of this kind.
pub(super) fn delta(kind: TextKind, text: RawString<'_>) -> Delta<'_> {
    match kind {
        TextKind::Said => Delta::of_text(text),
        TextKind::Thought => Delta::of_reasoning(text),
    }
}

fn walk<'a>(value: &'a RawValue, place: ContentPlace, levels: u8, out: &mut Pieces<'a>) {
    if let Some(text) = RawString::of(value) {
        if !text.is_empty() {
            out.push(place.choice, delta(place.kind, text), None);
        }
        return;
    }
    if levels == 0 {
        return;
    }
    match Kind::of(value) {
        Kind::Array => {
            // The value is valid JSON, so the only possible error is a list that is too long.
            let _ = each_element(value, |element: &RawValue| {
                walk(element, place, levels - 1, out);
                out.list.len() < MOST_PIECES
            });
        }
        Kind::Object => match object::<RawContentPart<'_>>(Some(value)) {
            Some(part) => walk_part(&part, place, levels - 1, out),
            None => out.odd.add(Oddity::Part),
        },
        Kind::Null | Kind::Bool | Kind::Number | Kind::String => {}
    }
}

fn walk_part<'a>(part: &RawContentPart<'a>, place: ContentPlace, levels: u8, out: &mut Pieces<'a>) {
    let thought = ContentPlace { kind: TextKind::Thought, ..place };
    match word(part.kind) {
        "thinking" | "reasoning" | "reasoning.text" | "reasoning_text" | "reasoning.summary"
        | "summary_text" => {
            let told = [part.thinking, part.reasoning, part.text, part.summary, part.content];
            if let Some(value) = told.into_iter().flatten().next() {
                walk(value, thought, levels, out);
            }
        }
        "refusal" => {
            if let Some(refusal) = filled(part.refusal).or(filled(part.text)) {
                out.push(place.choice, Delta::of_refusal(refusal), None);
            }
        }
        "tool_use" | "function_call" | "tool_call" if text(part.name).is_some() => add_call(part, place, out),
        "" | "text" | "output_text" | "input_text" => match part.text.or(part.value).or(part.content) {
            Some(value) => walk(value, place, levels, out),
            None => out.odd.add(Oddity::Part),
        },
        // Parts of unknown types may have members of any type.
        _ => out.odd.add(Oddity::Part),
    }
}

fn add_call<'a>(part: &RawContentPart<'a>, place: ContentPlace, out: &mut Pieces<'a>) {
    out.odd.add(Oddity::OldCall);
    let arguments = part.input.map(CallArguments::of_input);
    let index = out.list.iter().map(|piece| piece.delta.calls().len() as u64).sum();
    let call = ToolCall {
        index: Some(index),
        id: text(part.id),
        name: text(part.name),
        arguments,
        extra_content: None,
    };
    out.push(place.choice, Delta { tool_calls: vec![call], ..Delta::default() }, None);
}
