//! Writes answers of the Messages API: a message with content blocks, whole or as events.

use std::{borrow::Cow, sync::Arc};

use bytes::BytesMut;
use raw_json::RawString;
use reply::{
    MessagesReply,
    carried::{ServerId, carry},
};
use serde_json::json;
use shared::{error::ApiError, generation::FinishReason, ids::GenerationId};

use super::{
    block::{Block, BlockContent, Piece, TurnEnd, TurnWriter, WholeTurn, blocks, object_of},
    passed::{PassedWriter, UsageOf},
};
use crate::{
    generation::{Generation, Settled, put, put_number},
    pieces::call_ids::AnswerCallIds,
    stream::Original,
};

const STOP_EVENT: &str = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

pub(crate) struct MessagesStream {
    generation: GenerationId,
    server: ServerId,
    /// Spelled as a JSON string.
    model: String,
    reply: Arc<MessagesReply>,
    /// Number of tokens in the prompt, used until the upstream reports its own count.
    prompt_tokens: u64,
    /// The last bytes of the text, which may end with a stop sequence.
    tail: String,
    has_calls: bool,
    refused: bool,
    /// Index of the open block, if the message is passed on.
    open: Option<u64>,
}

impl MessagesStream {
    pub(crate) fn new(generation: Generation<'_>, reply: Arc<MessagesReply>, prompt_tokens: u64) -> Self {
        Self {
            generation: generation.id,
            server: generation.server,
            model: generation.model_json(),
            reply,
            prompt_tokens,
            tail: String::new(),
            has_calls: false,
            refused: false,
            open: None,
        }
    }

    pub(crate) fn whole(mut self, turn: &WholeTurn<'_>, settled: Settled, out: &mut BytesMut) {
        self.put_head(out);
        put(out, r#","content":["#);
        let call_ids = AnswerCallIds::new(self.generation, self.reply.earlier_calls.clone());
        for (block, text) in blocks(turn, call_ids, self.reply.thinking, self.server) {
            if block.index > 0 {
                put(out, ",");
            }
            self.note(&block.content);
            self.put_block(&block, text, out);
        }
        put(out, "]");
        self.put_stop(&turn.end, out);
        put(out, r#","usage":"#);
        put_usage(settled, out);
        put(out, "}");
    }

    fn put_head(&self, out: &mut BytesMut) {
        let id = self.generation.to_string();
        let hex = id.split_once('_').map_or(id.as_str(), |(_, hex)| hex);
        put(
            out,
            &format!(r#"{{"id":"msg_{hex}","type":"message","role":"assistant","model":{}"#, self.model),
        );
    }

    fn note(&mut self, content: &BlockContent) {
        match content {
            BlockContent::Call { .. } => self.has_calls = true,
            BlockContent::Refusal => self.refused = true,
            BlockContent::Reasoning { .. } | BlockContent::Carried(_) | BlockContent::Text => {}
        }
    }

    fn put_block(&mut self, block: &Block, text: RawString<'_>, out: &mut BytesMut) {
        match &block.content {
            BlockContent::Reasoning { carried } => {
                put(out, r#"{"type":"thinking","thinking":"#);
                text.write(out);
                put(out, r#","signature":""#);
                put(out, &self.signature(carried.as_deref()));
                put(out, "\"}");
            }
            BlockContent::Carried(carried) => put_redacted(carried, out),
            BlockContent::Text | BlockContent::Refusal => {
                self.keep_tail(text);
                put(out, r#"{"type":"text","text":"#);
                text.write(out);
                put(out, "}");
            }
            BlockContent::Call { id, name, .. } => {
                put(out, &format!(r#"{{"type":"tool_use","id":"{id}","name":"{name}","input":"#));
                put_input(text, out);
                put(out, "}");
            }
        }
    }

    /// Keeps the end of the text, as long as the longest stop sequence.
    fn keep_tail(&mut self, text: RawString<'_>) {
        let Some(longest) = self.reply.stops.iter().map(String::len).max() else { return };
        self.tail.push_str(&text.decoded());
        let mut start = self.tail.len().saturating_sub(longest);
        while !self.tail.is_char_boundary(start) {
            start += 1;
        }
        self.tail.drain(..start);
    }

    /// Writes why the message ended, and the stop sequence.
    fn put_stop(&self, end: &TurnEnd, out: &mut BytesMut) {
        let stop = self.stop_sequence(end);
        let reason = match end.finish {
            FinishReason::Length => "max_tokens",
            FinishReason::ContentFilter => "refusal",
            FinishReason::Stop | FinishReason::ToolCalls if self.has_calls => "tool_use",
            FinishReason::Stop | FinishReason::ToolCalls if self.refused => "refusal",
            FinishReason::Stop | FinishReason::ToolCalls if stop.is_some() => "stop_sequence",
            FinishReason::Stop | FinishReason::ToolCalls => "end_turn",
        };
        let stop = json!(stop.filter(|_| reason == "stop_sequence"));
        put(out, &format!(r#","stop_reason":"{reason}","stop_sequence":{stop}"#));
    }

    /// Returns the stop sequence that ended the answer, as the upstream reports it or as the end of the text shows it.
    fn stop_sequence(&self, end: &TurnEnd) -> Option<&str> {
        let told = |stop: &&String| end.stop.as_ref() == Some(*stop);
        let shown = |stop: &&String| self.tail.ends_with(stop.as_str());
        let stops = &self.reply.stops;
        stops.iter().find(told).or_else(|| stops.iter().find(shown)).map(String::as_str)
    }

    /// Returns the signature of a thought. Clients drop a thought without one, so it is never empty, even if the server
    /// wants nothing back.
    fn signature<'c>(&self, carried: Option<&'c str>) -> Cow<'c, str> {
        carried.map_or_else(|| carry(self.server, &[]).into(), Cow::Borrowed)
    }

    /// Writes an event of a content block. `members` come after its index.
    fn block_event(kind: &str, block: &Block, members: impl FnOnce(&mut BytesMut), out: &mut BytesMut) {
        put(out, "event: ");
        put(out, kind);
        put(out, "\ndata: {\"type\":\"");
        put(out, kind);
        put(out, r#"","index":"#);
        put_number(out, block.index);
        members(out);
        put(out, "}\n\n");
    }
}

impl TurnWriter for MessagesStream {
    fn begin(&mut self, prompt: Option<u64>, out: &mut BytesMut) {
        put(out, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":");
        self.put_head(out);
        put(out, r#","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":"#);
        put_number(out, prompt.unwrap_or(self.prompt_tokens));
        put(out, r#","cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}}}"#);
        put(out, "\n\n");
    }

    fn open(&mut self, block: &Block, out: &mut BytesMut) {
        self.note(&block.content);
        let start = |out: &mut BytesMut| {
            put(out, r#","content_block":"#);
            match &block.content {
                BlockContent::Reasoning { .. } => {
                    put(out, r#"{"type":"thinking","thinking":"","signature":""}"#);
                }
                BlockContent::Carried(carried) => put_redacted(carried, out),
                BlockContent::Text | BlockContent::Refusal => put(out, r#"{"type":"text","text":""}"#),
                BlockContent::Call { id, name, .. } => {
                    put(out, &format!(r#"{{"type":"tool_use","id":"{id}","name":"{name}","input":{{}}}}"#));
                }
            }
        };
        Self::block_event("content_block_start", block, start, out);
    }

    fn add(&mut self, block: &Block, piece: Piece<'_>, out: &mut BytesMut) {
        let delta = match block.content {
            BlockContent::Reasoning { .. } => r#","delta":{"type":"thinking_delta","thinking":"#,
            // Its content was sent when it opened.
            BlockContent::Carried(_) => return,
            BlockContent::Text | BlockContent::Refusal => {
                self.keep_tail(piece.text);
                r#","delta":{"type":"text_delta","text":"#
            }
            BlockContent::Call { .. } => r#","delta":{"type":"input_json_delta","partial_json":"#,
        };
        let members = |out: &mut BytesMut| {
            put(out, delta);
            piece.text.write(out);
            put(out, "}");
        };
        Self::block_event("content_block_delta", block, members, out);
    }

    fn close(&mut self, block: &Block, _is_complete: bool, out: &mut BytesMut) {
        if let BlockContent::Reasoning { carried } = &block.content {
            let signature = self.signature(carried.as_deref());
            let members = |out: &mut BytesMut| {
                put(out, r#","delta":{"type":"signature_delta","signature":""#);
                put(out, &signature);
                put(out, "\"}");
            };
            Self::block_event("content_block_delta", block, members, out);
        }
        Self::block_event("content_block_stop", block, |_| {}, out);
    }

    fn done(&mut self, end: &TurnEnd, settled: Settled, out: &mut BytesMut) {
        put(out, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{");
        let start = out.len();
        self.put_stop(end, out);
        // The first member has no comma before it.
        let members = out.split_off(start);
        out.extend_from_slice(&members[1..]);
        put(out, r#"},"usage":"#);
        put_usage(settled, out);
        put(out, "}\n\n");
        put(out, STOP_EVENT);
    }

    fn fail(&mut self, error: &ApiError, _settled: Option<Settled>, out: &mut BytesMut) {
        put(out, "event: error\ndata: ");
        put(out, &message_error(error, None));
        put(out, "\n\n");
    }

    fn keep_alive(&self) -> &'static str {
        "event: ping\ndata: {\"type\":\"ping\"}\n\n"
    }

    fn held_bytes(&self) -> usize {
        0
    }
}

/// Writes a block that the client only sends back.
fn put_redacted(carried: &str, out: &mut BytesMut) {
    put(out, r#"{"type":"redacted_thinking","data":""#);
    put(out, carried);
    put(out, "\"}");
}

/// Writes the arguments of a call as an object. Text that is no object was cut or is the model's mistake, and is
/// written under a member name that no tool has. An object that strict readers refuse is treated the same, since they
/// would refuse the whole message because of it.
fn put_input(arguments: RawString<'_>, out: &mut BytesMut) {
    let text = arguments.decoded();
    match object_of(&text) {
        Some(object) => put(out, object),
        None => put(out, &json!({"invalid_arguments": text}).to_string()),
    }
}

pub(crate) fn put_usage(Settled { usage: tokens, cost, .. }: Settled, out: &mut BytesMut) {
    let written = tokens.details.cache_write.saturating_add(tokens.details.cache_write_long);
    put(out, r#"{"input_tokens":"#);
    put_number(out, tokens.prompt.saturating_sub(tokens.cached).saturating_sub(written));
    put(out, r#","cache_creation_input_tokens":"#);
    put_number(out, written);
    put(out, r#","cache_read_input_tokens":"#);
    put_number(out, tokens.cached);
    put(out, r#","output_tokens":"#);
    put_number(out, tokens.completion);
    if let Some(cost) = cost {
        put(out, r#","cost":"#);
        put(out, &cost.to_string());
    }
    put(out, "}");
}

/// Writes an error as JSON of the Messages API. Errors within a stream omit the request's id, which the stream's
/// headers contain.
pub fn message_error(error: &ApiError, request: Option<&str>) -> String {
    let kind = error_type(error.code.status().as_u16());
    let mut written = json!({"type": "error", "error": {"type": kind, "message": error.message}});
    if let Some(request) = request {
        written["request_id"] = request.into();
    }
    written.to_string()
}

/// Maps a status of the other dialects to the type of an error.
const fn error_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

impl PassedWriter for MessagesStream {
    fn pass(&mut self, event: &Original<'_>) {
        match event.kind {
            "content_block_start" => self.open = event.index.and_then(|index| index.get().parse().ok()),
            "content_block_stop" => self.open = None,
            _ => {}
        }
    }

    fn close_passed(&mut self, out: &mut BytesMut) {
        // A thought gets no signature, since only the vendor can make one.
        if let Some(index) = self.open.take() {
            let block = Block { index, content: BlockContent::Text };
            Self::block_event("content_block_stop", &block, |_| {}, out);
        }
    }

    fn output(&mut self) -> Option<String> {
        None
    }

    fn behind(&self) -> &'static str {
        STOP_EVENT
    }

    fn usage(&self) -> UsageOf {
        put_usage
    }
}
