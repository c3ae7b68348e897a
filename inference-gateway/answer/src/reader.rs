//! Reads answers of upstreams in the API by which each was asked. All become chunks, or a completion, of chat.

mod calls;
mod ends;
mod messages;
mod pieces;
mod responses;

use bytes::Bytes;
use shared_catalog::UpstreamApi;

use crate::{
    fold::{Fold, WholeAnswer},
    nonsense::Nonsense,
    sse::payload::{Payload, PayloadEnds},
    stream::{Chunk, Event},
    usage::Reported,
};
use messages::MessagesReader;
pub(super) use pieces::Pieces;
use responses::ResponsesReader;

/// Reader of a stream's events.
pub struct AnswerReader(ApiReader);

enum ApiReader {
    Chat,
    Messages(MessagesReader),
    Responses(ResponsesReader),
}

impl AnswerReader {
    pub fn new(api: UpstreamApi) -> Self {
        Self(match api {
            UpstreamApi::Chat => ApiReader::Chat,
            UpstreamApi::Messages => ApiReader::Messages(MessagesReader::default()),
            UpstreamApi::Responses => ApiReader::Responses(ResponsesReader::default()),
        })
    }

    /// Reads the payload of the next event, or of the last one again.
    pub fn payload<'a>(&mut self, payload: &'a Payload) -> Result<Event<'a>, Nonsense> {
        match payload {
            Payload::Whole(data) => self.event(data),
            Payload::TooLong(ends) => Ok(self.ends(ends)),
        }
    }

    /// Reads the usage from the ends of a payload, and whether the answer ends. Its text is left out.
    fn ends<'a>(&self, ends: &'a PayloadEnds) -> Event<'a> {
        match &self.0 {
            ApiReader::Chat => Event::Chunk(Chunk::new(Vec::new(), ends::usage(ends), ends::timings(ends))),
            ApiReader::Messages(_) => Event::Chunk(Chunk::new(Vec::new(), ends::usage(ends), None)),
            ApiReader::Responses(reader) => reader.ends(ends),
        }
    }

    /// Returns the usage that an unreadable event reports.
    pub fn unreadable(&self, payload: &Payload) -> Reported {
        let of_ends = |ends: &PayloadEnds| match self.ends(ends) {
            Event::Chunk(chunk) | Event::Failed(_, chunk) => {
                chunk.usage().unwrap_or_default().max(chunk.timings().unwrap_or_default())
            }
            Event::Done => Reported::default(),
        };
        match payload {
            Payload::Whole(data) => of_ends(&PayloadEnds::of(data)),
            Payload::TooLong(ends) => of_ends(ends),
        }
    }

    /// Reads a payload that is whole.
    pub fn event<'a>(&mut self, payload: &'a [u8]) -> Result<Event<'a>, Nonsense> {
        match &mut self.0 {
            ApiReader::Chat => Event::read(payload),
            // Some servers end every stream as chat streams end.
            ApiReader::Messages(_) | ApiReader::Responses(_) if payload.trim_ascii() == b"[DONE]" => {
                Ok(Event::Done)
            }
            ApiReader::Messages(reader) => reader.event(std::str::from_utf8(payload)?),
            ApiReader::Responses(reader) => reader.event(std::str::from_utf8(payload)?),
        }
    }
}

/// Reads a whole answer of another API than chat, and passes its pieces to `take`.
pub(super) fn read_whole<'a>(
    api: UpstreamApi,
    body: &'a str,
    take: Pieces<'_>,
) -> Result<WholeAnswer<'a>, Nonsense> {
    match api {
        UpstreamApi::Messages => messages::whole(body, take),
        UpstreamApi::Responses => responses::whole(body, take),
        // `Completion` reads answers of chat itself.
        UpstreamApi::Chat => Err(Nonsense::Choices),
    }
}

/// Turns a whole answer into one of chat, which [`crate::whole::Completion::read`] reads. The usage stays as the upstream
/// spelled it.
pub fn whole_as_chat(api: UpstreamApi, body: Bytes) -> Result<Bytes, Nonsense> {
    if api == UpstreamApi::Chat {
        return Ok(body);
    }
    let mut fold = Fold::default();
    let answer =
        read_whole(api, std::str::from_utf8(&body)?, &mut |delta, logprobs| fold.add_piece(delta, logprobs))?;
    fold.into_whole(&answer)
}
