//! Reads upstreams' reports of usage, for every kind of upstream and every form of report.

use std::{fmt, num::IntErrorKind};

use raw_json::RawString;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use shared::{
    json::{RawValue, Text, each_element},
    money::NanoUsd,
};

/// Replaces all larger counts. It is beyond any believable request, and small enough that sums do not overflow.
pub const MOST_TOKENS: u64 = 1 << 40;
/// Highest cost that is believed, in nano-USD: about 1,100 USD.
const MOST_COST: u64 = 1 << 40;
/// Names for the tokens read from a cache, which cost less.
const CACHED: [&str; 5] =
    ["cached_tokens", "cache_read_input_tokens", "num_cached_tokens", "prompt_cache_hit_tokens", "cache_n"];
/// How many members with the same name are read in the end of a body. A request that the body repeats has few, and each
/// may be as long as the end.
const MOST_MEMBERS_OF_A_NAME: usize = 16;

/// Objects of answers that report usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportForm {
    /// `usage` as in OpenAI's API, with other servers' additions.
    Usage,
    /// `timings` of a single choice, which llama.cpp's server adds to each chunk on request (`timings_per_token`).
    Timings,
}

/// Usage reported by an upstream. A member is `None` if it is absent or not a number of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// Tokens of the prompt, including those read from or written to a cache.
    pub prompt: Option<u64>,
    /// Tokens of the prompt that were read from a cache.
    pub cached: Option<u64>,
    /// Tokens of the prompt that were written to a cache, however long it keeps them.
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

/// Finds the largest report of a form in part of a body. It is the last one, unless a later one repeats a member with a
/// smaller count.
pub(crate) fn largest_report(form: ReportForm, part: &[u8]) -> Option<&RawValue> {
    let name: &[u8] = match form {
        ReportForm::Usage => br#""usage""#,
        ReportForm::Timings => br#""timings""#,
    };
    let read = |at: usize| {
        let value = part[at + name.len()..].trim_ascii_start().strip_prefix(b":")?;
        let mut values = serde_json::Deserializer::from_slice(value).into_iter::<&RawValue>();
        let report = values.next()?.ok()?;
        let counts = Reported::read(form, report);
        (counts != Reported::default()).then_some((counts, report))
    };
    let found = memchr::memmem::rfind_iter(part, name).take(MOST_MEMBERS_OF_A_NAME).filter_map(read);
    let tokens = |counts: &Reported| counts.prompt.unwrap_or(0) + counts.completion.unwrap_or(0);
    found.max_by_key(|(counts, _)| tokens(counts)).map(|(_, report)| report)
}

impl Reported {
    /// Reads a report. If a count has several names, the largest value wins, since servers with two names may leave one
    /// at zero. If an object repeats a member, the value that costs more wins.
    pub(crate) fn read(form: ReportForm, report: &RawValue) -> Self {
        let mut counts = ReportedCounts::default();
        counts.read(
            match form {
                ReportForm::Usage => ReportObject::Usage,
                ReportForm::Timings => ReportObject::Timings,
            },
            report,
        );
        counts.reported()
    }

    /// Finds `usage` and `timings` in the end of a body that is not read whole. The body may repeat the request, whose
    /// members with these names report nothing.
    pub fn find_last(part: &[u8]) -> Self {
        let find =
            |form| largest_report(form, part).map(|report| Self::read(form, report)).unwrap_or_default();
        find(ReportForm::Usage).max(find(ReportForm::Timings))
    }

    /// Takes the larger value of each member. Usage only grows, so the order and split of reports do not matter.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        self.join(other, Ord::max)
    }

    /// Adds up both reports, member by member.
    #[must_use]
    fn plus(self, other: Self) -> Self {
        self.join(other, |a, b| {
            let sum = || a.unwrap_or(0).saturating_add(b.unwrap_or(0)).min(MOST_TOKENS);
            a.or(b).map(|_| sum())
        })
    }

    /// Takes only the values within `bounds`.
    #[must_use]
    pub fn within(self, bounds: Self) -> Self {
        self.join(bounds, |tokens, most| tokens.filter(|_| tokens <= most))
    }

    /// Takes only the values beyond `bounds`.
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

/// Objects within a report that contain counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReportObject {
    Usage,
    /// Details of the prompt's tokens.
    Prompt,
    /// Details of the output's tokens.
    Output,
    /// Tokens written to a cache, by how long they are kept.
    Writes,
    Timings,
}

/// Counts of a report, collected from the names that various servers use.
#[derive(Default)]
struct ReportedCounts {
    /// The prompt with all its parts, under OpenAI's chat name.
    prompt: Option<u64>,
    /// The prompt, under the name of Anthropic's API and OpenAI's Responses API.
    input: Option<u64>,
    /// Tokens of the prompt that were read from a cache.
    cached: Option<u64>,
    /// The smallest value of `cached` if an object repeats the member. Cached tokens cost less, so only this many are
    /// certain.
    cached_for_certain: Option<u64>,
    /// Tokens of the prompt that were not read from a cache.
    uncached: Option<u64>,
    written: Option<u64>,
    written_short: Option<u64>,
    written_long: Option<u64>,
    audio_input: Option<u64>,
    completion: Option<u64>,
    reasoning: Option<u64>,
    audio_output: Option<u64>,
    total: Option<u64>,
    /// Whether several totals contradict each other.
    totals_differ: bool,
    cost: Option<u64>,
    /// Whether the report uses members of Anthropic's API.
    by_anthropic: bool,
    /// Usage of rounds that the other members leave out.
    apart: Reported,
    /// Whether this is a round within another report, so it has no rounds itself.
    is_round: bool,
}

impl ReportedCounts {
    /// Reads the counts of an object. Other values have none.
    fn read(&mut self, place: ReportObject, value: &RawValue) {
        // The value is valid JSON, so the only possible error is that it is not an object.
        let _ = serde_json::Deserializer::from_str(value.get()).deserialize_map(Members(place, self));
    }

    fn take(&mut self, place: ReportObject, name: &str, value: &RawValue) {
        self.by_anthropic |= matches!(
            (place, name),
            (
                ReportObject::Usage,
                "cache_read_input_tokens" | "cache_creation_input_tokens" | "cache_creation"
            )
        );
        if (place, name) == (ReportObject::Usage, "total_tokens") {
            let total = count(value);
            self.totals_differ |= self.total.is_some_and(|other| total != Some(other));
        }
        if (place, name) == (ReportObject::Usage, "cost") {
            self.cost = self.cost.max(cost(value));
            return;
        }
        let counted = match (place, name) {
            (ReportObject::Usage, "prompt_tokens") => &mut self.prompt,
            (ReportObject::Usage, "input_tokens") => &mut self.input,
            (ReportObject::Usage, "completion_tokens" | "output_tokens")
            | (ReportObject::Timings, "predicted_n") => &mut self.completion,
            (ReportObject::Usage, "total_tokens") => &mut self.total,
            // Names of OpenAI, SGLang and Anthropic.
            (ReportObject::Output | ReportObject::Usage, "reasoning_tokens")
            | (ReportObject::Output, "thinking_tokens") => &mut self.reasoning,
            (ReportObject::Output, "audio_tokens") => &mut self.audio_output,
            (ReportObject::Prompt, "audio_tokens") => &mut self.audio_input,
            // Names of OpenAI, Moonshot, Mistral, DeepSeek, llama.cpp and Anthropic.
            (
                ReportObject::Prompt | ReportObject::Usage,
                "cached_tokens" | "cache_read_input_tokens" | "num_cached_tokens",
            )
            | (ReportObject::Usage, "prompt_cache_hit_tokens")
            | (ReportObject::Timings, "cache_n") => &mut self.cached,
            (ReportObject::Usage, "prompt_cache_miss_tokens") | (ReportObject::Timings, "prompt_n") => {
                &mut self.uncached
            }
            // OpenAI's name, and three from gateways to Anthropic's API. The last is Anthropic's own.
            (
                ReportObject::Prompt,
                "cache_write_tokens" | "cache_creation_tokens" | "cached_creation_tokens",
            )
            | (ReportObject::Prompt | ReportObject::Usage, "cache_creation_input_tokens") => {
                &mut self.written
            }
            (ReportObject::Writes, "ephemeral_5m_input_tokens" | "ttl_30m_tokens")
            | (ReportObject::Usage, "claude_cache_creation_5_m_tokens") => &mut self.written_short,
            (ReportObject::Writes, "ephemeral_1h_input_tokens" | "ttl_12h_tokens")
            | (ReportObject::Usage, "claude_cache_creation_1_h_tokens") => &mut self.written_long,
            // The last is Mistral's name.
            (
                ReportObject::Usage,
                "prompt_tokens_details" | "input_tokens_details" | "prompt_token_details",
            ) => {
                return self.read(ReportObject::Prompt, value);
            }
            (
                ReportObject::Usage,
                "completion_tokens_details" | "output_tokens_details" | "completion_token_details",
            ) => {
                return self.read(ReportObject::Output, value);
            }
            (ReportObject::Usage | ReportObject::Prompt, "cache_creation")
            | (ReportObject::Prompt, "cache_creation_token_details" | "cache_write_tokens_details") => {
                return self.read(ReportObject::Writes, value);
            }
            (ReportObject::Usage, "iterations") if !self.is_round => return self.read_apart(value),
            _ => return,
        };
        *counted = (*counted).max(count(value));
    }

    /// Reads the rounds of an Anthropic answer that its other members leave out: rounds that summarise the
    /// conversation, and rounds of an adviser.
    fn read_apart(&mut self, rounds: &RawValue) {
        // Anything that is not a list of objects has none.
        let _ = each_element(rounds, |round: &RawValue| {
            // A round with two types is read too, since either may be meant.
            if !serde_json::from_str(round.get()).is_ok_and(|round: Round<'_>| !round.is_apart()) {
                let mut counts = Self { is_round: true, ..Self::default() };
                counts.read(ReportObject::Usage, round);
                self.apart = self.apart.plus(counts.reported());
            }
            true
        });
    }

    fn reported(self) -> Reported {
        let written = self.written.max(sum(self.written_short, self.written_long));
        let beside = Reported {
            prompt: self.prompt(written),
            cached: self
                .cached
                .map(|cached| self.cached_for_certain.map_or(cached, |least| cached.min(least))),
            written,
            written_long: self.written_long,
            audio_input: self.audio_input,
            completion: self.completion,
            reasoning: self.reasoning,
            audio_output: self.audio_output,
            total: self.total,
            cost: self.cost,
        };
        beside.plus(self.apart)
    }

    /// Returns the tokens of the whole prompt.
    fn prompt(&self, written: Option<u64>) -> Option<u64> {
        let named = counted(self.prompt).max(self.input);
        let cache = sum(self.cached, written).unwrap_or(0);
        let whole = named.map(|named| if self.leaves_out(cache, named) { named + cache } else { named });
        let both = self.uncached.and_then(|_| sum(self.uncached, self.cached));
        counted(whole).or(counted(both))
    }

    /// Returns whether a prompt of `named` tokens leaves out its `cache` tokens, which were read from or written to a
    /// cache. `input_tokens` of Anthropic's API leaves them out. Counts in OpenAI's form include them, unless the total
    /// says otherwise.
    fn leaves_out(&self, cache: u64, named: u64) -> bool {
        // If totals contradict each other, bill the larger prompt.
        let says_so = self.totals_differ || self.total == Some(named + cache + self.completion.unwrap_or(0));
        if !self.by_anthropic {
            return says_so && cache > named;
        }
        let by_anthropics_name = counted(self.prompt).is_none();
        match self.total {
            Some(_) => says_so || (by_anthropics_name && cache > named),
            None => by_anthropics_name,
        }
    }
}

/// One round of generation in a report of several.
#[derive(Deserialize)]
struct Round<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<RawString<'a>>,
}

impl Round<'_> {
    fn is_apart(&self) -> bool {
        self.kind.is_some_and(|kind| matches!(kind.inner(), "compaction" | "advisor_message"))
    }
}

/// Reads the members of one object.
struct Members<'c>(ReportObject, &'c mut ReportedCounts);

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Self(place, counts) = self;
        let mut cached: [Option<u64>; CACHED.len()] = [None; CACHED.len()];
        while let Some((name, value)) = members.next_entry::<Text<'de>, &'de RawValue>()? {
            counts.take(place, &name.0, value);
            if let Some(at) = CACHED.iter().position(|of| *of == name.0)
                && let Some(tokens) = count(value)
                && let Some(other) = cached[at].replace(tokens)
            {
                let least = tokens.min(other);
                counts.cached_for_certain =
                    Some(counts.cached_for_certain.map_or(least, |known| known.min(least)));
            }
        }
        Ok(())
    }
}

/// Returns the tokens of a prompt. No chat template renders an empty prompt, so zero means that the server has not
/// counted.
fn counted(tokens: Option<u64>) -> Option<u64> {
    tokens.filter(|tokens| *tokens > 0)
}

/// Adds the counts that are present.
fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.or(b).map(|_| a.unwrap_or(0) + b.unwrap_or(0))
}

/// Reads a number of tokens: an integer, or one spelled as a float or a text.
fn count(value: &RawValue) -> Option<u64> {
    let spelled = value.get();
    let spelled = spelled.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(spelled);
    match spelled.parse::<u64>() {
        Ok(tokens) => Some(tokens.min(MOST_TOKENS)),
        Err(e) if *e.kind() == IntErrorKind::PosOverflow => Some(MOST_TOKENS),
        Err(_) => integral(spelled.parse().ok()?),
    }
}

/// Reads an amount in USD as nano-USD.
fn cost(value: &RawValue) -> Option<u64> {
    u64::try_from(NanoUsd::parse(value.get()).ok()?.nanos()).ok().filter(|cost| *cost <= MOST_COST)
}

/// Returns the count that an integral float stands for.
fn integral(tokens: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative and without a fraction; a larger one than any integer becomes the largest"
    )]
    let integer = tokens as u64;
    // The remainder of a non-finite number is not a number either.
    (tokens >= 0.0 && tokens % 1.0 == 0.0).then(|| integer.min(MOST_TOKENS))
}
