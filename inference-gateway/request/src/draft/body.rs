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

/// Bytes of messages that make it worth returning to the upstream that has read them: some 250 tokens. Fewer are read
/// again faster.
const WORTH_FINDING: usize = 1 << 10;
/// Bytes by which conversations are told apart. Requests whose longer first messages begin alike, as with a shared long
/// system prompt, go to the same upstream, which has read that prompt.
const OPENING_BYTES: usize = 4 << 10;

/// The body while being written, and the size of its prompt.
///
/// Every member is written with a comma before it, since it always comes after another: the body's members after the
/// head's, and an object's after its opening member.
pub(crate) struct Draft {
    pub(crate) json: Vec<u8>,
    pub(crate) shown: PromptSize,
    /// Place of the messages that open the conversation.
    pub(crate) opening: Range<usize>,
    /// A parameter may make an upstream generate tokens that nothing shows.
    pub(crate) may_hide_tokens: bool,
    /// Parameters of sampling that were read.
    pub(crate) sampling: Sampling,
    /// Kind of image URLs that an upstream must accept, and the place of the first image that needs it; `None` without
    /// remote images.
    pub(crate) image_need: Option<(ImageUrls, String)>,
    /// Places of the body that an upstream may refuse.
    pub(crate) places: RefusablePlaces,
    /// Places of the chat's messages.
    pub(crate) list: MessageList,
    /// Parts that servers take in different forms, in order.
    pub(crate) marks: Vec<Mark>,
    /// What earlier answers have for their servers.
    pub(crate) carried: CarriedSizes,
    /// Error for the first part that only an upstream of the client's own API accepts.
    pub(crate) untranslatable: Option<ApiError>,
    /// A part has more tokens than its bytes show.
    pub(crate) needs_count: bool,
    /// Changes of the body for when it is passed on.
    pub(crate) passage: PassageNotes,
    /// Calls of the conversation, for dialects whose new ids must differ from theirs.
    pub(crate) earlier_calls: EarlierCalls,
}

/// What an earlier answer has beside its text and its calls.
pub(crate) struct AnswerEnd<'a> {
    /// Reasoning, a JSON string.
    pub(crate) reasoning: Option<&'a str>,
    /// A client of chats sent it under the name `reasoning_content`.
    pub(crate) is_as_sent: bool,
    pub(crate) carried: &'a [String],
    pub(crate) has_calls: bool,
}

impl Draft {
    /// Makes an empty draft with room for the client's whole body, since the written one is hardly ever longer.
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

    /// Makes an empty draft of a body that may be passed on.
    pub(crate) fn of(body: &[u8]) -> Self {
        Self { passage: PassageNotes::of(body), ..Self::new(body.len()) }
    }

    /// Reads what was written so far as if it were a whole body.
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

    /// Notes that an image at this place needs an upstream that accepts URLs of this kind.
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

    /// Writes members with `write` that only some kinds of upstreams accept.
    pub(crate) fn optional(&mut self, write: impl FnOnce(&mut Self)) {
        let start = self.json.len();
        write(self);
        self.marks.push(Mark::Optional(start..self.json.len()));
    }

    /// Writes the members at the end of an earlier answer: its reasoning, a JSON string that was counted, and what it
    /// has for its server.
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

    /// Writes the name of a member whose value follows.
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

    /// Bytes that the draft takes.
    pub(crate) fn room(&self) -> usize {
        self.json.capacity() + self.marks.capacity() * size_of::<Mark>()
    }

    pub(crate) fn len(&self) -> usize {
        self.json.len()
    }

    /// Notes that the messages began at `start`, that the first one of a user ended at `turn`, and that all are
    /// written.
    pub(crate) fn open_at(&mut self, start: usize, turn: usize) {
        if self.json.len() - start >= WORTH_FINDING {
            self.opening = start..turn.min(start + OPENING_BYTES);
        }
    }

    /// Takes the body, which lacks only its last byte.
    pub(crate) fn take(&mut self) -> Bytes {
        whole(std::mem::take(&mut self.json))
    }
}

/// Ends a body that lacks only its last byte.
pub(crate) fn whole(mut json: Vec<u8>) -> Bytes {
    json.push(b'}');
    trimmed(json)
}
