//! Events of an upstream's stream.

use raw_json::RawString;
use shared::{
    generation::FinishReason,
    json::{Kind, RawValue},
};
use upstream_error::UpstreamError;

use crate::{
    pieces::{
        finish::FinishWord,
        logprobs::listed_tokens,
        oddity::{Oddities, Oddity},
        parts::{Delta, OutputSize},
    },
    sse::payload::is_too_deep,
    usage::{ReportForm, Reported},
};

/// The event that a chunk was read from, with the members that writers in the same API need.
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

/// Parts of an event or an answer to edit, each a slice of the text.
#[derive(Clone, Copy, Default)]
pub(super) struct Edited<'a> {
    /// The message or response within the event.
    pub(super) object: Option<&'a str>,
    pub(super) model: Option<&'a str>,
    pub(super) usage: Option<&'a str>,
}

/// An event of an upstream's stream.
pub enum Event<'a> {
    Chunk(Chunk<'a>),
    /// The upstream failed with this error. The chunk's text is no answer, but its usage counts.
    Failed(UpstreamError, Chunk<'a>),
    /// The upstream has sent everything.
    Done,
}

/// A piece of the answer, borrowed from an event.
pub struct Chunk<'a> {
    /// Name of the model that answers, as spelled in JSON.
    pub(super) model: Option<&'a str>,
    usage: Option<&'a RawValue>,
    timings: Option<&'a RawValue>,
    /// Index of the only choice that the chunk adds to.
    pub choice: Option<usize>,
    /// An unknown finish reason, as the upstream wrote it.
    pub unknown_finish: Option<&'a str>,
    pub odd: Oddities,
    /// Whether the chunk is a whole answer.
    pub(super) is_whole: bool,
    /// The event itself, if its API's events can be passed on. `None` if it is too long or nested too deeply.
    pub(super) original: Option<Original<'a>>,
    pub(super) choices: Vec<ChunkChoice<'a>>,
}

/// What a chunk adds to one choice.
pub(super) struct ChunkChoice<'a> {
    pub(super) index: usize,
    pub(super) delta: Delta<'a>,
    pub(super) logprobs: Option<&'a RawValue>,
    pub(super) finish: Option<FinishReason>,
    /// Stop sequence that ended the choice, from servers that report it.
    pub(super) stop: Option<RawString<'a>>,
    /// Size of the output that the chunk adds.
    size: OutputSize,
}

impl<'a> Event<'a> {
    /// Returns the end of the only choice, with the upstream's word for the reason.
    pub(super) fn end(word: &'a str, stop: Option<RawString<'a>>, usage: Option<&'a RawValue>) -> Self {
        let read = FinishWord::read(word);
        let choice = ChunkChoice { finish: read.reason(), stop, ..ChunkChoice::of(Delta::default(), None) };
        let unknown_finish = (read == FinishWord::Unknown).then_some(word);
        let mut chunk = Chunk { unknown_finish, ..Chunk::new(vec![choice], usage, None) };
        chunk.odd.add_if(Oddity::FinishUnknown, unknown_finish.is_some());
        match read {
            FinishWord::Known(_) | FinishWord::Unknown => Self::Chunk(chunk),
            FinishWord::Failure => Self::Failed(UpstreamError::default(), chunk),
        }
    }

    /// Attaches the original event, so that it can be passed on unless it is nested too deeply.
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

    /// Returns an event without additions.
    pub(super) fn nothing() -> Self {
        Self::Chunk(Chunk::new(Vec::new(), None, None))
    }
}

impl<'a> ChunkChoice<'a> {
    pub(super) fn list_tokens(&mut self, logprobs: Option<&'a RawValue>) {
        self.logprobs = logprobs;
        self.size.listed_tokens = listed_tokens(logprobs);
    }

    /// Returns the piece with another delta.
    pub(super) fn with_delta<'b>(&self, delta: Delta<'b>) -> ChunkChoice<'b>
    where
        'a: 'b,
    {
        let Self { index, delta: _, logprobs, finish, stop, size } = *self;
        ChunkChoice { index, delta, logprobs, finish, stop, size }
    }

    /// Returns a piece that comes after the finish reason, reduced to its texts. The earlier finish reason remains
    /// valid.
    pub(super) fn after_end(&self) -> Option<Self> {
        let Delta { content, refusal, reasoning, .. } = self.delta;
        let has_text = [content, refusal, reasoning].into_iter().flatten().any(|text| !text.is_empty());
        let delta = Delta { content, refusal, reasoning, ..Delta::default() };
        has_text.then(|| Self { finish: None, ..self.with_delta(delta) })
    }

    /// Returns an unfinished piece of the first choice.
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
            odd: Oddities::default(),
            is_whole: false,
            original: None,
            choices,
        }
    }

    /// Returns the chunk with other pieces.
    pub(super) fn with_choices<'b>(&self, choices: Vec<ChunkChoice<'b>>) -> Chunk<'b>
    where
        'a: 'b,
    {
        let Self { model, usage, timings, choice, unknown_finish, odd, is_whole, original, choices: _ } =
            *self;
        Chunk { model, usage, timings, choice, unknown_finish, odd, is_whole, original, choices }
    }

    /// Inserts pieces before the chunk's own.
    pub(super) fn prepend(&mut self, mut list: Vec<ChunkChoice<'a>>, odd: Oddities) {
        self.odd.join(odd);
        list.append(&mut self.choices);
        self.choice = list.first().map(|first| first.index);
        self.choices = list;
    }

    /// Reads the usage in the chunk: so far, or in total.
    pub fn usage(&self) -> Option<Reported> {
        self.usage.map(|usage| Reported::read(ReportForm::Usage, usage))
    }

    pub fn model(&self) -> Option<String> {
        serde_json::from_str(self.model?).ok()
    }

    /// Reads the usage so far of a single choice, if the chunk reports any.
    pub fn timings(&self) -> Option<Reported> {
        self.timings.map(|timings| Reported::read(ReportForm::Timings, timings))
    }

    /// Returns whether the chunk adds to no choice, such as a last chunk with only usage.
    pub const fn is_without_choices(&self) -> bool {
        self.choices.is_empty()
    }

    /// Returns whether the chunk only reports the usage, as at the end of a stream.
    pub fn is_last_report(&self) -> bool {
        self.is_without_choices() && self.usage().is_some_and(|usage| usage.completion > Some(0))
    }

    pub const fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Lists the size of each addition with the index of its choice. Each is at least one token.
    pub fn outputs(&self) -> impl Iterator<Item = (usize, OutputSize)> {
        self.choices.iter().map(|choice| (choice.index, choice.size)).filter(|(_, size)| !size.is_empty())
    }

    /// Returns whether something was generated.
    pub fn has_output(&self) -> bool {
        self.outputs().next().is_some()
    }

    /// Lists the finish reasons in this chunk.
    pub fn finish_reasons(&self) -> impl Iterator<Item = FinishReason> {
        self.choices.iter().filter_map(|choice| choice.finish)
    }
}
