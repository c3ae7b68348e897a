//! Money and tokens, to and from messages, and balances.

use shared::{
    money::NanoUsd,
    tokens::{Usage, UsageDetails},
};

use crate::messages;

pub(crate) const fn nanos(amount: NanoUsd) -> i64 {
    amount.nanos()
}

pub const fn usd(nanos: i64) -> NanoUsd {
    NanoUsd::from_nanos(nanos)
}

/// A balance, with the number of the entry that changed it last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Balance<T> {
    pub of: T,
    pub last_entry: u64,
}

pub(crate) fn write_usage(Usage { prompt, cached, completion, details }: &Usage) -> messages::Progress {
    let UsageDetails { cache_write, cache_write_long, audio_input, images, reasoning, audio_output } =
        *details;
    messages::Progress {
        prompt: *prompt,
        cached: *cached,
        completion: *completion,
        cost: 0,
        upstream_cost: None,
        cache_write,
        cache_write_long,
        audio_input,
        images,
        reasoning,
        audio_output,
        course: None,
    }
}

pub(crate) fn read_usage(usage: &messages::Progress) -> Usage {
    let details = UsageDetails {
        cache_write: usage.cache_write,
        cache_write_long: usage.cache_write_long,
        audio_input: usage.audio_input,
        images: usage.images,
        reasoning: usage.reasoning,
        audio_output: usage.audio_output,
    };
    Usage { prompt: usage.prompt, cached: usage.cached, completion: usage.completion, details }
}
