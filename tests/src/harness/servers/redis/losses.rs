//! Masters that are lost, and replaced by a replica.

use std::time::Duration;

use tokio::time::sleep;

use super::{Form, Redis, cluster, node::Node, watched};
use crate::harness::patience::until;

/// Way in which a master is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It is killed, as by a power failure.
    Killed,
    /// It is stopped by a signal: its connections stay open.
    Hung,
    /// Only its clients reach it; its replicas and the Sentinel do not.
    CutOff,
}

impl Redis {
    /// Kills a master, and returns once another server has taken over and has replicas.
    pub async fn fail_over(&self) {
        self.lose_master(0, Loss::Killed).await;
    }

    /// Loses a master, and returns once another server has taken over and the lost one is its replica. Only the masters of
    /// a cluster have numbers.
    pub async fn lose_master(&self, number: usize, how: Loss) {
        let lost = self.begin_to_lose(number, how);
        self.taken_over(number, lost).await;
        // Clients that have not noticed go on with the lost one.
        if how == Loss::CutOff {
            sleep(Duration::from_secs(1)).await;
        }
        self.come_back(lost, how).await;
    }

    /// Loses a master. Returns the number of its server.
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

    /// Brings a lost master back, as a replica.
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

    /// Ends the replication of a pair, whose master goes on.
    pub fn split(&self) {
        self.pair().split(&self.nodes);
    }

    /// Number of the server that is a master now.
    fn master(&self, number: usize) -> usize {
        match self.form {
            Form::WithReplica => 1 - self.pair().replica(),
            Form::Watched => self.sentinel().master(&self.nodes).expect("the Sentinel names a master"),
            Form::ClusterWithReplicas if is_master(&self.nodes[number]) => number,
            Form::ClusterWithReplicas => number + cluster::MASTERS,
            Form::Alone | Form::AsInstalled | Form::Cluster => number,
        }
    }
}

fn is_master(node: &Node) -> bool {
    node.says("ROLE", "master")
}
