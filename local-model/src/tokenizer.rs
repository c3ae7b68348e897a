//! Text as tokens, and tokens as bytes.

use anyhow::anyhow;

// Special tokens of the shipped vocabulary, which come before all others. The last of them are of no use here.
pub(crate) const END_OF_TEXT: u32 = 0;
pub(crate) const TURN_END: u32 = 2;
pub(crate) const CALL_BEGIN: u32 = 3;
pub(crate) const CALL_END: u32 = 4;
pub(crate) const FIRST_TEXT: u32 = 10;

pub(crate) struct Tokenizer {
    bpe: tokenizers::Tokenizer,
    special: Vec<String>,
    /// Bytes that each token writes: often a part of a word, sometimes of a character. A special token has those of its
    /// name.
    pub(crate) bytes: Vec<Vec<u8>>,
}

impl Tokenizer {
    /// Loads the shipped vocabulary, which takes some milliseconds.
    pub(crate) fn shipped() -> anyhow::Result<Self> {
        let file = include_bytes!("../weights/tokenizer.json");
        let bpe = tokenizers::Tokenizer::from_bytes(file).map_err(|error| anyhow!(error))?;
        let special = (0..FIRST_TEXT).filter_map(|token| bpe.id_to_token(token)).collect();
        let names = (0..).map_while(|token| bpe.id_to_token(token));
        let bytes = names.map(|name| name.chars().map(byte_of).collect::<Option<_>>().unwrap_or(name.into()));
        Ok(Self { special, bytes: bytes.collect(), bpe })
    }

    /// Encodes a text. Text that spells a special token becomes that token.
    #[expect(clippy::expect_used, reason = "there is a token for every byte")]
    pub(crate) fn encode(&self, text: &str) -> Vec<u32> {
        self.bpe.encode_fast(text, false).expect("every text has tokens").get_ids().to_vec()
    }

    /// Writes a blank into text that spells a special token, so that it neither ends its message nor begins another.
    pub(crate) fn plain(&self, text: &str) -> String {
        let spaced = |text: String, name: &String| text.replace(name, &name.replacen('<', "< ", 1));
        self.special.iter().fold(text.to_owned(), spaced)
    }
}

/// Returns the byte for a character of a token's name: printable Latin-1 stands for itself, and U+0100 and up for the
/// others in order.
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
        let tokenizer = Tokenizer::shipped().unwrap();
        for text in [" two  spaces\n\ttab", "größer 日本語 🙂\u{0}\u{7f}\u{ad}é", "a<tool_call>b"] {
            let bytes =
                tokenizer.encode(text).into_iter().flat_map(|token| tokenizer.bytes[token as usize].clone());
            assert_eq!(String::from_utf8(bytes.collect()).unwrap(), text);
        }
    }

    #[test]
    fn plain_text_has_no_special_token() {
        let tokenizer = Tokenizer::shipped().unwrap();
        for text in
            ["<|im_end|> <<|im_start|>system\n<tool_call>", "<|im_<|image|>end|><think><|<|im_end|>im_end|>"]
        {
            assert!(tokenizer.encode(text).iter().any(|&token| token < FIRST_TEXT), "{text}");
            let plain = tokenizer.encode(&tokenizer.plain(text));
            assert!(plain.into_iter().all(|token| token >= FIRST_TEXT), "{text}");
        }
        assert_eq!(tokenizer.plain("a < b <|c|>"), "a < b <|c|>");
    }

    #[test]
    fn the_special_tokens_are_those_of_the_vocabulary() {
        let tokenizer = Tokenizer::shipped().unwrap();
        for (token, name) in [
            (END_OF_TEXT, "<|endoftext|>"),
            (TURN_END, "<|im_end|>"),
            (CALL_BEGIN, "<tool_call>"),
            (CALL_END, "</tool_call>"),
        ] {
            assert_eq!(tokenizer.bytes[token as usize], name.as_bytes());
        }
        assert_eq!(tokenizer.bpe.get_added_tokens_decoder().into_keys().max(), Some(FIRST_TEXT - 1));
    }
}
