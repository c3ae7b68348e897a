//! Parts of a body that are replaced or removed when it is passed on.

use std::ops::Range;

/// A part of a body that is replaced.
pub(crate) struct Cut {
    pub(super) at: Range<usize>,
    pub(super) with: String,
    pub(super) when: CutWhen,
    /// Paths of the members that are lost.
    pub(super) names: Vec<String>,
}

/// Which servers get the replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutWhen {
    Always,
    /// Servers that get no undocumented members.
    Unknown,
    /// Servers that may not compact a conversation.
    Compaction,
    /// Servers for which a block separates the accounts' caches.
    Separate,
}

/// Finds the ranges to remove from a list or an object, each with the index of its value. `ends` contains each value's
/// end and whether the value stays. If no value stays, a single range with the index 0 removes all of them.
pub(super) fn removals(json: &str, ends: &[(usize, bool)]) -> Vec<(usize, Range<usize>)> {
    let after_comma =
        |end: usize| end + memchr::memchr(b',', &json.as_bytes()[end..]).map_or(0, |comma| comma + 1);
    let Some(first_kept) = ends.iter().position(|(_, stays)| *stays) else {
        let last = ends.last().map(|(end, _)| (0, 1..*end));
        return last.into_iter().collect();
    };
    let mut removed = Vec::new();
    for (number, (end, stays)) in ends.iter().enumerate() {
        let before = number.checked_sub(1).map(|before| ends[before].0);
        if number < first_kept {
            // Also removes the comma after the value.
            removed.push((number, before.map_or(1, after_comma)..after_comma(*end)));
        } else if !stays {
            removed.push((number, before.unwrap_or(1)..*end));
        }
    }
    removed
}
