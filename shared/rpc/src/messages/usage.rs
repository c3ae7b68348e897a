//! Converts usage and prices to messages and back.

use std::sync::Arc;

use shared::{
    money::NanoUsd,
    tokens::{Usage, UsageDetails},
};
use shared_catalog::{Price, RATES, Rates, Tier};

use super::malformed::Malformed;
use crate::v1;

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
        let tier =
            |tier: &Tier| v1::PriceTier { above: tier.above, rates: Some(message(tier.rates, Vec::new())) };
        message(price.base, price.tiers.iter().map(tier).collect())
    }
}

impl TryFrom<v1::Price> for Price {
    type Error = Malformed;

    fn try_from(price: v1::Price) -> Result<Self, Malformed> {
        let fault = |problem: &str| Malformed { field: "hold.price", problem: problem.to_owned() };
        let base = rates(&price).ok_or_else(|| fault("has no rates"))?;
        let tier =
            |tier: v1::PriceTier| Some(Tier { above: tier.above, rates: rates(tier.rates.as_ref()?)? });
        let tiers = price.further.map_or_else(Vec::new, |further| further.tiers);
        let tiers = tiers.into_iter().map(tier).collect::<Option<_>>();
        let price = Self { base, tiers: tiers.ok_or_else(|| fault("has a tier without rates"))? };
        price.fault().map_or(Ok(price), |problem| Err(fault(problem)))
    }
}

pub(super) fn cost_message(cost: Option<&Arc<Price>>) -> v1::UpstreamCost {
    v1::UpstreamCost { price: cost.map(|price| price.as_ref().into()) }
}

pub(super) fn read_cost(cost: v1::UpstreamCost) -> Result<Option<Arc<Price>>, Malformed> {
    cost.price.map(|price| Price::try_from(price).map(Arc::new)).transpose()
}

fn message(rates: Rates, tiers: Vec<v1::PriceTier>) -> v1::Price {
    let [input, cached_input, output] = [rates.input, rates.cached_input, rates.output].map(NanoUsd::nanos);
    let written = rates.written().map(|rate| rate.map(NanoUsd::nanos));
    let [_, _, _, cache_write, cache_write_long, reasoning, audio_input, audio_output, image, request] =
        written;
    let further = v1::FurtherPrices {
        cache_write,
        cache_write_long,
        reasoning,
        audio_input,
        audio_output,
        image,
        request,
        tiers,
    };
    let further = (further != v1::FurtherPrices::default()).then(|| Box::new(further));
    v1::Price { input, cached_input, output, further }
}

fn rates(price: &v1::Price) -> Option<Rates> {
    let mut written: [Option<i64>; RATES] = [None; RATES];
    written[..3].copy_from_slice(&[price.input, price.cached_input, price.output].map(Some));
    if let Some(further) = price.further.as_deref() {
        written[3..].copy_from_slice(&[
            further.cache_write,
            further.cache_write_long,
            further.reasoning,
            further.audio_input,
            further.audio_output,
            further.image,
            further.request,
        ]);
    }
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
        assert_eq!((message.encoded_len(), &message.further), (7, &None));
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
        let three = v1::Price { input: 1, cached_input: 1, output: 1, further: None };
        let with = |further| v1::Price { further: Some(Box::new(further)), ..three.clone() };
        let tiers = |rates: Option<&v1::Price>| {
            let tier = v1::PriceTier { above: 9, rates: rates.cloned() };
            with(v1::FurtherPrices { tiers: vec![tier.clone(), tier], ..v1::FurtherPrices::default() })
        };
        let high = v1::FurtherPrices { request: Some(i64::MAX), ..v1::FurtherPrices::default() };
        for (wrong, problem) in [
            (v1::Price { input: -1, ..three.clone() }, "has a price that is negative or above"),
            (with(high), "has a price that is negative or above"),
            (tiers(Some(&three)), "has tiers that are not in rising order"),
            (tiers(None), "has a tier without rates"),
        ] {
            let found = Price::try_from(wrong).unwrap_err().to_string();
            assert!(found.starts_with("`hold.price` ") && found.contains(problem), "{found}");
        }
    }
}
