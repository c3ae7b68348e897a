//! Usage and prices in messages.

use super::Malformed;
use crate::{
    catalog::{Price, RATES, Rates, Tier},
    money::NanoUsd,
    rpc::v1,
    tokens::{Usage, UsageDetails},
};

impl From<Usage> for v1::Usage {
    fn from(usage: Usage) -> Self {
        let Usage { prompt, cached, completion, details } = usage;
        Self {
            prompt_tokens: prompt,
            cached_tokens: cached,
            completion_tokens: completion,
            details: (!details.is_empty()).then_some(v1::UsageDetails {
                cache_write_tokens: details.cache_write,
                cache_write_long_tokens: details.cache_write_long,
                audio_input_tokens: details.audio_input,
                images: details.images,
                reasoning_tokens: details.reasoning,
                audio_output_tokens: details.audio_output,
            }),
        }
    }
}

impl From<v1::Usage> for Usage {
    fn from(usage: v1::Usage) -> Self {
        let details = usage.details.unwrap_or_default();
        Self {
            prompt: usage.prompt_tokens,
            cached: usage.cached_tokens,
            completion: usage.completion_tokens,
            details: UsageDetails {
                cache_write: details.cache_write_tokens,
                cache_write_long: details.cache_write_long_tokens,
                audio_input: details.audio_input_tokens,
                images: details.images,
                reasoning: details.reasoning_tokens,
                audio_output: details.audio_output_tokens,
            },
        }
    }
}

impl From<&Price> for v1::Price {
    fn from(price: &Price) -> Self {
        let tier = |tier: &Tier| v1::PriceTier { above: tier.above, rates: Some(rates(tier.rates)) };
        Self { tiers: price.tiers.iter().map(tier).collect(), ..rates(price.base) }
    }
}

impl TryFrom<v1::Price> for Price {
    type Error = Malformed;

    fn try_from(price: v1::Price) -> Result<Self, Malformed> {
        let fault = |problem: &str| Malformed { field: "hold.price", problem: problem.to_owned() };
        let tiers = price.tiers.iter().map(|tier| {
            let rates = read_rates(tier.rates.as_ref()?)?;
            Some(Tier { above: tier.above, rates })
        });
        let tiers = tiers.collect::<Option<_>>().ok_or_else(|| fault("has a tier without rates"))?;
        let base = read_rates(&price).ok_or_else(|| fault("has no rates"))?;
        let price = Self { base, tiers };
        price.fault().map_or(Ok(price), |problem| Err(fault(problem)))
    }
}

fn rates(rates: Rates) -> v1::Price {
    let written = rates.written().map(|rate| rate.map(NanoUsd::nanos));
    let [_, _, _, cache_write, cache_write_long, reasoning, audio_input, audio_output, image, request] =
        written;
    v1::Price {
        input: rates.input.nanos(),
        cached_input: rates.cached_input.nanos(),
        output: rates.output.nanos(),
        cache_write,
        cache_write_long,
        reasoning,
        audio_input,
        audio_output,
        image,
        request,
        tiers: Vec::new(),
    }
}

fn read_rates(price: &v1::Price) -> Option<Rates> {
    let written: [Option<i64>; RATES] = [
        Some(price.input),
        Some(price.cached_input),
        Some(price.output),
        price.cache_write,
        price.cache_write_long,
        price.reasoning,
        price.audio_input,
        price.audio_output,
        price.image,
        price.request,
    ];
    Rates::resolve(written.map(|rate| rate.map(NanoUsd::from_nanos)))
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    const fn nanos(n: i64) -> NanoUsd {
        NanoUsd::from_nanos(n)
    }

    #[test]
    fn prices_and_usage_without_further_parts_take_no_further_bytes() {
        let three = Price::flat(Rates::of_three(nanos(100), nanos(25), nanos(400)));
        let message = v1::Price::from(&three);
        assert_eq!(
            message.encoded_len(),
            v1::Price { input: 100, cached_input: 25, output: 400, ..v1::Price::default() }.encoded_len()
        );
        assert_eq!(message.encoded_len(), 7);
        assert_eq!(Price::try_from(message).unwrap(), three);
        let usage = v1::Usage::from(Usage::of(12, 4, 5));
        assert_eq!((usage.encoded_len(), Usage::from(usage)), (6, Usage::of(12, 4, 5)));
    }

    #[test]
    fn every_rate_tier_and_count_arrives() {
        let base = Rates::resolve([1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map(|n| Some(nanos(n)))).unwrap();
        let rates = Rates { request: NanoUsd::ZERO, cache_write: nanos(1), ..base };
        let price =
            Price { base, tiers: vec![Tier { above: 200_000, rates }, Tier { above: 300_000, rates: base }] };
        assert_eq!(Price::try_from(v1::Price::from(&price)).unwrap(), price);
        let [cache_write, cache_write_long, audio_input, images, reasoning, audio_output] =
            [1, 2, 3, 4, 5, 6];
        let details =
            UsageDetails { cache_write, cache_write_long, audio_input, images, reasoning, audio_output };
        let usage = Usage { details, ..Usage::of(7, 8, 9) };
        assert_eq!(Usage::from(v1::Usage::from(usage)), usage);
    }

    #[test]
    fn prices_that_cannot_be_billed_are_refused() {
        let three = v1::Price { input: 1, cached_input: 1, output: 1, ..v1::Price::default() };
        let tier = |above| v1::PriceTier { above, rates: Some(three.clone()) };
        for (wrong, problem) in [
            (v1::Price { input: -1, ..three.clone() }, "has a price that is negative or beyond"),
            (
                v1::Price { request: Some(i64::MAX), ..three.clone() },
                "has a price that is negative or beyond",
            ),
            (v1::Price { tiers: vec![tier(9), tier(9)], ..three.clone() }, "has tiers that do not rise"),
            (
                v1::Price { tiers: vec![v1::PriceTier { above: 9, rates: None }], ..three.clone() },
                "without rates",
            ),
        ] {
            let found = Price::try_from(wrong).unwrap_err().to_string();
            assert!(found.starts_with("`hold.price` ") && found.contains(problem), "{found}");
        }
    }
}
