//! Answers in Anthropic's Messages API.

use serde_json::{Value, json};

use super::{
    signature,
    writer::{AnswerWriter, append},
};
use crate::upstream::{
    faults::fault::{Fault, Shape},
    prompts::plan::{NativePlan, Reported, Shortened, object},
    script::{Token, Usage, word},
};

/// Writer of an answer in the Messages API.
#[derive(Default)]
pub(super) struct MessagesWriter {
    /// Blocks of the answer. The last block may be open.
    blocks: Vec<Value>,
    /// First token of the last block, until it is closed.
    open: Option<Token>,
    /// Arguments of the last call so far.
    arguments: String,
}

impl AnswerWriter for MessagesWriter {
    fn start(&mut self, plan: &NativePlan) -> Vec<Value> {
        let mut message = message(plan, &[], &Value::Null);
        if let Some(usage) = usage(plan, plan.reported_first(), true) {
            message["usage"] = usage;
        }
        vec![json!({"type": "message_start", "message": message})]
    }

    fn token(&mut self, plan: &NativePlan, index: u64) -> Vec<Value> {
        let token = plan.script.token(index);
        if matches!(token, Token::Reasoning(_)) && !shows_thinking(plan) {
            return Vec::new();
        }
        let mut events = Vec::new();
        if !self.open.is_some_and(|open| open.same_item(token)) {
            events = self.close(plan);
            events.push(self.open(plan, token));
        }
        if plan.script.withheld_after.is_none_or(|after| index < after) {
            events.extend(self.delta(plan, token));
        }
        events
    }

    fn close(&mut self, plan: &NativePlan) -> Vec<Value> {
        let Some(open) = self.open.take() else { return Vec::new() };
        let (index, mut events) = (self.blocks.len() - 1, Vec::new());
        match open {
            Token::Reasoning(_) => {
                let signature = signature::of_thinking(plan.reasoning(plan.length));
                self.blocks[index]["signature"] = signature.clone().into();
                events.push(delta(index, &json!({"type": "signature_delta", "signature": signature})));
            }
            Token::Text(_) => {}
            Token::Tool { .. } => {
                self.blocks[index]["input"] =
                    serde_json::from_str(&self.arguments).unwrap_or_else(|_| json!({}));
            }
        }
        events.push(json!({"type": "content_block_stop", "index": index}));
        events
    }

    fn finish(&mut self, plan: &NativePlan, tokens: u64) -> Vec<Value> {
        let (reason, details) = stop_reason(plan);
        let delta = object([
            ("stop_reason", Some(reason)),
            ("stop_sequence", Some(Value::Null)),
            ("stop_details", details),
        ]);
        let mut event = json!({"type": "message_delta", "delta": delta});
        if let Some(usage) = usage(plan, plan.reported_last(tokens), false) {
            event["usage"] = usage;
        }
        vec![event]
    }

    fn unknown(&mut self) -> Vec<Value> {
        vec![json!({"type": "ping"}), json!({"type": "scripted_note", "note": {"kept": [1, "two"]}})]
    }

    fn done(&mut self) -> Vec<Value> {
        vec![json!({"type": "message_stop"})]
    }

    fn failure(&mut self, _plan: &NativePlan, _shape: Shape) -> Vec<Value> {
        let message = "Overloaded at worker-7.internal:9999";
        vec![json!({"type": "error", "error": {"type": "overloaded_error", "message": message}})]
    }

    fn sign_of_life(&self) -> &'static str {
        ": still here\n\nevent: ping\ndata: {\"type\": \"ping\"}\n\n"
    }

    fn whole(&mut self, plan: &NativePlan, tokens: u64) -> Value {
        let (reason, details) = stop_reason(plan);
        let mut message = message(plan, &self.blocks, &reason);
        if let Some(details) = details {
            message["stop_details"] = details;
        }
        if let Some(usage) = usage(plan, plan.reported_last(tokens), true) {
            message["usage"] = usage;
        }
        message
    }
}

impl MessagesWriter {
    /// Starts the block for a token.
    fn open(&mut self, plan: &NativePlan, token: Token) -> Value {
        let block = match token {
            Token::Reasoning(_) => json!({"type": "thinking", "thinking": "", "signature": ""}),
            Token::Text(_) => json!({"type": "text", "text": ""}),
            Token::Tool { call, .. } => {
                let (id, name) = (format!("toolu_{:06}x{call}", plan.serial), plan.tool(call).name);
                json!({"type": "tool_use", "id": id, "name": name, "input": {}})
            }
        };
        let event =
            json!({"type": "content_block_start", "index": self.blocks.len(), "content_block": block});
        self.blocks.push(block);
        self.open = Some(token);
        self.arguments.clear();
        event
    }

    /// Returns a token's delta in the open block.
    fn delta(&mut self, plan: &NativePlan, token: Token) -> Option<Value> {
        let index = self.blocks.len() - 1;
        match token {
            Token::Reasoning(_) if plan.prompt.body["thinking"]["display"] == "omitted" => None,
            Token::Reasoning(token) => {
                append(&mut self.blocks[index]["thinking"], word(token));
                Some(delta(index, &json!({"type": "thinking_delta", "thinking": word(token)})))
            }
            Token::Text(token) => {
                let words = plan.script.event(token, plan.length)?;
                append(&mut self.blocks[index]["text"], &words);
                Some(delta(index, &json!({"type": "text_delta", "text": words})))
            }
            Token::Tool { call, part } => {
                let piece = plan.script.arguments(call, part);
                self.arguments.push_str(&piece);
                Some(delta(index, &json!({"type": "input_json_delta", "partial_json": piece})))
            }
        }
    }
}

fn delta(index: usize, delta: &Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

/// Returns whether thinking is sent: it is unless the request turned it off. Its tokens are generated in either case.
fn shows_thinking(plan: &NativePlan) -> bool {
    !plan.script.hidden_reasoning && plan.prompt.body["thinking"]["type"] != "disabled"
}

fn message(plan: &NativePlan, content: &[Value], stop_reason: &Value) -> Value {
    json!({
        "model": plan.model(), "id": format!("msg_{:06}", plan.serial), "type": "message",
        "role": "assistant", "content": content, "stop_reason": stop_reason, "stop_sequence": null,
        "stop_details": null,
    })
}

/// Returns the stop reason, and the details that accompany a refusal.
fn stop_reason(plan: &NativePlan) -> (Value, Option<Value>) {
    let calls = plan.script.tool_calls > 0;
    let reason = match (&plan.script.finish_reason, plan.shortened) {
        _ if plan.script.fault == Fault::NoFinishReason => return (Value::Null, None),
        (Some(reason), _) => reason,
        (None, Some(Shortened::ByLimit)) => "max_tokens",
        (None, Some(Shortened::ByWindow)) => "model_context_window_exceeded",
        (None, None) if plan.script.refuses => "refusal",
        (None, None) if calls => "tool_use",
        (None, None) => "end_turn",
    };
    let details = json!({"type": "refusal", "category": null, "explanation": null});
    (reason.into(), (reason == "refusal").then_some(details))
}

/// Returns the object `usage`, with or without the members that are reported only once.
fn usage(plan: &NativePlan, reported: Reported, full: bool) -> Option<Value> {
    let Usage { prompt, cached, completion } = match reported {
        Reported::Nothing => return None,
        Reported::Verbatim(mark) => return Some(mark.into()),
        Reported::Counts(usage) => usage,
    };
    let (short, long) = (plan.writes.short, plan.writes.long);
    let kept = json!({"ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": long});
    let thinking = plan.reasoning(completion);
    Some(object([
        ("input_tokens", Some(prompt.saturating_sub(cached + short + long).into())),
        ("cache_creation_input_tokens", Some((short + long).into())),
        ("cache_read_input_tokens", Some(cached.into())),
        ("cache_creation", full.then_some(kept)),
        ("output_tokens", Some(completion.into())),
        ("output_tokens_details", (thinking > 0).then(|| json!({"thinking_tokens": thinking}))),
        ("service_tier", full.then(|| "standard".into())),
        ("inference_geo", full.then(|| "global".into())),
    ]))
}
