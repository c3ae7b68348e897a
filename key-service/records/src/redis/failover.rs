//! Detects that masters were replaced. A new master may lack writes that the old master had answered. Nothing here can
//! prevent this. So the loss is reported, and its time is kept for readers that rely on the order of writes.
//!
//! A master is identified by its replication id. A promoted replica has a new id, and has its former master's id as a
//! second id. The store keeps the ids of all masters that were seen. So a failover is noticed even after a restart. The
//! second of two quick failovers is noticed too, even if nobody saw the master in between.

use std::{collections::BTreeMap, mem, time::Duration};

use futures_util::future::{join_all, try_join_all};
use parking_lot::Mutex;
use redis::{RedisResult, cmd};
use shared::time::Timestamp;

use super::{
    admission::{field, history},
    connection::{Connection, ask_parts},
    key_space::KeySpace,
};

/// Field in the hash of marks with the time of the last check, in milliseconds. `mark.lua` writes it.
const LOOKED: &str = "looked";
/// Field in the hash of marks with the ids seen so far.
const MASTERS: &str = "masters";
/// Field in the hash of marks with losses. For each loss, it has the id of the server that took over, and a time before
/// the first write that this server accepted.
const LOSSES: &str = "losses";
/// Maximum number of ids to keep. The oldest ids are dropped. A master gets a new id at each start and at each
/// promotion.
const MOST_IDS: usize = 512;
/// Maximum number of losses to keep. The oldest losses are dropped. This does no harm: a reader that must go back to
/// before a dropped loss must also go back to before a later loss that is kept.
const MOST_LOSSES: usize = 64;
/// Difference that is assumed between the clocks of key-services, in milliseconds. The clocks of ready key-services
/// differ by less than this.
const MARGIN: i64 = 15_000;

const GOES_ON_ALONE: &str = "a Redis master that is cut off from its replicas continues to accept writes; they are \
    lost once a replica has taken over, and limits may be spent twice: on every server, set min-replicas-to-write to \
    1, and min-replicas-max-lag to less than the time after which a master is replaced";

/// The masters at the last check.
#[derive(Default)]
pub(super) struct Masters(Mutex<SeenMasters>);

#[derive(Clone, Default)]
struct SeenMasters {
    /// Replication ids, the latest id last; empty before the first check.
    ids: Vec<String>,
    /// Whether the ids were written to every master that was up.
    are_noted: bool,
    /// Time of the last check at which no master was missing.
    looked: Option<i64>,
    /// Number of promoted replicas that have not been reported yet.
    promoted: usize,
    /// Whether some master would accept writes without its replicas.
    goes_on_alone: bool,
}

/// The state of a master at a check.
pub(super) struct MasterState {
    pub(super) connection: Connection,
    replication: String,
    /// Whether the master lacks writes that it had confirmed.
    has_forgotten: bool,
}

/// Losses of a store, found while marking it as seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Losses {
    /// Number of replicas that became masters since the last check.
    pub(super) promoted: usize,
    /// How far the store's mark is behind the last confirmed mark. The writes of this much time are lost.
    pub(super) forgotten: Duration,
}

impl MasterState {
    pub(super) async fn ask(mut connection: Connection, has_forgotten: bool) -> RedisResult<Self> {
        let replication = cmd("INFO").arg("replication").query_async(&mut connection).await?;
        Ok(Self { connection, replication, has_forgotten })
    }

    fn id(&self) -> &str {
        history(&self.replication)
    }

    fn is_master(&self) -> bool {
        is_master(&self.replication)
    }

    fn is_promoted(&self) -> bool {
        is_promoted(&self.replication)
    }

    fn is_unknown(&self, ids: &[String]) -> bool {
        is_unknown(&self.replication, ids)
    }
}

impl Masters {
    /// Compares the masters with those at the last check, and notes new masters in the store. `is_complete` means that
    /// no master is missing.
    pub(super) async fn look(
        &self,
        masters: &[MasterState],
        names: &KeySpace,
        now: Timestamp,
        is_complete: bool,
    ) -> RedisResult<()> {
        self.warn(masters);
        let seen = self.0.lock().clone();
        let is_complete = is_complete && masters.iter().all(MasterState::is_master);
        let looked = if is_complete { Some(now.millis()) } else { seen.looked };
        if seen.are_noted && !masters.iter().any(|master| master.is_unknown(&seen.ids)) {
            self.0.lock().looked = looked;
            return Ok(());
        }
        let mut history = MasterHistory::read(masters, names).await?;
        let known = if seen.ids.is_empty() { history.ids.clone() } else { seen.ids };
        // The first look at a store has nothing to compare with.
        let is_first = known.is_empty();
        let mut promoted = 0;
        for master in masters.iter().filter(|master| !is_first && master.is_unknown(&known)) {
            promoted += usize::from(master.is_promoted());
            if master.is_promoted() || master.has_forgotten {
                // Another key-service may already have noted this id, without knowing that this process has found lost
                // writes.
                let since = before(history.last_look_at(master, seen.looked));
                history.losses.entry(master.id().to_owned()).or_insert(since);
            }
        }
        let new = masters.iter().filter(|master| master.is_unknown(&known));
        let new: Vec<String> = new.map(|master| master.id().to_owned()).collect();
        history.add(known.into_iter().chain(new));
        history.bound_losses();
        let are_noted = history.write(masters, names).await?;
        let mut seen = self.0.lock();
        seen.promoted += promoted;
        (seen.ids, seen.are_noted, seen.looked) = (history.ids, are_noted, looked);
        Ok(())
    }

    /// Logs a warning, once, if there are masters that would accept writes without their replicas.
    fn warn(&self, masters: &[MasterState]) {
        let warning = warning(masters);
        let went_on = mem::replace(&mut self.0.lock().goes_on_alone, warning.is_some());
        if let Some(warning) = warning.filter(|_| !went_on) {
            tracing::warn!("{warning}");
        }
    }

    /// Returns the number of promoted replicas that have not been reported yet, and resets it.
    pub(super) fn take_promoted(&self) -> usize {
        mem::take(&mut self.0.lock().promoted)
    }
}

/// Returns a warning if there are masters that have replicas but would accept writes without them.
pub(super) fn warning(masters: &[MasterState]) -> Option<&'static str> {
    masters.iter().any(|master| goes_on_alone(&master.replication)).then_some(GOES_ON_ALONE)
}

/// Returns whether a master has replicas and takes writes without them. Only a master that requires replicas reports
/// how many good replicas it has.
fn goes_on_alone(info: &str) -> bool {
    let is_replicated = !matches!(field(info, "connected_slaves"), "" | "0");
    is_replicated && field(info, "min_slaves_good_slaves").is_empty()
}

/// Returns the times after which writes may have been lost, in milliseconds, earliest first.
pub(super) async fn losses(masters: &[MasterState], names: &KeySpace) -> RedisResult<Vec<i64>> {
    let history = MasterHistory::read(masters, names).await?;
    let mut times: Vec<i64> = history.losses.values().copied().collect();
    if !history.ids.is_empty() {
        // These masters took over from another server, and no key-service has checked them since they took over.
        let unnoticed =
            masters.iter().filter(|master| master.is_promoted() && master.is_unknown(&history.ids));
        times.extend(unnoticed.map(|master| before(history.last_look_at(master, None))));
    }
    times.sort_unstable();
    Ok(times)
}

/// Returns a time earlier than any write made after the last check.
fn before(looked: Option<i64>) -> i64 {
    looked.map_or(0, |looked| looked.saturating_sub(MARGIN))
}

/// Returns whether a server is a master and its id is not among these. A server that has just become a replica has its
/// master's id, which does not count.
fn is_unknown(info: &str, ids: &[String]) -> bool {
    is_master(info) && !ids.iter().any(|seen| seen == history(info))
}

fn is_master(info: &str) -> bool {
    field(info, "role") == "master"
}

/// Returns whether a master was once a replica of another master. A server that was only restarted has zeros as its
/// second id.
fn is_promoted(info: &str) -> bool {
    field(info, "master_replid2").bytes().any(|digit| digit != b'0')
}

/// What all parts of the store together remember about its masters.
#[derive(Debug, Default, PartialEq, Eq)]
struct MasterHistory {
    ids: Vec<String>,
    losses: BTreeMap<String, i64>,
    /// For each master's id, the earliest of the times at which the master's parts were last checked.
    looked: BTreeMap<String, i64>,
}

impl MasterHistory {
    async fn read(masters: &[MasterState], names: &KeySpace) -> RedisResult<Self> {
        let parts = try_join_all(masters.iter().map(|master| {
            ask_parts(&master.connection, |part| {
                let mut question = cmd("HMGET");
                question.arg(names.marks(part)).arg(MASTERS).arg(LOSSES).arg(LOOKED);
                question
            })
        }));
        let mut all = Self::default();
        for (master, parts) in masters.iter().zip(parts.await?) {
            for (_, part) in parts {
                let [ids, losses, looked]: [Option<String>; 3] = redis::from_redis_value(part)?;
                all.add(ids.iter().flat_map(|ids| ids.split(' ')).map(str::to_owned));
                for (id, since) in losses.iter().flat_map(|losses| losses.split(' ')).filter_map(loss) {
                    keep_least(&mut all.losses, id, since);
                }
                if let Some(looked) = looked.and_then(|looked| looked.parse().ok()) {
                    keep_least(&mut all.looked, master.id(), looked);
                }
            }
        }
        Ok(all)
    }

    /// Returns when the server that a master has replaced was last checked. The time is noted at this master, if it has
    /// a part of the store. Otherwise the last complete check counts: the earliest time that other masters or this
    /// process know.
    fn last_look_at(&self, master: &MasterState, complete: Option<i64>) -> Option<i64> {
        let own = self.looked.get(master.id()).copied();
        own.or_else(|| self.looked.values().copied().chain(complete).min())
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

    fn bound_losses(&mut self) {
        let mut times: Vec<_> = self.losses.iter().map(|(id, since)| (*since, id.clone())).collect();
        times.sort_unstable();
        for (_, id) in &times[..times.len().saturating_sub(MOST_LOSSES)] {
            self.losses.remove(id);
        }
    }

    /// Writes the history to the masters. Fails if no master accepts it; otherwise returns whether all masters accepted
    /// it.
    async fn write(&self, masters: &[MasterState], names: &KeySpace) -> RedisResult<bool> {
        let losses: Vec<_> = self.losses.iter().map(|(id, since)| format!("{id}={since}")).collect();
        let (ids, losses) = (self.ids.join(" "), losses.join(" "));
        let written = join_all(masters.iter().map(|master| {
            ask_parts(&master.connection, |part| {
                let mut note = cmd("HSET");
                note.arg(names.marks(part)).arg(MASTERS).arg(&ids).arg(LOSSES).arg(&losses);
                note
            })
        }));
        let (taken, refused): (Vec<_>, Vec<_>) = written.await.into_iter().partition(Result::is_ok);
        match refused.into_iter().next() {
            None => Ok(true),
            Some(refused) if taken.is_empty() => refused.map(|_| false),
            Some(_) => Ok(false),
        }
    }
}

/// Sets the time of an id, or lowers it if a later time is set.
fn keep_least(times: &mut BTreeMap<String, i64>, id: &str, time: i64) {
    times.entry(id.to_owned()).and_modify(|known| *known = time.min(*known)).or_insert(time);
}

/// Parses a stored loss.
fn loss(text: &str) -> Option<(&str, i64)> {
    let (id, since) = text.split_once('=')?;
    Some((id, since.parse().ok()?))
}

impl Losses {
    /// Logs the losses, and counts them in the metrics.
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
                "Redis has lost at least this many milliseconds of its latest writes: compare the journal with the \
                 upstream's record (audit --against)"
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

    /// Returns how many of these masters were promoted and are not known yet.
    fn promoted(infos: &[String], known: &[&str]) -> usize {
        let known = ids(known);
        infos.iter().filter(|info| is_unknown(info, &known) && is_promoted(info)).count()
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

    #[test]
    fn the_latest_losses_are_kept() {
        let mut history = MasterHistory::default();
        for n in (0..200).rev() {
            history.losses.insert(format!("{n}"), n);
        }
        history.bound_losses();
        assert_eq!(history.losses.len(), MOST_LOSSES);
        assert_eq!(history.losses.values().min(), Some(&(200 - i64::try_from(MOST_LOSSES).unwrap())));
    }
}
