//! Bytes as characters. No character is shown before it is whole.

/// Decoder that holds back the bytes of an unfinished character.
#[derive(Default)]
pub(crate) struct Utf8Decoder(Vec<u8>);

impl Utf8Decoder {
    /// Adds bytes and returns the characters that are whole. Bytes that can become no character read as U+FFFD.
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

/// Returns whether these bytes are the beginning of a character, or none at all.
fn may_go_on(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_comes_out_when_its_last_byte_is_in() {
        let mut decoder = Utf8Decoder::default();
        let pieces: Vec<String> = "é🙂a".bytes().map(|byte| decoder.push(&[byte])).collect();
        assert_eq!(pieces, ["", "é", "", "", "", "🙂", "a"]);
    }

    #[test]
    fn bytes_that_are_no_character_read_as_replacements() {
        let mut decoder = Utf8Decoder::default();
        assert_eq!(decoder.push(b"a\xff\xf0\x9f"), "a\u{fffd}");
        assert_eq!(decoder.push(b"b\xc3"), "\u{fffd}b");
        assert_eq!(decoder.push(b"\xa9"), "é");
    }
}
