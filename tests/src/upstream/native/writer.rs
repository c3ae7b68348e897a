//! Parts of each API's streams and whole answers.

use serde_json::Value;

use crate::upstream::{faults::fault::Shape, prompts::plan::NativePlan};

/// Writes the events of an answer, and keeps their content for events that repeat it and for the whole answer.
pub(super) trait AnswerWriter: Send {
    /// Returns the events before the first token.
    fn start(&mut self, plan: &NativePlan) -> Vec<Value>;

    /// Returns the events for the token with this index; none if it is not sent, or only together with a later one.
    fn token(&mut self, plan: &NativePlan, index: u64) -> Vec<Value>;

    /// Returns the events that end what the last token left open.
    fn close(&mut self, plan: &NativePlan) -> Vec<Value>;

    /// Returns the events with the end and the usage of an answer of this many tokens.
    fn finish(&mut self, plan: &NativePlan, tokens: u64) -> Vec<Value>;

    /// Returns events that no client knows, and pings.
    fn unknown(&mut self) -> Vec<Value>;

    /// Returns the events after the end of the answer.
    fn done(&mut self) -> Vec<Value>;

    /// Returns the events for an upstream failure, in the vendor's format.
    fn failure(&mut self, plan: &NativePlan, shape: Shape) -> Vec<Value>;

    /// Returns the bytes that keep a stream alive while there is nothing else to send.
    fn sign_of_life(&self) -> &'static str;

    /// Returns the whole answer, once all of its tokens have been written.
    fn whole(&mut self, plan: &NativePlan, tokens: u64) -> Value;
}

/// Member that no client knows.
pub(super) const UNKNOWN_MEMBER: &str = "scripted_member";

/// Returns the bytes of these events.
pub(super) fn event_text(plan: &NativePlan, events: &[Value]) -> String {
    let one = |event: &Value| {
        let name = event["type"].as_str().expect("every event has a type");
        let mut event = event.clone();
        if plan.script.unknown_events {
            event[UNKNOWN_MEMBER] = true.into();
        }
        format!("event: {name}\ndata: {}\n\n", plan.text(&event))
    };
    events.iter().map(one).collect()
}

/// Appends to a text that is part of a value.
pub(super) fn append(text: &mut Value, more: &str) {
    if let Value::String(text) = text {
        text.push_str(more);
    }
}
