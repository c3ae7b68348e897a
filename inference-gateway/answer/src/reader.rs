//! Reads answers in the API that each upstream was called with. Every answer becomes chat chunks, even one that arrives
//! whole.
//!
//! Tolerance is implemented here: content in any readable form is shown, unreadable content is skipped, and both are
//! counted as oddities. Only broken JSON and answers beyond the bounds are errors.

mod chat;
mod content;
mod ends;
mod messages;
mod pieces;
mod progress;
mod responses;

use shared_catalog::UpstreamApi;

pub(crate) use self::chat::ChatReader;
use self::{messages::MessagesReader, responses::ResponsesReader};
use crate::{
    pieces::{nonsense::Nonsense, oddity::Oddity},
    sse::payload::{Payload, PayloadEnds, is_done},
    stream::{Chunk, Event},
    usage::Reported,
};

/// Reader of a stream's events, or of a whole answer.
pub struct AnswerReader(ApiReader);

enum ApiReader {
    Chat(ChatReader),
    Messages(MessagesReader),
    Responses(ResponsesReader),
}

impl AnswerReader {
    pub fn new(api: UpstreamApi) -> Self {
        Self(match api {
            UpstreamApi::Chat => ApiReader::Chat(ChatReader::of_events()),
            UpstreamApi::Messages => ApiReader::Messages(MessagesReader::default()),
            UpstreamApi::Responses => ApiReader::Responses(ResponsesReader::default()),
        })
    }

    /// Sets the number of choices requested. Some servers split a single requested choice in two.
    #[must_use]
    pub fn of_choices(mut self, choices: u64) -> Self {
        match &mut self.0 {
            ApiReader::Chat(reader) => reader.choices = choices,
            ApiReader::Messages(_) | ApiReader::Responses(_) => {}
        }
        self
    }

    /// Reads a whole answer that is passed on unchanged, with any number of calls.
    #[must_use]
    pub(crate) fn passing(mut self) -> Self {
        match &mut self.0 {
            ApiReader::Chat(_) => {}
            ApiReader::Messages(reader) => reader.progress.passes = true,
            ApiReader::Responses(reader) => reader.progress.passes = true,
        }
        self
    }

    /// Reads the payload of the next event.
    pub fn payload<'a>(&mut self, payload: &'a Payload) -> Result<Event<'a>, Nonsense> {
        match payload {
            Payload::Whole(data) => self.event(data),
            Payload::Body(body) => {
                let mut read = self.event(body)?;
                if let Event::Chunk(chunk) | Event::Failed(_, chunk) = &mut read {
                    chunk.is_whole = true;
                    chunk.odd = chunk.odd.without(&[Oddity::MessageInStream]);
                }
                Ok(read)
            }
            Payload::TooLong(ends) => {
                self.next();
                Ok(self.ends(ends))
            }
        }
    }

    /// Undoes the last event, which will be read again.
    pub fn again(&mut self) {
        match &mut self.0 {
            ApiReader::Chat(reader) => reader.again(),
            ApiReader::Messages(reader) => reader.again(),
            ApiReader::Responses(reader) => reader.again(),
        }
    }

    fn next(&mut self) {
        match &mut self.0 {
            ApiReader::Chat(reader) => reader.next(),
            ApiReader::Messages(reader) => reader.next(),
            ApiReader::Responses(reader) => reader.next(),
        }
    }

    /// Reads the usage and how the answer ended from the two ends of a payload, ignoring its text.
    fn ends<'a>(&self, ends: &'a PayloadEnds) -> Event<'a> {
        match &self.0 {
            ApiReader::Chat(_) => {
                Event::Chunk(Chunk::new(Vec::new(), ends::usage(ends), ends::timings(ends)))
            }
            ApiReader::Messages(_) => Event::Chunk(Chunk::new(Vec::new(), ends::usage(ends), None)),
            ApiReader::Responses(reader) => reader.ends(ends),
        }
    }

    /// Returns the usage in an event that cannot be read.
    pub fn unreadable(&self, payload: &Payload) -> Reported {
        let of_ends = |ends: &PayloadEnds| match self.ends(ends) {
            Event::Chunk(chunk) | Event::Failed(_, chunk) => {
                chunk.usage().unwrap_or_default().max(chunk.timings().unwrap_or_default())
            }
            Event::Done => Reported::default(),
        };
        match payload {
            Payload::Whole(data) | Payload::Body(data) => of_ends(&PayloadEnds::of(data)),
            Payload::TooLong(ends) => of_ends(ends),
        }
    }

    pub fn event<'a>(&mut self, payload: &'a [u8]) -> Result<Event<'a>, Nonsense> {
        self.next();
        match &mut self.0 {
            ApiReader::Chat(reader) => reader.event(payload),
            ApiReader::Messages(_) | ApiReader::Responses(_) if is_done(payload) => Ok(Event::Done),
            ApiReader::Messages(reader) => reader.event(std::str::from_utf8(payload)?),
            ApiReader::Responses(reader) => reader.event(std::str::from_utf8(payload)?),
        }
    }
}
