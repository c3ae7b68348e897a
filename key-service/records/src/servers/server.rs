use std::{
    fs,
    os::unix::net::UnixStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tempfile::TempDir;

use super::{
    files,
    lines::{ask, whole_answer},
    waiting::until,
};

/// A Redis server with a Unix socket. It syncs every write to disk before it answers.
pub struct RedisServer {
    folder: TempDir,
    process: Option<Child>,
    options: Vec<String>,
}

impl RedisServer {
    /// Returns the server shared by all concurrent tests.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<RedisServer>> = Mutex::new(Weak::new());
        share(&SHARED, Self::start)
    }

    /// Starts a separate server.
    pub fn start() -> Self {
        Self::start_with(&["--port", "0"])
    }

    /// Starts a separate server with additional options. A later option overrides an earlier option.
    pub fn start_with(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = options.iter().map(ToString::to_string).collect();
        let mut server = Self { folder, process: None, options };
        server.start_again();
        server
    }

    pub fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Returns a section of the server's `INFO`.
    pub fn info(&self, section: &str) -> String {
        self.whole(&format!("INFO {section}"))
    }

    /// Sends a line, and returns the whole reply.
    pub fn whole(&self, line: &str) -> String {
        whole_answer(UnixStream::connect(self.socket()).unwrap(), line)
    }

    /// Returns the folder of the server's files.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Suspends the server (`STOP`) or resumes it (`CONT`). Connections stay open.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()).status();
        assert!(sent.unwrap().success());
    }

    /// Cuts bytes off the end of a killed server's append-only file.
    pub fn tear(&self, bytes: u64) {
        files::tear(&self.data(), bytes);
    }

    /// Starts the server with the data on disk.
    pub fn start_again(&mut self) {
        self.launch(&[]);
        // A server that demands a password has started too.
        let there = |answer: String| answer.contains("PONG") || answer.contains("NOAUTH");
        until("redis-server to start", &[self.pid()], || self.ask("PING").is_some_and(there));
    }

    /// Starts the server with the data on disk at another port.
    pub fn start_again_at(&mut self, port: u16) {
        self.options.extend(["--port".to_owned(), port.to_string()]);
        self.start_again();
    }

    /// Starts the server with additional options, without waiting for it to read its data.
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

    /// Sends a line, and returns the first line of the reply, if there is one.
    pub fn ask(&self, line: &str) -> Option<String> {
        ask(UnixStream::connect(self.socket()).ok()?, line)
    }

    /// Sends a line, and fails unless the answer is `OK`.
    pub fn must(&self, line: &str) {
        assert_eq!(self.ask(line).as_deref(), Some("+OK"), "{line}");
    }

    pub fn node_id(&self) -> String {
        self.whole("CLUSTER MYID").lines().nth(1).unwrap().to_owned()
    }

    /// Returns whether the only replica has all writes of this master.
    pub(super) fn is_replicated(&self) -> bool {
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

    pub(super) fn pid(&self) -> u32 {
        self.process.as_ref().expect("it was started").id()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(super) fn share<T>(shared: &Mutex<Weak<T>>, start: impl FnOnce() -> T) -> Arc<T> {
    let mut shared = shared.lock();
    shared.upgrade().unwrap_or_else(|| {
        let started = Arc::new(start());
        *shared = Arc::downgrade(&started);
        started
    })
}
