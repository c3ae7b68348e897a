//! Tokens as an answer: what the client sees of them, piece by piece, and never a piece too early.

mod characters;
mod stops;
mod tool_call;

use std::{mem, sync::Arc};

pub(crate) use tool_call::ToolCall;

use self::{characters::Characters, stops::Stops};
use crate::{
    dice::Dice,
    vocabulary::{CLOSE_CALL, OPEN_CALL, Vocabulary},
};

/// A part of an answer that will not change any more.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Piece {
    /// Of the answer's text.
    Text(String),
    /// Of what the model thinks before it answers.
    Reasoning(String),
    /// One whole call of a tool.
    ToolCall(ToolCall),
}

/// An answer in the making.
///
/// It holds back what is not certain: half a character, what may be the beginning of a stop string, a tool call until
/// it is complete.
pub(crate) struct Answer {
    vocabulary: Arc<Vocabulary>,
    characters: Characters,
    stops: Stops,
    /// Tool calls are recognised only where tools were offered; elsewhere their markers are text.
    tools: Option<Dice>,
    calls: usize,
    part: Part,
    /// White space is skipped until something else came: the template puts line ends around thoughts and calls.
    skips_blanks: bool,
    reasoning_tokens: usize,
}

/// Where in the answer the next token belongs.
enum Part {
    Text,
    /// With the white space at its end, which is dropped if nothing follows.
    Reasoning(String),
    /// With what the call says so far.
    Call(String),
}

impl Answer {
    /// An answer that ends before any of `stops`. With `tools` it may call tools, and the dice name the calls.
    pub(crate) fn new(vocabulary: Arc<Vocabulary>, stops: Vec<String>, tools: Option<Dice>) -> Self {
        Self {
            vocabulary,
            characters: Characters::default(),
            stops: Stops::new(stops),
            tools,
            calls: 0,
            part: Part::Text,
            skips_blanks: false,
            reasoning_tokens: 0,
        }
    }

    /// Adds a token and returns what became certain.
    pub(crate) fn push(&mut self, token: u32) -> Vec<Piece> {
        let markers = self.vocabulary.markers;
        if token == markers.open_thought || matches!(self.part, Part::Reasoning(_)) {
            self.reasoning_tokens += 1;
        }
        if markers.is_for_prompts(token) {
            return Vec::new();
        }
        match self.part {
            Part::Text if token == markers.open_thought => self.begin(Part::Reasoning(String::new())),
            Part::Text if token == markers.open_call && self.tools.is_some() => {
                self.begin(Part::Call(String::new()))
            }
            Part::Reasoning(_) if token == markers.close_thought => self.begin(Part::Text),
            Part::Call(_) if token == markers.close_call => self.close_call(),
            Part::Text | Part::Reasoning(_) | Part::Call(_) => {
                let text = self.characters.push(self.vocabulary.bytes(token));
                self.write(text).into_iter().collect()
            }
        }
    }

    /// Whether a stop string ended the answer.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stops.is_hit()
    }

    /// Whether the answer calls tools.
    pub(crate) fn has_calls(&self) -> bool {
        self.calls > 0
    }

    /// So many tokens were spent on thinking, its markers included.
    pub(crate) fn reasoning_tokens(&self) -> usize {
        self.reasoning_tokens
    }

    /// What was still held back when the model ended the answer. Half a character is never shown.
    pub(crate) fn finish(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        if let Part::Call(unfinished) = mem::replace(&mut self.part, Part::Text) {
            pieces.extend(self.write(format!("{OPEN_CALL}{unfinished}")));
        }
        pieces.extend(text(self.stops.finish()));
        pieces
    }

    /// Turns to another part of the answer.
    fn begin(&mut self, part: Part) -> Vec<Piece> {
        self.characters = Characters::default();
        self.skips_blanks = true;
        self.part = part;
        Vec::new()
    }

    fn write(&mut self, mut written: String) -> Option<Piece> {
        if self.skips_blanks && !matches!(self.part, Part::Call(_)) {
            written = written.trim_start().to_owned();
            self.skips_blanks = written.is_empty();
        }
        match &mut self.part {
            Part::Text => text(self.stops.push(&written)),
            Part::Reasoning(blanks) => {
                blanks.push_str(&written);
                let certain = blanks.trim_end().len();
                let rest = blanks.split_off(certain);
                let thought = mem::replace(blanks, rest);
                (!thought.is_empty()).then_some(Piece::Reasoning(thought))
            }
            Part::Call(call) => {
                call.push_str(&written);
                None
            }
        }
    }

    /// A call that is well-formed is a call; any other is text, as the model wrote it.
    fn close_call(&mut self) -> Vec<Piece> {
        let Part::Call(written) = mem::replace(&mut self.part, Part::Text) else { return Vec::new() };
        let Some(dice) = &mut self.tools else { return Vec::new() };
        match ToolCall::parse(&written, self.calls, dice) {
            Some(call) => {
                self.calls += 1;
                let mut pieces: Vec<_> = text(self.stops.finish()).into_iter().collect();
                pieces.push(Piece::ToolCall(call));
                self.begin(Part::Text);
                pieces
            }
            None => self.write(format!("{OPEN_CALL}{written}{CLOSE_CALL}")).into_iter().collect(),
        }
    }
}

fn text(certain: String) -> Option<Piece> {
    (!certain.is_empty()).then_some(Piece::Text(certain))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the pieces of an answer with this text come to: text, thought, calls.
    fn answer(written: &str, stops: &[&str], tools: bool) -> (String, String, Vec<ToolCall>) {
        let vocabulary = Arc::new(Vocabulary::shipped().unwrap());
        let stops = stops.iter().map(|&stop| stop.to_owned()).collect();
        let mut answer = Answer::new(Arc::clone(&vocabulary), stops, tools.then(|| Dice::new(1)));
        let (mut text, mut thought, mut calls) = (String::new(), String::new(), Vec::new());
        let mut pieces = Vec::new();
        for token in vocabulary.encode(written).unwrap() {
            pieces.extend(answer.push(token));
            if answer.is_stopped() {
                break;
            }
        }
        pieces.extend(answer.finish());
        for piece in pieces {
            match piece {
                Piece::Text(more) => text.push_str(&more),
                Piece::Reasoning(more) => thought.push_str(&more),
                Piece::ToolCall(call) => calls.push(call),
            }
        }
        (text, thought, calls)
    }

    const CALL: &str =
        "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"q\": \"ü\", \"n\": 2}}\n</tool_call>";

    #[test]
    fn text_comes_out_as_it_was_written() {
        let written = " größer 日本語 🙂\n\n";
        assert_eq!(answer(written, &[], true), (written.to_owned(), String::new(), Vec::new()));
    }

    #[test]
    fn a_stop_string_is_never_shown_wherever_tokens_are_cut() {
        assert_eq!(answer("count one two three", &["e tw"], false).0, "count on");
        assert_eq!(answer("count one two three", &["ee!", "zzz", "three"], false).0, "count one two ");
        assert_eq!(answer("count one two three", &["threes"], false).0, "count one two three");
    }

    #[test]
    fn thoughts_are_kept_apart_and_trimmed() {
        let (text, thought, _) =
            answer("<think>\n12 + 7\n is 19.\n</think>\n\n12 + 7 = 19", &["12 + 7\n"], false);
        assert_eq!((text.as_str(), thought.as_str()), ("12 + 7 = 19", "12 + 7\n is 19."));
    }

    #[test]
    fn calls_are_whole_and_numbered() {
        let (text, _, calls) = answer(&format!("Wait.{CALL}\n{CALL}"), &[], true);
        assert_eq!(text, "Wait.");
        assert_eq!(calls.iter().map(|call| call.index).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(calls[0].name, "find");
        assert_eq!(calls[0].arguments, "{\"q\": \"ü\", \"n\": 2}");
        assert_ne!(calls[0].id, calls[1].id);
    }

    #[test]
    fn a_call_is_text_where_no_tools_were_offered_or_where_it_is_malformed() {
        assert_eq!(answer(CALL, &[], false).0, CALL);
        let malformed = "<tool_call>\n{\"name\": \"find\"}\n</tool_call>";
        assert_eq!(answer(malformed, &[], true).0, malformed);
        let unfinished = "<tool_call>\n{\"name\": ";
        assert_eq!(answer(unfinished, &[], true).0, unfinished);
    }

    #[test]
    fn markers_of_prompts_are_never_shown() {
        assert_eq!(answer("a<|im_start|>b<|image|>c", &[], false).0, "abc");
    }
}
