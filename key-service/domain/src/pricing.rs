//! The cost of tokens, rounded up once, and the tokens that an amount pays for.

use shared::{catalog::Price, money::NanoUsd, tokens::Usage};

/// Prices are per this many tokens.
const TOKENS_PER_PRICE: i128 = 1_000_000;

/// Price of this usage: `ceil(((prompt − cached)·input + cached·cached_input + completion·output) / 10⁶)`, bounded by
/// [`NanoUsd::MAX`], since nothing costs more than an account can own.
pub fn cost(price: &Price, usage: Usage) -> NanoUsd {
    let cached = usage.cached.min(usage.prompt);
    let scaled = times(usage.prompt - cached, price.base.input)
        .saturating_add(times(cached, price.base.cached_input))
        .saturating_add(times(usage.completion, price.base.output));
    round_up(scaled)
}

/// Largest cost of a prompt and this much output, regardless of the cached part of the prompt.
pub fn worst_case(price: &Price, prompt: u64, output: u64) -> NanoUsd {
    round_up(times(prompt, dearer_input(price)).saturating_add(times(output, price.base.output)))
}

/// Largest number of output tokens whose [`worst_case`], together with the prompt's, is covered by `amount`; at most
/// `wanted`.
pub fn covered_output(price: &Price, amount: NanoUsd, prompt: u64, wanted: u64) -> u64 {
    let rest = i128::from(amount.nanos()) * TOKENS_PER_PRICE - times(prompt, dearer_input(price));
    if rest < 0 {
        return 0;
    }
    match i128::from(price.base.output.nanos()) {
        0 => wanted,
        output => u64::try_from(rest / output).unwrap_or(u64::MAX).min(wanted),
    }
}

fn dearer_input(price: &Price) -> NanoUsd {
    price.base.input.max(price.base.cached_input)
}

/// Product in 128 bits. Exact: 2^64 tokens at 2^63 nano-USD fit. Sums of these products saturate, far above every
/// amount.
fn times(tokens: u64, price: NanoUsd) -> i128 {
    i128::from(tokens) * i128::from(price.nanos())
}

fn round_up(scaled: i128) -> NanoUsd {
    let nanos = scaled.saturating_add(TOKENS_PER_PRICE - 1) / TOKENS_PER_PRICE;
    NanoUsd::from_nanos(i64::try_from(nanos).unwrap_or(i64::MAX)).min(NanoUsd::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shared::catalog::Rates;

    fn price(input: i64, cached_input: i64, output: i64) -> Price {
        let nanos = NanoUsd::from_nanos;
        Price::flat(Rates::of_three(nanos(input), nanos(cached_input), nanos(output)))
    }

    #[test]
    fn a_request_is_rounded_up_once() {
        let flash = price(100_000_000, 25_000_000, 400_000_000);
        let usage = Usage::of(12, 0, 5);
        assert_eq!(cost(&flash, usage).nanos(), 3_200);
        // Three thirds of a nano-USD make one, not three.
        let thirds = price(333_333, 333_333, 333_334);
        assert_eq!(cost(&thirds, Usage::of(2, 1, 1)).nanos(), 1);
        assert_eq!(cost(&thirds, Usage::of(3, 1, 1)).nanos(), 2);
    }

    #[test]
    fn a_lying_upstream_cannot_overflow_the_price() {
        let dear = price(i64::MAX, i64::MAX, i64::MAX);
        let usage = Usage::of(u64::MAX, u64::MAX, u64::MAX);
        assert_eq!(cost(&dear, usage), NanoUsd::MAX);
        let more_cached_than_prompt = Usage::of(1, 5, 0);
        assert_eq!(cost(&price(1_000_000, 0, 0), more_cached_than_prompt).nanos(), 0);
    }

    proptest! {
        #[test]
        fn what_is_covered_is_the_most_that_can_be_paid(
            input in 0..5_000_000_000_i64, output in 1..5_000_000_000_i64,
            amount in 0..10_000_000_000_i64, prompt in 0..100_000_u64, wanted in 0..1_000_000_u64,
        ) {
            let price = price(input, input / 4, output);
            let amount = NanoUsd::from_nanos(amount);
            let covered = covered_output(&price, amount, prompt, wanted);
            if worst_case(&price, prompt, 0) <= amount {
                prop_assert!(worst_case(&price, prompt, covered) <= amount);
                prop_assert!(covered == wanted || worst_case(&price, prompt, covered + 1) > amount);
            } else {
                prop_assert_eq!(covered, 0);
            }
        }
    }
}
