//! Output parsing: the tokens of an answer as text and tool calls, in deltas that never have to be taken back.

use crate::tokenizer::{CALL_BEGIN, CALL_END, Tokenizer};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Delta {
    Text(String),
    /// Beginning of a tool call: its place among the calls, its name, and the id by which the client returns the
    /// result.
    ToolCall(usize, String, String),
    /// Addition to the arguments of the tool call at a place: JSON, as the model spells it.
    Arguments(usize, String),
    /// The end of the answer, with the API's word for its reason.
    Finished(&'static str),
}

/// Parser of one answer, whose tool calls have the form of the grammar. It holds back whatever is not certain: half a
/// character, the possible beginning of a stop string, half a tool's name.
pub(crate) struct OutputParser {
    stops: Vec<String>,
    /// Number from which ids of tool calls are made. Without offered tools there is none, and calls are text.
    call_ids: Option<u64>,
    pub(crate) calls: usize,
    place: ReadingState,
    bytes: Vec<u8>,
    held: String,
    pub(crate) is_stopped: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadingState {
    Text,
    CallHead,
    Arguments,
    /// Between calls there are only line ends, which are not shown.
    AfterCall,
}

impl OutputParser {
    /// Makes the parser of an answer that ends before any of `stops`. With `call_ids` the answer may hold tool calls.
    pub(crate) fn new(stops: Vec<String>, call_ids: Option<u64>) -> Self {
        let (bytes, held) = (Vec::new(), String::new());
        Self { stops, call_ids, calls: 0, place: ReadingState::Text, bytes, held, is_stopped: false }
    }

    /// Adds a token and returns the delta that is certain now.
    pub(crate) fn push(&mut self, tokenizer: &Tokenizer, token: u32) -> Option<Delta> {
        let in_call = matches!(self.place, ReadingState::CallHead | ReadingState::Arguments);
        match token {
            CALL_BEGIN if !in_call && self.call_ids.is_some() => {
                let before = self.finish();
                (self.place, self.calls) = (ReadingState::CallHead, self.calls + 1);
                before
            }
            CALL_END if in_call => {
                let end = self.held.strip_suffix("}\n").map_or(self.held.len(), str::len);
                self.held.truncate(end);
                let rest = self.finish();
                self.place = ReadingState::AfterCall;
                rest
            }
            written => {
                self.bytes.extend(&tokenizer.bytes[written as usize]);
                let characters = take_characters(&mut self.bytes);
                self.held.push_str(&characters);
                self.certain()
            }
        }
    }

    /// Returns the text that was held back, since the text, the call or the answer ends. Half a character or name is
    /// never shown.
    pub(crate) fn finish(&mut self) -> Option<Delta> {
        self.bytes.clear();
        self.take(self.held.len())
    }

    fn certain(&mut self) -> Option<Delta> {
        match self.place {
            ReadingState::Text => {
                let stop = self.first_stop();
                if let Some(start) = stop {
                    self.is_stopped = true;
                    self.held.truncate(start);
                }
                self.take(stop.unwrap_or_else(|| self.before_stop()))
            }
            ReadingState::CallHead => {
                // No name contains the text after it, since quotes within a name are escaped.
                let (head, arguments) = self.held.split_once("\", \"arguments\": ")?;
                let (_, quoted) = head.split_once("{\"name\": ")?;
                let name = serde_json::from_str(&format!("{quoted}\"")).ok()?;
                (self.held, self.place) = (arguments.to_owned(), ReadingState::Arguments);
                let index = self.calls - 1;
                let id = self.call_ids.unwrap_or_default().wrapping_add(index as u64);
                Some(Delta::ToolCall(index, format!("call_{id:016x}"), name))
            }
            // The text after the arguments may have begun.
            ReadingState::Arguments => self.take(self.held.trim_end_matches(['}', '\n']).len()),
            ReadingState::AfterCall => self.take(self.held.len()),
        }
    }

    fn take(&mut self, length: usize) -> Option<Delta> {
        let rest = self.held.split_off(length);
        let text = std::mem::replace(&mut self.held, rest);
        match self.place {
            _ if text.is_empty() => None,
            ReadingState::Text => Some(Delta::Text(text)),
            ReadingState::Arguments => Some(Delta::Arguments(self.calls - 1, text)),
            ReadingState::CallHead | ReadingState::AfterCall => None,
        }
    }

    /// Place of the stop string that is complete first, which is the same however the text is cut.
    fn first_stop(&self) -> Option<usize> {
        let found = self.stops.iter().filter_map(|stop| Some((self.held.find(stop)?, stop.len())));
        found.min_by_key(|(start, length)| (start + length, *start)).map(|(start, _)| start)
    }

    /// Counts the bytes that can no longer belong to a stop string.
    fn before_stop(&self) -> usize {
        let begins_stop =
            |start: &usize| self.stops.iter().any(|stop| stop.starts_with(&self.held[*start..]));
        let mut starts = self.held.char_indices().map(|(start, _)| start);
        starts.find(begins_stop).unwrap_or(self.held.len())
    }
}

/// Takes the whole characters. Bytes that can become no character read as U+FFFD.
fn take_characters(bytes: &mut Vec<u8>) -> String {
    let last = bytes.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
    let is_unfinished = std::str::from_utf8(last).is_err_and(|error| error.error_len().is_none());
    let end = bytes.len() - if is_unfinished { last.len() } else { 0 };
    let unfinished = bytes.split_off(end);
    let whole = std::mem::replace(bytes, unfinished);
    String::from_utf8_lossy(&whole).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text and tool calls (name and arguments) of an answer.
    fn parse(written: &str, stops: &[&str], tools: bool) -> (String, Vec<(String, String)>) {
        let tokenizer = Tokenizer::shipped().unwrap();
        let mut parser =
            OutputParser::new(stops.iter().map(|&stop| stop.to_owned()).collect(), tools.then_some(1));
        let mut deltas = Vec::new();
        for token in tokenizer.encode(written) {
            deltas.extend(parser.push(&tokenizer, token));
            if parser.is_stopped {
                break;
            }
        }
        deltas.extend(parser.finish());
        let (mut text, mut calls) = (String::new(), Vec::new());
        for delta in deltas {
            match delta {
                Delta::Text(more) => text.push_str(&more),
                Delta::ToolCall(index, id, name) => {
                    assert_eq!((index, id), (calls.len(), format!("call_{:016x}", index + 1)));
                    calls.push((name, String::new()));
                }
                Delta::Arguments(index, text) => calls[index].1.push_str(&text),
                Delta::Finished(reason) => panic!("the parser knows no {reason}"),
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
        assert_eq!(parse("aaab", &["aab"], false).0, "a");
        assert_eq!(parse("abc", &["abc", "b"], false).0, "a");
        assert_eq!(parse("größe ö", &["ße"], false).0, "grö");
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
    fn names_and_arguments_may_hold_what_stands_around_them() {
        let arguments = r#"{"q": "}\"{", "in": {"n": [1, {}]}, "ü": {}}"#;
        let call =
            format!("<tool_call>\n{{\"name\": \"a\\\", \\\"b\", \"arguments\": {arguments}}}\n</tool_call>");
        assert_eq!(parse(&call, &[], true).1, [("a\", \"b".to_owned(), arguments.to_owned())]);
    }

    #[test]
    fn a_tool_call_that_is_cut_shows_what_it_had_come_to() {
        let find = |arguments: &str| vec![("find".to_owned(), arguments.to_owned())];
        assert_eq!(parse(&CALL[..51], &[], true), (String::new(), find("{\"q\": \"ü")));
        assert_eq!(parse(&CALL[..52], &[], true), (String::new(), find("{\"q\": \"ü}")));
        assert_eq!(parse(&CALL[..27], &[], true), (String::new(), Vec::new()));
    }

    #[test]
    fn a_character_comes_out_when_its_last_byte_is_in() {
        let mut bytes = Vec::new();
        let mut push = |more: &[u8]| {
            bytes.extend(more);
            take_characters(&mut bytes)
        };
        let pieces: Vec<String> = "é🙂a".bytes().map(|byte| push(&[byte])).collect();
        assert_eq!(pieces, ["", "é", "", "", "", "🙂", "a"]);
        assert_eq!(push(b"a\xff\xf0\x9f"), "a\u{fffd}");
        assert_eq!(push(b"b\xc3"), "\u{fffd}b");
        assert_eq!(push(b"\xa9"), "é");
    }
}
