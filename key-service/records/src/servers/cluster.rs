use std::{
    array,
    path::Path,
    process::Command,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use super::{
    ports::free_port,
    server::{RedisServer, share},
    waiting::until,
};

const SLOTS: [&str; 3] = ["0 5460", "5461 10922", "10923 16383"];

/// Three masters that share the slots.
pub struct Cluster {
    /// Scheme, and the host that all masters share.
    url: String,
    ports: [u16; 3],
    pub masters: [RedisServer; 3],
}

impl Cluster {
    /// Returns the cluster shared by all concurrent tests.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
        share(&SHARED, Self::start)
    }

    /// Starts a separate cluster.
    pub fn start() -> Self {
        Self::launch("redis+cluster://127.0.0.1", |port| vec!["--port".to_owned(), port.to_string()])
    }

    /// Starts a separate cluster that accepts only TLS, with the certificate files in this folder. With a name, masters
    /// announce it to clients.
    pub fn start_secured(folder: &Path, name: Option<&str>) -> Self {
        let url = format!("rediss+cluster://{}", name.unwrap_or("127.0.0.1"));
        let file = |name: &str| folder.join(name).display().to_string();
        Self::launch(&url, |port| {
            let ports = ["--port", "0", "--tls-port", &port.to_string()].map(str::to_owned);
            let files = [("cert", "certificate.pem"), ("key", "key.pem"), ("ca-cert", "authority.pem")];
            let files = files.map(|(option, name)| [format!("--tls-{option}-file"), file(name)]);
            let of_cluster = ["--tls-cluster", "yes", "--tls-replication", "yes"].map(str::to_owned);
            let named = name.map(|name| {
                ["--cluster-announce-hostname", name, "--cluster-preferred-endpoint-type", "hostname"]
            });
            let named = named.into_iter().flatten().map(str::to_owned);
            ports.into_iter().chain(files.into_iter().flatten()).chain(of_cluster).chain(named).collect()
        })
    }

    fn launch(url: &str, of_port: impl Fn(u16) -> Vec<String>) -> Self {
        let [ports, buses] = array::from_fn(|_| array::from_fn(|_| free_port()));
        let masters: [RedisServer; 3] = array::from_fn(|n| node(&of_port(ports[n]), buses[n]));
        for (n, slots) in SLOTS.into_iter().enumerate() {
            masters[n].must(&format!("CLUSTER ADDSLOTSRANGE {slots}"));
            masters[n].must(&format!("CLUSTER SET-CONFIG-EPOCH {}", n + 1));
        }
        for (port, bus) in [(ports[1], buses[1]), (ports[2], buses[2])] {
            masters[0].must(&format!("CLUSTER MEET 127.0.0.1 {port} {bus}"));
        }
        let pids = masters.each_ref().map(RedisServer::pid);
        until("the cluster to form", &pids, || masters.iter().all(has_all_slots));
        Self { url: url.to_owned(), ports, masters }
    }

    pub fn url(&self) -> String {
        let (_, host) = self.url.split_once("://").unwrap();
        let others = self.ports[1..].iter().map(|port| format!(",{host}:{port}"));
        format!("{}:{}{}", self.url, self.ports[0], others.collect::<String>())
    }

    pub fn address(&self, master: usize) -> String {
        let (_, host) = self.url.split_once("://").unwrap();
        format!("{host}:{}", self.ports[master])
    }

    /// Kills the last master.
    pub fn kill_one(&mut self) {
        self.masters[2].kill();
    }

    /// Cuts bytes off the end of the last master's append-only file. The master must have been killed.
    pub fn tear_one(&self, bytes: u64) {
        self.masters[2].tear(bytes);
    }

    /// Starts the last master with the data on disk.
    pub fn start_one_again(&mut self) {
        self.masters[2].start_again();
    }

    /// Restarts the last master with the data on disk at another port, and waits until the others know it.
    pub fn start_one_elsewhere(&mut self) -> u16 {
        let port = free_port();
        self.masters[2].start_again_at(port);
        let pids = self.masters.each_ref().map(RedisServer::pid);
        let at = format!(":{port}@");
        let is_known = |master: &RedisServer| master.whole("CLUSTER NODES").contains(&at);
        until("the others to know the address", &pids, || self.masters.iter().all(is_known));
        std::mem::replace(&mut self.ports[2], port)
    }

    /// Adds a master without slots. Returns its address and the server.
    pub fn add_node(&self) -> (String, RedisServer) {
        let (port, bus) = (free_port(), free_port());
        let added = node(&["--port".to_owned(), port.to_string()], bus);
        self.masters[0].must(&format!("CLUSTER MEET 127.0.0.1 {port} {bus}"));
        let knows = |server: &RedisServer| server.whole("CLUSTER INFO").contains("cluster_known_nodes:4");
        let all = || self.masters.iter().chain([&added]).all(knows);
        until("the nodes to meet", &[added.pid()], all);
        (format!("127.0.0.1:{port}"), added)
    }

    /// Moves slots from one node to another with `redis-cli --cluster`.
    pub fn move_slots(&self, from: &RedisServer, to: &RedisServer, count: usize) {
        let [from, to] = [from, to].map(RedisServer::node_id);
        let count = count.to_string();
        let slots =
            ["--cluster-from", &from, "--cluster-to", &to, "--cluster-slots", &count, "--cluster-yes"];
        self.tool("reshard", &slots);
    }

    /// Removes a node without slots with `redis-cli --cluster`.
    pub fn remove_node(&self, node: &RedisServer) {
        self.tool("del-node", &[&node.node_id()]);
    }

    /// Runs `redis-cli --cluster` once the nodes agree on their slots.
    fn tool(&self, act: &str, more: &[&str]) {
        let run = |act: &str, more: &[&str]| {
            let mut tool = Command::new("redis-cli");
            tool.args(["--cluster", act, &self.address(0)]).args(more).output().unwrap()
        };
        let pids = self.masters.each_ref().map(RedisServer::pid);
        until("the nodes to agree", &pids, || run("check", &[]).status.success());
        let output = run(act, more);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

fn node(options: &[String], bus: u16) -> RedisServer {
    let bus = bus.to_string();
    let of_cluster = [
        "--cluster-enabled",
        "yes",
        "--cluster-port",
        &bus,
        "--cluster-node-timeout",
        "15000",
        // A failed node takes down only its own slots.
        "--cluster-require-full-coverage",
        "no",
        "--cluster-allow-replica-migration",
        "no",
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).chain(of_cluster).collect();
    RedisServer::start_with(&options)
}

/// Returns whether a node reports that all slots are served, and knows the addresses of all masters.
fn has_all_slots(node: &RedisServer) -> bool {
    let info = node.whole("CLUSTER INFO");
    let is_known = !info.contains("cluster_known_nodes:1\r") && !info.contains("cluster_known_nodes:2\r");
    is_known && ["cluster_state:ok", "cluster_slots_ok:16384"].iter().all(|fact| info.contains(fact))
}
