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
        block::{TurnEnd, WholeTurn},
        messages::{self, MessagesStream},
        passed::PassedAnswer,
        responses::{self, ResponsesStream},
    },
    generation::{Generation, Settled, put, put_number},
    pieces::{
        call_ids::MadeIds,
        logprobs::{listed_tokens, put_logprobs},
        nonsense::Nonsense,
        oddity::{Oddities, Oddity},
        parts::{OutputSize, even_null},
        signed::Carry,
    },
    reader::{AnswerReader, ChatReader},
    schema::{EmbeddingsObject, EmbeddingsUsage},
    stream::{ChunkChoice, Event},
    usage::{ReportForm, Reported, put_usage},
};

/// Bytes of memory reserved for an answer in addition to its texts.
const ENVELOPE_BYTES: usize = 512;

/// An upstream's whole answer, borrowed from its body.
pub struct Completion<'a> {
    /// Usage, as far as it was reported.
    pub usage: Reported,
    /// Name of the model that answered, as spelled in JSON.
    model: Option<&'a str>,
    /// An unknown finish reason, as the upstream wrote it.
    pub unknown_finish: Option<&'a str>,
    pub odd: Oddities,
    pub finish_reasons: Vec<FinishReason>,
    /// Size of each choice's output.
    pub outputs: Vec<OutputSize>,
    content: Content<'a>,
    length: usize,
}

enum Content<'a> {
    /// Each choice has a finish reason.
    Choices(Vec<ChunkChoice<'a>>),
    /// Embedding vectors, as the upstream spelled them.
    Vectors(&'a RawValue),
    /// An answer in the client's own API.
    Passed(PassedAnswer<'a>),
}

#[derive(Deserialize)]
struct RawVectors<'a> {
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    model: Option<&'a RawValue>,
    usage: Option<&'a RawValue>,
}

/// Members that are edited in place, so `null` counts as a value.
#[derive(Deserialize)]
struct RawEdited<'a> {
    #[serde(borrow, default, deserialize_with = "even_null")]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    model: Option<&'a RawValue>,
}

impl<'a> Completion<'a> {
    /// Reads a `chat.completion` of the usual form: a message with a finish reason for each choice, in order. Any other
    /// form is an error; [`crate::whole_as_chat`] may be able to read it.
    pub fn read(reply: &Reply, body: &'a [u8]) -> Result<Self, Nonsense> {
        if !reply.is_of_chat() {
            return Self::read_vectors(body);
        }
        let chunk = match ChatReader::default().event(body)? {
            Event::Chunk(chunk) => chunk,
            Event::Failed(..) => return Err(Nonsense::Error),
            Event::Done => return Err(Nonsense::Choices),
        };
        let choices = chunk.choices.len();
        if choices == 0 || choices > usize::from(MAX_CHOICES) {
            return Err(Nonsense::Choices);
        }
        let mut places = 0_u64;
        chunk.choices.iter().for_each(|choice| places |= 1 << choice.index);
        // A choice in several pieces, or a single choice with an index other than 0.
        if places.count_ones() as usize != choices || (choices == 1 && places != 1) {
            return Err(Nonsense::Form);
        }
        let finish_reasons: Vec<FinishReason> = chunk.finish_reasons().collect();
        if finish_reasons.len() < choices {
            return Err(Nonsense::Unfinished);
        }
        let size = |choice: &ChunkChoice<'_>| OutputSize {
            bytes: choice.delta.text_bytes(),
            listed_tokens: listed_tokens(choice.logprobs),
        };
        Ok(Self {
            usage: chunk.usage().unwrap_or_default().max(chunk.timings().unwrap_or_default()),
            model: chunk.model,
            unknown_finish: chunk.unknown_finish,
            odd: chunk.odd.without(&[Oddity::MessageInStream]),
            finish_reasons,
            outputs: chunk.choices.iter().map(size).collect(),
            content: Content::Choices(chunk.choices),
            length: body.len(),
        })
    }

    /// Reads an answer in the client's own API, to pass it on.
    pub fn read_passed(api: UpstreamApi, body: &'a [u8]) -> Result<Self, Nonsense> {
        let body = std::str::from_utf8(body)?;
        let chunk = match AnswerReader::new(api).passing().event(body.as_bytes())? {
            Event::Chunk(chunk) if chunk.is_whole => chunk,
            Event::Chunk(_) | Event::Done => return Err(Nonsense::Choices),
            Event::Failed(..) => return Err(Nonsense::Error),
        };
        let finish_reasons: Vec<FinishReason> = chunk.finish_reasons().collect();
        if finish_reasons.is_empty() {
            return Err(Nonsense::Unfinished);
        }
        // A client of this API might not understand undocumented forms.
        if !chunk.odd.without(&[Oddity::UnknownItem, Oddity::FinishUnknown]).is_empty() {
            return Err(Nonsense::Form);
        }
        let mut output = OutputSize::default();
        for choice in &chunk.choices {
            output.bytes += choice.delta.text_bytes();
            output.listed_tokens += listed_tokens(choice.logprobs);
        }
        let RawEdited { usage, model } = serde_json::from_str(body)?;
        let put_usage = if api == UpstreamApi::Messages { messages::put_usage } else { responses::put_usage };
        Ok(Self {
            usage: chunk.usage().unwrap_or_default(),
            model: chunk.model,
            unknown_finish: chunk.unknown_finish,
            odd: chunk.odd,
            finish_reasons,
            outputs: vec![output],
            content: Content::Passed(PassedAnswer::of(body, [model, usage], put_usage)),
            length: body.len(),
        })
    }

    /// Reads a list of vectors without parsing them. It has no generated tokens.
    fn read_vectors(body: &'a [u8]) -> Result<Self, Nonsense> {
        let raw: RawVectors<'_> = from_slice(body)?;
        let vectors = raw.data.filter(|data| Kind::of(data) == Kind::Array).ok_or(Nonsense::Choices)?;
        let mut usage = raw.usage.map(|usage| Reported::read(ReportForm::Usage, usage)).unwrap_or_default();
        usage.completion = usage.prompt.map(|_| 0);
        let (content, length) = (Content::Vectors(vectors), body.len());
        let finish_reasons = Vec::new();
        let outputs = Vec::new();
        let (model, odd) = (raw.model.map(RawValue::get), Oddities::default());
        Ok(Self { usage, model, unknown_finish: None, odd, finish_reasons, outputs, content, length })
    }

    pub fn model(&self) -> Option<String> {
        serde_json::from_str(self.model?).ok()
    }

    /// Returns whether passing the answer on would exceed the nesting that clients can be expected to read.
    pub fn is_too_deep(&self) -> bool {
        match &self.content {
            Content::Choices(_) | Content::Vectors(_) => false,
            Content::Passed(answer) => answer.is_too_deep(),
        }
    }

    /// Writes the answer in the client's dialect.
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
    choices: &[ChunkChoice<'_>],
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
    // Writing to memory cannot fail, and the object is always valid JSON.
    let _ = serde_json::to_writer((&mut out).writer(), &object);
    out.freeze()
}

fn write_chat(choices: &[ChunkChoice<'_>], generation: Generation<'_>, settled: Settled, out: &mut BytesMut) {
    generation.write("chat.completion", out);
    put(out, r#","choices":["#);
    for (place, choice) in choices.iter().enumerate() {
        if place > 0 {
            put(out, ",");
        }
        choice.write(generation, out);
    }
    put(out, r#"],"usage":"#);
    put_usage(settled.usage, settled.cost, out);
    put(out, "}");
}

/// Returns the first choice, for dialects with only one. It always exists.
fn turn<'a>(choices: &'a [ChunkChoice<'a>]) -> WholeTurn<'a> {
    let choice = &choices[0];
    let stop = choice.stop.map(|stop| stop.decoded().into_owned());
    let end = TurnEnd { finish: choice.finish.unwrap_or(FinishReason::Stop), stop };
    WholeTurn { message: &choice.delta, logprobs: choice.logprobs, end }
}

fn put_or_null(text: Option<RawString<'_>>, out: &mut BytesMut) {
    match text {
        Some(text) => text.write(out),
        None => put(out, "null"),
    }
}

impl ChunkChoice<'_> {
    fn write(&self, generation: Generation<'_>, out: &mut BytesMut) {
        let message = &self.delta;
        let made = MadeIds { generation: generation.id, choice: self.index };
        let mut carry = Carry::of(message, generation.server);
        put(out, r#"{"index":"#);
        put_number(out, self.index as u64);
        put(out, r#","message":{"role":"assistant","content":"#);
        put_or_null(message.content, out);
        put(out, r#","refusal":"#);
        put_or_null(message.refusal, out);
        if let Some(reasoning) = message.reasoning {
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
        put(out, self.finish.unwrap_or(FinishReason::Stop).as_str());
        put(out, "\"}");
    }
}
