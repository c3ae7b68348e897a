use std::borrow::Cow;

use bytes::BytesMut;
use serde::{Deserialize, Deserializer, de::Error as _};
use shared::json::{Kind, RawValue};

/// A JSON string as its sender spelled it, kept without its quotes.
#[derive(Clone, Copy)]
pub struct RawString<'a>(&'a str);

impl<'a> RawString<'a> {
    pub const EMPTY: Self = Self("");

    /// Returns the value as a string, if it is one.
    pub fn of(raw: &'a RawValue) -> Option<Self> {
        (Kind::of(raw) == Kind::String).then(|| Self::trusted(raw.get()))
    }

    /// Returns the text between the quotes.
    pub const fn inner(self) -> &'a str {
        self.0
    }

    /// Returns the text after its first `bytes` bytes, as spelled. These bytes must end at the end of a character or of
    /// an escape.
    pub fn after(self, bytes: usize) -> Option<Self> {
        self.0.get(bytes..).map(Self)
    }

    /// Makes a string from JSON that this program has spelled, with quotes.
    pub const fn trusted(spelled: &'a str) -> Self {
        let (_, behind) = spelled.split_at(1);
        Self(behind.split_at(behind.len() - 1).0)
    }

    /// Writes the string. Unpaired surrogates become replacement characters, since strict JSON readers refuse them.
    pub fn write(self, out: &mut BytesMut) {
        out.extend_from_slice(b"\"");
        self.pieces(|piece| out.extend_from_slice(piece.as_bytes()));
        out.extend_from_slice(b"\"");
    }

    /// Writes the text between the quotes.
    pub fn write_inner(self, out: &mut BytesMut) {
        out.extend_from_slice(self.sound().as_bytes());
    }

    /// Returns the text between the quotes, with replacement characters for unpaired surrogates.
    pub fn sound(self) -> Cow<'a, str> {
        if find_surrogate(self.0).is_none() {
            return Cow::Borrowed(self.inner());
        }
        let mut spelled = String::new();
        self.pieces(|piece| spelled.push_str(piece));
        Cow::Owned(spelled)
    }

    pub fn decoded(self) -> Cow<'a, str> {
        if memchr::memchr(b'\\', self.0.as_bytes()).is_none() {
            return Cow::Borrowed(self.inner());
        }
        let sound = format!("\"{}\"", self.sound());
        // Without unpaired surrogates, every string that a parser accepted is well-formed.
        Cow::Owned(serde_json::from_str(&sound).unwrap_or_default())
    }

    fn pieces(self, mut put: impl FnMut(&'a str)) {
        let mut rest = self.0;
        while let Some(at) = find_surrogate(rest) {
            let (before, escape) = rest.split_at(at);
            put(before);
            let pair = is_high(escape) && escape[ESCAPE..].starts_with("\\u") && is_low(&escape[ESCAPE..]);
            let length = if pair { 2 * ESCAPE } else { ESCAPE };
            put(if pair { &escape[..length] } else { "\\ufffd" });
            rest = &escape[length..];
        }
        put(rest);
    }

    /// If the text ends with the first surrogate of a pair, returns the text before it, and the surrogate's escape.
    pub fn cut_half(self) -> Option<(&'a str, &'a str)> {
        let at = self.0.len().checked_sub(ESCAPE)?;
        let escape = self.0.get(at..).filter(|escape| is_high(escape))?;
        let before = &self.0[..at];
        let backslashes = before.bytes().rev().take_while(|byte| *byte == b'\\').count();
        // After an odd number of backslashes, the last of them escapes this backslash.
        (backslashes % 2 == 0).then_some((before, escape))
    }

    pub fn is_empty(self) -> bool {
        self.inner().is_empty()
    }

    pub fn len(self) -> u64 {
        self.inner().len() as u64
    }
}

/// Bytes of an escape such as `\u00e9`.
const ESCAPE: usize = 6;

/// Finds the next escape of a surrogate in a well-formed JSON text.
fn find_surrogate(text: &str) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + memchr::memchr(b'\\', &text.as_bytes()[from..])?;
        if is_high(&text[at..]) || is_low(&text[at..]) {
            return Some(at);
        }
        // A backslash and the escaped character, which may be another backslash, take one byte each.
        from = at + 2;
    }
}

/// Returns whether a text begins with the escape of a first surrogate.
fn is_high(escape: &str) -> bool {
    matches!(escape.as_bytes(), [b'\\', b'u', b'd' | b'D', b'8' | b'9' | b'a' | b'b' | b'A' | b'B', ..])
}

/// Returns whether a text begins with the escape of a second surrogate.
fn is_low(escape: &str) -> bool {
    matches!(escape.as_bytes(), [b'\\', b'u', b'd' | b'D', b'c'..=b'f' | b'C'..=b'F', ..])
}

impl<'de: 'a, 'a> Deserialize<'de> for RawString<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&'a RawValue>::deserialize(deserializer)?;
        Self::of(raw).ok_or_else(|| D::Error::custom("expected a string"))
    }
}
