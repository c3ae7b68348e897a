//! Makes Redis rewrite its append-only file after each start, before anything else is written.
//!
//! A crash or a full disk may leave half a transaction at the end of the file. With `aof-load-truncated yes`, its
//! default, Redis then cuts off only the last command. It appends new commands after the other commands of that
//! transaction. At the following start, these leftover commands take effect together with the next transaction in the
//! file. A rewritten file has no leftovers.
//!
//! When a server has rewritten its file, its run id is noted in its parts of the store. A server has a new run id after
//! each start. So a process that starts later need not ask for a rewrite again. It can start even if Redis cannot write
//! its file at that time.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value, cmd};
use tokio::time::{Duration, Instant, sleep};

use crate::redis::{
    admission::{NotAdmitted, field},
    connection::{Connection, ask_parts, refused},
    key_space::KeySpace,
};

/// Minimum and maximum pause before a server's progress is checked again. Between these limits, the pause is a quarter
/// of the time that has passed.
const LOOK_AGAIN: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(250)];
/// Field in the hash of marks with the run ids of servers that have rewritten their file.
const NOTED: &str = "whole";
/// Maximum number of run ids in a note. The oldest ids are dropped. There may be several, because slots that move to
/// another master take their marks along.
const MOST_NOTED: usize = 64;
/// If a server cannot write its file, minimum time between two attempts. Each attempt copies the server's memory.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

pub(in crate::redis) struct Rewriting {
    volatile_allowed: bool,
    key_space: KeySpace,
    /// For each server's run id, when this process last asked the server for a rewrite.
    began: Mutex<HashMap<String, Instant>>,
    /// Run ids of servers that have rewritten their file. If a later rewrite fails, Redis keeps the rewritten file.
    whole: Mutex<HashSet<String>>,
    /// Run ids from `whole` that this process has also seen in the note.
    noted: Mutex<HashSet<String>>,
}

/// State of a server's file since the server started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileState {
    /// The file was rewritten, or there is none.
    Whole,
    Underway,
    /// The file is still the file with which the server started.
    Old,
    /// The file is still the file with which the server started, and the last attempt to rewrite it failed.
    Failed,
}

impl Rewriting {
    pub(in crate::redis) fn new(volatile_allowed: bool, key_space: KeySpace) -> Self {
        let (began, whole, noted) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { volatile_allowed, key_space, began, whole, noted }
    }

    /// Waits until the server has rewritten its file. Fails if that takes longer than `patience`. Returns the server's
    /// run id if this id should be noted.
    pub(in crate::redis) async fn of(
        &self,
        connection: &Connection,
        patience: Duration,
    ) -> RedisResult<Option<String>> {
        let ask = |command: Cmd| {
            let mut connection = connection.clone();
            async move { command.query_async::<Value>(&mut connection).await }
        };
        let (began, [shortest, longest]) = (Instant::now(), LOOK_AGAIN);
        loop {
            let info: String = redis::from_redis_value(ask(cmd("INFO")).await?)?;
            let server = field(&info, "run_id").to_owned();
            if self.whole.lock().contains(&server) {
                return Ok(Some(server));
            }
            match state(&info) {
                FileState::Whole => return Ok(Some(server)),
                FileState::Underway | FileState::Old | FileState::Failed
                    if self.is_noted(connection, &server).await =>
                {
                    remember(&self.whole, server);
                    return Ok(None);
                }
                FileState::Underway => {}
                state @ (FileState::Old | FileState::Failed) => {
                    if self.has_just_begun(&server) {
                        if state == FileState::Failed {
                            return Err(waiting("Redis cannot rewrite its append-only file; see its log"));
                        }
                    } else if refuses_torn_files(&ask).await || !self.begin(&server, &ask).await? {
                        return Ok(None);
                    } else if has_no_commands(&info) {
                        // The file cannot contain leftovers. Later writes are in the rewritten file or come after it.
                        return Ok(Some(server));
                    }
                }
            }
            if began.elapsed() >= patience {
                return Err(waiting("Redis is rewriting its append-only file after its start"));
            }
            sleep((began.elapsed() / 4).clamp(shortest, longest)).await;
        }
    }

    /// Remembers that a server has rewritten its file or need not do so. Notes this in the server's parts of the store,
    /// which must be known to be ours.
    pub(in crate::redis) async fn note(&self, connection: &Connection, server: String) {
        remember(&self.whole, server.clone());
        if self.noted.lock().contains(&server) {
            return;
        }
        let noted = self.in_note(connection).await;
        if !noted.contains(&server) {
            let others = noted.iter().take(MOST_NOTED - 1).map(String::as_str);
            let all = std::iter::once(server.as_str()).chain(others).collect::<Vec<_>>().join(" ");
            // A Redis that refuses the note still serves. The next process then asks for another rewrite.
            let _ = ask_parts(connection, |part| {
                let mut note = cmd("HSET");
                note.arg(self.key_space.marks(part)).arg(NOTED).arg(&all);
                note
            })
            .await;
        }
        remember(&self.noted, server);
    }

    /// Returns whether a process has noted that this server has rewritten its file.
    async fn is_noted(&self, connection: &Connection, server: &str) -> bool {
        self.in_note(connection).await.iter().any(|noted| noted == server)
    }

    /// Returns the run ids noted in a server's parts of the store.
    async fn in_note(&self, connection: &Connection) -> Vec<String> {
        let parts = ask_parts(connection, |part| {
            let mut question = cmd("HGET");
            question.arg(self.key_space.marks(part)).arg(NOTED);
            question
        });
        let mut noted = Vec::new();
        // If there is no answer, no id counts as noted, and the file is rewritten once more.
        for (_, of_part) in parts.await.unwrap_or_default() {
            let of_part: Option<String> = redis::from_redis_value(of_part).unwrap_or_default();
            for server in of_part.iter().flat_map(|all| all.split(' ')).filter(|server| !server.is_empty()) {
                if !noted.iter().any(|known| known == server) {
                    noted.push(server.to_owned());
                }
            }
        }
        noted
    }

    fn has_just_begun(&self, server: &str) -> bool {
        self.began.lock().get(server).is_some_and(|began| began.elapsed() < AGAIN_AFTER)
    }

    /// Asks for a rewrite. Returns false if the user may not ask and the operator accepts losses.
    async fn begin<F: Future<Output = RedisResult<Value>>>(
        &self,
        server: &str,
        ask: impl Fn(Cmd) -> F,
    ) -> RedisResult<bool> {
        match ask(cmd("BGREWRITEAOF")).await {
            Err(e) if is_not_to_be_had(&e) && self.volatile_allowed => return Ok(false),
            Err(e) if is_not_to_be_had(&e) => return Err(refused(NotAdmitted::MayTear)),
            Err(e) if e.is_io_error() => return Err(e),
            // An error may mean that another process asked first. The next check shows whether a rewrite is under way.
            Ok(_) | Err(_) => {}
        }
        tracing::info!("Redis was started and is rewriting its append-only file");
        let mut began = self.began.lock();
        began.retain(|_, at| at.elapsed() < AGAIN_AFTER);
        began.insert(server.to_owned(), Instant::now());
        drop(began);
        Ok(true)
    }
}

/// Adds a run id. If there are too many, all are forgotten, because they can be found out again from `INFO` or from the
/// note.
fn remember(ids: &Mutex<HashSet<String>>, server: String) {
    let mut ids = ids.lock();
    if ids.len() >= MOST_NOTED {
        ids.clear();
    }
    ids.insert(server);
}

/// Returns whether the user may not run a command, or the server does not have the command.
fn is_not_to_be_had(error: &RedisError) -> bool {
    error.code() == Some("NOPERM") || error.to_string().contains("unknown command")
}

/// Returns whether a server refuses to start with a cut file.
async fn refuses_torn_files<F: Future<Output = RedisResult<Value>>>(ask: impl Fn(Cmd) -> F) -> bool {
    let mut question = cmd("CONFIG");
    question.arg("GET").arg("aof-load-truncated");
    let Ok(answer) = ask(question).await else { return false };
    let setting: Vec<String> = redis::from_redis_value(answer).unwrap_or_default();
    setting.get(1).is_some_and(|value| value == "no")
}

/// Returns whether the file has only a snapshot and no commands after it, as at a server's first start.
fn has_no_commands(info: &str) -> bool {
    let size = field(info, "aof_current_size");
    !size.is_empty() && size == field(info, "aof_base_size")
}

/// Parses the state from a server's `INFO`.
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

/// Returns the error for a server that is not ready yet.
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
