//! Answers of upstreams, read in the API by which each was asked. All of them become chunks, or a completion, of chat.

mod calls;
mod messages;
mod responses;

use bytes::Bytes;
use shared::catalog::UpstreamApi;

use super::{Event, Nonsense};
use messages::MessagesReader;
use responses::ResponsesReader;

/// Reader of a stream's events.
pub struct AnswerReader(ApiReader);

enum ApiReader {
    Chat,
    Messages(MessagesReader),
    Responses(ResponsesReader),
}

impl AnswerReader {
    /// A reader at the start of a stream.
    pub fn new(api: UpstreamApi) -> Self {
        Self(match api {
            UpstreamApi::Chat => ApiReader::Chat,
            UpstreamApi::Messages => ApiReader::Messages(MessagesReader::default()),
            UpstreamApi::Responses => ApiReader::Responses(ResponsesReader::default()),
        })
    }

    /// Reads the payload of the next event, or of the last one again.
    pub fn event<'a>(&mut self, payload: &'a [u8]) -> Result<Event<'a>, Nonsense> {
        match &mut self.0 {
            ApiReader::Chat => Event::read(payload),
            // Some servers end every stream like one of chat.
            ApiReader::Messages(_) | ApiReader::Responses(_) if payload.trim_ascii() == b"[DONE]" => {
                Ok(Event::Done)
            }
            ApiReader::Messages(reader) => reader.event(std::str::from_utf8(payload)?),
            ApiReader::Responses(reader) => reader.event(std::str::from_utf8(payload)?),
        }
    }
}

/// Turns a whole answer into one of chat, as [`super::Completion::read`] takes it. The usage stays as the upstream spelled it.
pub fn whole_as_chat(api: UpstreamApi, body: Bytes) -> Result<Bytes, Nonsense> {
    match api {
        UpstreamApi::Chat => Ok(body),
        UpstreamApi::Messages => messages::whole(std::str::from_utf8(&body)?),
        UpstreamApi::Responses => responses::whole(std::str::from_utf8(&body)?),
    }
}
