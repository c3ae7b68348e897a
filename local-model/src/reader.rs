//! The model while it reads and continues the text of one answer.

use local_model_transformer::{CONTEXT_TOKENS, KvCache, Transformer};
use shared::error::ApiError;
use tokio::sync::Mutex;

use crate::{
    sampler::Sampler,
    tokenizer::{FIRST_TEXT, Tokenizer},
};

/// Number of prompt tokens to read per turn: 5 to 15 ms, during which other requests wait. Larger chunks are no faster.
const CHUNK: usize = 32;
/// Maximum number of tokens in a draft.
const MAX_DRAFT: usize = 128;

/// The shipped model, which computes one token at a time.
pub(crate) struct Model {
    transformer: Transformer,
    pub(crate) tokenizer: Tokenizer,
    /// The turn to compute. Requests get turns in the order in which they asked, so that all make progress.
    turn: Mutex<()>,
}

impl Model {
    /// Loads the shipped model, which takes a few milliseconds.
    pub(crate) fn shipped() -> anyhow::Result<Self> {
        let (transformer, tokenizer) = (Transformer::shipped()?, Tokenizer::shipped()?);
        Ok(Self { transformer, tokenizer, turn: Mutex::new(()) })
    }
}

/// Reason why an answer does not continue.
#[derive(Debug)]
pub(crate) enum Halt {
    /// The client has left.
    Left,
    /// The answer ends, with the API's name for the reason.
    Ended(&'static str),
    Refused(ApiError),
}

pub(crate) struct Reader<'a> {
    model: &'a Model,
    sampler: Sampler,
    /// Returns whether the client has left.
    has_left: Box<dyn Fn() -> bool + 'a>,
    cache: KvCache,
    /// The tokens whose keys and values are cached.
    read: Vec<u32>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(model: &'a Model, sampler: Sampler, has_left: Box<dyn Fn() -> bool + 'a>) -> Self {
        Self { model, sampler, has_left, cache: KvCache::default(), read: Vec::new() }
    }

    /// Chooses the token that follows `tokens`; the model has often read their beginning already. Never chooses a token
    /// that is not `allowed`.
    pub(crate) fn next(&mut self, tokens: &[u32], allowed: impl Fn(u32) -> bool) -> Result<u32, Halt> {
        let known = tokens.iter().zip(&self.read).take_while(|(left, right)| left == right).count();
        // The last token is always read, since the logits are the output after it.
        let known = known.min(tokens.len() - 1);
        self.cache.truncate(known);
        self.read.truncate(known);
        let mut logits = Vec::new();
        for chunk in tokens[known..].chunks(CHUNK) {
            let _turn = self.model.turn.blocking_lock();
            if (self.has_left)() {
                return Err(Halt::Left);
            }
            logits = self.model.transformer.forward(chunk, &mut self.cache);
            self.read.extend(chunk);
        }
        for (token, logit) in (0..).zip(&mut logits) {
            if !allowed(token) {
                *logit = f32::NEG_INFINITY;
            }
        }
        Ok(self.sampler.sample(logits))
    }

    /// Counts the tokens of a text.
    pub(crate) fn count(&self, text: &str) -> usize {
        self.model.tokenizer.encode_text(text).len()
    }

    /// Lets the model continue `before` and `text` until `is_enough` accepts what it wrote, and returns that.
    ///
    /// Punctuation at the end of the text may share a token with what follows, as in training. So the model writes that
    /// punctuation again.
    pub(crate) fn draft(
        &mut self,
        before: &[u32],
        text: &str,
        is_enough: impl Fn(&str) -> bool,
    ) -> Result<String, Halt> {
        let vocabulary = &self.model.tokenizer;
        let (text, again) = text.split_at(text.trim_end_matches(|it: char| !it.is_alphanumeric()).len());
        let mut again = again.as_bytes();
        let (mut tokens, mut written) = ([before, &vocabulary.encode_text(text)].concat(), Vec::new());
        for _ in 0..MAX_DRAFT.min(CONTEXT_TOKENS.saturating_sub(tokens.len())) {
            let fits = |token: u32| {
                let bytes = &vocabulary.bytes[token as usize];
                let is_begun = bytes.starts_with(again) || again.starts_with(bytes);
                is_begun && (again.is_empty() || token >= FIRST_TEXT)
            };
            let token = self.next(&tokens, fits)?;
            if token < FIRST_TEXT {
                break;
            }
            tokens.push(token);
            let bytes = &vocabulary.bytes[token as usize];
            let (repeated, new) = bytes.split_at(again.len().min(bytes.len()));
            again = &again[repeated.len()..];
            written.extend(new);
            if again.is_empty() && is_enough(&String::from_utf8_lossy(&written)) {
                break;
            }
        }
        Ok(String::from_utf8_lossy(&written).into_owned())
    }
}
