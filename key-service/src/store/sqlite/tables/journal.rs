//! The journal: the bill of every generation, and the corrections of bills.

use rusqlite::{Connection, OptionalExtension, Row, params, types::Type};
use shared::ids::{AccountId, GenerationId, KeyId};

use super::{damaged, id as column_id, money, time, usage_from};
use crate::store::{Found, JournalEntry};
use domain::{
    audit::{AuditedEntry, Auditor},
    ledger::{Ending, Entry, Payer, Settlement},
    search::{EntrySearch, Outcome},
    usage::Day,
};

/// Entries after a number, in ascending order.
pub(crate) fn page(
    connection: &Connection,
    account: AccountId,
    after: u64,
    limit: usize,
) -> rusqlite::Result<Vec<JournalEntry>> {
    let sql = "SELECT key, model, prompt, cached, completion, cost, charged, ending, estimated, at,
                      number, generation, delta, used_after
               FROM journal WHERE account = ?1 AND number > ?2 ORDER BY number LIMIT ?3";
    let (after, limit) = (i64::try_from(after).unwrap_or(i64::MAX), i64::try_from(limit).unwrap_or(i64::MAX));
    connection
        .prepare_cached(sql)?
        .query_map(params![account.as_bytes(), after, limit], entry_from)?
        .collect()
}

/// The latest entries, or the latest before a number; newest first.
pub(crate) fn latest(
    connection: &Connection,
    account: AccountId,
    before: Option<u64>,
    limit: usize,
) -> rusqlite::Result<Vec<JournalEntry>> {
    let sql = "SELECT key, model, prompt, cached, completion, cost, charged, ending, estimated, at,
                      number, generation, delta, used_after
               FROM journal WHERE account = ?1 AND number < ?2 ORDER BY number DESC LIMIT ?3";
    let before = before.and_then(|before| i64::try_from(before).ok()).unwrap_or(i64::MAX);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    connection
        .prepare_cached(sql)?
        .query_map(params![account.as_bytes(), before, limit], entry_from)?
        .collect()
}

/// Entries that a search reads at most: some ten milliseconds of work.
const MAX_READ: usize = 5_000;

/// The latest matching entries behind number `floor` and before number `before`; newest first. An index finds the
/// entries of a key, and the entries that are not an exact bill.
pub(crate) fn find(
    connection: &Connection,
    account: AccountId,
    search: &EntrySearch,
    (floor, before): (u64, u64),
    limit: usize,
) -> rusqlite::Result<Found<JournalEntry, u64>> {
    let of_index = match (search.key, search.outcome) {
        (Some(_), _) => "INDEXED BY journal_by_key WHERE key = ?4",
        (None, None | Some(Outcome::Captured)) => "WHERE ?4 IS NULL",
        (None, Some(Outcome::Estimated | Outcome::Expired | Outcome::Shortfall)) => {
            "INDEXED BY journal_unusual WHERE ?4 IS NULL AND (estimated OR ending = 'expired' OR cost > charged)"
        }
    };
    let of_outcome = match search.outcome {
        None => "TRUE",
        Some(Outcome::Captured) => "ending = 'captured' AND NOT estimated",
        Some(Outcome::Estimated) => "ending = 'captured' AND estimated",
        Some(Outcome::Expired) => "ending = 'expired'",
        Some(Outcome::Shortfall) => "cost > charged",
    };
    let read = format!(
        "SELECT * FROM journal {of_index} AND account = ?1 AND number > ?2 AND number < ?3
         ORDER BY number DESC LIMIT {MAX_READ}"
    );
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let key = search.key.as_ref().map(KeyId::as_bytes);
    let (floor, before) = (number(floor), number(before));
    // A row beyond `limit` shows that there are more.
    let wanted = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    // Rows come in the order of reading. With an ORDER BY, SQLite would read and sort all rows.
    let sql = format!(
        "SELECT key, model, prompt, cached, completion, cost, charged, ending, estimated, at,
                number, generation, delta, used_after
         FROM ({read}) WHERE (?5 IS NULL OR model = ?5) AND (?6 IS NULL OR at BETWEEN ?6 AND ?7) AND {of_outcome}
         LIMIT ?8"
    );
    let (begins, ends) = search.day.map(Day::millis).unzip();
    let params = params![account.as_bytes(), floor, before, key, search.model, begins, ends, wanted];
    let mut entries: Vec<JournalEntry> =
        connection.prepare_cached(&sql)?.query_map(params, entry_from)?.collect::<rusqlite::Result<_>>()?;
    if entries.len() > limit {
        entries.truncate(limit);
        let next = entries.last().map(|entry| entry.number);
        return Ok(Found { found: entries, next });
    }
    let sql = format!("SELECT min(number) FROM ({read}) HAVING count(*) = {MAX_READ}");
    let params = params![account.as_bytes(), floor, before, key];
    let last: Option<i64> =
        connection.prepare_cached(&sql)?.query_row(params, |row| row.get(0)).optional()?;
    Ok(Found { found: entries, next: last.map(i64::unsigned_abs) })
}

/// Passes every entry to an audit, in ascending order of numbers.
pub(crate) fn audit(
    connection: &Connection,
    account: AccountId,
    auditor: &mut Auditor,
) -> rusqlite::Result<()> {
    let sql = "SELECT number, key, delta, used_after, at FROM journal WHERE account = ?1 ORDER BY number";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([account.as_bytes()])?;
    while let Some(row) = rows.next()? {
        auditor.entry(AuditedEntry {
            number: row.get::<_, i64>(0)?.unsigned_abs(),
            key: column_id(row, 1, KeyId::from_slice)?,
            groups: [None, None],
            at: time(row, 4)?,
            delta: money(row, 2)?,
            used_after: money(row, 3)?,
        });
    }
    Ok(())
}

/// Query with a hint, as SQLite would otherwise scan the account's entries from the last on, to save a sort.
const SETTLEMENT: &str = "SELECT key, model, prompt, cached, completion, cost, charged, ending, estimated, at
    FROM journal INDEXED BY journal_by_generation
    WHERE account = ?1 AND generation = ?2 ORDER BY number DESC LIMIT 1";

/// The bill of a generation: the last entry.
pub(crate) fn settlement(
    connection: &Connection,
    account: AccountId,
    id: GenerationId,
) -> rusqlite::Result<Option<Settlement>> {
    let params = [account.as_bytes(), id.as_bytes()];
    connection.prepare_cached(SETTLEMENT)?.query_row(params, settlement_from).optional()
}

/// Appends an entry.
pub(crate) fn append(
    connection: &Connection,
    account: AccountId,
    number: u64,
    id: GenerationId,
    entry: &Entry,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO journal (account, number, generation, key, model, prompt, cached, completion,
                                    cost, charged, delta, used_after, ending, estimated, at)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";
    let Entry { settlement, delta, used_after } = entry;
    let Settlement { payer, usage, cost, upstream_cost: _, charged, ending, estimated, at } = settlement;
    let Payer { key, model, groups: _ } = payer;
    connection.prepare_cached(sql)?.execute(params![
        account.as_bytes(),
        number.cast_signed(),
        id.as_bytes(),
        key.as_bytes(),
        model,
        usage.prompt.cast_signed(),
        usage.cached.cast_signed(),
        usage.completion.cast_signed(),
        cost.nanos(),
        charged.nanos(),
        delta.nanos(),
        used_after.nanos(),
        match ending {
            Ending::Captured => CAPTURED,
            Ending::Expired => EXPIRED,
        },
        estimated,
        at.millis(),
    ])?;
    Ok(())
}

fn entry_from(row: &Row<'_>) -> rusqlite::Result<JournalEntry> {
    let (settlement, delta, used_after) = (settlement_from(row)?, money(row, 12)?, money(row, 13)?);
    Ok(JournalEntry {
        number: row.get::<_, i64>(10)?.unsigned_abs(),
        generation: column_id(row, 11, GenerationId::from_slice)?,
        entry: Entry { settlement, delta, used_after },
    })
}

fn settlement_from(row: &Row<'_>) -> rusqlite::Result<Settlement> {
    Ok(Settlement {
        payer: Payer::alone(column_id(row, 0, KeyId::from_slice)?, row.get(1)?),
        usage: usage_from(row, 2)?,
        cost: money(row, 5)?,
        upstream_cost: None,
        charged: money(row, 6)?,
        ending: match row.get_ref(7)?.as_str()? {
            CAPTURED => Ending::Captured,
            EXPIRED => Ending::Expired,
            _ => return Err(damaged(7, Type::Text, "an ending is not known")),
        },
        estimated: row.get(8)?,
        at: time(row, 9)?,
    })
}

const CAPTURED: &str = "captured";
const EXPIRED: &str = "expired";

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::{super::super::file, *};
    use domain::ledger::histories::{account, generation};

    #[test]
    fn a_statement_is_not_prepared_again_for_other_values() {
        let folder = tempfile::tempdir().unwrap();
        let connection = file::open(&folder.path().join("store.db")).unwrap();
        for n in 0..3 {
            assert_eq!(settlement(&connection, account(0), generation(n)).unwrap(), None);
        }
        let statement = connection.prepare_cached(SETTLEMENT).unwrap();
        assert_eq!(statement.get_status(StatementStatus::Run), 3);
        assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
    }
}
