//! Servers that form a Redis Cluster.

use std::{path::Path, process::Command};

use super::node::Node;
use crate::harness::{command::run_to_end, patience::until, servers::ports::free_port};

/// Number of masters that share the slots.
pub(super) const MASTERS: usize = 3;

/// All slots, shared evenly.
const SLOTS: [&str; MASTERS] = ["0 5460", "5461 10922", "10923 16383"];

/// Milliseconds of silence after which a node counts as failed; short, because tests wait for it.
const NODE_TIMEOUT: &str = "1000";

/// Starts this many nodes, each in its own folder and not yet joined.
pub(super) fn nodes(folder: &Path, count: usize) -> Vec<Node> {
    (0..count)
        .map(|number| {
            let bus = free_port().to_string();
            let [of_cluster, of_coverage] = [
                ["--cluster-enabled", "yes", "--cluster-port", &bus],
                // A failed node takes down only its own slots.
                ["--cluster-node-timeout", NODE_TIMEOUT, "--cluster-require-full-coverage", "no"],
            ];
            let options = [of_cluster, of_coverage].concat();
            Node::on_a_port(&folder.join(format!("node-{number}")), free_port(), &options)
        })
        .collect()
}

/// Joins the nodes into a cluster: the first ones share the slots, and each further one is a replica of one of them.
pub(super) async fn form(nodes: &[Node]) {
    let (masters, replicas) = nodes.split_at(MASTERS);
    for (number, (master, slots)) in masters.iter().zip(SLOTS).enumerate() {
        must(master, &format!("CLUSTER ADDSLOTSRANGE {slots}"));
        must(master, &format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1));
    }
    for node in &nodes[1..] {
        let address = node.address();
        let (host, port) = address.split_once(':').expect("it is an address");
        let bus = field(node, "CONFIG GET cluster-port", 4);
        must(&nodes[0], &format!("CLUSTER MEET {host} {port} {bus}"));
    }
    until("all nodes to meet", async || nodes.iter().all(|node| knows(node, nodes.len()))).await;
    for (replica, master) in replicas.iter().zip(masters) {
        must(replica, &format!("CLUSTER REPLICATE {}", field(master, "CLUSTER MYID", 1)));
    }
    serves(nodes).await;
    let in_step = |replica: &Node| replica.says("INFO replication", "master_link_status:up");
    until("the replicas to follow", async || replicas.iter().all(in_step)).await;
}

/// Waits until every running node reports that all slots are served.
pub(super) async fn serves(nodes: &[Node]) {
    until("all slots to be served", async || {
        let running = nodes.iter().filter(|node| node.is_running());
        running.into_iter().all(|node| {
            node.says("CLUSTER INFO", "cluster_state:ok")
                && node.says("CLUSTER INFO", "cluster_slots_ok:16384")
        })
    })
    .await;
}

/// Moves all slots of a master to the other masters with the operator's tool, while all masters keep serving.
pub(super) fn move_slots_from(nodes: &[Node], from: usize) {
    let source = field(&nodes[from], "CLUSTER MYID", 1);
    let (first, last) = SLOTS[from].split_once(' ').expect("they have two ends");
    let number = |text: &str| text.parse::<usize>().expect("a number");
    let mut left = number(last) - number(first) + 1;
    let others: Vec<_> = (0..MASTERS).filter(|other| *other != from).collect();
    for (place, to) in others.iter().enumerate() {
        let share = left / (others.len() - place);
        left -= share;
        let mut tool = Command::new("redis-cli");
        tool.args(["--cluster", "reshard", &nodes[from].address(), "--cluster-yes"]);
        tool.args(["--cluster-from", &source, "--cluster-to", &field(&nodes[*to], "CLUSTER MYID", 1)]);
        tool.args(["--cluster-slots", &share.to_string()]);
        let output = run_to_end(&mut tool);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

fn knows(node: &Node, count: usize) -> bool {
    node.says("CLUSTER INFO", &format!("cluster_known_nodes:{count}\r\n"))
}

fn must(node: &Node, command: &str) {
    let answer = node.ask(command).unwrap_or_default();
    assert!(answer.starts_with("+OK"), "{command}: {answer}");
}

/// Returns one line of a command's answer.
fn field(node: &Node, command: &str, line: usize) -> String {
    let answer = node.ask(command).unwrap_or_default();
    answer.lines().nth(line).unwrap_or_else(|| panic!("{command}: {answer}")).to_owned()
}
