//! Requests to Redis, and how spans describe them.

use std::borrow::Cow;

use redis::{Arg, Cmd, Pipeline, RedisResult, Value, aio::ConnectionLike, pipe};
use shared_observe::traces::KeyValue;

use super::connection::Connection;

/// A request that may be repeated: if a commit was carried out, its own guards fail the second time.
pub(super) enum RedisRequest<'a> {
    One(&'a Cmd),
    Many(&'a Pipeline),
}

impl RedisRequest<'_> {
    /// A name whose slot the request is about. All names of a request share a slot.
    pub(super) fn key(&self) -> &[u8] {
        let command = match self {
            Self::One(command) => Some(*command),
            Self::Many(commands) => commands.cmd_iter().next(),
        };
        let word = |place| match command?.args_iter().nth(place)? {
            Arg::Simple(word) => Some(word),
            _ => None,
        };
        // A script comes with the number of its keys.
        let is_script = word(0).is_some_and(|name| name.starts_with(b"EVAL"));
        word(if is_script { 3 } else { 1 }).unwrap_or_default()
    }

    /// Asks a server. `is_arriving` says that the server takes over the slot, and answers only who asks for that.
    pub(super) async fn ask(&self, connection: &mut Connection, is_arriving: bool) -> RedisResult<Value> {
        match self {
            Self::One(command) if !is_arriving => connection.req_packed_command(command).await,
            Self::One(command) => last(connection, &[*command], false).await,
            Self::Many(commands) if !is_arriving => {
                commands.query_async::<Vec<Value>>(connection).await.map(Value::Array)
            }
            Self::Many(commands) => {
                let all: Vec<_> = commands.cmd_iter().collect();
                let answer = last(connection, &all, commands.is_transaction()).await?;
                Ok(if commands.is_transaction() { answer } else { Value::Array(vec![answer]) })
            }
        }
        .and_then(Value::extract_error)
    }

    /// Name and attributes of the request's span. The name is the command's, without arguments.
    pub(super) fn described(&self) -> (Cow<'static, str>, Vec<KeyValue>) {
        let system = KeyValue::new("db.system.name", "redis");
        let name = match self {
            Self::One(command) => match command.args_iter().next() {
                Some(Arg::Simple(name)) => String::from_utf8_lossy(name).into_owned(),
                Some(_) | None => "redis".to_owned(),
            },
            Self::Many(commands) => {
                let size = i64::try_from(commands.len()).unwrap_or(i64::MAX);
                let attributes = vec![system, KeyValue::new("db.operation.batch.size", size)];
                return ("PIPELINE".into(), attributes);
            }
        };
        let operation = KeyValue::new("db.operation.name", name.clone());
        (name.into(), vec![system, operation])
    }
}

/// Asks a server that takes over a slot. Returns the last answer: of the transaction, or of the only command.
async fn last(connection: &mut Connection, commands: &[&Cmd], is_transaction: bool) -> RedisResult<Value> {
    let mut all = pipe();
    all.cmd("ASKING");
    if is_transaction {
        all.cmd("MULTI");
    }
    for command in commands {
        all.add_command((*command).clone());
    }
    if is_transaction {
        all.cmd("EXEC");
    }
    let answers = connection.req_packed_commands(&all, all.len() - 1, 1).await?;
    answers.into_iter().next().unwrap_or(Value::Nil).extract_error()
}
