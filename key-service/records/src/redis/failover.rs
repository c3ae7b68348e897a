//! Detection of promoted replicas. A new master may lack writes that the old one had answered. Nothing can prevent
//! this, so the promotion is reported.

use std::time::Duration;

use parking_lot::Mutex;

use super::admission::field;

/// Ids that are remembered, of all masters.
const REMEMBERED: usize = 256;

/// Replication ids of the masters seen, the latest last.
#[derive(Default)]
pub(super) struct Masters(Mutex<Vec<String>>);

/// Losses of a store, found when it is marked as seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Losses {
    /// Replicas that became masters since the last check.
    pub(super) promoted: usize,
    /// Length of what the store has forgotten: from its mark to the last confirmed one.
    pub(super) forgotten: Duration,
}

impl Masters {
    /// Compares the masters with those seen last, by each one's `INFO replication`. Returns the number of promoted
    /// replicas: the second id of a promoted master is the first id of its predecessor.
    pub(super) fn look(&self, infos: &[String]) -> usize {
        // A master that has just become a replica has the ids of the new one.
        if infos.iter().any(|info| field(info, "role") != "master") {
            return 0;
        }
        let mut known = self.0.lock();
        let is_known = |known: &[String], id: &str| known.iter().any(|seen| seen == id);
        let mut promoted = 0;
        for info in infos {
            let (id, before) = (field(info, "master_replid"), field(info, "master_replid2"));
            if !is_known(&known, id) {
                promoted += usize::from(is_known(&known, before));
                known.push(id.to_owned());
            }
        }
        // A master that is away is not forgotten meanwhile.
        let surplus = known.len().saturating_sub(REMEMBERED);
        known.drain(..surplus);
        promoted
    }
}

impl Losses {
    /// Logs and counts the losses.
    pub(super) fn report(self) {
        if self.promoted > 0 {
            metrics::counter!("keyservice_store_failovers_total").increment(self.promoted as u64);
            tracing::error!(
                replicas = self.promoted,
                "a replica of Redis took over; charges that it had not received are lost: compare the journal with the upstream's \
                 record (audit --against)"
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

    #[test]
    fn a_promoted_replica_is_known_by_its_masters_id() {
        let masters = Masters::default();
        let none = "0".repeat(40);
        assert_eq!(masters.look(&[info("a", &none), info("b", &none)]), 0, "the first look");
        assert_eq!(masters.look(&[info("b", &none), info("a", &none)]), 0);
        let demoted = info("c", "b").replace("role:master", "role:slave");
        assert_eq!(masters.look(&[info("a", &none), demoted]), 0, "the old master tells of the new one");
        assert_eq!(masters.look(&[info("a", &none), info("c", "b")]), 1);
        assert_eq!(masters.look(&[info("a", &none), info("c", "b")]), 0, "once");
        assert_eq!(masters.look(&[info("d", &none), info("c", "b")]), 0, "a master that was started anew");
    }
}
