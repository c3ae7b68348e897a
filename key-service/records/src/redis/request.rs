//! Requests to Redis, and how spans describe them.

use std::borrow::Cow;

use redis::{Arg, Cmd, Pipeline};
use shared_observe::traces::KeyValue;

/// A request that may be repeated: if a commit was carried out, its own guards fail the second time.
pub(super) enum RedisRequest<'a> {
    One(&'a Cmd),
    Many(&'a Pipeline),
}

impl RedisRequest<'_> {
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
