//! A master and its replica. A single address leads to the server that is the master.

use std::{
    net::SocketAddr,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use super::node::Node;
use crate::harness::patience::until;
use crate::harness::servers::{balancer::pass, ports};

/// Additional options. A replica gets the data immediately. A confirmed write may not be on disk yet, so only the
/// replica preserves it.
const REPLICATING: [&str; 6] =
    ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", "--appendfsync", "everysec"];

/// An address that leads to the server that is the master now, as the address from a Sentinel or a DNS name does.
pub(super) struct MasterAddress {
    pub(super) address: SocketAddr,
    master: AtomicUsize,
    target: watch::Sender<String>,
    task: JoinHandle<()>,
}

/// Starts a master, and a server that will be its replica.
pub(super) fn nodes(folder: &Path) -> Vec<Node> {
    let node = |name: &str| Node::on_a_port(&folder.join(name), ports::free_port(), &REPLICATING);
    vec![node("one"), node("other")]
}

impl MasterAddress {
    /// Makes the second server a replica of the first, and opens the address that leads to the master.
    pub(super) async fn of(nodes: &[Node]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback has a free port");
        let address = listener.local_addr().unwrap();
        let (target, changes) = watch::channel(nodes[0].address());
        let task = tokio::spawn(lead(listener, changes));
        replicate(&nodes[1], &nodes[0]).await;
        Self { address, master: AtomicUsize::new(0), target, task }
    }

    /// Returns the number of the server that is now the replica.
    pub(super) fn replica(&self) -> usize {
        1 - self.master.load(Ordering::Relaxed)
    }

    /// Waits until the replica has received all writes.
    pub(super) async fn caught_up(&self, nodes: &[Node]) {
        let (replica, master) = (&nodes[self.replica()], &nodes[1 - self.replica()]);
        until("a replica to have all writes", async || offset(replica) == offset(master)).await;
    }

    /// Ends the replication. The master continues, and the replica can take over.
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

/// Returns how far a server is in the stream of writes.
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

/// Passes connections on to the master. When the master changes, ends all of them.
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
