//! What the nodes of a cluster report about its slots.

use std::{
    collections::BTreeSet,
    io,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::RwLock;
use redis::{RedisError, RedisResult, Value, aio::ConnectionLike, pipe};

use crate::redis::{admission::field, connection::Connection};

pub(super) const SLOTS: u16 = 16_384;
/// Maximum number of node ids to keep. A node keeps its id while it is in a cluster.
const MOST_IDS: usize = 1_024;

/// Which nodes have which slots, as one node reports it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Slots {
    pub(super) shards: Vec<Shard>,
    /// Ids of all nodes.
    ids: BTreeSet<String>,
    /// Whether the node cannot reach most of the masters, so that other nodes may have become masters without its
    /// knowledge.
    is_cut_off: bool,
    /// Number of the latest change of masters that the node knows, if the node reports it.
    epoch: Option<u64>,
}

/// A range of slots, with the addresses of its master and its replicas.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shard {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) master: String,
    pub(super) replicas: Vec<String>,
}

/// Ids of the nodes that the cluster has or had. Addresses do not identify nodes: a node's address may now belong to
/// another server, even to one in another cluster.
#[derive(Default)]
pub(in crate::redis) struct Members {
    ids: RwLock<BTreeSet<String>>,
    /// Number of the latest change of masters that any node knew.
    epoch: AtomicU64,
}

impl Members {
    /// Asks a node for the slots. Fails if the node is not in this cluster.
    pub(super) async fn slots(&self, connection: &mut Connection, host: &str) -> RedisResult<Slots> {
        let mut questions = pipe();
        questions.cmd("CLUSTER").arg("SLOTS").cmd("CLUSTER").arg("INFO");
        let mut answers = connection.req_packed_commands(&questions, 0, 2).await?.into_iter();
        let answer = answers.next().unwrap_or(Value::Nil).extract_error()?;
        // The user may not be allowed to ask for the state. Then it stays unknown.
        let state =
            answers.next().and_then(|state| redis::from_redis_value(state.extract_error().ok()?).ok());
        let slots = Slots::read(&answer, &state.unwrap_or_else(String::new), host);
        if slots.shards.is_empty() {
            return Err(stranger("no node of the cluster has any slot"));
        }
        let known = self.ids.read();
        if !known.is_empty() && known.is_disjoint(&slots.ids) {
            return Err(stranger("it is a node of another cluster"));
        }
        Ok(slots)
    }

    /// Returns whether a node may have missed that other nodes have become masters.
    pub(super) fn is_stale(&self, slots: &Slots) -> bool {
        slots.is_cut_off || slots.epoch.is_some_and(|epoch| epoch < self.epoch.load(Ordering::Relaxed))
    }

    /// Adds the nodes that a node of this cluster has reported.
    pub(super) fn add(&self, slots: &Slots) {
        self.epoch.fetch_max(slots.epoch.unwrap_or_default(), Ordering::Relaxed);
        let mut known = self.ids.write();
        if known.len() >= MOST_IDS {
            known.clear();
        }
        known.extend(slots.ids.iter().cloned());
    }
}

impl Slots {
    /// Parses the answers to `CLUSTER SLOTS` and `CLUSTER INFO`. A node that is listed without a host has the same host
    /// as the node that answers. If the host is `?`, the node that answers does not know it.
    fn read(answer: &Value, state: &str, asked_host: &str) -> Self {
        let mut slots = Self {
            is_cut_off: field(state, "cluster_state") == "fail",
            epoch: field(state, "cluster_current_epoch").parse().ok(),
            ..Self::default()
        };
        let Value::Array(shards) = answer else { return slots };
        for shard in shards {
            let Value::Array(parts) = shard else { continue };
            let [Value::Int(first), Value::Int(last), nodes @ ..] = &parts[..] else { continue };
            let (Ok(first), Ok(last)) = (u16::try_from(*first), u16::try_from(*last)) else { continue };
            slots.ids.extend(nodes.iter().filter_map(id));
            let mut addresses = nodes.iter().map(|node| address(node, asked_host));
            // If the master's host is unknown, the range is left out: a replica must not stand in for the master.
            if let Some(master) = addresses.next().flatten() {
                slots.shards.push(Shard { first, last, master, replicas: addresses.flatten().collect() });
            }
        }
        slots
    }

    /// Returns the number of slots that have a master.
    pub(super) fn count(&self) -> usize {
        self.shards.iter().map(|shard| (shard.first..=shard.last).count()).sum()
    }
}

fn address(node: &Value, asked_host: &str) -> Option<String> {
    let Value::Array(parts) = node else { return None };
    let [host, Value::Int(port), ..] = &parts[..] else { return None };
    let host = text(host).unwrap_or_default();
    (host != "?").then(|| on_host(asked_host, &format!("{host}:{port}")))
}

fn id(node: &Value) -> Option<String> {
    let Value::Array(parts) = node else { return None };
    let [_host, _port, id, ..] = &parts[..] else { return None };
    text(id)
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

pub(super) fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

/// Adds the host to an address that has none. (The address `::1:7000` has the host `::1`.)
pub(super) fn on_host(known: &str, address: &str) -> String {
    if host(address).is_empty() { format!("{known}{address}") } else { address.to_owned() }
}

/// Returns the error for a server that is not in this cluster, or that has lost contact with the cluster. Both may
/// change later.
pub(super) fn stranger(why: &'static str) -> RedisError {
    io::Error::new(io::ErrorKind::NotConnected, why).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_read_with_their_replicas_and_without_nodes_whose_host_is_unknown() {
        let node = |host: &str, port| {
            Value::Array(vec![
                Value::BulkString(host.into()),
                Value::Int(port),
                Value::BulkString(format!("id-{port}").into()),
                Value::Array(Vec::new()),
            ])
        };
        let shard = |first, last, nodes: &[Value]| {
            Value::Array([&[Value::Int(first), Value::Int(last)], nodes].concat())
        };
        let answer = Value::Array(vec![
            shard(0, 5, &[node("10.0.0.1", 1), node("", 2), node("?", 3)]),
            shard(6, 9, &[Value::Array(vec![Value::Nil, Value::Int(4)])]),
            shard(10, 11, &[node("?", 5), node("10.0.0.6", 6)]),
            shard(12, 12, &[node("::1", 7)]),
            Value::Int(1),
        ]);
        let shard = |first, last, master: &str, replicas: &[&str]| Shard {
            first,
            last,
            master: master.into(),
            replicas: replicas.iter().map(ToString::to_string).collect(),
        };
        let slots = Slots::read(&answer, "", "here");
        let expected =
            [shard(0, 5, "10.0.0.1:1", &["here:2"]), shard(6, 9, "here:4", &[]), shard(12, 12, "::1:7", &[])];
        assert_eq!((slots.count(), slots.shards), (11, expected.into()));
        assert_eq!(slots.ids, [1, 2, 3, 5, 6, 7].map(|port| format!("id-{port}")).into());
        assert_eq!(Slots::read(&Value::Nil, "", "here"), Slots::default());
        assert_eq!(on_host("here", ":7000"), "here:7000");
    }

    #[test]
    fn a_node_that_is_cut_off_or_has_missed_a_change_of_masters_may_be_stale() {
        let members = Members::default();
        let of = |state: &str, epoch: u64| {
            let state = format!("cluster_state:{state}\r\ncluster_current_epoch:{epoch}\r\n");
            Slots::read(&Value::Nil, &state, "here")
        };
        assert!(!members.is_stale(&of("ok", 7)));
        members.add(&of("ok", 7));
        members.add(&of("ok", 3));
        assert!(!members.is_stale(&of("ok", 7)) && !members.is_stale(&of("ok", 8)));
        assert!(members.is_stale(&of("ok", 6)));
        assert!(members.is_stale(&of("fail", 8)));
        assert!(!members.is_stale(&Slots::read(&Value::Nil, "", "here")), "it may not be asked");
    }
}
