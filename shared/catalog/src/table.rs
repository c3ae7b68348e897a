//! Tables of prices and costs in the catalogue, and the checks of a table.

use std::ops::Range;

use serde::{Deserialize, Deserializer};
use shared::money::NanoUsd;
use toml::Spanned;

use crate::price::{Price, Rates, Tier, WrittenRates, borders, continued};

/// A fault and its location in the file. Without a location, the error names the line of the model's id.
pub(super) type Fault = (Option<Range<usize>>, String);

/// A table with rates: `[model.price]`, `[model.upstream.cost]`, or a tier of one of these.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTable {
    input: Option<NanoUsd>,
    cached_input: Option<NanoUsd>,
    output: Option<NanoUsd>,
    cache_write: Option<NanoUsd>,
    cache_write_long: Option<NanoUsd>,
    reasoning: Option<NanoUsd>,
    audio_input: Option<NanoUsd>,
    audio_output: Option<NanoUsd>,
    image: Option<NanoUsd>,
    request: Option<NanoUsd>,
    /// Number of prompt tokens above which the tier applies.
    prompt_tokens: Option<Spanned<u64>>,
    #[serde(default)]
    above: Vec<Spanned<RawTable>>,
}

impl RawTable {
    /// Checks a table and returns the price in it, with its tiers.
    pub(super) fn check(table: Spanned<Self>) -> Result<Price, Fault> {
        let (at, mut table) = (table.span(), table.into_inner());
        if let Some(border) = table.prompt_tokens {
            return Err((
                Some(border.span()),
                "has `prompt_tokens` outside a tier ([[model.price.above]])".into(),
            ));
        }
        let mut written = table.written();
        let base = Rates::resolve(written).ok_or_else(|| (Some(at.clone()), missing(&written)))?;
        in_range(base, &at)?;
        let mut tiers: Vec<Tier> = Vec::new();
        for tier in std::mem::take(&mut table.above) {
            let (at, tier) = (tier.span(), tier.into_inner());
            let own = tier.written();
            if own.iter().all(Option::is_none) || !tier.above.is_empty() {
                return Err((Some(at), "has a tier without rates, or with a nested tier".into()));
            }
            let border = tier
                .prompt_tokens
                .ok_or_else(|| (Some(at.clone()), "has a tier without `prompt_tokens`".to_owned()))?;
            let (border_at, above) = (border.span(), border.into_inner());
            if above <= tiers.last().map_or(0, |before| before.above) {
                let reason =
                    "has a tier whose `prompt_tokens` are 0, or not above those of the tier before it";
                return Err((Some(border_at), reason.into()));
            }
            written = continued(written, own);
            let rates = Rates::resolve(written).ok_or_else(|| (Some(at.clone()), missing(&written)))?;
            in_range(rates, &at)?;
            tiers.push(Tier { above, rates });
        }
        Ok(Price { base, tiers })
    }

    const fn written(&self) -> WrittenRates {
        [
            self.input,
            self.cached_input,
            self.output,
            self.cache_write,
            self.cache_write_long,
            self.reasoning,
            self.audio_input,
            self.audio_output,
            self.image,
            self.request,
        ]
    }
}

fn missing(written: &WrittenRates) -> String {
    let name = Rates::FIELDS.iter().zip(written).find_map(|(name, rate)| rate.is_none().then_some(name));
    format!("has no `{}` among its prices", name.copied().unwrap_or_default())
}

fn in_range(rates: Rates, at: &Range<usize>) -> Result<(), Fault> {
    Price::flat(rates).fault().map_or(Ok(()), |fault| Err((Some(at.clone()), fault.into())))
}

/// Factor by which a cost is multiplied to get the price, in billionths. It is at least 1.
#[derive(Clone, Copy)]
pub(super) struct Markup(i64);

impl<'de> Deserialize<'de> for Markup {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        // A factor may have as many decimals as an amount of money, so it is parsed like one.
        let factor = NanoUsd::parse(&text).ok().filter(|factor| *factor >= NanoUsd::from_usd(1));
        factor.map(|factor| Self(factor.nanos())).ok_or_else(|| {
            serde::de::Error::custom(format!("a markup must be a number of at least 1, not `{text}`"))
        })
    }
}

impl Markup {
    /// Makes a model's price from the costs of its upstreams. Each rate is made from the highest cost, and rounded up.
    ///
    /// `None` if a rate would exceed the largest amount.
    pub(super) fn on(self, costs: &[&Price]) -> Option<Price> {
        let at = |prompt| self.times(dearest(costs, prompt));
        let base = at(0)?;
        let tiers =
            borders(costs).into_iter().map(|above| Some(Tier { above, rates: at(above.saturating_add(1))? }));
        Some(Price { base, tiers: tiers.collect::<Option<_>>()? })
    }

    fn times(self, rates: Rates) -> Option<Rates> {
        let product =
            |rate: NanoUsd| (i128::from(rate.nanos()) * i128::from(self.0) + 999_999_999) / 1_000_000_000;
        // A product that exceeds the largest amount becomes `i64::MAX`, which is out of range.
        let product = |rate| NanoUsd::from_nanos(i64::try_from(product(rate)).unwrap_or(i64::MAX));
        let rates = Rates::of_array(rates.to_array().map(product));
        Price::flat(rates).fault().is_none().then_some(rates)
    }
}

fn dearest(costs: &[&Price], prompt: u64) -> Rates {
    let mut dearest = [NanoUsd::ZERO; crate::price::RATES];
    for cost in costs {
        for (most, rate) in dearest.iter_mut().zip(cost.rates(prompt).to_array()) {
            *most = rate.max(*most);
        }
    }
    Rates::of_array(dearest)
}
