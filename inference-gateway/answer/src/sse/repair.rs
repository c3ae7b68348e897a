//! Recovers payloads that are not valid JSON.

use std::{borrow::Cow, fmt::Write as _};

use bytes::Bytes;
use shared::json::RawValue;

use super::{
    payload::{DONE, Payload},
    repeats::without_repeats,
};

/// Maximum number of payloads found within one: as many chunks as fit in the longest payload.
const MOST_FOUND: usize = 1 << 16;
/// Maximum number of events in one line that were cut off by the next one.
const MOST_CUT: usize = 16;
/// What the line of an event's payload begins with.
const FIELD: &str = "data:";
/// Numbers that Python writes and JSON does not have.
const NO_NUMBERS: [&str; 3] = ["NaN", "-Infinity", "Infinity"];
/// Characters that may follow a backslash.
const ESCAPED: &str = "\"\\/bfnrtu";

impl Payload {
    /// Finds the payloads within a payload that cannot be read: several in a row, one with numbers or control
    /// characters that JSON does not have, one with bytes that are not UTF-8, one that repeats members, or one that
    /// follows an incomplete payload in the same line. Returns none if only the payload itself is found.
    pub(super) fn repaired(&self) -> Vec<Self> {
        let (Self::Whole(data) | Self::Body(data)) = self else { return Vec::new() };
        let text = String::from_utf8_lossy(data);
        let text = valid(text.trim_ascii());
        let (mut found, mut cut) = (Vec::new(), 0);
        let mut rest = &*text;
        while !rest.is_empty() && found.len() < MOST_FOUND {
            if let Some(behind) = rest.strip_prefix(DONE) {
                found.push(DONE);
                rest = behind.trim_ascii_start();
                continue;
            }
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
            if let Some(Ok(value)) = values.next() {
                found.push(value.get());
                rest = rest[values.byte_offset()..].trim_ascii_start();
                continue;
            }
            cut += 1;
            let Some(next) = event_behind(rest).filter(|_| cut <= MOST_CUT) else { break };
            rest = next;
        }
        match &found[..] {
            [whole] if whole.as_bytes() == data.trim_ascii() => {
                without_repeats(whole).into_iter().map(|json| self.like(json.into())).collect()
            }
            _ => {
                let is_payload = |found: &&str| *found == DONE || found.starts_with('{');
                let is_one = found.len() == 1;
                let payload = |found: &str| {
                    let data = Bytes::copy_from_slice(found.as_bytes());
                    if is_one { self.like(data) } else { Self::Whole(data) }
                };
                found.into_iter().filter(is_payload).map(payload).collect()
            }
        }
    }

    /// Returns a payload of the same kind.
    const fn like(&self, data: Bytes) -> Self {
        match self {
            Self::Body(_) => Self::Body(data),
            Self::Whole(_) | Self::TooLong(_) => Self::Whole(data),
        }
    }
}

/// Returns the payload of an event that follows an incomplete one in the same line.
fn event_behind(incomplete: &str) -> Option<&str> {
    let behind =
        incomplete.match_indices(FIELD).map(|(at, _)| incomplete[at + FIELD.len()..].trim_ascii_start());
    // Within a text, the quotation mark would be escaped.
    behind.into_iter().find(|behind| behind.starts_with("{\"") || behind.starts_with(DONE))
}

/// Replaces what strict parsers refuse: numbers that JSON does not have become null, control characters in strings
/// become escapes, and a backslash that escapes nothing stays one.
fn valid(json: &str) -> Cow<'_, str> {
    let mut written = String::with_capacity(json.len());
    let (mut in_text, mut is_escaped, mut skipped) = (false, false, 0);
    for (at, c) in json.char_indices() {
        if at < skipped {
            continue;
        }
        if !in_text && let Some(number) = NO_NUMBERS.iter().find(|number| json[at..].starts_with(**number)) {
            written.push_str("null");
            skipped = at + number.len();
            continue;
        }
        if is_escaped && !ESCAPED.contains(c) {
            written.push('\\');
            is_escaped = false;
        }
        if in_text && c < ' ' {
            // Writing to a string cannot fail.
            let _ = write!(written, "\\u{:04x}", u32::from(c));
            continue;
        }
        (in_text, is_escaped) = match c {
            _ if is_escaped => (in_text, false),
            '\\' => (in_text, in_text),
            '"' => (!in_text, false),
            _ => (in_text, false),
        };
        written.push(c);
    }
    if written == json { Cow::Borrowed(json) } else { Cow::Owned(written) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repaired(payload: &[u8]) -> Vec<String> {
        let found = Payload::Whole(Bytes::copy_from_slice(payload)).repaired();
        let text = |payload: Payload| match payload {
            Payload::Whole(data) => String::from_utf8(data.to_vec()).unwrap(),
            Payload::Body(_) | Payload::TooLong(_) => panic!(),
        };
        found.into_iter().map(text).collect()
    }

    #[test]
    fn as_many_payloads_are_found_as_an_answer_has_chunks() {
        let lines = "{\"a\":1}\n".repeat(20_000);
        assert_eq!(repaired(lines.as_bytes()).len(), 20_000);
    }

    #[test]
    fn what_a_broken_payload_means_is_found() {
        for (payload, expected) in [
            (&b"{\"a\":1}\n{\"b\":2}\n[DONE]"[..], &["{\"a\":1}", "{\"b\":2}", "[DONE]"][..]),
            (
                b"{\"a\":NaN,\"b\":\"NaN \\\" NaN\",\"c\":[-Infinity]}",
                &[r#"{"a":null,"b":"NaN \" NaN","c":[null]}"#],
            ),
            (b"{\"a\":\"b\tc\nd\"}", &[r#"{"a":"b\u0009c\u000ad"}"#]),
            (b"{\n\t\"a\": 1\n}", &[]),
            (b"{\"a\":\"\\x\\\\\\\n\\\"\"}", &[r#"{"a":"\\x\\\\\u000a\""}"#]),
            (b"{\"a\":1,\"a\":2}", &[r#"{"a":2}"#]),
            (b"{\"a\":\"\xff\"}", &["{\"a\":\"\u{fffd}\"}"]),
            (b"{\"a\":1} trailing", &["{\"a\":1}"]),
            (b"2026-11-28T00:00:00Z", &[]),
            (b"{\"a\":1,\"chdata: {\"a\":2}", &["{\"a\":2}"]),
            (
                b"{\"a\":1}data: {\"adata:{\"b\":2}\n{\"c\":3data: [DONE]",
                &["{\"a\":1}", "{\"b\":2}", "[DONE]"],
            ),
            (b"{\"a\":\"data: {\\\"b\\\":2}", &[]),
            (b"{\"a\":", &[]),
            (b"null", &[]),
            (b"{\"a\":1}", &[]),
            (b"", &[]),
        ] {
            assert_eq!(repaired(payload), expected, "{}", String::from_utf8_lossy(payload));
        }
    }
}
