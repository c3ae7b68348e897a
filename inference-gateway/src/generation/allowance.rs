//! How many output tokens a stream may still deliver, and when to ask for more.

use super::GRANT_TOKENS;

/// The output tokens that a stream's hold covers. Pure: it says what to ask, and is told what came of it.
#[derive(Debug)]
pub(super) struct Allowance {
    granted: u64,
    wanted: u64,
    /// The last extension brought less than was asked: there is no more to be had, unless somebody else's hold ends.
    short: bool,
}

impl Allowance {
    /// So much is granted of what is wanted.
    pub(super) const fn new(granted: u64, wanted: u64) -> Self {
        Self { granted, wanted, short: false }
    }

    /// Whether so many tokens may be delivered.
    pub(super) const fn covers(&self, tokens: u64) -> bool {
        tokens <= self.granted
    }

    /// Whether the stream has all that it wanted.
    pub(super) const fn complete(&self) -> bool {
        self.granted >= self.wanted
    }

    /// The total to ask for, with so many tokens delivered: half a grant ahead of need, and where the last extension
    /// fell short, only once the stream stands still.
    pub(super) fn ask(&self, delivered: u64, starved: bool) -> Option<u64> {
        let near = delivered + GRANT_TOKENS / 2 >= self.granted;
        let due = starved || (near && !self.short);
        (due && !self.complete()).then(|| self.wanted.min(delivered + GRANT_TOKENS).max(self.granted + 1))
    }

    /// What to name in a mere renewal: no more than there is.
    pub(super) const fn granted(&self) -> u64 {
        self.granted
    }

    /// So much is granted in total, of so much asked.
    pub(super) fn extended(&mut self, granted: u64, asked: u64) {
        self.short = granted < asked;
        self.granted = self.granted.max(granted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_asked_for_half_a_grant_ahead_of_need() {
        let allowance = Allowance::new(GRANT_TOKENS, 10 * GRANT_TOKENS);
        assert_eq!(allowance.ask(GRANT_TOKENS / 2 - 1, false), None);
        assert_eq!(allowance.ask(GRANT_TOKENS / 2, false), Some(GRANT_TOKENS / 2 + GRANT_TOKENS));
    }

    #[test]
    fn nothing_is_asked_beyond_what_is_wanted() {
        let mut allowance = Allowance::new(GRANT_TOKENS, GRANT_TOKENS + 10);
        assert_eq!(allowance.ask(GRANT_TOKENS, false), Some(GRANT_TOKENS + 10));
        allowance.extended(GRANT_TOKENS + 10, GRANT_TOKENS + 10);
        assert_eq!(allowance.ask(GRANT_TOKENS, true), None);
    }

    #[test]
    fn after_a_short_extension_the_stream_asks_again_only_when_it_stands_still() {
        let mut allowance = Allowance::new(GRANT_TOKENS, 10 * GRANT_TOKENS);
        allowance.extended(GRANT_TOKENS + 5, 2 * GRANT_TOKENS);
        assert!(allowance.covers(GRANT_TOKENS + 5) && !allowance.covers(GRANT_TOKENS + 6));
        assert_eq!(allowance.ask(GRANT_TOKENS, false), None);
        assert!(allowance.ask(GRANT_TOKENS + 5, true).is_some());
    }
}
