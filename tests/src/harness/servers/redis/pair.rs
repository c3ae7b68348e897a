//! A master and its replica, at one address that leads to the master.

use std::{
    net::SocketAddr,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use super::node::Node;
use crate::harness::patience::until;
use crate::harness::servers::{balancer::pass, ports};

/// Additional options: a replica gets the data immediately, and only replicas preserve it, not the disk.
const REPLICATING: [&str; 6] =
    ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", "--appendfsync", "everysec"];

/// The address of whichever server is the master, as a Sentinel or a DNS name would provide it.
pub(super) struct MasterAddress {
    pub(super) address: SocketAddr,
    master: AtomicUsize,
    target: watch::Sender<String>,
    task: JoinHandle<()>,
}

/// Starts a master and a server for its replica.
pub(super) fn nodes(folder: &Path) -> Vec<Node> {
    let node = |name: &str| Node::on_a_port(&folder.join(name), ports::free_port(), &REPLICATING);
    vec![node("one"), node("other")]
}

impl MasterAddress {
    /// Makes the second server a replica of the first.
    pub(super) async fn of(nodes: &[Node]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback has a free port");
        let address = listener.local_addr().unwrap();
        let (target, changes) = watch::channel(nodes[0].address());
        let task = tokio::spawn(lead(listener, changes));
        replicate(&nodes[1], &nodes[0]).await;
        Self { address, master: AtomicUsize::new(0), target, task }
    }

    /// Returns the number of the server that is the replica now.
    pub(super) fn replica(&self) -> usize {
        1 - self.master.load(Ordering::Relaxed)
    }

    /// Waits until the replica has all writes.
    pub(super) async fn caught_up(&self, nodes: &[Node]) {
        let (replica, master) = (&nodes[self.replica()], &nodes[1 - self.replica()]);
        until("a replica to have all writes", async || offset(replica) == offset(master)).await;
    }

    /// Ends replication. The master continues, and the replica may take over.
    pub(super) fn split(&self, nodes: &[Node]) {
        nodes[self.replica()].ask("REPLICAOF NO ONE").expect("the replica answers");
    }

    /// Promotes the replica.
    pub(super) fn promote(&self, nodes: &[Node]) {
        let promoted = self.replica();
        self.split(nodes);
        self.master.store(promoted, Ordering::Relaxed);
        self.target.send_replace(nodes[promoted].address());
    }

    /// Makes the other server a replica of the master.
    pub(super) async fn rejoin(&self, nodes: &[Node]) {
        replicate(&nodes[self.replica()], &nodes[1 - self.replica()]).await;
    }
}

impl Drop for MasterAddress {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns how much of the stream of writes a server has.
fn offset(node: &Node) -> Option<String> {
    let info = node.ask("INFO replication")?;
    info.lines().find_map(|line| line.strip_prefix("master_repl_offset:")).map(str::to_owned)
}

async fn replicate(replica: &Node, master: &Node) {
    master.ready().await;
    replica.ready().await;
    let address = master.address();
    let (host, port) = address.split_once(':').unwrap();
    replica.ask(&format!("REPLICAOF {host} {port}")).expect("it answers");
    until("a replica to have the data", async || {
        master.says("INFO replication", "state=online")
            && replica.says("INFO replication", "master_link_status:up")
    })
    .await;
}

/// Forwards connections to the master, and ends all of them when the master changes.
async fn lead(listener: TcpListener, changes: watch::Receiver<String>) {
    while let Ok((stream, _)) = listener.accept().await {
        let mut changes = changes.clone();
        tokio::spawn(async move {
            let master = changes.borrow_and_update().clone();
            tokio::select! {
                () = pass(stream, master) => {}
                _changed = changes.changed() => {}
            }
        });
    }
}
