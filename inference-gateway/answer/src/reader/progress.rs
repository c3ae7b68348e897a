//! Tracks which parts of an answer were already passed on. Content that a server repeats is not passed on again, and
//! content that arrives late is passed on once.

use raw_json::RawString;

use crate::pieces::{nonsense::Nonsense, parts::MAX_CALLS};

/// Maximum number of parts that are remembered. Pieces of further parts are passed on. Whole texts of further parts are
/// not, because nothing shows whether their pieces came before.
const MOST_PARTS: usize = 8192;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    Text,
    Refusal,
    Thought,
    /// Reasoning that only its vendor can read.
    Encrypted,
    Call,
}

/// Identifies a part of an answer: by the index of its item, block or choice, and by its index within that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartKey {
    pub(super) kind: PartKind,
    pub(super) item: u64,
    pub(super) part: u64,
}

#[derive(Clone, Copy)]
struct GivenPart {
    key: PartKey,
    given: Given,
    /// For a call, its index among the calls of the answer.
    place: u64,
}

/// Size and digest of the text of a part that was passed on so far, as spelled in JSON.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Given {
    bytes: usize,
    /// FNV-1a hash, to compare a whole text with pieces that are no longer in memory.
    digest: u64,
}

impl Given {
    const NOTHING: Self = Self { bytes: 0, digest: 0xcbf2_9ce4_8422_2325 };

    /// Returns the digest of a whole text.
    pub(super) fn of(text: &str) -> Self {
        Self::NOTHING.and(text.as_bytes())
    }

    fn and(self, text: &[u8]) -> Self {
        let digest = text
            .iter()
            .fold(self.digest, |digest, byte| (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        Self { bytes: self.bytes + text.len(), digest }
    }

    /// Returns whether a text begins with the text that was passed on so far.
    fn begins(self, whole: &[u8]) -> bool {
        whole.get(..self.bytes).is_some_and(|start| Self::NOTHING.and(start).digest == self.digest)
    }
}

/// The parts, in the order in which they began. The last event can be undone, because an event that has to wait for
/// tokens is read a second time.
#[derive(Default)]
pub(super) struct Progress {
    /// Whether the answer is passed on whole, with any number of calls.
    pub(super) passes: bool,
    parts: Vec<GivenPart>,
    calls: u64,
    /// Parts as they were before the last event.
    changed: Vec<(usize, GivenPart)>,
    parts_before: usize,
    calls_before: u64,
}

impl Progress {
    pub(super) fn next(&mut self) {
        self.changed.clear();
        (self.parts_before, self.calls_before) = (self.parts.len(), self.calls);
    }

    pub(super) fn again(&mut self) {
        while let Some((at, part)) = self.changed.pop() {
            self.parts[at] = part;
        }
        self.parts.truncate(self.parts_before);
        self.calls = self.calls_before;
    }

    /// Returns whether a call has begun.
    pub(super) const fn has_calls(&self) -> bool {
        self.calls > 0
    }

    /// Counts the calls that have begun.
    pub(super) const fn calls(&self) -> u64 {
        self.calls
    }

    pub(super) fn add(&mut self, key: PartKey, piece: RawString<'_>) {
        if let Some(at) = self.at_or_new(key) {
            self.grow(at, piece);
        }
    }

    /// Returns the rest of a whole text, after the pieces that were already passed on, and notes this rest as passed
    /// on. Returns nothing if the text does not begin with those pieces.
    pub(super) fn rest<'a>(&mut self, key: PartKey, whole: Option<RawString<'a>>) -> Option<RawString<'a>> {
        let whole = whole.filter(|whole| !whole.is_empty())?;
        let at = self.at_or_new(key)?;
        let given = self.parts[at].given;
        let rest = whole.after(given.bytes).filter(|_| given.begins(whole.inner().as_bytes()))?;
        self.grow(at, rest);
        Some(rest).filter(|rest| !rest.is_empty())
    }

    /// Returns what a text adds to its part. The text may repeat the part from its beginning, or continue it.
    pub(super) fn more<'a>(&mut self, key: PartKey, text: Option<RawString<'a>>) -> Option<RawString<'a>> {
        let text = text.filter(|text| !text.is_empty())?;
        let given = self.at(key).map_or(Given::NOTHING, |at| self.parts[at].given);
        if given.begins(text.inner().as_bytes()) {
            return self.rest(key, Some(text));
        }
        self.add(key, text);
        Some(text)
    }

    /// Begins the call with this key, unless it has begun. Returns the call's index among the calls.
    pub(super) fn begin_call(&mut self, key: PartKey) -> Result<u64, Nonsense> {
        if let Some(place) = self.call(key) {
            return Ok(place);
        }
        let most = if self.passes { MOST_PARTS } else { MAX_CALLS };
        if self.calls >= most as u64 {
            return Err(Nonsense::Beyond);
        }
        let place = self.calls;
        self.calls += 1;
        self.parts.push(GivenPart { key, given: Given::NOTHING, place });
        Ok(place)
    }

    /// Returns the index of a call that has begun.
    pub(super) fn call(&self, key: PartKey) -> Option<u64> {
        self.at(key).map(|at| self.parts[at].place)
    }

    /// Returns whether any content of a part was passed on.
    pub(super) fn is_given(&self, key: PartKey) -> bool {
        self.at(key).is_some_and(|at| self.parts[at].given.bytes > 0)
    }

    /// Counts the bytes that were passed on so far in all parts of a kind together.
    pub(super) fn given(&self, kind: PartKind) -> usize {
        self.parts.iter().filter(|part| part.key.kind == kind).map(|part| part.given.bytes).sum()
    }

    /// Returns the key of a part, given its kind and its position among the parts of this kind.
    pub(super) fn nth(&self, kind: PartKind, place: usize) -> Option<PartKey> {
        self.parts.iter().map(|part| part.key).filter(|key| key.kind == kind).nth(place)
    }

    fn at(&self, key: PartKey) -> Option<usize> {
        self.parts.iter().rposition(|part| part.key == key)
    }

    fn at_or_new(&mut self, key: PartKey) -> Option<usize> {
        let known = self.at(key);
        if known.is_none() && self.parts.len() < MOST_PARTS {
            self.parts.push(GivenPart { key, given: Given::NOTHING, place: 0 });
            return Some(self.parts.len() - 1);
        }
        known
    }

    fn grow(&mut self, at: usize, piece: RawString<'_>) {
        if at < self.parts_before {
            self.changed.push((at, self.parts[at]));
        }
        self.parts[at].given = self.parts[at].given.and(piece.inner().as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: PartKey = PartKey { kind: PartKind::Text, item: 1, part: 0 };
    const CALL: PartKey = PartKey { kind: PartKind::Call, item: 2, part: 0 };
    const TEXT: RawString<'_> = RawString::trusted(r#""abc""#);

    fn inner(text: Option<RawString<'_>>) -> Option<&str> {
        text.map(RawString::inner)
    }

    #[test]
    fn what_an_event_changed_is_taken_back_when_it_is_read_again() {
        let mut progress = Progress::default();
        progress.next();
        progress.add(KEY, TEXT);
        for _ in 0..2 {
            progress.next();
            progress.add(KEY, TEXT);
            assert_eq!(progress.begin_call(CALL).ok(), Some(0));
            assert!(progress.rest(CALL, Some(TEXT)).is_some());
            progress.again();
            assert_eq!((progress.given(PartKind::Text), progress.calls()), (3, 0));
            assert!(progress.call(CALL).is_none());
        }
    }

    #[test]
    fn of_a_whole_text_only_what_goes_beyond_its_pieces_is_late() {
        let mut progress = Progress::default();
        assert_eq!(inner(progress.rest(KEY, None)), None);
        assert_eq!(inner(progress.rest(KEY, Some(TEXT))), Some("abc"));
        assert_eq!(inner(progress.rest(KEY, Some(TEXT))), None);
        assert_eq!(inner(progress.rest(KEY, Some(RawString::trusted(r#""abcd""#)))), Some("d"));
        assert_eq!(inner(progress.rest(KEY, Some(RawString::trusted(r#""abxyz""#)))), None);
        assert!(progress.is_given(KEY) && progress.nth(PartKind::Text, 0) == Some(KEY));
    }

    #[test]
    fn texts_that_grow_and_texts_that_go_on_add_what_is_new() {
        for texts in [["ab", "abc", "abcd"], ["ab", "c", "d"], ["ab", "cd", "abcd"]] {
            let mut progress = Progress::default();
            let spelled = texts.map(|text| format!("\"{text}\""));
            let added: String = spelled
                .iter()
                .filter_map(|text| inner(progress.more(KEY, Some(RawString::trusted(text)))))
                .collect();
            assert_eq!(added, "abcd");
        }
    }
}
