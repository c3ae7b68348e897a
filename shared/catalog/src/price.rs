//! A model's prices: rates per token, per image and per request, which may depend on the prompt's size.

use std::fmt;

use serde::{Deserialize, Serialize};
use shared::money::NanoUsd;

/// What a model or an upstream charges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Price {
    /// Rates of requests whose prompts are below all tiers.
    pub base: Rates,
    /// Tiers, sorted by `above`, which differs from tier to tier. Most models have no tiers.
    pub tiers: Vec<Tier>,
}

/// Rates for requests with a prompt of more than `above` tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tier {
    /// A request is billed entirely at these rates if its prompt has more tokens than this.
    pub above: u64,
    pub rates: Rates,
}

macro_rules! rates {
    ($($(#[$doc:meta])* $rate:ident;)+) => {
        /// Rates in nano-USD: per million tokens, per image and per request. A rate that equals its default is left out
        /// of messages and files.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(into = "Vec<Option<i64>>", try_from = "Vec<Option<i64>>")]
        pub struct Rates { $($(#[$doc])* pub $rate: NanoUsd),+ }

        impl Rates {
            /// Names of the rates in the catalogue, in the order of [`Rates::to_array`].
            pub const FIELDS: [&'static str; RATES] = [$(stringify!($rate)),+];

            /// Makes rates from amounts, which are in the order of [`Rates::FIELDS`].
            pub const fn of_array([$($rate),+]: [NanoUsd; RATES]) -> Self {
                Self { $($rate),+ }
            }

            /// Returns the rates in the order of [`Rates::FIELDS`].
            pub const fn to_array(self) -> [NanoUsd; RATES] {
                [$(self.$rate),+]
            }
        }
    };
}

rates! {
    input;
    /// Prompt tokens that the upstream read from its cache.
    cached_input;
    output;
    /// Prompt tokens that the upstream wrote to its cache. Default: `input`.
    cache_write;
    /// Prompt tokens that the upstream wrote to its cache for an hour or longer. Default: `cache_write`.
    cache_write_long;
    /// Reasoning tokens of the output. Default: `output`.
    reasoning;
    /// Audio tokens of the prompt. Default: `input`.
    audio_input;
    /// Generated audio tokens. Default: `output`.
    audio_output;
    /// Each image of the prompt, in addition to its tokens. Default: zero.
    image;
    /// Each request, in addition to its tokens. Default: zero.
    request;
}

/// The same rate in two prices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RatePair {
    /// Index of the rate in [`Rates::FIELDS`].
    pub field: usize,
    /// Number of prompt tokens above which the two rates apply; `None` for the rates below all tiers.
    pub above: Option<u64>,
    /// The rate in the first price.
    pub first: NanoUsd,
    /// The rate in the second price.
    pub second: NanoUsd,
}

/// Writes the name of the rate and the tier to which it belongs.
impl fmt::Display for RatePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", Rates::FIELDS[self.field])?;
        self.above.map_or(Ok(()), |above| write!(f, " above {above} prompt tokens"))
    }
}

pub const RATES: usize = 10;

/// Rates in the order of [`Rates::FIELDS`]. A rate is `None` if its default applies.
pub type WrittenRates = [Option<NanoUsd>; RATES];

impl Price {
    /// Makes a price with the same rates for prompts of every size.
    pub const fn flat(base: Rates) -> Self {
        Self { base, tiers: Vec::new() }
    }

    /// Returns the rates of a request with this many prompt tokens.
    pub fn rates(&self, prompt: u64) -> &Rates {
        let reached = self.tiers.iter().rev().find(|tier| prompt > tier.above);
        reached.map_or(&self.base, |tier| &tier.rates)
    }

    /// Pairs each rate with the same rate of the other price: below all tiers, and above the border of each tier of the
    /// two prices.
    pub fn beside(&self, other: &Self) -> impl Iterator<Item = RatePair> {
        let tiers = [None].into_iter().chain(borders(&[self, other]).into_iter().map(Some));
        tiers.flat_map(move |above| {
            let prompt = above.map_or(0, |above| above.saturating_add(1));
            let pairs = self.rates(prompt).to_array().into_iter().zip(other.rates(prompt).to_array());
            pairs.enumerate().map(move |(field, (first, second))| RatePair { field, above, first, second })
        })
    }

    /// Returns the reason why this price cannot be billed, if there is one: a rate is out of range, or the tiers are
    /// out of order.
    pub fn fault(&self) -> Option<&'static str> {
        let rates = self.tiers.iter().map(|tier| tier.rates).chain([self.base]);
        if rates.flat_map(Rates::to_array).any(|rate| !(NanoUsd::ZERO..=NanoUsd::MAX).contains(&rate)) {
            return Some("has a price that is negative or above 9000000 USD");
        }
        let rises = self.tiers.windows(2).all(|pair| pair[0].above < pair[1].above);
        (!rises).then_some("has tiers that are not in rising order")
    }
}

impl Rates {
    /// Makes rates from these three, with defaults for all others.
    pub const fn of_three(input: NanoUsd, cached_input: NanoUsd, output: NanoUsd) -> Self {
        Self {
            input,
            cached_input,
            output,
            cache_write: input,
            cache_write_long: input,
            reasoning: output,
            audio_input: input,
            audio_output: output,
            image: NanoUsd::ZERO,
            request: NanoUsd::ZERO,
        }
    }

    /// Fills in defaults. Returns `None` if one of the first three rates is missing: they have no default.
    pub fn resolve(written: WrittenRates) -> Option<Self> {
        let [input, cached_input, output, cache_write, ..] = written;
        let default = Self::of_three(input?, cached_input?, output?);
        let default = default.writing_long_at(cache_write.unwrap_or(default.cache_write)).to_array();
        Some(Self::of_array(std::array::from_fn(|field| written[field].unwrap_or(default[field]))))
    }

    /// Returns the rates from which [`Rates::resolve`] makes these rates. Defaults are left out.
    pub fn written(self) -> WrittenRates {
        let default = Self::of_three(self.input, self.cached_input, self.output);
        let (default, rates) = (default.writing_long_at(self.cache_write).to_array(), self.to_array());
        // The first three rates have no default.
        std::array::from_fn(|field| (field < 3 || rates[field] != default[field]).then_some(rates[field]))
    }

    const fn writing_long_at(self, cache_write_long: NanoUsd) -> Self {
        Self { cache_write_long, ..self }
    }
}

/// Takes each rate that a tier leaves out from the table before the tier. Defaults are filled in only later, so a
/// tier's own `input` is the default of its `cache_write`.
pub fn continued(before: WrittenRates, own: WrittenRates) -> WrittenRates {
    std::array::from_fn(|field| own[field].or(before[field]))
}

pub(super) fn borders(prices: &[&Price]) -> Vec<u64> {
    let mut borders: Vec<u64> = prices.iter().flat_map(|price| &price.tiers).map(|tier| tier.above).collect();
    borders.sort_unstable();
    borders.dedup();
    borders
}

impl From<Rates> for Vec<Option<i64>> {
    fn from(rates: Rates) -> Self {
        let mut row: Self = rates.written().map(|rate| rate.map(NanoUsd::nanos)).into();
        let last = row.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        row.truncate(last);
        row
    }
}

impl TryFrom<Vec<Option<i64>>> for Rates {
    type Error = &'static str;

    fn try_from(mut row: Vec<Option<i64>>) -> Result<Self, Self::Error> {
        row.resize(RATES.max(row.len()), None);
        let row: [_; RATES] = row.try_into().map_err(|_| "more rates than are known")?;
        Self::resolve(row.map(|rate| rate.map(NanoUsd::from_nanos)))
            .ok_or("a rate without a default is missing")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(row: [i64; RATES]) -> Rates {
        Rates::of_array(row.map(NanoUsd::from_nanos))
    }

    #[test]
    fn rates_are_written_without_defaults_and_read_back_the_same() {
        for (rates, row) in [
            (rates([5, 1, 9, 5, 5, 9, 5, 9, 0, 0]), "[5,1,9]"),
            (rates([5, 1, 9, 6, 6, 9, 5, 9, 0, 0]), "[5,1,9,6]"),
            (rates([5, 1, 9, 6, 5, 9, 5, 9, 0, 0]), "[5,1,9,6,5]"),
            (rates([5, 1, 9, 5, 7, 9, 5, 8, 0, 0]), "[5,1,9,null,7,null,null,8]"),
            (rates([0, 0, 0, 1, 2, 3, 4, 5, 6, 7]), "[0,0,0,1,2,3,4,5,6,7]"),
        ] {
            assert_eq!(serde_json::to_string(&rates).unwrap(), row);
            assert_eq!(serde_json::from_str::<Rates>(row).unwrap(), rates);
        }
        for wrong in ["[]", "[1,2]", "[1,null,3]", "[1,2,3,4,5,6,7,8,9,10,11]"] {
            assert!(serde_json::from_str::<Rates>(wrong).is_err(), "{wrong}");
        }
    }
}
