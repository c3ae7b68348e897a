//! Converts text to tokens, and tokens to bytes: byte-level byte-pair encoding (BPE).

use std::collections::HashMap;

use anyhow::Context;
use regex::Regex;
use serde::Deserialize;

// Special tokens of the shipped vocabulary, which precede all others. The last ones are not used here.
pub(crate) const END_OF_TEXT: u32 = 0;
pub(crate) const TURN_END: u32 = 2;
pub(crate) const CALL_BEGIN: u32 = 3;
pub(crate) const CALL_END: u32 = 4;
pub(crate) const FIRST_TEXT: u32 = 10;

pub(crate) struct Tokenizer {
    /// Matches the names of special tokens.
    special: Regex,
    /// Divides text into words. No token spans two words.
    words: Regex,
    /// Tokens for special names and for single bytes.
    whole: HashMap<Vec<u8>, u32>,
    /// Pairs of tokens that merge: the pair's rank (lower ranks merge first) and the resulting token.
    merges: HashMap<(u32, u32), (usize, u32)>,
    /// Bytes that each token writes: often a part of a word, sometimes a part of a character. A special token writes
    /// its name.
    pub(crate) bytes: Vec<Vec<u8>>,
}

/// The part of `tokenizer.json` that is used.
#[derive(Deserialize)]
struct Vocabulary {
    vocab: HashMap<String, u32>,
    merges: Vec<(String, String)>,
}

impl Tokenizer {
    /// Loads the shipped vocabulary, which takes a few milliseconds.
    pub(crate) fn shipped() -> anyhow::Result<Self> {
        let file: serde_json::Value = serde_json::from_slice(include_bytes!("../weights/tokenizer.json"))?;
        let words = file.pointer("/pre_tokenizer/pretokenizers/0/pattern/Regex");
        let words = Regex::new(words.and_then(|it| it.as_str()).context("no pattern of words")?)?;
        let Vocabulary { vocab, merges } = Vocabulary::deserialize(&file["model"])?;
        let mut names: Vec<(&String, &u32)> = vocab.iter().collect();
        names.sort_by_key(|(_, token)| **token);
        let special: Vec<_> =
            names.iter().take(FIRST_TEXT as usize).map(|(name, _)| regex::escape(name)).collect();
        let bytes = names.iter().map(|(name, _)| name.chars().map(byte_of).collect::<Option<_>>());
        let bytes: Vec<Vec<u8>> =
            bytes.zip(&names).map(|(bytes, (name, _))| bytes.unwrap_or(name.as_bytes().into())).collect();
        let token = |name: &str| vocab.get(name).copied().context("a merge of unknown tokens");
        let merges = merges.iter().enumerate().map(|(rank, (left, right))| {
            Ok(((token(left)?, token(right)?), (rank, token(&format!("{left}{right}"))?)))
        });
        let is_whole = |(token, bytes): &(u32, &Vec<u8>)| *token < FIRST_TEXT || bytes.len() == 1;
        Ok(Self {
            special: Regex::new(&special.join("|"))?,
            words,
            whole: (0..).zip(&bytes).filter(is_whole).map(|(token, bytes)| (bytes.clone(), token)).collect(),
            merges: merges.collect::<anyhow::Result<_>>()?,
            bytes,
        })
    }

    /// Encodes a text. A special token's name in the text becomes that token.
    pub(crate) fn encode(&self, text: &str) -> Vec<u32> {
        let (mut tokens, mut end) = (Vec::new(), 0);
        for name in self.special.find_iter(text) {
            tokens.extend(self.encode_text(&text[end..name.start()]));
            tokens.extend(self.whole.get(name.as_str().as_bytes()));
            end = name.end();
        }
        tokens.extend(self.encode_text(&text[end..]));
        tokens
    }

    /// Encodes a text without special tokens, even if it contains their names.
    pub(crate) fn encode_text(&self, text: &str) -> Vec<u32> {
        self.words.find_iter(text).flat_map(|word| self.encode_word(word.as_str())).collect()
    }

    /// Merges the bytes of a word, starting with the pair of lowest rank.
    fn encode_word(&self, word: &str) -> Vec<u32> {
        let mut tokens: Vec<u32> =
            word.bytes().filter_map(|byte| self.whole.get(&[byte][..])).copied().collect();
        loop {
            let pairs = tokens.windows(2).filter_map(|pair| self.merges.get(&(pair[0], pair[1])));
            let Some(lowest) = pairs.min() else { return tokens };
            let (mut joined, mut rest) = (Vec::with_capacity(tokens.len()), &tokens[..]);
            while let [left, after @ ..] = rest {
                let pair = after.first().and_then(|right| self.merges.get(&(*left, *right)));
                let is_lowest = pair == Some(lowest);
                joined.push(if is_lowest { lowest.1 } else { *left });
                rest = &after[usize::from(is_lowest)..];
            }
            tokens = joined;
        }
    }

    /// Inserts a space into names of special tokens, so that a text can neither end its message nor begin another.
    pub(crate) fn plain(&self, text: &str) -> String {
        let spaced = |name: &regex::Captures<'_>| name[0].replacen('<', "< ", 1);
        self.special.replace_all(text, spaced).into_owned()
    }
}

/// Returns the byte for a character in a token's name: printable Latin-1 characters stand for themselves, and U+0100
/// and up for the other bytes in order.
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

    /// A text, and its tokens as Hugging Face's `tokenizers` library encodes it.
    #[derive(Deserialize)]
    struct Recorded {
        text: String,
        tokens: Vec<u32>,
    }

    #[test]
    fn tokens_are_those_of_the_library_that_the_model_was_trained_with() {
        let tokenizer = Tokenizer::shipped().unwrap();
        let recorded: Vec<Recorded> = serde_json::from_str(include_str!("../tests/tokens.json")).unwrap();
        assert!(recorded.len() > 90);
        for Recorded { text, tokens } in recorded {
            assert_eq!(tokenizer.encode(&text), tokens, "{text:?}");
        }
    }

    #[test]
    fn tokens_write_the_text_that_they_came_from() {
        let tokenizer = Tokenizer::shipped().unwrap();
        for text in [" two  spaces\n\ttab", "größer 日本語 🙂\u{0}\u{7f}\u{ad}é", "a<tool_call>b"] {
            for tokens in [tokenizer.encode(text), tokenizer.encode_text(text)] {
                let bytes = tokens.into_iter().flat_map(|token| tokenizer.bytes[token as usize].clone());
                assert_eq!(String::from_utf8(bytes.collect()).unwrap(), text);
            }
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
            assert!(
                plain.into_iter().chain(tokenizer.encode_text(text)).all(|token| token >= FIRST_TEXT),
                "{text}"
            );
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
        assert!(tokenizer.bytes[FIRST_TEXT as usize..].iter().all(|bytes| !bytes.starts_with(b"<|")));
    }
}
