//! A master with two replicas, and the Sentinel that replaces it.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Mutex,
};

use super::node::{ANSWERING, Node};
use crate::harness::{patience::until, servers::ports::free_port};

/// Number of servers. The first is the master at the start.
pub(super) const SERVERS: usize = 3;
/// Name of the master.
const SERVICE: &str = "main";
/// Milliseconds of silence after which a master counts as down, and the timeout of a failover. Both are short, because
/// tests wait for them.
const TIMES: [&str; 2] = ["down-after-milliseconds main 1000", "failover-timeout main 3000"];
/// One user for the Sentinel and replicas, and one for key-services. If a master refuses the first user, only
/// key-services can still reach it, since a user is always required.
const USERS: &str = "--user peer on >peer ~* &* +@all --user service on >service ~* &* +@all --masteruser peer --masterauth peer";
/// Options for servers that replicate, and that accept no writes without a replica.
const REPLICATING: &str = "--repl-diskless-sync-delay 0 --repl-ping-replica-period 1 --min-replicas-to-write 1 --min-replicas-max-lag 3";

/// The Sentinel, killed when dropped.
pub(super) struct Sentinel {
    port: u16,
    child: Mutex<Child>,
}

/// Starts the servers.
pub(super) fn nodes(folder: &Path) -> Vec<Node> {
    let ports: Vec<u16> = (0..SERVERS).map(|_| free_port()).collect();
    let of = format!("127.0.0.1 {}", ports[0]);
    let start = |(number, port): (usize, &u16)| {
        let mut options: Vec<&str> = [USERS, REPLICATING].iter().flat_map(|all| all.split(' ')).collect();
        if number > 0 {
            options.extend(["--replicaof", &of]);
        }
        Node::on_a_port(&folder.join(format!("server-{number}")), *port, &options)
    };
    ports.iter().enumerate().map(start).collect()
}

impl Sentinel {
    /// Starts a Sentinel, which finds the replicas.
    pub(super) async fn of(nodes: &[Node], folder: &Path) -> Self {
        for node in nodes {
            node.ready().await;
        }
        until("the replicas to follow", async || {
            nodes[1..].iter().all(|node| node.says("INFO replication", "link_status:up"))
        })
        .await;
        let folder = folder.join("sentinel");
        fs::create_dir_all(&folder).unwrap();
        let port = free_port();
        let master = nodes[0].address().replace(':', " ");
        let own = [format!("bind 127.0.0.1\nport {port}\ndir {0}\nlogfile {0}/log", folder.display())];
        let monitor = format!("monitor {SERVICE} {master} 1");
        let of_master =
            [monitor.as_str(), "auth-user main peer", "auth-pass main peer"].into_iter().chain(TIMES);
        let lines: Vec<_> = own.into_iter().chain(of_master.map(|line| format!("sentinel {line}"))).collect();
        let file = folder.join("sentinel.conf");
        fs::write(&file, lines.join("\n") + "\n").unwrap();
        let mut command = Command::new("redis-server");
        command.arg(&file).arg("--sentinel").stdin(Stdio::null()).stdout(Stdio::null());
        let child = Mutex::new(command.spawn().expect("redis-server can be started"));
        let sentinel = Self { port, child };
        until("the Sentinel to find the replicas", async || {
            sentinel.ask(&format!("SENTINEL REPLICAS {SERVICE}"), 1).is_some_and(|answer| answer[0] == "*2")
        })
        .await;
        sentinel
    }

    /// Returns the URL for `FAREGATE_STORE`.
    pub(super) fn url(&self) -> String {
        format!("redis+sentinel://service:service@127.0.0.1:{}/{SERVICE}", self.port)
    }

    /// Returns the number of the server that the Sentinel names as the master.
    pub(super) fn master(&self, nodes: &[Node]) -> Option<usize> {
        let answer = self.ask(&format!("SENTINEL GET-MASTER-ADDR-BY-NAME {SERVICE}"), 5)?;
        let address = format!("{}:{}", answer[2], answer[4]);
        nodes.iter().position(|node| node.address() == address)
    }

    /// Returns the first lines of an answer.
    fn ask(&self, line: &str, lines: usize) -> Option<Vec<String>> {
        let mut stream =
            TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], self.port)), ANSWERING).ok()?;
        stream.set_read_timeout(Some(ANSWERING)).ok()?;
        stream.write_all(format!("{line}\r\n").as_bytes()).ok()?;
        BufReader::new(stream)
            .lines()
            .take(lines)
            .collect::<Result<Vec<_>, _>>()
            .ok()
            .filter(|all| all.len() == lines)
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Makes a master refuse the Sentinel and replicas, or accept them again.
pub(super) fn cut_off(master: &Node, is_cut: bool) {
    let lines = if is_cut {
        "ACL SETUSER peer off\r\nCLIENT KILL USER peer\r\nACL SETUSER default -@all"
    } else {
        "AUTH service service\r\nACL SETUSER default +@all\r\nACL SETUSER peer on"
    };
    master.ask(lines).expect("it answers");
}
