//! What whole answers and chunks have in common: texts, tool calls, log probabilities.

use bytes::BytesMut;
use serde::{Deserialize, Deserializer, de::Error as _};
use shared::json::{Kind, RawValue};

use super::{
    calls::{MadeIds, Piece, PieceId},
    put, put_number,
};

/// A JSON string as the upstream spelled it, quotes included.
#[derive(Clone, Copy)]
pub(super) struct Spelled<'a>(pub(super) &'a str);

impl<'a> Spelled<'a> {
    /// The value, if it is a string.
    fn of(raw: &'a RawValue) -> Option<Self> {
        (Kind::of(raw) == Kind::String).then(|| Self(raw.get()))
    }

    /// What is between the quotes.
    pub(super) fn inner(self) -> &'a str {
        &self.0[1..self.0.len() - 1]
    }

    /// Bytes between the quotes.
    fn len(self) -> u64 {
        self.inner().len() as u64
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Spelled<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&'a RawValue>::deserialize(deserializer)?;
        Self::of(raw).ok_or_else(|| D::Error::custom("expected a string"))
    }
}

/// What a message says, or a delta adds to it.
#[derive(Default, Deserialize)]
pub(super) struct Said<'a> {
    #[serde(borrow)]
    pub(super) content: Option<Spelled<'a>>,
    #[serde(borrow)]
    pub(super) refusal: Option<Spelled<'a>>,
    /// What DeepSeek, SGLang and llama.cpp call what the model thought.
    #[serde(borrow)]
    reasoning_content: Option<&'a RawValue>,
    /// What vLLM, Ollama and OpenRouter call it.
    #[serde(borrow)]
    reasoning: Option<&'a RawValue>,
    /// What others call it, some of them with something else than a text in it.
    #[serde(borrow)]
    thinking: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) tool_calls: Option<Vec<ToolCall<'a>>>,
}

impl<'a> Said<'a> {
    /// What the model thought, whatever the upstream calls it. Some send two names with the same text.
    pub(super) fn reasoning(&self) -> Option<Spelled<'a>> {
        let names = [self.reasoning_content, self.reasoning, self.thinking];
        names.into_iter().flatten().find_map(Spelled::of)
    }

    /// Bytes of all that a whole message says, as JSON spells it.
    pub(super) fn text_bytes(&self) -> u64 {
        let calls = self.functions().flat_map(|function| [function.name, function.arguments]);
        self.texts().chain(calls.flatten()).map(Spelled::len).sum()
    }

    /// Bytes that a delta adds. The name of a function counts where it comes alone: some servers repeat it with every
    /// piece of its arguments.
    pub(super) fn added_bytes(&self) -> u64 {
        let calls = self.functions().filter_map(|function| {
            function.arguments.filter(|arguments| arguments.len() > 0).or(function.name)
        });
        self.texts().chain(calls).map(Spelled::len).sum()
    }

    fn texts(&self) -> impl Iterator<Item = Spelled<'a>> {
        [self.content, self.refusal, self.reasoning()].into_iter().flatten()
    }

    fn functions(&self) -> impl Iterator<Item = &Function<'a>> {
        self.tool_calls.iter().flatten().filter_map(|call| call.function.as_ref())
    }

    /// Returns whether nothing at all is said, not even an empty text.
    pub(super) fn is_nothing(&self) -> bool {
        self.texts().next().is_none() && self.tool_calls.as_ref().is_none_or(Vec::is_empty)
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
    /// Writes the call that stands at this place of a whole answer, with all its members.
    pub(super) fn write_whole(&self, place: usize, made: MadeIds, out: &mut BytesMut) {
        let function = self.function.as_ref();
        let or = |text: Option<Spelled<'_>>, otherwise: &'static str, out: &mut BytesMut| {
            put(out, text.map_or(otherwise, |text| text.0));
        };
        put(out, r#"{"id":"#);
        match self.id {
            Some(id) if id.len() > 0 => put(out, id.0),
            Some(_) | None => made.write(place as u64, out),
        }
        put(out, r#","type":"function","function":{"name":"#);
        or(function.and_then(|f| f.name), r#""""#, out);
        put(out, r#","arguments":"#);
        or(function.and_then(|f| f.arguments), r#""{}""#, out);
        put(out, "}}");
    }

    /// The index that the upstream gives the call; where it sends calls whole and has none, the place in its array.
    pub(super) fn index(&self, place: usize) -> u64 {
        self.index.unwrap_or(place as u64)
    }

    /// The call's id, if it is said.
    pub(super) fn id(&self) -> Option<Spelled<'_>> {
        self.id
    }

    /// The function's name, if it is said.
    pub(super) fn name(&self) -> Option<Spelled<'_>> {
        self.function.as_ref().and_then(|function| function.name)
    }

    /// The function's arguments, if they are said.
    pub(super) fn arguments(&self) -> Option<Spelled<'_>> {
        self.function.as_ref().and_then(|function| function.arguments)
    }

    /// Writes a piece of a call: where it belongs, and the members of it that were not sent before.
    pub(super) fn write_piece(&self, piece: &Piece, made: MadeIds, out: &mut BytesMut) {
        put(out, r#"{"index":"#);
        put_number(out, piece.index);
        if piece.id != PieceId::Sent {
            put(out, r#","id":"#);
            match self.id.filter(|_| piece.id == PieceId::Upstream) {
                Some(id) => put(out, id.0),
                None => made.write(piece.index, out),
            }
            put(out, r#","type":"function""#);
        }
        if let Some(function) = &self.function {
            put(out, r#","function":{"#);
            let name = function.name.filter(|_| piece.name_is_new);
            if let Some(name) = name {
                put(out, r#""name":"#);
                put(out, name.0);
            }
            if let Some(arguments) = function.arguments {
                put(out, if name.is_some() { r#","arguments":"# } else { r#""arguments":"# });
                put(out, arguments.0);
            }
            put(out, "}");
        }
        put(out, "}");
    }
}
