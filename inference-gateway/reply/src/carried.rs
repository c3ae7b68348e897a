//! Parts of an answer that only its server can read and that it needs back in the next turn: signatures, encrypted
//! reasoning, a vendor's own record of reasoning. Clients carry these parts as one string, in a member of their dialect
//! that they send back unchanged.
//!
//! The string names the server that made it, and only that server gets the parts back. Parts only put text into known
//! members, so a forged string gives a client no abilities that it does not have anyway.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use shared_catalog::Upstream;

/// Prefix of every string that carries parts.
const PREFIX: &str = "fg1.";
/// Number of digits that identify the server.
const SERVER_DIGITS: usize = 16;
/// Maximum number of parts in an answer: more than any answer has.
pub const MOST_PARTS: usize = 4096;
/// Maximum length of a string in characters: more than the parts of any answer take.
const MOST_CHARS: usize = 16 << 20;

/// The server that made a part. It is identified by its address and model, since a vendor refuses signatures of its
/// other models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerId(u64);

impl ServerId {
    /// Stands for every server that accepts the part's form, in parts that the client did not get through this gateway.
    pub const ANY: Self = Self(0);

    /// Returns the identity of a server, the same in every gateway.
    pub fn of(upstream: &Upstream) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("faregate 2026 servers that sign answers");
        let url = upstream.url.as_ref().map(ToString::to_string).unwrap_or_default();
        for text in [&url, &upstream.model] {
            hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        }
        let mut first = [0; 8];
        first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        Self(u64::from_le_bytes(first))
    }
}

/// A part that the server needs in its next turn, after the number of calls before the part.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedPart(pub u64, pub CarriedPart);

/// A part that the server needs in its next turn. It has no `Debug`, so that no log can show a thought.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CarriedPart {
    /// A thought of the Messages API, and its signature.
    Thought { text: String, signature: String },
    /// A thought of the Messages API that is fully encrypted.
    Redacted { data: String },
    /// A reasoning item of the Responses API.
    Encrypted { id: String, content: String },
    /// An element of a chat's `reasoning_details`.
    Detail(ReasoningDetail),
    /// Google's signature of the call that follows.
    CallSignature { signature: String },
    /// Google's signature of an answer's text.
    TextSignature { signature: String },
}

/// An element of a chat's `reasoning_details`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReasoningDetail {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

/// Writes parts as a string that needs no escapes in JSON.
pub fn carry(server: ServerId, parts: &[PlacedPart]) -> String {
    // Serializing texts and numbers cannot fail.
    let json = serde_json::to_vec(parts).unwrap_or_default();
    format!("{PREFIX}{:0SERVER_DIGITS$x}.{}", server.0, URL_SAFE_NO_PAD.encode(json))
}

/// Returns whether a text is a string that carries parts, or looks like one.
pub fn is_carried(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// Returns the server that a string belongs to; `None` for any other text.
pub fn server_of(text: &str) -> Option<ServerId> {
    let (server, _) = split(text)?;
    Some(server)
}

/// Reads a string that carries parts; `None` for any other text, or for a truncated string.
pub fn read(text: &str) -> Option<(ServerId, Vec<PlacedPart>)> {
    let (server, parts) = split(text).filter(|_| text.len() <= MOST_CHARS)?;
    let json = URL_SAFE_NO_PAD.decode(parts).ok()?;
    // Parts take several times as much memory as their JSON, so they are counted before they are read.
    let parts: Vec<&RawValue> = serde_json::from_slice(&json).ok()?;
    if parts.len() > MOST_PARTS {
        return None;
    }
    let parts = parts.into_iter().map(|part| serde_json::from_str(part.get()).ok());
    Some((server, parts.collect::<Option<_>>()?))
}

/// Reads Google's signature from an `extra_content`.
pub fn google_signature(extra: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct ExtraContent {
        google: GoogleExtra,
    }
    #[derive(Deserialize)]
    struct GoogleExtra {
        thought_signature: String,
    }
    let extra: ExtraContent = serde_json::from_str(extra).ok()?;
    Some(extra.google.thought_signature).filter(|signature| !signature.is_empty())
}

fn split(text: &str) -> Option<(ServerId, &str)> {
    let (server, parts) = text.strip_prefix(PREFIX)?.split_once('.')?;
    if server.len() != SERVER_DIGITS {
        return None;
    }
    Some((ServerId(u64::from_str_radix(server, 16).ok()?), parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(signature: &str) -> PlacedPart {
        PlacedPart(3, CarriedPart::CallSignature { signature: signature.to_owned() })
    }

    #[test]
    fn what_is_carried_comes_back_as_it_was_with_its_server() {
        let detail =
            ReasoningDetail {
                kind: "reasoning.text".into(), text: Some("é\"".into()), ..Default::default()
            };
        let parts = vec![part("a+/=\u{1f600}"), PlacedPart(0, CarriedPart::Detail(detail))];
        let text = carry(ServerId(7), &parts);
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)), "{text}");
        assert!(is_carried(&text) && server_of(&text) == Some(ServerId(7)));
        let (server, read) = read(&text).unwrap();
        assert!(server == ServerId(7) && read == parts);
    }

    #[test]
    fn no_more_parts_are_read_than_an_answer_has() {
        let text = |count| carry(ServerId(7), &vec![part("a"); count]);
        assert!(read(&text(MOST_PARTS)).is_some() && read(&text(MOST_PARTS + 1)).is_none());
    }

    #[test]
    fn any_other_text_carries_nothing() {
        let text = carry(ServerId(7), &[part("a")]);
        for other in [
            "",
            "fg1.",
            "fg1.7.W10",
            "EqQBCkYIBRgC",
            &text[1..],
            &text[..text.len() - 3],
            &text.replace("fg1", "fg2"),
        ] {
            assert!(read(other).is_none(), "{other}");
        }
    }
}
