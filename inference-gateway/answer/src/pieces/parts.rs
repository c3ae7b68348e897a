//! Parts that both whole answers and chunks have: texts, tool calls, log probabilities.

use std::{fmt, marker::PhantomData};

use raw_json::RawString;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, SeqAccess, Visitor},
};
use shared::json::RawValue;

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

/// Reads a member that may be absent, `null` as a value that is there: what is edited in place has to be found.
pub(crate) fn even_null<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Content of a message, or what a delta adds.
#[derive(Default, Deserialize)]
pub(crate) struct Delta<'a> {
    #[serde(borrow)]
    pub(crate) content: Option<RawString<'a>>,
    pub(crate) refusal: Option<RawString<'a>>,
    /// Reasoning of the model, under the name that DeepSeek, SGLang and llama.cpp use.
    reasoning_content: Option<&'a RawValue>,
    /// Reasoning, under the name that vLLM, Ollama and OpenRouter use.
    reasoning: Option<&'a RawValue>,
    /// Reasoning, under the name that other servers use; some send values that are not texts.
    thinking: Option<&'a RawValue>,
    pub(crate) tool_calls: Option<AtMost<ToolCall<'a>, MAX_CALLS>>,
    /// The record of reasoning that OpenRouter signs.
    pub(crate) reasoning_details: Option<&'a RawValue>,
    /// What Google adds.
    pub(crate) extra_content: Option<&'a RawValue>,
    /// Parts for the server's next turn, in an answer that was folded here.
    #[serde(rename = "faregate_parts")]
    pub(crate) parts: Option<&'a RawValue>,
    #[serde(skip)]
    pub(crate) signed: Option<SignedPart<'a>>,
}

/// What a piece of an answer has for the next turn.
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
}

/// Longest list of choices: more than a request can ask for, since a chunk may bring several pieces of a choice.
pub(crate) const MAX_LISTED_CHOICES: usize = 64;
/// Most tool calls in a message or a delta: more than any model makes.
pub(crate) const MAX_CALLS: usize = 512;
/// Most bytes of a call's id or name as spelled. Ids have some 40, and names come from the request's tools.
const MAX_NAME_BYTES: u64 = 1024;

/// The parser's error for a list or a name that is too long. A request can cause it by asking a model for many calls.
pub(crate) const BEYOND: &str = "beyond the bounds of answers";

/// A list of at most `MOST` elements. A longer one is refused: an event that is only `{}` again and again would have
/// millions of elements, each many times larger in memory.
pub(crate) struct AtMost<T, const MOST: usize>(pub(crate) Vec<T>);

impl<T, const MOST: usize> Default for AtMost<T, MOST> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for AtMost<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements<T, const MOST: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Elements<T, MOST> {
            type Value = AtMost<T, MOST>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {MOST} elements")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<AtMost<T, MOST>, A::Error> {
                let mut read = Vec::new();
                while let Some(element) = elements.next_element()? {
                    if read.len() == MOST {
                        return Err(A::Error::custom(BEYOND));
                    }
                    read.push(element);
                }
                Ok(AtMost(read))
            }
        }
        deserializer.deserialize_seq(Elements(PhantomData))
    }
}

impl<'a> Delta<'a> {
    pub(crate) fn of_text(text: RawString<'a>) -> Self {
        Self { content: Some(text), ..Self::default() }
    }

    pub(crate) fn of_refusal(text: RawString<'a>) -> Self {
        Self { refusal: Some(text), ..Self::default() }
    }

    pub(crate) fn of_reasoning(text: &'a RawValue) -> Self {
        Self { reasoning_content: Some(text), ..Self::default() }
    }

    /// Makes a piece that only the server's next turn needs.
    pub(crate) fn of_signed(signed: SignedPart<'a>) -> Self {
        Self { signed: Some(signed), ..Self::default() }
    }

    /// Makes a piece of a thought that a signature may follow.
    pub(crate) fn of_thought(text: &'a RawValue) -> Self {
        Self { signed: RawString::of(text).map(SignedPart::Thought), ..Self::of_reasoning(text) }
    }

    /// Makes a piece of the call at this place among the calls. The first piece has the id and the name.
    pub(crate) fn of_call(
        place: u64,
        [id, name]: [Option<RawString<'a>>; 2],
        arguments: RawString<'a>,
    ) -> Self {
        let function = Some(CalledFunction { name, arguments: Some(arguments) });
        Self {
            tool_calls: Some(AtMost(vec![ToolCall {
                index: Some(place),
                id,
                function,
                extra_content: None,
            }])),
            ..Self::default()
        }
    }

    /// Returns the model's reasoning under any of its names. Some upstreams send the same text under two.
    pub(crate) fn reasoning(&self) -> Option<RawString<'a>> {
        let names = [self.reasoning_content, self.reasoning, self.thinking];
        names.into_iter().flatten().find_map(RawString::of)
    }

    /// Counts the bytes of all texts of a whole message, as spelled in JSON.
    pub(crate) fn text_bytes(&self) -> u64 {
        let calls = self.functions().flat_map(|function| [function.name, function.arguments]);
        self.texts().chain(calls.flatten()).map(RawString::len).sum()
    }

    /// Counts the bytes that a delta adds. A function's name counts only without arguments, since some servers repeat
    /// it with every piece of them.
    pub(crate) fn added_bytes(&self) -> u64 {
        let calls = self.functions().filter_map(|function| {
            function.arguments.filter(|arguments| !arguments.is_empty()).or(function.name)
        });
        self.texts().chain(calls).map(RawString::len).sum()
    }

    fn texts(&self) -> impl Iterator<Item = RawString<'a>> {
        [self.content, self.refusal, self.reasoning()].into_iter().flatten()
    }

    fn functions(&self) -> impl Iterator<Item = &CalledFunction<'a>> {
        self.calls().iter().filter_map(|call| call.function.as_ref())
    }

    pub(crate) fn calls(&self) -> &[ToolCall<'a>] {
        self.tool_calls.as_ref().map_or(&[], |calls| &calls.0)
    }

    /// Returns whether the delta has no content, not even an empty text.
    pub(crate) fn is_nothing(&self) -> bool {
        self.texts().next().is_none() && self.calls().is_empty()
    }
}

/// A tool call, or a piece of a call.
#[derive(Deserialize)]
pub(crate) struct ToolCall<'a> {
    index: Option<u64>,
    #[serde(borrow, default, deserialize_with = "short")]
    pub(crate) id: Option<RawString<'a>>,
    pub(crate) function: Option<CalledFunction<'a>>,
    /// What Google adds.
    pub(crate) extra_content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(crate) struct CalledFunction<'a> {
    #[serde(borrow, default, deserialize_with = "short")]
    pub(crate) name: Option<RawString<'a>>,
    pub(crate) arguments: Option<RawString<'a>>,
}

/// Reads an id or a name. It must be short, since it is kept while a stream goes on.
pub(crate) fn short<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<RawString<'a>>, D::Error> {
    let read = Option::<RawString<'a>>::deserialize(deserializer)?;
    if read.is_some_and(|text| text.len() > MAX_NAME_BYTES) {
        return Err(D::Error::custom(BEYOND));
    }
    Ok(read)
}

impl ToolCall<'_> {
    /// Returns the upstream's index or, for calls sent whole without one, the place in the array.
    pub(crate) fn index(&self, place: usize) -> u64 {
        self.index.unwrap_or(place as u64)
    }

    pub(crate) fn id(&self) -> Option<RawString<'_>> {
        self.id
    }

    pub(crate) fn name(&self) -> Option<RawString<'_>> {
        self.function.as_ref().and_then(|function| function.name)
    }

    pub(crate) fn arguments(&self) -> Option<RawString<'_>> {
        self.function.as_ref().and_then(|function| function.arguments)
    }
}
