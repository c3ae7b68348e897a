//! The requirements that a Redis must meet before money is stored in it.

use redis::{RedisResult, cmd};

use super::connection::Connection;

/// Durability of an answered write, from the safest to the least safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sync {
    /// `appendfsync always`: answered writes are on disk.
    BeforeAnswering,
    /// The server reports on request which writes are on disk (`WAITAOF`, from 7.2).
    Awaited,
    /// The server cannot report which writes are on disk. Up to two seconds of writes may be lost if the machine fails,
    /// or if Redis fails while its disk is slow.
    Behind,
}

/// What was found out about a server when it was admitted.
pub(super) struct Admitted {
    pub(super) sync: Sync,
    /// The server's `run_id`, which changes at each start.
    pub(super) run_id: String,
    /// The server's replication id. A master that becomes a replica gets another id.
    pub(super) history: String,
}

impl Sync {
    /// Returns a warning that says which failures an answered write may not survive; `None` if it survives all.
    pub(super) fn warning(self) -> Option<&'static str> {
        match self {
            Self::BeforeAnswering => None,
            Self::Awaited => Some(
                "captures wait until Redis reports that they are on disk, but Redis 7 and Valkey report this up to a \
                 second too early: set appendfsync to always (which is also faster)",
            ),
            Self::Behind => Some(
                "Redis may lose up to two seconds of writes if its machine fails, or if Redis alone fails and its disk \
                 is slow: set appendfsync to always",
            ),
        }
    }
}

/// Reason why a Redis is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotAdmitted {
    #[error("Redis {0} is too old: 7.0 or newer is needed (or Valkey)")]
    TooOld(String),
    #[error(
        "Redis evicts keys, and the money recorded in them, when memory is short (maxmemory-policy {0}): \
         set maxmemory-policy to noeviction"
    )]
    Evicts(String),
    #[error(
        "Redis forgets everything when it stops: set appendonly to yes (and appendfsync to always, to lose \
         nothing if the machine fails), or set FAREGATE_REDIS_ALLOW_VOLATILE to accept this risk"
    )]
    Forgets,
    #[error(
        "Redis lets the operating system decide when to write to disk: set appendfsync to everysec, or to always to \
         lose nothing if the machine fails"
    )]
    NeverSyncs,
    #[error("this Redis is a replica; connect to its master")]
    Replica,
    #[error(
        "Redis may restore half of a change: with aof-load-truncated yes, it continues after a torn append-only file, unless \
         the file is rewritten. Allow the user of Redis to run BGREWRITEAOF after each start (+bgrewriteaof), or set \
         aof-load-truncated to no (and allow +config|get), or set FAREGATE_REDIS_ALLOW_VOLATILE to accept this risk"
    )]
    MayTear,
}

pub(super) enum Admission {
    Admitted(Admitted),
    /// The master is still loading its data. Until this is done, what it reports may be wrong (`aof_enabled:0`).
    Loading,
    Refused(NotAdmitted),
}

/// Reads the settings of a master, and checks them once it has loaded its data.
pub(super) async fn admit(connection: &Connection, volatile_allowed: bool) -> RedisResult<Admission> {
    let mut connection = connection.clone();
    let fsync = fsync(&mut connection).await;
    let info: String = cmd("INFO").query_async(&mut connection).await?;
    if field(&info, "loading") == "1" {
        return Ok(Admission::Loading);
    }
    Ok(match judge(&info, fsync, volatile_allowed) {
        Ok(sync) => {
            let (run_id, history) = (field(&info, "run_id").to_owned(), history(&info).to_owned());
            Admission::Admitted(Admitted { sync, run_id, history })
        }
        Err(refused) => Admission::Refused(refused),
    })
}

/// Finds the id of a master's history in its `INFO replication`.
pub(super) fn history(info: &str) -> &str {
    field(info, "master_replid")
}

/// When a server writes its append-only file to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fsync {
    Always,
    Everysec,
    No,
}

/// Finds the `appendfsync` of a server; the default if it cannot be read.
async fn fsync(connection: &mut Connection) -> Fsync {
    let setting: RedisResult<Vec<String>> =
        cmd("CONFIG").arg("GET").arg("appendfsync").query_async(connection).await;
    match setting.unwrap_or_default().get(1).map(String::as_str) {
        Some("always") => Fsync::Always,
        Some("no") => Fsync::No,
        _ => Fsync::Everysec,
    }
}

/// Finds a field of a server's `INFO`; empty if missing.
pub(super) fn field<'a>(info: &'a str, name: &str) -> &'a str {
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_default().trim_end()
}

fn judge(info: &str, fsync: Fsync, volatile_allowed: bool) -> Result<Sync, NotAdmitted> {
    let field = |name| field(info, name).to_owned();
    let version = field("redis_version");
    let mut numbers = version.split('.').map(|n| n.parse::<u32>().unwrap_or(0));
    let major_minor = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if major_minor < (7, 0) {
        return Err(NotAdmitted::TooOld(version));
    }
    if field("role") == "slave" {
        return Err(NotAdmitted::Replica);
    }
    let policy = field("maxmemory_policy");
    if policy != "noeviction" {
        return Err(NotAdmitted::Evicts(policy));
    }
    match (field("aof_enabled") == "1", fsync) {
        (false, _) | (true, Fsync::No) if volatile_allowed => Ok(Sync::Behind),
        (false, _) => Err(NotAdmitted::Forgets),
        (true, Fsync::No) => Err(NotAdmitted::NeverSyncs),
        (true, Fsync::Always) => Ok(Sync::BeforeAnswering),
        (true, Fsync::Everysec) if major_minor >= (7, 2) => Ok(Sync::Awaited),
        (true, Fsync::Everysec) => Ok(Sync::Behind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(version: &str, role: &str, policy: &str, aof: &str) -> String {
        format!(
            "# Server\r\nredis_version:{version}\r\n\r\n# Memory\r\nmaxmemory_policy:{policy}\r\n\
             # Persistence\r\naof_enabled:{aof}\r\n# Replication\r\nrole:{role}\r\n"
        )
    }

    #[test]
    fn a_server_that_keeps_its_data_is_admitted() {
        let sound = |version| info(version, "master", "noeviction", "1");
        assert_eq!(judge(&sound("7.0.15"), Fsync::Always, false), Ok(Sync::BeforeAnswering));
        assert_eq!(judge(&sound("7.0.15"), Fsync::Everysec, false), Ok(Sync::Behind));
        assert_eq!(judge(&sound("7.2.4"), Fsync::Everysec, false), Ok(Sync::Awaited));
        assert_eq!(judge(&sound("8.0.0"), Fsync::Everysec, false), Ok(Sync::Awaited));
    }

    #[test]
    fn a_server_that_would_lose_money_is_not() {
        let refused =
            |version, role, policy, aof| judge(&info(version, role, policy, aof), Fsync::Always, false);
        assert_eq!(refused("6.2.14", "master", "noeviction", "1"), Err(NotAdmitted::TooOld("6.2.14".into())));
        assert_eq!(
            refused("7.0.15", "master", "allkeys-lru", "1"),
            Err(NotAdmitted::Evicts("allkeys-lru".into()))
        );
        assert_eq!(refused("7.0.15", "slave", "noeviction", "1"), Err(NotAdmitted::Replica));
        assert_eq!(refused("7.0.15", "master", "noeviction", "0"), Err(NotAdmitted::Forgets));
        let lazy = |allowed| judge(&info("7.2.4", "master", "noeviction", "1"), Fsync::No, allowed);
        assert_eq!((lazy(false), lazy(true)), (Err(NotAdmitted::NeverSyncs), Ok(Sync::Behind)));
        let volatile = judge(&info("7.0.15", "master", "noeviction", "0"), Fsync::Everysec, true);
        assert_eq!(volatile, Ok(Sync::Behind));
    }
}
