//! Signatures of thinking, and encrypted reasoning. The upstream recognises what it issued by its content.

use std::hash::{DefaultHasher, Hash, Hasher};

/// First characters of every signature of a thinking block.
const THINKING: &str = "EqRTaGlua2luZw";
/// First characters of every encrypted reasoning content.
const REASONING: &str = "gAAAAABmUmVhc29u";

/// Returns the signature of a thinking block with this many tokens.
pub(super) fn of_thinking(tokens: u64) -> String {
    sealed(THINKING, tokens)
}

/// Returns the encrypted content of a reasoning item with this many tokens.
pub(super) fn of_reasoning(tokens: u64) -> String {
    sealed(REASONING, tokens)
}

/// Returns the number of tokens in the thinking block with this signature; `None` for a foreign signature.
pub(super) fn thinking_tokens(signature: &str) -> Option<u64> {
    opened(THINKING, signature)
}

/// Returns the number of tokens in the reasoning with this encrypted content; `None` for foreign content.
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
