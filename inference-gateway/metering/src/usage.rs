//! Counts the tokens that an answer has used so far, from the upstream's reports if they are believable, and otherwise
//! by an estimate from the output.

mod choices;

use answer::{Chunk, Completion, MOST_TOKENS, OutputSize, Reported};
use shared::tokens::{Usage, UsageDetails};
use token_bounds::BYTES_PER_TOKEN;

use choices::{Choices, OutputPart};

/// A report is believed up to this multiple of the catalogue's limits. Templates, images and hidden thoughts may exceed
/// the limits, but not by so much.
const BELIEVED_TIMES: u64 = 4;
/// A report of up to this many tokens is believed for any request, since the window in a catalogue may be too small.
const BELIEVED_TOKENS: u64 = 1_000_000;

/// The output that a usage report covers, if an answer has several choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageScope {
    /// The output of all choices.
    Answer,
    /// In a chunk with one choice, the output of that choice; elsewhere the output of all choices.
    ChunkChoice,
    /// The output of one choice: the choice in the chunk or, if it has none, in the previous chunk. In a whole answer
    /// of several choices, no report covers all of them, so such an answer is requested as a stream.
    Choice,
}

/// Selects a member of a report, to read or replace it.
type ReportedMember = fn(&mut Reported) -> &mut Option<u64>;

/// On average, no long text has more bytes of output per token than this.
const LONG_TOKEN_BYTES: u64 = 32;

/// Bounds of an answer's usage.
#[derive(Clone, Copy, Debug)]
pub struct UsageBounds {
    /// Tokens assumed for the prompt until a report comes.
    pub prompt_estimate: u64,
    pub images: u64,
    /// The upstream's output limit for each choice.
    pub max_tokens: u64,
    pub choices: u64,
    /// Maximum number of tokens that the catalogue allows the request.
    pub catalogue: Usage,
}

impl UsageBounds {
    /// Returns the upstream's output limit over all choices.
    const fn most_completion(&self) -> u64 {
        self.max_tokens.saturating_mul(self.choices)
    }

    /// Returns the largest believable counts. Each member of a report is judged separately. One wrong count does not
    /// make the others doubtful, because the upstream counts each of them separately.
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
            cost: Some(u64::MAX),
        }
    }
}

/// Counts an answer's tokens. It is updated in place, since a copy for each chunk would cost more than counting.
#[derive(Debug)]
pub struct UsageCounter {
    bounds: UsageBounds,
    scope: UsageScope,
    /// Output seen so far, reported or not.
    passed: PassedText,
    /// Number of reports that included output.
    output_reports: u64,
    /// Largest believed value of each reported member. The completion covers all choices.
    reported: Reported,
    /// Largest disbelieved value of each reported member.
    disbelieved: Reported,
    /// Output of each choice, if the upstream reports choices separately.
    choices: Choices,
    /// Index of the last choice that came alone in a chunk.
    last_choice: Option<usize>,
    /// The answering model's name, from the first chunk with one.
    model: Option<String>,
    /// Whether the prompt was neither reported nor counted exactly, or the last report of it was false.
    prompt_is_estimate: bool,
    /// Whether the output count is an estimate. It is if the upstream has reported none, if its last report was not
    /// believable, or if more output has come since then.
    completion_is_estimate: bool,
    /// Whether the last report of reasoning or audio in the output was false.
    output_parts_are_false: bool,
}

/// All output text so far.
#[derive(Clone, Copy, Debug, Default)]
struct PassedText {
    bytes: u64,
    /// Number of pieces. Each choice in a chunk counts as one piece.
    pieces: u64,
    /// Tokens listed with log probabilities.
    listed: u64,
}

impl UsageCounter {
    /// Starts counting before the first token.
    pub fn new(bounds: UsageBounds, scope: UsageScope) -> Self {
        Self {
            bounds,
            scope,
            passed: PassedText::default(),
            output_reports: 0,
            reported: Reported::default(),
            disbelieved: Reported::default(),
            choices: Choices::default(),
            last_choice: None,
            model: None,
            prompt_is_estimate: true,
            completion_is_estimate: true,
            output_parts_are_false: false,
        }
    }

    /// Counts a chunk's text and its reported usage.
    pub(crate) fn count_chunk(&mut self, chunk: &Chunk<'_>) {
        for (choice, size) in chunk.outputs() {
            self.count_text(choice, size);
        }
        self.count_report_of(chunk);
    }

    /// Counts the usage that a chunk reports, but not its text.
    pub(crate) fn count_report_of(&mut self, chunk: &Chunk<'_>) {
        self.last_choice = chunk.choice.or(self.last_choice);
        if self.model.is_none() {
            self.model = chunk.model();
        }
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

    /// Counts usage found in an event that cannot be read.
    pub(crate) fn count_report(&mut self, report: Reported) {
        self.learn(report, None);
    }

    #[must_use]
    pub fn with_answer(mut self, answer: &Completion<'_>) -> Self {
        for (choice, size) in answer.outputs.iter().enumerate() {
            self.count_text(choice, *size);
        }
        self.learn(answer.usage, None);
        self.model = answer.model();
        self
    }

    /// Counts a whole answer that was not kept, from its size and the usage at its end.
    #[must_use]
    pub fn with_end_of_answer(mut self, bytes: u64, usage: Reported) -> Self {
        self.count_output(0, OutputSize { bytes, ..OutputSize::default() });
        self.learn(usage, None);
        self
    }

    fn count_text(&mut self, choice: usize, size: OutputSize) {
        self.passed.bytes += size.bytes;
        self.passed.pieces += 1;
        self.passed.listed += size.listed_tokens;
        self.count_output(choice, size);
    }

    fn count_output(&mut self, choice: usize, size: OutputSize) {
        self.choices.pass(choice, estimated(size));
        self.completion_is_estimate = true;
    }

    /// Returns how often the upstream has shown progress: pieces of text plus usage reports with output. Between two
    /// such signs, nothing shows how much an upstream generates.
    pub const fn signs(&self) -> u64 {
        self.passed.pieces + self.output_reports
    }

    /// Sets the exact number of tokens in the prompt.
    pub(crate) const fn set_prompt(&mut self, exact: u64) {
        self.bounds.prompt_estimate = exact;
        self.prompt_is_estimate = false;
    }

    /// Returns the output tokens so far, over all choices.
    pub fn completion(&self) -> u64 {
        let reported = self.reported.completion.unwrap_or(0);
        if self.runs_away() {
            return reported + self.choices.counted();
        }
        // A text may have more or fewer tokens than estimated. If an upstream obeys its limit, an estimate never leads
        // to a bill for more than the limit.
        reported + self.choices.counted().min(self.bounds.most_completion().saturating_sub(reported))
    }

    /// Returns whether the output proves that the upstream ignores its limit. The proof is an estimate that is never
    /// too high, whatever the text, and nevertheless exceeds twice the limit. A text that arrives letter by letter has
    /// more pieces than tokens, and a text of long words has fewer tokens than its bytes suggest, but no text has both
    /// properties. Listed tokens are counted exactly.
    pub(crate) fn runs_away(&self) -> bool {
        let PassedText { bytes, pieces, listed } = self.passed;
        let least = (bytes / BYTES_PER_TOKEN).min(pieces).max(bytes / LONG_TOKEN_BYTES).max(listed);
        least > self.bounds.most_completion().saturating_mul(2)
    }

    /// Returns the usage up to this many output tokens, or all of it if the upstream exceeded its own limit.
    pub(crate) fn usage_up_to(&self, completion: u64) -> Usage {
        let mut usage = self.usage();
        if usage.completion <= self.bounds.most_completion() {
            usage.completion = usage.completion.min(completion);
            for part in [&mut usage.details.reasoning, &mut usage.details.audio_output] {
                *part = usage.completion.min(*part);
            }
        }
        usage
    }

    /// Returns the largest believed value of each reported member.
    pub const fn reported(&self) -> &Reported {
        &self.reported
    }

    /// Returns the name of the answering model, if the upstream reports one.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Returns the largest disbelieved value of each reported member.
    pub const fn disbelieved(&self) -> &Reported {
        &self.disbelieved
    }

    /// Returns the usage that would be billed if the answer ended now. No part exceeds its whole, except tokens written
    /// to caches. These may have two prices, so the code that computes prices decides which of them fit.
    pub fn usage(&self) -> Usage {
        let part = |tokens: Option<u64>, whole: u64| tokens.unwrap_or(0).min(whole);
        let reported = &self.reported;
        let prompt = reported.prompt.unwrap_or(self.bounds.prompt_estimate);
        let completion = self.completion();
        let written_long = reported.written_long.unwrap_or(0);
        let details = UsageDetails {
            cache_write: reported.written.unwrap_or(0).saturating_sub(written_long),
            cache_write_long: written_long,
            audio_input: part(reported.audio_input, prompt),
            images: self.bounds.images,
            reasoning: part(reported.reasoning, completion),
            audio_output: part(reported.audio_output, completion),
        };
        Usage { prompt, cached: part(reported.cached, prompt), completion, details }
    }

    /// Returns whether a part was reported as larger than its whole. The usage that is billed does not show this.
    pub fn has_part_beyond_whole(&self) -> bool {
        let Reported { cached, written, written_long, audio_input, reasoning, audio_output, .. } =
            self.reported;
        let usage = self.usage();
        [cached, written, written_long, audio_input].into_iter().max().flatten() > Some(usage.prompt)
            || reasoning.max(audio_output) > Some(usage.completion)
    }

    /// Returns whether output was reported but none was seen.
    pub fn shows_nothing(&self) -> bool {
        self.passed.bytes == 0 && self.passed.listed == 0 && self.completion() > 0
    }

    /// Returns whether the usage to bill is an estimate.
    pub const fn is_estimate(&self) -> bool {
        self.prompt_is_estimate || self.completion_is_estimate || self.output_parts_are_false
    }

    /// Returns whether the output to bill is an estimate.
    pub(crate) const fn completion_is_estimate(&self) -> bool {
        self.completion_is_estimate
    }

    /// Applies a report whose output covers this choice, or all choices.
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
        let output = report.completion.take();
        self.add_up_parts(choice, &mut report, &mut beyond, believable);
        if let Some(output) = output {
            let of_all = self.choices.completion_after(output, choice);
            if Some(of_all) > believable.completion {
                beyond.completion = beyond.completion.max(Some(of_all));
            } else if output > 0 || self.choices.counted() == 0 {
                // If a server reports zero output tokens although it has delivered output, it has not counted them.
                self.output_reports += 1;
                self.reported.completion = self.reported.completion.max(Some(of_all));
                self.choices.reported(output, choice);
                self.completion_is_estimate = self.choices.counted() > 0;
            }
        }
        self.completion_is_estimate |= beyond.completion.is_some();
        self.reported = self.reported.max(report);
        self.disbelieved = self.disbelieved.max(beyond);
    }

    /// Replaces a choice's reasoning and audio output with the sum over all choices, if that is believable.
    fn add_up_parts(
        &mut self,
        choice: Option<usize>,
        report: &mut Reported,
        beyond: &mut Reported,
        believable: Reported,
    ) {
        let parts: [(ReportedMember, OutputPart); 2] = [
            (|report| &mut report.reasoning, |of_choice| &mut of_choice.reasoning),
            (|report| &mut report.audio_output, |of_choice| &mut of_choice.audio),
        ];
        for (member, part) in parts {
            let Some(tokens) = *member(report) else { continue };
            let of_all = Some(self.choices.part_after(tokens, choice, part));
            if of_all > believable.completion {
                *member(report) = None;
                *member(beyond) = of_all.max(*member(beyond));
                self.output_parts_are_false = true;
            } else {
                *member(report) = of_all;
                self.choices.part_reported(tokens, choice, part);
            }
        }
    }

    /// If a report's total shows more output than its completion, adds the difference to the completion, since some
    /// servers leave reasoning out of the completion. A total is false if the output computed from it would exceed the
    /// upstream's limit. The total is removed from the report, unless it is false.
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
}

/// Estimates the number of tokens in some output: at least one.
fn estimated(size: OutputSize) -> u64 {
    (size.bytes / BYTES_PER_TOKEN).max(size.listed_tokens).max(1)
}

#[cfg(test)]
mod tests;
