//! Answers of Redis to questions.

use redis::Value;

use super::senseless;
use crate::records::{Answer, Cursor, Failure, Order, Question, Record};

/// A field of a hash: name and value.
type Field = (Vec<u8>, Vec<u8>);

/// Answers to questions.
pub(super) fn read_answers(questions: &[Question], answers: Vec<Value>) -> Result<Vec<Answer>, Failure> {
    let mut answers = answers.into_iter();
    let mut all = Vec::with_capacity(questions.len());
    for question in questions {
        let mut next = || answers.next().ok_or_else(senseless);
        all.push(match question {
            Question::Records(names) => {
                Answer::Records(names.iter().map(|_| next().and_then(record)).collect::<Result<_, _>>()?)
            }
            Question::Set(..) => {
                let (place, fields): (Vec<u8>, Vec<Field>) =
                    redis::from_redis_value(next()?).map_err(|_| senseless())?;
                let read = |(key, bytes)| Some((key, Record::from_bytes(bytes)?));
                let records = fields.into_iter().map(read).collect::<Option<_>>().ok_or_else(senseless)?;
                Answer::Set(records, (place != b"0").then_some(Cursor(place)))
            }
            Question::Entries { .. } => {
                Answer::Entries(redis::from_redis_value(next()?).map_err(|_| senseless())?)
            }
            Question::Values { from, to, order, limit, .. } => {
                Answer::Values(values(next()?, (*from, *to), *order, *limit)?)
            }
        });
    }
    Ok(all)
}

/// Values of a log's items, in the order asked for.
fn values(
    answer: Value,
    (from, to): (u64, u64),
    order: Order,
    limit: usize,
) -> Result<Vec<(u64, Vec<u8>)>, Failure> {
    let items: Vec<(String, Vec<Vec<u8>>)> = redis::from_redis_value(answer).map_err(|_| senseless())?;
    let mut all = Vec::new();
    for (id, fields) in items {
        let last: u64 = id.split('-').next().and_then(|number| number.parse().ok()).ok_or_else(senseless)?;
        let values: Vec<Vec<u8>> = fields.into_iter().skip(1).step_by(2).collect();
        let first = (last + 1).checked_sub(values.len() as u64).ok_or_else(senseless)?;
        let numbered = (first..).zip(values).filter(|(number, _)| (from..=to).contains(number));
        match order {
            Order::Ascending => all.extend(numbered),
            Order::Descending => all.extend(numbered.collect::<Vec<_>>().into_iter().rev()),
        }
    }
    all.truncate(limit);
    Ok(all)
}

/// A record, if there is one.
pub(super) fn record(value: Value) -> Result<Option<Record>, Failure> {
    match value {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => Record::from_bytes(bytes).map(Some).ok_or_else(senseless),
        _ => Err(senseless()),
    }
}
