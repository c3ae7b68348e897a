//! Reads an event's type and usage from both ends of a payload that is too long or cannot be read.

use shared::json::{RawValue, Text};

use crate::{
    sse::payload::PayloadEnds,
    usage::{ReportForm, largest_report},
};

/// Maximum length of an event's type in bytes, as spelled. Vendors use about forty.
const MOST_OF_A_KIND: usize = 256;

/// Returns the type of an event whose object begins or ends with it, as every vendor's does. The event's number may
/// follow it. Members of nested objects are not mistaken for it.
pub(super) fn kind(ends: &PayloadEnds) -> Option<String> {
    first_member(&ends.start).or_else(|| last_member(&ends.end))
}

/// Returns the usage in the end of a payload.
pub(super) fn usage(ends: &PayloadEnds) -> Option<&RawValue> {
    largest_report(ReportForm::Usage, &ends.end)
}

/// Returns the timings in the end of a payload.
pub(super) fn timings(ends: &PayloadEnds) -> Option<&RawValue> {
    largest_report(ReportForm::Timings, &ends.end)
}

fn first_member(start: &[u8]) -> Option<String> {
    let rest = start.trim_ascii_start().strip_prefix(b"{")?.trim_ascii_start();
    let value = rest.strip_prefix(br#""type""#)?.trim_ascii_start().strip_prefix(b":")?;
    text(&value[..value.len().min(MOST_OF_A_KIND)])
}

fn last_member(end: &[u8]) -> Option<String> {
    let mut rest = end.trim_ascii_end().strip_suffix(b"}")?.trim_ascii_end();
    if let Some(before) = before_name(without_digits(rest), br#""sequence_number""#) {
        rest = before.strip_suffix(b",")?.trim_ascii_end();
    }
    let inner = rest.strip_suffix(b"\"")?;
    let start = memchr::memrchr(b'"', inner)?;
    before_name(&rest[..start], br#""type""#)?;
    text(&rest[start..])
}

/// Returns the text before a member's name, if the text ends with that name.
fn before_name<'t>(text: &'t [u8], name: &[u8]) -> Option<&'t [u8]> {
    let text = text.trim_ascii_end().strip_suffix(b":")?.trim_ascii_end();
    Some(text.strip_suffix(name)?.trim_ascii_end())
}

/// Reads a string at the beginning of a text.
fn text(json: &[u8]) -> Option<String> {
    let mut values = serde_json::Deserializer::from_slice(json).into_iter::<Text<'_>>();
    values.next()?.ok().map(|text| text.0.into_owned())
}

fn without_digits(text: &[u8]) -> &[u8] {
    let digits = text.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    &text[..text.len() - digits]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{reader::responses::ResponsesReader, stream::Event};

    #[test]
    fn the_type_is_the_first_member_or_the_last_before_the_number() {
        for (payload, expected) in [
            (r#"{"type":"response.created","response":{}}"#, Some("response.created")),
            (r#" { "type" : "a" , "x": {"type":"b"}}"#, Some("a")),
            (
                r#"{"response":{"type":"b"},"sequence_number":7,"type":"response.completed"}"#,
                Some("response.completed"),
            ),
            (
                r#"{"response":{},"type": "response.completed", "sequence_number": 12 } "#,
                Some("response.completed"),
            ),
            (r#"{"response":{"type":"b"}}"#, None),
            (r#"{"response":{"type":"b"},"x":"\"type\":\"c"}"#, None),
            (r#"{"response":{"type":"b"},"sequence_number":7}"#, None),
            (r#"{"x":"type","y":"z"}"#, None),
            ("[DONE]", None),
            ("", None),
            ("{", None),
        ] {
            assert_eq!(kind(&PayloadEnds::of(payload.as_bytes())).as_deref(), expected, "{payload}");
        }
    }

    #[test]
    fn the_last_event_of_a_response_tells_its_usage_and_others_tell_none() {
        let reader = ResponsesReader::default();
        for (kind, told) in [
            ("response.completed", Some(12)),
            ("response.incomplete", Some(12)),
            ("response.failed", Some(12)),
            ("response.created", None),
            ("response.output_item.done", None),
        ] {
            let event = format!(
                r#"{{"type":"{kind}","response":{{"usage":{{"input_tokens":12,"output_tokens":3}}}}}}"#
            );
            let ends = PayloadEnds::of(event.as_bytes());
            let (Event::Chunk(chunk) | Event::Failed(_, chunk)) = reader.ends(&ends) else {
                panic!("{kind}")
            };
            assert_eq!(chunk.usage().and_then(|usage| usage.prompt), told, "{kind}");
        }
    }
}
