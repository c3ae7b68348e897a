//! Questions, answered within a read transaction.

use rusqlite::{Connection, OptionalExtension, Row, types::ValueRef};

use super::transaction::{Access, CallError, OpenTransaction};
use crate::records::{Answer, Cursor, Failure, Index, Log, Name, Order, Question, Record, Set, Space};

/// Records on a page of a set.
const PAGE: u16 = 500;

const RECORD: &str = "SELECT value FROM records WHERE space = ?1 AND tab = ?2 AND part = ?3 AND name = ?4";
const RECORDS_FROM: &str = "SELECT name, value FROM records
    WHERE space = ?1 AND tab = ?2 AND part = ?3 AND name >= ?4 ORDER BY name LIMIT ?5";
const VALUES_UP: &str = "SELECT number, value FROM logs
    WHERE space = ?1 AND log = ?2 AND number BETWEEN ?3 AND ?4 ORDER BY number LIMIT ?5";
const VALUES_DOWN: &str = "SELECT number, value FROM logs
    WHERE space = ?1 AND log = ?2 AND number BETWEEN ?3 AND ?4 ORDER BY number DESC LIMIT ?5";

/// Answers questions as of one moment.
pub(super) fn answer_all(
    connection: &Connection,
    space: &Space,
    questions: &[Question],
) -> Result<Vec<Answer>, Failure> {
    let answer_each = || {
        let moment = OpenTransaction::begin(connection, Access::Read)?;
        let answer = |question| answer(moment.connection, space, question);
        let answers = questions.iter().map(answer).collect::<Result<_, CallError>>()?;
        moment.commit()?;
        Ok(answers)
    };
    answer_each().map_err(CallError::into_failure)
}

fn answer(connection: &Connection, space: &Space, question: &Question) -> Result<Answer, CallError> {
    match question {
        Question::Records(names) => {
            let record = |name| record(connection, space, name);
            Ok(Answer::Records(names.iter().map(record).collect::<Result<_, _>>()?))
        }
        Question::Set(set, from) => page(connection, space, *set, from.as_ref()),
        Question::Entries { index, from, to, order, limit } => {
            let range = (from.as_slice(), to.as_deref());
            Ok(Answer::Entries(entries(connection, space, *index, range, (*order, *limit))?))
        }
        Question::Values { log, from, to, order, limit } => {
            Ok(Answer::Values(values(connection, space, *log, (*from, *to), (*order, *limit))?))
        }
    }
}

/// A record as it is.
pub(super) fn record(
    connection: &Connection,
    space: &Space,
    name: &Name,
) -> Result<Option<Record>, CallError> {
    look_up(connection, space, name, |value| record_of(value).ok_or_else(CallError::no_record))
}

/// The value of a name.
pub(super) fn look_up<T>(
    connection: &Connection,
    space: &Space,
    Name { set, key }: &Name,
    read: impl FnOnce(ValueRef<'_>) -> Result<T, CallError>,
) -> Result<Option<T>, CallError> {
    let mut statement = connection.prepare_cached(RECORD)?;
    let mut rows = statement.query((space.as_str(), set.table, set.part, key))?;
    rows.next()?.map(|row| read(row.get_ref(0)?)).transpose()
}

fn record_of(value: ValueRef<'_>) -> Option<Record> {
    Record::from_bytes(value.as_blob().ok()?.to_vec())
}

/// A page of a set. A cursor is the lowest name that may follow.
fn page(
    connection: &Connection,
    space: &Space,
    set: Set,
    from: Option<&Cursor>,
) -> Result<Answer, CallError> {
    let from = from.map_or(&[][..], |Cursor(name)| name);
    let mut statement = connection.prepare_cached(RECORDS_FROM)?;
    let mut rows = statement.query((space.as_str(), set.table, set.part, from, PAGE))?;
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        let record = record_of(row.get_ref(1)?).ok_or_else(CallError::no_record)?;
        records.push((row.get(0)?, record));
    }
    let next =
        records.last().filter(|_| records.len() == usize::from(PAGE)).map(|(name, _): &(Vec<u8>, _)| {
            let mut next = name.clone();
            next.push(0);
            Cursor(next)
        });
    Ok(Answer::Set(records, next))
}

fn entries(
    connection: &Connection,
    space: &Space,
    Index(index): Index,
    (from, to): (&[u8], Option<&[u8]>),
    (order, limit): (Order, usize),
) -> rusqlite::Result<Vec<Vec<u8>>> {
    let (space, limit) = (space.as_str(), i64::try_from(limit).unwrap_or(i64::MAX));
    let entry = |row: &Row<'_>| row.get(0);
    let direction = match order {
        Order::Ascending => "ASC",
        Order::Descending => "DESC",
    };
    let query = |bound| {
        let place = "SELECT entry FROM entries WHERE space = ?1 AND idx = ?2 AND entry >= ?3";
        format!("{place} {bound} ORDER BY entry {direction} LIMIT ?4")
    };
    match to {
        None => {
            let mut statement = connection.prepare_cached(&query(""))?;
            statement.query_map((space, index, from, limit), entry)?.collect()
        }
        Some(to) => {
            let mut statement = connection.prepare_cached(&query("AND entry < ?5"))?;
            statement.query_map((space, index, from, limit, to), entry)?.collect()
        }
    }
}

fn values(
    connection: &Connection,
    space: &Space,
    Log(log): Log,
    (from, to): (u64, u64),
    (order, limit): (Order, usize),
) -> rusqlite::Result<Vec<(u64, Vec<u8>)>> {
    let query = match order {
        Order::Ascending => VALUES_UP,
        Order::Descending => VALUES_DOWN,
    };
    // A log has no higher number than the highest integer of SQLite.
    let Ok(from) = i64::try_from(from) else { return Ok(Vec::new()) };
    let to = i64::try_from(to).unwrap_or(i64::MAX);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let value = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get(1)?));
    connection.prepare_cached(query)?.query_map((space.as_str(), log, from, to, limit), value)?.collect()
}

/// The lowest or the highest number of a log.
pub(super) fn end_of_log(
    connection: &Connection,
    space: &Space,
    Log(log): Log,
    order: Order,
) -> rusqlite::Result<Option<i64>> {
    let query = match order {
        Order::Ascending => VALUES_UP,
        Order::Descending => VALUES_DOWN,
    };
    let number = |row: &Row<'_>| row.get(0);
    connection.prepare_cached(query)?.query_row((space.as_str(), log, 0, i64::MAX, 1), number).optional()
}
