//! Events of an upstream's stream.

use serde::Deserialize;
use shared::json::RawValue;

use super::{
    FinishReason, Nonsense, Reported,
    parts::{AtMost, Delta, MAX_LISTED_CHOICES, RawString},
};
use crate::domain::{chat::MAX_CHOICES, upstream_error::UpstreamError};

/// One event of an upstream's stream.
pub(crate) enum Event<'a> {
    /// A piece of the answer.
    Chunk(Chunk<'a>),
    /// The upstream failed, with the error that it sent.
    Failed(UpstreamError),
    /// The upstream has nothing more to say.
    Done,
}

/// A piece of the answer, borrowed from its event.
pub(crate) struct Chunk<'a> {
    /// Usage so far, or in all, if the upstream reports it.
    pub(crate) usage: Option<Reported>,
    /// Usage of one choice so far, if the upstream reports it: its place, and the prompt with its own output.
    pub(crate) choice_usage: Option<(usize, Reported)>,
    /// Bytes of the generated text, as JSON spells it. An estimate of its tokens starts from them.
    pub(crate) text_bytes: u64,
    /// Choices that something was generated for: at least as many tokens.
    pub(crate) outputs: u64,
    pub(super) choices: Vec<ChunkChoice<'a>>,
}

/// Part of an answer that a chunk adds to one choice.
pub(super) struct ChunkChoice<'a> {
    pub(super) index: usize,
    pub(super) delta: Delta<'a>,
    pub(super) logprobs: Option<&'a RawValue>,
    pub(super) finish: Option<FinishReason>,
}

#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(borrow)]
    choices: Option<AtMost<RawChoice<'a>, MAX_LISTED_CHOICES>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    timings: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawChoice<'a> {
    index: Option<usize>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    logprobs: Option<&'a RawValue>,
    #[serde(borrow)]
    finish_reason: Option<RawString<'a>>,
}

impl<'a> Event<'a> {
    /// Reads the payload of an event.
    pub(crate) fn read(payload: &'a [u8]) -> Result<Self, Nonsense> {
        if payload.trim_ascii() == b"[DONE]" {
            return Ok(Self::Done);
        }
        let raw: Raw<'_> = serde_json::from_slice(payload)?;
        // Not all errors are wrapped: SGLang's are objects of their own.
        if raw.error.is_some() || raw.object.is_some_and(|object| object.get() == r#""error""#) {
            return Ok(Self::Failed(UpstreamError::read(payload)));
        }
        let mut choices = Vec::with_capacity(1);
        for (place, choice) in raw.choices.unwrap_or_default().0.into_iter().enumerate() {
            let index = choice.index.unwrap_or(place);
            if index >= usize::from(MAX_CHOICES) {
                return Err(Nonsense::Choices);
            }
            let finish = match choice.finish_reason.map(RawString::inner) {
                None | Some("") => None,
                Some(reason) => match FinishReason::read(reason) {
                    Some(reason) => Some(reason),
                    // A reason like `abort`: the generated text is no answer.
                    None => return Ok(Self::Failed(UpstreamError::default())),
                },
            };
            choices.push(ChunkChoice {
                index,
                delta: choice.delta.unwrap_or_default(),
                logprobs: choice.logprobs,
                finish,
            });
        }
        Ok(Self::Chunk(Chunk::new(choices, raw.usage, raw.timings)))
    }
}

impl<'a> Chunk<'a> {
    fn new(choices: Vec<ChunkChoice<'a>>, usage: Option<&RawValue>, timings: Option<&RawValue>) -> Self {
        let (mut text_bytes, mut outputs) = (0, 0);
        for choice in &choices {
            let bytes = choice.delta.added_bytes();
            text_bytes += bytes;
            outputs += u64::from(bytes > 0);
        }
        let timings = timings.and_then(Reported::read_timings);
        let choice_usage = choices.first().map(|choice| choice.index).zip(timings);
        Self { usage: usage.and_then(Reported::read), choice_usage, text_bytes, outputs, choices }
    }

    /// Returns whether something was generated.
    pub(crate) const fn has_output(&self) -> bool {
        self.outputs > 0
    }

    /// Why choices end with this chunk, if any do.
    pub(crate) fn finish_reasons(&self) -> impl Iterator<Item = FinishReason> {
        self.choices.iter().filter_map(|choice| choice.finish)
    }
}
