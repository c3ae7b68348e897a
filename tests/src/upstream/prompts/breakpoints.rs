//! Prompt cache of the Messages API: prefixes are written and read only at the request's breakpoints.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Mutex,
};

use serde_json::Value;

use super::{
    plan::CacheWrites,
    prompt::{Prompt, written},
};

/// Number of blocks before a breakpoint that are searched for an earlier breakpoint, as Anthropic documents it.
const LOOKBACK_BLOCKS: usize = 20;
/// Maximum number of prefixes; beyond it, all are forgotten.
const MOST_PREFIXES: usize = 1 << 14;

/// Prefixes that were written, each identified by a hash of everything up to its end.
#[derive(Default)]
pub(in crate::upstream) struct BreakpointCache(Mutex<HashSet<u64>>);

/// How long a prefix is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    FiveMinutes,
    AnHour,
}

/// A block of a prompt, and everything before it.
struct Prefix {
    /// Hash of everything up to the block's end.
    key: u64,
    /// Tokens of everything up to the block's end.
    tokens: u64,
    /// How long the prefix is kept, if the block is a breakpoint.
    mark: Option<Kept>,
}

impl BreakpointCache {
    /// Reads a prompt of this many tokens. Returns how many of them were cached before, and how many are cached now in
    /// addition. Prefixes of fewer tokens than `minimum` are not cached.
    pub(crate) fn read(&self, prompt: &Prompt, total: u64, minimum: u64) -> (u64, CacheWrites) {
        let known = &mut *self.0.lock().unwrap();
        let prefixes = prefixes(prompt, total);
        let marks = || prefixes.iter().enumerate().filter_map(|(index, prefix)| Some((index, prefix.mark?)));
        let is_known = |index: &usize| known.contains(&prefixes[*index].key);
        let before =
            |(mark, _): (usize, Kept)| (mark.saturating_sub(LOOKBACK_BLOCKS - 1)..=mark).rev().find(is_known);
        let cached = marks().filter_map(before).map(|index| prefixes[index].tokens).max().unwrap_or_default();
        let (mut end, mut writes) = (cached, CacheWrites::default());
        let mut taken = Vec::new();
        for (index, kept) in marks() {
            let Prefix { key, tokens, .. } = prefixes[index];
            if tokens < minimum {
                continue;
            }
            taken.push(key);
            let more = tokens.saturating_sub(end);
            end = end.max(tokens);
            match kept {
                Kept::FiveMinutes => writes.short += more,
                Kept::AnHour => writes.long += more,
            }
        }
        if known.len() > MOST_PREFIXES {
            known.clear();
        }
        known.extend(taken);
        (cached, writes)
    }
}

/// Returns all prefixes of a prompt that end with a block: of its tools, its system message and its messages, in this
/// order.
fn prefixes(prompt: &Prompt, total: u64) -> Vec<Prefix> {
    let body = &prompt.body;
    let mut all = Growing { hasher: DefaultHasher::new(), bytes: 0, total, prefixes: Vec::new() };
    body["model"].as_str().hash(&mut all.hasher);
    for tool in body["tools"].as_array().into_iter().flatten() {
        all.add("tool", tool);
    }
    all.add_blocks("system", &body["system"]);
    // A different setting for thinking or for the choice of tools changes the messages' prefixes, but not the earlier
    // ones.
    for member in ["thinking", "tool_choice"] {
        written(&body[member]).hash(&mut all.hasher);
    }
    for message in prompt.items() {
        all.add_blocks(message["role"].as_str().unwrap_or_default(), &message["content"]);
    }
    let mut prefixes = all.prefixes;
    if let (Some(mark), Some(last)) = (mark(body), prefixes.last_mut()) {
        last.mark = Some(mark);
    }
    prefixes
}

/// Prefixes that grow block by block.
struct Growing {
    hasher: DefaultHasher,
    bytes: u64,
    /// Tokens of the whole prompt.
    total: u64,
    prefixes: Vec<Prefix>,
}

impl Growing {
    /// Adds the blocks of a content. A string counts as one block.
    fn add_blocks(&mut self, role: &str, content: &Value) {
        match content {
            Value::Array(blocks) => blocks.iter().for_each(|block| self.add(role, block)),
            Value::String(text) => self.add(role, &serde_json::json!({"type": "text", "text": text})),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {}
        }
    }

    fn add(&mut self, role: &str, block: &Value) {
        let text = written(block);
        (role, &text).hash(&mut self.hasher);
        self.bytes += text.len() as u64;
        let tokens = (self.bytes / 4).min(self.total);
        self.prefixes.push(Prefix { key: self.hasher.finish(), tokens, mark: mark(block) });
    }
}

/// Returns how long a block, or a request's body, asks to keep its prefix.
fn mark(block: &Value) -> Option<Kept> {
    let control = block.get("cache_control").filter(|control| !control.is_null())?;
    Some(if control["ttl"] == "1h" { Kept::AnHour } else { Kept::FiveMinutes })
}
