//! Output parsing: the tokens of an answer as text and tool calls, in deltas that never have to be taken back.

mod stop_strings;
mod tool_call;
mod utf8;

use std::sync::Arc;

use rand::{Rng, SeedableRng, rngs::StdRng};

use self::{stop_strings::StopStrings, tool_call::PartialToolCall, utf8::Utf8Decoder};
use crate::tokenizer::Tokenizer;

/// Addition to an answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Delta {
    Text(String),
    /// Beginning of the tool call at place `index` of the answer. The client gives the result by `id`.
    ToolCall {
        index: usize,
        id: String,
        name: String,
    },
    /// Addition to the arguments of a tool call: JSON, as the model spells it.
    Arguments {
        index: usize,
        text: String,
    },
}

/// Parser of one answer.
///
/// Text that is not certain is held back: half a character, the possible beginning of a stop string, half a tool's name.
pub(crate) struct OutputParser {
    tokenizer: Arc<Tokenizer>,
    utf8: Utf8Decoder,
    stops: StopStrings,
    /// Source of the ids of tool calls. Where no tools were offered there is none, and calls are text.
    ids: Option<StdRng>,
    calls: usize,
    /// Tool call that is being written.
    call: Option<PartialToolCall>,
    /// True behind a tool call, where the prompt's format has a line end that is not shown.
    skips_blanks: bool,
}

impl OutputParser {
    /// Makes the parser of an answer that ends before any of `stops`. With `id_seed` the answer may hold tool calls.
    pub(crate) fn new(tokenizer: Arc<Tokenizer>, stops: Vec<String>, id_seed: Option<u64>) -> Self {
        Self {
            tokenizer,
            utf8: Utf8Decoder::default(),
            stops: StopStrings::new(stops),
            ids: id_seed.map(StdRng::seed_from_u64),
            calls: 0,
            call: None,
            skips_blanks: false,
        }
    }

    /// Adds a token and returns the deltas that are certain now.
    pub(crate) fn push(&mut self, token: u32) -> Vec<Delta> {
        if self.tokenizer.is_hidden(token) {
            return Vec::new();
        }
        if self.call.is_some() && token == self.tokenizer.call_end {
            return self.end_call();
        }
        if self.call.is_none() && token == self.tokenizer.call_begin && self.ids.is_some() {
            return self.begin_call();
        }
        let mut written = self.utf8.push(self.tokenizer.bytes(token));
        if let Some(call) = &mut self.call {
            return call.push(&written);
        }
        if self.skips_blanks {
            written = written.trim_start().to_owned();
            self.skips_blanks = written.is_empty();
        }
        text(self.stops.push(&written))
    }

    /// Returns whether a stop string ended the answer.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stops.is_hit()
    }

    /// Returns whether the answer has tool calls.
    pub(crate) fn has_calls(&self) -> bool {
        self.calls > 0
    }

    /// Returns the text held back, as the answer ends. Half a character is never shown, nor half a tool's name.
    pub(crate) fn finish(&mut self) -> Vec<Delta> {
        let mut deltas = text(self.stops.finish());
        deltas.extend(self.call.take().and_then(|call| call.finish(false)));
        deltas
    }

    fn begin_call(&mut self) -> Vec<Delta> {
        let id: u64 = self.ids.as_mut().map_or(0, Rng::random);
        self.call = Some(PartialToolCall::new(self.calls, format!("call_{id:016x}")));
        self.calls += 1;
        self.utf8 = Utf8Decoder::default();
        // The text before a call is certain now.
        text(self.stops.finish())
    }

    fn end_call(&mut self) -> Vec<Delta> {
        self.utf8 = Utf8Decoder::default();
        self.skips_blanks = true;
        self.call.take().and_then(|call| call.finish(true)).into_iter().collect()
    }
}

fn text(certain: String) -> Vec<Delta> {
    if certain.is_empty() { Vec::new() } else { vec![Delta::Text(certain)] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    /// Text and tool calls (name and arguments) of an answer.
    fn parse(written: &str, stops: &[&str], tools: bool) -> (String, Vec<(String, String)>) {
        let tokenizer = Model::shipped().unwrap().tokenizer;
        let stops = stops.iter().map(|&stop| stop.to_owned()).collect();
        let mut parser = OutputParser::new(Arc::clone(&tokenizer), stops, tools.then_some(1));
        let mut deltas = Vec::new();
        for token in tokenizer.encode_answer(written) {
            deltas.extend(parser.push(token));
            if parser.is_stopped() {
                break;
            }
        }
        deltas.extend(parser.finish());
        let (mut text, mut calls) = (String::new(), Vec::new());
        for delta in deltas {
            match delta {
                Delta::Text(more) => text.push_str(&more),
                Delta::ToolCall { index, name, .. } => {
                    assert_eq!(index, calls.len());
                    calls.push((name, String::new()));
                }
                Delta::Arguments { index, text } => calls[index].1.push_str(&text),
            }
        }
        (text, calls)
    }

    const CALL: &str =
        "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"q\": \"ü}\", \"n\": {}}}\n</tool_call>";

    #[test]
    fn a_stop_string_is_never_shown_wherever_tokens_are_cut() {
        assert_eq!(parse(" größer 日本語 🙂\n\n", &[], true).0, " größer 日本語 🙂\n\n");
        assert_eq!(parse("count one two three", &["e tw"], false).0, "count on");
        assert_eq!(parse("count one two three", &["ee!", "zzz", "three"], false).0, "count one two ");
        assert_eq!(parse("count one two three", &["threes"], false).0, "count one two three");
    }

    #[test]
    fn tool_calls_are_kept_apart_from_the_text_before_them() {
        let (text, calls) = parse(&format!("Wait.{CALL}\n{CALL}"), &["t.?"], true);
        assert_eq!(text, "Wait.");
        let call = ("find".to_owned(), "{\"q\": \"ü}\", \"n\": {}}".to_owned());
        assert_eq!(calls, [call.clone(), call]);
        assert_eq!(parse(CALL, &[], false).0, CALL, "without tools a call is text");
    }

    #[test]
    fn a_tool_call_that_is_cut_shows_what_it_had_come_to() {
        let find = |arguments: &str| vec![("find".to_owned(), arguments.to_owned())];
        assert_eq!(parse(&CALL[..51], &[], true), (String::new(), find("{\"q\": \"ü")));
        assert_eq!(parse(&CALL[..52], &[], true), (String::new(), find("{\"q\": \"ü}")));
        assert_eq!(parse(&CALL[..27], &[], true), (String::new(), Vec::new()));
    }
}
