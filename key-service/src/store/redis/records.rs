//! Formats of records in Redis: packed numbers that the scripts read with `struct`, and hashes of texts.
//!
//! Numbers are big-endian doubles, exact below 2^53. An unset limit or time is infinite. Texts at the end of a record
//! have a length of two bytes in front, so that records can follow each other.

mod bills;
mod funds;
mod keys;
mod members;

use std::collections::HashMap;

use shared::{ids::KeyId, money::NanoUsd, tokens::Usage};

use crate::store::StoreError;

pub(super) use self::{
    bills::{BILL_SIZE, read_counts, read_entries, read_hold, read_settlement, write_bill, write_payer},
    funds::{FUNDS, FundsRecord},
    keys::{
        KEY_TEXTS, KeyTexts, read_key, read_management_key, read_spend, write_key, write_management_key,
        write_spend,
    },
    members::{read_expiring, read_member, write_expiring, write_last_link, write_member},
};

/// A hash of texts.
pub(super) type Fields = HashMap<String, String>;

/// Fields and values of a hash, and the cursor for the rest (`HSCAN`).
pub(super) type Scanned = (String, Vec<(Vec<u8>, Vec<u8>)>);

/// Sums above 2^53 are stored as a multiple of this number and a remainder.
const CARRY: i64 = 1_000_000_000_000_000;

/// A limit or a time that may be absent.
struct Setting<T>(Option<T>);

/// Reads a record from the beginning.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn double(&mut self) -> Option<f64> {
        Some(f64::from_be_bytes(self.bytes()?))
    }

    /// A number that is always set.
    #[expect(clippy::cast_possible_truncation, reason = "a whole number that is far below 2^63")]
    fn number(&mut self) -> Option<i64> {
        self.double().filter(|n| n.is_finite()).map(|n| n as i64)
    }

    /// A number that may be infinite, which means absent: `convert` is then not called.
    fn optional<T>(&mut self, convert: impl FnOnce(i64) -> T) -> Option<Setting<T>> {
        let mut rest = Self(self.0);
        if self.double()?.is_finite() {
            return rest.number().map(|n| Setting(Some(convert(n))));
        }
        Some(Setting(None))
    }

    fn money(&mut self) -> Option<NanoUsd> {
        self.number().map(NanoUsd::from_nanos)
    }

    /// A sum that may exceed 2^53.
    fn sum(&mut self) -> Option<NanoUsd> {
        let (high, low) = (self.number()?, self.number()?);
        high.checked_mul(CARRY)?.checked_add(low).map(NanoUsd::from_nanos)
    }

    fn count(&mut self) -> Option<u64> {
        self.number().and_then(|n| u64::try_from(n).ok())
    }

    fn key(&mut self) -> Option<KeyId> {
        KeyId::from_slice(self.take(16)?)
    }

    /// The id of a key, and a model.
    pub(super) fn payer(&mut self) -> Option<(KeyId, String)> {
        let key = self.key()?;
        let length = u16::from_be_bytes(self.bytes()?);
        Some((key, String::from_utf8(self.take(length.into())?.to_vec()).ok()?))
    }

    fn usage(&mut self) -> Option<Usage> {
        let mut tokens = || Some(u64::from_be_bytes(self.bytes()?));
        Some(Usage::of(tokens()?, tokens()?, tokens()?))
    }
}

/// Encodes a number for the scripts.
#[expect(
    clippy::cast_precision_loss,
    reason = "callers keep to whole numbers below 2^53, or mean more than anyone owns"
)]
pub(super) fn double(n: i64) -> [u8; 8] {
    (n as f64).to_be_bytes()
}

fn optional(n: Option<i64>) -> [u8; 8] {
    n.map_or_else(|| f64::INFINITY.to_be_bytes(), double)
}

/// Encodes an amount for the ledger. Amounts above the largest are cut to a nano-USD more than the largest, which keeps
/// the decision.
pub(super) fn amount(amount: NanoUsd) -> i64 {
    amount.nanos().clamp(-1, NanoUsd::MAX.nanos() + 1)
}

/// Encodes a change of a limit or a time for a script; empty for no change.
pub(super) fn write_setting(value: Option<i64>) -> Vec<u8> {
    optional(value).to_vec()
}

/// Names and values of a hash's fields in turn, without absent values.
fn fields<const N: usize>(fields: [(&str, Option<String>); N]) -> Vec<String> {
    let present = fields.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value?]));
    present.flatten().collect()
}

fn text(fields: &Fields, name: &'static str) -> Result<String, StoreError> {
    fields.get(name).cloned().ok_or_else(|| damaged(name))
}

fn number(fields: &Fields, name: &'static str) -> Result<Option<i64>, StoreError> {
    fields.get(name).map(|text| text.parse().map_err(|_| damaged(name))).transpose()
}

fn required(fields: &Fields, name: &'static str) -> Result<i64, StoreError> {
    number(fields, name)?.ok_or_else(|| damaged(name))
}

/// Error of a record that this program did not write.
pub(super) fn damaged(what: &str) -> StoreError {
    StoreError::Damaged(format!("Redis: {what}"))
}
