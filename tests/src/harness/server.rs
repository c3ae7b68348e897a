//! The process under test: started, asked, interrupted, killed.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Instant,
};

use tokio::time::sleep;

use super::{LOOK_EVERY, PATIENCE, UPSTREAM_KEY};

/// Lines of the log that a failed test shows.
const LAST_WORDS: usize = 60;

/// The listeners that must be told before the process counts as ready.
const LISTENERS: [&str; 2] = ["public", "admin"];

/// What a process is started with.
#[derive(Clone)]
pub struct Settings {
    /// Its data directory; also where it runs, and where its output is kept.
    pub data: PathBuf,
    /// Its environment, beyond addresses and the data directory.
    pub env: Vec<(&'static str, String)>,
}

impl Settings {
    fn command(&self) -> Command {
        let mut command = Command::new(binary("faregate"));
        // What the tests are run with must not change what they show.
        command.env_clear().current_dir(&self.data);
        for listener in [
            "FAREGATE_LISTEN",
            "FAREGATE_ADMIN_LISTEN",
            "FAREGATE_KEY_HTTP_LISTEN",
            "FAREGATE_KEY_GRPC_LISTEN",
        ] {
            command.env(listener, "127.0.0.1:0");
        }
        command.env("FAREGATE_DATA_DIR", self.data.join("data")).env("UPSTREAM_KEY", UPSTREAM_KEY);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null());
        command
    }

    /// What a command prints; it must succeed.
    pub fn cli(&self, arguments: &[&str]) -> String {
        let (status, printed, complaint) = self.try_cli(arguments);
        assert!(status.success(), "`faregate {}` fails: {complaint}", arguments.join(" "));
        printed
    }

    /// How a command ends, and what it prints on both channels.
    pub fn try_cli(&self, arguments: &[&str]) -> (ExitStatus, String, String) {
        let output = self.command().args(arguments).output().expect("the binary can be run");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status, text(output.stdout), text(output.stderr))
    }
}

/// A running `faregate`, killed when dropped.
pub struct Server {
    child: Child,
    addresses: HashMap<String, String>,
    output: PathBuf,
    log: PathBuf,
}

impl Server {
    /// Starts it and waits until it listens.
    pub async fn start(settings: &Settings) -> Self {
        let mut server = Self::spawn(settings);
        let deadline = Instant::now() + PATIENCE;
        while !server.find_listeners() {
            assert!(server.is_running(), "the server ended at once\n{}", server.last_words());
            assert!(Instant::now() < deadline, "the server does not get ready\n{}", server.last_words());
            sleep(LOOK_EVERY).await;
        }
        server
    }

    /// Starts it with settings that it must refuse, and gives what it says.
    pub async fn refuses(settings: &Settings) -> String {
        let mut server = Self::spawn(settings);
        let status = server.ended().await;
        assert!(!status.success(), "a refusal is no success");
        server.log()
    }

    fn spawn(settings: &Settings) -> Self {
        let (output, log) = (settings.data.join("stdout.txt"), settings.data.join("stderr.txt"));
        let child = settings
            .command()
            .stdout(File::create(&output).unwrap())
            .stderr(OpenOptions::new().create(true).append(true).open(&log).unwrap())
            .spawn()
            .expect("the binary can be started");
        Self { child, addresses: HashMap::new(), output, log }
    }

    /// Reads the lines `listening NAME ADDRESS`.
    fn find_listeners(&mut self) -> bool {
        let printed = self.stdout();
        let complete = printed.rfind('\n').map_or("", |end| &printed[..end]);
        self.addresses = complete
            .lines()
            .filter_map(|line| line.strip_prefix("listening ")?.split_once(' '))
            .map(|(name, address)| (name.to_owned(), address.to_owned()))
            .collect();
        LISTENERS.iter().all(|name| self.addresses.contains_key(*name))
    }

    /// The address that clients use.
    pub fn public(&self) -> &str {
        &self.addresses["public"]
    }

    /// The address of probes and metrics.
    pub fn admin(&self) -> &str {
        &self.addresses["admin"]
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it printed.
    pub fn stdout(&self) -> String {
        read(&self.output)
    }

    /// What it logged, the processes before it on the same data included.
    pub fn log(&self) -> String {
        read(&self.log)
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        // A process that ended and was not waited for is a zombie, state `Z`.
        let stat = read(Path::new(&format!("/proc/{}/stat", self.pid())));
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
    }

    /// Ends it as a power cut would.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end, as Ctrl-C does.
    pub fn interrupt(&self) {
        let pid = self.pid().to_string();
        // The shell's own `kill`: there may be no other.
        let sent = Command::new("sh").args(["-c", &format!("kill -INT {pid}")]).status();
        assert!(sent.is_ok_and(|status| status.success()), "the signal can be sent");
    }

    /// The most memory that it ever had resident, in bytes.
    pub fn peak_memory(&self) -> u64 {
        let status = read(Path::new(&format!("/proc/{}/status", self.pid())));
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.expect("Linux tells it in /proc") * 1024
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the server does not end");
            sleep(LOOK_EVERY).await;
        }
    }

    /// The end of its log, for failed tests.
    pub fn last_words(&self) -> String {
        let (printed, log) = (self.stdout(), self.log());
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(LAST_WORDS)..].join("\n");
        format!("--- the server printed ---\n{printed}--- the end of its log ---\n{tail}\n---")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A binary of this workspace, built beside the running executable.
pub fn binary(name: &str) -> PathBuf {
    let here = std::env::current_exe().expect("an executable knows where it is");
    // Tests lie in `deps`, one folder below the binaries.
    here.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.is_file()).unwrap_or_else(
        || {
            panic!(
                "there is no `{name}` beside {}: run `make test`, or `cargo build --workspace` with the same profile",
                here.display()
            )
        },
    )
}

fn read(path: &Path) -> String {
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}
