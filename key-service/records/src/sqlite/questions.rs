//! Answers questions within a read transaction.

use rusqlite::types::ValueRef;

use super::{
    failures::CallError,
    tables::{Keys, Tables, TransactionKind},
};
use crate::records::{Answer, Cursor, Failure, Order, Question, Record, Space};

/// Maximum number of records on a page of a set, so that a page takes little memory.
const PAGE: usize = 500;

/// Answers questions as of one moment.
pub(super) fn answer_all(
    tables: &mut Tables<'_>,
    space: &Space,
    questions: &[Question],
) -> Result<Vec<Answer>, Failure> {
    let mut keys = Keys::of(space);
    let answer_each = |tables: &mut Tables<'_>| {
        questions.iter().map(|question| answer(tables, &mut keys, question)).collect()
    };
    Ok(tables.transact(TransactionKind::Read, answer_each)?)
}

fn answer(tables: &mut Tables<'_>, keys: &mut Keys, question: &Question) -> Result<Answer, CallError> {
    match question {
        Question::Records(names) => {
            let record = |name| tables.records.get(keys.record(name), record);
            Ok(Answer::Records(names.iter().map(record).collect::<Result<_, _>>()?))
        }
        Question::Set(set, from) => {
            let range = keys.records_from(*set, from.as_ref().map_or(&[], |Cursor(name)| name));
            // The first four bytes are the number of the part.
            let named = |key: &[u8], value: ValueRef<'_>| {
                Ok((keys.within(key).get(4..).unwrap_or_default().to_vec(), record(value)?))
            };
            let records = tables.records.scan(&range, Order::Ascending, PAGE, named)?;
            // A cursor is the lowest name that may come next.
            let last = records.last().filter(|_| records.len() == PAGE);
            let next = last.map(|(name, _)| Cursor([name, &[0][..]].concat()));
            Ok(Answer::Set(records, next))
        }
        Question::Entries { index, from, to, order, limit } => {
            let range = keys.entries(*index, from, to.as_deref());
            let entry = |key: &[u8], _: ValueRef<'_>| Ok(keys.within(key).to_vec());
            Ok(Answer::Entries(tables.entries.scan(&range, *order, *limit, entry)?))
        }
        Question::Values { log, from, to, order, limit } => {
            let range = keys.values(*log, *from, *to);
            let value = |key: &[u8], value: ValueRef<'_>| {
                Ok((number(keys, key)?, value.as_blob().map_err(rusqlite::Error::from)?.to_vec()))
            };
            Ok(Answer::Values(tables.logs.scan(&range, *order, *limit, value)?))
        }
    }
}

/// Reads a value as a record.
pub(super) fn record(value: ValueRef<'_>) -> Result<Record, CallError> {
    value.as_blob().ok().and_then(|bytes| Record::from_bytes(bytes.to_vec())).ok_or_else(CallError::no_record)
}

/// Reads the number of a value in its log.
pub(super) fn number(keys: &Keys, key: &[u8]) -> Result<u64, CallError> {
    Ok(u64::from_be_bytes(keys.within(key).try_into().map_err(|_| CallError::no_record())?))
}
