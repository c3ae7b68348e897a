//! Tokens that a stream has used so far: reported by its upstream, or else counted as they pass.

use shared::tokens::Usage;

use crate::domain::{
    answer::Chunk,
    chat::{BYTES_PER_TOKEN, MAX_CHOICES},
};

/// Counts the tokens of one answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsageCounter {
    prompt_estimate: u64,
    most_completion: u64,
    counted: u64,
    reported: Option<Usage>,
    /// Tokens of each choice, where the upstream reports them separately.
    by_choice: [u64; MAX_CHOICES as usize],
    /// Output was delivered after the last report.
    behind: bool,
}

impl UsageCounter {
    /// Starts before the first token. The prompt is assumed to have this many tokens until the upstream reports it; the
    /// upstream was limited to `most_completion` tokens of output.
    pub(crate) const fn new(prompt_estimate: u64, most_completion: u64) -> Self {
        Self {
            prompt_estimate,
            most_completion,
            counted: 0,
            reported: None,
            by_choice: [0; MAX_CHOICES as usize],
            behind: true,
        }
    }

    /// The count after this chunk is delivered.
    #[must_use]
    pub(crate) fn with_chunk(mut self, chunk: &Chunk<'_>) -> Self {
        let mut reported = chunk.usage.map(|reported| reported.tokens);
        if let Some((choice, used)) = chunk.choice_usage {
            let all = self.add_up(choice, used.tokens);
            reported = reported.or(Some(all));
        }
        self.with(chunk.text_bytes, chunk.outputs, reported)
    }

    /// The count after a chunk with this many bytes of output, for this many choices (at least a token each), and the
    /// usage that the upstream has reported by then.
    #[must_use]
    pub(crate) fn with(mut self, output_bytes: u64, outputs: u64, reported: Option<Usage>) -> Self {
        if outputs > 0 {
            self.counted += (output_bytes / BYTES_PER_TOKEN).max(outputs);
            self.behind = true;
        }
        if let Some(reported) = reported {
            let before = self.reported.unwrap_or_default();
            self.reported = Some(before.max(reported));
            self.counted = 0;
            self.behind = false;
        }
        self
    }

    /// The count with the exact tokens of the prompt.
    #[must_use]
    pub(crate) const fn with_prompt(mut self, exact: u64) -> Self {
        self.prompt_estimate = exact;
        self
    }

    /// Output tokens so far, over all choices.
    pub(crate) fn completion(&self) -> u64 {
        let reported = self.reported.unwrap_or_default().completion;
        // Texts may have more or fewer tokens than estimated; an estimate never bills beyond the upstream's limit.
        reported + self.counted.min(self.most_completion.saturating_sub(reported))
    }

    /// The prompt's tokens, if the upstream has reported them.
    pub(crate) fn reported_prompt(&self) -> Option<u64> {
        self.reported.map(|usage| usage.prompt)
    }

    /// The usage to bill if the stream ended now.
    pub(crate) fn usage(&self) -> Usage {
        let reported =
            self.reported.unwrap_or(Usage { prompt: self.prompt_estimate, cached: 0, completion: 0 });
        Usage { completion: self.completion(), ..reported }
    }

    /// Returns whether that usage is an estimate.
    pub(crate) const fn is_estimate(&self) -> bool {
        self.behind
    }

    /// Adds a choice's own usage to that of the others.
    fn add_up(&mut self, choice: usize, used: Usage) -> Usage {
        self.by_choice[choice] = self.by_choice[choice].max(used.completion);
        Usage { completion: self.by_choice.iter().sum(), ..used }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: Usage = Usage { prompt: 12, cached: 4, completion: 3 };

    #[test]
    fn a_report_replaces_the_count() {
        let counter = UsageCounter::new(100, 1000).with(40, 1, None).with(1, 1, None);
        assert_eq!(
            (counter.usage(), counter.is_estimate()),
            (Usage { prompt: 100, cached: 0, completion: 11 }, true)
        );
        let counter = counter.with(4, 1, Some(REPORT));
        assert_eq!((counter.usage(), counter.is_estimate()), (REPORT, false));
        let counter = counter.with(9, 1, None);
        assert_eq!((counter.usage(), counter.is_estimate()), (Usage { completion: 5, ..REPORT }, true));
    }

    #[test]
    fn usage_of_choices_is_added_up() {
        let used = |completion| Usage { completion, ..REPORT };
        let mut counter = UsageCounter::new(100, 1000);
        for (choice, completion, sum) in [(0, 1, 1), (1, 1, 2), (0, 2, 3), (1, 2, 4)] {
            let all = counter.add_up(choice, used(completion));
            counter = counter.with(4, 1, Some(all));
            assert_eq!((counter.usage(), counter.is_estimate()), (used(sum), false));
        }
        // A last report of one choice does not lower the count.
        assert_eq!(counter.with(0, 0, Some(used(2))).usage(), used(4));
    }

    #[test]
    fn an_estimate_never_exceeds_the_upstreams_limit() {
        let counter = UsageCounter::new(1, 60).with(4_000, 1, None);
        assert_eq!(counter.completion(), 60);
        let beyond = Usage { completion: 70, ..REPORT };
        assert_eq!(counter.with(4, 1, Some(beyond)).with(4, 1, None).completion(), 70);
    }

    #[test]
    fn a_report_that_shrinks_takes_nothing_back() {
        let counter = UsageCounter::new(1, 1000).with(1, 1, Some(REPORT)).with(0, 0, Some(Usage::default()));
        assert_eq!(counter.usage(), REPORT);
    }

    #[test]
    fn a_report_beyond_every_bound_is_billed_as_reported() {
        let huge = Usage { prompt: 2_000_000, cached: 0, completion: 500_000 };
        let counter = UsageCounter::new(100, 1000).with(40, 1, Some(huge));
        assert_eq!((counter.usage(), counter.is_estimate()), (huge, false));
    }
}
