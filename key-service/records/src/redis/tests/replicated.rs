//! A cluster whose masters have replicas.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use super::{Space, secured::Signed};
use crate::servers::{PATIENCE, RedisServer, free_port};

const SLOTS: [&str; 3] = ["0 5460", "5461 10922", "10923 16383"];
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Three masters with a replica each; the last master has two.
pub(super) struct Replicated {
    pub(super) nodes: Vec<RedisServer>,
    pub(super) ports: Vec<u16>,
}

impl Replicated {
    pub(super) async fn start() -> Self {
        let ports: Vec<u16> = (0..7).map(|_| free_port()).collect();
        let (mut nodes, mut buses) = (Vec::new(), Vec::new());
        for port in &ports {
            let (port, bus) = (port.to_string(), free_port().to_string());
            let options = ["--port", &port, "--cluster-enabled", "yes", "--cluster-port", &bus];
            let of_time = ["--cluster-node-timeout", "1500", "--cluster-require-full-coverage", "no"];
            // Masters can be cut off from their replicas.
            let of_replicas = ["--masteruser", "replication", "--masterauth", "secret"];
            let of_links = ["--enable-debug-command", "local"];
            nodes.push(RedisServer::start_with(&[&options[..], &of_time, &of_replicas, &of_links].concat()));
            buses.push(bus);
        }
        let cluster = Self { nodes, ports };
        for (n, node) in cluster.nodes.iter().enumerate() {
            must(node, "ACL SETUSER replication on >secret +psync +replconf +ping");
            if let Some(slots) = SLOTS.get(n) {
                must(node, &format!("CLUSTER ADDSLOTSRANGE {slots}"));
                must(node, &format!("CLUSTER SET-CONFIG-EPOCH {}", n + 1));
            }
            must(&cluster.nodes[0], &format!("CLUSTER MEET 127.0.0.1 {} {}", cluster.ports[n], buses[n]));
        }
        let ids: Vec<String> = cluster.nodes[..3].iter().map(RedisServer::node_id).collect();
        let knows = |node: &RedisServer, id: &String| node.whole("CLUSTER NODES").contains(id);
        until("the nodes to meet", || cluster.nodes.iter().all(|node| ids.iter().all(|id| knows(node, id))))
            .await;
        for (n, node) in cluster.nodes.iter().enumerate().skip(3) {
            must(node, &format!("CLUSTER REPLICATE {}", ids[n.min(5) - 3]));
        }
        until("the cluster to form", || {
            let has_all = |node: &RedisServer| node.whole("CLUSTER INFO").contains("cluster_slots_ok:16384");
            cluster.nodes.iter().all(has_all) && cluster.nodes[3..].iter().all(follows)
        })
        .await;
        cluster
    }

    pub(super) fn url(&self) -> String {
        let nodes: Vec<String> = self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redis+cluster://{}", nodes.join(","))
    }

    /// Returns a space on the last master.
    pub(super) fn space_of_last(&self) -> Space {
        self.space_in(10_923..16_384)
    }

    pub(super) fn space_in(&self, slots: Range<u32>) -> Space {
        let has = |n: &usize| {
            let slot = self.nodes[0].ask(&format!("CLUSTER KEYSLOT account-{n}")).unwrap();
            slots.contains(&slot[1..].parse::<u32>().unwrap())
        };
        Space::new(format!("account-{}", (0..1_000).find(has).unwrap()))
    }

    /// Cuts the last master off from all other nodes, including its replicas, without which it takes no writes. Clients
    /// still reach it.
    pub(super) fn isolate_last(&self) {
        let last = &self.nodes[2];
        must(last, "CONFIG SET min-replicas-to-write 1");
        self.keep_replicas_from_last();
        for other in self.nodes.iter().filter(|node| node.node_id() != last.node_id()) {
            must(last, &format!("CLUSTER FORGET {}", other.node_id()));
        }
    }

    /// Cuts a node off from all others: only this node now uses TLS between nodes. Clients still reach it, and it does
    /// not notice.
    pub(super) fn cut_off(&self, node: usize, files: &Signed) {
        let cut_off = &self.nodes[node];
        must(cut_off, "CONFIG SET cluster-node-timeout 3600000");
        let names = [("cert", "certificate.pem"), ("key", "key.pem"), ("ca-cert", "authority.pem")];
        let of_tls = names.map(|(option, name)| format!("tls-{option}-file {}", files.file(name))).join(" ");
        must(cut_off, &format!("CONFIG SET {of_tls} tls-cluster yes"));
        for other in self.nodes.iter().filter(|other| other.node_id() != cut_off.node_id()) {
            must(cut_off, &format!("DEBUG CLUSTERLINK KILL ALL {}", other.node_id()));
        }
    }

    /// Cuts the last master off from its replicas.
    pub(super) fn keep_replicas_from_last(&self) {
        must(&self.nodes[2], "ACL SETUSER replication off");
        assert_eq!(self.nodes[2].ask("CLIENT KILL TYPE replica").unwrap(), ":2");
    }

    /// Makes a node the master of the slots of `from`, even if other nodes disagree.
    pub(super) async fn take_over(&self, node: usize, from: usize) {
        must(&self.nodes[node], "CLUSTER FAILOVER TAKEOVER");
        let (node, from) = (&self.nodes[node], &self.nodes[from]);
        until("the master to become a replica", || from.info("replication").contains("role:slave")).await;
        until("the new master to have replicas", || {
            follows(from) && node.info("replication").contains("connected_slaves:2")
        })
        .await;
    }
}

pub(super) fn follows(replica: &RedisServer) -> bool {
    replica.info("replication").contains("master_link_status:up")
}

pub(super) fn must(node: &RedisServer, line: &str) {
    node.must(line);
}

pub(super) async fn until(what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "waited too long for {what}");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
