//! Client-chosen names that errors and headers repeat.

use raw_json::{Members, Value};
use shared::json::Kind;

/// Maximum number of dropped members or tools that an answer names.
const MAX_DROPPED: usize = 16;
/// Maximum number of characters that are repeated from a client's word.
const MAX_WORD: usize = 64;

/// Names of members or tools that no upstream gets, for a header of the answer.
#[derive(Default)]
pub(crate) struct DroppedNames(Vec<String>);

impl DroppedNames {
    pub(crate) fn add(&mut self, name: &str) {
        let name = repeated(name, |byte| is_of_name(byte) || byte == b'.');
        if !name.is_empty() && self.0.len() < MAX_DROPPED && !self.0.contains(&name) {
            self.0.push(name);
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lists the members that are not among these.
    pub(crate) fn but(members: &Members<'_, '_>, known: &[&str]) -> Self {
        let mut dropped = Self::default();
        let unknown =
            |(name, value): &(&str, Value<'_, '_>)| value.kind() != Kind::Null && !known.contains(name);
        members.iter().filter(unknown).for_each(|(name, _)| dropped.add(name));
        dropped
    }

    /// Writes the names as the value of a header; `None` if there are none.
    pub(crate) fn into_header(self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.join(", "))
    }
}

/// Makes a client's word safe for an error or a header.
pub(crate) fn plain(word: &str) -> String {
    repeated(word, is_of_name)
}

fn repeated(word: &str, is_kept: impl Fn(u8) -> bool) -> String {
    word.bytes().filter(|byte| is_kept(*byte)).take(MAX_WORD).map(char::from).collect()
}

/// Returns whether a function's name may contain this byte.
pub(crate) const fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}
