//! The request as upstreams read it: written once, sent to any of them behind a small head of its own.

use bytes::Bytes;
use shared::error::ApiError;

use super::{bound::Shown, read::Value};

/// A request that is checked against its model and ready to be sent.
#[derive(Clone)]
pub struct Forward {
    /// Whether the answer is wanted as a stream.
    pub stream: bool,
    /// Whether a stream ends with its usage.
    pub include_usage: bool,
    /// Output tokens wanted of each choice: what the request says, or the model's most.
    pub max_tokens: u64,
    /// Choices wanted, 1 to 8.
    pub n: u64,
    /// Images in the prompt.
    pub images: u64,
    /// Tokens of the prompt, at most.
    pub prompt_bound: u64,
    /// Tokens of the prompt, where nobody counted them.
    pub prompt_estimate: u64,
    /// Everything but the head's members.
    pub(super) rest: Bytes,
}

impl Forward {
    /// The body for one upstream, in two pieces. The first is small; the second is shared by all attempts.
    ///
    /// `max_tokens` is what one choice may generate. With `continuous_usage`, every chunk of a stream is asked to carry
    /// the usage so far.
    pub fn body(&self, upstream_model: &str, max_tokens: u64, continuous_usage: bool) -> (Bytes, Bytes) {
        let mut head = String::with_capacity(160);
        head.push_str("{\"model\":");
        head.push_str(&serde_json::Value::from(upstream_model).to_string());
        head.push_str(",\"max_tokens\":");
        head.push_str(itoa::Buffer::new().format(max_tokens));
        if self.stream {
            head.push_str(",\"stream\":true,\"stream_options\":{\"include_usage\":true");
            head.push_str(if continuous_usage { ",\"continuous_usage_stats\":true}" } else { "}" });
        }
        (Bytes::from(head), self.rest.clone())
    }
}

/// The body while it is written, and what of it a prompt may show.
///
/// Members begin with the comma in front of them, since all of them follow another one: the body's follow the head's,
/// and an object's follow the one it was opened with.
pub(super) struct Draft {
    json: Vec<u8>,
    pub(super) shown: Shown,
}

impl Draft {
    /// An empty draft with room for the client's whole body: what is written is hardly ever more than what came.
    pub(super) fn new(room: usize) -> Self {
        Self { json: Vec::with_capacity(room), shown: Shown::default() }
    }

    /// Writes JSON as it is.
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

    /// Writes an array of at least one and at most `most` elements, each as `write` does.
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

    /// The body's last byte.
    pub(super) fn finish(mut self) -> Bytes {
        self.push("}");
        Bytes::from(self.json)
    }
}
