//! Detection of masters that were replaced. A new master may lack writes that the old one had answered. Nothing can prevent
//! this, so it is reported, and its time is kept for those who rely on the order of what was written.
//!
//! A master is known by its replication id. A promoted replica has a new one, and the id that it followed before as its
//! second. All ids that were seen are kept in the store, so that a failover is noticed after a restart too, and the second
//! of two quick failovers, whose predecessor nobody saw.

use std::{collections::BTreeMap, mem, time::Duration};

use futures_util::future::try_join_all;
use parking_lot::Mutex;
use redis::{RedisResult, cmd};
use shared::time::Timestamp;

use super::{
    admission::field,
    connection::Connection,
    key_space::{KeySpace, PARTS},
};

/// Field of the marks with the time of the last look, in milliseconds. `mark.lua` writes it.
const LOOKED: &str = "looked";
/// Field of the marks with the ids that were seen.
const MASTERS: &str = "masters";
/// Field of the marks with losses: the id of the server that took over, and a time before the first write that it took.
const LOSSES: &str = "losses";
/// Ids that are kept, the latest. Each master has one, and a new one after each start and promotion.
const MOST_IDS: usize = 512;
/// Difference between the clocks of key-services for which a loss allows. Those of ready ones differ by less.
const MARGIN: i64 = 15_000;

const GOES_ON_ALONE: &str = "a master of Redis that is cut off from its replicas goes on taking writes, which are lost once a replica \
    has taken over, and caps may be spent twice: set min-replicas-to-write to 1, and min-replicas-max-lag to less than the time \
    after which a master is replaced, on every server";

/// Masters last seen.
#[derive(Default)]
pub(super) struct Masters(Mutex<SeenMasters>);

#[derive(Clone, Default)]
struct SeenMasters {
    /// Replication ids, the latest last; none before the first look.
    ids: Vec<String>,
    looked: Option<i64>,
    /// Promoted replicas that were not reported yet.
    promoted: usize,
    /// Some master would go on without its replicas.
    goes_on_alone: bool,
}

/// Losses of a store, found when it is marked as seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Losses {
    /// Replicas that became masters since the last check.
    pub(super) promoted: usize,
    /// Length of what the store has forgotten: from its mark to the last confirmed one.
    pub(super) forgotten: Duration,
}

impl Masters {
    /// Compares the masters with those seen last, and notes new ones in the store. `has_forgotten` says that the store lacks
    /// writes that it had confirmed.
    pub(super) async fn look(
        &self,
        connection: &Connection,
        names: &KeySpace,
        has_forgotten: bool,
        now: Timestamp,
    ) -> RedisResult<()> {
        let infos = replication(connection).await?;
        self.warn(&infos);
        let seen = self.0.lock().clone();
        if !seen.ids.is_empty() && unknown(&infos, &seen.ids).is_empty() {
            self.0.lock().looked = Some(now.millis());
            return Ok(());
        }
        let mut history = MasterHistory::read(connection, names).await?;
        let known = if seen.ids.is_empty() { history.ids.clone() } else { seen.ids };
        let new = unknown(&infos, &known);
        let mut promoted = new.iter().filter(|info| is_promoted(info)).count();
        if known.is_empty() {
            // The first look at a store has nothing to compare with.
            promoted = 0;
        } else if promoted > 0 || has_forgotten {
            let since = seen.looked.into_iter().chain(history.looked).min();
            // Another key-service may have noted the id without what this one found forgotten.
            for info in &new {
                history.losses.entry(id(info).to_owned()).or_insert_with(|| before(since));
            }
        }
        history.add(known.into_iter().chain(new.iter().map(|info| id(info).to_owned())));
        history.write(connection, names).await?;
        let mut seen = self.0.lock();
        seen.promoted += promoted;
        (seen.ids, seen.looked) = (history.ids, Some(now.millis()));
        Ok(())
    }

    /// Warns of masters that may go on alone, once.
    fn warn(&self, infos: &[String]) {
        let goes_on = infos.iter().any(|info| goes_on_alone(info));
        let went_on = mem::replace(&mut self.0.lock().goes_on_alone, goes_on);
        if goes_on && !went_on {
            tracing::warn!("{GOES_ON_ALONE}");
        }
    }

    /// Takes the number of promoted replicas that were not reported yet.
    pub(super) fn take_promoted(&self) -> usize {
        mem::take(&mut self.0.lock().promoted)
    }
}

/// `INFO replication` of each master.
async fn replication(connection: &Connection) -> RedisResult<Vec<String>> {
    let mut question = cmd("INFO");
    question.arg("replication");
    let infos = connection.clone().ask_masters(question).await?;
    infos.into_iter().map(|info| Ok(redis::from_redis_value(info)?)).collect()
}

/// Warns of masters that have replicas and go on without them.
pub(super) async fn warning(connection: &Connection) -> RedisResult<Option<&'static str>> {
    let infos = replication(connection).await?;
    Ok(infos.iter().any(|info| goes_on_alone(info)).then_some(GOES_ON_ALONE))
}

/// Returns whether a master has replicas and takes writes without them. Only one that does not has a count of good replicas.
fn goes_on_alone(info: &str) -> bool {
    let is_replicated = !matches!(field(info, "connected_slaves"), "" | "0");
    is_replicated && field(info, "min_slaves_good_slaves").is_empty()
}

/// Times since which writes may have been lost, in milliseconds, the earliest first.
pub(super) async fn losses(connection: &Connection, names: &KeySpace) -> RedisResult<Vec<i64>> {
    let infos = replication(connection).await?;
    let MasterHistory { ids, losses, looked } = MasterHistory::read(connection, names).await?;
    let mut times: Vec<i64> = losses.into_values().collect();
    if !ids.is_empty() {
        // These took over, and no key-service has looked since.
        let unnoticed = unknown(&infos, &ids).into_iter().filter(|info| is_promoted(info));
        times.extend(unnoticed.map(|_| before(looked)));
    }
    times.sort_unstable();
    Ok(times)
}

/// A time before which all writes were made before a loss that was noticed after this look.
fn before(looked: Option<i64>) -> i64 {
    looked.map_or(0, |looked| looked.saturating_sub(MARGIN))
}

/// Returns the masters whose ids are not among these. A server that has just become a replica has the id of its master.
fn unknown<'a>(infos: &'a [String], ids: &[String]) -> Vec<&'a str> {
    let masters = infos.iter().map(String::as_str).filter(|info| field(info, "role") == "master");
    masters.filter(|info| !ids.iter().any(|seen| seen == id(info))).collect()
}

fn id(info: &str) -> &str {
    field(info, "master_replid")
}

/// Returns whether a master followed another one before. A server that was only started anew has a second id of zeros.
fn is_promoted(info: &str) -> bool {
    field(info, "master_replid2").bytes().any(|digit| digit != b'0')
}

/// What the store remembers of its masters, in every part.
#[derive(Debug, Default, PartialEq, Eq)]
struct MasterHistory {
    ids: Vec<String>,
    losses: BTreeMap<String, i64>,
    /// Time of the last look that every part has.
    looked: Option<i64>,
}

impl MasterHistory {
    async fn read(connection: &Connection, names: &KeySpace) -> RedisResult<Self> {
        let parts = try_join_all((0..PARTS).map(|part| {
            let (mut connection, mut question) = (connection.clone(), cmd("HMGET"));
            question.arg(names.marks(part)).arg(MASTERS).arg(LOSSES).arg(LOOKED);
            async move { question.query_async::<[Option<String>; 3]>(&mut connection).await }
        }));
        let mut history = Self::default();
        for [ids, losses, looked] in parts.await? {
            history.add(ids.iter().flat_map(|ids| ids.split(' ')).map(str::to_owned));
            for (id, since) in losses.iter().flat_map(|losses| losses.split(' ')).filter_map(loss) {
                let known = history.losses.entry(id.to_owned()).or_insert(since);
                *known = since.min(*known);
            }
            let looked = looked.and_then(|looked| looked.parse().ok());
            history.looked = history.looked.into_iter().chain(looked).min();
        }
        Ok(history)
    }

    /// Adds ids that are not there yet.
    fn add(&mut self, ids: impl IntoIterator<Item = String>) {
        for id in ids {
            if !self.ids.contains(&id) {
                self.ids.push(id);
            }
        }
        self.ids.drain(..self.ids.len().saturating_sub(MOST_IDS));
    }

    async fn write(&self, connection: &Connection, names: &KeySpace) -> RedisResult<()> {
        let losses: Vec<_> = self.losses.iter().map(|(id, since)| format!("{id}={since}")).collect();
        let (ids, losses) = (self.ids.join(" "), losses.join(" "));
        try_join_all((0..PARTS).map(|part| {
            let (mut connection, mut note) = (connection.clone(), cmd("HSET"));
            note.arg(names.marks(part)).arg(MASTERS).arg(&ids).arg(LOSSES).arg(&losses);
            async move { note.query_async::<()>(&mut connection).await }
        }))
        .await
        .map(drop)
    }
}

/// Reads a loss as it is kept.
fn loss(text: &str) -> Option<(&str, i64)> {
    let (id, since) = text.split_once('=')?;
    Some((id, since.parse().ok()?))
}

impl Losses {
    /// Logs and counts the losses.
    pub(super) fn report(self) {
        if self.promoted > 0 {
            metrics::counter!("keyservice_store_failovers_total").increment(self.promoted as u64);
            tracing::error!(
                replicas = self.promoted,
                "a replica of Redis took over; what it had not received is lost, such as charges and revocations: compare the \
                 journal with the upstream's record (audit --against), and revoke again what was revoked just before"
            );
        }
        if !self.forgotten.is_zero() {
            metrics::counter!("keyservice_store_forgot_total").increment(1);
            tracing::error!(
                milliseconds = u64::try_from(self.forgotten.as_millis()).unwrap_or(u64::MAX),
                "Redis has forgotten its last writes, at least those of this time: compare the journal with the upstream's record \
                 (audit --against)"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(id: &str, second: &str) -> String {
        format!("# Replication\r\nrole:master\r\nmaster_replid:{id}\r\nmaster_replid2:{second}\r\n")
    }

    fn ids(ids: &[&str]) -> Vec<String> {
        ids.iter().map(ToString::to_string).collect()
    }

    /// Second ids of the masters that are unknown and promoted.
    fn promoted(infos: &[String], known: &[&str]) -> usize {
        unknown(infos, &ids(known)).into_iter().filter(|info| is_promoted(info)).count()
    }

    #[test]
    fn a_promoted_replica_is_known_by_an_id_that_is_new_and_a_second_one() {
        let none = "0".repeat(40);
        assert_eq!(promoted(&[info("a", &none), info("b", &none)], &["b", "a"]), 0);
        assert_eq!(promoted(&[info("a", &none), info("d", "b")], &["a", "b"]), 1);
        assert_eq!(
            promoted(&[info("a", &none), info("d", "c")], &["a", "b"]),
            1,
            "nobody saw the one between"
        );
        assert_eq!(promoted(&[info("a", &none), info("d", "c")], &["a", "b", "d"]), 0, "once");
        assert_eq!(promoted(&[info("e", &none)], &["a"]), 0, "a master that was started anew");
        let demoted = info("c", "b").replace("role:master", "role:slave");
        assert_eq!(promoted(std::slice::from_ref(&demoted), &["a", "b"]), 0, "it has the new master's ids");
        assert_eq!(promoted(&[demoted, info("d", "a")], &["a", "b"]), 1, "each master is looked at");
    }

    #[test]
    fn a_master_with_replicas_that_counts_no_good_ones_goes_on_alone() {
        let info = |replicas, more| format!("role:master\r\nconnected_slaves:{replicas}\r\n{more}");
        assert!(goes_on_alone(&info(1, "")));
        assert!(!goes_on_alone(&info(0, "")), "it has no replicas");
        assert!(!goes_on_alone(&info(2, "min_slaves_good_slaves:0\r\n")));
        assert!(!goes_on_alone(""));
    }

    #[test]
    fn the_latest_ids_are_kept() {
        let mut history = MasterHistory::default();
        history.add((0..MOST_IDS + 2).map(|n| n.to_string()));
        history.add(ids(&["5"]));
        assert_eq!((history.ids.len(), &history.ids[0]), (MOST_IDS, &"2".to_owned()));
        assert_eq!(loss("a=12"), Some(("a", 12)));
        assert_eq!(loss(""), None);
    }
}
