//! Recovers payloads that are not valid JSON.

use std::borrow::Cow;

use bytes::Bytes;
use shared::json::RawValue;

use super::payload::Payload;

/// End of a chat stream.
const DONE: &str = "[DONE]";
/// Maximum number of payloads in one.
const MOST_FOUND: usize = 256;
/// Numbers that Python writes and JSON does not have.
const NO_NUMBERS: [&str; 3] = ["NaN", "-Infinity", "Infinity"];

impl Payload {
    /// Finds payloads in one that is not JSON: several in a row, one with numbers that JSON does not have, or one with
    /// bytes that are not UTF-8. Returns none if only the payload itself is found.
    pub(super) fn repaired(&self) -> Vec<Self> {
        let (Self::Whole(data) | Self::Body(data)) = self else { return Vec::new() };
        let text = String::from_utf8_lossy(data);
        let text = without_no_numbers(text.trim_ascii());
        let mut found = Vec::new();
        let mut rest = &*text;
        while !rest.is_empty() && found.len() < MOST_FOUND {
            if let Some(behind) = rest.strip_prefix(DONE) {
                found.push(DONE);
                rest = behind.trim_ascii_start();
                continue;
            }
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
            let Some(Ok(value)) = values.next() else { break };
            found.push(value.get());
            rest = rest[values.byte_offset()..].trim_ascii_start();
        }
        let is_object = |found: &&&str| **found == DONE || found.starts_with('{');
        if found.iter().all(|found| found.as_bytes() == data.trim_ascii()) {
            return Vec::new();
        }
        let payload = |found: &&str| Self::Whole(Bytes::copy_from_slice(found.as_bytes()));
        found.iter().filter(is_object).map(payload).collect()
    }
}

/// Replaces numbers that JSON does not have with null.
fn without_no_numbers(json: &str) -> Cow<'_, str> {
    if !NO_NUMBERS.iter().any(|number| json.contains(number)) {
        return Cow::Borrowed(json);
    }
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
        (in_text, is_escaped) = match c {
            _ if is_escaped => (in_text, false),
            '\\' => (in_text, in_text),
            '"' => (!in_text, false),
            _ => (in_text, false),
        };
        written.push(c);
    }
    Cow::Owned(written)
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
    fn what_a_broken_payload_means_is_found() {
        for (payload, expected) in [
            (&b"{\"a\":1}\n{\"b\":2}\n[DONE]"[..], &["{\"a\":1}", "{\"b\":2}", "[DONE]"][..]),
            (
                b"{\"a\":NaN,\"b\":\"NaN \\\" NaN\",\"c\":[-Infinity]}",
                &[r#"{"a":null,"b":"NaN \" NaN","c":[null]}"#],
            ),
            (b"{\"a\":\"\xff\"}", &["{\"a\":\"\u{fffd}\"}"]),
            (b"{\"a\":1} trailing", &["{\"a\":1}"]),
            (b"2026-11-28T00:00:00Z", &[]),
            (b"{\"a\":", &[]),
            (b"null", &[]),
            (b"{\"a\":1}", &[]),
            (b"", &[]),
        ] {
            assert_eq!(repaired(payload), expected, "{}", String::from_utf8_lossy(payload));
        }
    }
}
