//! Reads and writes whole answers, which are not streamed.

use bytes::{BufMut, Bytes, BytesMut};
use raw_json::RawString;
use reply::{MAX_CHOICES, Reply};
use serde::Deserialize;
use shared::{
    generation::FinishReason,
    json::{Kind, RawValue, from_slice},
};
use shared_catalog::UpstreamApi;

use crate::{
    dialect::{
        messages::{self, MessagesStream},
        passed::PassedAnswer,
        responses::{self, ResponsesStream},
        turn::{TurnEnd, WholeTurn},
    },
    generation::{Generation, Settled, put, put_number},
    nonsense::Nonsense,
    pieces::{
        call_ids::MadeIds,
        finish::FinishWord,
        logprobs::{listed_tokens, put_logprobs},
        parts::{AtMost, Delta, MAX_LISTED_CHOICES, OutputSize},
        signed::Carry,
    },
    reader::read_whole,
    schema::{EmbeddingsObject, EmbeddingsUsage},
    usage::{ReportForm, Reported, put_usage},
};

/// Memory reserved for an answer besides its texts.
const ENVELOPE_BYTES: usize = 512;

/// An upstream's whole answer, borrowed from the body.
pub struct Completion<'a> {
    /// Usage of the answer, as far as it was reported.
    pub usage: Reported,
    /// Name of the model that answered, as spelled in JSON.
    model: Option<&'a RawValue>,
    /// A finish reason that no known server uses.
    pub unknown_finish: Option<&'a str>,
    pub finish_reasons: Vec<FinishReason>,
    /// The size of each choice's output.
    pub outputs: Vec<OutputSize>,
    content: Content<'a>,
    length: usize,
}

/// A choice, and why it ended.
type Finished<'a> = (WholeChoice<'a>, FinishReason);

enum Content<'a> {
    Choices(Vec<Finished<'a>>),
    /// The vectors of an answer to a request for embeddings, as the upstream spelled them.
    Vectors(&'a RawValue),
    /// An answer of the client's own API.
    Passed(PassedAnswer<'a>),
}

#[derive(Deserialize)]
struct RawVectors<'a> {
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    model: Option<&'a RawValue>,
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(borrow)]
    choices: Option<AtMost<WholeChoice<'a>, MAX_LISTED_CHOICES>>,
    model: Option<&'a RawValue>,
    usage: Option<&'a RawValue>,
    timings: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WholeChoice<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    message: Delta<'a>,
    logprobs: Option<&'a RawValue>,
    finish_reason: Option<RawString<'a>>,
    stop_reason: Option<&'a RawValue>,
    matched_stop: Option<&'a RawValue>,
}

impl<'a> Completion<'a> {
    /// Reads a `chat.completion`. It skips leading blanks, which some upstreams send to keep connections alive.
    pub fn read(reply: &Reply, body: &'a [u8]) -> Result<Self, Nonsense> {
        if !reply.is_of_chat() {
            return Self::read_vectors(body);
        }
        let raw: Raw<'_> = from_slice(body)?;
        if raw.error.is_some() {
            return Err(Nonsense::Error);
        }
        let choices = raw.choices.unwrap_or_default().0;
        if choices.is_empty() || choices.len() > usize::from(MAX_CHOICES) {
            return Err(Nonsense::Choices);
        }
        let mut unknown_finish = None;
        let finished = |choice: WholeChoice<'a>| {
            let word = choice.finish_reason.map(RawString::inner).filter(|word| !word.is_empty());
            let read = word.map(FinishWord::read);
            unknown_finish = unknown_finish.or(word.filter(|_| read == Some(FinishWord::Unknown)));
            let reason = read.and_then(FinishWord::reason);
            reason.map(|reason| (choice, reason)).ok_or(Nonsense::Unfinished)
        };
        let choices = choices.into_iter().map(finished).collect::<Result<Vec<_>, _>>()?;
        let read = |form, report: Option<&RawValue>| {
            report.map(|report| Reported::read(form, report)).unwrap_or_default()
        };
        let usage = read(ReportForm::Usage, raw.usage).max(read(ReportForm::Timings, raw.timings));
        let size = |(choice, _): &Finished<'_>| OutputSize {
            bytes: choice.message.text_bytes(),
            listed_tokens: listed_tokens(choice.logprobs),
        };
        let (outputs, length) = (choices.iter().map(size).collect(), body.len());
        let finish_reasons = choices.iter().map(|(_, reason)| *reason).collect();
        let content = Content::Choices(choices);
        let model = raw.model;
        Ok(Self { usage, model, unknown_finish, finish_reasons, outputs, content, length })
    }

    /// Reads an answer of the client's own API, which is passed on.
    pub fn read_passed(api: UpstreamApi, body: &'a [u8]) -> Result<Self, Nonsense> {
        let body = std::str::from_utf8(body)?;
        let mut output = OutputSize::default();
        let answer = read_whole(api, body, &mut |delta, logprobs| {
            output.bytes += delta.text_bytes();
            output.listed_tokens += listed_tokens(logprobs);
        })?;
        let word = FinishWord::read(answer.word);
        if word == FinishWord::Failure {
            return Err(Nonsense::Unfinished);
        }
        let put_usage = if api == UpstreamApi::Messages { messages::put_usage } else { responses::put_usage };
        Ok(Self {
            usage: answer.usage.map(|usage| Reported::read(ReportForm::Usage, usage)).unwrap_or_default(),
            model: answer.model,
            unknown_finish: (word == FinishWord::Unknown).then_some(answer.word),
            finish_reasons: word.reason().into_iter().collect(),
            outputs: vec![output],
            content: Content::Passed(PassedAnswer::of(body, &answer, put_usage)),
            length: body.len(),
        })
    }

    /// Reads a list of vectors, which are not parsed. Nothing is generated.
    fn read_vectors(body: &'a [u8]) -> Result<Self, Nonsense> {
        let raw: RawVectors<'_> = from_slice(body)?;
        let vectors = raw.data.filter(|data| Kind::of(data) == Kind::Array).ok_or(Nonsense::Choices)?;
        let mut usage = raw.usage.map(|usage| Reported::read(ReportForm::Usage, usage)).unwrap_or_default();
        usage.completion = usage.prompt.map(|_| 0);
        let (content, length) = (Content::Vectors(vectors), body.len());
        let finish_reasons = Vec::new();
        let outputs = Vec::new();
        Ok(Self { usage, model: raw.model, unknown_finish: None, finish_reasons, outputs, content, length })
    }

    /// Reads the name of the model that answered, if the answer names one.
    pub fn model(&self) -> Option<String> {
        serde_json::from_str(self.model?.get()).ok()
    }

    /// Returns whether the answer would pass on more levels than clients can be expected to read.
    pub fn is_too_deep(&self) -> bool {
        match &self.content {
            Content::Choices(_) | Content::Vectors(_) => false,
            Content::Passed(answer) => answer.is_too_deep(),
        }
    }

    /// Writes the answer that the client reads, in the form that the request wants.
    pub fn write(&self, generation: Generation<'_>, reply: &Reply, settled: Settled) -> Bytes {
        let room = || BytesMut::with_capacity(self.length + ENVELOPE_BYTES);
        match &self.content {
            Content::Choices(choices) => write_choices(choices, generation, reply, settled, room()),
            Content::Vectors(vectors) => write_vectors(vectors, generation, settled, room()),
            Content::Passed(answer) => answer.write(generation, settled),
        }
    }
}

fn write_choices(
    choices: &[Finished<'_>],
    generation: Generation<'_>,
    reply: &Reply,
    settled: Settled,
    mut out: BytesMut,
) -> Bytes {
    match reply {
        Reply::Chat { .. } | Reply::Embeddings => write_chat(choices, generation, settled, &mut out),
        Reply::Responses(reply) => {
            ResponsesStream::new(generation, reply.clone()).whole(&turn(choices), settled, &mut out);
        }
        Reply::Messages(reply) => {
            MessagesStream::new(generation, reply.clone(), 0).whole(&turn(choices), settled, &mut out);
        }
    }
    out.freeze()
}

fn write_vectors(
    vectors: &RawValue,
    generation: Generation<'_>,
    settled: Settled,
    mut out: BytesMut,
) -> Bytes {
    let tokens = settled.usage.prompt;
    let usage = EmbeddingsUsage { prompt_tokens: tokens, total_tokens: tokens, cost: settled.cost };
    let object = EmbeddingsObject { object: "list", data: Some(vectors), model: generation.model, usage };
    // Writing to memory does not fail, and everything written is JSON.
    let _ = serde_json::to_writer((&mut out).writer(), &object);
    out.freeze()
}

fn write_chat(choices: &[Finished<'_>], generation: Generation<'_>, settled: Settled, out: &mut BytesMut) {
    generation.write("chat.completion", out);
    put(out, r#","choices":["#);
    for (place, (choice, reason)) in choices.iter().enumerate() {
        if place > 0 {
            put(out, ",");
        }
        choice.write(place, *reason, generation, out);
    }
    put(out, r#"],"usage":"#);
    put_usage(settled.usage, settled.cost, out);
    put(out, "}");
}

/// Returns the first choice, for dialects that have only one. There always is a choice.
fn turn<'a>(choices: &'a [Finished<'a>]) -> WholeTurn<'a> {
    let (choice, finish) = &choices[0];
    let stop = choice.stop_reason.or(choice.matched_stop).and_then(RawString::of);
    let end = TurnEnd { finish: *finish, stop: stop.map(|stop| stop.decoded().into_owned()) };
    WholeTurn { message: &choice.message, logprobs: choice.logprobs, end }
}

fn put_or_null(text: Option<RawString<'_>>, out: &mut BytesMut) {
    match text {
        Some(text) => text.write(out),
        None => put(out, "null"),
    }
}

impl WholeChoice<'_> {
    fn write(&self, place: usize, reason: FinishReason, generation: Generation<'_>, out: &mut BytesMut) {
        let message = &self.message;
        let made = MadeIds { generation: generation.id, choice: place };
        let mut carry = Carry::of(message, generation.server);
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
                let signature = carry.take_call(place as u64);
                call.write_whole(place, made, signature.as_deref(), out);
            }
            put(out, "]");
        }
        if !carry.is_empty() {
            put(out, ",");
            carry.write_details(out);
        }
        put(out, r#"},"logprobs":"#);
        put_logprobs(self.logprobs, out);
        put(out, r#","finish_reason":""#);
        put(out, reason.as_str());
        put(out, "\"}");
    }
}
