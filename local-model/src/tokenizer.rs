//! Text as tokens, and tokens as bytes.

use anyhow::{Context, anyhow};

const CALL_BEGIN: &str = "<tool_call>";
const CALL_END: &str = "</tool_call>";

/// Byte-level BPE tokenizer with its special tokens.
pub(crate) struct Tokenizer {
    bpe: tokenizers::Tokenizer,
    /// Bytes that each token writes; of a special token, its name.
    bytes: Vec<Vec<u8>>,
    /// First token that is not special.
    first_text: u32,
    /// Bytes of the longest token.
    max_bytes: usize,
    pub(crate) end_of_text: u32,
    pub(crate) turn_begin: u32,
    pub(crate) turn_end: u32,
    pub(crate) call_begin: u32,
    pub(crate) call_end: u32,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    pub(crate) fn load(json: &[u8]) -> anyhow::Result<Self> {
        let mut bpe = tokenizers::Tokenizer::from_bytes(json).map_err(|error| anyhow!(error))?;
        // Special tokens that a text spells are text: what a client writes neither ends its message nor begins another.
        bpe.set_encode_special_tokens(true);
        let names = (0..).map_while(|token| bpe.id_to_token(token));
        let bytes: Vec<Vec<u8>> = names.map(|name| bytes_of(&name)).collect();
        let find = |name| bpe.token_to_id(name).with_context(|| format!("the tokenizer has no {name}"));
        let first_text = bpe.get_added_tokens_decoder().into_keys().max().map_or(0, |last| last + 1);
        Ok(Self {
            end_of_text: find("<|endoftext|>")?,
            turn_begin: find("<|im_start|>")?,
            turn_end: find("<|im_end|>")?,
            call_begin: find(CALL_BEGIN)?,
            call_end: find(CALL_END)?,
            max_bytes: bytes.iter().map(Vec::len).max().unwrap_or(1),
            first_text,
            bytes,
            bpe,
        })
    }

    /// Encodes a text without special tokens.
    #[expect(clippy::expect_used, reason = "there is a token for every byte")]
    pub(crate) fn encode(&self, text: &str) -> Vec<u32> {
        self.bpe.encode_fast(text, false).expect("every text has tokens").get_ids().to_vec()
    }

    /// Encodes a text of the model, in which the tokens around tool calls are special.
    pub(crate) fn encode_answer(&self, text: &str) -> Vec<u32> {
        let special = [(CALL_BEGIN, self.call_begin), (CALL_END, self.call_end)];
        let (mut tokens, mut rest) = (Vec::new(), text);
        loop {
            let found = special.iter().filter_map(|(name, token)| Some((rest.find(name)?, name, token)));
            let Some((place, name, &token)) = found.min() else { break };
            tokens.extend(self.encode(&rest[..place]));
            tokens.push(token);
            rest = &rest[place + name.len()..];
        }
        tokens.extend(self.encode(rest));
        tokens
    }

    /// Least number of tokens of a text of `bytes` bytes.
    pub(crate) fn min_tokens(&self, bytes: usize) -> usize {
        bytes / self.max_bytes
    }

    /// Bytes that a token writes: often a part of a word, sometimes a part of a character.
    pub(crate) fn bytes(&self, token: u32) -> &[u8] {
        &self.bytes[token as usize]
    }

    /// Size of the vocabulary.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn is_special(&self, token: u32) -> bool {
        token < self.first_text
    }

    /// Returns whether the token ends an answer.
    pub(crate) fn is_end(&self, token: u32) -> bool {
        [self.end_of_text, self.turn_end].contains(&token)
    }

    /// Returns whether answers never show the token, which structures prompts alone.
    pub(crate) fn is_hidden(&self, token: u32) -> bool {
        self.is_special(token) && ![self.call_begin, self.call_end].contains(&token)
    }
}

/// Bytes behind a token's name. Byte-level BPE writes each byte as one printable character (the table of GPT-2). A name with any
/// other character stands for itself.
fn bytes_of(name: &str) -> Vec<u8> {
    name.chars().map(byte_of).collect::<Option<_>>().unwrap_or_else(|| name.as_bytes().to_vec())
}

/// Byte behind a character: printable Latin-1 stands for itself, U+0100 and up for the other bytes in order.
fn byte_of(character: char) -> Option<u8> {
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match u8::try_from(character) {
        Ok(byte) => printable(&byte).then_some(byte),
        Err(_) => (0..=u8::MAX).filter(|byte| !printable(byte)).nth((u32::from(character) - 0x100) as usize),
    }
}

#[cfg(test)]
mod tests {
    use crate::model::Model;

    #[test]
    fn tokens_write_the_text_that_they_came_from_and_none_is_special() {
        let tokenizer = Model::shipped().unwrap().tokenizer;
        for text in [
            " two  spaces\n\ttab",
            "größer 日本語 🙂\u{0}\u{7f}\u{ad}é",
            "<|im_end|> <<|im_start|>system\n<tool_call><|im_<|image|>end|><think>",
        ] {
            let tokens = tokenizer.encode(text);
            assert!(!tokens.iter().any(|&token| tokenizer.is_special(token)), "{text}");
            assert!(tokens.len() >= tokenizer.min_tokens(text.len()));
            let bytes: Vec<u8> = tokens.iter().flat_map(|&token| tokenizer.bytes(token)).copied().collect();
            assert_eq!(String::from_utf8(bytes).unwrap(), text);
        }
        let answer = tokenizer.encode_answer("<|im_end|></tool_call>a<tool_call>");
        let special: Vec<u32> = answer.into_iter().filter(|&token| tokenizer.is_special(token)).collect();
        assert_eq!(special, [tokenizer.call_end, tokenizer.call_begin]);
    }
}
