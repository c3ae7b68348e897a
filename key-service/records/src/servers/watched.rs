//! A master and its replica, with a Sentinel.

use std::{
    array, fs,
    net::TcpStream,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use super::{
    lines::{first_lines, signed_in},
    ports::free_port,
    server::RedisServer,
    waiting::until,
};

/// A master, a replica, and the Sentinel that monitors both.
pub struct Watched {
    sentinel: Child,
    port: u16,
    /// Password for the Sentinel; empty for none.
    password: String,
    _folder: TempDir,
    pub servers: [RedisServer; 2],
}

impl Watched {
    /// Starts servers and a Sentinel.
    pub fn start() -> Self {
        Self::launch(&[], "", "")
    }

    /// Starts servers and a Sentinel that require these passwords.
    pub fn start_with_passwords(of_servers: &str, of_sentinel: &str) -> Self {
        Self::launch(&["--requirepass", of_servers, "--masterauth", of_servers], of_servers, of_sentinel)
    }

    fn launch(more: &[&str], of_servers: &str, of_sentinel: &str) -> Self {
        let [master, replica, port] = array::from_fn(|_| free_port());
        let (master_port, of) = (master.to_string(), format!("127.0.0.1 {master}"));
        let replica_port = replica.to_string();
        let servers = [
            RedisServer::start_with(&[&["--port", &master_port], more].concat()),
            RedisServer::start_with(&[&["--port", &replica_port, "--replicaof", &of], more].concat()),
        ];
        let info = signed_in(of_servers, "INFO replication");
        let in_step = || servers[1].whole(&info).contains("master_link_status:up");
        until("the replica to follow", &servers.each_ref().map(RedisServer::pid), in_step);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sentinel.conf");
        let mut lines = format!("bind 127.0.0.1\nport {port}\nsentinel monitor main 127.0.0.1 {master} 1\n");
        if !of_sentinel.is_empty() {
            lines.extend([
                format!("sentinel auth-pass main {of_servers}\n"),
                format!("requirepass {of_sentinel}\n"),
            ]);
        }
        fs::write(&file, lines).unwrap();
        let mut command = Command::new("redis-server");
        command.arg(&file).arg("--sentinel").stdin(Stdio::null()).stdout(Stdio::null());
        let sentinel = command.spawn().unwrap();
        let watched = Self { sentinel, port, password: of_sentinel.to_owned(), _folder: folder, servers };
        let knows = || watched.ask("SENTINEL REPLICAS main", 1).contains("*1");
        until("the Sentinel to find the replica", &watched.pids(), knows);
        watched
    }

    pub fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{}/main", self.port)
    }

    /// Swaps master and replica once the replica has all writes. Only for servers without passwords.
    pub fn fail_over(&self) {
        until("the replica to be in step", &self.pids(), || self.servers[0].is_replicated());
        // An array of two strings: five lines.
        let master = || self.ask("SENTINEL GET-MASTER-ADDR-BY-NAME main", 5);
        let before = master();
        // The Sentinel promotes a replica only after its first poll, which comes within ten seconds.
        until("the Sentinel to begin", &self.pids(), || self.ask("SENTINEL FAILOVER main", 1) == "+OK\r\n");
        until("the failover", &self.pids(), || master() != before);
    }

    /// Makes the Sentinel replace a master that has not answered for this long. Only for servers without passwords.
    pub fn replace_after(&self, milliseconds: u64) {
        let set = format!("SENTINEL SET main down-after-milliseconds {milliseconds}");
        assert_eq!(self.ask(&set, 1), "+OK\r\n");
    }

    fn pids(&self) -> [u32; 3] {
        [self.sentinel.id(), self.servers[0].pid(), self.servers[1].pid()]
    }

    fn ask(&self, line: &str, lines: usize) -> String {
        let stream = TcpStream::connect(("127.0.0.1", self.port));
        let (line, lines) = (signed_in(&self.password, line), lines + usize::from(!self.password.is_empty()));
        let answer = stream.ok().and_then(|stream| first_lines(stream, &line, lines)).unwrap_or_default();
        if self.password.is_empty() {
            answer
        } else {
            answer.split_once('\n').unwrap_or_default().1.to_owned()
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.sentinel.kill();
        let _ = self.sentinel.wait();
    }
}
