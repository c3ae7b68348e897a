//! What whole answers and chunks have in common: texts, tool calls, log probabilities.

use bytes::BytesMut;
use serde::{Deserialize, Deserializer, de::Error as _};
use shared::json::{Kind, RawValue};

use super::{put, put_number};

/// A JSON string as the upstream spelled it, quotes included.
#[derive(Clone, Copy)]
pub(super) struct Spelled<'a>(pub(super) &'a str);

impl<'a> Spelled<'a> {
    /// What is between the quotes.
    pub(super) fn inner(self) -> &'a str {
        &self.0[1..self.0.len() - 1]
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Spelled<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&'a RawValue>::deserialize(deserializer)?;
        match Kind::of(raw) {
            Kind::String => Ok(Self(raw.get())),
            Kind::Null | Kind::Bool | Kind::Number | Kind::Array | Kind::Object => {
                Err(D::Error::custom("expected a string"))
            }
        }
    }
}

/// What a message says, or a delta adds to it.
#[derive(Default, Deserialize)]
pub(super) struct Said<'a> {
    #[serde(borrow)]
    pub(super) content: Option<Spelled<'a>>,
    #[serde(borrow)]
    pub(super) refusal: Option<Spelled<'a>>,
    #[serde(borrow)]
    reasoning_content: Option<Spelled<'a>>,
    /// Another name for the same.
    #[serde(borrow)]
    reasoning: Option<Spelled<'a>>,
    #[serde(borrow)]
    pub(super) tool_calls: Option<Vec<ToolCall<'a>>>,
}

impl<'a> Said<'a> {
    /// What the model thought, whatever the upstream calls it. Some send both names with the same text.
    pub(super) fn reasoning(&self) -> Option<Spelled<'a>> {
        self.reasoning_content.or(self.reasoning)
    }

    /// Bytes of all that was generated, as JSON spells it.
    pub(super) fn text_bytes(&self) -> u64 {
        let texts = [self.content, self.refusal, self.reasoning()];
        let calls = self.tool_calls.iter().flatten().filter_map(|call| call.function.as_ref());
        let calls = calls.flat_map(|function| [function.name, function.arguments]);
        texts.into_iter().chain(calls).flatten().map(|text| text.inner().len() as u64).sum()
    }

    /// Whether nothing at all is said, not even an empty text.
    pub(super) fn is_nothing(&self) -> bool {
        let texts = [self.content, self.refusal, self.reasoning()];
        texts.iter().all(Option::is_none) && self.tool_calls.as_ref().is_none_or(Vec::is_empty)
    }
}

/// A call of a tool, or a piece of one.
#[derive(Deserialize)]
pub(super) struct ToolCall<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    id: Option<Spelled<'a>>,
    #[serde(borrow)]
    function: Option<Function<'a>>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow)]
    name: Option<Spelled<'a>>,
    #[serde(borrow)]
    arguments: Option<Spelled<'a>>,
}

impl ToolCall<'_> {
    /// Writes a call of a whole answer, with all its members.
    pub(super) fn write_whole(&self, out: &mut BytesMut) {
        let function = self.function.as_ref();
        let or = |text: Option<Spelled<'_>>, otherwise: &'static str, out: &mut BytesMut| {
            put(out, text.map_or(otherwise, |text| text.0));
        };
        put(out, r#"{"id":"#);
        or(self.id, r#""""#, out);
        put(out, r#","type":"function","function":{"name":"#);
        or(function.and_then(|f| f.name), r#""""#, out);
        put(out, r#","arguments":"#);
        or(function.and_then(|f| f.arguments), r#""{}""#, out);
        put(out, "}}");
    }

    /// Writes a piece of a call. Clients put pieces together by `index`: where an upstream that sends calls whole has
    /// none, the place in its array is it.
    pub(super) fn write_piece(&self, place: usize, out: &mut BytesMut) {
        put(out, r#"{"index":"#);
        put_number(out, self.index.unwrap_or(place as u64));
        if let Some(id) = self.id {
            put(out, r#","id":"#);
            put(out, id.0);
            put(out, r#","type":"function""#);
        }
        if let Some(function) = &self.function {
            put(out, r#","function":{"#);
            if let Some(name) = function.name {
                put(out, r#""name":"#);
                put(out, name.0);
            }
            if let Some(arguments) = function.arguments {
                put(out, if function.name.is_some() { r#","arguments":"# } else { r#""arguments":"# });
                put(out, arguments.0);
            }
            put(out, "}");
        }
        put(out, "}");
    }
}

/// Writes `logprobs`, which are an object or null.
pub(super) fn put_logprobs(logprobs: Option<&RawValue>, out: &mut BytesMut) {
    let object = logprobs.filter(|value| Kind::of(value) == Kind::Object);
    put(out, object.map_or("null", RawValue::get));
}
