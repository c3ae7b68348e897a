//! Signatures of thinking and encrypted reasoning. The upstream recognises its own signatures by their content.

use std::hash::{DefaultHasher, Hash, Hasher};

/// First characters of every signature of a thinking block.
const THINKING: &str = "EqRTaGlua2luZw";
/// First characters of every encrypted reasoning.
const REASONING: &str = "gAAAAABmUmVhc29u";

/// Signature of a thinking block of this many tokens.
pub(super) fn of_thinking(tokens: u64) -> String {
    sealed(THINKING, tokens)
}

/// Encrypted content of a reasoning item of this many tokens.
pub(super) fn of_reasoning(tokens: u64) -> String {
    sealed(REASONING, tokens)
}

/// Number of tokens of the thinking block with this signature; `None` for a foreign one.
pub(super) fn thinking_tokens(signature: &str) -> Option<u64> {
    opened(THINKING, signature)
}

/// Number of tokens of the reasoning with this encrypted content; `None` for a foreign one.
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
