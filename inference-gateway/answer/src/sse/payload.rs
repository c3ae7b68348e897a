//! Payloads of events. Only both ends of overlong payloads are kept.

use bytes::{Bytes, BytesMut};
use raw_json::is_deeper_than;

/// Maximum size of an event that is kept whole, in bytes. A chunk of one or two tokens has a few hundred bytes; the
/// bound is for upstreams that send a whole answer as one event: 131,072 tokens of eight choices, as JSON.
pub(crate) const MAX_EVENT_BYTES: usize = 16 << 20;
/// Number of bytes kept from each end of a longer event, where vendors write its type and the usage.
pub(crate) const END_BYTES: usize = 64 << 10;

/// Maximum nesting of an answer that is passed on. Vendors repeat the schemas of tools, which have a few tens of
/// levels. Beyond a thousand, many clients fail, and some crash.
const MOST_LEVELS: u64 = 256;

/// Returns whether JSON is nested more deeply than clients can be expected to read.
pub(crate) fn is_too_deep(json: &str) -> bool {
    is_deeper_than(json, MOST_LEVELS)
}

/// End of a chat stream.
pub(crate) const DONE: &str = "[DONE]";

/// Returns whether a payload ends a chat stream. Some servers end streams of every API in this way.
pub(crate) fn is_done(payload: &[u8]) -> bool {
    payload.trim_ascii() == DONE.as_bytes()
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
    /// Counts the bytes that the payload keeps in memory.
    pub fn held_bytes(&self) -> usize {
        match self {
            Self::Whole(data) | Self::Body(data) => data.len(),
            Self::TooLong(ends) => ends.start.len() + ends.end.len(),
        }
    }

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

/// A long text that keeps only its two ends while it is read.
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

    /// Returns whether this is a whole event, since the next line begins another.
    pub(crate) fn is_event_before(&self, next: &Self) -> bool {
        let end = match self {
            Self::Short(text) => &text[..],
            Self::Long(text) => &text.end[..],
        };
        let (Self::Short(beginning) | Self::Long(LongText { start: beginning, .. })) = next;
        let beginning = beginning.trim_ascii_start();
        end.trim_ascii_end().ends_with(b"}") && (beginning.starts_with(b"{") || is_done(beginning))
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
