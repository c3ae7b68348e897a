//! Members that every object of an answer shares, and helpers to write members.

use bytes::BytesMut;
use reply::carried::ServerId;
use shared::{ids::GenerationId, money::NanoUsd, tokens::Usage};

/// Members that all objects of an answer share.
#[derive(Clone, Copy, Debug)]
pub struct Generation<'a> {
    /// The gateway's id for the answer. Bills have the same id.
    pub id: GenerationId,
    /// Time of creation, in seconds since 1970.
    pub created: i64,
    /// Name of the model in the request.
    pub model: &'a str,
    /// The server that answers. Parts that it signed are returned only to it.
    pub server: ServerId,
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

impl Generation<'_> {
    /// Writes the members that begin every object, without the closing brace.
    pub(super) fn write(&self, object: &str, out: &mut BytesMut) {
        put(out, r#"{"id":""#);
        put(out, &self.id.to_string());
        put(out, r#"","object":""#);
        put(out, object);
        put(out, r#"","created":"#);
        put(out, itoa::Buffer::new().format(self.created));
        put(out, r#","model":"#);
        put(out, &self.model_json());
    }

    pub(super) fn model_json(&self) -> String {
        serde_json::Value::from(self.model).to_string()
    }
}

pub(crate) fn put(out: &mut BytesMut, json: &str) {
    out.extend_from_slice(json.as_bytes());
}

pub(crate) fn put_number(out: &mut BytesMut, number: u64) {
    put(out, itoa::Buffer::new().format(number));
}
