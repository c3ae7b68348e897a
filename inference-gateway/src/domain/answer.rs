//! Answers: what an upstream says, rewritten into what our clients see.
//!
//! Everything here is an allow-list. Identifiers, model names and fingerprints of upstreams do not come through, and
//! neither does what they say beyond the OpenAI API. Texts are copied as the upstream spelled them. What holds them has no
//! `Debug`, so that no log can show it.

mod calls;
mod finish;
mod logprobs;
mod parts;
mod rewriter;
pub(crate) mod schema;
mod stream;
mod usage;
mod whole;

use bytes::BytesMut;
use shared::ids::GenerationId;

pub(crate) use finish::FinishReason;
pub(crate) use rewriter::Rewriter;
pub(crate) use stream::{Chunk, Event};
pub(crate) use usage::Reported;
pub(crate) use whole::Completion;

/// What every object of one answer says of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Generation<'a> {
    /// Our id, also the one it is billed by.
    pub(crate) id: GenerationId,
    /// When it was made, in seconds since 1970.
    pub(crate) created: i64,
    /// The model, as the request named it.
    pub(crate) model: &'a str,
}

/// An upstream's answer cannot be used. The message is for the log, and repeats nothing that was generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Nonsense {
    /// It is not JSON, or its members have other types than the API says.
    #[error("not the JSON that was expected, at line {line}, column {column}")]
    Malformed {
        /// Line of the payload, from 1.
        line: usize,
        /// Column of the line, from 1.
        column: usize,
    },
    /// It is an error, though the status said 200.
    #[error("an error with the status 200")]
    Error,
    /// It has no choice, or more than can be asked for.
    #[error("no choices, or too many")]
    Choices,
    /// A choice ended without a reason, or with one that is a failure.
    #[error("a choice ended without a finish reason, or with one that is a failure")]
    Unfinished,
}

impl From<serde_json::Error> for Nonsense {
    fn from(error: serde_json::Error) -> Self {
        // Not its text, which may quote what was generated.
        Self::Malformed { line: error.line(), column: error.column() }
    }
}

impl Generation<'_> {
    /// Writes the members that every object begins with, without the brace that closes it.
    fn write(&self, object: &str, out: &mut BytesMut) {
        let head = format!(
            r#"{{"id":"{}","object":"{object}","created":{},"model":{}"#,
            self.id,
            self.created,
            serde_json::Value::from(self.model)
        );
        put(out, &head);
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
