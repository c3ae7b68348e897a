//! Joins characters that a stream cuts in two. JSON spells a character beyond U+FFFF as two escapes, and some servers
//! send the two in separate pieces. A client that decodes each piece alone would read two replacement characters.

use raw_json::RawString;

use crate::pieces::parts::{CallArguments, Delta, ToolCall};
use crate::stream::{Chunk, ChunkChoice};

/// Maximum number of halves to keep. A text of a choice ends with at most one half.
const MOST_HALVES: usize = 64;

/// Names the text of a choice that a piece extends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextOf {
    Content,
    Refusal,
    Reasoning,
    /// Arguments of the call with this index.
    Call(u64),
}

/// First halves of characters. Each is kept with the index of its choice, and with the text that it ends.
#[derive(Default)]
pub(crate) struct Halves(Vec<(usize, TextOf, String)>);

/// The texts of a piece, as JSON strings. Each begins with the half that was kept of the same text, if any.
#[derive(Default)]
struct Joined {
    texts: [Option<String>; 3],
    arguments: Vec<Option<String>>,
}

impl Halves {
    /// Returns whether a chunk contains no half characters, so that it can be written unchanged.
    pub(crate) fn are_none_in(&self, chunk: &Chunk<'_>) -> bool {
        let ends_with_half = |text: &RawString<'_>| text.cut_half().is_some();
        let has_half = |delta: &Delta<'_>| {
            let arguments = delta.calls().iter().filter_map(ToolCall::arguments);
            [delta.content, delta.refusal, delta.reasoning]
                .into_iter()
                .flatten()
                .chain(arguments)
                .any(|text| ends_with_half(&text))
        };
        self.0.is_empty() && !chunk.choices.iter().any(|choice| has_half(&choice.delta))
    }

    /// Calls `write` with a chunk that has only whole characters, and keeps the halves at the ends of its texts.
    pub(crate) fn joined<R>(&mut self, chunk: &Chunk<'_>, write: impl FnOnce(&Chunk<'_>) -> R) -> R {
        let joined: Vec<Joined> = chunk.choices.iter().map(|choice| self.join(choice)).collect();
        let choices = chunk.choices.iter().zip(&joined).map(|(choice, joined)| joined.piece(choice));
        write(&chunk.with_choices(choices.collect()))
    }

    fn join(&mut self, choice: &ChunkChoice<'_>) -> Joined {
        let (index, delta) = (choice.index, &choice.delta);
        let texts = [
            (TextOf::Content, delta.content),
            (TextOf::Refusal, delta.refusal),
            (TextOf::Reasoning, delta.reasoning),
        ];
        let is_last = choice.finish.is_some();
        let texts = texts.map(|(of, text)| self.text(index, of, text, is_last));
        let calls = delta.calls().iter().enumerate();
        let arguments = calls
            .map(|(place, call)| self.text(index, TextOf::Call(call.index(place)), call.arguments(), false));
        Joined { texts, arguments: arguments.collect() }
    }

    /// Puts the kept half in front of a text, and removes the half at the text's end. Returns `None` if the text stays
    /// unchanged.
    fn text(
        &mut self,
        choice: usize,
        of: TextOf,
        text: Option<RawString<'_>>,
        is_last: bool,
    ) -> Option<String> {
        let is_of_text = |(at, known, _): &(usize, TextOf, String)| (*at, *known) == (choice, of);
        let kept = self.0.iter().position(is_of_text).filter(|_| is_last || text.is_some());
        let before = kept.map(|at| self.0.swap_remove(at).2);
        let after = text.and_then(RawString::cut_half).filter(|_| !is_last && self.0.len() < MOST_HALVES);
        if before.is_none() && after.is_none() {
            return None;
        }
        let text = text.map_or("", RawString::inner);
        let text = after.map_or(text, |(text, half)| {
            self.0.push((choice, of, half.to_owned()));
            text
        });
        Some(format!("\"{}{text}\"", before.unwrap_or_default()))
    }
}

impl Joined {
    fn piece<'a>(&'a self, choice: &'a ChunkChoice<'_>) -> ChunkChoice<'a> {
        let [content, refusal, reasoning] = self.texts.each_ref().map(Option::as_ref);
        let old = &choice.delta;
        let calls = old.calls().iter().zip(&self.arguments).map(|(call, joined)| ToolCall {
            arguments: or(joined.as_ref(), call.arguments()).map(CallArguments::Text),
            ..call.without_arguments()
        });
        let delta = Delta {
            content: or(content, old.content),
            refusal: or(refusal, old.refusal),
            reasoning: or(reasoning, old.reasoning),
            tool_calls: calls.collect(),
            reasoning_details: old.reasoning_details,
            extra_content: old.extra_content,
            parts: old.parts,
            signed: old.signed,
        };
        choice.with_delta(delta)
    }
}

fn or<'a>(joined: Option<&'a String>, otherwise: Option<RawString<'a>>) -> Option<RawString<'a>> {
    joined.map(|joined| RawString::trusted(joined)).or(otherwise)
}
