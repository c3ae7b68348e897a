//! Idempotency keys: what the request of each has made, for a day.

use rusqlite::{Connection, OptionalExtension, Row, params, types::Type};
use shared::{ids::AccountId, time::Timestamp};

use super::{damaged, id as column_id};
use crate::store::Idempotency;
use domain::digest::Digest;

/// Number of expired idempotency keys that a call may remove: more than a call can add, so that none accumulate, and
/// few enough that a busy day's keys delay no caller.
const PRUNED_AT_ONCE: i64 = 64;

/// Outcome of an earlier attempt.
pub(super) enum Earlier<I> {
    /// The same request made, or changed, the object of this id.
    Made(I),
    /// The idempotency key was used with another request.
    OtherRequest,
}

/// Finds what a live idempotency key has made, if the attempt has one. `from` is the id type's `from_slice`.
pub(super) fn earlier<I>(
    connection: &Connection,
    account: AccountId,
    attempt: Option<&Idempotency>,
    from: fn(&[u8]) -> Option<I>,
) -> rusqlite::Result<Option<Earlier<I>>> {
    let Some(attempt) = attempt else { return Ok(None) };
    prune(connection, attempt.now)?;
    let sql = "SELECT request, made FROM idempotency WHERE account = ?1 AND key = ?2 AND expires_at > ?3";
    let params = params![account.as_bytes(), written(attempt), attempt.now.millis()];
    let record = |row: &Row<'_>| {
        let is_same = Digest::from_bytes(row.get(0)?) == attempt.request;
        Ok(if is_same { Earlier::Made(column_id(row, 1, from)?) } else { Earlier::OtherRequest })
    };
    connection.prepare_cached(sql)?.query_row(params, record).optional()
}

/// Keeps what the attempt has made, if it has an idempotency key.
pub(super) fn keep(
    connection: &Connection,
    account: AccountId,
    attempt: Option<&Idempotency>,
    made: &[u8; 16],
) -> rusqlite::Result<()> {
    let Some(attempt) = attempt else { return Ok(()) };
    // An expired idempotency key may not have been removed yet.
    let sql = "INSERT OR REPLACE INTO idempotency (account, key, request, made, expires_at)
               VALUES (?1, ?2, ?3, ?4, ?5)";
    connection.prepare_cached(sql)?.execute(params![
        account.as_bytes(),
        written(attempt),
        attempt.request.as_bytes(),
        made,
        attempt.expires_at.millis(),
    ])?;
    Ok(())
}

/// Returns the digest of an idempotency key, in the digits of its column. A file of an earlier version has the
/// idempotency keys themselves in this column: such rows are no longer found, and are pruned within a day.
fn written(attempt: &Idempotency) -> String {
    hex::encode(attempt.key.as_bytes())
}

fn prune(connection: &Connection, now: Timestamp) -> rusqlite::Result<()> {
    let sql = "DELETE FROM idempotency WHERE (account, key) IN
                   (SELECT account, key FROM idempotency WHERE expires_at <= ?1
                    ORDER BY expires_at LIMIT ?2)";
    connection.prepare_cached(sql)?.execute([now.millis(), PRUNED_AT_ONCE])?;
    Ok(())
}

/// Error of an object that a record names and the account lacks.
pub(super) fn missing() -> rusqlite::Error {
    damaged(0, Type::Null, "what an idempotency key made is missing")
}
