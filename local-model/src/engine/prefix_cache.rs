//! Prefix cache: keys and values of finished requests, for others that begin with the same tokens.

use std::collections::VecDeque;

use crate::transformer::KvCache;

/// Tokens of the shortest match that is used. Shorter ones are mostly the format's own words, which all prompts share.
const MIN_MATCH: usize = 16;

/// The most recently used sequences.
pub(crate) struct PrefixCache {
    /// Tokens of all sequences together.
    max_tokens: usize,
    /// Ordered by their last use.
    entries: VecDeque<Entry>,
}

struct Entry {
    tokens: Vec<u32>,
    cache: KvCache,
}

impl PrefixCache {
    pub(crate) fn new(max_tokens: usize) -> Self {
        Self { max_tokens, entries: VecDeque::new() }
    }

    /// Finds the longest beginning of `prompt` that was computed. It leaves at least one token to compute, since the logits
    /// of the next one come with it.
    pub(crate) fn find(&mut self, prompt: &[u32]) -> KvCache {
        let usable = &prompt[..prompt.len().saturating_sub(1)];
        let matches =
            self.entries.iter().enumerate().map(|(index, entry)| (shared(&entry.tokens, usable), index));
        let Some((length, index)) = matches.max().filter(|(length, _)| *length >= MIN_MATCH) else {
            return KvCache::default();
        };
        let Some(entry) = self.entries.remove(index) else { return KvCache::default() };
        let cache = entry.cache.prefix(length);
        self.entries.push_back(entry);
        cache
    }

    /// Keeps a sequence. `cache` holds as many positions as there are `tokens`.
    pub(crate) fn insert(&mut self, tokens: Vec<u32>, cache: KvCache) {
        if tokens.len() > self.max_tokens
            || self.entries.iter().any(|entry| entry.tokens.starts_with(&tokens))
        {
            return;
        }
        self.entries.retain(|entry| !tokens.starts_with(&entry.tokens));
        self.entries.push_back(Entry { tokens, cache });
        while self.tokens() > self.max_tokens {
            self.entries.pop_front();
        }
    }

    fn tokens(&self) -> usize {
        self.entries.iter().map(|entry| entry.tokens.len()).sum()
    }
}

/// Count of the tokens that are the same at the beginning of both.
fn shared(left: &[u32], right: &[u32]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::Model, transformer::Transformer};

    fn read(transformer: &Transformer, tokens: std::ops::Range<u32>) -> (Vec<u32>, KvCache) {
        let (tokens, mut cache) = (tokens.collect::<Vec<_>>(), KvCache::default());
        transformer.read(&tokens, &mut cache);
        (tokens, cache)
    }

    #[test]
    fn the_longest_match_is_found_and_leaves_one_token_to_read() {
        let transformer = Model::shipped().unwrap().transformer;
        let mut prefixes = PrefixCache::new(1000);
        let (tokens, cache) = read(&transformer, 100..150);
        prefixes.insert(tokens.clone(), cache);
        assert_eq!(prefixes.find(&tokens).len(), 49);
        assert_eq!(prefixes.find(&(100..200).collect::<Vec<_>>()).len(), 50);
        assert_eq!(prefixes.find(&[&tokens[..20], &[7; 9]].concat()).len(), 20);
        assert_eq!(prefixes.find(&[&tokens[..15], &[7; 9]].concat()).len(), 0);
        assert_eq!(prefixes.find(&[]).len(), 0);
    }

    #[test]
    fn an_answer_on_a_cached_prefix_is_the_same_to_the_last_bit() {
        let transformer = Model::shipped().unwrap().transformer;
        let (tokens, cache) = read(&transformer, 100..400);
        let mut anew = KvCache::default();
        let expected = transformer.read(&tokens, &mut anew);
        for cut in [1, 16, 17, 255, 299] {
            assert_eq!(transformer.read(&tokens[cut..], &mut cache.prefix(cut)), expected);
        }
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let transformer = Model::shipped().unwrap().transformer;
        let mut prefixes = PrefixCache::new(100);
        for start in [100, 200, 300] {
            let (tokens, cache) = read(&transformer, start..start + 40);
            prefixes.insert(tokens, cache);
            prefixes.find(&(100..140).collect::<Vec<_>>());
        }
        let found =
            [100, 200, 300].map(|start| prefixes.find(&(start..start + 40).collect::<Vec<_>>()).len());
        assert_eq!(found, [39, 0, 39]);
    }

    #[test]
    fn a_longer_sequence_replaces_its_beginning() {
        let transformer = Model::shipped().unwrap().transformer;
        let mut prefixes = PrefixCache::new(1000);
        for end in [120, 140, 130] {
            let (tokens, cache) = read(&transformer, 100..end);
            prefixes.insert(tokens, cache);
        }
        assert_eq!(prefixes.tokens(), 40);
    }
}
