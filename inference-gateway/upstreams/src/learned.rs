//! Members and limits that a server has refused. Later requests omit them.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use upstream_error::RefusedMembers;

/// What a server has refused. A refusal is remembered only if the server then accepted the same request without the
/// member. Requests that make the server fetch something are not considered, since a client could make the first try
/// fail.
pub(crate) struct Learned {
    refused: AtomicU16,
    most_output: AtomicU64,
}

impl Default for Learned {
    fn default() -> Self {
        Self { refused: AtomicU16::new(0), most_output: AtomicU64::new(u64::MAX) }
    }
}

impl Learned {
    pub(crate) fn refused(&self) -> RefusedMembers {
        RefusedMembers::of_bits(self.refused.load(Ordering::Relaxed))
    }

    pub(crate) fn most_output(&self) -> u64 {
        self.most_output.load(Ordering::Relaxed)
    }

    /// Notes refusals. Returns whether any of them is new.
    pub(crate) fn learn(&self, refused: RefusedMembers, most_output: Option<u64>) -> bool {
        let before = self.refused.fetch_or(refused.bits(), Ordering::Relaxed);
        let most = most_output.unwrap_or(u64::MAX);
        let most_before = self.most_output.fetch_min(most, Ordering::Relaxed);
        before | refused.bits() != before || most < most_before
    }
}

#[cfg(test)]
mod tests {
    use upstream_error::RefusedMember;

    use super::*;

    #[test]
    fn what_was_learned_is_new_once_and_stays() {
        let (learned, none) = (Learned::default(), RefusedMembers::default());
        let options = none.with(RefusedMember::StreamOptions);
        assert!(!learned.learn(none, None));
        assert!(learned.learn(options, None) && !learned.learn(options, None));
        assert!(learned.learn(none, Some(4096)) && !learned.learn(none, Some(8192)));
        assert_eq!((learned.refused(), learned.most_output()), (options, 4096));
    }
}
