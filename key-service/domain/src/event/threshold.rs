//! Money thresholds that bills cross.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use shared::money::NanoUsd;

/// A threshold that a bill crossed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Threshold {
    pub bound: MoneyBound,
    /// Used share of the amount; for credit, the remaining share.
    pub percent: u8,
    /// Amount of the limit; for credit, the credit just after the last deposit.
    #[serde(deserialize_with = "usd")]
    pub amount: NanoUsd,
    /// Amount used; for a window, within the current window.
    #[serde(deserialize_with = "usd")]
    pub used: NanoUsd,
}

/// A limit on money. The names are wire format: add, never rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoneyBound {
    /// The lifetime limit of a key or a group.
    Limit,
    /// A limit for each hour.
    Hour,
    /// A limit for each day.
    Day,
    /// A limit for each week.
    Week,
    /// A limit for each month.
    Month,
    Credit,
}

impl MoneyBound {
    /// All limits, in the order of their numbers.
    pub const ALL: [Self; 6] = [Self::Limit, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Credit];
}

/// Parses an amount from a JSON number.
pub(super) fn usd<'de, D: Deserializer<'de>>(deserializer: D) -> Result<NanoUsd, D::Error> {
    let number = Box::<RawValue>::deserialize(deserializer)?;
    NanoUsd::parse(number.get()).map_err(serde::de::Error::custom)
}
