//! Tests the rules of billing over chosen and random usages and prices.

use proptest::prelude::*;
use shared::tokens::UsageDetails;
use shared_catalog::{RATES, Tier};

use super::*;

fn nanos(n: i64) -> NanoUsd {
    NanoUsd::from_nanos(n)
}

fn three(input: i64, cached_input: i64, output: i64) -> Price {
    Price::flat(Rates::of_three(nanos(input), nanos(cached_input), nanos(output)))
}

#[test]
fn a_request_is_rounded_up_once() {
    let flash = three(100_000_000, 25_000_000, 400_000_000);
    assert_eq!(cost(&flash, Usage::of(12, 0, 5)).nanos(), 3_200);
    // Three thirds of a nano-USD make one, not three.
    let thirds = three(333_333, 333_333, 333_334);
    assert_eq!(cost(&thirds, Usage::of(2, 1, 1)).nanos(), 1);
    assert_eq!(cost(&thirds, Usage::of(3, 1, 1)).nanos(), 2);
}

#[test]
fn a_lying_upstream_cannot_overflow_the_price() {
    let most = u64::MAX;
    let details = UsageDetails {
        cache_write: most,
        cache_write_long: most,
        audio_input: most,
        images: most,
        reasoning: most,
        audio_output: most,
    };
    let usage = Usage { details, ..Usage::of(most, most, most) };
    let rates = Rates::of_array([nanos(i64::MAX); RATES]);
    let dear = Price { base: rates, tiers: vec![Tier { above: most - 1, rates }] };
    assert_eq!(cost(&dear, usage), NanoUsd::MAX);
    assert_eq!(worst_case(&dear, most, most, most), NanoUsd::MAX);
    assert_eq!(covered_output(&dear, NanoUsd::MAX, most, most, most), 0);
    assert!(contradicts(usage));
}

#[test]
fn parts_beyond_their_whole_fill_it_from_the_dearest_on() {
    let [input, cached_input, output] = [4_000_000, 1_000_000, 8_000_000].map(nanos);
    let rates = Rates {
        cache_write: nanos(5_000_000),
        cache_write_long: nanos(6_000_000),
        audio_input: nanos(2_000_000),
        reasoning: nanos(9_000_000),
        audio_output: nanos(7_000_000),
        ..Rates::of_three(input, cached_input, output)
    };
    let price = Price::flat(rates);
    let bill = |usage: Usage| (cost(&price, usage).nanos(), contradicts(usage));
    let parts = |cache_write, cache_write_long, audio_input| UsageDetails {
        cache_write,
        cache_write_long,
        audio_input,
        ..UsageDetails::default()
    };
    // There are parts for ten tokens, and one plain token.
    let usage = Usage { details: parts(2, 3, 3), ..Usage::of(10, 1, 0) };
    assert_eq!(bill(usage), (2 * 5 + 3 * 6 + 3 * 2 + 1 + 4, false));
    let usage = Usage { details: parts(2, 3, 3), ..Usage::of(10, 2, 0) };
    assert_eq!(bill(usage), (2 * 5 + 3 * 6 + 3 * 2 + 2, false));
    // There is one token too many, so the cheapest part is reduced.
    let usage = Usage { details: parts(2, 3, 3), ..Usage::of(10, 3, 0) };
    assert_eq!(bill(usage), (2 * 5 + 3 * 6 + 3 * 2 + 2, true));
    let usage = Usage { details: parts(2, 3, 3), ..Usage::of(4, 3, 0) };
    assert_eq!(bill(usage), (5 + 3 * 6, true));
    assert_eq!(bill(Usage::of(1, 5, 0)), (1, true));
    let output = |reasoning, audio_output| Usage {
        details: UsageDetails { reasoning, audio_output, ..UsageDetails::default() },
        ..Usage::of(0, 0, 5)
    };
    assert_eq!(bill(output(2, 3)), (2 * 9 + 3 * 7, false));
    assert_eq!(bill(output(3, 3)), (3 * 9 + 2 * 7, true));
}

#[test]
fn a_tier_bills_all_of_a_request_from_the_token_above_its_border_on() {
    let rates = |n: i64| Rates::of_three(nanos(n * 1_000_000), nanos(0), nanos(0));
    let tiers = vec![Tier { above: 10, rates: rates(2) }, Tier { above: 20, rates: rates(3) }];
    let price = Price { base: rates(1), tiers };
    for (prompt, expected) in [(0, 0), (10, 10), (11, 22), (20, 40), (21, 63), (1_000, 3_000)] {
        assert_eq!(cost(&price, Usage::of(prompt, 0, 0)).nanos(), expected, "{prompt}");
        assert_eq!(worst_case(&price, prompt, 0, 0).nanos(), expected, "{prompt}");
    }
}

#[test]
fn a_hold_covers_a_shorter_prompt_where_a_longer_one_is_cheaper() {
    let [dear, cheap] = [3_000_000, 1_000_000].map(|n| Rates::of_three(nanos(n), nanos(n), nanos(n)));
    let price = Price { base: dear, tiers: vec![Tier { above: 10, rates: cheap }] };
    assert_eq!(cost(&price, Usage::of(10, 0, 5)).nanos(), 45);
    assert_eq!(cost(&price, Usage::of(11, 0, 5)).nanos(), 16);
    assert_eq!(worst_case(&price, 11, 5, 0).nanos(), 48);
}

/// A random number generator that covers every order of magnitude (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns a number of at most this many bits. Each number of bits is equally likely.
    fn up_to_bits(&mut self, bits: u64) -> u64 {
        let shift = 64 - self.below(bits + 1);
        if shift == 64 { 0 } else { self.next() >> shift }
    }

    fn rates(&mut self) -> Rates {
        let bits = self.below(54);
        let most = NanoUsd::MAX.nanos().cast_unsigned();
        let mut rate = || nanos(self.up_to_bits(bits).min(most).cast_signed());
        Rates::of_array([(); RATES].map(|()| rate()))
    }

    fn price(&mut self) -> Price {
        let (base, mut above) = (self.rates(), 0);
        let tiers = (0..self.below(3)).map(|_| {
            above += 1 + self.up_to_bits(20);
            Tier { above, rates: self.rates() }
        });
        let tiers = tiers.collect();
        Price { base, tiers }
    }

    /// Returns a usage near a border of the price's tiers, or anywhere.
    fn usage(&mut self, price: &Price) -> Usage {
        let bits = if self.below(50) == 0 { 63 } else { 22 };
        let prompt = match price.tiers.first() {
            Some(tier) if self.below(2) == 0 => tier.above + self.below(3) - 1,
            _ => self.up_to_bits(bits),
        };
        let mut up_to = |most: u64| match self.below(8) {
            0 => self.up_to_bits(bits),
            1 => most,
            2..=4 => 0,
            _ => self.below(most.saturating_add(1).max(1)),
        };
        let cached = up_to(prompt);
        let completion = up_to(1 << 20);
        let details = UsageDetails {
            cache_write: up_to(prompt / 2),
            cache_write_long: up_to(prompt / 2),
            audio_input: up_to(prompt / 2),
            images: up_to(9),
            reasoning: up_to(completion),
            audio_output: up_to(completion),
        };
        Usage { prompt, cached, completion, details }
    }
}

/// Bills the parts, the most expensive first, in unsigned 128 bits and without sorting.
fn dearest_order(whole: u64, plain: NanoUsd, parts: &[(u64, NanoUsd)]) -> u128 {
    let (whole, unsigned) = (u128::from(whole), |rate: NanoUsd| u128::from(rate.nanos().cast_unsigned()));
    let all: u128 = parts.iter().map(|(part, _)| u128::from(*part)).sum();
    let mut sum = whole.saturating_sub(all) * unsigned(plain);
    for (at, (part, rate)) in parts.iter().enumerate() {
        let goes_first =
            |(other, other_rate): (usize, NanoUsd)| other_rate > *rate || (other_rate == *rate && other < at);
        let before =
            parts.iter().enumerate().filter(|(other, (_, other_rate))| goes_first((*other, *other_rate)));
        let before: u128 = before.map(|(_, (part, _))| u128::from(*part)).sum();
        sum += whole.saturating_sub(before).min(u128::from(*part)) * unsigned(*rate);
    }
    sum
}

/// Calculates the cost in a different way from [`cost`].
fn independent_cost(price: &Price, usage: Usage) -> u128 {
    let mut rates = price.base;
    for tier in &price.tiers {
        if usage.prompt > tier.above {
            rates = tier.rates;
        }
    }
    let details = usage.details;
    let prompt = [
        (usage.cached, rates.cached_input),
        (details.cache_write, rates.cache_write),
        (details.cache_write_long, rates.cache_write_long),
        (details.audio_input, rates.audio_input),
    ];
    let completion = [(details.reasoning, rates.reasoning), (details.audio_output, rates.audio_output)];
    let tokens = dearest_order(usage.prompt, rates.input, &prompt)
        + dearest_order(usage.completion, rates.output, &completion);
    let unsigned = |rate: NanoUsd| u128::from(rate.nanos().cast_unsigned());
    let fees = unsigned(rates.image) * u128::from(details.images) + unsigned(rates.request);
    // Rounding only the tokens equals rounding the sum, since the fees are whole.
    (tokens.div_ceil(1_000_000) + fees).min(unsigned(NanoUsd::MAX))
}

/// Adds a token to the whole, and to one of its parts, if any; or adds an image.
fn one_more(usage: Usage, kind: u64) -> Usage {
    let mut more = usage;
    let whole = if kind < 5 { &mut more.prompt } else { &mut more.completion };
    *whole += u64::from(kind < 8);
    let details = &mut more.details;
    match kind {
        1 => more.cached += 1,
        2 => details.cache_write += 1,
        3 => details.cache_write_long += 1,
        4 => details.audio_input += 1,
        6 => details.reasoning += 1,
        7 => details.audio_output += 1,
        8 => details.images += 1,
        _ => {}
    }
    more
}

fn check_one(numbers: &mut Numbers) -> Result<(), TestCaseError> {
    let price = numbers.price();
    let usage = numbers.usage(&price);
    let billed = cost(&price, usage);
    prop_assert!(billed >= NanoUsd::ZERO);
    prop_assert_eq!(
        u128::from(billed.nanos().cast_unsigned()),
        independent_cost(&price, usage),
        "{:?} {:?}",
        price,
        usage
    );
    let slack = |numbers: &mut Numbers, n: u64| n.saturating_add(numbers.up_to_bits(4));
    let bounds = (
        slack(numbers, usage.prompt),
        slack(numbers, usage.completion),
        slack(numbers, usage.details.images),
    );
    prop_assert!(worst_case(&price, bounds.0, bounds.1, bounds.2) >= billed, "{:?} {:?}", price, usage);
    let tier = |usage: Usage| price.tiers.iter().filter(|tier| usage.prompt > tier.above).count();
    // One more token lowers the bill only if it reaches a cheaper tier.
    let more = one_more(usage, numbers.below(9));
    prop_assert!(
        tier(more) != tier(usage) || cost(&price, more) >= billed,
        "{:?} {:?} {:?}",
        price,
        usage,
        more
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Checks a million usages: a thousand for each case.
    #[test]
    fn every_bill_is_the_independent_one_and_covered_by_its_hold(seed: u64) {
        let mut numbers = Numbers(seed);
        for _ in 0..1_000 {
            check_one(&mut numbers)?;
        }
    }
}

proptest! {
    #[test]
    fn what_is_covered_is_the_most_that_can_be_paid(
        seed: u64, amount in 0..10_000_000_000_i64, prompt in 0..100_000_u64, images in 0..4_u64,
        wanted in 0..1_000_000_u64,
    ) {
        let price = Numbers(seed).price();
        let amount = nanos(amount);
        let covered = covered_output(&price, amount, prompt, images, wanted);
        if worst_case(&price, prompt, 0, images) <= amount {
            prop_assert!(worst_case(&price, prompt, covered, images) <= amount);
            prop_assert!(covered == wanted || worst_case(&price, prompt, covered + 1, images) > amount);
        } else {
            prop_assert_eq!(covered, 0);
        }
    }
}
