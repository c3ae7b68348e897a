//! Body that asks how many tokens a prompt has, with only the members that a counter accepts.

use std::ops::Range;

use bytes::Bytes;
use raw_json::Members;
use shared_catalog::UpstreamApi;

use super::{
    form::{BodyPieces, open_system},
    params::UpstreamParams,
};

/// Members that `/responses/input_tokens` accepts besides the model.
const COUNTED_BY_RESPONSES: [&str; 8] = [
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning",
    "text",
    "truncation",
];
/// Members that `/messages/count_tokens` accepts besides the model.
const COUNTED_BY_MESSAGES: [&str; 8] = [
    "messages",
    "system",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "cache_control",
    "context_management",
];

/// A body that asks for the tokens of a prompt.
pub enum CountBody {
    Written(BodyPieces),
    /// A body that is yet to be made from the request's, which takes time and a copy.
    Unwritten(UnwrittenCount),
}

/// Body for a counter that accepts only some members of the request.
pub struct UnwrittenCount {
    head: Bytes,
    /// The beginning of the system prompt, if the rest continues it.
    system: String,
    /// The request's body. It begins with a comma, or within the system prompt.
    rest: Bytes,
    counted: &'static [&'static str],
}

impl CountBody {
    /// Makes the body for the counter of an API. `rest` is the request's body after its head.
    pub(super) fn of(api: UpstreamApi, to: UpstreamParams<'_>, rest: Bytes) -> Self {
        let counted: &[&str] = match api {
            UpstreamApi::Chat => &[],
            UpstreamApi::Responses => &COUNTED_BY_RESPONSES,
            UpstreamApi::Messages => &COUNTED_BY_MESSAGES,
        };
        let head = format!("{{\"model\":{}", serde_json::Value::from(to.model)).into();
        let system = if to.form.is_separate() { open_system(to.account) } else { String::new() };
        Self::Unwritten(UnwrittenCount { head, system, rest, counted })
    }
}

impl UnwrittenCount {
    pub fn bytes(&self) -> usize {
        self.rest.len()
    }

    /// Writes the body: a copy of the request's body, in which the counted members are moved together.
    pub fn write(self) -> BodyPieces {
        let mut body = if self.system.is_empty() {
            Vec::from(self.rest)
        } else {
            [self.system.as_bytes(), &self.rest].concat()
        };
        if let Some(first) = body.first_mut() {
            *first = b'{';
        }
        let start = body.as_ptr() as usize;
        // This crate wrote the body, so it can be parsed.
        let counted: Vec<(String, Range<usize>)> = Members::of_body(&body).map_or_else(
            |_| Vec::new(),
            |members| {
                let counted = members.iter().filter(|(name, _)| self.counted.contains(name));
                let place = |raw: &str| {
                    let from = raw.as_ptr() as usize - start;
                    from..from + raw.len()
                };
                counted.map(|(name, value)| (format!(",\"{name}\":"), place(value.raw()))).collect()
            },
        );
        let mut end = 0;
        for (name, value) in counted {
            // A name is never longer than its spelling, and all members moved so far end before it.
            body[end..end + name.len()].copy_from_slice(name.as_bytes());
            end += name.len();
            let length = value.len();
            body.copy_within(value, end);
            end += length;
        }
        body.truncate(end);
        body.push(b'}');
        BodyPieces { head: self.head, rest: Bytes::from(body) }
    }
}
