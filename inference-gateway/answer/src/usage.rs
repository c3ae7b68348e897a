//! Token counts in reports of upstreams and in answers to clients.

mod read;
mod reported;

use bytes::BytesMut;
use shared::{
    money::NanoUsd,
    tokens::{Usage, UsageDetails},
};

use crate::generation::{put, put_number};
pub(super) use read::{ReportForm, largest_report};
pub use reported::{MOST_TOKENS, Reported};

/// Writes the `usage` that clients read, with OpenAI's members. Rare parts are left out if they are zero. `cost` is the
/// billed amount, left out while unknown.
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

/// Writes a count unless it is zero.
fn put_any(name: &str, tokens: u64, out: &mut BytesMut) {
    if tokens > 0 {
        put(out, name);
        put_number(out, tokens);
    }
}

#[cfg(test)]
mod tests;
