//! Meters a stream that becomes a whole answer. The gateway requests a stream because some servers report usage per
//! choice only in streams.

use answer::{AnswerReader, Decoder, Event, Fold, Nonsense, Oddities, Oddity, Payload};
use bytes::Bytes;
use upstream_error::UpstreamError;

use crate::usage::UsageCounter;

/// The meter of a stream that becomes a whole answer.
pub struct FoldMeter {
    decoder: Decoder,
    reader: AnswerReader,
    counter: UsageCounter,
    /// The answer so far; `None` once it is no longer kept.
    fold: Option<Fold>,
    choices: u64,
    unknown_finish: Option<String>,
    is_finished: bool,
    /// Whether the last event reported the usage, as at the end of a stream.
    is_reported: bool,
    /// Whether an event was too long to keep.
    is_too_long: bool,
    odd: Oddities,
}

/// The end of the stream.
pub enum FoldEnd {
    /// The upstream has sent everything.
    Complete,
    /// The upstream reported an error.
    Complained(UpstreamError),
    /// The upstream sent an invalid answer; the reason is for the log.
    Broken(String),
}

impl FoldMeter {
    /// Meters a stream of `choices`, from its beginning.
    pub fn new(reader: AnswerReader, counter: UsageCounter, choices: u64) -> Self {
        let (decoder, fold) = (Decoder::default(), Some(Fold::default()));
        Self {
            decoder,
            reader,
            counter,
            fold,
            choices,
            unknown_finish: None,
            is_finished: false,
            is_reported: false,
            is_too_long: false,
            odd: Oddities::default(),
        }
    }

    /// Reads the upstream's next bytes.
    pub fn push(&mut self, piece: Bytes) -> Option<FoldEnd> {
        self.decoder.push(piece);
        self.read()
    }

    fn read(&mut self) -> Option<FoldEnd> {
        loop {
            let data = self.decoder.next_data()?;
            if matches!(data, Payload::TooLong(_)) {
                // The text is lost, so the answer is counted but not delivered.
                self.is_too_long = true;
                self.forget_texts();
            }
            match self.reader.payload(&data) {
                Ok(Event::Chunk(chunk)) => {
                    self.odd.join(chunk.odd);
                    self.odd.add_if(Oddity::WholeForStream, chunk.is_whole());
                    self.counter.count_chunk(&chunk);
                    self.is_reported = chunk.is_last_report();
                    if let Some(unknown) = chunk.unknown_finish {
                        self.unknown_finish.get_or_insert_with(|| unknown.to_owned());
                    }
                    if let Some(fold) = &mut self.fold {
                        fold.add(&chunk);
                        self.is_finished = fold.is_finished(self.choices);
                    }
                }
                Ok(Event::Done) => {
                    self.end_choices();
                    return Some(FoldEnd::Complete);
                }
                Ok(Event::Failed(error, _)) => return Some(FoldEnd::Complained(error)),
                // What follows was generated too, so it is counted but not delivered.
                Err(Nonsense::Beyond) => self.forget_texts(),
                Err(Nonsense::Malformed { .. }) => {
                    self.odd.add(Oddity::Frame);
                    self.decoder.repair(&data);
                }
                Err(nonsense) => return Some(FoldEnd::Broken(nonsense.to_string())),
            }
        }
    }

    /// Ends the stream at the end of the upstream's body. The blank line after the last event may be missing.
    pub fn upstream_ended(&mut self) -> FoldEnd {
        self.decoder.end();
        let end = self.read();
        if end.is_none() && (self.decoder.is_of_body() || self.is_reported) {
            self.end_choices();
        }
        end.unwrap_or(FoldEnd::Complete)
    }

    /// Ends the choices without a finish reason, since the upstream has sent everything.
    fn end_choices(&mut self) {
        let Some(fold) = &mut self.fold else { return };
        self.odd.add_if(Oddity::FinishMissing, fold.end());
        if !fold.has_answer() && self.counter.reported().completion > Some(0) {
            fold.leave_empty();
        }
    }

    /// Returns whether every requested choice has its finish reason, so that only usage may be missing.
    pub const fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Returns whether the answer was not kept because one of its events is too long.
    pub const fn is_too_long(&self) -> bool {
        self.is_too_long
    }

    pub fn held_bytes(&self) -> usize {
        self.decoder.held_bytes() + self.fold.as_ref().map_or(0, Fold::held_bytes)
    }

    /// Drops the texts, since the answer cannot be delivered. What follows is still counted.
    pub fn forget_texts(&mut self) {
        self.fold = None;
    }

    /// Returns the first finish reason that no known server sends, if there was one.
    pub fn unknown_finish(&self) -> Option<&str> {
        self.unknown_finish.as_deref()
    }

    /// Returns the oddities in the answer.
    pub const fn oddities(&self) -> Oddities {
        self.odd
    }

    pub const fn counter(&self) -> &UsageCounter {
        &self.counter
    }

    /// Returns the whole answer; `None` if it was not kept.
    pub fn take_answer(&mut self) -> Option<Result<Bytes, Nonsense>> {
        self.fold.take().map(Fold::into_answer)
    }
}
