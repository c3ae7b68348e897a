//! Writes answers of the Responses API: a response with output items, whole or as events.

use std::sync::Arc;

use bytes::BytesMut;
use reply::{ResponsesReply, carried::ServerId};
use serde_json::{Value, json};
use shared::{
    error::{ApiError, Code},
    generation::FinishReason,
    ids::GenerationId,
    tokens::UsageDetails,
};

use super::items::{self, Item, ItemText, hex, put_summary, put_text};
use crate::{
    dialect::block::{Block, BlockContent, Piece, TurnEnd, TurnWriter, WholeTurn, blocks, is_complete},
    generation::{Generation, Settled, put, put_number},
    pieces::{call_ids::AnswerCallIds, logprobs::put_content},
};

pub(crate) struct ResponsesStream {
    generation: GenerationId,
    server: ServerId,
    /// Spelled as in JSON, without quotes.
    pub(super) id: String,
    created: i64,
    /// Spelled as a JSON string.
    model: String,
    reply: Arc<ResponsesReply>,
    /// Number of the next event.
    pub(super) sequence: u64,
    /// Finished items, separated by commas.
    pub(super) output: BytesMut,
    /// Text of the open item as spelled in JSON, without quotes.
    pub(super) text: BytesMut,
    /// Log probabilities of that text, separated by commas.
    logprobs: BytesMut,
    open: OpenItem,
    /// The open item, in a response that is passed on.
    pub(super) passed: Option<Block>,
    /// The vendor's id of that item, as spelled in JSON.
    pub(super) item_id: Option<String>,
}

/// Members and names that all events about the open item share.
#[derive(Default)]
struct OpenItem {
    /// Members that identify the item.
    place: String,
    /// Prefix of the names of events about the text.
    event: &'static str,
    part: &'static str,
    is_summarised: bool,
    is_custom: bool,
}

struct ResponseState<'a> {
    status: &'static str,
    /// Why the response is incomplete.
    incomplete: Option<&'static str>,
    error: Option<&'a ApiError>,
    settled: Option<Settled>,
}

impl ResponseState<'_> {
    const IN_PROGRESS: Self =
        ResponseState { status: "in_progress", incomplete: None, error: None, settled: None };

    /// Returns the state of an answer that was not broken off.
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
    pub(crate) fn new(generation: Generation<'_>, reply: Arc<ResponsesReply>) -> Self {
        Self {
            generation: generation.id,
            server: generation.server,
            id: format!("resp_{}", hex(generation.id)),
            created: generation.created,
            model: generation.model_json(),
            reply,
            sequence: 0,
            output: BytesMut::new(),
            text: BytesMut::new(),
            logprobs: BytesMut::new(),
            open: OpenItem::default(),
            passed: None,
            item_id: None,
        }
    }

    pub(crate) fn whole(mut self, turn: &WholeTurn<'_>, settled: Settled, out: &mut BytesMut) {
        let call_ids = AnswerCallIds::new(self.generation, self.reply.earlier_calls.clone());
        let mut rest = blocks(turn, call_ids, true, self.server).peekable();
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
        self.response(&ResponseState::of(&turn.end, settled), out);
    }

    /// Appends the open item to the response's output. Returns where it begins.
    pub(super) fn keep_item(&mut self, block: &Block, is_complete: bool) -> usize {
        if !self.output.is_empty() {
            put(&mut self.output, ",");
        }
        let mut output = std::mem::take(&mut self.output);
        let start = output.len();
        let status = if is_complete { "completed" } else { "incomplete" };
        self.item(block).write(status, Some(self.item_text()), &mut output);
        self.output = output;
        self.text.clear();
        self.logprobs.clear();
        start
    }

    fn item<'a>(&'a self, block: &'a Block) -> Item<'a> {
        let mut item = Item::new(block, self.generation, &self.reply);
        if let Some(id) = &self.item_id {
            item.id.clone_from(id);
        }
        item
    }

    fn item_text(&self) -> ItemText<'_> {
        ItemText { text: &self.text, logprobs: &self.logprobs }
    }

    /// Writes an event with a name of two parts. `members` come after its type and number.
    fn event(&mut self, name: [&str; 2], out: &mut BytesMut, members: impl FnOnce(&Self, &mut BytesMut)) {
        put(out, "event: ");
        for part in name {
            put(out, part);
        }
        put(out, "\ndata: {\"type\":\"");
        for part in name {
            put(out, part);
        }
        put(out, r#"","sequence_number":"#);
        put_number(out, self.sequence);
        self.sequence += 1;
        members(self, out);
        put(out, "}\n\n");
    }

    /// Writes an event about the open item.
    fn item_event(
        &mut self,
        name: [&str; 2],
        out: &mut BytesMut,
        members: impl FnOnce(&Self, &mut BytesMut),
    ) {
        self.event(name, out, |stream, out| {
            put(out, &stream.open.place);
            members(stream, out);
        });
    }

    /// Writes the event that ends the item kept at `start`.
    pub(super) fn item_done(&mut self, block: &Block, start: usize, out: &mut BytesMut) {
        self.event(["response.output_item.", "done"], out, |stream, out| {
            put(out, &format!(r#","output_index":{},"item":"#, block.index));
            out.extend_from_slice(&stream.output[start..]);
        });
    }

    /// Writes an event about the summary of the open item, repeating the text from `start` on.
    fn summary_event(&mut self, name: &str, start: usize, out: &mut BytesMut) {
        self.item_event(["response.reasoning_summary_", name], out, |stream, out| {
            put(out, r#","summary_index":0"#);
            match name {
                "text.delta" => put_text("delta", &stream.text[start..], out),
                "text.done" => put_text("text", &stream.text, out),
                _ => {
                    put(out, r#","part":"#);
                    put_summary(&stream.text, out);
                }
            }
        });
    }

    /// Writes an event about the part of the open item, if the item has parts.
    fn part_event(&mut self, name: &str, block: &Block, out: &mut BytesMut) {
        let mut part = BytesMut::new();
        if self.item(block).put_part(self.item_text(), &mut part) {
            self.item_event(["response.content_part.", name], out, |_, out| {
                put(out, r#","content_index":0,"part":"#);
                out.extend_from_slice(&part);
            });
        }
    }

    /// Appends a piece's log probabilities. Returns where they begin.
    fn keep_logprobs(&mut self, piece: Piece<'_>) -> usize {
        let start = self.logprobs.len();
        if piece.logprobs.is_none() {
            return start;
        }
        let mut logprobs = BytesMut::new();
        put_content(piece.logprobs, &mut logprobs);
        if start > 0 && !logprobs.is_empty() {
            put(&mut self.logprobs, ",");
        }
        self.logprobs.extend_from_slice(&logprobs);
        self.logprobs.len() - logprobs.len()
    }

    /// Writes an event with the whole response.
    fn response_event(&mut self, name: &str, outcome: &ResponseState<'_>, out: &mut BytesMut) {
        self.event(["response.", name], out, |stream, out| {
            put(out, r#","response":"#);
            stream.response(outcome, out);
        });
    }

    fn response(&self, outcome: &ResponseState<'_>, out: &mut BytesMut) {
        let completed = outcome.settled.filter(|_| outcome.status == "completed");
        let head = format!(
            r#"{{"id":"{}","object":"response","created_at":{},"model":{},"status":"{}","completed_at":{},"error":{},"incomplete_details":{},"output":["#,
            self.id,
            self.created,
            self.model,
            outcome.status,
            json!(completed.map(|settled| settled.completed)),
            json!(outcome.error.map(response_error)),
            json!(outcome.incomplete.map(|reason| json!({"reason": reason}))),
        );
        put(out, &head);
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
        self.response_event("created", &ResponseState::IN_PROGRESS, out);
        self.response_event("in_progress", &ResponseState::IN_PROGRESS, out);
    }

    fn open(&mut self, block: &Block, out: &mut BytesMut) {
        let item = self.item(block);
        self.open = OpenItem {
            place: format!(r#","item_id":"{}","output_index":{}"#, item.id, block.index),
            event: item.words.event,
            part: item.part_index(),
            is_summarised: item.is_summarised,
            is_custom: item.is_custom(),
        };
        self.event(["response.output_item.", "added"], out, |stream, out| {
            put(out, &format!(r#","output_index":{},"item":"#, block.index));
            stream.item(block).write("in_progress", None, out);
        });
        self.part_event("added", block, out);
        if self.open.is_summarised {
            self.summary_event("part.added", 0, out);
        }
    }

    fn add(&mut self, block: &Block, piece: Piece<'_>, out: &mut BytesMut) {
        let start = self.text.len();
        piece.text.write_inner(&mut self.text);
        if self.open.is_custom {
            return;
        }
        let first = matches!(block.content, BlockContent::Text).then(|| self.keep_logprobs(piece));
        self.item_event([self.open.event, ".delta"], out, |stream, out| {
            put(out, stream.open.part);
            put_text("delta", &stream.text[start..], out);
            if let Some(first) = first {
                put(out, r#","logprobs":["#);
                out.extend_from_slice(&stream.logprobs[first..]);
                put(out, "]");
            }
        });
        if self.open.is_summarised {
            self.summary_event("text.delta", start, out);
        }
    }

    fn close(&mut self, block: &Block, is_complete: bool, out: &mut BytesMut) {
        if matches!(block.content, BlockContent::Carried(_)) {
            let start = self.keep_item(block, is_complete);
            return self.item_done(block, start, out);
        }
        let event = self.open.event;
        if self.open.is_custom {
            self.text = items::input_of(&self.text);
            self.item_event([event, ".delta"], out, |stream, out| put_text("delta", &stream.text, out));
        }
        self.item_event([event, ".done"], out, |stream, out| {
            put(out, stream.open.part);
            stream.item(block).put_done(stream.item_text(), out);
        });
        self.part_event("done", block, out);
        if self.open.is_summarised {
            self.summary_event("text.done", 0, out);
            self.summary_event("part.done", 0, out);
        }
        let start = self.keep_item(block, is_complete);
        self.item_done(block, start, out);
    }

    fn done(&mut self, end: &TurnEnd, settled: Settled, out: &mut BytesMut) {
        let outcome = ResponseState::of(end, settled);
        self.response_event(outcome.status, &outcome, out);
    }

    fn fail(&mut self, error: &ApiError, settled: Option<Settled>, out: &mut BytesMut) {
        if self.sequence == 0 {
            self.begin(None, out);
        }
        let outcome = ResponseState { status: "failed", incomplete: None, error: Some(error), settled };
        self.response_event("failed", &outcome, out);
    }

    fn keep_alive(&self) -> &'static str {
        ": keep-alive\n\n"
    }

    fn held_bytes(&self) -> usize {
        self.reply.echo.len() + self.output.len() + self.text.len() + self.logprobs.len()
    }
}

/// Writes the error of a failed response. Agents wait as long as the message of a `rate_limit_exceeded` says.
fn response_error(error: &ApiError) -> Value {
    let code = match error.code {
        Code::SpendReserved => "rate_limit_exceeded",
        other => other.as_str(),
    };
    json!({"code": code, "message": error.message})
}

pub(crate) fn put_usage(Settled { usage: tokens, cost, .. }: Settled, out: &mut BytesMut) {
    let UsageDetails { cache_write, cache_write_long, reasoning, .. } = tokens.details;
    put(out, r#"{"input_tokens":"#);
    put_number(out, tokens.prompt);
    put(out, r#","input_tokens_details":{"cached_tokens":"#);
    put_number(out, tokens.cached);
    put(out, r#","cache_write_tokens":"#);
    put_number(out, cache_write.saturating_add(cache_write_long));
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
