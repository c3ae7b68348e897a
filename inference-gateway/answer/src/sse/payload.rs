//! Payloads of events. Of the longest ones, only both ends are kept.

use bytes::{Bytes, BytesMut};
use memchr::memchr2_iter;

/// Longest event that is kept, in bytes. A chunk of one or two tokens has a few hundred bytes; the bound is for
/// upstreams that send a whole answer as one event: 131,072 tokens of eight choices, as JSON.
pub(crate) const MAX_EVENT_BYTES: usize = 16 << 20;
/// Bytes kept of each end of a longer event, where vendors write its type and the usage.
pub(crate) const END_BYTES: usize = 64 << 10;

/// Maximum nesting of an answer that is passed on. Vendors repeat the schemas of tools, which have a few tens. Beyond a
/// thousand, many clients fail, and some crash.
const MOST_LEVELS: usize = 256;

/// Returns whether JSON is nested more deeply than clients can be expected to read.
pub(crate) fn is_too_deep(json: &str) -> bool {
    // A quick check: nearly every event has fewer brackets than this, including those in its texts.
    if memchr2_iter(b'[', b'{', json.as_bytes()).nth(MOST_LEVELS).is_none() {
        return false;
    }
    let (mut levels, mut in_text, mut is_escaped) = (0_usize, false, false);
    json.bytes().any(|byte| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => levels += 1,
            b']' | b'}' if !in_text => levels = levels.saturating_sub(1),
            _ => {}
        }
        levels > MOST_LEVELS
    })
}

/// The payload of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    Whole(Bytes),
    /// The whole body, which is JSON instead of a stream.
    Body(Bytes),
    /// A payload too long to keep.
    TooLong(PayloadEnds),
}

/// Both ends of a payload. They overlap if it is short.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PayloadEnds {
    pub(crate) start: Bytes,
    pub(crate) end: Bytes,
}

impl Payload {
    /// Bytes in memory.
    pub fn held_bytes(&self) -> usize {
        match self {
            Self::Whole(data) | Self::Body(data) => data.len(),
            Self::TooLong(ends) => ends.start.len() + ends.end.len(),
        }
    }
}

impl Payload {
    /// Returns whether the payload begins like an object.
    pub fn is_like_an_object(&self) -> bool {
        let (Self::Whole(start) | Self::Body(start) | Self::TooLong(PayloadEnds { start, .. })) = self;
        start.trim_ascii_start().first() == Some(&b'{')
    }
}

impl PayloadEnds {
    /// Copies the ends of a whole payload.
    pub(crate) fn of(payload: &[u8]) -> Self {
        let [start, end] =
            [&payload[..payload.len().min(END_BYTES)], &payload[payload.len().saturating_sub(END_BYTES)..]];
        Self { start: Bytes::copy_from_slice(start), end: Bytes::copy_from_slice(end) }
    }
}

/// A long text, of which only both ends are kept while it is read.
#[derive(Debug)]
pub(crate) struct LongText {
    start: Bytes,
    end: BytesMut,
}

impl LongText {
    pub(crate) fn of(text: &[u8]) -> Self {
        let PayloadEnds { start, end } = PayloadEnds::of(text);
        Self { start, end: BytesMut::from(end) }
    }

    pub(crate) fn push(&mut self, more: &[u8]) {
        if self.start.len() < END_BYTES {
            let missing = more.len().min(END_BYTES - self.start.len());
            self.start = [&self.start[..], &more[..missing]].concat().into();
        }
        self.end.extend_from_slice(&more[more.len().saturating_sub(END_BYTES)..]);
        if self.end.len() >= 2 * END_BYTES {
            self.end = BytesMut::from(&self.end[self.end.len() - END_BYTES..]);
        }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.start.len() + self.end.len()
    }
}

/// A text, kept whole unless it is too long.
#[derive(Debug)]
pub(crate) enum Text {
    Short(Bytes),
    Long(LongText),
}

impl Text {
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Short(text) => text.is_empty(),
            Self::Long(_) => false,
        }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            Self::Short(text) => text.len(),
            Self::Long(text) => text.held_bytes(),
        }
    }

    pub(crate) const fn beginning(&mut self) -> &mut Bytes {
        match self {
            Self::Short(text) | Self::Long(LongText { start: text, .. }) => text,
        }
    }

    /// Returns the value of a line with the field `data`. Other fields and comments are ignored.
    pub(crate) fn data(self) -> Option<Self> {
        let beginning = match &self {
            Self::Short(line) => line,
            Self::Long(line) => &line.start,
        };
        let value = match beginning.strip_prefix(b"data") {
            Some([]) => beginning.slice(4..),
            Some([b':', b' ', ..]) => beginning.slice(6..),
            Some([b':', ..]) => beginning.slice(5..),
            // llama.cpp uses this field for errors.
            None if beginning.starts_with(b"error: {") => beginning.slice(7..),
            Some(_) | None => return None,
        };
        Some(match self {
            Self::Short(_) => Self::Short(value),
            Self::Long(line) => Self::Long(LongText { start: value, ..line }),
        })
    }

    /// Appends another line of the same payload.
    pub(crate) fn join(self, line: Self) -> Self {
        let (before, line) = match (self, line) {
            (Self::Short(before), Self::Short(line)) if before.len() + 1 + line.len() <= MAX_EVENT_BYTES => {
                // The payload grows in place unless it is shared.
                let mut joined = BytesMut::from(before);
                joined.extend_from_slice(b"\n");
                joined.extend_from_slice(&line);
                return Self::Short(joined.freeze());
            }
            (before, line) => (before, line),
        };
        let mut long = match before {
            Self::Short(before) => LongText::of(&before),
            Self::Long(before) => before,
        };
        long.push(b"\n");
        match line {
            Self::Short(line) => long.push(&line),
            Self::Long(line) => {
                long.push(&line.start);
                long.push(&line.end);
            }
        }
        Self::Long(long)
    }

    pub(crate) fn into_payload(self) -> Payload {
        match self {
            Self::Short(data) => Payload::Whole(data),
            Self::Long(LongText { start, end }) => {
                let end = end.freeze();
                let end = end.slice(end.len().saturating_sub(END_BYTES)..);
                Payload::TooLong(PayloadEnds { start, end })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_brackets_outside_of_texts_are_levels() {
        let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        assert!(!is_too_deep(&nested(MOST_LEVELS)) && is_too_deep(&nested(MOST_LEVELS + 1)));
        assert!(is_too_deep(&nested(200_000)) && is_too_deep(&"{\"a\":".repeat(200_000)));
        let flat = ["[\"", r#"[{\"\\"#, "\"]"].concat();
        assert!(!is_too_deep(&format!("[{}0]", [&*flat, ","].concat().repeat(MOST_LEVELS))), "{flat}");
        assert!(!is_too_deep(&"[],{},".repeat(MOST_LEVELS)));
    }
}
