//! A private Redis: real servers, alone or as a cluster, that keep what they have answered through any end.

use std::path::Path;

use tokio::time::sleep;

use super::{LOOK_EVERY, PATIENCE};
use node::Node;

mod cluster;
mod node;

/// How Redis is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One server on a socket: nothing is on the network.
    Alone,
    /// One server on a port that syncs its file once a second, as an installation would have it; for measurements.
    AsInstalled,
    /// Three masters that share the slots.
    Cluster,
    /// The same, each with a replica that takes over when its master is away.
    ClusterWithReplicas,
}

/// A running Redis, killed when dropped.
pub struct Redis {
    /// Masters first, as they were when it was started, then their replicas in the same order.
    nodes: Vec<Node>,
    form: Form,
}

impl Redis {
    /// Starts one in this folder, which may hold what an earlier one has kept.
    pub async fn start(form: Form, folder: &Path) -> Self {
        let nodes = match form {
            Form::Alone => vec![Node::on_a_socket(folder)],
            Form::AsInstalled => {
                vec![Node::on_a_port(folder, node::free_port(), &["--appendfsync", "everysec"])]
            }
            Form::Cluster => cluster::nodes(folder, cluster::MASTERS),
            Form::ClusterWithReplicas => cluster::nodes(folder, 2 * cluster::MASTERS),
        };
        let redis = Self { nodes, form };
        for node in &redis.nodes {
            node.ready().await;
        }
        if matches!(form, Form::Cluster | Form::ClusterWithReplicas) {
            cluster::form(&redis.nodes).await;
        }
        redis
    }

    /// Where it is, as `FAREGATE_STORE` names it.
    pub fn url(&self) -> String {
        match self.form {
            Form::Alone | Form::AsInstalled => self.nodes[0].url(),
            Form::Cluster | Form::ClusterWithReplicas => {
                let addresses: Vec<String> = self.nodes.iter().map(Node::address).collect();
                format!("redis+cluster://{}", addresses.join(","))
            }
        }
    }

    /// The process ids of its servers.
    pub fn pids(&self) -> Vec<u32> {
        self.nodes.iter().map(Node::pid).collect()
    }

    /// How many masters it was started with.
    pub fn masters(&self) -> usize {
        match self.form {
            Form::Alone | Form::AsInstalled => 1,
            Form::Cluster | Form::ClusterWithReplicas => cluster::MASTERS,
        }
    }

    /// What one of its servers answers to a command, as it is on the wire.
    pub fn ask(&self, number: usize, command: &str) -> String {
        self.nodes[number].ask(command).unwrap_or_default()
    }

    /// Ends all of it as a power cut would.
    pub fn kill(&self) {
        self.nodes.iter().for_each(Node::kill);
    }

    /// Ends one of its servers so.
    pub fn kill_node(&self, number: usize) {
        self.nodes[number].kill();
    }

    /// Starts all of it once more on what it has kept; what still runs is killed first.
    pub async fn restart(&self) {
        self.kill();
        for node in &self.nodes {
            node.launch();
        }
        self.heal().await;
    }

    /// Starts one of its servers once more.
    pub async fn restart_node(&self, number: usize) {
        self.nodes[number].kill();
        self.nodes[number].launch();
        self.heal().await;
    }

    /// Waits until every server that runs answers, and all slots are served.
    async fn heal(&self) {
        for node in self.nodes.iter().filter(|node| node.is_running()) {
            node.ready().await;
        }
        if matches!(self.form, Form::Cluster | Form::ClusterWithReplicas) {
            cluster::serves(&self.nodes).await;
        }
    }

    /// Waits until a replica has taken over from the master that was killed.
    pub async fn failed_over(&self, number: usize) {
        let replica = &self.nodes[number + cluster::MASTERS];
        until("a replica to take over", || {
            replica.ask("ROLE").is_some_and(|answer| answer.contains("master"))
        })
        .await;
        self.heal().await;
    }

    /// Makes it hang: its connections stay open, and nothing is answered until it is resumed.
    pub fn hang(&self) {
        self.nodes.iter().for_each(Node::hang);
    }

    /// Lets it go on where it hung.
    pub fn resume(&self) {
        self.nodes.iter().for_each(Node::resume);
    }
}

/// Looks again and again until something is so.
async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !done() {
        assert!(std::time::Instant::now() < deadline, "waited too long for {what}");
        sleep(LOOK_EVERY).await;
    }
}
