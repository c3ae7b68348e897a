//! A private Redis: a real one, on a socket of its own, that keeps what it has answered through any end.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Mutex,
    time::Instant,
};

use tokio::time::sleep;

use super::{LOOK_EVERY, PATIENCE, server::signal};

/// What keeps every answer: it is on disk before it is given, and nothing is ever evicted.
const KEEPING: [&str; 8] =
    ["--save", "", "--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction"];

/// A running `redis-server`, killed when dropped.
pub struct Redis {
    folder: PathBuf,
    child: Mutex<Child>,
}

impl Redis {
    /// Starts one in this folder, which may hold what an earlier one has kept.
    pub async fn start(folder: &Path) -> Self {
        fs::create_dir_all(folder).unwrap();
        let redis = Self { folder: folder.to_owned(), child: Mutex::new(launch(folder)) };
        redis.ready().await;
        redis
    }

    /// Where it is, as `FAREGATE_STORE` names it.
    pub fn url(&self) -> String {
        format!("unix:{}", socket(&self.folder).display())
    }

    /// Ends it as a power cut would.
    pub fn kill(&self) {
        let mut child = self.child.lock().unwrap();
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Starts it once more on what it has kept; one that still runs is killed first.
    pub async fn restart(&self) {
        self.kill();
        *self.child.lock().unwrap() = launch(&self.folder);
        self.ready().await;
    }

    /// Makes it hang: its connections stay open, and nothing is answered until it is resumed.
    pub fn hang(&self) {
        signal(self.child.lock().unwrap().id(), "STOP");
    }

    /// Lets it go on where it hung.
    pub fn resume(&self) {
        signal(self.child.lock().unwrap().id(), "CONT");
    }

    /// Waits until it answers: one that still reads its file says that it loads.
    async fn ready(&self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.ping().is_ok_and(|answer| answer.starts_with("+PONG")) {
            let log = || fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "redis-server does not get ready\n{}", log());
            sleep(LOOK_EVERY).await;
        }
    }

    fn ping(&self) -> std::io::Result<String> {
        let mut stream = UnixStream::connect(socket(&self.folder))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        Ok(answer)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

fn launch(folder: &Path) -> Child {
    let socket = socket(folder);
    // One that was killed has left it behind.
    let _ = fs::remove_file(&socket);
    Command::new("redis-server")
        .args(["--port", "0", "--daemonize", "no"])
        .args(KEEPING)
        .arg("--unixsocket")
        .arg(socket)
        .arg("--dir")
        .arg(folder)
        .arg("--logfile")
        .arg(folder.join("log"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server cannot be started, and these tests need a real one: run tests/tools/install.sh, or `apt-get install redis-server`")
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("socket")
}
