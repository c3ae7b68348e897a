//! Events of an upstream's stream.

use raw_json::RawString;
use reply::MAX_CHOICES;
use serde::Deserialize;
use shared::{
    generation::FinishReason,
    json::{Kind, RawValue, from_slice},
};
use upstream_error::UpstreamError;

use crate::{
    nonsense::Nonsense,
    pieces::{
        finish::FinishWord,
        logprobs::listed_tokens,
        parts::{AtMost, Delta, MAX_LISTED_CHOICES, OutputSize},
    },
    sse::payload::is_too_deep,
    usage::{ReportForm, Reported},
};

/// The event that a chunk was read from, with the members that writers of the same API need.
#[derive(Clone, Copy)]
pub(super) struct Original<'a> {
    pub(super) payload: &'a str,
    /// Type of the event, as spelled in JSON without quotes.
    pub(super) kind: &'a str,
    pub(super) number: Option<&'a RawValue>,
    pub(super) index: Option<&'a RawValue>,
    pub(super) edited: Edited<'a>,
    pub(super) item: Option<&'a RawValue>,
    pub(super) id: Option<RawString<'a>>,
    pub(super) delta: Option<&'a RawValue>,
}

/// Parts of an event or an answer that are edited, each as a slice of the text.
#[derive(Clone, Copy, Default)]
pub(super) struct Edited<'a> {
    /// The message or the response that an event describes.
    pub(super) object: Option<&'a str>,
    pub(super) model: Option<&'a str>,
    pub(super) usage: Option<&'a str>,
}

/// An event of an upstream's stream.
pub enum Event<'a> {
    Chunk(Chunk<'a>),
    /// The upstream failed, with this error, in a chunk whose text is no answer. The chunk's usage still counts.
    Failed(UpstreamError, Chunk<'a>),
    /// The upstream has sent everything.
    Done,
}

/// A piece of the answer, borrowed from an event.
pub struct Chunk<'a> {
    /// Name of the model that answers, as spelled in JSON.
    model: Option<&'a str>,
    usage: Option<&'a RawValue>,
    timings: Option<&'a RawValue>,
    /// Place of the only choice that the chunk adds to.
    pub choice: Option<usize>,
    /// A finish reason that no known server uses.
    pub unknown_finish: Option<&'a str>,
    /// The event itself, for APIs whose events can be passed on. `None` if it is too long or nested too deeply.
    pub(super) original: Option<Original<'a>>,
    pub(super) choices: Vec<ChunkChoice<'a>>,
}

/// Part of an answer that a chunk adds to a choice.
pub(super) struct ChunkChoice<'a> {
    pub(super) index: usize,
    pub(super) delta: Delta<'a>,
    pub(super) logprobs: Option<&'a RawValue>,
    pub(super) finish: Option<FinishReason>,
    /// Sequence that ended the choice, from servers that report it.
    pub(super) stop: Option<RawString<'a>>,
    /// Size of the output that the chunk adds.
    size: OutputSize,
}

#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(borrow)]
    choices: Option<AtMost<RawChoice<'a>, MAX_LISTED_CHOICES>>,
    model: Option<&'a RawValue>,
    usage: Option<&'a RawValue>,
    timings: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
    object: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawChoice<'a> {
    index: Option<usize>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    logprobs: Option<&'a RawValue>,
    finish_reason: Option<RawString<'a>>,
    /// The sequence or token that ended the choice, as vLLM reports it.
    stop_reason: Option<&'a RawValue>,
    /// The same, as SGLang reports it.
    matched_stop: Option<&'a RawValue>,
}

impl<'a> Event<'a> {
    /// Reads the payload of an event.
    pub fn read(payload: &'a [u8]) -> Result<Self, Nonsense> {
        if payload.trim_ascii() == b"[DONE]" {
            return Ok(Self::Done);
        }
        let raw: Raw<'_> = from_slice(payload)?;
        let (usage, timings) = (raw.usage, raw.timings);
        // SGLang sends error objects without a wrapper.
        if raw.error.is_some() || raw.object.is_some_and(|object| object.get() == r#""error""#) {
            return Ok(Self::Failed(UpstreamError::read(payload), Chunk::new(Vec::new(), usage, timings)));
        }
        let mut choices = Vec::with_capacity(1);
        let (mut failed, mut unknown_finish) = (false, None);
        for (place, choice) in raw.choices.unwrap_or_default().0.into_iter().enumerate() {
            let index = choice.index.unwrap_or(place);
            if index >= usize::from(MAX_CHOICES) {
                return Err(Nonsense::Choices);
            }
            let reason = choice.finish_reason.map(RawString::inner).filter(|reason| !reason.is_empty());
            let word = reason.map(FinishWord::read);
            failed |= word == Some(FinishWord::Failure);
            unknown_finish = unknown_finish.or(reason.filter(|_| word == Some(FinishWord::Unknown)));
            choices.push(ChunkChoice {
                index,
                finish: word.and_then(FinishWord::reason),
                stop: choice.stop_reason.or(choice.matched_stop).and_then(RawString::of),
                ..ChunkChoice::of(choice.delta.unwrap_or_default(), choice.logprobs)
            });
        }
        let model = raw.model.map(RawValue::get);
        let chunk = Chunk { model, unknown_finish, ..Chunk::new(choices, usage, timings) };
        // After a reason like `abort`, the generated text is no answer.
        Ok(if failed { Self::Failed(UpstreamError::default(), chunk) } else { Self::Chunk(chunk) })
    }

    /// Makes the end of the only choice, with the upstream's word for it.
    pub(super) fn end(word: &'a str, stop: Option<RawString<'a>>, usage: Option<&'a RawValue>) -> Self {
        let read = FinishWord::read(word);
        let choice = ChunkChoice { finish: read.reason(), stop, ..ChunkChoice::of(Delta::default(), None) };
        let unknown_finish = (read == FinishWord::Unknown).then_some(word);
        let chunk = Chunk { unknown_finish, ..Chunk::new(vec![choice], usage, None) };
        match read {
            FinishWord::Known(_) | FinishWord::Unknown => Self::Chunk(chunk),
            FinishWord::Failure => Self::Failed(UpstreamError::default(), chunk),
        }
    }

    /// Lets writers of the same API pass the event on, unless it is nested too deeply.
    pub(super) fn with_original(mut self, original: Original<'a>) -> Self {
        match &mut self {
            Self::Chunk(chunk) => {
                chunk.model = original.edited.model;
                chunk.original = Some(original).filter(|event| !is_too_deep(event.payload));
            }
            Self::Failed(..) | Self::Done => {}
        }
        self
    }

    /// Makes a piece of the only choice, or an event that adds nothing.
    pub(super) fn piece(delta: Option<Delta<'a>>) -> Self {
        let choices = delta.map(|delta| ChunkChoice::of(delta, None)).into_iter().collect();
        Self::Chunk(Chunk::new(choices, None, None))
    }
}

impl<'a> ChunkChoice<'a> {
    /// Makes a piece of the first choice, which goes on.
    pub(super) fn of(delta: Delta<'a>, logprobs: Option<&'a RawValue>) -> Self {
        let size = OutputSize { bytes: delta.added_bytes(), listed_tokens: listed_tokens(logprobs) };
        Self { index: 0, delta, logprobs, finish: None, stop: None, size }
    }
}

impl<'a> Chunk<'a> {
    pub(super) fn new(
        choices: Vec<ChunkChoice<'a>>,
        usage: Option<&'a RawValue>,
        timings: Option<&'a RawValue>,
    ) -> Self {
        let first = choices.first().map(|choice| choice.index);
        Self {
            model: None,
            usage: usage.filter(|usage| Kind::of(usage) != Kind::Null),
            timings,
            choice: first.filter(|first| choices.iter().all(|choice| choice.index == *first)),
            unknown_finish: None,
            original: None,
            choices,
        }
    }

    /// Reads the usage so far, or in all, if the chunk reports any.
    pub fn usage(&self) -> Option<Reported> {
        self.usage.map(|usage| Reported::read(ReportForm::Usage, usage))
    }

    /// Reads the name of the model that answers, if the chunk names one.
    pub fn model(&self) -> Option<String> {
        serde_json::from_str(self.model?).ok()
    }

    /// Reads the usage so far of a single choice, if the chunk reports any.
    pub fn timings(&self) -> Option<Reported> {
        self.timings.map(|timings| Reported::read(ReportForm::Timings, timings))
    }

    /// Returns whether the chunk adds to no choice, like one at the end of a stream that only has usage.
    pub const fn is_without_choices(&self) -> bool {
        self.choices.is_empty()
    }

    /// Lists the sizes of what was generated, each with the place of its choice: at least one token each.
    pub fn outputs(&self) -> impl Iterator<Item = (usize, OutputSize)> {
        self.choices.iter().map(|choice| (choice.index, choice.size)).filter(|(_, size)| !size.is_empty())
    }

    /// Returns whether something was generated.
    pub fn has_output(&self) -> bool {
        self.outputs().next().is_some()
    }

    /// Lists why choices end with this chunk, if any do.
    pub fn finish_reasons(&self) -> impl Iterator<Item = FinishReason> {
        self.choices.iter().filter_map(|choice| choice.finish)
    }
}
