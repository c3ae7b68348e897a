//! What finished requests have read, kept for others that begin with the same tokens.

use std::collections::VecDeque;

use crate::decoder::Past;

/// Shorter matches are not used: they are mostly the template's own words, which all prompts share.
const MIN_MATCH: usize = 16;

/// The most recently used sequences, up to so many tokens in all.
pub(crate) struct Prefixes {
    max_tokens: usize,
    /// The one used last comes last.
    entries: VecDeque<Entry>,
}

struct Entry {
    tokens: Vec<u32>,
    past: Past,
}

impl Prefixes {
    pub(crate) fn new(max_tokens: usize) -> Self {
        Self { max_tokens, entries: VecDeque::new() }
    }

    /// The longest beginning of `prompt` that was read before. It leaves at least one token to be read, since the
    /// scores for the next one come from reading.
    pub(crate) fn find(&mut self, prompt: &[u32]) -> Past {
        let usable = &prompt[..prompt.len().saturating_sub(1)];
        let matches =
            self.entries.iter().enumerate().map(|(index, entry)| (shared(&entry.tokens, usable), index));
        let Some((length, index)) = matches.max().filter(|(length, _)| *length >= MIN_MATCH) else {
            return Past::default();
        };
        let Some(entry) = self.entries.remove(index) else { return Past::default() };
        let past = entry.past.prefix(length);
        self.entries.push_back(entry);
        past
    }

    /// Keeps what was read. `past` holds as many positions as there are `tokens`.
    pub(crate) fn keep(&mut self, tokens: Vec<u32>, past: Past) {
        if tokens.len() > self.max_tokens
            || self.entries.iter().any(|entry| entry.tokens.starts_with(&tokens))
        {
            return;
        }
        self.entries.retain(|entry| !tokens.starts_with(&entry.tokens));
        self.entries.push_back(Entry { tokens, past });
        while self.tokens() > self.max_tokens {
            self.entries.pop_front();
        }
    }

    fn tokens(&self) -> usize {
        self.entries.iter().map(|entry| entry.tokens.len()).sum()
    }
}

/// So many tokens are the same at the beginning of both.
fn shared(left: &[u32], right: &[u32]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{decoder::Decoder, model::Model};

    fn read(decoder: &Decoder, tokens: std::ops::Range<u32>) -> (Vec<u32>, Past) {
        let (tokens, mut past) = (tokens.collect::<Vec<_>>(), Past::default());
        decoder.read(&tokens, &mut past);
        (tokens, past)
    }

    #[test]
    fn the_longest_match_is_found_and_leaves_one_token_to_read() {
        let decoder = Model::shipped().unwrap().decoder;
        let mut prefixes = Prefixes::new(1000);
        let (tokens, past) = read(&decoder, 100..150);
        prefixes.keep(tokens.clone(), past);
        assert_eq!(prefixes.find(&tokens).positions(), 49);
        assert_eq!(prefixes.find(&(100..200).collect::<Vec<_>>()).positions(), 50);
        assert_eq!(prefixes.find(&[&tokens[..20], &[7; 9]].concat()).positions(), 20);
        assert_eq!(prefixes.find(&[&tokens[..15], &[7; 9]].concat()).positions(), 0);
        assert_eq!(prefixes.find(&[]).positions(), 0);
    }

    #[test]
    fn an_answer_on_a_cached_prefix_is_the_same_to_the_last_bit() {
        let decoder = Model::shipped().unwrap().decoder;
        let (tokens, past) = read(&decoder, 100..400);
        let mut anew = Past::default();
        let expected = decoder.read(&tokens, &mut anew);
        for cut in [1, 16, 17, 255, 299] {
            assert_eq!(decoder.read(&tokens[cut..], &mut past.prefix(cut)), expected);
        }
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let decoder = Model::shipped().unwrap().decoder;
        let mut prefixes = Prefixes::new(100);
        for start in [100, 200, 300] {
            let (tokens, past) = read(&decoder, start..start + 40);
            prefixes.keep(tokens, past);
            prefixes.find(&(100..140).collect::<Vec<_>>());
        }
        let found =
            [100, 200, 300].map(|start| prefixes.find(&(start..start + 40).collect::<Vec<_>>()).positions());
        assert_eq!(found, [39, 0, 39]);
    }

    #[test]
    fn what_holds_another_replaces_it() {
        let decoder = Model::shipped().unwrap().decoder;
        let mut prefixes = Prefixes::new(1000);
        for end in [120, 140, 130] {
            let (tokens, past) = read(&decoder, 100..end);
            prefixes.keep(tokens, past);
        }
        assert_eq!(prefixes.tokens(), 40);
    }
}
