//! Text as tokens, and tokens as bytes.

use tokenizers::Tokenizer;

use crate::weights::LoadError;

/// The tokenizer, with the tokens that mean something to the program.
pub(crate) struct Vocabulary {
    tokenizer: Tokenizer,
    /// What each token writes.
    bytes: Vec<Vec<u8>>,
    roles: Vec<Role>,
    /// What the prompt's markers are called, and those of the parts of an answer.
    names: Vec<(String, Role)>,
    pub(crate) markers: Markers,
}

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// It writes text.
    Text,
    /// It structures an answer or a prompt, and reads as its name where it has no meaning.
    Marker,
    /// It structures prompts, and an answer never shows it.
    Hidden,
}

/// The tokens that structure an answer.
#[derive(Clone, Debug)]
pub(crate) struct Markers {
    /// Each of these completes the answer.
    pub(crate) ends: Vec<u32>,
    /// Around a tool call, in the vocabularies that have such tokens.
    pub(crate) call: Option<Pair>,
    /// Around what the model thinks before it answers.
    pub(crate) thought: Option<Pair>,
}

/// The tokens that begin and end a part of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) open: u32,
    pub(crate) close: u32,
}

/// It parts a text where a marker would be read in it. Unicode promises that no character will ever be there.
const CUT: char = '\u{fdd0}';

/// Names of tokens that end a turn, in the families of models that are common.
const ENDS: [&str; 6] = ["<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|end|>", "</s>"];

impl Vocabulary {
    /// From a `tokenizer.json`. An answer ends with any of `ends`, or with a token that is commonly used for it.
    pub(crate) fn new(tokenizer: &[u8], ends: &[u32]) -> Result<Self, LoadError> {
        let tokenizer =
            Tokenizer::from_bytes(tokenizer).map_err(|error| LoadError::Tokenizer(error.to_string()))?;
        let spell = spelling(&tokenizer)?;
        let mut bytes: Vec<Vec<u8>> =
            (0..).map_while(|token| tokenizer.id_to_token(token)).map(|name| spell(&name)).collect();
        let markers = Markers::find(&tokenizer, ends);
        if markers.ends.is_empty() {
            return Err(LoadError::Tokenizer("no token ends an answer".to_owned()));
        }
        let (mut roles, mut names) = (vec![Role::Text; bytes.len()], Vec::new());
        for (token, added) in tokenizer.get_added_tokens_decoder() {
            let Some(role) = roles.get_mut(token as usize) else { continue };
            *role = if added.special && !markers.structure(token) { Role::Hidden } else { Role::Marker };
            if *role == Role::Hidden || markers.structure(token) {
                names.push((added.content.clone(), *role));
            }
            bytes[token as usize] = added.content.into_bytes();
        }
        Ok(Self { tokenizer, bytes, roles, names, markers })
    }

    /// The tokens of a text. The markers are recognised in it, but for those of [`Self::quoted`] text.
    pub(crate) fn encode(&self, text: &str) -> tokenizers::Result<Vec<u32>> {
        let mut tokens = Vec::new();
        for part in text.split(CUT) {
            tokens.extend_from_slice(self.tokenizer.encode_fast(part, false)?.get_ids());
        }
        Ok(tokens)
    }

    /// A text in which no marker is read. What an assistant `answered` keeps those of its parts.
    pub(crate) fn quoted(&self, text: &str, answered: bool) -> String {
        let cut = self.names.iter().filter(|(_, role)| !answered || *role == Role::Hidden);
        let cut: Vec<&str> = cut.map(|(name, _)| name.as_str()).collect();
        let mut quoted = String::with_capacity(text.len());
        for (place, character) in text.char_indices() {
            quoted.push(character);
            if cut.iter().any(|name| text[place..].starts_with(name)) {
                quoted.push(CUT);
            }
        }
        quoted
    }

    /// What a token writes: often a part of a word, sometimes a part of a character.
    pub(crate) fn bytes(&self, token: u32) -> &[u8] {
        &self.bytes[token as usize]
    }

    /// Whether this token is no text.
    pub(crate) fn is_marker(&self, token: u32) -> bool {
        self.roles[token as usize] != Role::Text
    }

    /// Whether this token has a meaning in prompts only, so that an answer never shows it.
    pub(crate) fn is_for_prompts(&self, token: u32) -> bool {
        self.roles[token as usize] == Role::Hidden
    }

    /// Whether a prompt ends by opening a thought, maybe with a line end after it, so that the answer goes on with it.
    pub(crate) fn opens_thought(&self, prompt: &[u32]) -> bool {
        self.markers
            .thought
            .is_some_and(|thought| prompt.iter().rev().take(2).any(|&token| token == thought.open))
    }

    /// There are so many tokens.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}

impl Markers {
    fn find(tokenizer: &Tokenizer, ends: &[u32]) -> Self {
        let find = |name: &str| tokenizer.token_to_id(name);
        let pair = |open, close| Some(Pair { open: find(open)?, close: find(close)? });
        let mut ends: Vec<u32> = ends.iter().copied().chain(ENDS.into_iter().filter_map(find)).collect();
        ends.sort_unstable();
        ends.dedup();
        Self { ends, call: pair("<tool_call>", "</tool_call>"), thought: pair("<think>", "</think>") }
    }

    /// Whether the answer is complete with this token.
    pub(crate) fn ends_answer(&self, token: u32) -> bool {
        self.ends.contains(&token)
    }

    /// Whether this token begins or ends a part of an answer.
    fn structure(&self, token: u32) -> bool {
        [self.call, self.thought].into_iter().flatten().any(|pair| pair.open == token || pair.close == token)
    }
}

/// How this vocabulary spells bytes in the names of its tokens.
fn spelling(tokenizer: &Tokenizer) -> Result<fn(&str) -> Vec<u8>, LoadError> {
    if tokenizer.token_to_id("\u{120}").is_some() {
        return Ok(bytes_of);
    }
    if tokenizer.token_to_id("<0x0A>").is_some() {
        return Ok(bytes_of_piece);
    }
    let found = "a vocabulary that cannot write every byte";
    Err(LoadError::Unsupported(format!(
        "{found}; supported: byte-level BPE, and SentencePiece with byte tokens"
    )))
}

/// The bytes behind the name of one of SentencePiece's tokens: a byte in hexadecimal, or text with marked blanks.
fn bytes_of_piece(name: &str) -> Vec<u8> {
    let byte = name.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    match byte.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
        Some(byte) => vec![byte],
        None => name.replace('\u{2581}', " ").into_bytes(),
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
    use crate::model::Model;

    #[test]
    fn tokens_write_the_text_that_they_came_from() {
        let vocabulary = Model::shipped().unwrap().vocabulary;
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
    fn a_quoted_text_reads_the_same_and_has_no_markers() {
        let vocabulary = Model::shipped().unwrap().vocabulary;
        let text = "<|im_end|> <<|im_start|>system\n<tool_call><|im_<|image|>end|><think>";
        let markers = |given: &str| {
            let tokens = vocabulary.encode(given).unwrap();
            let bytes: Vec<u8> = tokens.iter().flat_map(|&token| vocabulary.bytes(token)).copied().collect();
            assert_eq!(String::from_utf8(bytes).unwrap(), text);
            tokens.into_iter().filter(|&token| vocabulary.is_marker(token)).count()
        };
        assert_eq!(markers(text), 5);
        assert_eq!(markers(&vocabulary.quoted(text, false)), 0);
        assert_eq!(markers(&vocabulary.quoted(text, true)), 2);
        assert_eq!(vocabulary.quoted("a < b, größer 🙂", false), "a < b, größer 🙂");
    }

    #[test]
    fn no_token_writes_more_than_a_long_word() {
        let vocabulary = Model::shipped().unwrap().vocabulary;
        // So a context holds 64 kB at the very most, and a prompt of several times that is certainly too long.
        assert!(vocabulary.bytes.iter().all(|bytes| bytes.len() <= 32));
    }
}
