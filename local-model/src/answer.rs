//! Tokens as an answer: what the client sees of them, piece by piece, and never a piece too early.

mod characters;
mod stops;
mod tool_call;

use std::{mem, sync::Arc};

use self::{characters::Characters, stops::Stops, tool_call::Call};
use crate::{
    dice::Dice,
    vocabulary::{Pair, Vocabulary},
};

/// A part of an answer that will not change any more.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Piece {
    /// Of the answer's text.
    Text(String),
    /// Of what the model thinks before it answers.
    Reasoning(String),
    /// A tool is called. `index` is the call's place in the answer, and by `id` the client will give the result.
    Call { index: usize, id: String, name: String },
    /// More of the arguments of a call: JSON, as the model spells it.
    Arguments { index: usize, text: String },
}

/// An answer in the making.
///
/// It holds back what is not certain: half a character, what may be the beginning of a stop string, the name of a tool
/// until it is whole.
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
    Call(Call),
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

    /// One that begins within a thought, as the prompt opened it.
    pub(crate) fn in_thought(mut self) -> Self {
        self.begin(Part::Reasoning(String::new()));
        self
    }

    /// Adds a token and returns what became certain.
    pub(crate) fn push(&mut self, token: u32) -> Vec<Piece> {
        let (thought, call) = (self.vocabulary.markers.thought, self.vocabulary.markers.call);
        let opens = |pair: Option<Pair>| pair.is_some_and(|pair| pair.open == token);
        let closes = |pair: Option<Pair>| pair.is_some_and(|pair| pair.close == token);
        if opens(thought) || matches!(self.part, Part::Reasoning(_)) {
            self.reasoning_tokens += 1;
        }
        if self.vocabulary.is_for_prompts(token) {
            return Vec::new();
        }
        match &mut self.part {
            Part::Text if opens(thought) => self.begin(Part::Reasoning(String::new())),
            Part::Text if opens(call) && self.tools.is_some() => self.begin_call(),
            Part::Reasoning(_) if closes(thought) => self.begin(Part::Text),
            Part::Call(_) if closes(call) => self.begin(Part::Text),
            Part::Text | Part::Reasoning(_) | Part::Call(_) => {
                let text = self.characters.push(self.vocabulary.bytes(token));
                self.write(text)
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

    /// What was still held back when the answer ended. Half a character is never shown, nor half a tool's name.
    pub(crate) fn finish(&mut self) -> Vec<Piece> {
        text(self.stops.finish()).into_iter().collect()
    }

    /// Turns to another part of the answer.
    fn begin(&mut self, part: Part) -> Vec<Piece> {
        self.characters = Characters::default();
        self.skips_blanks = true;
        self.part = part;
        Vec::new()
    }

    /// What was held back of the text before a call is certain now.
    fn begin_call(&mut self) -> Vec<Piece> {
        let id = self.tools.as_mut().map_or(0, Dice::roll);
        let before = text(self.stops.finish());
        self.begin(Part::Call(Call::new(self.calls, format!("call_{id:016x}"))));
        before.into_iter().collect()
    }

    fn write(&mut self, mut written: String) -> Vec<Piece> {
        if self.skips_blanks {
            written = written.trim_start().to_owned();
            self.skips_blanks = written.is_empty();
        }
        match &mut self.part {
            Part::Text => text(self.stops.push(&written)).into_iter().collect(),
            Part::Reasoning(blanks) => {
                blanks.push_str(&written);
                let certain = blanks.trim_end().len();
                let rest = blanks.split_off(certain);
                let thought = mem::replace(blanks, rest);
                if thought.is_empty() { Vec::new() } else { vec![Piece::Reasoning(thought)] }
            }
            Part::Call(call) => {
                let was_told = call.is_told();
                let pieces = call.push(&written);
                self.calls += usize::from(call.is_told() && !was_told);
                pieces
            }
        }
    }
}

fn text(certain: String) -> Option<Piece> {
    (!certain.is_empty()).then_some(Piece::Text(certain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    /// What the pieces of an answer with this text come to: text, thought, calls as name and arguments.
    fn answer(written: &str, stops: &[&str], tools: bool) -> (String, String, Vec<(String, String)>) {
        let vocabulary = Model::shipped().unwrap().vocabulary;
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
                Piece::Call { index, name, .. } => {
                    assert_eq!(index, calls.len());
                    calls.push((name, String::new()));
                }
                Piece::Arguments { index, text } => calls[index].1.push_str(&text),
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
    fn a_thought_that_the_prompt_opened_is_one() {
        let vocabulary = Model::shipped().unwrap().vocabulary;
        let mut answer = Answer::new(Arc::clone(&vocabulary), Vec::new(), None).in_thought();
        let tokens = vocabulary.encode("12\n</think>\n\n19").unwrap();
        let pieces: Vec<Piece> = tokens.into_iter().flat_map(|token| answer.push(token)).collect();
        let (thought, text): (Vec<_>, Vec<_>) =
            pieces.into_iter().partition(|piece| matches!(piece, Piece::Reasoning(_)));
        assert!(!thought.is_empty() && !text.is_empty());
        assert!(answer.reasoning_tokens() >= 3);
    }

    #[test]
    fn calls_are_kept_apart_from_the_text_before_them() {
        let (text, _, calls) = answer(&format!("Wait.{CALL}\n{CALL}"), &["t.?"], true);
        assert_eq!(text, "Wait.");
        let call = ("find".to_owned(), "{\"q\": \"ü\", \"n\": 2}".to_owned());
        assert_eq!(calls, [call.clone(), call]);
    }

    #[test]
    fn a_call_that_is_cut_off_shows_what_it_had_come_to() {
        let (text, _, calls) = answer(&CALL[..51], &[], true);
        assert_eq!(text, "");
        assert_eq!(calls, [("find".to_owned(), "{\"q\": \"ü".to_owned())]);
        assert_eq!(answer(&CALL[..27], &[], true), (String::new(), String::new(), Vec::new()));
    }

    #[test]
    fn a_call_is_text_where_no_tools_were_offered() {
        assert_eq!(answer(CALL, &[], false).0, CALL);
    }

    #[test]
    fn markers_of_prompts_are_never_shown() {
        assert_eq!(answer("a<|im_start|>b<|image|>c", &[], false).0, "abc");
    }
}
