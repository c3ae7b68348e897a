//! Rewrites answers of upstreams for the gateway's clients.
//!
//! Everything here is an allow-list. Identifiers, model names and fingerprints of upstreams are replaced, and members
//! that the OpenAI API does not have are dropped. Texts are copied as the upstream spelled them. Types with such texts
//! have no `Debug`, so that no log can show a text.

mod dialect;
mod fold;
mod pieces;
mod reader;
mod rewriter;
pub mod schema;
mod sse;
mod stream;
mod usage;
mod whole;
mod writer;

use std::str::Utf8Error;

use bytes::BytesMut;
use shared::{ids::GenerationId, money::NanoUsd, tokens::Usage};

pub use dialect::messages::message_error;
pub use fold::Fold;
use pieces::parts::BEYOND;
pub use pieces::parts::OutputSize;
pub use reader::{AnswerReader, whole_as_chat};
use rewriter::Rewriter;
pub use sse::{Decoder, EventTooLong};
pub use stream::{Chunk, Event};
pub use usage::{MOST_TOKENS, Reported};
pub use whole::Completion;
pub use writer::StreamWriter;

/// Members that all objects of an answer have.
#[derive(Clone, Copy, Debug)]
pub struct Generation<'a> {
    /// Our id, which is also the billing id.
    pub id: GenerationId,
    /// Time of creation, in seconds since 1970.
    pub created: i64,
    /// Name of the model in the request.
    pub model: &'a str,
}

/// An upstream's answer cannot be used. The message is for the log, and repeats nothing that was generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Nonsense {
    /// The answer is not JSON, or its members have other types than in the API.
    #[error("not the JSON that was expected, at line {line}, column {column}")]
    Malformed {
        /// Line of the payload, from 1.
        line: usize,
        /// Column of the line, from 1.
        column: usize,
    },
    /// The answer is an error although its status was 200.
    #[error("an error, although the status is 200")]
    Error,
    /// The answer has no choice, or more than can be requested.
    #[error("no choices, or too many")]
    Choices,
    /// The answer has more calls than any model makes, or longer names.
    #[error("more calls, or longer names, than are accepted")]
    Beyond,
    /// A choice ended without a finish reason, or with a reason that means failure.
    #[error("a choice ended without a finish reason, or with one that is a failure")]
    Unfinished,
    /// Pieces of several calls came mixed, so that a call continued after its end.
    #[error("a call went on after its arguments were complete")]
    Interleaved,
}

/// The bill of an answer, as its client reads it.
#[derive(Clone, Copy, Debug)]
pub struct Settled {
    pub usage: Usage,
    /// Amount billed; `None` while unknown.
    pub cost: Option<NanoUsd>,
    /// Time of the answer's end, in seconds since 1970.
    pub completed: i64,
}

impl From<serde_json::Error> for Nonsense {
    fn from(error: serde_json::Error) -> Self {
        if error.is_data() && error.to_string().starts_with(BEYOND) {
            return Self::Beyond;
        }
        // The error's own text may quote generated text, so it is left out.
        Self::Malformed { line: error.line(), column: error.column() }
    }
}

impl From<Utf8Error> for Nonsense {
    fn from(error: Utf8Error) -> Self {
        Self::Malformed { line: 1, column: error.valid_up_to() + 1 }
    }
}

impl Generation<'_> {
    /// Writes the members that begin every object, without the closing brace.
    fn write(&self, object: &str, out: &mut BytesMut) {
        put(out, r#"{"id":""#);
        put(out, &self.id.to_string());
        put(out, r#"","object":""#);
        put(out, object);
        put(out, r#"","created":"#);
        put(out, itoa::Buffer::new().format(self.created));
        put(out, r#","model":"#);
        put(out, &self.model_json());
    }

    fn model_json(&self) -> String {
        serde_json::Value::from(self.model).to_string()
    }
}

fn put(out: &mut BytesMut, json: &str) {
    out.extend_from_slice(json.as_bytes());
}

fn put_number(out: &mut BytesMut, number: u64) {
    put(out, itoa::Buffer::new().format(number));
}

#[cfg(test)]
mod tests;
