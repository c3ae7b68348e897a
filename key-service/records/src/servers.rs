//! Private Redis servers on separate sockets and ports, for tests of this crate and of others. A server is stopped when the last
//! test that uses it ends.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "panics are fine as test failures")]

mod files;
mod lines;

use std::{
    array, fs,
    net::{TcpListener, TcpStream},
    ops::Range,
    os::unix::net::UnixStream,
    path::PathBuf,
    process::{self, Child, Command, Stdio},
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tempfile::TempDir;

pub use self::files::copy;
use self::lines::{ask, first_lines, signed_in, whole_answer};
use crate::redis::{Address, Certificates, Settings};

/// Longest wait for servers, which only one that hangs reaches. On a busy machine, servers start late, and a Sentinel that
/// did not run for two seconds promotes no replica for half a minute.
pub const PATIENCE: Duration = Duration::from_mins(5);
/// Interval at which servers are polled.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Ports below those that Linux gives to connections, and to listeners that ask for any (`net.ipv4.ip_local_port_range`): nothing
/// takes them before their server does.
const PORTS: Range<u32> = 10_000..32_000;

/// A server on a Unix socket that writes everything to disk before each answer.
pub struct RedisServer {
    folder: TempDir,
    process: Option<Child>,
    options: Vec<String>,
}

/// Three masters that share the slots.
pub struct Cluster {
    ports: [u16; 3],
    pub masters: [RedisServer; 3],
}

/// A master, a replica, and the Sentinel that monitors both.
pub struct Watched {
    sentinel: Child,
    port: u16,
    /// Password of the Sentinel; empty: none.
    password: String,
    _folder: TempDir,
    pub servers: [RedisServer; 2],
}

/// Settings of a separate store at this address, beside others on the same servers.
pub fn settings(url: &str, data_dir: &TempDir) -> Settings {
    static STORES: AtomicU32 = AtomicU32::new(0);
    Settings {
        address: Address::parse(url).unwrap(),
        prefix: format!("store-{}", STORES.fetch_add(1, Ordering::Relaxed)),
        volatile_allowed: false,
        wait_replicas: 0,
        certificates: Certificates::default(),
        data_dir: Some(data_dir.path().to_owned()),
        is_marked: true,
    }
}

impl RedisServer {
    /// The server shared by all concurrent tests.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<RedisServer>> = Mutex::new(Weak::new());
        share(&SHARED, Self::start)
    }

    /// A separate server.
    pub fn start() -> Self {
        Self::start_with(&["--port", "0"])
    }

    /// A separate server with additional options; later options override earlier options.
    pub fn start_with(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = options.iter().map(ToString::to_string).collect();
        let mut server = Self { folder, process: None, options };
        server.start_again();
        server
    }

    /// URL of the socket.
    pub fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// A section of what the server says about itself.
    pub fn info(&self, section: &str) -> String {
        whole_answer(UnixStream::connect(self.socket()).unwrap(), &format!("INFO {section}"))
    }

    /// Folder of the server's files.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Kills the server without warning.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Cuts bytes off the end of the append-only file of a server that was killed.
    pub fn tear(&self, bytes: u64) {
        files::tear(&self.data(), bytes);
    }

    /// Starts the server with the data on disk.
    pub fn start_again(&mut self) {
        self.launch(&[]);
        // An error that demands a password shows that the server is up as well.
        let there = |answer: String| answer.contains("PONG") || answer.contains("NOAUTH");
        until("redis-server to start", &[self.pid()], || self.ask("PING").is_some_and(there));
    }

    /// Starts the server with additional options, without waiting for the server to read its data.
    pub fn start_loading(&mut self, options: &[&str]) {
        self.launch(options);
        let loads = |answer: String| answer.contains("LOADING");
        until("redis-server to load", &[self.pid()], || self.ask("PING").is_some_and(loads));
    }

    fn launch(&mut self, options: &[&str]) {
        let _ = fs::remove_file(self.socket());
        fs::create_dir_all(self.data()).unwrap();
        let log = self.folder.path().join("log");
        let mut command = Command::new("redis-server");
        command
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--appendfsync", "always"])
            .args(["--daemonize", "no", "--loglevel", "warning"])
            .arg("--unixsocket")
            .arg(self.socket())
            .arg("--dir")
            .arg(self.data())
            .arg("--logfile")
            .arg(&log)
            .args(&self.options)
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let process = command.spawn();
        self.process = Some(process.expect(
            "redis-server cannot be started, and these tests need a real one: run tests/tools/install.sh, or \
             `apt-get install redis-server`",
        ));
    }

    /// Sends a line, and returns the first line of the reply.
    pub fn ask(&self, line: &str) -> Option<String> {
        ask(UnixStream::connect(self.socket()).ok()?, line)
    }

    /// Returns whether the reply contains this text.
    fn asks(&self, line: &str, fact: &str) -> bool {
        whole_answer(UnixStream::connect(self.socket()).unwrap(), line).contains(fact)
    }

    /// Returns whether the only replica has all writes of this master.
    fn is_replicated(&self) -> bool {
        let info = self.info("replication");
        let offset = |field: &str| {
            let (_, rest) = info.split_once(field)?;
            rest.split(|c: char| !c.is_ascii_digit()).next().map(str::to_owned)
        };
        let (replica, master) = (offset(",offset="), offset("master_repl_offset:"));
        replica.is_some() && replica == master
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn pid(&self) -> u32 {
        self.process.as_ref().expect("it was started").id()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Cluster {
    /// The cluster shared by all concurrent tests.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
        share(&SHARED, Self::start)
    }

    /// URL of the cluster.
    pub fn url(&self) -> String {
        format!("redis+cluster://{}", self.ports.map(|port| format!("127.0.0.1:{port}")).join(","))
    }

    /// Kills the last master without warning.
    pub fn kill_one(&mut self) {
        self.masters[2].kill();
    }

    /// Cuts bytes off the end of the append-only file of the last master, which was killed.
    pub fn tear_one(&self, bytes: u64) {
        self.masters[2].tear(bytes);
    }

    /// Starts the last master with the data on disk.
    pub fn start_one_again(&mut self) {
        self.masters[2].start_again();
    }

    /// A separate cluster.
    pub fn start() -> Self {
        let [ports, buses] = array::from_fn(|_| array::from_fn(|_| free_port()));
        let masters: [RedisServer; 3] = array::from_fn(|n| master(ports[n], buses[n]));
        for (n, slots) in ["0 5460", "5461 10922", "10923 16383"].into_iter().enumerate() {
            must(ports[n], &format!("CLUSTER ADDSLOTSRANGE {slots}"));
            must(ports[n], &format!("CLUSTER SET-CONFIG-EPOCH {}", n + 1));
        }
        for (port, bus) in [(ports[1], buses[1]), (ports[2], buses[2])] {
            must(ports[0], &format!("CLUSTER MEET 127.0.0.1 {port} {bus}"));
        }
        let pids = masters.each_ref().map(RedisServer::pid);
        until("the cluster to form", &pids, || ports.iter().all(|port| has_all_slots(*port)));
        Self { ports, masters }
    }
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
        let in_step = || servers[1].asks(&info, "master_link_status:up");
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

    /// URL of what the Sentinel watches.
    pub fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{}/main", self.port)
    }

    /// Makes the replica the master, and the master a replica, once the replica has all writes. Without passwords.
    pub fn fail_over(&self) {
        until("the replica to be in step", &self.pids(), || self.servers[0].is_replicated());
        // An array of two strings: five lines.
        let master = || self.ask("SENTINEL GET-MASTER-ADDR-BY-NAME main", 5);
        let before = master();
        // The Sentinel promotes no replica before a first poll, which comes within ten seconds.
        until("the Sentinel to begin", &self.pids(), || self.ask("SENTINEL FAILOVER main", 1) == "+OK\r\n");
        until("the failover", &self.pids(), || master() != before);
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

fn master(port: u16, bus: u16) -> RedisServer {
    let (port, bus) = (port.to_string(), bus.to_string());
    RedisServer::start_with(&[
        "--port",
        &port,
        "--cluster-enabled",
        "yes",
        "--cluster-port",
        &bus,
        "--cluster-node-timeout",
        "15000",
        // A failed node takes down only its own slots.
        "--cluster-require-full-coverage",
        "no",
    ])
}

/// Returns whether a node reports that all slots are served and has the addresses of all masters.
fn has_all_slots(port: u16) -> bool {
    let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let info = whole_answer(stream, "CLUSTER INFO");
    ["cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:3", "cluster_size:3"]
        .iter()
        .all(|fact| info.contains(fact))
}

fn must(port: u16, line: &str) {
    let answer = ask(TcpStream::connect(("127.0.0.1", port)).unwrap(), line);
    assert_eq!(answer.as_deref(), Some("+OK"), "{line}");
}

fn share<T>(shared: &Mutex<Weak<T>>, start: impl FnOnce() -> T) -> Arc<T> {
    let mut shared = shared.lock();
    shared.upgrade().unwrap_or_else(|| {
        let started = Arc::new(start());
        *shared = Arc::downgrade(&started);
        started
    })
}

/// A port of the loopback that is free and given out once.
pub fn free_port() -> u16 {
    static GIVEN_OUT: AtomicU32 = AtomicU32::new(0);
    let count = PORTS.end - PORTS.start;
    // Other processes that run tests begin elsewhere.
    let first = process::id().wrapping_mul(7_919) % count;
    let places = PORTS.map(|_| (first + GIVEN_OUT.fetch_add(1, Ordering::Relaxed)) % count);
    let mut ports = places.map(|place| u16::try_from(PORTS.start + place).unwrap());
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("the loopback has a free port")
}

/// Waits until a condition holds, as long as the servers that can bring it about are running.
#[expect(clippy::disallowed_methods, reason = "servers are started outside of any runtime")]
fn until(what: &str, servers: &[u32], mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(servers.iter().all(|pid| is_running(*pid)), "a server ended during the wait for {what}");
        assert!(started.elapsed() < PATIENCE, "waited too long for {what}");
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Returns whether a process has not ended: one that nobody has waited for yet is a zombie.
fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}
