//! Text as tokens, and tokens as bytes.

use tokenizers::Tokenizer;

use crate::weights::{LoadError, TOKENIZER};

/// The tokenizer, with the tokens that mean something to the program.
pub(crate) struct Vocabulary {
    tokenizer: Tokenizer,
    /// What each token writes.
    bytes: Vec<Vec<u8>>,
    pub(crate) markers: Markers,
}

/// The tokens that structure an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Markers {
    pub(crate) end_of_text: u32,
    pub(crate) start_of_turn: u32,
    pub(crate) end_of_turn: u32,
    pub(crate) open_call: u32,
    pub(crate) close_call: u32,
    pub(crate) open_thought: u32,
    pub(crate) close_thought: u32,
    pub(crate) image: u32,
    pub(crate) open_image: u32,
    pub(crate) close_image: u32,
}

/// What opens a tool call in an answer's text.
pub(crate) const OPEN_CALL: &str = "<tool_call>";
/// What closes it.
pub(crate) const CLOSE_CALL: &str = "</tool_call>";

impl Vocabulary {
    /// The vocabulary that is shipped in the program.
    pub(crate) fn shipped() -> Result<Self, LoadError> {
        let tokenizer =
            Tokenizer::from_bytes(TOKENIZER).map_err(|error| LoadError::Tokenizer(error.to_string()))?;
        let markers = Markers::find(&tokenizer)?;
        let bytes =
            (0..).map_while(|token| tokenizer.id_to_token(token)).map(|name| bytes_of(&name)).collect();
        Ok(Self { tokenizer, bytes, markers })
    }

    /// The tokens of a text. The markers are recognised in it.
    pub(crate) fn encode(&self, text: &str) -> tokenizers::Result<Vec<u32>> {
        Ok(self.tokenizer.encode_fast(text, false)?.get_ids().to_vec())
    }

    /// What a token writes: often a part of a word, sometimes a part of a character.
    pub(crate) fn bytes(&self, token: u32) -> &[u8] {
        &self.bytes[token as usize]
    }

    /// There are so many tokens.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}

impl Markers {
    fn find(tokenizer: &Tokenizer) -> Result<Self, LoadError> {
        let find = |name: &str| {
            tokenizer.token_to_id(name).ok_or_else(|| LoadError::Tokenizer(format!("it has no token {name}")))
        };
        Ok(Self {
            end_of_text: find("<|endoftext|>")?,
            start_of_turn: find("<|im_start|>")?,
            end_of_turn: find("<|im_end|>")?,
            open_call: find(OPEN_CALL)?,
            close_call: find(CLOSE_CALL)?,
            open_thought: find("<think>")?,
            close_thought: find("</think>")?,
            image: find("<|image|>")?,
            open_image: find("<|vision_start|>")?,
            close_image: find("<|vision_end|>")?,
        })
    }

    /// Whether the answer is complete with this token.
    pub(crate) fn ends_answer(self, token: u32) -> bool {
        token == self.end_of_turn || token == self.end_of_text
    }

    /// Whether this token has a meaning in prompts only, so that an answer never shows it.
    pub(crate) fn is_for_prompts(self, token: u32) -> bool {
        [self.start_of_turn, self.image, self.open_image, self.close_image].contains(&token)
    }
}

/// The bytes behind a token's name. Byte-level BPE writes each byte as one printable character (the table of GPT-2);
/// a name with any other character is a marker and stands for itself.
fn bytes_of(name: &str) -> Vec<u8> {
    name.chars().map(byte_of).collect::<Option<_>>().unwrap_or_else(|| name.as_bytes().to_vec())
}

/// Printable Latin-1 stands for itself; the other bytes, in order, for the characters from U+0100 on.
fn byte_of(character: char) -> Option<u8> {
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match u8::try_from(character) {
        Ok(byte) => printable(&byte).then_some(byte),
        Err(_) => (0..=u8::MAX).filter(|byte| !printable(byte)).nth((u32::from(character) - 0x100) as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_write_the_text_that_they_came_from() {
        let vocabulary = Vocabulary::shipped().unwrap();
        for text in [
            "Hello, world!",
            " two  spaces\n\ttab",
            "größer 日本語 🙂",
            "\u{0}\u{7f}\u{ad}é",
            "<tool_call>{}</tool_call>",
        ] {
            let tokens = vocabulary.encode(text).unwrap();
            let bytes: Vec<u8> = tokens.iter().flat_map(|&token| vocabulary.bytes(token)).copied().collect();
            assert_eq!(String::from_utf8(bytes).unwrap(), text);
        }
    }

    #[test]
    fn no_token_writes_more_than_a_long_word() {
        let vocabulary = Vocabulary::shipped().unwrap();
        // So a context holds 64 kB at the very most, and a prompt of several times that is certainly too long.
        assert!(vocabulary.bytes.iter().all(|bytes| bytes.len() <= 32));
    }

    #[test]
    fn every_row_of_the_embeddings_has_a_token() {
        let shape = crate::weights::Shape::shipped().unwrap();
        assert_eq!(Vocabulary::shipped().unwrap().len(), shape.vocab_size);
    }
}
