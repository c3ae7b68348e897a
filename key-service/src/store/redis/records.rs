//! Formats of records in Redis: packed numbers that the scripts read with `struct`, and hashes of texts.
//!
//! Numbers are big-endian doubles, exact below 2^53. An unset limit or time is infinite. Texts at the end of a record
//! have a length of two bytes in front, so that records can follow each other.

mod bills;
mod budgets;
mod funds;
mod groups;
mod keys;
mod members;

use std::collections::HashMap;

use shared::money::NanoUsd;

use crate::store::StoreError;
pub(super) use crate::store::records::{Reader, double, payer as write_payer};
use domain::settings::Metadata;

pub(super) use self::{
    bills::{
        BILL_SIZE, HoldSummary, further_parts, read_counts, read_entries, read_hold, read_settlement,
        write_bill,
    },
    budgets::{
        group_field, opening_field, read_group_spend, read_spend, write_group_spend, write_rest,
        write_rotation, write_spend,
    },
    funds::{FUNDS, FundsRecord, read_deposit, write_note},
    groups::{read_group, write_group},
    keys::{
        KEY_TEXTS, KeyTexts, read_key, read_management_key, write_changed_key, write_key,
        write_management_key,
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

/// Reads a number that may be infinite, which means absent: `convert` is then not called.
fn setting<T>(reader: &mut Reader<'_>, convert: impl FnOnce(i64) -> T) -> Option<Setting<T>> {
    let number = reader.double()?;
    if number.is_finite() {
        return Reader(&number.to_be_bytes()).number().map(|n| Setting(Some(convert(n))));
    }
    Some(Setting(None))
}

/// Reads a sum that may exceed 2^53.
fn sum(reader: &mut Reader<'_>) -> Option<NanoUsd> {
    let (high, low) = (reader.number()?, reader.number()?);
    high.checked_mul(CARRY)?.checked_add(low).map(NanoUsd::from_nanos)
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

/// Writes metadata as text; `None` without any.
pub(super) fn write_metadata(metadata: &Metadata) -> Option<String> {
    (!metadata.is_empty()).then(|| serde_json::json!(metadata).to_string())
}

fn read_metadata(text: Option<&str>) -> Result<Metadata, StoreError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(Metadata::new()) };
    serde_json::from_str(text).map_err(|_| damaged("metadata"))
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
