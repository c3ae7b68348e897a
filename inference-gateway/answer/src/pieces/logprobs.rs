//! Log probabilities, rewritten by allow-list.
//!
//! Servers add members, leave out members of the API, and insert line breaks, which would end an event of a stream.
//! Tokens are written while the list is read, since an answer has many tokens with up to 20 alternatives each.

use bytes::BytesMut;
use raw_json::RawString;
use serde::Deserialize;
use shared::json::{Kind, RawValue, each_element};

use crate::generation::{put, put_number};

/// The API's log probability for very unlikely tokens. It replaces a missing or unusable number.
const VERY_UNLIKELY: &str = "-9999.0";

/// Maximum length of a log probability in characters. A double takes at most 25.
const MAX_DIGITS: usize = 32;

/// Token lists of a choice.
#[derive(Deserialize)]
pub(crate) struct Logprobs<'a> {
    #[serde(borrow)]
    pub(crate) content: Option<&'a RawValue>,
    pub(crate) refusal: Option<&'a RawValue>,
}

impl<'a> Logprobs<'a> {
    /// Reads an object or, as in the Responses API, a bare list of the text's tokens. An empty list counts as none.
    pub(crate) fn read(raw: &'a RawValue) -> Option<Self> {
        match Kind::of(raw) {
            Kind::Array if raw.get()[1..].trim_ascii_start() == "]" => None,
            Kind::Array => Some(Self { content: Some(raw), refusal: None }),
            Kind::Null | Kind::Bool | Kind::Number | Kind::String | Kind::Object => {
                serde_json::from_str(raw.get()).ok()
            }
        }
    }
}

#[derive(Deserialize)]
struct TokenLogprob<'a> {
    #[serde(borrow)]
    token: RawString<'a>,
    logprob: Option<&'a RawValue>,
    bytes: Option<&'a RawValue>,
    top_logprobs: Option<&'a RawValue>,
}

/// Writes a choice's `logprobs`: an object with both members, or null if the upstream has neither.
pub(crate) fn put_logprobs(logprobs: Option<&RawValue>, out: &mut BytesMut) {
    let read = logprobs.and_then(Logprobs::read);
    match read {
        Some(Logprobs { content, refusal }) if content.or(refusal).is_some() => {
            put(out, r#"{"content":"#);
            put_tokens_or_null(content, out);
            put(out, r#","refusal":"#);
            put_tokens_or_null(refusal, out);
            put(out, "}");
        }
        Some(_) | None => put(out, "null"),
    }
}

/// Counts the tokens that [`put_logprobs`] writes.
pub(crate) fn listed_tokens(logprobs: Option<&RawValue>) -> u64 {
    let read = logprobs.and_then(Logprobs::read);
    let count = |tokens: &RawValue| {
        let mut count = 0;
        let read = each_element(tokens, |_: TokenLogprob<'_>| {
            count += 1;
            true
        });
        read.map_or(0, |()| count)
    };
    read.map_or(0, |Logprobs { content, refusal }| [content, refusal].into_iter().flatten().map(count).sum())
}

/// Writes the tokens of a choice's text with commas between them, without brackets.
pub(crate) fn put_content(logprobs: Option<&RawValue>, out: &mut BytesMut) {
    let read = logprobs.and_then(Logprobs::read);
    if let Some(content) = read.and_then(|read| read.content) {
        let mut tokens = BytesMut::new();
        if put_tokens(content, true, &mut tokens).is_ok() {
            out.extend_from_slice(&tokens[1..tokens.len() - 1]);
        }
    }
}

/// Writes a list of tokens; null for any other value, or if a token has no text.
fn put_tokens_or_null(tokens: Option<&RawValue>, out: &mut BytesMut) {
    let start = out.len();
    if tokens.is_none_or(|tokens| put_tokens(tokens, true, out).is_err()) {
        out.truncate(start);
        put(out, "null");
    }
}

/// Writes a list of tokens while reading it. Alternatives are not nested.
fn put_tokens(tokens: &RawValue, alternatives: bool, out: &mut BytesMut) -> Result<(), serde_json::Error> {
    let mut before = "[";
    each_element(tokens, |token: TokenLogprob<'_>| {
        put(out, before);
        before = ",";
        token.write(alternatives, out);
        true
    })?;
    put(out, if before == "[" { "[]" } else { "]" });
    Ok(())
}

/// Returns whether a value is a number that every reader of JSON can represent.
fn is_finite(value: &RawValue) -> bool {
    Kind::of(value) == Kind::Number
        && value.get().len() <= MAX_DIGITS
        && value.get().parse::<f64>().is_ok_and(f64::is_finite)
}

impl TokenLogprob<'_> {
    fn write(&self, alternatives: bool, out: &mut BytesMut) {
        put(out, r#"{"token":"#);
        self.token.write(out);
        put(out, r#","logprob":"#);
        let number = self.logprob.filter(|raw| is_finite(raw));
        put(out, number.map_or(VERY_UNLIKELY, RawValue::get));
        put(out, r#","bytes":"#);
        self.write_bytes(out);
        if alternatives {
            put(out, r#","top_logprobs":"#);
            let start = out.len();
            if self.top_logprobs.is_none_or(|tokens| put_tokens(tokens, false, out).is_err()) {
                out.truncate(start);
                put(out, "[]");
            }
        }
        put(out, "}");
    }

    /// Writes the bytes of the token's text, or null. If a token is only part of a character, text cannot show it, so
    /// the bytes are needed.
    fn write_bytes(&self, out: &mut BytesMut) {
        let bytes = self.bytes.and_then(|raw| serde_json::from_str::<Vec<u8>>(raw.get()).ok());
        let Some(bytes) = bytes else {
            put(out, "null");
            return;
        };
        put(out, "[");
        for (place, byte) in bytes.into_iter().enumerate() {
            if place > 0 {
                put(out, ",");
            }
            put_number(out, byte.into());
        }
        put(out, "]");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(logprobs: &str) -> String {
        let mut out = BytesMut::new();
        put_logprobs(Some(serde_json::from_str(logprobs).unwrap()), &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    fn listed(logprobs: &str) -> u64 {
        listed_tokens(Some(serde_json::from_str(logprobs).unwrap()))
    }

    #[test]
    fn tokens_that_a_client_reads_are_counted_without_their_alternatives() {
        assert_eq!(listed_tokens(None), 0);
        let two = r#"{"content":[{"token":"a","top_logprobs":[{"token":"b"}]}],"refusal":[{"token":"c"}]}"#;
        assert_eq!(listed(two), 2);
    }

    #[test]
    fn members_that_the_api_does_not_have_are_left_out_and_those_that_it_has_are_always_there() {
        let upstream = r#"{"worker": "w7", "content": [{"token_id": 7, "token": "a\u00e9", "logprob": -2.5E-1, "bytes": [97, 233],
            "top_logprobs": [{"token": "b", "rank": 1}, {"token": "c", "logprob": null, "bytes": [1.5]}]},
            {"token": "d", "logprob": "-Infinity", "bytes": null}]}"#;
        let expected = concat!(
            r#"{"content":[{"token":"a\u00e9","logprob":-2.5E-1,"bytes":[97,233],"top_logprobs":["#,
            r#"{"token":"b","logprob":-9999.0,"bytes":null},{"token":"c","logprob":-9999.0,"bytes":null}]},"#,
            r#"{"token":"d","logprob":-9999.0,"bytes":null,"top_logprobs":[]}],"refusal":null}"#
        );
        assert_eq!(written(upstream), expected);
        assert_eq!(
            written(r#"{"refusal": [{"token": "I", "logprob": 0, "bytes": []}]}"#),
            r#"{"content":null,"refusal":[{"token":"I","logprob":0,"bytes":[],"top_logprobs":[]}]}"#
        );
        assert_eq!(written(r#"{"content": []}"#), r#"{"content":[],"refusal":null}"#);
    }

    #[test]
    fn no_line_ends_are_left_within() {
        let upstream = "{\n\n\"content\"\r\n:\r[\n{\"token\":\"a\\n\",\n\"logprob\":\n-1,\"bytes\":[\n10\n],\"top_logprobs\":\n[\n{\"token\":\n\"b\"}\n]}\n]\n}";
        let written = written(upstream);
        assert!(!written.contains(['\n', '\r']), "{written}");
        assert!(written.contains(r#""bytes":[10],"top_logprobs":[{"token":"b""#), "{written}");
    }

    #[test]
    fn what_cannot_be_used_is_null() {
        for nothing in [
            "null",
            "[]",
            "7",
            "{}",
            r#"{"content":null,"refusal":null}"#,
            r#"{"tokens":["a"],"token_logprobs":[-1]}"#,
        ] {
            assert_eq!((written(nothing).as_str(), listed(nothing)), ("null", 0), "{nothing}");
        }
        for broken in [
            r#"{"content":7}"#,
            r#"{"content":[{"logprob":-1}]}"#,
            r#"{"content":[{"token":"a"},{"token":1}]}"#,
        ] {
            assert_eq!(written(broken), r#"{"content":null,"refusal":null}"#, "{broken}");
            assert_eq!(listed(broken), 0, "{broken}");
        }
    }
}
