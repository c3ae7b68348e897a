//! The backend in Redis: one script compares and writes.
//!
//! Records of a set are fields of a hash; an index is a sorted set whose scores are all zero; a log is a stream, an item of
//! which has the number of its last value. All names of a space share a hash tag, and so a slot of a cluster.

mod answers;
mod arguments;

use std::sync::Arc;

use async_trait::async_trait;
use redis::{Cmd, Pipeline, RedisError, RedisResult, Script, Value, pipe};

use self::{
    answers::{read_answers, record},
    arguments::Arguments,
};
use crate::records::{
    Answer, Commit, Committed, Cursor, Failure, Index, Log, MOST_WORDS, Order, Question, Records, Set, Space,
    Write,
};

const COMMIT: &str = include_str!("redis/commit.lua");
/// Most values of an item of a stream: those of a commit.
const MOST_IN_ITEM: u64 = MOST_WORDS as u64;
/// Fields on a page of a set, about.
const PAGE: usize = 500;

/// Carries commands to a Redis.
#[async_trait]
pub trait Carrier: Send + Sync + 'static {
    /// Sends a command.
    async fn ask(&self, command: &Cmd) -> RedisResult<Value>;

    /// Sends commands together.
    async fn ask_all(&self, commands: &Pipeline) -> RedisResult<Vec<Value>>;
}

/// Records in a Redis.
pub struct Redis {
    carrier: Arc<dyn Carrier>,
    prefix: String,
    commit: Script,
}

impl Redis {
    /// Records under this prefix.
    pub fn new(carrier: Arc<dyn Carrier>, prefix: impl Into<String>) -> Self {
        Self { carrier, prefix: prefix.into(), commit: Script::new(COMMIT) }
    }

    fn name(&self, space: &Space, kind: char, number: u8, part: u32) -> Vec<u8> {
        let (prefix, space) = (&self.prefix, space.as_str());
        match part {
            0 => format!("{prefix}:{{{space}}}:{kind}{number}"),
            part => format!("{prefix}:{{{space}}}:{kind}{number}:{part}"),
        }
        .into_bytes()
    }

    fn set(&self, space: &Space, Set { table, part }: Set) -> Vec<u8> {
        self.name(space, 'r', table, part)
    }

    fn index(&self, space: &Space, Index(number): Index) -> Vec<u8> {
        self.name(space, 'i', number, 0)
    }

    fn log(&self, space: &Space, Log(number): Log) -> Vec<u8> {
        self.name(space, 'l', number, 0)
    }
}

#[async_trait]
impl Records for Redis {
    fn system(&self) -> &'static str {
        "redis"
    }

    async fn read(&self, space: &Space, questions: Vec<Question>) -> Result<Vec<Answer>, Failure> {
        let mut commands = pipe();
        if questions.len() > 1 {
            commands.atomic();
        }
        for question in &questions {
            self.question(&mut commands, space, question);
        }
        let answers = self.carrier.ask_all(&commands).await.map_err(|e| failure(&e))?;
        read_answers(&questions, answers)
    }

    async fn commit(&self, space: &Space, commit: Commit) -> Result<Committed, Failure> {
        let adds = commit.writes.iter().any(|write| matches!(write, Write::Add(..)));
        let arguments = Arguments::of(self, space, &commit);
        let answer = self.run(&arguments).await.map_err(|e| failure(&e))?;
        let Value::Array(answer) = answer else { return Err(senseless()) };
        let mut answer = answer.into_iter();
        match answer.next() {
            Some(Value::Int(0)) => {
                let sum = match answer.next() {
                    Some(sum) if adds => Some(redis::from_redis_value(sum).map_err(|_| senseless())?),
                    Some(_) | None => None,
                };
                Ok(Committed::Written(sum))
            }
            Some(first) => {
                let mut present = Vec::new();
                let mut next = Some(first);
                while let Some(Value::Int(number)) = next {
                    let place = arguments.guard(number).ok_or_else(senseless)?;
                    let record = answer.next().ok_or_else(senseless).and_then(record)?;
                    present.push((place, record));
                    next = answer.next();
                }
                Ok(Committed::Conflict(present))
            }
            None => Err(senseless()),
        }
    }
}

impl Redis {
    async fn run(&self, arguments: &Arguments<'_>) -> RedisResult<Value> {
        match self.carrier.ask(&arguments.command("EVALSHA", self.commit.get_hash())).await {
            Err(e) if e.kind() == redis::ErrorKind::Server(redis::ServerErrorKind::NoScript) => {
                self.carrier.ask(&arguments.command("EVAL", COMMIT)).await
            }
            answer => answer,
        }
    }

    fn question(&self, commands: &mut Pipeline, space: &Space, question: &Question) {
        match question {
            Question::Records(names) => {
                for name in names {
                    commands.cmd("HGET").arg(self.set(space, name.set)).arg(&name.key[..]);
                }
            }
            Question::Set(set, after) => {
                let cursor = after.as_ref().map_or(&b"0"[..], |Cursor(place)| place);
                commands.cmd("HSCAN").arg(self.set(space, *set)).arg(cursor).arg("COUNT").arg(PAGE);
            }
            Question::Entries { index, from, to, order, limit } => {
                let lowest = [b"[", from.as_slice()].concat();
                let highest = to.as_ref().map_or(b"+".to_vec(), |to| [b"(", to.as_slice()].concat());
                let command = commands.cmd("ZRANGE").arg(self.index(space, *index));
                match order {
                    Order::Ascending => command.arg(lowest).arg(highest).arg("BYLEX"),
                    Order::Descending => command.arg(highest).arg(lowest).arg("BYLEX").arg("REV"),
                };
                command.arg("LIMIT").arg(0).arg(*limit);
            }
            Question::Values { log, from, to, order, limit } => {
                // An item has the number of its last value: that of `to` may end behind it.
                let name = self.log(space, *log);
                match order {
                    Order::Ascending => {
                        commands
                            .cmd("XRANGE")
                            .arg(name)
                            .arg(from.to_string())
                            .arg("+")
                            .arg("COUNT")
                            .arg(*limit);
                    }
                    Order::Descending => {
                        let highest = to.saturating_add(MOST_IN_ITEM);
                        let items = limit.saturating_add(1);
                        commands.cmd("XREVRANGE").arg(name).arg(highest.to_string()).arg(from.to_string());
                        if *to == u64::MAX {
                            commands.arg("COUNT").arg(items);
                        }
                    }
                }
            }
        }
    }
}

fn senseless() -> Failure {
    Failure::Damaged("Redis: an answer that no script gives".into())
}

/// What an error says of a commit. The script refuses a number that a log has had before it writes, and the sum of a counter,
/// which a commit adds to and does nothing else, is refused by Redis.
fn failure(error: &RedisError) -> Failure {
    let text = format!("Redis: {error}");
    let is_refused = ["NUMBER", "specified in XADD", "overflow"].iter().any(|word| text.contains(word));
    match error.code() {
        Some("OOM" | "TRYAGAIN" | "NOSCRIPT" | "MISCONF" | "NOREPLICAS") => Failure::NotDone(text),
        Some("WRONGTYPE") => Failure::Damaged(text),
        Some(_) | None if is_refused => Failure::NotDone(text),
        Some(_) | None => Failure::Unknown(text),
    }
}

#[cfg(test)]
pub(crate) mod tests;
