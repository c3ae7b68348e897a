//! Parts that both whole answers and chunks have: texts, tool calls, log probabilities.

use raw_json::RawString;
use serde::{Deserialize, Deserializer};
use shared::json::{Kind, RawValue};

use super::{
    loose::{Raw, text},
    nonsense::Nonsense,
    oddity::{Oddities, Oddity},
};

/// Size of generated output, from which its tokens are estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputSize {
    /// Bytes of text, as spelled in JSON.
    pub bytes: u64,
    /// Tokens that log probabilities list.
    pub listed_tokens: u64,
}

impl OutputSize {
    /// Returns whether there is no output.
    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// Reads an optional member, with `null` as a value: members edited in place must be found.
pub(crate) fn even_null<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Content of a message, or what a delta adds.
#[derive(Default)]
pub(crate) struct Delta<'a> {
    pub(crate) content: Option<RawString<'a>>,
    pub(crate) refusal: Option<RawString<'a>>,
    pub(crate) reasoning: Option<RawString<'a>>,
    pub(crate) tool_calls: Vec<ToolCall<'a>>,
    /// The record of reasoning that OpenRouter signs.
    pub(crate) reasoning_details: Raw<'a>,
    /// Google's additions, such as the signature of a thought.
    pub(crate) extra_content: Raw<'a>,
    /// Parts for the server's next turn, if this answer was folded here.
    pub(crate) parts: Raw<'a>,
    pub(crate) signed: Option<SignedPart<'a>>,
}

/// A part that the server needs back in its next turn.
#[derive(Clone, Copy)]
pub(crate) enum SignedPart<'a> {
    /// A piece of a thought that a signature may follow.
    Thought(RawString<'a>),
    /// The signature of the thought before it.
    Signature(RawString<'a>),
    /// An encrypted thought of the Messages API.
    Redacted(RawString<'a>),
    /// An encrypted item of the Responses API.
    Encrypted { id: RawString<'a>, content: RawString<'a> },
    /// The answer began anew, so earlier parts are void.
    Restarted,
}

/// Maximum length of a list of choices. It exceeds what a request can ask for, since a chunk may have several pieces of
/// one choice.
pub(crate) const MAX_LISTED_CHOICES: usize = 64;
/// Maximum number of tool calls in a message or a delta: more than any model makes.
pub(crate) const MAX_CALLS: usize = 512;
/// Maximum length of a call's id or name in bytes, as spelled. Ids have about 40, and names come from the request's
/// tools.
const MAX_NAME_BYTES: u64 = 1024;

impl<'a> Delta<'a> {
    pub(crate) fn of_text(text: RawString<'a>) -> Self {
        Self { content: Some(text), ..Self::default() }
    }

    pub(crate) fn of_refusal(text: RawString<'a>) -> Self {
        Self { refusal: Some(text), ..Self::default() }
    }

    pub(crate) fn of_reasoning(text: RawString<'a>) -> Self {
        Self { reasoning: Some(text), ..Self::default() }
    }

    pub(crate) fn of_signed(signed: SignedPart<'a>) -> Self {
        Self { signed: Some(signed), ..Self::default() }
    }

    /// Returns a piece of a call. `place` is the index of the call. The first piece contains the id and the name.
    pub(crate) fn of_call(
        place: u64,
        [id, name]: [Option<RawString<'a>>; 2],
        arguments: Option<CallArguments<'a>>,
    ) -> Self {
        let call = ToolCall { index: Some(place), id, name, arguments, extra_content: None };
        Self { tool_calls: vec![call], ..Self::default() }
    }

    /// Counts the bytes of all texts of a whole message, as spelled in JSON.
    pub(crate) fn text_bytes(&self) -> u64 {
        let calls = self.calls().iter().flat_map(|call| [call.name(), call.arguments()]);
        self.texts_bytes() + calls.flatten().map(RawString::len).sum::<u64>()
    }

    /// Counts the bytes that a delta adds. A function's name counts only if the delta has no arguments, since some
    /// servers repeat the name with every piece.
    pub(crate) fn added_bytes(&self) -> u64 {
        let calls = self
            .calls()
            .iter()
            .filter_map(|call| call.arguments().filter(|arguments| !arguments.is_empty()).or(call.name()));
        self.texts_bytes() + calls.map(RawString::len).sum::<u64>()
    }

    fn texts_bytes(&self) -> u64 {
        self.texts().map(RawString::len).sum()
    }

    fn texts(&self) -> impl Iterator<Item = RawString<'a>> {
        [self.content, self.refusal, self.reasoning].into_iter().flatten()
    }

    pub(crate) fn calls(&self) -> &[ToolCall<'a>] {
        &self.tool_calls
    }

    pub(crate) fn has_arguments(&self) -> bool {
        self.tool_calls.iter().any(|call| call.arguments().is_some_and(|arguments| !arguments.is_empty()))
    }

    /// Returns whether the delta has no content, not even an empty text.
    pub(crate) fn is_nothing(&self) -> bool {
        self.texts().next().is_none() && self.calls().is_empty()
    }

    /// Returns whether the delta contains something that only the server's next turn needs.
    pub(crate) const fn is_carried(&self) -> bool {
        self.reasoning_details.is_some()
            || self.extra_content.is_some()
            || self.parts.is_some()
            || self.signed.is_some()
    }
}

/// A tool call, or a piece of a call.
pub(crate) struct ToolCall<'a> {
    pub(crate) index: Option<u64>,
    pub(crate) id: Option<RawString<'a>>,
    pub(crate) name: Option<RawString<'a>>,
    pub(crate) arguments: Option<CallArguments<'a>>,
    /// Google's additions, such as the signature of a thought.
    pub(crate) extra_content: Raw<'a>,
}

/// Arguments of a call, or a piece of them.
pub(crate) enum CallArguments<'a> {
    Text(RawString<'a>),
    /// JSON other than a text, converted to one.
    Spelled(String),
}

/// Arguments of a call without any. Servers may send none, but clients parse them.
pub(crate) const NO_ARGUMENTS: RawString<'_> = RawString::trusted(r#""{}""#);

impl<'a> CallArguments<'a> {
    pub(crate) const NONE: Self = Self::Text(NO_ARGUMENTS);

    /// Reads arguments of any type. Records in `odd` if they are not a text.
    pub(crate) fn read(raw: &'a RawValue, odd: &mut Oddities) -> Option<Self> {
        if Kind::of(raw) == Kind::Null {
            return None;
        }
        odd.add_if(Oddity::ArgumentsType, Kind::of(raw) != Kind::String);
        Some(Self::of_input(raw))
    }

    /// Takes an input. A value other than a text is spelled as a text.
    pub(crate) fn of_input(raw: &'a RawValue) -> Self {
        match RawString::of(raw) {
            Some(text) => Self::Text(text),
            None => Self::Spelled(serde_json::Value::from(raw.get()).to_string()),
        }
    }

    pub(crate) fn raw(&self) -> RawString<'_> {
        match self {
            Self::Text(text) => *text,
            Self::Spelled(spelled) => RawString::trusted(spelled),
        }
    }
}

/// Reads an id or a name. It must be short, since it is kept during the stream.
pub(crate) fn short(raw: Raw<'_>) -> Result<Option<RawString<'_>>, Nonsense> {
    let read = text(raw);
    if read.is_some_and(|text| text.len() > MAX_NAME_BYTES) {
        return Err(Nonsense::Beyond);
    }
    Ok(read)
}

impl<'a> ToolCall<'a> {
    pub(crate) const fn without_arguments(&self) -> Self {
        let Self { index, id, name, arguments: _, extra_content } = *self;
        Self { index, id, name, arguments: None, extra_content }
    }

    /// Returns the upstream's index, or the place in the array if a call without one was sent whole.
    pub(crate) fn index(&self, place: usize) -> u64 {
        self.index.unwrap_or(place as u64)
    }

    pub(crate) fn id(&self) -> Option<RawString<'a>> {
        self.id
    }

    pub(crate) fn name(&self) -> Option<RawString<'a>> {
        self.name
    }

    pub(crate) fn arguments(&self) -> Option<RawString<'_>> {
        self.arguments.as_ref().map(CallArguments::raw)
    }
}
