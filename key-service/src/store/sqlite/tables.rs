//! SQL statements, by table; statements on members are in `members.rs`. This module makes no decisions.

pub(super) mod accounts;
pub(super) mod journal;
pub(super) mod keys;
pub(super) mod management_keys;
pub(super) mod records;
pub(super) mod spend;
pub(super) mod usage;

use rusqlite::{Row, types::Type};
use shared::{money::NanoUsd, time::Timestamp, tokens::Usage};

/// Reads an id from a column; `from` is the id type's `from_slice`.
pub(super) fn id<T>(row: &Row<'_>, column: usize, from: fn(&[u8]) -> Option<T>) -> rusqlite::Result<T> {
    let bytes = row.get_ref(column)?.as_blob()?;
    from(bytes).ok_or_else(|| damaged(column, Type::Blob, "an id has 16 bytes"))
}

fn money(row: &Row<'_>, column: usize) -> rusqlite::Result<NanoUsd> {
    row.get(column).map(NanoUsd::from_nanos)
}

pub(super) fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    row.get(column).map(Timestamp::from_millis)
}

fn time_if_any(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_millis))
}

/// Reads a count of tokens. SQLite has no unsigned integers, so the same 64 bits are stored signed, even for absurd
/// counts of an upstream.
fn tokens(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get(column).map(i64::cast_unsigned)
}

fn usage_from(row: &Row<'_>, first: usize) -> rusqlite::Result<Usage> {
    Ok(Usage::of(tokens(row, first)?, tokens(row, first + 1)?, tokens(row, first + 2)?))
}

pub(super) fn damaged(column: usize, found: Type, reason: &str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, found, reason.into())
}
