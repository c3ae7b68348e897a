//! How spans describe requests to Redis.

use std::borrow::Cow;

use redis::{Arg, Cmd};
use shared_observe::traces::KeyValue;

/// Name and attributes of the request's span. The name is the command's, without arguments.
pub(super) fn described(command: &Cmd) -> (Cow<'static, str>, Vec<KeyValue>) {
    let name = match command.args_iter().next() {
        Some(Arg::Simple(name)) => String::from_utf8_lossy(name).into_owned(),
        Some(_) | None => "redis".to_owned(),
    };
    let system = KeyValue::new("db.system.name", "redis");
    let operation = KeyValue::new("db.operation.name", name.clone());
    (name.into(), vec![system, operation])
}
