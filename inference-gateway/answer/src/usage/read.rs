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

/// Stands for all larger counts too. It is beyond any believable request, and small enough that sums of counts do not
/// overflow.
pub const MOST_TOKENS: u64 = 1 << 40;
/// Highest cost that is believed, in nano-USD: some 1,100 USD.
const MOST_COST: u64 = 1 << 40;
/// Names of the tokens that were read from a cache, which cost less than others.
const CACHED: [&str; 5] =
    ["cached_tokens", "cache_read_input_tokens", "num_cached_tokens", "prompt_cache_hit_tokens", "cache_n"];
/// Most members of one name that are read in the end of a body. A repeated request has few, and each may be as long as
/// the end.
const MOST_MEMBERS_OF_A_NAME: usize = 16;

/// Objects of answers that report usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportForm {
    /// `usage` as in OpenAI's API, with the additions of other servers.
    Usage,
    /// `timings` of a single choice, which llama.cpp's server adds to every chunk if asked (`timings_per_token`).
    Timings,
}

/// Usage that an upstream reports. Each member is `None` if it is absent or no number of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// Tokens of the prompt, including those read from a cache and written to one.
    pub prompt: Option<u64>,
    /// Tokens of the prompt that were read from a cache.
    pub cached: Option<u64>,
    /// Tokens of the prompt that were written to a cache, for any length of time.
    pub written: Option<u64>,
    /// Tokens of the prompt that were written to a cache for an hour or longer.
    pub written_long: Option<u64>,
    /// Tokens of the prompt that are audio.
    pub audio_input: Option<u64>,
    pub completion: Option<u64>,
    /// Generated tokens that were thoughts.
    pub reasoning: Option<u64>,
    /// Generated tokens that are audio.
    pub audio_output: Option<u64>,
    /// Tokens of the prompt and the output together.
    pub total: Option<u64>,
    /// Cost of the answer in nano-USD, as the vendor counts it.
    pub cost: Option<u64>,
}

/// Finds the largest report of a form in a part of a body. It is the last one, unless that repeats a member with less.
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
    /// Reads a report. If a count has several names, the largest wins, since servers that know two names may leave one
    /// at zero. If an object has several members of a name, the one that costs more wins.
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

    /// Finds the `usage` and the `timings` in the end of a body that is not read whole. A request that the body repeats
    /// may have members of these names too, which report nothing.
    pub fn find_last(part: &[u8]) -> Self {
        let find =
            |form| largest_report(form, part).map(|report| Self::read(form, report)).unwrap_or_default();
        find(ReportForm::Usage).max(find(ReportForm::Timings))
    }

    /// Takes the larger value of each member, since usage only grows, whatever the order and pieces of reports.
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

    /// Keeps the members within `bounds`.
    #[must_use]
    pub fn within(self, bounds: Self) -> Self {
        self.join(bounds, |tokens, most| tokens.filter(|_| tokens <= most))
    }

    /// Keeps the members beyond `bounds`.
    #[must_use]
    pub fn beyond(self, bounds: Self) -> Self {
        self.join(bounds, |tokens, most| tokens.filter(|_| tokens > most))
    }

    /// Returns whether the prompt or a part of the prompt was reported.
    pub fn tells_prompt(&self) -> bool {
        let Self { prompt, cached, written, written_long, audio_input, .. } = *self;
        prompt.or(cached).or(written).or(written_long).or(audio_input).is_some()
    }

    /// Returns whether a part of the output was reported.
    pub fn tells_parts_of_output(&self) -> bool {
        self.reasoning.or(self.audio_output).is_some()
    }

    /// Joins two reports, member by member. This is the only list of the members besides the reader's.
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

/// Objects of a report that have counts.
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

/// Counts of a report, under the names of various servers.
#[derive(Default)]
struct ReportedCounts {
    /// The prompt with all of its parts, by OpenAI's name.
    prompt: Option<u64>,
    /// The prompt, by the name in Anthropic's API and in OpenAI's newer API.
    input: Option<u64>,
    /// Tokens of the prompt that were read from a cache.
    cached: Option<u64>,
    /// The smallest number of these that a member has which an object repeats. It alone costs less.
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
    /// Totals contradict each other.
    totals_differ: bool,
    cost: Option<u64>,
    /// The report has members of Anthropic's API.
    by_anthropic: bool,
    /// Usage that the other members leave out.
    apart: Reported,
    /// The report is a round of another report, so it has no rounds itself.
    is_round: bool,
}

impl ReportedCounts {
    /// Reads the counts of an object; other values have none.
    fn read(&mut self, place: ReportObject, value: &RawValue) {
        // The value is JSON already, so the only error is that it is no object.
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
            // OpenAI's name, and three of gateways to Anthropic's API, of which the last is Anthropic's own.
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
            // The last is a name of Mistral's.
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

    /// Reads rounds of an Anthropic answer that its other members leave out: those that summarise the conversation, and
    /// those of an adviser.
    fn read_apart(&mut self, rounds: &RawValue) {
        // Anything that is not a list of objects has none.
        let _ = each_element(rounds, |round: &RawValue| {
            // A round that repeats its type may be apart.
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

    /// Returns the tokens of the prompt with all of its parts.
    fn prompt(&self, written: Option<u64>) -> Option<u64> {
        let named = counted(self.prompt).max(self.input);
        let cache = sum(self.cached, written).unwrap_or(0);
        let whole = named.map(|named| if self.leaves_out(cache, named) { named + cache } else { named });
        let both = self.uncached.and_then(|_| sum(self.uncached, self.cached));
        counted(whole).or(counted(both))
    }

    /// Returns whether a prompt of `named` tokens leaves out its `cache` tokens, which were read from a cache or
    /// written to one. `input_tokens` of Anthropic's API leave them out. Numbers in OpenAI's form include them, unless
    /// the total says otherwise.
    fn leaves_out(&self, cache: u64, named: u64) -> bool {
        // Where totals contradict each other, the larger prompt is billed.
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

/// Reads the members of the object at a place.
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

/// Returns the tokens of a prompt. No template renders an empty prompt, so a server that reports zero has not counted.
fn counted(tokens: Option<u64>) -> Option<u64> {
    tokens.filter(|tokens| *tokens > 0)
}

/// Adds up the counts that are there.
fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.or(b).map(|_| a.unwrap_or(0) + b.unwrap_or(0))
}

/// Reads a number of tokens: an integer, possibly spelled as a float or a text.
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

/// Returns the number of tokens that an integral float means.
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
