//! Output tokens that a stream's hold covers, and when to request more.

/// Output tokens that a stream holds at first, and that each extension adds. They last for some tens of seconds of
/// generation, and the unused rest of a grant does not block other requests for long.
pub const GRANT_TOKENS: u64 = 1024;

/// The output tokens granted to a stream.
#[derive(Clone, Copy, Debug)]
pub struct GrantedTokens {
    granted: u64,
    wanted: u64,
    /// Whether the last extension granted less than requested, so no more is available until another hold ends.
    short: bool,
}

impl GrantedTokens {
    /// Starts with `granted` of the `wanted` tokens.
    pub const fn new(granted: u64, wanted: u64) -> Self {
        Self { granted, wanted, short: false }
    }

    /// Returns whether this many tokens may be delivered.
    pub(crate) const fn covers(&self, tokens: u64) -> bool {
        tokens <= self.granted
    }

    pub(crate) const fn is_complete(&self) -> bool {
        self.granted >= self.wanted
    }

    /// Returns whether the last extension granted less than requested.
    pub(crate) const fn is_short(&self) -> bool {
        self.short
    }

    /// Returns the total to request once `delivered` tokens were delivered: half a grant ahead. After a partial
    /// extension, it requests more only if that would release a blocked event, which needs a total of `needed` tokens.
    pub(crate) fn ask(&self, delivered: u64, needed: Option<u64>) -> Option<u64> {
        let near = delivered + GRANT_TOKENS / 2 >= self.granted;
        let due = needed.is_some() || (near && !self.short);
        let total = (delivered + GRANT_TOKENS).max(needed.unwrap_or(0)).max(self.granted + 1);
        (due && !self.is_complete()).then(|| self.wanted.min(total))
    }

    pub(crate) const fn granted(&self) -> u64 {
        self.granted
    }

    /// Records an extension: the total granted, and the total requested.
    pub(crate) fn extended(&mut self, granted: u64, asked: u64) {
        self.short = granted < asked;
        self.granted = self.granted.max(granted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_asked_for_half_a_grant_ahead_of_need() {
        let granted = GrantedTokens::new(GRANT_TOKENS, 10 * GRANT_TOKENS);
        assert_eq!(granted.ask(GRANT_TOKENS / 2 - 1, None), None);
        assert_eq!(granted.ask(GRANT_TOKENS / 2, None), Some(GRANT_TOKENS / 2 + GRANT_TOKENS));
    }

    #[test]
    fn an_event_that_is_larger_than_a_grant_asks_for_its_need() {
        let granted = GrantedTokens::new(GRANT_TOKENS, 10 * GRANT_TOKENS);
        assert_eq!(granted.ask(0, Some(5 * GRANT_TOKENS)), Some(5 * GRANT_TOKENS));
        assert_eq!(granted.ask(0, Some(50 * GRANT_TOKENS)), Some(10 * GRANT_TOKENS));
    }

    #[test]
    fn nothing_is_asked_beyond_the_wanted_tokens() {
        let mut granted = GrantedTokens::new(GRANT_TOKENS, GRANT_TOKENS + 10);
        assert_eq!(granted.ask(GRANT_TOKENS, None), Some(GRANT_TOKENS + 10));
        granted.extended(GRANT_TOKENS + 10, GRANT_TOKENS + 10);
        assert_eq!(granted.ask(GRANT_TOKENS, Some(2 * GRANT_TOKENS)), None);
    }

    #[test]
    fn after_a_short_extension_only_a_blocked_stream_asks_again() {
        let mut granted = GrantedTokens::new(GRANT_TOKENS, 10 * GRANT_TOKENS);
        granted.extended(GRANT_TOKENS + 5, 2 * GRANT_TOKENS);
        assert!(granted.covers(GRANT_TOKENS + 5) && !granted.covers(GRANT_TOKENS + 6));
        assert_eq!(granted.ask(GRANT_TOKENS, None), None);
        assert!(granted.ask(GRANT_TOKENS + 5, Some(GRANT_TOKENS + 6)).is_some());
    }
}
