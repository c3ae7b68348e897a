//! Parts within a body that are replaced or removed when it is passed on.

use std::ops::Range;

/// A part of a body that is replaced.
pub(crate) struct Cut {
    pub(super) at: Range<usize>,
    pub(super) with: String,
    pub(super) when: CutWhen,
    /// Members that are lost, with their paths.
    pub(super) names: Vec<String>,
}

/// The servers for which a part is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutWhen {
    Always,
    /// Servers that undocumented members do not pass to.
    Unknown,
    /// Servers that may not be asked to compact a conversation.
    Compaction,
    /// Servers whose cache the accounts do not share.
    Separate,
}

/// Finds the places of the values that are removed from a list or an object, each with its number. `ends` has the end
/// of each value, and whether it stays. If no value stays, all are removed together, as the first.
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
            // The comma after it goes too.
            removed.push((number, before.map_or(1, after_comma)..after_comma(*end)));
        } else if !stays {
            removed.push((number, before.unwrap_or(1)..*end));
        }
    }
    removed
}
