//! The cost of a usage, rounded up once, and the tokens that an amount pays for.

use std::cmp::Reverse;

use shared::{money::NanoUsd, tokens::Usage};
use shared_catalog::{Price, Rates};

/// Prices of tokens are per this many tokens.
const TOKENS_PER_PRICE: i128 = 1_000_000;

/// Returns the cost of a usage, at most [`NanoUsd::MAX`], since nothing costs more than an account can have.
///
/// The prompt's size selects one tier, which prices the whole request. Parts of the prompt (cached, written, audio) and
/// of the completion (reasoning, audio) are disjoint. If the parts add up to more than the whole, the most expensive
/// ones count first.
pub fn cost(price: &Price, usage: Usage) -> NanoUsd {
    let rates = price.rates(usage.prompt);
    let Usage { prompt, cached, completion, details } = usage;
    let prompt_parts = [
        (cached, rates.cached_input),
        (details.cache_write, rates.cache_write),
        (details.cache_write_long, rates.cache_write_long),
        (details.audio_input, rates.audio_input),
    ];
    let completion_parts = [(details.reasoning, rates.reasoning), (details.audio_output, rates.audio_output)];
    let scaled = whole(prompt, rates.input, prompt_parts)
        .saturating_add(whole(completion, rates.output, completion_parts))
        .saturating_add(fees(rates.request, rates.image, details.images));
    round_up(scaled)
}

/// Cost of all tokens of a kind, of images, or of the request itself.
pub struct CostPart {
    pub kind: &'static str,
    pub number: u64,
    pub cost: NanoUsd,
}

/// Returns the parts of a usage's cost, each to the nearest nano-dollar. Their sum may differ from [`cost`] by
/// rounding, and by more if parts add up to more than the whole.
pub fn parts(price: &Price, usage: Usage) -> impl Iterator<Item = CostPart> {
    let rates = price.rates(usage.prompt);
    let Usage { prompt, cached, completion, details } = usage;
    let sum = |parts: &[u64]| parts.iter().fold(0_u64, |sum, part| sum.saturating_add(*part));
    let of_prompt = sum(&[cached, details.cache_write, details.cache_write_long, details.audio_input]);
    let of_completion = sum(&[details.reasoning, details.audio_output]);
    let per_million = [
        ("prompt", prompt.saturating_sub(of_prompt), rates.input),
        ("prompt from a cache", cached, rates.cached_input),
        ("prompt written to the cache", details.cache_write, rates.cache_write),
        ("prompt written to the cache for an hour", details.cache_write_long, rates.cache_write_long),
        ("audio in the prompt", details.audio_input, rates.audio_input),
        ("output", completion.saturating_sub(of_completion), rates.output),
        ("reasoning", details.reasoning, rates.reasoning),
        ("audio in the output", details.audio_output, rates.audio_output),
    ];
    let of_tokens = per_million.into_iter().map(|(kind, number, rate)| {
        let scaled = times(number, rate).saturating_add(TOKENS_PER_PRICE / 2) / TOKENS_PER_PRICE;
        CostPart { kind, number, cost: NanoUsd::from_nanos(i64::try_from(scaled).unwrap_or(i64::MAX)) }
    });
    let each = |n: u64, rate: NanoUsd| {
        NanoUsd::from_nanos(rate.nanos().saturating_mul(i64::try_from(n).unwrap_or(i64::MAX)))
    };
    let fees = [("images", details.images, rates.image), ("request", 1, rates.request)];
    let fees = fees.into_iter().filter(|(_, _, rate)| *rate > NanoUsd::ZERO);
    let fees = fees.map(move |(kind, number, rate)| CostPart { kind, number, cost: each(number, rate) });
    of_tokens.chain(fees).filter(|part| part.number > 0)
}

/// Returns whether the parts of a usage add up to more than the whole.
pub fn contradicts(Usage { prompt, cached, completion, details }: Usage) -> bool {
    let beyond =
        |whole: u64, parts: &[u64]| parts.iter().map(|part| u128::from(*part)).sum::<u128>() > whole.into();
    beyond(prompt, &[cached, details.cache_write, details.cache_write_long, details.audio_input])
        || beyond(completion, &[details.reasoning, details.audio_output])
}

/// Returns the maximum cost of a usage of at most this size, whatever kinds of tokens it has.
pub fn worst_case(price: &Price, prompt: u64, output: u64, images: u64) -> NanoUsd {
    let dearest = Dearest::of(price, prompt);
    round_up(dearest.input(prompt, images).saturating_add(times(output, dearest.output)))
}

/// Returns how many output tokens, up to `wanted`, the amount covers together with the prompt in the [`worst_case`].
pub fn covered_output(price: &Price, amount: NanoUsd, prompt: u64, images: u64, wanted: u64) -> u64 {
    let dearest = Dearest::of(price, prompt);
    let amount = i128::from(amount.nanos()) * TOKENS_PER_PRICE;
    let rest = amount.saturating_sub(dearest.input(prompt, images));
    if rest < 0 {
        return 0;
    }
    match i128::from(dearest.output.nanos()) {
        0 => wanted,
        output => u64::try_from(rest / output).unwrap_or(u64::MAX).min(wanted),
    }
}

/// The highest rates at which a request may be billed.
struct Dearest {
    prompt: NanoUsd,
    output: NanoUsd,
    image: NanoUsd,
    request: NanoUsd,
}

impl Dearest {
    /// Finds the highest rates over the tiers that a prompt of at most this many tokens can reach.
    fn of(price: &Price, prompt: u64) -> Self {
        let reached = price.tiers.iter().filter(|tier| prompt > tier.above).map(|tier| &tier.rates);
        reached.fold(Self::in_table(&price.base), |dearest, rates| dearest.max(&Self::in_table(rates)))
    }

    fn in_table(rates: &Rates) -> Self {
        let written = rates.cache_write.max(rates.cache_write_long);
        Self {
            prompt: rates.input.max(rates.cached_input).max(written).max(rates.audio_input),
            output: rates.output.max(rates.reasoning).max(rates.audio_output),
            image: rates.image,
            request: rates.request,
        }
    }

    fn max(&self, other: &Self) -> Self {
        Self {
            prompt: self.prompt.max(other.prompt),
            output: self.output.max(other.output),
            image: self.image.max(other.image),
            request: self.request.max(other.request),
        }
    }

    /// Returns the scaled cost of everything but the output.
    fn input(&self, prompt: u64, images: u64) -> i128 {
        times(prompt, self.prompt).saturating_add(fees(self.request, self.image, images))
    }
}

/// Returns the scaled cost of tokens. Parts have separate rates; the rest is billed at `plain`.
fn whole<const N: usize>(tokens: u64, plain: NanoUsd, mut parts: [(u64, NanoUsd); N]) -> i128 {
    parts.sort_unstable_by_key(|(_, rate)| Reverse(*rate));
    let (mut rest, mut scaled) = (tokens, 0_i128);
    for (part, rate) in parts {
        let part = part.min(rest);
        rest -= part;
        scaled = scaled.saturating_add(times(part, rate));
    }
    scaled.saturating_add(times(rest, plain))
}

/// Returns the scaled cost of a request and its images, on top of their tokens.
fn fees(request: NanoUsd, image: NanoUsd, images: u64) -> i128 {
    times(images, image).saturating_add(request.nanos().into()).saturating_mul(TOKENS_PER_PRICE)
}

/// Multiplies in 128 bits, which is exact: 2^64 tokens at 2^63 nano-USD fit. Sums of products saturate far above every
/// amount.
fn times(count: u64, price: NanoUsd) -> i128 {
    i128::from(count) * i128::from(price.nanos())
}

fn round_up(scaled: i128) -> NanoUsd {
    let nanos = scaled.saturating_add(TOKENS_PER_PRICE - 1) / TOKENS_PER_PRICE;
    NanoUsd::from_nanos(i64::try_from(nanos).unwrap_or(i64::MAX)).min(NanoUsd::MAX)
}

#[cfg(test)]
mod examples;
#[cfg(test)]
mod tests;
