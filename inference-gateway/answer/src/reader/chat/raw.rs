//! Members of chunks and completions, under every name that servers use.

use raw_json::RawString;
use serde::Deserialize;
use shared::json::Kind;

use crate::{
    pieces::{
        loose::{Loose, Objects, Raw, filled, is_hollow, number, object, text, word},
        oddity::Oddity,
        parts::{MAX_CALLS, MAX_LISTED_CHOICES},
    },
    reader::pieces::Pieces,
};

#[derive(Deserialize)]
pub(super) struct RawChunk<'a> {
    #[serde(borrow, default)]
    pub(super) choices: Objects<RawChoice<'a>, MAX_LISTED_CHOICES>,
    pub(super) model: Raw<'a>,
    pub(super) usage: Raw<'a>,
    pub(super) timings: Raw<'a>,
    pub(super) object: Raw<'a>,
    pub(super) error: Raw<'a>,
    pub(super) errors: Raw<'a>,
    pub(super) message: Raw<'a>,
    pub(super) detail: Raw<'a>,
    pub(super) details: Raw<'a>,
    pub(super) fault: Raw<'a>,
    pub(super) base_resp: Raw<'a>,
    /// The answer, within the envelope that Cloudflare puts around all its answers.
    pub(super) result: Raw<'a>,
}

#[derive(Deserialize)]
pub(super) struct RawChoice<'a> {
    pub(super) index: Raw<'a>,
    /// Boxed, like the message, since moving a choice would otherwise copy twelve members of both for each chunk.
    #[serde(borrow, default)]
    pub(super) delta: Loose<Box<RawMessage<'a>>>,
    #[serde(borrow, default)]
    pub(super) message: Loose<Box<RawMessage<'a>>>,
    pub(super) text: Raw<'a>,
    pub(super) usage: Raw<'a>,
    pub(super) logprobs: Raw<'a>,
    pub(super) finish_reason: Raw<'a>,
    /// The sequence or token that ended the choice, as vLLM reports it.
    pub(super) stop_reason: Raw<'a>,
    /// The sequence or token that ended the choice, as SGLang reports it.
    pub(super) matched_stop: Raw<'a>,
}

/// A message, or a delta of a message.
#[derive(Deserialize)]
pub(super) struct RawMessage<'a> {
    #[serde(borrow)]
    pub(super) content: Raw<'a>,
    pub(super) refusal: Raw<'a>,
    /// Reasoning, as DeepSeek, SGLang and llama.cpp name it.
    pub(super) reasoning_content: Raw<'a>,
    /// Reasoning, as vLLM, Ollama and OpenRouter name it.
    pub(super) reasoning: Raw<'a>,
    /// Reasoning, as Copilot names it.
    pub(super) reasoning_text: Raw<'a>,
    /// Reasoning, as other servers name it.
    pub(super) thinking: Raw<'a>,
    /// Reasoning, named after the channel that gpt-oss writes it to.
    pub(super) analysis: Raw<'a>,
    /// Reasoning in parts, from OpenRouter and MiniMax. OpenRouter signs them.
    pub(super) reasoning_details: Raw<'a>,
    /// Google's additions, such as the signature of a thought.
    pub(super) extra_content: Raw<'a>,
    /// What the server needs back in its next turn, if this answer was folded by the gateway.
    pub(super) faregate_parts: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) tool_calls: Objects<RawCall<'a>, MAX_CALLS>,
    #[serde(borrow, default)]
    pub(super) function_call: Loose<RawFunction<'a>>,
}

#[derive(Default, Deserialize)]
pub(super) struct RawCall<'a> {
    pub(super) index: Raw<'a>,
    pub(super) id: Raw<'a>,
    #[serde(borrow, default)]
    pub(super) function: Loose<RawFunction<'a>>,
    pub(super) name: Raw<'a>,
    pub(super) arguments: Raw<'a>,
    pub(super) extra_content: Raw<'a>,
}

#[derive(Default, Deserialize)]
pub(super) struct RawFunction<'a> {
    #[serde(borrow)]
    pub(super) name: Raw<'a>,
    pub(super) arguments: Raw<'a>,
}

#[derive(Deserialize)]
struct RawStatus<'a> {
    #[serde(borrow)]
    status_code: Raw<'a>,
}

impl RawChunk<'_> {
    /// Returns the answer without its envelope, if it has one.
    pub(super) fn unwrapped(self) -> Self {
        let is_empty = self.choices.0.is_empty() && self.usage.is_none();
        let inner = object::<Self>(self.result.filter(|_| is_empty));
        inner.filter(|inner| !inner.choices.0.is_empty()).unwrap_or(self)
    }

    /// Returns whether the event is an error, in any server's form.
    pub(super) fn is_failure(&self, out: &mut Pieces<'_>) -> bool {
        if let Some(error) = self.error {
            if !is_hollow(error) {
                return true;
            }
            out.odd.add(Oddity::EmptyError);
        }
        // SGLang sends error objects without a wrapper.
        if word(self.object) == "error" {
            return true;
        }
        if !self.choices.0.is_empty() || self.usage.is_some() {
            return false;
        }
        let status = object::<RawStatus<'_>>(self.base_resp).and_then(|status| number(status.status_code));
        let told =
            [self.errors, self.detail, self.fault].into_iter().flatten().any(|value| !is_hollow(value));
        told || filled(self.message).or(filled(self.details)).is_some()
            || status.is_some_and(|status| status != 0)
    }
}

impl<'a> RawMessage<'a> {
    /// Returns the reasoning under any of its names, as a text or in another form. Servers that use two names send the
    /// same text under both, or leave one empty.
    pub(super) fn thoughts(&self) -> (Option<RawString<'a>>, Raw<'a>) {
        let names =
            [self.reasoning_content, self.reasoning, self.reasoning_text, self.thinking, self.analysis];
        if let Some(told) = names.into_iter().find_map(filled) {
            return (Some(told), None);
        }
        let formed = |raw: &Raw<'a>| {
            raw.is_some_and(|raw| matches!(Kind::of(raw), Kind::Array | Kind::Object) && !is_hollow(raw))
        };
        let formed = names.into_iter().chain([self.reasoning_details]).find(formed).flatten();
        let empty = names.into_iter().find_map(text);
        (empty.filter(|_| formed.is_none()), formed)
    }
}
