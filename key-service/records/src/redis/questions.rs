//! Turns questions into commands, sends them, and parses Redis's answers.

use std::{collections::BTreeMap, ops::RangeInclusive};

use redis::{Cmd, ErrorKind, RedisError, RedisResult, Script, Value, cmd};

use super::{arguments::MOST_WORDS_OF_A_CALL, client::Client, key_space::KeySpace};
use crate::records::{Answer, Cursor, Failure, Name, Order, Place, Question, Record, Set, Space};

/// Script that runs several commands.
pub(super) const READ: &str = include_str!("read.lua");

/// Approximate number of fields on a page of a set, so that a page takes Redis little time.
const PAGE: usize = 500;

/// A field of a hash: name and value.
type HashField = (Vec<u8>, Vec<u8>);

/// Commands that answer questions, all as of one moment.
pub(super) struct Reads(Vec<ReadCommand>);

struct ReadCommand {
    command: &'static str,
    key: Vec<u8>,
    words: Vec<Vec<u8>>,
}

impl ReadCommand {
    fn new(command: &'static str, key: Vec<u8>) -> Self {
        Self { command, key, words: Vec::new() }
    }

    fn arg(mut self, word: impl AsRef<[u8]>) -> Self {
        self.words.push(word.as_ref().to_vec());
        self
    }

    fn number(self, number: u64) -> Self {
        self.arg(number.to_string())
    }
}

impl Reads {
    pub(super) fn of(names: &KeySpace, space: &Space, questions: &[Question]) -> Self {
        let mut reads = Vec::new();
        for question in questions {
            write_question(names, &mut reads, space, question);
        }
        Self(reads)
    }

    /// Sends the commands. Several run in a script: unlike a transaction, a script follows a slot that moves to another
    /// server, and runs on a full Redis.
    pub(super) async fn send(&self, client: &Client, script: &Script) -> RedisResult<Vec<Value>> {
        match &self.0[..] {
            [] => Ok(Vec::new()),
            [ReadCommand { command, key, words }] => {
                let mut single = cmd(command);
                single.arg(key);
                for word in words {
                    single.arg(word);
                }
                Ok(vec![client.ask(&single).await?])
            }
            _ => {
                let by_hash = self.script("EVALSHA_RO", script.get_hash());
                let answers = client.run(&by_hash, || self.script("EVAL_RO", READ)).await?;
                Ok(redis::from_redis_value(answers)?)
            }
        }
    }

    /// Returns a command that runs the script, given by its hash or its text.
    fn script(&self, name: &str, script: &str) -> Cmd {
        let mut command = cmd(name);
        command.arg(script).arg(self.0.len());
        for read in &self.0 {
            command.arg(&read.key);
        }
        for read in &self.0 {
            command.arg(read.command).arg(read.words.len());
            for word in &read.words {
                command.arg(word);
            }
        }
        command
    }
}

fn write_question(names: &KeySpace, reads: &mut Vec<ReadCommand>, space: &Space, question: &Question) {
    match question {
        Question::Records(all) => {
            for (set, places) in by_set(all) {
                for places in places.chunks(MOST_WORDS_OF_A_CALL) {
                    let read = ReadCommand::new("HMGET", names.place(space, Place::Set(set)));
                    reads.push(places.iter().fold(read, |read, place| read.arg(&all[*place].key)));
                }
            }
        }
        Question::Set(set, after) => {
            let cursor = after.as_ref().map_or(&b"0"[..], |Cursor(place)| place);
            let read = ReadCommand::new("HSCAN", names.place(space, Place::Set(*set)));
            reads.push(read.arg(cursor).arg("COUNT").number(PAGE as u64));
        }
        Question::Entries { index, from, to, order, limit } => {
            let lowest = [b"[", from.as_slice()].concat();
            let highest = to.as_ref().map_or(b"+".to_vec(), |to| [b"(", to.as_slice()].concat());
            let read = ReadCommand::new("ZRANGE", names.place(space, Place::Index(*index)));
            let read = match order {
                Order::Ascending => read.arg(lowest).arg(highest).arg("BYLEX"),
                Order::Descending => read.arg(highest).arg(lowest).arg("BYLEX").arg("REV"),
            };
            reads.push(read.arg("LIMIT").number(0).number(*limit as u64));
        }
        Question::Values { log, from, to, order, limit } => {
            write_values(reads, &names.place(space, Place::Log(*log)), *from..=*to, *order, *limit);
        }
    }
}

/// Returns the positions of the names in each set. One command reads all names of a set.
fn by_set(names: &[Name]) -> BTreeMap<Set, Vec<usize>> {
    let mut sets = BTreeMap::<_, Vec<_>>::new();
    for (place, name) in names.iter().enumerate() {
        sets.entry(name.set).or_default().push(place);
    }
    sets
}

/// Reads values of a log. An item is numbered by its last value, so the item that contains the value `to` may have a
/// higher number: the first such item is read separately.
fn write_values(
    reads: &mut Vec<ReadCommand>,
    log: &[u8],
    numbers: RangeInclusive<u64>,
    order: Order,
    limit: usize,
) {
    let (from, to) = numbers.into_inner();
    let range = |from: u64| ReadCommand::new("XRANGE", log.to_vec()).number(from);
    if from == to {
        reads.push(range(from).arg("+").arg("COUNT").number(1));
        return;
    }
    let read = match order {
        Order::Ascending => range(from).number(to),
        Order::Descending => ReadCommand::new("XREVRANGE", log.to_vec()).number(to).number(from),
    };
    reads.push(read.arg("COUNT").number(limit as u64));
    if let Some(behind) = to.checked_add(1) {
        reads.push(range(behind).arg("+").arg("COUNT").number(1));
    }
}

pub(super) fn read_answers(questions: &[Question], answers: Vec<Value>) -> Result<Vec<Answer>, Failure> {
    let mut answers = answers.into_iter();
    let mut all = Vec::with_capacity(questions.len());
    for question in questions {
        let mut next = || answers.next().ok_or_else(senseless);
        all.push(match question {
            Question::Records(names) => {
                let mut records = vec![None; names.len()];
                for places in by_set(names).into_values() {
                    for places in places.chunks(MOST_WORDS_OF_A_CALL) {
                        let Value::Array(found) = next()? else { return Err(senseless()) };
                        for (place, value) in places.iter().zip(found) {
                            records[*place] = record(value)?;
                        }
                    }
                }
                Answer::Records(records)
            }
            Question::Set(..) => {
                let (place, fields): (Vec<u8>, Vec<HashField>) =
                    redis::from_redis_value(next()?).map_err(|_| senseless())?;
                let read = |(key, bytes)| Some((key, Record::from_bytes(bytes)?));
                let records = fields.into_iter().map(read).collect::<Option<_>>().ok_or_else(senseless)?;
                Answer::Set(records, (place != b"0").then_some(Cursor(place)))
            }
            Question::Entries { .. } => {
                Answer::Entries(redis::from_redis_value(next()?).map_err(|_| senseless())?)
            }
            Question::Values { from, to, order, limit, .. } => {
                let mut items = items(next()?)?;
                if from != to && *to < u64::MAX {
                    let behind = self::items(next()?)?;
                    let place = if *order == Order::Descending { 0 } else { items.len() };
                    items.splice(place..place, behind);
                }
                Answer::Values(values(items, (*from, *to), *order, *limit)?)
            }
        });
    }
    Ok(all)
}

/// Item of a stream: its id, then field names and values in turn.
type StreamItem = (String, Vec<Vec<u8>>);

fn items(answer: Value) -> Result<Vec<StreamItem>, Failure> {
    redis::from_redis_value(answer).map_err(|_| senseless())
}

/// Returns the values of a log's items, in the order asked for.
fn values(
    items: Vec<StreamItem>,
    (from, to): (u64, u64),
    order: Order,
    limit: usize,
) -> Result<Vec<(u64, Vec<u8>)>, Failure> {
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

pub(super) fn record(value: Value) -> Result<Option<Record>, Failure> {
    match value {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => Record::from_bytes(bytes).map(Some).ok_or_else(senseless),
        _ => Err(senseless()),
    }
}

pub(super) fn senseless() -> Failure {
    Failure::Damaged("Redis: an answer that no script gives".into())
}

pub(super) fn text(error: &RedisError) -> String {
    format!("Redis: {error}")
}

/// Classifies an error by what it says about a commit. Before it writes, the script refuses numbers that a log already
/// has, and commands that the user may not run.
pub(super) fn failure(error: &RedisError) -> Failure {
    let text = text(error);
    let is_refused = ["NUMBER", "specified in XADD"].iter().any(|word| text.contains(word));
    match error.code() {
        Some("OOM" | "TRYAGAIN" | "NOSCRIPT" | "MISCONF" | "NOREPLICAS" | "NOPERM") => Failure::NotDone(text),
        Some("WRONGTYPE") => Failure::Damaged(text),
        Some(_) | None if is_refused => Failure::NotDone(text),
        Some(_) | None if error.kind() == ErrorKind::Parse => Failure::Damaged(text),
        Some(_) | None => Failure::Unknown(text),
    }
}
