//! Parts of each API's streams and whole answers.

use serde_json::Value;

use crate::upstream::{faults::fault::Shape, prompts::plan::NativePlan};

/// Writes the events of an answer, and remembers their content for events that repeat it and for the whole answer.
pub(super) trait AnswerWriter: Send {
    /// Events before the first token.
    fn start(&mut self, plan: &NativePlan) -> Vec<Value>;

    /// Events of the token with this index; none if it is not sent, or only with a later one.
    fn token(&mut self, plan: &NativePlan, index: u64) -> Vec<Value>;

    /// Events that end what the last token left open.
    fn close(&mut self, plan: &NativePlan) -> Vec<Value>;

    /// Events with the end and the usage of an answer of this many tokens.
    fn finish(&mut self, plan: &NativePlan, tokens: u64) -> Vec<Value>;

    /// Events that no client knows, and pings.
    fn unknown(&mut self) -> Vec<Value>;

    /// The events that follow.
    fn done(&mut self) -> Vec<Value>;

    /// Events of an upstream failure, in the vendor's form.
    fn failure(&mut self, plan: &NativePlan, shape: Shape) -> Vec<Value>;

    /// Bytes that are sent when there is nothing to say.
    fn sign_of_life(&self) -> &'static str;

    /// The whole answer, once all of its tokens were written.
    fn whole(&mut self, plan: &NativePlan, tokens: u64) -> Value;
}

/// Member that no client knows.
pub(super) const UNKNOWN_MEMBER: &str = "scripted_member";

/// Bytes of these events.
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
