//! SQL statements, by table, with the traits that they implement. This module makes no decisions.

pub(super) mod accounts;
pub(super) mod budgets;
pub(super) mod events;
pub(super) mod groups;
pub(super) mod holds;
mod idempotency;
pub(super) mod journal;
pub(super) mod keys;
mod moving;
mod refused;
pub(super) mod spend;
pub(super) mod usage;
mod webhooks;

use rusqlite::{Row, types::Type};
use shared::{
    ids::{GroupId, KeyId},
    money::NanoUsd,
    time::Timestamp,
    tokens::Usage,
};

use crate::store::records;
use domain::{
    ledger::{Bounds, Budget, Payer, Progress},
    settings::Metadata,
};

/// Reads an id from a column; `from` is the id type's `from_slice`.
pub(super) fn id<T>(row: &Row<'_>, column: usize, from: fn(&[u8]) -> Option<T>) -> rusqlite::Result<T> {
    let bytes = row.get_ref(column)?.as_blob()?;
    from(bytes).ok_or_else(|| damaged(column, Type::Blob, "an id has 16 bytes"))
}

pub(super) fn money(row: &Row<'_>, column: usize) -> rusqlite::Result<NanoUsd> {
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

/// A `LIMIT` of this many rows.
pub(super) fn rows(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A payer whose columns begin with this one: key, model, group and parent.
fn payer(row: &Row<'_>, first: usize) -> rusqlite::Result<Payer> {
    Ok(Payer {
        key: id(row, first, KeyId::from_slice)?,
        model: row.get(first + 1)?,
        groups: [group_if_any(row, first + 2)?, group_if_any(row, first + 3)?],
    })
}

/// A group's id; none in an absent or empty value.
fn group_if_any(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<GroupId>> {
    match row.get_ref(column)?.as_blob_or_null()? {
        None | Some([]) => Ok(None),
        Some(_) => id(row, column, GroupId::from_slice).map(Some),
    }
}

/// Progress whose columns begin with this one: prompt, cached, completion, details, cost and upstream cost.
fn progress(row: &Row<'_>, first: usize) -> rusqlite::Result<Progress> {
    let details = row.get_ref(first + 3)?.as_blob_or_null()?.unwrap_or_default();
    let details = records::read_details(details)
        .ok_or_else(|| damaged(first + 3, Type::Blob, "details of a usage cannot be read"))?;
    Ok(Progress {
        usage: Usage {
            prompt: tokens(row, first)?,
            cached: tokens(row, first + 1)?,
            completion: tokens(row, first + 2)?,
            details,
        },
        cost: money(row, first + 4)?,
        upstream_cost: row.get::<_, Option<i64>>(first + 5)?.map(NanoUsd::from_nanos),
    })
}

/// Details of a usage as a column's value; absent where all are zero.
fn details(usage: Usage) -> Option<Vec<u8>> {
    Some(records::details(usage.details)).filter(|record| !record.is_empty())
}

/// Columns of a budget whose columns begin with this one: limit, used, held and bounds.
fn budget(row: &Row<'_>, first: usize) -> rusqlite::Result<Budget> {
    Ok(Budget {
        limit: row.get::<_, Option<i64>>(first)?.map(NanoUsd::from_nanos),
        used: money(row, first + 1)?,
        held: money(row, first + 2)?,
        bounds: bounds_from(row, first + 3)?,
    })
}

fn bounds_from(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Box<Bounds>>> {
    let Some(record) = row.get_ref(column)?.as_blob_or_null()? else { return Ok(None) };
    let bounds = records::read_bounds(record);
    bounds
        .map(|bounds| Some(Box::new(bounds)))
        .ok_or_else(|| damaged(column, Type::Blob, "bounds cannot be read"))
}

/// Bounds as a column's value.
fn bounds(budget: &Budget) -> Option<Vec<u8>> {
    budget.bounds.as_deref().map(records::bounds)
}

/// Metadata of a column; none in an absent value.
fn metadata(row: &Row<'_>, column: usize) -> rusqlite::Result<Metadata> {
    let Some(text) = row.get_ref(column)?.as_str_or_null()? else { return Ok(Metadata::new()) };
    serde_json::from_str(text).map_err(|_| damaged(column, Type::Text, "metadata cannot be read"))
}

/// Metadata as a column's value.
fn metadata_column(metadata: &Metadata) -> Option<String> {
    (!metadata.is_empty()).then(|| serde_json::json!(metadata).to_string())
}

pub(super) fn damaged(column: usize, found: Type, reason: &str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, found, reason.into())
}
