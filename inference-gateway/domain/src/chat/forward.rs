//! The request as upstreams read it: written once, sent to any upstream behind a small head.

use std::ops::Range;

use bytes::Bytes;
use shared::{
    catalog::{ImageUrls, LimitParam},
    error::ApiError,
    tokens::Usage,
};

use super::{bound::PromptSize, read::Value};

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
}

/// A checked request, ready to be sent.
#[derive(Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about a request")]
pub struct Forward {
    /// True if the answer is wanted as a stream.
    pub stream: bool,
    /// True if a stream ends with usage.
    pub include_usage: bool,
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
    /// True if the prompt is of texts alone: no images, no tools, no parameters of the template.
    pub is_plain: bool,
    /// Upper bound of the prompt's tokens, apart from unusual additions of an upstream's template.
    pub prompt_bound: u64,
    /// Tokens of the prompt, if no exact count is to be had.
    pub prompt_estimate: u64,
    /// Tokens of the prompt, at least, whatever the tokenizer.
    pub prompt_least: u64,
    /// Bounds that the catalogue names. A report beyond these bounds is billed as reported, and logged.
    pub bounds: Usage,
    /// Range, within `rest`, of the opening messages that further requests of the conversation repeat.
    pub(super) opening: Range<usize>,
    /// Everything but the head's members.
    pub(super) rest: Bytes,
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
        if let Some(max_tokens) = to.max_tokens {
            head.push_str(",\"");
            head.push_str(to.limit_param.as_str());
            head.push_str("\":");
            head.push_str(itoa::Buffer::new().format(max_tokens));
        }
        if let Some(salt) = to.cache_salt {
            head.push_str(",\"cache_salt\":");
            head.push_str(&serde_json::Value::from(salt).to_string());
        }
        if self.stream {
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
pub(super) struct Draft {
    json: Vec<u8>,
    pub(super) shown: PromptSize,
    /// Where the messages are that make up the conversation's opening.
    pub(super) opening: Range<usize>,
    /// Kind of image URLs that an upstream has to accept, with the place of the first image that needs this kind;
    /// `None` without remote images.
    pub(super) image_need: Option<(ImageUrls, String)>,
}

impl Draft {
    /// Makes an empty draft with room for the client's whole body: the written body is hardly ever longer.
    pub(super) fn new(room: usize) -> Self {
        Self { json: Vec::with_capacity(room), shown: PromptSize::default(), opening: 0..0, image_need: None }
    }

    /// Notes that an image at this place needs an upstream that accepts URLs of this kind.
    pub(super) fn needs(&mut self, source: ImageUrls, at: &Value<'_, '_>) {
        if source > self.image_need.as_ref().map_or(ImageUrls::Data, |(most, _)| *most) {
            self.image_need = Some((source, at.place()));
        }
    }

    /// Writes JSON unchanged.
    pub(super) fn push(&mut self, json: &str) {
        self.json.extend_from_slice(json.as_bytes());
    }

    /// Writes a member. The name needs no escapes.
    pub(super) fn member(&mut self, name: &str, json: &str) {
        self.name(name);
        self.push(json);
    }

    /// Writes a member that the prompt shows.
    pub(super) fn shown_member(&mut self, name: &str, string: &str) {
        self.shown.text(string);
        self.member(name, string);
    }

    /// Writes the name of a member whose value follows.
    pub(super) fn name(&mut self, name: &str) {
        self.push(",\"");
        self.push(name);
        self.push("\":");
    }

    /// Writes an array of at least 1 and at most `most` elements, each by `write`.
    pub(super) fn array(
        &mut self,
        array: &Value<'_, '_>,
        most: usize,
        mut write: impl FnMut(&mut Self, Value<'_, '_>) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        let mut before = "[";
        array.each(most, |element| {
            self.push(before);
            before = ",";
            write(self, element)
        })?;
        self.push("]");
        Ok(())
    }

    /// Bytes written so far.
    pub(super) fn len(&self) -> usize {
        self.json.len()
    }

    /// Notes that the messages began at `start`, that the first of a user ended at `turn`, and that all have been written.
    pub(super) fn open_at(&mut self, start: usize, turn: usize) {
        if self.json.len() - start >= WORTH_FINDING {
            self.opening = start..turn.min(start + OPENING_BYTES);
        }
    }

    /// The body's last byte.
    pub(super) fn finish(mut self) -> Bytes {
        self.push("}");
        Bytes::from(self.json)
    }
}
