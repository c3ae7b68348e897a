//! A private Redis: real servers, single or as a cluster, that never lose an acknowledged write.

use std::{path::Path, time::Duration};

use tokio::time::sleep;

use super::ports;
use crate::harness::patience::until;
use node::Node;
use pair::MasterAddress;
use watched::Sentinel;

mod cluster;
mod node;
mod pair;
mod watched;

/// Form of a Redis installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One server that listens on a socket in its folder, without a network port.
    Alone,
    /// One server on a port that syncs its file once per second, as a real installation would. For measurements.
    AsInstalled,
    /// Three masters that share the slots.
    Cluster,
    /// Three masters, each with a replica that takes over when its master is down.
    ClusterWithReplicas,
    /// A master with a replica, and an address that always leads to the current master.
    WithReplica,
    /// A master with two replicas and a Sentinel. The master accepts no writes without a replica.
    Watched,
}

/// How a master disappears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It is killed, as in a power failure.
    Killed,
    /// It is stopped by a signal, so that its connections stay open.
    Hung,
    /// Only its clients reach it; its replicas and the Sentinel do not.
    CutOff,
}

/// A running Redis, killed when dropped.
pub struct Redis {
    /// The masters at start, followed by their replicas in the same order.
    nodes: Vec<Node>,
    form: Form,
    /// Address of the current master, for a master with a replica.
    master: Option<MasterAddress>,
    /// The Sentinel that knows the current master, for the form `Watched`.
    sentinel: Option<Sentinel>,
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
            Form::Watched => watched::nodes(folder),
        };
        let (mut master, mut sentinel) = (None, None);
        match form {
            Form::WithReplica => master = Some(MasterAddress::of(&nodes).await),
            Form::Watched => sentinel = Some(Sentinel::of(&nodes, folder).await),
            Form::Alone | Form::AsInstalled | Form::Cluster | Form::ClusterWithReplicas => {}
        }
        let redis = Self { nodes, form, master, sentinel };
        for node in &redis.nodes {
            node.ready().await;
        }
        if matches!(form, Form::Cluster | Form::ClusterWithReplicas) {
            cluster::form(&redis.nodes).await;
        }
        redis
    }

    /// Returns the URL of the Redis for `FAREGATE_STORE`.
    pub fn url(&self) -> String {
        match self.form {
            Form::Alone | Form::AsInstalled => self.nodes[0].url(),
            Form::WithReplica => format!("redis://{}", self.pair().address),
            Form::Watched => self.sentinel().url(),
            Form::Cluster | Form::ClusterWithReplicas => {
                let addresses: Vec<String> = self.nodes.iter().map(Node::address).collect();
                format!("redis+cluster://{}", addresses.join(","))
            }
        }
    }

    /// Returns the process ids of the servers.
    pub fn pids(&self) -> Vec<u32> {
        self.nodes.iter().map(Node::pid).collect()
    }

    /// Returns the number of masters at the start.
    pub fn masters(&self) -> usize {
        match self.form {
            Form::Alone | Form::AsInstalled | Form::WithReplica | Form::Watched => 1,
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

    /// Moves all slots of a master to the others. Returns when all nodes have learnt of it.
    pub async fn move_slots_from(&self, master: usize) {
        tokio::task::block_in_place(|| cluster::move_slots_from(&self.nodes, master));
        self.heal().await;
    }

    /// Stops the replica of a master with a signal.
    pub fn hang_replica(&self) {
        self.nodes[self.pair().replica()].hang();
    }

    /// Resumes the replica.
    pub fn resume_replica(&self) {
        self.nodes[self.pair().replica()].resume();
    }

    /// Kills a master, and returns once another server has taken over and has replicas.
    pub async fn fail_over(&self) {
        self.lose_master(0, Loss::Killed).await;
    }

    /// Makes a master disappear, and returns once another server has taken over and the lost one is its replica. Only a
    /// cluster's masters have numbers.
    pub async fn lose_master(&self, number: usize, how: Loss) {
        let lost = self.begin_to_lose(number, how);
        self.taken_over(number, lost).await;
        // Clients that have not noticed the change still use the lost master.
        if how == Loss::CutOff {
            sleep(Duration::from_secs(1)).await;
        }
        self.come_back(lost, how).await;
    }

    /// Makes a master disappear. Returns the number of its server.
    pub fn begin_to_lose(&self, number: usize, how: Loss) -> usize {
        let lost = self.master(number);
        let node = &self.nodes[lost];
        match how {
            Loss::Killed => node.kill(),
            Loss::Hung => node.hang(),
            Loss::CutOff => watched::cut_off(node, true),
        }
        lost
    }

    /// Waits until another server has taken over.
    pub async fn taken_over(&self, number: usize, lost: usize) {
        match self.form {
            Form::WithReplica => self.pair().promote(&self.nodes),
            Form::Watched => {
                until("a replica to take over", async || {
                    let named = self.sentinel().master(&self.nodes);
                    named.is_some_and(|named| named != lost && is_master(&self.nodes[named]))
                })
                .await;
            }
            Form::ClusterWithReplicas => {
                let other = (lost + cluster::MASTERS) % self.nodes.len();
                until("a replica to take over", async || is_master(&self.nodes[other])).await;
            }
            Form::Alone | Form::AsInstalled | Form::Cluster => panic!("server {number} has no replica"),
        }
    }

    /// Brings back a lost master as a replica.
    pub async fn come_back(&self, lost: usize, how: Loss) {
        let node = &self.nodes[lost];
        match how {
            Loss::Killed => node.launch(),
            Loss::Hung => node.resume(),
            Loss::CutOff => watched::cut_off(node, false),
        }
        node.ready().await;
        if self.form == Form::WithReplica {
            self.pair().rejoin(&self.nodes).await;
        }
        until("the lost master to follow", async || node.says("INFO replication", "master_link_status:up"))
            .await;
        self.heal().await;
    }

    /// Ends replication in a pair once the replica has all writes. The master continues.
    pub async fn split(&self) {
        self.pair().caught_up(&self.nodes).await;
        self.pair().split(&self.nodes);
    }

    /// Returns the number of the server that is now the master.
    fn master(&self, number: usize) -> usize {
        match self.form {
            Form::WithReplica => 1 - self.pair().replica(),
            Form::Watched => self.sentinel().master(&self.nodes).expect("the Sentinel names a master"),
            Form::ClusterWithReplicas if is_master(&self.nodes[number]) => number,
            Form::ClusterWithReplicas => number + cluster::MASTERS,
            Form::Alone | Form::AsInstalled | Form::Cluster => number,
        }
    }

    fn pair(&self) -> &MasterAddress {
        self.master.as_ref().expect("this form has a replica")
    }

    fn sentinel(&self) -> &Sentinel {
        self.sentinel.as_ref().expect("this form has a Sentinel")
    }

    /// Stops the servers with a signal: connections stay open, but nothing is answered until the servers are resumed.
    pub fn hang(&self) {
        self.nodes.iter().for_each(Node::hang);
    }

    /// Resumes stopped servers.
    pub fn resume(&self) {
        self.nodes.iter().for_each(Node::resume);
    }
}

fn is_master(node: &Node) -> bool {
    node.says("ROLE", "master")
}
