//! The way from the middle of an answer to a valid end of it: short, though not always the shortest.

use std::cmp::Reverse;

use llguidance::{
    Matcher,
    toktrie::{SimpleVob, TokEnv},
};

use super::part::Part;
use crate::vocabulary::Markers;

/// Longer ways are not looked for: 10 ms or so, during which the other requests wait.
const MAX_WAY: usize = 512;
/// After so many tokens of text that could not be closed, a pattern may want a certain character: each is tried in turn.
const PATIENCE: usize = 2;
/// What parts the pieces of addresses, dates and times, and so is most likely to be wanted by a pattern.
const SEPARATORS: &[u8] = b"@:.-/_ ,T";

/// Finds ways in one vocabulary.
pub(super) struct Ways {
    pub(super) markers: Markers,
    words: TokEnv,
    /// The tokens with characters that may open or close a part of JSON.
    structural: SimpleVob,
    /// The tokens of a single printable character, what patterns want most often first.
    characters: Vec<u32>,
}

/// Where a way has come to.
struct Walk {
    part: Part,
    /// So many tokens went by without opening or closing anything.
    idle: usize,
    /// What was written of [`Ways::characters`] in that time, as often as it was.
    tried: Vec<u32>,
}

impl Ways {
    pub(super) fn new(words: TokEnv, markers: Markers) -> Self {
        let trie = words.tok_trie();
        let mut structural = trie.alloc_token_set();
        for token in (0..).take(trie.vocab_size()).filter(|&token| !trie.is_special_token(token)) {
            if trie.token(token).iter().any(|byte| b"\"[]{},".contains(byte)) {
                structural.allow_token(token);
            }
        }
        let printable = (b' '..=b'~').filter(|byte| !SEPARATORS.contains(byte));
        let bytes = SEPARATORS.iter().copied().chain(printable);
        let characters = bytes.filter_map(|byte| trie.token_id(&[byte])).collect();
        Self { markers, words, structural, characters }
    }

    /// The tokens that bring an answer from here to a valid end, no more than `most`. None if none such was found.
    pub(super) fn find(&self, matcher: &Matcher, part: Part, most: usize) -> Option<Vec<u32>> {
        let (mut matcher, mut way) = (matcher.clone(), Vec::new());
        let mut walk = Walk { part, idle: 0, tried: Vec::new() };
        while !ends(&mut matcher) {
            if way.len() == most.min(MAX_WAY) {
                return None;
            }
            let token = self.next(&matcher.compute_mask().ok()?, &mut walk)?;
            matcher.consume_token(token).ok()?;
            way.push(token);
        }
        Some(way)
    }

    /// The part of the answer that one is in after this token.
    pub(super) fn part_after(&self, part: Part, token: u32) -> Part {
        let trie = self.words.tok_trie();
        match self.markers.thought {
            Some(thought) if thought.open == token => Part::Thought,
            _ if trie.is_special_token(token) => Part::Between,
            Some(_) | None => part.after(trie.token(token)),
        }
    }

    /// The token that seems to lead to an end the soonest.
    fn next(&self, allowed: &SimpleVob, walk: &mut Walk) -> Option<u32> {
        let trie = self.words.tok_trie();
        let delay = |token: u32| walk.part.delay_of(trie.token(token));
        let structural = self.structural.iter().filter(|&token| allowed.is_allowed(token));
        let structural = structural.min_by_key(|&token| (delay(token), Reverse(trie.token_len(token))));
        // Digits open nothing, but could go on for ever.
        let is_number = matches!(walk.part, Part::Number { .. });
        let closing = structural.filter(|&token| is_number || delay(token) < 0);
        let closing = closing.or_else(|| self.closing_marker(allowed));

        let plain = if closing.is_none() { self.plain(allowed, walk) } else { None };
        let token = closing.or(plain).or(structural).or_else(|| self.opening_marker_or_blank(allowed))?;
        if plain.is_some() {
            walk.idle += 1;
            walk.tried.extend(self.characters.contains(&token).then_some(token));
        } else {
            // What the next text wants has nothing to do with what this one wanted.
            (walk.idle, walk.tried) = (0, Vec::new());
        }
        walk.part = self.part_after(walk.part, token);
        Some(token)
    }

    /// The longest token that opens and closes nothing, or the character that was tried the least.
    fn plain(&self, allowed: &SimpleVob, walk: &Walk) -> Option<u32> {
        let trie = self.words.tok_trie();
        let is_plain = |token: u32| {
            let says = walk.part != Part::Between || !trie.token(token).trim_ascii().is_empty();
            says && !self.structural.is_allowed(token) && !trie.is_special_token(token)
        };
        if walk.idle >= PATIENCE && walk.idle % 2 == 1 {
            let times = |token: u32| walk.tried.iter().filter(|&&tried| tried == token).count();
            let usable = self.characters.iter().copied().filter(|&token| allowed.is_allowed(token));
            if let Some(rarest) = usable.filter(|&token| is_plain(token)).min_by_key(|&token| times(token)) {
                return Some(rarest);
            }
        }
        // Few numbers have to be negative.
        let is_negative = |token: u32| trie.token(token).starts_with(b"-");
        let worth = |&token: &u32| (!is_negative(token), trie.token_len(token), Reverse(token));
        allowed.iter().filter(|&token| is_plain(token)).max_by_key(worth)
    }

    /// What ends a thought or a call.
    fn closing_marker(&self, allowed: &SimpleVob) -> Option<u32> {
        let pairs = [self.markers.thought, self.markers.call].into_iter().flatten();
        pairs.map(|pair| pair.close).find(|&token| allowed.is_allowed(token))
    }

    /// What begins another part of an answer, where nothing else is left.
    fn opening_marker_or_blank(&self, allowed: &SimpleVob) -> Option<u32> {
        let call = self.markers.call.map(|pair| pair.open).filter(|&token| allowed.is_allowed(token));
        let is_thought = |token: u32| self.markers.thought.is_some_and(|pair| pair.open == token);
        call.or_else(|| allowed.iter().find(|&token| !is_thought(token)))
    }
}

/// Whether the answer is valid if it ends here.
pub(super) fn ends(matcher: &mut Matcher) -> bool {
    matcher.is_stopped() || matcher.is_accepting().unwrap_or(false)
}
