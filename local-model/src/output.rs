//! Text of an answer, from tokens to deltas that never have to be withdrawn.

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Delta {
    Text(String),
    /// Beginning of a tool call: its position among the calls, its id, with which the client returns the result, and
    /// its name.
    ToolCall(usize, String, String),
    /// Addition to the arguments of the tool call at a position: JSON as the model spells it.
    Arguments(usize, String),
    /// The end of the answer, with the API's name for its reason.
    Finished(&'static str),
}

/// Text in progress. It holds back whatever is not certain yet: an incomplete character, and the possible beginning of
/// a stop string.
#[derive(Default)]
pub(crate) struct TextWriter {
    stops: Vec<String>,
    bytes: Vec<u8>,
    held: String,
    pub(crate) is_stopped: bool,
}

impl TextWriter {
    /// Makes a writer whose text stops before any of `stops`.
    pub(crate) fn new(stops: Vec<String>) -> Self {
        Self { stops, ..Self::default() }
    }

    /// Adds bytes and returns the text that has become certain, which is often empty.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.bytes.extend(bytes);
        let characters = take_characters(&mut self.bytes);
        self.held.push_str(&characters);
        let stop = self.first_stop();
        let end = stop.unwrap_or_else(|| self.before_stop());
        let rest = self.held.split_off(end);
        self.is_stopped = stop.is_some();
        std::mem::replace(&mut self.held, if self.is_stopped { String::new() } else { rest })
    }

    /// Returns the text that was held back, since the text ends. An incomplete character is never shown.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Returns the position of the stop string that is complete first. It does not depend on how the text is divided.
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

/// Takes all complete characters. Invalid bytes become U+FFFD.
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
    use crate::tokenizer::Tokenizer;

    fn shown(written: &str, stops: &[&str]) -> String {
        let tokenizer = Tokenizer::shipped().unwrap();
        let mut writer = TextWriter::new(stops.iter().map(|&stop| stop.to_owned()).collect());
        let mut text = String::new();
        for token in tokenizer.encode(written) {
            text.push_str(&writer.push(&tokenizer.bytes[token as usize]));
            if writer.is_stopped {
                break;
            }
        }
        text + &writer.finish()
    }

    #[test]
    fn a_stop_string_is_never_shown_wherever_tokens_are_cut() {
        assert_eq!(shown(" größer 日本語 🙂\n\n", &[]), " größer 日本語 🙂\n\n");
        assert_eq!(shown("count one two three", &["e tw"]), "count on");
        assert_eq!(shown("count one two three", &["ee!", "zzz", "three"]), "count one two ");
        assert_eq!(shown("count one two three", &["threes"]), "count one two three");
        assert_eq!(shown("aaab", &["aab"]), "a");
        assert_eq!(shown("abc", &["abc", "b"]), "a");
        assert_eq!(shown("größe ö", &["ße"]), "grö");
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
