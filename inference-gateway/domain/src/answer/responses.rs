//! Answers in the Responses API: a response with output items, whole or as events.

mod items;
mod names;

use std::{fmt::Write as _, sync::Arc};

use bytes::BytesMut;
use shared::{error::ApiError, error::Code, ids::GenerationId};

use super::{
    AnswerUsage, FinishReason, Generation, Settled,
    calls::MadeIds,
    logprobs::put_content,
    put, put_number,
    turn::{Block, BlockContent, Piece, TurnEnd, TurnWriter, WholeTurn, blocks, is_complete},
};
use items::Item;
pub use names::{ToolName, ToolNames};

/// Parts of a request that its response repeats, or that shape the response.
pub struct ResponsesReply {
    /// Members of the response that repeat the request's, each with the comma in front, on one line.
    pub(crate) echo: String,
    /// Tools whose names for upstreams are not the client's.
    pub(crate) names: ToolNames,
    /// True if reasoning is also wanted as a summary.
    pub(crate) summary: bool,
}

/// Writer of a response.
pub(super) struct ResponsesStream {
    generation: GenerationId,
    created: i64,
    /// Model as a JSON string.
    model: String,
    reply: Arc<ResponsesReply>,
    /// Number of the next event.
    sequence: u64,
    /// Finished items, separated by commas.
    output: BytesMut,
    /// Text of the open item as spelled in JSON, without quotes.
    text: BytesMut,
    /// Log probabilities of that text, separated by commas.
    logprobs: BytesMut,
    /// Members of the open item's events that name the item.
    place: String,
}

/// The state of a response.
struct Outcome<'a> {
    status: &'static str,
    /// Reason of an incomplete response.
    incomplete: Option<&'static str>,
    error: Option<&'a ApiError>,
    settled: Option<Settled>,
}

impl Outcome<'_> {
    const IN_PROGRESS: Self = Outcome { status: "in_progress", incomplete: None, error: None, settled: None };

    /// The outcome of an answer that was not broken off.
    fn of(end: &TurnEnd, settled: Settled) -> Self {
        let (status, incomplete) = match end.finish {
            FinishReason::Stop | FinishReason::ToolCalls => ("completed", None),
            FinishReason::Length => ("incomplete", Some("max_output_tokens")),
            FinishReason::ContentFilter => ("incomplete", Some("content_filter")),
        };
        Self { status, incomplete, error: None, settled: Some(settled) }
    }
}

impl ResponsesStream {
    /// A response of which nothing was written.
    pub(super) fn new(generation: Generation<'_>, reply: Arc<ResponsesReply>) -> Self {
        Self {
            generation: generation.id,
            created: generation.created,
            model: serde_json::Value::from(generation.model).to_string(),
            reply,
            sequence: 0,
            output: BytesMut::new(),
            text: BytesMut::new(),
            logprobs: BytesMut::new(),
            place: String::new(),
        }
    }

    /// Writes a whole response.
    pub(super) fn whole(mut self, turn: &WholeTurn<'_>, settled: Settled, out: &mut BytesMut) {
        let made = MadeIds { generation: self.generation, choice: 0 };
        let mut rest = blocks(turn.message, made, true).peekable();
        while let Some((block, text)) = rest.next() {
            text.write_inner(&mut self.text);
            if matches!(block.content, BlockContent::Text) {
                put_content(turn.logprobs, &mut self.logprobs);
            }
            if self.item(&block).is_custom() {
                self.text = items::input_of(&self.text);
            }
            let goes_on = rest.peek().is_some() || turn.end.finish != FinishReason::Length;
            self.keep_item(&block, goes_on || is_complete(&block.content, text));
        }
        self.response(&Outcome::of(&turn.end, settled), out);
    }

    /// Keeps the open item for the response.
    fn keep_item(&mut self, block: &Block, is_complete: bool) -> usize {
        if !self.output.is_empty() {
            put(&mut self.output, ",");
        }
        let start = self.output.len();
        let text = std::mem::take(&mut self.text);
        let logprobs = std::mem::take(&mut self.logprobs);
        let status = if is_complete { "completed" } else { "incomplete" };
        let mut output = std::mem::take(&mut self.output);
        self.item(block).write(status, &text, &logprobs, &mut output);
        self.output = output;
        start
    }

    fn item<'a>(&'a self, block: &'a Block) -> Item<'a> {
        Item::new(block, self.generation, &self.reply)
    }

    /// Writes an event; `members` follow its type and number.
    fn event(&mut self, kind: &str, members: impl FnOnce(&Self, &mut BytesMut), out: &mut BytesMut) {
        put(out, "event: ");
        put(out, kind);
        put(out, "\ndata: {\"type\":\"");
        put(out, kind);
        put(out, r#"","sequence_number":"#);
        put_number(out, self.sequence);
        self.sequence += 1;
        members(self, out);
        put(out, "}\n\n");
    }

    /// Writes an event about the open item.
    fn item_event(&mut self, kind: &str, members: impl FnOnce(&Self, &mut BytesMut), out: &mut BytesMut) {
        let with_place = |stream: &Self, out: &mut BytesMut| {
            put(out, &stream.place);
            members(stream, out);
        };
        self.event(kind, with_place, out);
    }

    /// Writes an event with the whole response.
    fn response_event(&mut self, kind: &str, outcome: &Outcome<'_>, out: &mut BytesMut) {
        let response = |stream: &Self, out: &mut BytesMut| {
            put(out, r#","response":"#);
            stream.response(outcome, out);
        };
        self.event(kind, response, out);
    }

    fn response(&self, outcome: &Outcome<'_>, out: &mut BytesMut) {
        let mut head = String::with_capacity(256);
        let id = hex(self.generation);
        let _ = write!(
            head,
            r#"{{"id":"resp_{id}","object":"response","created_at":{},"model":{},"status":"{}","completed_at":"#,
            self.created, self.model, outcome.status
        );
        match outcome.settled.filter(|_| outcome.status == "completed") {
            Some(settled) => put_display(&mut head, settled.completed),
            None => head.push_str("null"),
        }
        head.push_str(r#","error":"#);
        match outcome.error {
            Some(error) => put_display(&mut head, response_error(error)),
            None => head.push_str("null"),
        }
        head.push_str(r#","incomplete_details":"#);
        match outcome.incomplete {
            Some(reason) => put_display(&mut head, format_args!(r#"{{"reason":"{reason}"}}"#)),
            None => head.push_str("null"),
        }
        put(out, &head);
        put(out, r#","output":["#);
        out.extend_from_slice(&self.output);
        put(out, r#"],"usage":"#);
        match outcome.settled {
            Some(settled) => put_usage(settled, out),
            None => put(out, "null"),
        }
        put(out, &self.reply.echo);
        put(out, "}");
    }
}

impl TurnWriter for ResponsesStream {
    fn begin(&mut self, _prompt: Option<u64>, out: &mut BytesMut) {
        self.response_event("response.created", &Outcome::IN_PROGRESS, out);
        self.response_event("response.in_progress", &Outcome::IN_PROGRESS, out);
    }

    fn open(&mut self, block: &Block, out: &mut BytesMut) {
        let item = self.item(block);
        let (index, id, part, summary) = (block.index, item.id(), item.empty_part(), item.is_summarised());
        self.place = format!(r#","item_id":"{id}","output_index":{index}"#);
        let added = |stream: &Self, out: &mut BytesMut| {
            put(out, &format!(r#","output_index":{index},"item":"#));
            stream.item(block).write_empty(out);
        };
        self.event("response.output_item.added", added, out);
        if let Some(part) = part {
            let members = |_: &Self, out: &mut BytesMut| {
                put(out, r#","content_index":0,"part":"#);
                put(out, part);
            };
            self.item_event("response.content_part.added", members, out);
        }
        if summary {
            let members = |_: &Self, out: &mut BytesMut| {
                put(out, r#","summary_index":0,"part":{"type":"summary_text","text":""}"#);
            };
            self.item_event("response.reasoning_summary_part.added", members, out);
        }
    }

    fn add(&mut self, block: &Block, piece: Piece<'_>, out: &mut BytesMut) {
        let start = self.text.len();
        piece.text.write_inner(&mut self.text);
        let item = self.item(block);
        let (kind, summary) = (item.delta_event(), item.is_summarised());
        let Some(kind) = kind else { return };
        let is_text = matches!(block.content, BlockContent::Text);
        let first_logprob = self.logprobs.len();
        if is_text && piece.logprobs.is_some() {
            if first_logprob > 0 {
                put(&mut self.logprobs, ",");
            }
            let (before, mut logprobs) = (self.logprobs.len(), std::mem::take(&mut self.logprobs));
            put_content(piece.logprobs, &mut logprobs);
            if logprobs.len() == before {
                logprobs.truncate(first_logprob);
            }
            self.logprobs = logprobs;
        }
        let delta = |stream: &Self, out: &mut BytesMut| {
            put(out, kind.index);
            put(out, r#","delta":""#);
            out.extend_from_slice(&stream.text[start..]);
            put(out, "\"");
            if is_text {
                put(out, r#","logprobs":["#);
                let new = &stream.logprobs[first_logprob..];
                out.extend_from_slice(new.strip_prefix(b",").unwrap_or(new));
                put(out, "]");
            }
        };
        self.item_event(kind.name, delta, out);
        if summary {
            let delta = |stream: &Self, out: &mut BytesMut| {
                put(out, r#","summary_index":0,"delta":""#);
                out.extend_from_slice(&stream.text[start..]);
                put(out, "\"");
            };
            self.item_event("response.reasoning_summary_text.delta", delta, out);
        }
    }

    fn close(&mut self, block: &Block, is_complete: bool, out: &mut BytesMut) {
        if self.item(block).is_custom() {
            self.text = items::input_of(&self.text);
            let delta = |stream: &Self, out: &mut BytesMut| items::put_text("delta", &stream.text, out);
            self.item_event("response.custom_tool_call_input.delta", delta, out);
        }
        for (event, index, members) in self.item(block).done_events() {
            let done = |stream: &Self, out: &mut BytesMut| {
                put(out, index);
                members(&stream.item(block), &stream.text, &stream.logprobs, out);
            };
            self.item_event(event, done, out);
        }
        let start = self.keep_item(block, is_complete);
        let index = block.index;
        let done = |stream: &Self, out: &mut BytesMut| {
            put(out, &format!(r#","output_index":{index},"item":"#));
            out.extend_from_slice(&stream.output[start..]);
        };
        self.event("response.output_item.done", done, out);
    }

    fn done(&mut self, end: &TurnEnd, settled: Settled, out: &mut BytesMut) {
        let outcome = Outcome::of(end, settled);
        let kind = if outcome.incomplete.is_some() { "response.incomplete" } else { "response.completed" };
        self.response_event(kind, &outcome, out);
    }

    fn fail(&mut self, error: &ApiError, settled: Option<Settled>, out: &mut BytesMut) {
        if self.sequence == 0 {
            self.begin(None, out);
        }
        let outcome = Outcome { status: "failed", incomplete: None, error: Some(error), settled };
        self.response_event("response.failed", &outcome, out);
    }

    fn keep_alive(&self) -> &'static str {
        ": keep-alive\n\n"
    }

    fn held_bytes(&self) -> usize {
        self.reply.echo.len() + self.output.len() + self.text.len() + self.logprobs.len()
    }
}

/// The 32 digits of a generation's id.
fn hex(id: GenerationId) -> String {
    let id = id.to_string();
    id.split_once('_').map(|(_, hex)| hex.to_owned()).unwrap_or(id)
}

fn put_display(head: &mut String, value: impl std::fmt::Display) {
    // Writing to a string cannot fail.
    let _ = write!(head, "{value}");
}

/// The error of a failed response. Agents wait for the time that the message of a `rate_limit_exceeded` names.
fn response_error(error: &ApiError) -> serde_json::Value {
    let code = match error.code {
        Code::SpendReserved => "rate_limit_exceeded",
        other => other.as_str(),
    };
    serde_json::json!({"code": code, "message": error.message})
}

fn put_usage(Settled { usage, cost, .. }: Settled, out: &mut BytesMut) {
    let AnswerUsage { tokens, reasoning } = usage;
    put(out, r#"{"input_tokens":"#);
    put_number(out, tokens.prompt);
    put(out, r#","input_tokens_details":{"cached_tokens":"#);
    put_number(out, tokens.cached);
    put(out, r#","cache_write_tokens":"#);
    put_number(out, 0);
    put(out, r#"},"output_tokens":"#);
    put_number(out, tokens.completion);
    put(out, r#","output_tokens_details":{"reasoning_tokens":"#);
    put_number(out, reasoning);
    put(out, r#"},"total_tokens":"#);
    put_number(out, tokens.prompt.saturating_add(tokens.completion));
    if let Some(cost) = cost {
        put(out, r#","cost":"#);
        put(out, &cost.to_string());
    }
    put(out, "}");
}
