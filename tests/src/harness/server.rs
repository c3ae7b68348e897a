//! A process under test: started, asked, interrupted, killed, started again.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::Mutex,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use super::{LOOK_EVERY, PATIENCE, UPSTREAM_KEY};

/// Lines of the log that a failed test shows.
const LAST_WORDS: usize = 60;

/// The files that a process writes into, of each start and of all starts.
const OUTPUT: &str = "stdout.txt";
const LOG: &str = "stderr.txt";

/// The listeners that the programs tell of, and how they are told where to listen.
const LISTENERS: [(&str, &str); 4] = [
    ("public", "FAREGATE_LISTEN"),
    ("admin", "FAREGATE_ADMIN_LISTEN"),
    ("key-http", "FAREGATE_KEY_HTTP_LISTEN"),
    ("key-grpc", "FAREGATE_KEY_GRPC_LISTEN"),
];

/// The time in which a supervised server has to come up.
const SUPERVISED: Duration = Duration::from_mins(2);

/// Where a listener is put first: on a free port of its own.
const ANYWHERE: &str = "127.0.0.1:0";

/// What a process is started with.
#[derive(Clone)]
pub struct Settings {
    /// Which of this workspace's binaries it is.
    pub program: &'static str,
    /// Where it runs; also where its data directory is, and where its output is kept.
    pub data: PathBuf,
    /// Its environment, beyond addresses and the data directory.
    pub env: Vec<(&'static str, String)>,
}

impl Settings {
    /// What `faregate`, which is everything in one process, is started with.
    pub fn all_in_one(data: &Path, env: Vec<(&'static str, String)>) -> Self {
        Self { program: "faregate", data: data.to_owned(), env }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(binary(self.program));
        // What the tests are run with must not change what they show.
        command.env_clear().current_dir(&self.data);
        command.envs(LISTENERS.map(|(_, variable)| (variable, ANYWHERE)));
        command.env("FAREGATE_DATA_DIR", self.data.join("data")).env("UPSTREAM_KEY", UPSTREAM_KEY);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null());
        command
    }

    /// What a command prints; it must succeed.
    pub fn cli(&self, arguments: &[&str]) -> String {
        let (status, printed, complaint) = self.try_cli(arguments);
        assert!(status.success(), "`{} {}` fails: {complaint}", self.program, arguments.join(" "));
        printed
    }

    /// How a command ends, and what it prints on both channels.
    pub fn try_cli(&self, arguments: &[&str]) -> (ExitStatus, String, String) {
        let output = self.command().args(arguments).output().expect("the binary can be run");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status, text(output.stdout), text(output.stderr))
    }
}

/// A running program, killed when dropped.
pub struct Server {
    settings: Settings,
    child: Mutex<Child>,
    /// Where it listens, by the listener's name; the same when it is started again.
    addresses: HashMap<String, String>,
}

impl Server {
    /// Starts it and waits until it listens.
    pub async fn start(settings: &Settings) -> Self {
        let mut server = Self::spawn(settings);
        server.ready().await;
        server.addresses = server.listeners();
        server
    }

    /// Starts it with settings that it must refuse, and gives what it says.
    pub async fn refuses(settings: &Settings) -> String {
        let server = Self::spawn(settings);
        let status = server.ended().await;
        assert!(!status.success(), "a refusal is no success");
        server.log()
    }

    /// Starts it once more, where it was; one that still runs is killed first.
    pub async fn restart(&self) {
        self.kill();
        *self.child.lock().unwrap() = launch(&self.in_place());
        self.ready().await;
    }

    /// Starts it once more, and again whenever it ends at once, as a supervisor does: its store may be away.
    pub async fn restart_supervised(&self) {
        self.kill();
        let deadline = Instant::now() + SUPERVISED;
        loop {
            *self.child.lock().unwrap() = launch(&self.in_place());
            if self.serves().await {
                return;
            }
            assert!(Instant::now() < deadline, "the server ends at every start\n{}", self.last_words());
        }
    }

    /// The settings that start it where it was.
    fn in_place(&self) -> Settings {
        let mut settings = self.settings.clone();
        for (name, variable) in LISTENERS {
            if let Some(address) = self.addresses.get(name) {
                settings.env.push((variable, address.rsplit('/').next().unwrap_or_default().to_owned()));
            }
        }
        settings
    }

    fn spawn(settings: &Settings) -> Self {
        let child = Mutex::new(launch(settings));
        Self { settings: settings.clone(), child, addresses: HashMap::new() }
    }

    async fn ready(&self) {
        assert!(self.serves().await, "the server ended at once\n{}", self.last_words());
    }

    /// Waits until it prints the address of its probes, which it does once it serves; false if it ends before.
    async fn serves(&self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while !self.listeners().contains_key("admin") {
            if !self.is_running() {
                return false;
            }
            assert!(Instant::now() < deadline, "the server does not get ready\n{}", self.last_words());
            sleep(LOOK_EVERY).await;
        }
        true
    }

    /// Reads the lines `listening NAME ADDRESS`.
    fn listeners(&self) -> HashMap<String, String> {
        let printed = self.stdout();
        let complete = printed.rfind('\n').map_or("", |end| &printed[..end]);
        complete
            .lines()
            .filter_map(|line| line.strip_prefix("listening ")?.split_once(' '))
            .map(|(name, address)| (name.to_owned(), address.to_owned()))
            .collect()
    }

    /// What it was started with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The address that clients use.
    pub fn public(&self) -> &str {
        self.address("public")
    }

    /// The address of probes and metrics.
    pub fn admin(&self) -> &str {
        self.address("admin")
    }

    /// The address of a listener.
    pub fn address(&self, listener: &str) -> &str {
        &self.addresses[listener]
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.lock().unwrap().id()
    }

    /// What it printed.
    pub fn stdout(&self) -> String {
        read(&self.settings.data.join(OUTPUT))
    }

    /// What it logged, the processes before it on the same data included.
    pub fn log(&self) -> String {
        read(&self.settings.data.join(LOG))
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        is_running(self.pid())
    }

    /// Ends it as a power cut would.
    pub fn kill(&self) {
        let mut child = self.child.lock().unwrap();
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Asks it to end, as Ctrl-C does.
    pub fn interrupt(&self) {
        signal(self.pid(), "INT");
    }

    /// Asks it to end, as a supervisor does.
    pub fn terminate(&self) {
        signal(self.pid(), "TERM");
    }

    /// Makes it hang: its connections stay open, and nothing is answered until it is resumed.
    pub fn hang(&self) {
        signal(self.pid(), "STOP");
    }

    /// Lets it go on where it hung.
    pub fn resume(&self) {
        signal(self.pid(), "CONT");
    }

    /// The most memory that it ever had resident, in bytes.
    pub fn peak_memory(&self) -> u64 {
        let status = read(Path::new(&format!("/proc/{}/status", self.pid())));
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.expect("Linux tells it in /proc") * 1024
    }

    /// Waits for its end.
    pub async fn ended(&self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let ended = self.child.lock().unwrap().try_wait().unwrap();
            if let Some(status) = ended {
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
        let program = self.settings.program;
        format!("--- {program} printed ---\n{printed}--- the end of its log ---\n{tail}\n---")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn launch(settings: &Settings) -> Child {
    let log = OpenOptions::new().create(true).append(true).open(settings.data.join(LOG)).unwrap();
    settings
        .command()
        .stdout(File::create(settings.data.join(OUTPUT)).unwrap())
        .stderr(log)
        .spawn()
        .expect("the binary can be started")
}

/// Whether a process runs. One that ended and was not waited for is a zombie, state `Z`.
pub(super) fn is_running(pid: u32) -> bool {
    let stat = read(Path::new(&format!("/proc/{pid}/stat")));
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// Sends a signal. The shell's own `kill` does: there may be no other.
pub(super) fn signal(pid: u32, name: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status();
    assert!(sent.is_ok_and(|status| status.success()), "the signal can be sent");
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
