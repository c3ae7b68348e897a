//! Converts whole answers of any form to chat completions: from other APIs, from streams sent instead of whole answers,
//! and from undocumented forms.

use bytes::Bytes;
use upstream_error::UpstreamError;

use crate::{
    fold::Fold,
    pieces::{
        nonsense::Nonsense,
        oddity::{Oddities, Oddity},
    },
    reader::AnswerReader,
    sse::{Decoder, payload::Payload},
    stream::{Chunk, Event},
    usage::Reported,
};

/// A whole chat completion, for [`crate::Completion::read`].
pub struct Folded {
    pub body: Bytes,
    /// Usage, as far as it was reported.
    pub usage: Reported,
    pub odd: Oddities,
}

/// Why a body contains no answer.
pub enum NoAnswer {
    /// The body is an error.
    Complained(Box<UpstreamError>),
    Nonsense(Nonsense),
}

impl From<Nonsense> for NoAnswer {
    fn from(nonsense: Nonsense) -> Self {
        Self::Nonsense(nonsense)
    }
}

/// What was read of a body so far.
#[derive(Default)]
struct Folding {
    fold: Fold,
    usage: Reported,
    odd: Oddities,
    /// Name of the model that answers, as spelled in JSON.
    model: Option<String>,
    /// Whether the server has sent everything.
    is_done: bool,
    /// Whether usage came last, as it does at the end of a stream.
    is_reported: bool,
}

pub fn whole_as_chat(mut reader: AnswerReader, body: Bytes) -> Result<Folded, NoAnswer> {
    let (mut decoder, mut folding) = (Decoder::of_whole(body), Folding::default());
    for is_ended in [false, true] {
        if is_ended {
            decoder.end();
        }
        while let Some(payload) = decoder.next_data() {
            if folding.is_done {
                break;
            }
            folding.take(&mut reader, &mut decoder, &payload)?;
        }
    }
    folding.is_done |= decoder.is_of_body();
    folding.finish()
}

impl Folding {
    fn take(
        &mut self,
        reader: &mut AnswerReader,
        decoder: &mut Decoder,
        payload: &Payload,
    ) -> Result<(), NoAnswer> {
        if matches!(payload, Payload::TooLong(_)) {
            return Err(Nonsense::Beyond.into());
        }
        self.odd.add_if(Oddity::SseForWhole, !decoder.is_of_body());
        match reader.payload(payload) {
            Ok(Event::Chunk(chunk)) => self.add(&chunk),
            Ok(Event::Done) => self.is_done = true,
            Ok(Event::Failed(error, _)) => return Err(NoAnswer::Complained(Box::new(error))),
            Err(Nonsense::Malformed { .. }) => {
                decoder.repair(payload);
                self.odd.add(Oddity::Frame);
            }
            Err(nonsense) => return Err(nonsense.into()),
        }
        Ok(())
    }

    fn add(&mut self, chunk: &Chunk<'_>) {
        self.odd.join(chunk.odd);
        self.fold.add(chunk);
        let told = chunk.usage().unwrap_or_default().max(chunk.timings().unwrap_or_default());
        self.usage = self.usage.max(told);
        self.is_reported = chunk.is_last_report();
        // A whole answer is complete, with or without a finish reason.
        self.is_done |= chunk.is_whole;
        if self.model.is_none() {
            self.model = chunk.model.map(str::to_owned);
        }
    }

    fn finish(mut self) -> Result<Folded, NoAnswer> {
        if self.is_done || self.is_reported {
            self.odd.add_if(Oddity::FinishMissing, self.fold.end());
        }
        if !self.fold.has_answer() {
            if self.usage.completion.unwrap_or(0) == 0 {
                return Err(Nonsense::Choices.into());
            }
            self.fold.leave_empty();
        }
        let body = self.fold.write(self.model.as_deref())?;
        Ok(Folded { body, usage: self.usage, odd: self.odd })
    }
}
