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

use super::reported::{MOST_TOKENS, Reported};

/// Highest reported cost that is believed, in nano-USD: about 1,100 USD.
const MOST_COST: u64 = 1 << 40;
/// Names for the number of tokens read from a cache. Such tokens cost less.
const CACHED: [&str; 5] =
    ["cached_tokens", "cache_read_input_tokens", "num_cached_tokens", "prompt_cache_hit_tokens", "cache_n"];
/// Members that occur only in reports in the form of Anthropic's API.
const BY_ANTHROPIC: [&str; 3] = ["cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation"];
/// Maximum number of members with the same name that are read in the end of a body. A body that repeats the request has
/// few such members, but each may be as long as the end that is read.
const MOST_MEMBERS_OF_A_NAME: usize = 16;

/// Objects of answers that report usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportForm {
    /// `usage` as in OpenAI's API, with other servers' additions.
    Usage,
    /// `timings` of a single choice, which llama.cpp's server adds to each chunk on request (`timings_per_token`).
    Timings,
}

/// Finds the largest report of a form in part of a body. Usually it is the last report, but a body may repeat the
/// member with a smaller count.
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
    /// Reads a report. If a count has several names, the largest value wins, since servers that use two names may leave
    /// one of the counts at zero. If an object repeats a member, the value that costs more wins.
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

    /// Finds `usage` and `timings` in the end of a body that is not read as a whole. The body may repeat the request;
    /// members with these names in the request are no reports.
    pub fn find_last(part: &[u8]) -> Self {
        let find =
            |form| largest_report(form, part).map(|report| Self::read(form, report)).unwrap_or_default();
        find(ReportForm::Usage).max(find(ReportForm::Timings))
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
    /// Tokens written to a cache, by how long the cache keeps them.
    Writes,
    Timings,
}

impl ReportObject {
    /// If this member contains an object with counts, returns the kind of the object.
    fn inner(self, member: &str) -> Option<Self> {
        match (self, member) {
            // The last name is Mistral's.
            (Self::Usage, "prompt_tokens_details" | "input_tokens_details" | "prompt_token_details") => {
                Some(Self::Prompt)
            }
            (
                Self::Usage,
                "completion_tokens_details" | "output_tokens_details" | "completion_token_details",
            ) => Some(Self::Output),
            (Self::Usage | Self::Prompt, "cache_creation")
            | (Self::Prompt, "cache_creation_token_details" | "cache_write_tokens_details") => {
                Some(Self::Writes)
            }
            _ => None,
        }
    }
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
    /// The smallest value of `cached`, if an object repeats the member. Cached tokens cost less, so only this many are
    /// billed as cached.
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
    /// Usage of rounds of generation that the report's other members do not include.
    apart: Reported,
    /// Whether this report is of a round within another report. It then has no rounds itself.
    is_round: bool,
}

impl ReportedCounts {
    /// Reads the counts of an object. Values of other types have no counts.
    fn read(&mut self, place: ReportObject, value: &RawValue) {
        // The value is valid JSON, so the only possible error is that it is not an object.
        let _ = serde_json::Deserializer::from_str(value.get()).deserialize_map(Members(place, self));
    }

    fn take(&mut self, place: ReportObject, name: &str, value: &RawValue) {
        if place == ReportObject::Usage {
            self.by_anthropic |= BY_ANTHROPIC.contains(&name);
            match name {
                "total_tokens" => {
                    let total = count(value);
                    self.totals_differ |= self.total.is_some_and(|other| total != Some(other));
                }
                "cost" => self.cost = self.cost.max(cost(value)),
                "iterations" if !self.is_round => self.read_apart(value),
                _ => {}
            }
        }
        if let Some(inner) = place.inner(name) {
            self.read(inner, value);
        } else if let Some(counted) = self.counted(place, name) {
            *counted = (*counted).max(count(value));
        }
    }

    /// Returns the count that a member adds to.
    fn counted(&mut self, place: ReportObject, name: &str) -> Option<&mut Option<u64>> {
        use ReportObject::{Output, Prompt, Timings, Usage, Writes};
        Some(match (place, name) {
            (Usage, "prompt_tokens") => &mut self.prompt,
            (Usage, "input_tokens") => &mut self.input,
            (Usage, "completion_tokens" | "output_tokens") | (Timings, "predicted_n") => &mut self.completion,
            (Usage, "total_tokens") => &mut self.total,
            // Names of OpenAI, SGLang and Anthropic.
            (Output | Usage, "reasoning_tokens") | (Output, "thinking_tokens") => &mut self.reasoning,
            (Output, "audio_tokens") => &mut self.audio_output,
            (Prompt, "audio_tokens") => &mut self.audio_input,
            // Names of OpenAI, Moonshot, Mistral, DeepSeek, llama.cpp and Anthropic.
            (Prompt | Usage, "cached_tokens" | "cache_read_input_tokens" | "num_cached_tokens")
            | (Usage, "prompt_cache_hit_tokens")
            | (Timings, "cache_n") => &mut self.cached,
            (Usage, "prompt_cache_miss_tokens") | (Timings, "prompt_n") => &mut self.uncached,
            // OpenAI's name, three names from gateways to Anthropic's API, and Anthropic's own name.
            (Prompt, "cache_write_tokens" | "cache_creation_tokens" | "cached_creation_tokens")
            | (Prompt | Usage, "cache_creation_input_tokens") => &mut self.written,
            (Writes, "ephemeral_5m_input_tokens" | "ttl_30m_tokens")
            | (Usage, "claude_cache_creation_5_m_tokens") => &mut self.written_short,
            (Writes, "ephemeral_1h_input_tokens" | "ttl_12h_tokens")
            | (Usage, "claude_cache_creation_1_h_tokens") => &mut self.written_long,
            _ => return None,
        })
    }

    /// Reads the rounds of an Anthropic answer that its other members leave out: rounds that summarise the
    /// conversation, and rounds of an adviser.
    fn read_apart(&mut self, rounds: &RawValue) {
        // Anything that is not a list of objects has no rounds.
        let _ = each_element(rounds, |round: &RawValue| {
            // A round with two types is counted too, since either type may be meant.
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

    /// Returns whether the reported prompt of `named` tokens does not include the `cache` tokens that were read from or
    /// written to a cache. `input_tokens` of Anthropic's API does not include them. Counts in OpenAI's form include
    /// them, unless the total shows otherwise.
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

/// One round of generation in a report of several rounds.
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

/// Returns the tokens of a prompt; `None` for zero. No chat template renders an empty prompt, so zero means that the
/// server has not counted the prompt.
fn counted(tokens: Option<u64>) -> Option<u64> {
    tokens.filter(|tokens| *tokens > 0)
}

/// Adds two counts; an absent count adds nothing.
fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.or(b).map(|_| a.unwrap_or(0) + b.unwrap_or(0))
}

/// Reads a number of tokens: an integer, which may be spelled as a float or as a text.
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

/// Returns the integer that a float is equal to, if any.
fn integral(tokens: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative and without a fraction; a larger one than any integer becomes the largest"
    )]
    let integer = tokens as u64;
    // For a number that is not finite, `tokens % 1.0` is NaN, so the comparison fails.
    (tokens >= 0.0 && tokens % 1.0 == 0.0).then(|| integer.min(MOST_TOKENS))
}
