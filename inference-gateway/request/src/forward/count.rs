//! The body of a question for a prompt's tokens, with the members alone that a counter takes.

use std::ops::Range;

use bytes::Bytes;
use raw_json::Members;
use shared_catalog::UpstreamApi;

/// Members that `/responses/input_tokens` takes, beside the model.
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
/// Members that `/messages/count_tokens` takes, beside the model.
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
    /// The request's own body, in two pieces.
    Written(Bytes, Bytes),
    /// A body to be written from the request's, which takes time and a copy.
    Unwritten(UnwrittenCount),
}

/// A body for a counter that takes some members of the request alone.
pub struct UnwrittenCount {
    head: Bytes,
    /// The request's body, whose comma comes first.
    rest: Bytes,
    counted: &'static [&'static str],
}

impl CountBody {
    /// The body for the counter of an API; `rest` is the request's behind its head.
    pub(super) fn of(api: UpstreamApi, model: &str, rest: Bytes) -> Self {
        let counted: &[&str] = match api {
            UpstreamApi::Chat => &[],
            UpstreamApi::Responses => &COUNTED_BY_RESPONSES,
            UpstreamApi::Messages => &COUNTED_BY_MESSAGES,
        };
        let head = format!("{{\"model\":{}", serde_json::Value::from(model)).into();
        Self::Unwritten(UnwrittenCount { head, rest, counted })
    }
}

impl UnwrittenCount {
    /// Bytes of the copy that is made.
    pub fn bytes(&self) -> usize {
        self.rest.len()
    }

    /// Writes the body, in two pieces: a copy of the request's, in which the members that are counted move together.
    pub fn write(self) -> (Bytes, Bytes) {
        let mut body = Vec::from(self.rest);
        if let Some(first) = body.first_mut() {
            *first = b'{';
        }
        let start = body.as_ptr() as usize;
        // Written by this crate, so that it can be read.
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
            // No longer than the name was spelled, and behind all that was moved before.
            body[end..end + name.len()].copy_from_slice(name.as_bytes());
            end += name.len();
            let length = value.len();
            body.copy_within(value, end);
            end += length;
        }
        body.truncate(end);
        body.push(b'}');
        (self.head, Bytes::from(body))
    }
}
