//! Token counts in reports of upstreams and in answers to clients.

mod read;

use bytes::BytesMut;
use shared::{
    json::RawValue,
    money::NanoUsd,
    tokens::{Usage, UsageDetails},
};

use crate::{put, put_number};
pub(super) use read::ReportForm;

/// Stands for all larger counts too. It is beyond any believable request, and small enough that sums of counts do not
/// overflow.
pub const MOST_TOKENS: u64 = 1 << 40;

/// Most members of one name that are read in the end of a body. A repeated request has few, and each may be as long as
/// the end.
const MOST_MEMBERS_OF_A_NAME: usize = 16;

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
}

impl Reported {
    /// Finds the last `usage` and the last `timings` in the end of a body that is not read whole. A request that the
    /// body repeats may have members of these names too, which report nothing.
    pub fn find_last(end: &[u8]) -> Self {
        let find = |form, name: &[u8]| {
            let read = |at: usize| {
                let value = end[at + name.len()..].trim_ascii_start().strip_prefix(b":")?;
                let mut values = serde_json::Deserializer::from_slice(value).into_iter::<Box<RawValue>>();
                Some(Self::read(form, &values.next()?.ok()?)).filter(|read| *read != Self::default())
            };
            memchr::memmem::rfind_iter(end, name).take(MOST_MEMBERS_OF_A_NAME).find_map(read)
        };
        let usage = find(ReportForm::Usage, br#""usage""#).unwrap_or_default();
        usage.max(find(ReportForm::Timings, br#""timings""#).unwrap_or_default())
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
        }
    }
}

/// Writes the `usage` that clients read, with OpenAI's members. Parts that few models have are left out if they are
/// zero. `cost` is the billed amount, left out while it is unknown.
pub(super) fn put_usage(usage: Usage, cost: Option<NanoUsd>, out: &mut BytesMut) {
    let Usage { prompt, cached, completion, details } = usage;
    let UsageDetails { cache_write, cache_write_long, audio_input, reasoning, audio_output, images: _ } =
        details;
    let written = cache_write.saturating_add(cache_write_long);
    put(out, r#"{"prompt_tokens":"#);
    put_number(out, prompt);
    put(out, r#","completion_tokens":"#);
    put_number(out, completion);
    put(out, r#","total_tokens":"#);
    put_number(out, prompt.saturating_add(completion));
    put(out, r#","prompt_tokens_details":{"cached_tokens":"#);
    put_number(out, cached);
    put_any(r#","cache_write_tokens":"#, written, out);
    put_any(r#","audio_tokens":"#, audio_input, out);
    put(out, r#"},"completion_tokens_details":{"reasoning_tokens":"#);
    put_number(out, reasoning);
    put_any(r#","audio_tokens":"#, audio_output, out);
    put(out, "}");
    if let Some(cost) = cost {
        put(out, r#","cost":"#);
        put(out, &cost.to_string());
    }
    put(out, "}");
}

/// Writes a member with its number of tokens, if that is not zero.
fn put_any(name: &str, tokens: u64, out: &mut BytesMut) {
    if tokens > 0 {
        put(out, name);
        put_number(out, tokens);
    }
}

#[cfg(test)]
mod tests;
