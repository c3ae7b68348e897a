//! The request as upstreams read it: written once, sent to any upstream behind a small head.

use std::ops::Range;

use bytes::Bytes;
use shared::{
    catalog::{ImageUrls, LimitParam},
    error::ApiError,
    tokens::Usage,
};

use super::{
    bound::PromptSize,
    places::{MessageList, RefusablePlaces},
    read::{Members, Value},
};
use crate::answer::Reply;

/// The form in which an upstream reports, with every chunk of a stream, the tokens used so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressReports {
    /// The upstream reports no progress.
    None,
    /// By `continuous_usage_stats`: as `usage`.
    Usage,
    /// By `timings_per_token`: as `timings`, of each choice by itself.
    Timings,
}

/// Members of a request that depend on its upstream.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamParams<'a> {
    /// Name of the model at the upstream.
    pub model: &'a str,
    /// Name of the upstream's limit of output.
    pub limit_param: LimitParam,
    /// Tokens per choice; `None` leaves the limit to the upstream, which stops where its context ends.
    pub max_tokens: Option<u64>,
    /// Form of the upstream's progress reports.
    pub progress: ProgressReports,
    /// Salt that keeps the account's part of the upstream's cache apart, if supported.
    pub cache_salt: Option<&'a str>,
    /// True if a whole answer is asked for as a stream.
    pub folded: bool,
}

/// A checked request, ready to be sent.
#[derive(Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about a request")]
pub struct Forward {
    /// True if the answer is wanted as a stream.
    pub stream: bool,
    /// The form of the answer.
    pub reply: Reply,
    /// Names of the offered tools that were dropped, as the value of a header.
    pub dropped_tools: Option<String>,
    /// Output tokens wanted of each choice: the request's limit, or the model's most.
    pub max_tokens: u64,
    /// True if the request set the limit.
    pub limited: bool,
    /// Choices wanted, 1 to 8.
    pub n: u64,
    /// Kind of image URLs that an upstream has to accept to be handed the images.
    pub image_urls: ImageUrls,
    /// Images in the prompt.
    pub images: u64,
    /// Tokens of the images in the prompt, at most.
    pub image_tokens: u64,
    /// True if the prompt explains tools to the model, which not every exact count includes.
    pub has_tools: bool,
    /// True if the request may make an upstream generate tokens without a sign: a bias towards half a character keeps text
    /// back, and with it every report, until the character is complete.
    pub may_hide_tokens: bool,
    /// True if the prompt is of texts alone: no images, no tools, no parameters of the template.
    pub is_plain: bool,
    /// Upper bound of the prompt's tokens, apart from unusual additions of an upstream's template.
    pub prompt_bound: u64,
    /// Tokens of the prompt, if no exact count is to be had.
    pub prompt_estimate: u64,
    /// Tokens of the prompt, at least, whatever the tokenizer.
    pub prompt_least: u64,
    /// Places of the body that an upstream may refuse.
    pub(crate) places: RefusablePlaces,
    /// Bounds that the catalogue names. A report beyond these bounds is billed as reported, and logged.
    pub bounds: Usage,
    /// Range, within `rest`, of the opening messages that further requests of the conversation repeat.
    pub(crate) opening: Range<usize>,
    /// Everything but the head's members.
    pub(crate) rest: Bytes,
}

/// Bytes of messages that make an upstream worth a return, since it has read them: some 250 tokens. Fewer are read
/// sooner than found.
const WORTH_FINDING: usize = 1 << 10;
/// Bytes by which conversations are distinguished. Requests whose longer first messages begin alike, as with a shared
/// long system prompt, go to the same upstream, which then has read that prompt.
const OPENING_BYTES: usize = 4 << 10;

impl Forward {
    /// Returns the body for an upstream, in two pieces. The first is small; the second is shared by all attempts.
    pub fn body(&self, to: UpstreamParams<'_>) -> (Bytes, Bytes) {
        let mut head = String::with_capacity(256);
        head.push_str("{\"model\":");
        head.push_str(&serde_json::Value::from(to.model).to_string());
        if let Some(max_tokens) = to.max_tokens.filter(|_| self.reply.is_of_chat()) {
            head.push_str(",\"");
            head.push_str(to.limit_param.as_str());
            head.push_str("\":");
            head.push_str(itoa::Buffer::new().format(max_tokens));
        }
        if let Some(salt) = to.cache_salt.filter(|_| self.reply.is_of_chat()) {
            head.push_str(",\"cache_salt\":");
            head.push_str(&serde_json::Value::from(salt).to_string());
        }
        if self.stream || to.folded {
            head.push_str(",\"stream\":true,\"stream_options\":{\"include_usage\":true");
            head.push_str(match to.progress {
                ProgressReports::Usage => ",\"continuous_usage_stats\":true}",
                ProgressReports::Timings => "},\"timings_per_token\":true",
                ProgressReports::None => "}",
            });
        }
        (Bytes::from(head), self.rest.clone())
    }

    /// Returns the bytes of the request kept in memory.
    pub fn prompt_bytes(&self) -> usize {
        self.rest.len()
    }

    /// Frees the prompt, which is not sent again.
    pub fn forget_prompt(&mut self) {
        self.rest = Bytes::new();
        self.opening = 0..0;
    }

    /// Returns the prefix that further requests of the same conversation share, and other requests with the same long
    /// beginning; `None` where the messages are too short for the choice of the upstream to matter.
    pub fn prompt_prefix(&self) -> Option<&[u8]> {
        (!self.opening.is_empty()).then(|| &self.rest[self.opening.clone()])
    }
}

/// The body while being written, and the size of its prompt.
///
/// Members begin with the comma in front, since every member follows another: the body's members follow the head's, and
/// an object's follow its opening member.
pub(crate) struct Draft {
    pub(super) json: Vec<u8>,
    pub(crate) shown: PromptSize,
    /// Where the messages are that make up the conversation's opening.
    pub(crate) opening: Range<usize>,
    /// A parameter may make an upstream generate tokens without a sign.
    pub(crate) may_hide_tokens: bool,
    /// Kind of image URLs that an upstream has to accept, with the place of the first image that needs this kind;
    /// `None` without remote images.
    pub(crate) image_need: Option<(ImageUrls, String)>,
    /// Places of the body that an upstream may refuse.
    pub(crate) places: RefusablePlaces,
    /// Where the messages of a chat are.
    pub(super) list: MessageList,
    /// Members that only some kinds of upstreams take, in order.
    optional: Vec<Range<usize>>,
}

impl Draft {
    /// Makes an empty draft with room for the client's whole body: the written body is hardly ever longer.
    pub(crate) fn new(room: usize) -> Self {
        Self {
            json: Vec::with_capacity(room),
            shown: PromptSize::default(),
            opening: 0..0,
            may_hide_tokens: false,
            image_need: None,
            places: RefusablePlaces::default(),
            list: MessageList::default(),
            optional: Vec::new(),
        }
    }

    /// Notes that an image at this place needs an upstream that accepts URLs of this kind.
    pub(crate) fn needs(&mut self, source: ImageUrls, at: &Value<'_, '_>) {
        if source > self.image_need.as_ref().map_or(ImageUrls::Data, |(most, _)| *most) {
            self.image_need = Some((source, at.place()));
        }
    }

    /// Writes JSON unchanged.
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

    /// Writes a member whose value is several texts, each a JSON string, with an empty line between each two.
    pub(crate) fn joined(&mut self, name: &str, texts: &[&str]) {
        self.name(name);
        for (place, text) in texts.iter().enumerate() {
            self.shown.text(text);
            self.push(if place == 0 { "\"" } else { "\\n\\n" });
            self.push(&text[1..text.len() - 1]);
        }
        self.push("\"");
    }

    /// Writes members by `write` that can be left out, since not all kinds of upstreams take them.
    pub(crate) fn optional(&mut self, write: impl FnOnce(&mut Self)) {
        let start = self.json.len();
        write(self);
        self.optional.push(start..self.json.len());
    }

    /// Takes out the members that not all kinds of upstreams take.
    pub(super) fn leave_out_optional(&mut self) {
        let mut kept = 0;
        let mut json = Vec::with_capacity(if self.optional.is_empty() { 0 } else { self.json.len() });
        for range in std::mem::take(&mut self.optional) {
            json.extend_from_slice(&self.json[kept..range.start]);
            kept = range.end;
            self.opening.end = self.opening.end.min(range.start.max(self.opening.start));
        }
        if kept > 0 {
            json.extend_from_slice(&self.json[kept..]);
            self.json = json;
        }
    }

    /// Writes the name of a member whose value follows.
    pub(crate) fn name(&mut self, name: &str) {
        self.push(",\"");
        self.push(name);
        self.push("\":");
    }

    /// Writes an array of at least 1 and at most `most` objects, each by `write`.
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

    /// Bytes written so far.
    pub(crate) fn len(&self) -> usize {
        self.json.len()
    }

    /// Notes that the messages began at `start`, that the first of a user ended at `turn`, and that all have been written.
    pub(crate) fn open_at(&mut self, start: usize, turn: usize) {
        if self.json.len() - start >= WORTH_FINDING {
            self.opening = start..turn.min(start + OPENING_BYTES);
        }
    }

    /// The body's last byte.
    pub(crate) fn finish(mut self) -> Bytes {
        self.push("}");
        Bytes::from(self.json)
    }
}
