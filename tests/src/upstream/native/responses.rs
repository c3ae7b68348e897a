//! Answers in OpenAI's Responses API.

use serde_json::{Value, json};

use super::{
    response_object::{response, usage},
    signature,
    writer::{AnswerWriter, append},
};
use crate::upstream::{
    faults::fault::Shape,
    prompts::plan::NativePlan,
    script::{Token, word},
};

/// Writes an answer in the Responses API.
#[derive(Default)]
pub(super) struct ResponsesWriter {
    /// Number of events that were written so far.
    events: u64,
    /// The items of the answer. The last of them may not have ended yet.
    items: Vec<Value>,
    /// The first token of the last item, if that item has not ended yet.
    open: Option<Token>,
    /// The token that was written last.
    last: Option<(u64, Token)>,
}

/// The members of an event, except for its type and its number.
type Members = (&'static str, Value);

impl AnswerWriter for ResponsesWriter {
    fn start(&mut self, plan: &NativePlan) -> Vec<Value> {
        let started = response(plan, "in_progress", &[]);
        let events = [
            ("response.created", json!({"response": started})),
            ("response.in_progress", json!({"response": started})),
        ];
        self.numbered(events)
    }

    fn token(&mut self, plan: &NativePlan, index: u64) -> Vec<Value> {
        let token = plan.script.token(index);
        if matches!(token, Token::Reasoning(_)) && plan.script.hidden_reasoning {
            return Vec::new();
        }
        let mut events = Vec::new();
        if !self.open.is_some_and(|open| open.same_item(token)) {
            events = self.close(plan);
            let opening = self.open(plan, token);
            events.extend(self.numbered(opening));
        }
        self.last = Some((index, token));
        if plan.script.withheld_after.is_none_or(|after| index < after) {
            let delta = self.delta(plan, token);
            events.extend(self.numbered(delta));
        }
        events
    }

    fn close(&mut self, plan: &NativePlan) -> Vec<Value> {
        let Some(open) = self.open.take() else { return Vec::new() };
        let cut = self.is_cut(plan);
        let ending = self.ending(plan, open, if cut { "incomplete" } else { "completed" });
        self.numbered(ending)
    }

    fn finish(&mut self, plan: &NativePlan, tokens: u64) -> Vec<Value> {
        let (name, response) = self.ended(plan, tokens);
        self.numbered([(name, json!({ "response": response }))])
    }

    fn unknown(&mut self) -> Vec<Value> {
        self.numbered([("response.scripted_note", json!({"note": {"kept": [1, "two"]}}))])
    }

    fn done(&mut self) -> Vec<Value> {
        Vec::new()
    }

    fn failure(&mut self, plan: &NativePlan, shape: Shape) -> Vec<Value> {
        let message = "The server had an error while processing your request at worker-7.internal:9999.";
        let error = json!({"code": "server_error", "message": message});
        let mut failed = response(plan, "failed", &self.items);
        failed["error"] = error.clone();
        let failed = ("response.failed", json!({ "response": failed }));
        match shape {
            // The format that the SDK declares.
            Shape::Flat => self.numbered([("error", with(error, "param", Value::Null))]),
            // The format that the vendor sends.
            Shape::Text => {
                let error = with(with(error, "type", "server_error".into()), "param", Value::Null);
                self.numbered([("error", json!({ "error": error })), failed])
            }
            Shape::Nested
            | Shape::TooLong
            | Shape::Template
            | Shape::Detail
            | Shape::Telling
            | Shape::Html => self.numbered([failed]),
        }
    }

    fn sign_of_life(&self) -> &'static str {
        ": still here\n\n"
    }

    fn whole(&mut self, plan: &NativePlan, tokens: u64) -> Value {
        self.ended(plan, tokens).1
    }
}

impl ResponsesWriter {
    fn numbered(&mut self, events: impl IntoIterator<Item = Members>) -> Vec<Value> {
        let mut one = |(name, members): Members| {
            let mut event = json!({"type": name, "sequence_number": self.events});
            self.events += 1;
            if let (Value::Object(event), Value::Object(members)) = (&mut event, members) {
                event.extend(members);
            }
            event
        };
        events.into_iter().map(&mut one).collect()
    }

    /// Returns the name of the event that ends the answer, and the response in that event.
    fn ended(&self, plan: &NativePlan, tokens: u64) -> (&'static str, Value) {
        let (status, reason) = super::response_object::status(plan);
        let mut ended = response(plan, status, &self.items);
        if let Some(reason) = reason {
            ended["incomplete_details"] = json!({ "reason": reason });
        }
        ended["usage"] = usage(plan, plan.reported_last(tokens));
        (if reason.is_some() { "response.incomplete" } else { "response.completed" }, ended)
    }

    /// Returns whether the answer ends before its last item has ended.
    fn is_cut(&self, plan: &NativePlan) -> bool {
        let Some((index, token)) = self.last else { return false };
        let complete = matches!(token, Token::Tool { part: 2, .. });
        plan.shortened.is_some() && index + 1 == plan.length && !complete
    }

    /// Begins the item to which a token belongs.
    fn open(&mut self, plan: &NativePlan, token: Token) -> Vec<Members> {
        let (output, serial) = (self.items.len(), plan.serial);
        let item = match token {
            Token::Reasoning(_) => {
                json!({"id": format!("rs_{serial:06}"), "type": "reasoning", "summary": []})
            }
            Token::Text(_) => json!({"id": format!("msg_{serial:06}"), "type": "message",
                "status": "in_progress", "content": [], "role": "assistant"}),
            Token::Tool { call, .. } => {
                let (tool, call_id) = (plan.tool(call), format!("call_{serial:06}x{call}"));
                let (prefix, kind, input) =
                    if tool.custom { CUSTOM_CALL } else { ("fc", "function_call", "arguments") };
                json!({"id": format!("{prefix}_{serial:06}x{call}"), "type": kind, "status": "in_progress",
                    input: "", "call_id": call_id, "name": tool.name})
            }
        };
        let id = item["id"].clone();
        let mut events = vec![("response.output_item.added", json!({"output_index": output, "item": item}))];
        self.items.push(item);
        self.open = Some(token);
        match token {
            Token::Reasoning(_) if summarizes(plan) => {
                let part = json!({"type": "summary_text", "text": ""});
                events.push((
                    "response.reasoning_summary_part.added",
                    json!({"item_id": id, "output_index": output, "summary_index": 0, "part": part}),
                ));
                self.items[output]["summary"] = json!([part]);
            }
            Token::Text(_) => {
                let part = text_part(plan, "");
                events.push((
                    "response.content_part.added",
                    json!({"item_id": id, "output_index": output, "content_index": 0, "part": part}),
                ));
                self.items[output]["content"] = json!([part]);
            }
            Token::Reasoning(_) | Token::Tool { .. } => {}
        }
        events
    }

    /// Returns the delta with which a token is added to the item that has begun.
    fn delta(&mut self, plan: &NativePlan, token: Token) -> Option<Members> {
        let output = self.items.len() - 1;
        let item = &mut self.items[output];
        let id = item["id"].clone();
        let (name, mut members) = match token {
            Token::Reasoning(_) if !summarizes(plan) => return None,
            Token::Reasoning(index) => {
                append(&mut item["summary"][0]["text"], word(index));
                (
                    "response.reasoning_summary_text.delta",
                    json!({"item_id": id, "output_index": output, "summary_index": 0, "delta": word(index)}),
                )
            }
            Token::Text(index) => {
                let words = plan.script.event(index, plan.length)?;
                append(&mut item["content"][0][text_member(plan)], &words);
                let members =
                    json!({"item_id": id, "output_index": output, "content_index": 0, "delta": words});
                if plan.script.refuses {
                    ("response.refusal.delta", members)
                } else {
                    ("response.output_text.delta", with(members, "logprobs", json!([])))
                }
            }
            Token::Tool { part: 0, .. } => return None,
            Token::Tool { call, part } => {
                let piece = plan.script.arguments(call, part);
                let custom = item["type"] == CUSTOM_CALL.1;
                append(&mut item[if custom { CUSTOM_CALL.2 } else { "arguments" }], &piece);
                let name = if custom {
                    "response.custom_tool_call_input.delta"
                } else {
                    "response.function_call_arguments.delta"
                };
                (name, json!({"item_id": id, "output_index": output, "delta": piece}))
            }
        };
        if plan.prompt.body["stream_options"]["include_obfuscation"] != false {
            members = with(members, "obfuscation", "k3Vw0x".into());
        }
        Some((name, members))
    }

    /// Returns the events that end the item that has begun.
    fn ending(&mut self, plan: &NativePlan, open: Token, status: &str) -> Vec<Members> {
        let output = self.items.len() - 1;
        let item = &mut self.items[output];
        let id = item["id"].clone();
        let place = json!({"item_id": id, "output_index": output});
        let mut events = Vec::new();
        match open {
            Token::Reasoning(_) => {
                if summarizes(plan) {
                    let (place, part) = (with(place, "summary_index", 0.into()), item["summary"][0].clone());
                    let done = with(place.clone(), "text", part["text"].clone());
                    events.push(("response.reasoning_summary_text.done", done));
                    events.push(("response.reasoning_summary_part.done", with(place, "part", part)));
                }
                if encrypts(plan) {
                    let content = signature::of_reasoning(plan.reasoning(plan.length));
                    item["encrypted_content"] = content.into();
                }
            }
            Token::Text(_) => {
                let (place, part) = (with(place, "content_index", 0.into()), item["content"][0].clone());
                let member = text_member(plan);
                let done = with(place.clone(), member, part[member].clone());
                if plan.script.refuses {
                    events.push(("response.refusal.done", done));
                } else {
                    events.push(("response.output_text.done", with(done, "logprobs", json!([]))));
                }
                events.push(("response.content_part.done", with(place, "part", part)));
            }
            Token::Tool { .. } => {
                let custom = item["type"] == CUSTOM_CALL.1;
                let (name, member) = if custom {
                    ("response.custom_tool_call_input.done", CUSTOM_CALL.2)
                } else {
                    ("response.function_call_arguments.done", "arguments")
                };
                events.push((name, with(place, member, item[member].clone())));
            }
        }
        if !matches!(open, Token::Reasoning(_)) {
            item["status"] = status.into();
        }
        events.push(("response.output_item.done", json!({"output_index": output, "item": item.clone()})));
        events
    }
}

/// For a call whose input is a text: the prefix of its id, its type, and the member that contains its input.
const CUSTOM_CALL: (&str, &str, &str) = ("ctc", "custom_tool_call", "input");

fn with(mut members: Value, name: &str, value: Value) -> Value {
    members[name] = value;
    members
}

/// Returns whether the request asks for summaries of reasoning.
fn summarizes(plan: &NativePlan) -> bool {
    let reasoning = &plan.prompt.body["reasoning"];
    !reasoning["summary"].is_null() || !reasoning["generate_summary"].is_null()
}

/// Returns whether the request asks for encrypted reasoning.
fn encrypts(plan: &NativePlan) -> bool {
    let include = plan.prompt.body["include"].as_array();
    include.is_some_and(|include| include.iter().any(|word| word == "reasoning.encrypted_content"))
}

fn text_member(plan: &NativePlan) -> &'static str {
    if plan.script.refuses { "refusal" } else { "text" }
}

fn text_part(plan: &NativePlan, text: &str) -> Value {
    if plan.script.refuses {
        json!({"type": "refusal", "refusal": text})
    } else {
        json!({"type": "output_text", "annotations": [], "logprobs": [], "text": text})
    }
}
