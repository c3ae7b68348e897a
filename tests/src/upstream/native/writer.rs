//! What is different between the two APIs' streams and whole answers.

use serde_json::Value;

use crate::upstream::{faults::fault::Shape, prompts::plan::NativePlan};

/// Writes the events of an answer. It keeps their content, because later events and the whole answer repeat it.
pub(super) trait AnswerWriter: Send {
    /// Returns the events that come before the first token.
    fn start(&mut self, plan: &NativePlan) -> Vec<Value>;

    /// Returns the events for the token that has this index. There are none if the token is not sent, or is sent only
    /// together with a later token.
    fn token(&mut self, plan: &NativePlan, index: u64) -> Vec<Value>;

    /// Returns the events that end the block or item that the last token belongs to.
    fn close(&mut self, plan: &NativePlan) -> Vec<Value>;

    /// Returns the events at the end of an answer of this many tokens, which report its usage.
    fn finish(&mut self, plan: &NativePlan, tokens: u64) -> Vec<Value>;

    /// Returns pings, and events that no client knows.
    fn unknown(&mut self) -> Vec<Value>;

    /// Returns the events that come after the end of the answer.
    fn done(&mut self) -> Vec<Value>;

    /// Returns the events that report a failure of the upstream, in the vendor's format.
    fn failure(&mut self, plan: &NativePlan, shape: Shape) -> Vec<Value>;

    /// Returns bytes that keep a stream alive while nothing else can be sent.
    fn sign_of_life(&self) -> &'static str;

    /// Returns the whole answer. All of its tokens must have been written.
    fn whole(&mut self, plan: &NativePlan, tokens: u64) -> Value;
}

/// Name of a member that no client knows.
pub(super) const UNKNOWN_MEMBER: &str = "scripted_member";

/// Returns the bytes in which these events are sent.
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

/// Appends to a text within a value.
pub(super) fn append(text: &mut Value, more: &str) {
    if let Value::String(text) = text {
        text.push_str(more);
    }
}
