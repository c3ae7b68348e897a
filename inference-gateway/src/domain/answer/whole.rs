//! Whole answers.

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use shared::{ids::GenerationId, json::RawValue, money::NanoUsd};

use super::{
    FinishReason, Generation, Nonsense, Reported,
    calls::MadeIds,
    logprobs::put_logprobs,
    parts::{AtMost, Delta, MAX_LISTED_CHOICES, RawString},
    put, put_number,
};
use crate::domain::chat::MAX_CHOICES;

/// Room for all of an answer but its texts.
const ENVELOPE_BYTES: usize = 512;

/// An upstream's whole answer, borrowed from its body.
pub(crate) struct Completion<'a> {
    /// Usage of the answer, if the upstream reports it.
    pub(crate) usage: Option<Reported>,
    /// Bytes of all that was generated, as JSON spells it: what an estimate of its tokens starts from.
    pub(crate) text_bytes: u64,
    choices: Vec<(Choice<'a>, FinishReason)>,
    length: usize,
}

#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(borrow)]
    choices: Option<AtMost<Choice<'a>, MAX_LISTED_CHOICES>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    message: Delta<'a>,
    #[serde(borrow)]
    logprobs: Option<&'a RawValue>,
    #[serde(borrow)]
    finish_reason: Option<RawString<'a>>,
}

impl<'a> Completion<'a> {
    /// Reads a `chat.completion`; blanks in front of it, which some upstreams send to keep connections alive, are
    /// passed over.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Nonsense> {
        let raw: Raw<'_> = serde_json::from_slice(body)?;
        if raw.error.is_some() {
            return Err(Nonsense::Error);
        }
        let choices = raw.choices.unwrap_or_default().0;
        if choices.is_empty() || choices.len() > usize::from(MAX_CHOICES) {
            return Err(Nonsense::Choices);
        }
        let finished = |choice: Choice<'a>| {
            let reason = choice.finish_reason.and_then(|reason| FinishReason::read(reason.inner()));
            reason.map(|reason| (choice, reason)).ok_or(Nonsense::Unfinished)
        };
        let choices = choices.into_iter().map(finished).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            usage: raw.usage.and_then(Reported::read),
            text_bytes: choices.iter().map(|(choice, _)| choice.message.text_bytes()).sum(),
            choices,
            length: body.len(),
        })
    }

    /// Usage of all choices, where the upstream reports that of the first one alone. The others are estimated: as many tokens
    /// for as many bytes.
    pub(crate) fn usage_of_all(&self) -> Option<Reported> {
        let mut usage = self.usage?;
        let first = self.choices.first().map_or(0, |(choice, _)| choice.message.text_bytes());
        if first > 0 {
            usage.tokens.completion = (usage.tokens.completion * self.text_bytes).div_ceil(first);
        }
        Some(usage)
    }

    /// Writes the answer that the client reads. `cost` is what was billed; `None` where that is not known yet.
    pub(crate) fn write(&self, generation: Generation<'_>, usage: Reported, cost: Option<NanoUsd>) -> Bytes {
        let mut out = BytesMut::with_capacity(self.length + ENVELOPE_BYTES);
        generation.write("chat.completion", &mut out);
        put(&mut out, r#","choices":["#);
        for (place, (choice, reason)) in self.choices.iter().enumerate() {
            if place > 0 {
                put(&mut out, ",");
            }
            choice.write(place, *reason, generation.id, &mut out);
        }
        put(&mut out, r#"],"usage":"#);
        usage.write(cost, &mut out);
        put(&mut out, "}");
        out.freeze()
    }
}

fn put_or_null(text: Option<RawString<'_>>, out: &mut BytesMut) {
    match text {
        Some(text) => text.write(out),
        None => put(out, "null"),
    }
}

impl Choice<'_> {
    fn write(&self, place: usize, reason: FinishReason, generation: GenerationId, out: &mut BytesMut) {
        let message = &self.message;
        let made = MadeIds { generation, choice: place };
        put(out, r#"{"index":"#);
        put_number(out, self.index.unwrap_or(place as u64));
        put(out, r#","message":{"role":"assistant","content":"#);
        put_or_null(message.content, out);
        put(out, r#","refusal":"#);
        put_or_null(message.refusal, out);
        if let Some(reasoning) = message.reasoning() {
            put(out, r#","reasoning_content":"#);
            reasoning.write(out);
        }
        let calls = message.calls();
        if !calls.is_empty() {
            let mut before = r#","tool_calls":["#;
            for (place, call) in calls.iter().enumerate() {
                put(out, before);
                before = ",";
                call.write_whole(place, made, out);
            }
            put(out, "]");
        }
        put(out, r#"},"logprobs":"#);
        put_logprobs(self.logprobs, out);
        put(out, r#","finish_reason":""#);
        put(out, reason.as_str());
        put(out, "\"}");
    }
}
