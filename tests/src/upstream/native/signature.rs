//! Signatures of thinking, and encrypted reasoning. By their text, the upstream recognises those that it has issued
//! itself.

use std::hash::{DefaultHasher, Hash, Hasher};

/// The characters with which every signature of a thinking block begins.
const THINKING: &str = "EqRTaGlua2luZw";
/// The characters with which every encrypted reasoning content begins.
const REASONING: &str = "gAAAAABmUmVhc29u";

/// Returns the signature of a thinking block that has this many tokens.
pub(super) fn of_thinking(tokens: u64) -> String {
    sealed(THINKING, tokens)
}

/// Returns the encrypted content of a reasoning item that has this many tokens.
pub(super) fn of_reasoning(tokens: u64) -> String {
    sealed(REASONING, tokens)
}

/// Returns the number of tokens in the thinking block with this signature; `None` if the signature is not from this
/// upstream.
pub(super) fn thinking_tokens(signature: &str) -> Option<u64> {
    opened(THINKING, signature)
}

/// Returns the number of tokens in the reasoning with this encrypted content; `None` if the content is not from this
/// upstream.
pub(super) fn reasoning_tokens(content: &str) -> Option<u64> {
    opened(REASONING, content)
}

fn sealed(kind: &str, tokens: u64) -> String {
    let mut seal = DefaultHasher::new();
    (kind, tokens).hash(&mut seal);
    format!("{kind}{tokens:08x}{:016x}==", seal.finish())
}

fn opened(kind: &str, text: &str) -> Option<u64> {
    let tokens = u64::from_str_radix(text.strip_prefix(kind)?.get(..8)?, 16).ok()?;
    (sealed(kind, tokens) == text).then_some(tokens)
}
