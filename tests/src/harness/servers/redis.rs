//! A private Redis: real servers, alone or as a cluster, that never lose an answered write.

use std::path::Path;

use super::ports;
use crate::harness::patience::until;
use node::Node;
use pair::MasterAddress;

mod cluster;
mod node;
mod pair;

/// Form of a Redis installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One server on a socket in its folder, without a network port.
    Alone,
    /// One server on a port that syncs its file once a second, as an installation would have it. For measurements.
    AsInstalled,
    /// Three masters that share the slots.
    Cluster,
    /// Three masters, each with a replica that takes over when its master is down.
    ClusterWithReplicas,
    /// A master with a replica, at an address that leads to the master.
    WithReplica,
}

/// A running Redis, killed when dropped.
pub struct Redis {
    /// The masters at start, followed by their replicas in the same order.
    nodes: Vec<Node>,
    form: Form,
    /// Where the master is, for a master with a replica.
    master: Option<MasterAddress>,
}

impl Redis {
    /// Starts a Redis in this folder, which may hold the data of an earlier one.
    pub async fn start(form: Form, folder: &Path) -> Self {
        let nodes = match form {
            Form::Alone => vec![Node::on_a_socket(folder)],
            Form::AsInstalled => {
                vec![Node::on_a_port(folder, ports::free_port(), &["--appendfsync", "everysec"])]
            }
            Form::Cluster => cluster::nodes(folder, cluster::MASTERS),
            Form::ClusterWithReplicas => cluster::nodes(folder, 2 * cluster::MASTERS),
            Form::WithReplica => pair::nodes(folder),
        };
        let master = match form {
            Form::WithReplica => Some(MasterAddress::of(&nodes).await),
            Form::Alone | Form::AsInstalled | Form::Cluster | Form::ClusterWithReplicas => None,
        };
        let redis = Self { nodes, form, master };
        for node in &redis.nodes {
            node.ready().await;
        }
        if matches!(form, Form::Cluster | Form::ClusterWithReplicas) {
            cluster::form(&redis.nodes).await;
        }
        redis
    }

    /// URL of the Redis for `FAREGATE_STORE`.
    pub fn url(&self) -> String {
        match self.form {
            Form::Alone | Form::AsInstalled => self.nodes[0].url(),
            Form::WithReplica => format!("redis://{}", self.pair().address),
            Form::Cluster | Form::ClusterWithReplicas => {
                let addresses: Vec<String> = self.nodes.iter().map(Node::address).collect();
                format!("redis+cluster://{}", addresses.join(","))
            }
        }
    }

    /// Process ids of the servers.
    pub fn pids(&self) -> Vec<u32> {
        self.nodes.iter().map(Node::pid).collect()
    }

    /// Number of masters at start.
    pub fn masters(&self) -> usize {
        match self.form {
            Form::Alone | Form::AsInstalled | Form::WithReplica => 1,
            Form::Cluster | Form::ClusterWithReplicas => cluster::MASTERS,
        }
    }

    /// Sends a command to one of the servers and returns its raw answer.
    pub fn ask(&self, number: usize, command: &str) -> String {
        self.nodes[number].ask(command).unwrap_or_default()
    }

    /// Ends all servers as a power failure would.
    pub fn kill(&self) {
        self.nodes.iter().for_each(Node::kill);
    }

    /// Ends one server as a power failure would.
    pub fn kill_node(&self, number: usize) {
        self.nodes[number].kill();
    }

    /// Starts all servers again on their data. Servers that still run are killed first.
    pub async fn restart(&self) {
        self.kill();
        for node in &self.nodes {
            node.launch();
        }
        self.heal().await;
    }

    /// Starts one of the servers again.
    pub async fn restart_node(&self, number: usize) {
        self.nodes[number].kill();
        self.nodes[number].launch();
        self.heal().await;
    }

    /// Waits until every running server answers and all slots are served.
    async fn heal(&self) {
        for node in self.nodes.iter().filter(|node| node.is_running()) {
            node.ready().await;
        }
        if matches!(self.form, Form::Cluster | Form::ClusterWithReplicas) {
            cluster::serves(&self.nodes).await;
        }
    }

    /// Waits until a replica has taken over from the killed master.
    pub async fn failed_over(&self, number: usize) {
        self.taken_over(number).await;
        self.heal().await;
    }

    /// Moves all slots of a master to the others. Returns when all nodes know.
    pub async fn move_slots_from(&self, master: usize) {
        tokio::task::block_in_place(|| cluster::move_slots_from(&self.nodes, master));
        self.heal().await;
    }

    /// Stops the replica of a master with a signal.
    pub fn hang_replica(&self) {
        self.nodes[self.pair().replica()].hang();
    }

    /// Resumes it.
    pub fn resume_replica(&self) {
        self.nodes[self.pair().replica()].resume();
    }

    /// Kills the master, which has a replica, and lets the replica take over. Returns once the new master has a replica.
    pub async fn fail_over(&self) {
        self.pair().fail_over(&self.nodes).await;
    }

    fn pair(&self) -> &MasterAddress {
        self.master.as_ref().expect("this form has a replica")
    }

    /// Stops one of the servers with a signal.
    pub fn hang_node(&self, number: usize) {
        self.nodes[number].hang();
    }

    /// Resumes it.
    pub fn resume_node(&self, number: usize) {
        self.nodes[number].resume();
    }

    /// Waits until the replica of a master has taken over from it.
    pub async fn taken_over(&self, number: usize) {
        let replica = &self.nodes[number + cluster::MASTERS];
        until("a replica to take over", async || {
            replica.ask("ROLE").is_some_and(|answer| answer.contains("master"))
        })
        .await;
    }

    /// Stops the servers with a signal: connections stay open, and nothing is answered until they are resumed.
    pub fn hang(&self) {
        self.nodes.iter().for_each(Node::hang);
    }

    /// Resumes stopped servers.
    pub fn resume(&self) {
        self.nodes.iter().for_each(Node::resume);
    }
}
