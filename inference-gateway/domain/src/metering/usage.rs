//! Tokens used by an answer so far: reported by the upstream, as far as believable, or else counted in passing.

use shared::tokens::{Usage, UsageDetails};

use crate::{
    answer::{Chunk, Completion, MAX_CHOICES, MOST_TOKENS, Reported},
    request::BYTES_PER_TOKEN,
};

/// Multiple of the catalogue's bounds up to which a reported count is believed: templates, images and hidden thoughts
/// exceed the bounds by less.
const BELIEVED_TIMES: u64 = 4;
/// Number of tokens that is believed of any request: a catalogue may name a window that is too small.
const BELIEVED_TOKENS: u64 = 1_000_000;

/// Output that a report of usage counts, where an answer has several choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageScope {
    /// The output of all choices.
    Answer,
    /// The output of the choice in a chunk of a single choice; elsewhere the output of all choices.
    ChunkChoice,
    /// The output of a single choice: the chunk's, the previous chunk's, or the first of a whole answer.
    Choice,
}

/// Bytes of output per token that no long text exceeds on average.
const LONG_TOKEN_BYTES: u64 = 32;

/// Bounds of the usage of an answer.
#[derive(Clone, Copy, Debug)]
pub struct UsageBounds {
    /// Tokens assumed for the prompt until a report comes.
    pub prompt_estimate: u64,
    /// Images in the prompt.
    pub images: u64,
    /// Output tokens that the upstream was limited to, for each choice.
    pub max_tokens: u64,
    /// Choices requested.
    pub choices: u64,
    /// Most tokens that the catalogue allows the request.
    pub catalogue: Usage,
}

impl UsageBounds {
    /// Output tokens that the upstream was limited to, over all choices.
    const fn most_completion(&self) -> u64 {
        self.max_tokens.saturating_mul(self.choices)
    }

    /// Returns the largest counts that are believed. Each member of a report is judged alone: a false member says
    /// nothing against the others, which come from other counters of the upstream.
    fn believable(&self) -> Reported {
        let most = |bound: u64| bound.saturating_mul(BELIEVED_TIMES).clamp(BELIEVED_TOKENS, MOST_TOKENS - 1);
        let (prompt, completion) = (most(self.catalogue.prompt), most(self.catalogue.completion));
        Reported {
            prompt: Some(prompt),
            cached: Some(prompt),
            written: Some(prompt),
            written_long: Some(prompt),
            audio_input: Some(prompt),
            completion: Some(completion),
            reasoning: Some(completion),
            audio_output: Some(completion),
            total: Some(prompt + completion),
        }
    }
}

/// Counter of an answer's tokens. Counts in place, as a copy for each chunk of a stream would cost more than the count.
#[derive(Debug)]
pub struct UsageCounter {
    bounds: UsageBounds,
    scope: UsageScope,
    /// Output tokens that passed after the last report.
    counted: u64,
    /// Text that passed in all, in bytes, and in pieces: each choice of a chunk is a piece.
    passed: (u64, u64),
    /// The largest of each member that was reported and believed; the completion is that of all choices.
    reported: Reported,
    /// The largest of each member that was reported and not believed.
    disbelieved: Reported,
    /// Output tokens of each choice, where the upstream reports choices separately.
    by_choice: [u64; MAX_CHOICES as usize],
    /// Choice of the last chunk with a single choice.
    last_choice: Option<usize>,
    /// True if the prompt was neither reported nor counted exactly, or if the last report was false.
    prompt_is_estimate: bool,
    /// True if output came after the last report, or if the last report of output was false.
    completion_is_estimate: bool,
    /// True if the last report of reasoning or audio in the output was false.
    output_parts_are_false: bool,
}

impl UsageCounter {
    /// Starts before the first token.
    pub fn new(bounds: UsageBounds, scope: UsageScope) -> Self {
        Self {
            bounds,
            scope,
            counted: 0,
            passed: (0, 0),
            reported: Reported::default(),
            disbelieved: Reported::default(),
            by_choice: [0; MAX_CHOICES as usize],
            last_choice: None,
            prompt_is_estimate: true,
            completion_is_estimate: true,
            output_parts_are_false: false,
        }
    }

    /// Counts the text and the reported usage of this chunk.
    pub fn count_chunk(&mut self, chunk: &Chunk<'_>) {
        self.count_text(chunk.text_bytes, chunk.outputs);
        self.count_report_of(chunk);
    }

    /// Counts the usage that this chunk reports, but not the chunk's text.
    pub fn count_report_of(&mut self, chunk: &Chunk<'_>) {
        self.last_choice = chunk.choice.or(self.last_choice);
        let counts = match self.scope {
            UsageScope::Answer => None,
            UsageScope::ChunkChoice => chunk.choice,
            UsageScope::Choice => self.last_choice,
        };
        if let Some(usage) = chunk.usage() {
            self.learn(usage, counts);
        }
        if let Some(timings) = chunk.timings() {
            self.learn(timings, self.last_choice);
        }
    }

    /// The count of a whole answer.
    #[must_use]
    pub fn with_answer(mut self, answer: &Completion<'_>) -> Self {
        if self.counts_all_choices() {
            let (bytes, outputs) = answer.text_bytes().fold((0, 0), |(sum, n), bytes| (sum + bytes, n + 1));
            self.count_text(bytes, outputs);
            self.learn(answer.usage, None);
            return self;
        }
        self.learn(answer.usage, Some(0));
        // The choices without a report are estimated, each within the upstream's limit.
        let first = usize::from(self.reported.completion.is_some());
        for (choice, bytes) in answer.text_bytes().enumerate().skip(first) {
            let completion = Some(estimated(bytes, 1).min(self.bounds.max_tokens));
            self.learn(Reported { completion, ..Reported::default() }, Some(choice));
            self.completion_is_estimate = true;
        }
        self
    }

    /// Counts a whole answer that was not kept, from the bytes and the usage found at the end.
    #[must_use]
    pub fn with_end_of_answer(mut self, bytes: u64, mut usage: Reported) -> Self {
        self.count_output(bytes, 1);
        if !self.counts_all_choices() {
            usage = Reported { completion: None, total: None, ..usage };
        }
        self.learn(usage, None);
        self
    }

    /// Counts this many bytes of output, for this many choices: at least a token each.
    fn count_output(&mut self, bytes: u64, outputs: u64) {
        if outputs > 0 {
            self.counted += estimated(bytes, outputs);
            self.completion_is_estimate = true;
        }
    }

    /// Counts a text of this many bytes, in this many pieces.
    fn count_text(&mut self, bytes: u64, pieces: u64) {
        self.passed = (self.passed.0 + bytes, self.passed.1 + pieces);
        self.count_output(bytes, pieces);
    }

    /// Sets the exact tokens of the prompt.
    pub const fn set_prompt(&mut self, exact: u64) {
        self.bounds.prompt_estimate = exact;
        self.prompt_is_estimate = false;
    }

    /// Output tokens so far, over all choices.
    pub fn completion(&self) -> u64 {
        let reported = self.reported.completion.unwrap_or(0);
        if self.runs_away() {
            return reported + self.counted;
        }
        // Texts may have more or fewer tokens than estimated; an estimate never bills beyond a limit that the upstream obeys.
        reported + self.counted.min(self.bounds.most_completion().saturating_sub(reported))
    }

    /// Returns whether the output that passed shows that the upstream does not obey its limit: an estimate too low for any text
    /// is beyond twice the limit. Text that comes letter by letter has more pieces than tokens, and text of long words fewer
    /// tokens than a byte count suggests; no text has both.
    pub fn runs_away(&self) -> bool {
        let (bytes, pieces) = self.passed;
        let least = (bytes / BYTES_PER_TOKEN).min(pieces).max(bytes / LONG_TOKEN_BYTES);
        least > self.bounds.most_completion().saturating_mul(2)
    }

    /// The members that were reported and believed: the largest of each.
    pub const fn reported(&self) -> &Reported {
        &self.reported
    }

    /// The members that were reported and not believed: the largest of each.
    pub const fn disbelieved(&self) -> &Reported {
        &self.disbelieved
    }

    /// The usage to bill if the answer ended now. No part is larger than its whole.
    pub fn usage(&self) -> Usage {
        let part = |tokens: Option<u64>, whole: u64| tokens.unwrap_or(0).min(whole);
        let reported = &self.reported;
        let prompt = reported.prompt.unwrap_or(self.bounds.prompt_estimate);
        let completion = self.completion();
        let written = part(reported.written, prompt);
        let written_long = part(reported.written_long, written);
        let details = UsageDetails {
            cache_write: written - written_long,
            cache_write_long: written_long,
            audio_input: part(reported.audio_input, prompt),
            images: self.bounds.images,
            reasoning: part(reported.reasoning, completion),
            audio_output: part(reported.audio_output, completion),
        };
        Usage { prompt, cached: part(reported.cached, prompt), completion, details }
    }

    /// Returns whether a part was reported larger than its whole, which the usage to bill does not show.
    pub fn has_part_beyond_whole(&self) -> bool {
        let Reported { cached, written, written_long, audio_input, reasoning, audio_output, .. } =
            self.reported;
        let usage = self.usage();
        [cached, written, written_long, audio_input].into_iter().max().flatten() > Some(usage.prompt)
            || reasoning.max(audio_output) > Some(usage.completion)
    }

    /// Returns whether the usage to bill is an estimate.
    pub const fn is_estimate(&self) -> bool {
        self.prompt_is_estimate || self.completion_is_estimate || self.output_parts_are_false
    }

    /// Returns whether the output to bill is an estimate.
    pub const fn completion_is_estimate(&self) -> bool {
        self.completion_is_estimate
    }

    /// Returns whether the usage of a whole answer counts all choices.
    fn counts_all_choices(&self) -> bool {
        self.scope != UsageScope::Choice || self.bounds.choices == 1
    }

    /// Takes in a report of usage, with the output of this choice, or of all.
    fn learn(&mut self, report: Reported, choice: Option<usize>) {
        if report == Reported::default() {
            return;
        }
        let believable = self.bounds.believable();
        let mut beyond = report.beyond(believable);
        let mut report = self.resolve_total(report.within(believable));
        beyond.total = beyond.total.max(report.total.take());
        if beyond.tells_prompt() {
            self.prompt_is_estimate = true;
        } else if report.prompt.is_some() {
            self.prompt_is_estimate = false;
        }
        if beyond.tells_parts_of_output() || report.tells_parts_of_output() {
            self.output_parts_are_false = beyond.tells_parts_of_output();
        }
        if let Some(output) = report.completion.take() {
            let of_all = self.output_of_all(output, choice);
            if Some(of_all) > believable.completion {
                beyond.completion = beyond.completion.max(Some(of_all));
            } else if output > 0 || self.counted == 0 {
                // A server that reports none after some was delivered has not counted.
                self.output_reported(output, choice, of_all);
            }
        }
        self.completion_is_estimate |= beyond.completion.is_some();
        self.reported = self.reported.max(report);
        self.disbelieved = self.disbelieved.max(beyond);
    }

    /// Adds to the completion the output that a report shows in the total alone: some servers count reasoning apart. A
    /// total beyond the upstream's limit is false. Only a false total is left in the report.
    fn resolve_total(&self, mut report: Reported) -> Reported {
        let total = report.total.take();
        let prompt = report.prompt.or(self.reported.prompt);
        let rest = total.zip(prompt).and_then(|(total, prompt)| total.checked_sub(prompt));
        match rest.filter(|rest| *rest > 0 && Some(*rest) > report.completion) {
            Some(rest) if rest <= self.bounds.most_completion() => {
                let beside = rest - report.completion.unwrap_or(rest);
                report.reasoning = report.reasoning.max(Some(beside));
                report.completion = Some(rest);
            }
            Some(_) => report.total = total,
            None => {}
        }
        report
    }

    /// Returns the output over all choices after this report of `choice`, or of all choices.
    fn output_of_all(&self, output: u64, choice: Option<usize>) -> u64 {
        let Some(choice) = choice else { return output };
        let own = self.by_choice[choice];
        self.by_choice.iter().sum::<u64>() - own + own.max(output)
    }

    /// Records a report that is believed.
    fn output_reported(&mut self, output: u64, choice: Option<usize>, of_all: u64) {
        if let Some(choice) = choice {
            self.by_choice[choice] = self.by_choice[choice].max(output);
        }
        self.reported.completion = self.reported.completion.max(Some(of_all));
        self.counted = 0;
        self.completion_is_estimate = false;
    }
}

/// Estimates the tokens of `bytes` of output for `outputs` choices, each of which has at least a token.
const fn estimated(bytes: u64, outputs: u64) -> u64 {
    let tokens = bytes / BYTES_PER_TOKEN;
    if tokens > outputs { tokens } else { outputs }
}

#[cfg(test)]
mod tests;
