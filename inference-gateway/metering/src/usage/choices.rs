//! Output of each choice: reported, if the upstream reports each choice separately, and otherwise estimated.

use reply::MAX_CHOICES;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Choices {
    each: [ChoiceOutput; MAX_CHOICES as usize],
    /// Number of tokens that the last report of all choices counted in addition to the texts that had arrived before
    /// the report.
    ahead: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct ChoiceOutput {
    /// Tokens from reports of this choice only.
    reported: ReportedOutput,
    /// Estimated tokens of all text so far.
    passed: u64,
    /// Number of tokens that the last report of this choice counted in addition to the text that had arrived before the
    /// report.
    ahead: u64,
    /// Tokens of the text that no report covers.
    counted: u64,
}

/// A choice's reported tokens, and parts of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReportedOutput {
    completion: u64,
    pub(super) reasoning: u64,
    pub(super) audio: u64,
}

/// Selects a part of a choice's output.
pub(super) type OutputPart = fn(&mut ReportedOutput) -> &mut u64;

impl Choices {
    /// Counts a text of a choice, except the tokens that the last reports already included.
    pub(super) fn pass(&mut self, choice: usize, tokens: u64) {
        let choice = &mut self.each[choice];
        choice.passed += tokens;
        let mut beyond = tokens;
        for ahead in [&mut choice.ahead, &mut self.ahead] {
            let reported = beyond.min(*ahead);
            *ahead -= reported;
            beyond -= reported;
        }
        choice.counted += beyond;
    }

    /// Returns the tokens of all text that no report covers.
    pub(super) fn counted(&self) -> u64 {
        self.each.iter().map(|choice| choice.counted).sum()
    }

    /// Returns the completion of all choices, given that a report for `choice` says `tokens`. If `choice` is `None`,
    /// the report is for all choices.
    pub(super) fn completion_after(&self, tokens: u64, choice: Option<usize>) -> u64 {
        self.part_after(tokens, choice, |output| &mut output.completion)
    }

    /// Returns one part of the output of all choices, given that a report for `choice` says `tokens`. If `choice` is
    /// `None`, the report is for all choices.
    pub(super) fn part_after(&self, tokens: u64, choice: Option<usize>, part: OutputPart) -> u64 {
        let Some(choice) = choice else { return tokens };
        let of = |mut output: ChoiceOutput| *part(&mut output.reported);
        let own = of(self.each[choice]);
        self.each.iter().copied().map(of).sum::<u64>() - own + own.max(tokens)
    }

    /// Records a report of a part of a choice's output.
    pub(super) fn part_reported(&mut self, tokens: u64, choice: Option<usize>, part: OutputPart) {
        if let Some(choice) = choice {
            let known = part(&mut self.each[choice].reported);
            *known = tokens.max(*known);
        }
    }

    /// Records a report of how many tokens `choice`, or all choices, have generated.
    pub(super) fn reported(&mut self, output: u64, choice: Option<usize>) {
        if let Some(choice) = choice {
            let choice = &mut self.each[choice];
            choice.reported.completion = choice.reported.completion.max(output);
            choice.ahead = choice.reported.completion.saturating_sub(choice.passed);
            choice.counted = 0;
            self.ahead = 0;
            return;
        }
        let passed = self.each.iter().map(|choice| choice.passed).sum();
        for choice in &mut self.each {
            (choice.ahead, choice.counted) = (0, 0);
        }
        self.ahead = output.saturating_sub(passed);
    }
}
