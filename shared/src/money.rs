//! Money: whole numbers of nano-USD, which are exact from the JSON that comes in to the JSON that goes out.

use std::fmt;

use minicbor::{Decode, Encode};
use schemars::json_schema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

const NANOS_PER_USD: i64 = 1_000_000_000;

/// Number of decimal places of an amount in dollars.
const DECIMALS: i64 = 9;

/// An amount in nano-USD (1e-9 $).
///
/// It has no `Add` and `Sub`, because arithmetic on money can fail. Its methods return an `Option` instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct NanoUsd(#[n(0)] i64);

impl NanoUsd {
    pub const ZERO: Self = Self(0);

    /// The largest amount that is stored: 9,000,000 $. It is below 2^53 nano-USD, so that it stays exact in JSON
    /// parsers that use doubles.
    pub const MAX: Self = Self(9_000_000 * NANOS_PER_USD);

    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Makes an amount from dollars. If it exceeds the range of an `i64`, it is the largest or smallest `i64`.
    pub const fn from_usd(usd: i64) -> Self {
        Self(usd.saturating_mul(NANOS_PER_USD))
    }

    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// Returns the sum; `None` if it is outside the range of an `i64`.
    #[must_use]
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }

    /// Returns the difference; `None` if it is outside the range of an `i64`.
    #[must_use]
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }

    /// Returns what is left of this amount after `other` is subtracted, but at least zero.
    #[must_use]
    pub const fn left_after(self, other: Self) -> Self {
        let rest = self.0.saturating_sub(other.0);
        if rest < 0 { Self::ZERO } else { Self(rest) }
    }

    /// Parses a decimal number exactly. It must follow JSON's grammar of numbers (`25`, `0.5`, `1e-3`, `-0`).
    ///
    /// A number with more than nine decimals is rounded half to even. If it is not zero but would be rounded to zero,
    /// it is refused, because zero was hardly meant. `-0` is zero.
    pub fn parse(number: &str) -> Result<Self, MoneyError> {
        let decimal = Decimal::scan(number).ok_or(MoneyError::NotANumber)?;
        let nanos = decimal.to_nanos()?;
        if nanos == 0 && !decimal.is_zero() {
            return Err(MoneyError::RoundsToZero);
        }
        Ok(Self(if decimal.negative { -nanos } else { nanos }))
    }
}

/// Reason why a text is not an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    /// The text does not follow JSON's grammar of numbers.
    #[error("is not a number")]
    NotANumber,
    /// The number has more digits before the point than an amount can hold.
    #[error("is out of range")]
    OutOfRange {
        /// True if the number is below the range, false if it is above.
        negative: bool,
    },
    /// The number is not zero, but is less than half a nano-USD.
    #[error("is smaller than half of 0.000000001 USD, the smallest unit")]
    RoundsToZero,
}

/// Writes plain decimals without an exponent: `25`, `0.004215`, `0.000000001`.
impl fmt::Display for NanoUsd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, nanos) = (self.0.unsigned_abs() / 1_000_000_000, self.0.unsigned_abs() % 1_000_000_000);
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let mut digits = itoa::Buffer::new();
        f.write_str(digits.format(whole))?;
        if nanos > 0 {
            // The added 1 keeps the zeros after the point, and is then cut off.
            let decimals = &digits.format(1_000_000_000 + nanos)[1..];
            f.write_str(".")?;
            f.write_str(decimals.trim_end_matches('0'))?;
        }
        Ok(())
    }
}

/// Writes a JSON number directly from the integer, without a float in between.
impl Serialize for NanoUsd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RawValue::from_string(self.to_string()).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

crate::schema!(
    NanoUsd,
    "Usd",
    |_| json_schema!({"type": "number", "description": "US dollars, exact to nine decimal places."})
);

/// Reads a number in a string, as configuration files contain it. Numbers of the API are parsed from raw JSON instead.
impl<'de> Deserialize<'de> for NanoUsd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(|e| serde::de::Error::custom(format!("`{text}` {e}")))
    }
}

struct Decimal {
    negative: bool,
    /// The significant digits, without leading zeros. Each is a value from 0 to 9.
    digits: Vec<u8>,
    /// The power of ten that the last digit stands for.
    exponent: i64,
}

impl Decimal {
    /// Reads a number in JSON's grammar: `-? (0|[1-9][0-9]*) (\.[0-9]+)? ([eE][+-]?[0-9]+)?`.
    fn scan(text: &str) -> Option<Self> {
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, Some(exponent)),
            None => (rest, None),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((_, "")) => return None,
            Some((whole, fraction)) => (whole, fraction),
            None => (mantissa, ""),
        };
        let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty()
            || (whole.len() > 1 && whole.starts_with('0'))
            || !all_digits(whole)
            || !all_digits(fraction)
        {
            return None;
        }
        let shift = match exponent {
            None => 0,
            Some(e) => scan_exponent(e)?,
        };
        let digits =
            whole.bytes().chain(fraction.bytes()).map(|b| b - b'0').skip_while(|d| *d == 0).collect();
        let decimals = i64::try_from(fraction.len()).ok()?;
        Some(Self { negative, digits, exponent: shift.saturating_sub(decimals) })
    }

    fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    /// Returns the number without its sign, in nano-USD and rounded half to even.
    fn to_nanos(&self) -> Result<i64, MoneyError> {
        if self.is_zero() {
            return Ok(0);
        }
        let too_large = MoneyError::OutOfRange { negative: self.negative };
        // The power of ten that the last digit stands for, in nano-USD.
        let shift = self.exponent.saturating_add(DECIMALS);
        if shift >= 0 {
            let zeros = u32::try_from(shift).map_err(|_| too_large)?;
            let magnitude = fold(&self.digits).ok_or(too_large)?;
            return 10_i64.checked_pow(zeros).and_then(|p| magnitude.checked_mul(p)).ok_or(too_large);
        }
        // The digits after the ninth decimal are cut off. They decide how the number is rounded.
        let cut = usize::try_from(shift.unsigned_abs()).unwrap_or(usize::MAX);
        if cut > self.digits.len() {
            return Ok(0);
        }
        let (kept, dropped) = self.digits.split_at(self.digits.len() - cut);
        let magnitude = fold(kept).ok_or(too_large)?;
        let above_half = dropped[0] > 5 || (dropped[0] == 5 && dropped[1..].iter().any(|d| *d > 0));
        let exactly_half = dropped[0] == 5 && !above_half;
        let up = above_half || (exactly_half && magnitude % 2 == 1);
        magnitude.checked_add(i64::from(up)).ok_or(too_large)
    }
}

/// Returns the value of the exponent. An absurdly large exponent becomes the largest `i64`, and an absurdly small one
/// the smallest. The amount is then out of range or is rounded to zero, as it should be.
fn scan_exponent(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let magnitude = digits.parse::<i64>().unwrap_or(i64::MAX / 2);
    Some(if text.starts_with('-') { -magnitude } else { magnitude })
}

fn fold(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0_i64, |n, d| n.checked_mul(10)?.checked_add(i64::from(*d)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nanos(text: &str) -> i64 {
        NanoUsd::parse(text).unwrap().nanos()
    }

    #[test]
    fn numbers_are_read_exactly() {
        assert_eq!(nanos("25"), 25_000_000_000);
        assert_eq!(nanos("0.004215"), 4_215_000);
        assert_eq!(nanos("1e-9"), 1);
        assert_eq!(nanos("2.5E1"), 25_000_000_000);
        assert_eq!(nanos("0.1"), 100_000_000);
        assert_eq!(nanos("-0"), 0);
        assert_eq!(nanos("-0.0e99999999999999999999"), 0);
        assert_eq!(nanos("-1"), -1_000_000_000);
        assert_eq!(nanos("0.0000000010000000000000000000000000000000000000"), 1);
    }

    #[test]
    fn more_than_nine_decimals_round_half_to_even() {
        assert_eq!(nanos("0.0000000015"), 2);
        assert_eq!(nanos("0.0000000025"), 2);
        assert_eq!(nanos("0.00000000250000001"), 3);
        assert_eq!(nanos("0.0000000009"), 1);
        assert_eq!(nanos("0.00000000051"), 1);
        assert_eq!(NanoUsd::parse("0.0000000005"), Err(MoneyError::RoundsToZero));
        assert_eq!(NanoUsd::parse("1e-400"), Err(MoneyError::RoundsToZero));
    }

    #[test]
    fn what_does_not_fit_is_refused_and_never_wrapped() {
        assert_eq!(NanoUsd::parse("1e300"), Err(MoneyError::OutOfRange { negative: false }));
        assert_eq!(NanoUsd::parse("-99999999999"), Err(MoneyError::OutOfRange { negative: true }));
        assert_eq!(NanoUsd::parse("1e99999999999999999999"), Err(MoneyError::OutOfRange { negative: false }));
    }

    #[test]
    fn what_json_calls_no_number_is_none() {
        for text in
            ["", "-", "01", "1.", ".5", "1e", "1e+", "+1", "NaN", "0x1", "1 ", "1_0", "١", "--1", "1.5.5"]
        {
            assert_eq!(NanoUsd::parse(text), Err(MoneyError::NotANumber), "{text:?}");
        }
    }

    #[test]
    fn amounts_are_written_without_exponent_or_trailing_zeros() {
        for (nanos, text) in [
            (25_000_000_000, "25"),
            (4_215_000, "0.004215"),
            (1, "0.000000001"),
            (0, "0"),
            (-1_500_000_000, "-1.5"),
        ] {
            assert_eq!(serde_json::to_string(&NanoUsd(nanos)).unwrap(), text);
        }
        assert_eq!(NanoUsd(i64::MIN).to_string(), "-9223372036.854775808");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_the_same(n in i64::MIN + 1..i64::MAX) {
            prop_assert_eq!(NanoUsd::parse(&NanoUsd(n).to_string()), Ok(NanoUsd(n)));
        }
    }
}
