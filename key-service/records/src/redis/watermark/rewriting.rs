//! Has Redis write its append-only file anew after each start, before anything else is written.
//!
//! A crash or a full disk may leave half a transaction at the end of the file. With `aof-load-truncated yes`, its
//! default, Redis then cuts off the last command, and goes on behind the others. At the start after that, these take
//! effect together with the first transaction that was written behind them. A new file has no such rest.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value, cmd};
use tokio::time::{Duration, Instant, sleep};

use crate::redis::{
    admission::{NotAdmitted, field},
    connection::{Connection, refused},
};

/// Interval at which a server is asked how far it is.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Shortest time between two attempts of a server that cannot write its file, since each copies its memory.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

pub(in crate::redis) struct Rewriting {
    volatile_allowed: bool,
    /// Time of the last attempt that this process began, by the server's run id.
    began: Mutex<HashMap<String, Instant>>,
    /// Run ids of servers that have written a new file. It stays whole: if a later rewrite fails, Redis keeps this file.
    whole: Mutex<HashSet<String>>,
}

/// State of the file of a server, since the server started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileState {
    /// The file is new, or there is none.
    Whole,
    Underway,
    /// The file is the one that the server started with.
    Old,
    /// The same, and the last attempt to replace it failed.
    Failed,
}

impl Rewriting {
    pub(in crate::redis) fn new(volatile_allowed: bool) -> Self {
        Self { volatile_allowed, began: Mutex::default(), whole: Mutex::default() }
    }

    /// Succeeds once the server has a new file. Fails if that takes longer than `patience`.
    pub(in crate::redis) async fn of(&self, connection: &Connection, patience: Duration) -> RedisResult<()> {
        let ask = |command: Cmd| {
            let mut connection = connection.clone();
            async move { command.query_async::<Value>(&mut connection).await }
        };
        let began = Instant::now();
        loop {
            let info: String = redis::from_redis_value(ask(cmd("INFO")).await?)?;
            let server = field(&info, "run_id").to_owned();
            if self.whole.lock().contains(&server) {
                return Ok(());
            }
            match state(&info) {
                FileState::Whole => {
                    self.whole.lock().insert(server);
                    return Ok(());
                }
                FileState::Underway => {}
                state @ (FileState::Old | FileState::Failed) => {
                    if self.has_just_begun(&server) {
                        if state == FileState::Failed {
                            return Err(waiting(
                                "Redis cannot write its append-only file anew, as its log says",
                            ));
                        }
                    } else if refuses_torn_files(&ask).await || !self.begin(server, &ask).await? {
                        return Ok(());
                    }
                }
            }
            if began.elapsed() >= patience {
                return Err(waiting("Redis writes its append-only file anew after its start"));
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    fn has_just_begun(&self, server: &str) -> bool {
        self.began.lock().get(server).is_some_and(|began| began.elapsed() < AGAIN_AFTER)
    }

    /// Begins to write a new file. Returns false if the user may not, and the operator accepts losses.
    async fn begin<F: Future<Output = RedisResult<Value>>>(
        &self,
        server: String,
        ask: impl Fn(Cmd) -> F,
    ) -> RedisResult<bool> {
        match ask(cmd("BGREWRITEAOF")).await {
            Err(e) if is_not_to_be_had(&e) && self.volatile_allowed => return Ok(false),
            Err(e) if is_not_to_be_had(&e) => return Err(refused(NotAdmitted::MayTear)),
            Err(e) if e.is_io_error() => return Err(e),
            // An error may say that another process was first. The next look shows what came of it.
            Ok(_) | Err(_) => {}
        }
        tracing::info!("Redis was started: it writes its append-only file anew");
        self.began.lock().insert(server, Instant::now());
        Ok(true)
    }
}

/// Returns whether the user may not run a command, or the server has none of that name.
fn is_not_to_be_had(error: &RedisError) -> bool {
    error.code() == Some("NOPERM") || error.to_string().contains("unknown command")
}

/// Returns whether a server that finds a torn file does not start.
async fn refuses_torn_files<F: Future<Output = RedisResult<Value>>>(ask: impl Fn(Cmd) -> F) -> bool {
    let mut question = cmd("CONFIG");
    question.arg("GET").arg("aof-load-truncated");
    let Ok(answer) = ask(question).await else { return false };
    let setting: Vec<String> = redis::from_redis_value(answer).unwrap_or_default();
    setting.get(1).is_some_and(|value| value == "no")
}

/// Reads the state from a server's `INFO`.
fn state(info: &str) -> FileState {
    let is = |name, value| field(info, name) == value;
    if !is("aof_enabled", "1") {
        return FileState::Whole;
    }
    let has_succeeded = !is("aof_last_rewrite_time_sec", "-1") && is("aof_last_bgrewrite_status", "ok");
    if has_succeeded {
        FileState::Whole
    } else if is("aof_rewrite_in_progress", "1") || is("aof_rewrite_scheduled", "1") {
        FileState::Underway
    } else if is("aof_last_bgrewrite_status", "ok") {
        FileState::Old
    } else {
        FileState::Failed
    }
}

/// Error of a server that is not ready yet.
fn waiting(why: &'static str) -> RedisError {
    (ErrorKind::Server(ServerErrorKind::BusyLoading), why).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_new_once_a_rewrite_has_succeeded_since_the_start() {
        let of = |seconds: &str, status: &str, under_way: &str, scheduled: &str| {
            state(&format!(
                "# Persistence\r\naof_enabled:1\r\naof_rewrite_in_progress:{under_way}\r\n\
                 aof_rewrite_scheduled:{scheduled}\r\naof_last_rewrite_time_sec:{seconds}\r\n\
                 aof_last_bgrewrite_status:{status}\r\n"
            ))
        };
        assert_eq!(of("-1", "ok", "0", "0"), FileState::Old);
        assert_eq!(of("-1", "ok", "1", "0"), FileState::Underway);
        assert_eq!(of("-1", "ok", "0", "1"), FileState::Underway);
        assert_eq!(of("0", "ok", "0", "0"), FileState::Whole);
        assert_eq!(of("3", "ok", "1", "0"), FileState::Whole, "a further one");
        assert_eq!(of("0", "err", "0", "0"), FileState::Failed);
        assert_eq!(of("0", "err", "1", "0"), FileState::Underway);
        assert_eq!(state("aof_enabled:0\r\naof_last_rewrite_time_sec:-1\r\n"), FileState::Whole);
    }
}
