//! What an upstream has read of prompts, by their beginnings, as the prefix caches of model servers keep it.

use std::{
    collections::{HashSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Mutex,
};

/// Tokens that are kept, or not, together.
const BLOCK_TOKENS: u64 = 16;
/// Bytes of messages in a block: four a token.
const BLOCK_BYTES: usize = 64;
/// Blocks that are kept; the oldest go first.
const MOST_BLOCKS: usize = 1 << 14;

/// Every block that was read lately, each known by all that stood before it too.
#[derive(Default)]
pub(super) struct PrefixCache(Mutex<(HashSet<u64>, VecDeque<u64>)>);

impl PrefixCache {
    /// Reads a prompt; tokens of it that had been read before.
    pub(super) fn read(&self, salt: &str, messages: &str) -> u64 {
        let (known, order) = &mut *self.0.lock().unwrap();
        let mut all_before = DefaultHasher::new();
        salt.hash(&mut all_before);
        let (mut cached, mut unbroken) = (0, true);
        for block in messages.as_bytes().chunks_exact(BLOCK_BYTES) {
            block.hash(&mut all_before);
            let key = all_before.finish();
            unbroken &= !known.insert(key);
            if unbroken {
                cached += BLOCK_TOKENS;
            } else {
                order.push_back(key);
            }
        }
        while order.len() > MOST_BLOCKS {
            order.pop_front().map(|oldest| known.remove(&oldest));
        }
        cached
    }
}
