//! One `redis-server`.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Mutex,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use crate::harness::{
    command::signal,
    patience::{LOOK_EVERY, SERVER_PATIENCE},
    servers::server::is_running,
};

/// Options that make every answered write durable: it is on disk before the answer, and nothing is evicted.
const KEEPING: [&str; 8] =
    ["--save", "", "--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction"];

/// Longest wait for an answer from a server that hangs or is starting.
pub(super) const ANSWERING: Duration = Duration::from_secs(2);

/// A `redis-server`, killed when dropped.
pub(super) struct Node {
    folder: PathBuf,
    /// Port that the server listens on; `None` for a socket in its folder.
    port: Option<u16>,
    /// Options in addition to [`KEEPING`]. Later ones override earlier ones.
    options: Vec<String>,
    child: Mutex<Option<Child>>,
}

impl Node {
    pub(super) fn on_a_socket(folder: &Path) -> Self {
        Self::launched(folder, None, &[])
    }

    pub(super) fn on_a_port(folder: &Path, port: u16, options: &[&str]) -> Self {
        Self::launched(folder, Some(port), options)
    }

    fn launched(folder: &Path, port: Option<u16>, options: &[&str]) -> Self {
        fs::create_dir_all(folder).unwrap();
        let options = options.iter().map(ToString::to_string).collect();
        let node = Self { folder: folder.to_owned(), port, options, child: Mutex::default() };
        node.launch();
        node
    }

    /// Starts the server on its existing data.
    pub(super) fn launch(&self) {
        // A killed server leaves its socket behind.
        let _ = fs::remove_file(self.socket());
        let mut command = Command::new("redis-server");
        command.args(["--daemonize", "no", "--bind", "127.0.0.1"]).args(KEEPING);
        command.arg("--port").arg(self.port.unwrap_or(0).to_string());
        if self.port.is_none() {
            command.arg("--unixsocket").arg(self.socket());
        }
        command.arg("--dir").arg(&self.folder).arg("--logfile").arg(self.folder.join("log"));
        command.args(&self.options).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().expect(
            "redis-server cannot be started, and these tests need a real one: run tests/tools/install.sh, or \
             `apt-get install redis-server`",
        );
        *self.child.lock().unwrap() = Some(child);
    }

    /// Waits until the server answers. While it reads its file, it reports that it is loading.
    pub(super) async fn ready(&self) {
        let deadline = Instant::now() + SERVER_PATIENCE;
        while !self.ask("PING").is_some_and(|answer| answer.starts_with("+PONG")) {
            let log = || fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(self.is_running(), "redis-server ended\n{}", log());
            assert!(Instant::now() < deadline, "redis-server does not get ready\n{}", log());
            sleep(LOOK_EVERY).await;
        }
    }

    /// Returns the raw answer to a command; `None` if the server cannot be reached.
    pub(super) fn ask(&self, command: &str) -> Option<String> {
        if let Some(port) = self.port {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let stream = TcpStream::connect_timeout(&address, ANSWERING).ok()?;
            stream.set_read_timeout(Some(ANSWERING)).ok()?;
            answer(stream, command)
        } else {
            let stream = UnixStream::connect(self.socket()).ok()?;
            stream.set_read_timeout(Some(ANSWERING)).ok()?;
            answer(stream, command)
        }
    }

    /// Returns whether the answer to a command contains this text.
    pub(super) fn says(&self, command: &str, fact: &str) -> bool {
        self.ask(command).is_some_and(|answer| answer.contains(fact))
    }

    /// Returns `HOST:PORT` of a server that listens on a port.
    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port.expect("it listens on a port"))
    }

    /// Returns the URL of the server for `FAREGATE_STORE`.
    pub(super) fn url(&self) -> String {
        match self.port {
            Some(_) => format!("redis://{}", self.address()),
            None => format!("unix:{}", self.socket().display()),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.lock().unwrap().as_ref().expect("it runs").id()
    }

    pub(super) fn is_running(&self) -> bool {
        self.child.lock().unwrap().as_ref().is_some_and(|child| is_running(child.id()))
    }

    pub(super) fn kill(&self) {
        if let Some(mut child) = self.child.lock().unwrap().take() {
            // The server may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(super) fn hang(&self) {
        signal(self.pid(), "STOP");
    }

    pub(super) fn resume(&self) {
        signal(self.pid(), "CONT");
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

fn answer(mut stream: impl Read + Write, command: &str) -> Option<String> {
    stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}
