//! The journal: the bill of every generation, and the corrections of bills.

use rusqlite::{Connection, OptionalExtension, Row, params, types::Type};
use shared::{
    ids::{AccountId, GenerationId, GroupId, KeyId},
    money::NanoUsd,
    time::Timestamp,
};

use super::{damaged, details, group_if_any, id as column_id, money, payer, progress, rows, time};
use crate::store::{Found, JournalEntry};
use domain::{
    audit::{AuditedEntry, Auditor},
    ledger::{Ending, Entry, Payer, Progress, Settlement},
    search::{EntrySearch, Outcome},
};

/// Columns of an entry in the order of [`entry_from`]; the first ones are those of a settlement.
pub(crate) const COLUMNS: &str =
    "key, model, group_id, parent, prompt, cached, completion, details, cost, upstream_cost,
    charged, ending, estimated, at, number, generation, delta, used_after";

/// A number of an entry, at most the largest that the column can have.
pub(crate) fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
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
    let key = search.key.as_ref().map(KeyId::as_bytes);
    let (floor, before) = (number(floor), number(before));
    // A row beyond `limit` shows that there are more.
    let wanted = rows(limit).saturating_add(1);
    // Rows come in the order of reading. With an ORDER BY, SQLite would read and sort all rows.
    let sql = format!(
        "SELECT {COLUMNS}
         FROM ({read}) WHERE (?5 IS NULL OR model = ?5) AND (?6 IS NULL OR at >= ?6) AND (?7 IS NULL OR at < ?7) AND {of_outcome}
           AND (?9 IS NULL OR group_id = ?9 OR parent = ?9)
         LIMIT ?8"
    );
    let [begins, ends] = [search.begins, search.ends].map(|at| at.map(Timestamp::millis));
    let group = search.group.as_ref().map(GroupId::as_bytes);
    let params = params![account.as_bytes(), floor, before, key, search.model, begins, ends, wanted, group];
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
    let sql = "SELECT number, key, group_id, parent, at, delta, used_after
               FROM journal WHERE account = ?1 ORDER BY number";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([account.as_bytes()])?;
    while let Some(row) = rows.next()? {
        auditor.entry(AuditedEntry {
            number: row.get::<_, i64>(0)?.unsigned_abs(),
            key: column_id(row, 1, KeyId::from_slice)?,
            groups: [group_if_any(row, 2)?, group_if_any(row, 3)?],
            at: time(row, 4)?,
            delta: money(row, 5)?,
            used_after: money(row, 6)?,
        });
    }
    Ok(())
}

/// Query with a hint, as SQLite would otherwise scan the account's entries from the last on, to save a sort.
const SETTLEMENT: &str =
    "SELECT key, model, group_id, parent, prompt, cached, completion, details, cost, upstream_cost,
           charged, ending, estimated, at
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
    let sql = "INSERT INTO journal (account, number, generation, key, model, group_id, parent,
                                    prompt, cached, completion, details, cost, upstream_cost,
                                    charged, delta, used_after, ending, estimated, at)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)";
    let Entry { settlement, delta, used_after } = entry;
    let Settlement { payer, usage, cost, upstream_cost, charged, ending, estimated, at } = settlement;
    let Payer { key, model, groups: [group, parent] } = payer;
    connection.prepare_cached(sql)?.execute(params![
        account.as_bytes(),
        number.cast_signed(),
        id.as_bytes(),
        key.as_bytes(),
        model,
        group.as_ref().map(GroupId::as_bytes),
        parent.as_ref().map(GroupId::as_bytes),
        usage.prompt.cast_signed(),
        usage.cached.cast_signed(),
        usage.completion.cast_signed(),
        details(*usage),
        cost.nanos(),
        upstream_cost.map(NanoUsd::nanos),
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

pub(crate) fn entry_from(row: &Row<'_>) -> rusqlite::Result<JournalEntry> {
    let (settlement, delta, used_after) = (settlement_from(row)?, money(row, 16)?, money(row, 17)?);
    Ok(JournalEntry {
        number: row.get::<_, i64>(14)?.unsigned_abs(),
        generation: column_id(row, 15, GenerationId::from_slice)?,
        entry: Entry { settlement, delta, used_after },
    })
}

fn settlement_from(row: &Row<'_>) -> rusqlite::Result<Settlement> {
    let Progress { usage, cost, upstream_cost } = progress(row, 4)?;
    Ok(Settlement {
        payer: payer(row, 0)?,
        usage,
        cost,
        upstream_cost,
        charged: money(row, 10)?,
        ending: match row.get_ref(11)?.as_str()? {
            CAPTURED => Ending::Captured,
            EXPIRED => Ending::Expired,
            _ => return Err(damaged(11, Type::Text, "an ending is not known")),
        },
        estimated: row.get(12)?,
        at: time(row, 13)?,
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
