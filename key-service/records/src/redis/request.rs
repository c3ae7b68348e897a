//! Commands for Redis, and how spans describe them.

use std::borrow::Cow;

use redis::{Arg, Cmd, RedisResult, Value, aio::ConnectionLike, pipe};
use shared_observe::traces::KeyValue;

use super::connection::Connection;

/// Returns a name that identifies the command's slot. All names in a command are in the same slot.
pub(super) fn key(command: &Cmd) -> &[u8] {
    let word = |place| match command.args_iter().nth(place)? {
        Arg::Simple(word) => Some(word),
        _ => None,
    };
    // In the command, the number of names follows the script.
    let is_script = word(0).is_some_and(|name| name.starts_with(b"EVAL"));
    word(if is_script { 3 } else { 1 }).unwrap_or_default()
}

/// Sends a command to a server. `is_arriving` says that the server is taking over the slot. Such a server answers only
/// after `ASKING`.
pub(super) async fn ask(connection: &mut Connection, command: &Cmd, is_arriving: bool) -> RedisResult<Value> {
    if !is_arriving {
        return connection.req_packed_command(command).await?.extract_error();
    }
    let mut both = pipe();
    both.cmd("ASKING").add_command(command.clone());
    let answers = connection.req_packed_commands(&both, 1, 1).await?;
    answers.into_iter().next().unwrap_or(Value::Nil).extract_error()
}

/// Returns the name and the attributes of the command's span. The name is that of the command, without its arguments.
pub(super) fn described(command: &Cmd) -> (Cow<'static, str>, Vec<KeyValue>) {
    let name = match command.args_iter().next() {
        Some(Arg::Simple(name)) => String::from_utf8_lossy(name).into_owned(),
        Some(_) | None => "redis".to_owned(),
    };
    let system = KeyValue::new("db.system.name", "redis");
    let operation = KeyValue::new("db.operation.name", name.clone());
    (name.into(), vec![system, operation])
}
