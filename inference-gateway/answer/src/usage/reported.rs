//! What an upstream reports of an answer's usage.

/// Replaces all larger counts. It is above any plausible request, and small enough that sums do not overflow.
pub const MOST_TOKENS: u64 = 1 << 40;

/// Usage reported by an upstream. A member is `None` if it is absent or not a number of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// Tokens of the prompt, including those read from or written to a cache.
    pub prompt: Option<u64>,
    /// Tokens of the prompt that were read from a cache.
    pub cached: Option<u64>,
    /// Tokens of the prompt that were written to a cache, for however long.
    pub written: Option<u64>,
    /// Tokens of the prompt that were written to a cache for an hour or longer.
    pub written_long: Option<u64>,
    /// Tokens of the prompt that are audio.
    pub audio_input: Option<u64>,
    pub completion: Option<u64>,
    /// Generated tokens spent on reasoning.
    pub reasoning: Option<u64>,
    /// Generated tokens that are audio.
    pub audio_output: Option<u64>,
    /// Tokens of the prompt and the output together.
    pub total: Option<u64>,
    /// Cost of the answer in nano-USD, as the vendor reports it.
    pub cost: Option<u64>,
}

impl Reported {
    /// Returns the larger value of each member. Usage only grows, so the order and split of reports do not matter.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        self.join(other, Ord::max)
    }

    /// Adds up both reports, member by member.
    #[must_use]
    pub(super) fn plus(self, other: Self) -> Self {
        self.join(other, |a, b| {
            let sum = || a.unwrap_or(0).saturating_add(b.unwrap_or(0)).min(MOST_TOKENS);
            a.or(b).map(|_| sum())
        })
    }

    /// Returns only the values within `bounds`.
    #[must_use]
    pub fn within(self, bounds: Self) -> Self {
        self.join(bounds, |tokens, most| tokens.filter(|_| tokens <= most))
    }

    /// Returns only the values beyond `bounds`.
    #[must_use]
    pub fn beyond(self, bounds: Self) -> Self {
        self.join(bounds, |tokens, most| tokens.filter(|_| tokens > most))
    }

    /// Returns whether any count of the prompt was reported.
    pub fn tells_prompt(&self) -> bool {
        let Self { prompt, cached, written, written_long, audio_input, .. } = *self;
        prompt.or(cached).or(written).or(written_long).or(audio_input).is_some()
    }

    /// Returns whether any part of the output was reported.
    pub fn tells_parts_of_output(&self) -> bool {
        self.reasoning.or(self.audio_output).is_some()
    }

    /// Joins two reports member by member. Only this function and the reader list all members.
    fn join(self, other: Self, join: impl Fn(Option<u64>, Option<u64>) -> Option<u64>) -> Self {
        Self {
            prompt: join(self.prompt, other.prompt),
            cached: join(self.cached, other.cached),
            written: join(self.written, other.written),
            written_long: join(self.written_long, other.written_long),
            audio_input: join(self.audio_input, other.audio_input),
            completion: join(self.completion, other.completion),
            reasoning: join(self.reasoning, other.reasoning),
            audio_output: join(self.audio_output, other.audio_output),
            total: join(self.total, other.total),
            cost: join(self.cost, other.cost),
        }
    }
}
