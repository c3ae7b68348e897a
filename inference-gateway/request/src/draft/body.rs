//! The chat while it is written.

use std::ops::Range;

use bytes::Bytes;
use raw_json::{Members, Value};
use reply::EarlierCalls;
use shared::error::ApiError;
use shared_catalog::ImageUrls;
use token_bounds::PromptSize;

use super::places::{AnsweredPlace, CarriedSizes, Mark, MessageList, RefusablePlaces};
use crate::{passage::PassageNotes, sampled::Sampling, trimmed::trimmed};

/// Messages of at least this many bytes, about 250 tokens, return to the upstream that has read them. Shorter ones are
/// quickly read again.
const WORTH_FINDING: usize = 1 << 10;
/// Bytes that distinguish conversations. Requests whose first messages share more than this, such as a long system
/// prompt, go to the same upstream, which has that prompt in its cache.
const OPENING_BYTES: usize = 4 << 10;

/// The body while being written, and the size of its prompt. Every member is written with a comma before it, since
/// another always precedes it: the head, or an object's first member.
pub(crate) struct Draft {
    pub(crate) json: Vec<u8>,
    pub(crate) shown: PromptSize,
    /// Location of the messages that open the conversation.
    pub(crate) opening: Range<usize>,
    /// Whether a parameter may make an upstream generate tokens that it does not show.
    pub(crate) may_hide_tokens: bool,
    /// Sampling parameters that were read.
    pub(crate) sampling: Sampling,
    /// Kind of image URLs that an upstream must accept, with the location of the first image that needs it; `None`
    /// without remote images.
    pub(crate) image_need: Option<(ImageUrls, String)>,
    /// Locations that an upstream may refuse.
    pub(crate) places: RefusablePlaces,
    /// Locations of the chat's messages.
    pub(crate) list: MessageList,
    /// Parts that are written differently for some servers, in order.
    pub(crate) marks: Vec<Mark>,
    /// Sizes of the parts that earlier answers carry for their servers.
    pub(crate) carried: CarriedSizes,
    /// Error for the first part that only an upstream with the client's own API accepts.
    pub(crate) untranslatable: Option<ApiError>,
    /// Whether a part may have more tokens than its bytes show.
    pub(crate) needs_count: bool,
    /// Edits to the body if it is passed on.
    pub(crate) passage: PassageNotes,
    /// Ids of the conversation's calls. Some dialects need new ids to differ from them.
    pub(crate) earlier_calls: EarlierCalls,
}

/// The parts of an earlier answer other than its text and calls.
pub(crate) struct AnswerEnd<'a> {
    /// Reasoning, a JSON string.
    pub(crate) reasoning: Option<&'a str>,
    /// Whether a chat client sent it as `reasoning_content`.
    pub(crate) is_as_sent: bool,
    pub(crate) carried: &'a [String],
    pub(crate) has_calls: bool,
}

impl Draft {
    /// Makes an empty draft with room for the client's whole body. What is written is rarely longer.
    pub(crate) fn new(room: usize) -> Self {
        Self {
            json: Vec::with_capacity(room),
            shown: PromptSize::default(),
            opening: 0..0,
            may_hide_tokens: false,
            sampling: Sampling::default(),
            image_need: None,
            places: RefusablePlaces::default(),
            list: MessageList::default(),
            marks: Vec::new(),
            carried: CarriedSizes::default(),
            untranslatable: None,
            needs_count: false,
            passage: PassageNotes::default(),
            earlier_calls: EarlierCalls::default(),
        }
    }

    /// Makes an empty draft for a body that may be passed on.
    pub(crate) fn of(body: &[u8]) -> Self {
        Self { passage: PassageNotes::of(body), ..Self::new(body.len()) }
    }

    /// Reads what was written so far as if it were a complete body.
    pub(crate) fn read_back<T>(
        &mut self,
        read: impl FnOnce(&Members<'_, '_>, usize) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let Some(first) = self.json.first_mut() else { return Err(ApiError::internal()) };
        *first = b'{';
        self.json.push(b'}');
        let read = Members::of_body(&self.json).and_then(|members| read(&members, self.json.len()));
        self.json.pop();
        self.json[0] = b',';
        read
    }

    /// Notes that an image at this location needs an upstream that accepts URLs of this kind.
    pub(crate) fn needs(&mut self, source: ImageUrls, at: &Value<'_, '_>) {
        if source > self.image_need.as_ref().map_or(ImageUrls::Data, |(most, _)| *most) {
            self.image_need = Some((source, at.place()));
        }
    }

    pub(crate) fn push(&mut self, json: &str) {
        self.json.extend_from_slice(json.as_bytes());
    }

    /// Writes a member. The name needs no escapes.
    pub(crate) fn member(&mut self, name: &str, json: &str) {
        self.name(name);
        self.push(json);
    }

    /// Writes a member that the prompt shows.
    pub(crate) fn shown_member(&mut self, name: &str, string: &str) {
        self.shown.text(string);
        self.member(name, string);
    }

    /// Writes a member whose value joins several texts, all JSON strings, with an empty line between them.
    pub(crate) fn joined(&mut self, name: &str, texts: &[&str]) {
        self.name(name);
        for (place, text) in texts.iter().enumerate() {
            self.shown.text(text);
            self.push(if place == 0 { "\"" } else { "\\n\\n" });
            self.push(&text[1..text.len() - 1]);
        }
        self.push("\"");
    }

    /// Calls `write` to write members that only some servers accept.
    pub(crate) fn optional(&mut self, write: impl FnOnce(&mut Self)) {
        let start = self.json.len();
        write(self);
        self.marks.push(Mark::Optional(start..self.json.len()));
    }

    /// Writes the members at the end of an earlier answer: its reasoning, which was already counted, and the parts for
    /// its server.
    pub(crate) fn answered(&mut self, answer: &AnswerEnd<'_>) {
        let AnswerEnd { reasoning, is_as_sent, carried, has_calls } = *answer;
        let start = self.json.len();
        let reasoning = reasoning.map(|reasoning| {
            self.member("reasoning_content", reasoning);
            self.json.len() - reasoning.len()..self.json.len()
        });
        for (place, text) in carried.iter().enumerate() {
            self.push(if place == 0 { ",\"carried\":[\"" } else { ",\"" });
            self.push(text);
            self.push("\"");
            self.carried.add(text);
        }
        if !carried.is_empty() {
            self.push("]");
        }
        let members = start..self.json.len();
        if has_calls || !members.is_empty() {
            self.marks.push(Mark::Answered(AnsweredPlace { members, reasoning, has_calls, is_as_sent }));
        }
    }

    /// Writes a member's name; its value follows.
    pub(crate) fn name(&mut self, name: &str) {
        self.push(",\"");
        self.push(name);
        self.push("\":");
    }

    /// Writes an array of 1 to `most` objects, each with `write`.
    pub(crate) fn array(
        &mut self,
        array: &Value<'_, '_>,
        most: usize,
        mut write: impl FnMut(&mut Self, &Members<'_, '_>) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        let mut before = "[";
        array.objects(most, |element| {
            self.push(before);
            before = ",";
            write(self, element)
        })?;
        self.push("]");
        Ok(())
    }

    /// Returns the bytes that the draft takes in memory.
    pub(crate) fn room(&self) -> usize {
        self.json.capacity() + self.marks.capacity() * size_of::<Mark>()
    }

    pub(crate) fn len(&self) -> usize {
        self.json.len()
    }

    /// Ends the messages. They began at `start`, and the first user message ended at `turn`.
    pub(crate) fn open_at(&mut self, start: usize, turn: usize) {
        if self.json.len() - start >= WORTH_FINDING {
            self.opening = start..turn.min(start + OPENING_BYTES);
        }
    }

    /// Takes the body. Only its closing brace is missing.
    pub(crate) fn take(&mut self) -> Bytes {
        whole(std::mem::take(&mut self.json))
    }
}

/// Adds the closing brace of a body.
pub(crate) fn whole(mut json: Vec<u8>) -> Bytes {
    json.push(b'}');
    trimmed(json)
}
