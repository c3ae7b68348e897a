//! The upstream's prefix cache, like the cache of recent prompts in model servers.

use std::{
    collections::{HashSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Mutex,
};

/// Number of tokens in a block, the unit of caching.
const BLOCK_TOKENS: u64 = 16;
/// Bytes of messages in a block: four per token.
const BLOCK_BYTES: usize = 64;
/// Maximum number of blocks; the oldest are dropped first.
const MOST_BLOCKS: usize = 1 << 14;

/// Blocks that were read recently, each identified by a hash of everything up to its end.
#[derive(Default)]
pub(super) struct PrefixCache(Mutex<(HashSet<u64>, VecDeque<u64>)>);

impl PrefixCache {
    /// Reads a prompt and returns how many of its tokens were cached.
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
