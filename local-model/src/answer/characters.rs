//! Bytes as characters, none before it is whole.

/// Holds back the bytes of an unfinished character.
#[derive(Default)]
pub(crate) struct Characters(Vec<u8>);

impl Characters {
    /// Adds bytes and returns the characters that are whole. Bytes that can never become one read as U+FFFD.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.0.extend_from_slice(bytes);
        let mut whole = String::new();
        let mut unfinished = Vec::new();
        let mut chunks = self.0.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            whole.push_str(chunk.valid());
            let is_last = chunks.peek().is_none();
            if is_last && may_go_on(chunk.invalid()) {
                unfinished = chunk.invalid().to_vec();
            } else if !chunk.invalid().is_empty() {
                whole.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.0 = unfinished;
        whole
    }
}

/// Whether these bytes are the beginning of a character, or nothing at all.
fn may_go_on(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_comes_out_when_its_last_byte_is_in() {
        let mut characters = Characters::default();
        let pieces: Vec<String> = "é🙂a".bytes().map(|byte| characters.push(&[byte])).collect();
        assert_eq!(pieces, ["", "é", "", "", "", "🙂", "a"]);
    }

    #[test]
    fn bytes_that_are_no_character_read_as_replacements() {
        let mut characters = Characters::default();
        assert_eq!(characters.push(b"a\xff\xf0\x9f"), "a\u{fffd}");
        assert_eq!(characters.push(b"b\xc3"), "\u{fffd}b");
        assert_eq!(characters.push(b"\xa9"), "é");
    }
}
