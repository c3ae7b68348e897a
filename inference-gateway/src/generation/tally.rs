//! What a stream has used so far: as its upstream says, or else counted as it passes by.

use shared::tokens::Usage;

use crate::domain::{
    answer::{Chunk, Plausible},
    chat::{BYTES_PER_TOKEN, MAX_CHOICES},
};

/// The tokens of a stream so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tally {
    prompt_estimate: u64,
    most_completion: u64,
    plausible: Plausible,
    counted: u64,
    reported: Option<Usage>,
    /// What each choice generated, where the upstream says that.
    by_choice: [u64; MAX_CHOICES as usize],
    /// Output was delivered after the last report.
    behind: bool,
    /// The upstream said that more was used than is possible.
    disbelieved: bool,
}

impl Tally {
    /// Nothing was delivered. The prompt is taken to have this many tokens until the upstream says, and the upstream
    /// was told to generate no more than this many. Reports beyond what is plausible are as good as none.
    pub(super) const fn new(prompt_estimate: u64, most_completion: u64, plausible: Plausible) -> Self {
        Self {
            prompt_estimate,
            most_completion,
            plausible,
            counted: 0,
            reported: None,
            by_choice: [0; MAX_CHOICES as usize],
            behind: true,
            disbelieved: false,
        }
    }

    /// The tally once this chunk is delivered.
    #[must_use]
    pub(super) fn with_chunk(mut self, chunk: &Chunk<'_>) -> Self {
        let mut reported = chunk.usage.map(|reported| reported.tokens);
        if let Some((choice, used)) = chunk.choice_usage {
            let all = self.add_up(choice, used.tokens);
            reported = reported.or(Some(all));
        }
        self.with(chunk.text_bytes, chunk.outputs, reported)
    }

    /// Notes what one choice used so far; what all of them did by that.
    fn add_up(&mut self, choice: usize, used: Usage) -> Usage {
        self.by_choice[choice] = self.by_choice[choice].max(used.completion);
        Usage { completion: self.by_choice.iter().sum(), ..used }
    }

    /// The tally after a chunk with so many bytes of output, for so many choices (at least a token each), and what the
    /// upstream says to have used by then.
    #[must_use]
    pub(super) fn with(mut self, output_bytes: u64, outputs: u64, reported: Option<Usage>) -> Self {
        if outputs > 0 {
            self.counted += (output_bytes / BYTES_PER_TOKEN).max(outputs);
            self.behind = true;
        }
        let believed = reported.filter(|reported| self.plausible.allows(*reported));
        self.disbelieved |= reported != believed;
        if let Some(reported) = believed {
            let before = self.reported.unwrap_or_default();
            self.reported = Some(before.max(reported));
            self.counted = 0;
            self.behind = false;
        }
        self
    }

    /// The exact number of the prompt's tokens.
    #[must_use]
    pub(super) fn with_prompt(mut self, exact: u64) -> Self {
        self.prompt_estimate = exact;
        self
    }

    /// Output tokens so far, over all choices.
    pub(super) fn completion(&self) -> u64 {
        let reported = self.reported.unwrap_or_default().completion;
        // Texts are longer or shorter than their tokens; what was counted is never billed beyond what was allowed.
        reported + self.counted.min(self.most_completion.saturating_sub(reported))
    }

    /// The prompt's tokens, if the upstream has said.
    pub(super) fn prompt(&self) -> Option<u64> {
        self.reported.map(|usage| usage.prompt)
    }

    /// What would be billed now.
    pub(super) fn usage(&self) -> Usage {
        let reported =
            self.reported.unwrap_or(Usage { prompt: self.prompt_estimate, cached: 0, completion: 0 });
        Usage { completion: self.completion(), ..reported }
    }

    /// Whether that is an estimate.
    pub(super) const fn estimated(&self) -> bool {
        self.behind
    }

    /// Whether the upstream said that more was used than is possible.
    pub(super) const fn disbelieved(&self) -> bool {
        self.disbelieved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: Usage = Usage { prompt: 12, cached: 4, completion: 3 };

    fn tally(prompt_estimate: u64, most_completion: u64) -> Tally {
        Tally::new(prompt_estimate, most_completion, Plausible { prompt: 5000, completion: 1000 })
    }

    #[test]
    fn what_the_upstream_says_replaces_what_was_counted() {
        let tally = tally(100, 1000).with(40, 1, None).with(1, 1, None);
        assert_eq!(
            (tally.usage(), tally.estimated()),
            (Usage { prompt: 100, cached: 0, completion: 11 }, true)
        );
        let tally = tally.with(4, 1, Some(REPORT));
        assert_eq!((tally.usage(), tally.estimated()), (REPORT, false));
        let tally = tally.with(9, 1, None);
        assert_eq!((tally.usage(), tally.estimated()), (Usage { completion: 5, ..REPORT }, true));
    }

    #[test]
    fn what_choices_used_is_added_up() {
        let told = |completion| Usage { completion, ..REPORT };
        let mut tally = tally(100, 1000);
        for (choice, completion, sum) in [(0, 1, 1), (1, 1, 2), (0, 2, 3), (1, 2, 4)] {
            let all = tally.add_up(choice, told(completion));
            tally = tally.with(4, 1, Some(all));
            assert_eq!((tally.usage(), tally.estimated()), (told(sum), false));
        }
        // What is said of the last one in the end takes nothing back.
        assert_eq!(tally.with(0, 0, Some(told(2))).usage(), told(4));
    }

    #[test]
    fn what_was_counted_is_never_more_than_was_allowed() {
        let tally = tally(1, 60).with(4_000, 1, None);
        assert_eq!(tally.completion(), 60);
        let lying = Usage { completion: 70, ..REPORT };
        assert_eq!(tally.with(4, 1, Some(lying)).with(4, 1, None).completion(), 70);
    }

    #[test]
    fn a_report_that_shrinks_is_not_believed() {
        let tally = tally(1, 1000).with(1, 1, Some(REPORT)).with(0, 0, Some(Usage::default()));
        assert_eq!(tally.usage(), REPORT);
    }

    #[test]
    fn a_report_of_more_than_is_possible_is_as_good_as_none() {
        let counted = tally(100, 1000).with(40, 1, None);
        for lie in [Usage { prompt: 2_000_000_000, ..REPORT }, Usage { completion: 1001, ..REPORT }] {
            let tally = counted.with(0, 0, Some(lie));
            assert_eq!((tally.usage(), tally.estimated()), (counted.usage(), true));
            assert!(tally.disbelieved() && !counted.disbelieved());
            assert_eq!(tally.with(0, 0, Some(REPORT)).usage(), REPORT, "what follows is believed");
        }
    }
}
