//! A process under test, which can be started, called, signalled, killed and restarted.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    net::TcpListener,
    os::{fd::OwnedFd, unix::fs::PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use super::ports::free_port;
use crate::{
    harness::{
        command::{run_to_end, signal},
        patience::{LOOK_EVERY, SERVER_PATIENCE, until},
    },
    upstream::UPSTREAM_KEY,
};

/// Number of log lines that a failed test shows.
const LAST_WORDS: usize = 60;

/// Files with a process's output: standard output since the last start, and the log since the first start.
const OUTPUT: &str = "stdout.txt";
const LOG: &str = "stderr.txt";

/// Listeners whose addresses the programs print, with the variables that set these addresses.
const LISTENERS: [(&str, &str); 4] = [
    ("public", "FAREGATE_LISTEN"),
    ("admin", "FAREGATE_ADMIN_LISTEN"),
    ("key-http", "FAREGATE_KEY_HTTP_LISTEN"),
    ("key-grpc", "FAREGATE_KEY_GRPC_LISTEN"),
];

/// Time without a new line after which a log is complete: several times as long as a process buffers lines.
const LOG_SETTLED: Duration = Duration::from_millis(100);

/// Time after which a log that still grows is read as it is, since a process that has lost its store may write forever.
const LOG_GROWS: Duration = Duration::from_secs(5);

/// Script that passes standard input on as a socket, as systemd does, and then becomes the program.
const HAND_OVER: &str = r#"exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec "$0" "$@""#;

/// Script that becomes the program. Writes beyond the file-size limit fail instead of killing it. The log is a pipe,
/// which has no such limit.
const FILES_BOUNDED: &str = r#"trap '' XFSZ; [ -p log ] || mkfifo log; cat log >&2 & exec "$0" "$@" 2>log"#;

/// Environment variable with the folder of the last release's programs.
pub const PREVIOUS: &str = "FAREGATE_TEST_PREVIOUS";

/// Settings of a process.
#[derive(Clone)]
pub struct Settings {
    /// Name of the binary in this workspace.
    pub program: &'static str,
    /// Working directory. It also holds the data directory and the output.
    pub data: PathBuf,
    /// Environment in addition to addresses and the data directory.
    pub env: Vec<(&'static str, String)>,
    /// Socket that is passed to the process as its public port.
    pub listener: Option<Arc<TcpListener>>,
    /// Whether the first start uses the last release's program, if `FAREGATE_TEST_PREVIOUS` names a folder that
    /// contains it.
    pub upgraded: bool,
    /// Whether the test limits the size of the process's files with [`Server::bound_files`] while it runs.
    pub files_bounded: bool,
    /// Folder of the program, if it is not the running executable's.
    pub programs: Option<PathBuf>,
}

impl Settings {
    /// Returns the settings of `faregate`, which runs everything in one process.
    pub fn all_in_one(data: &Path, env: Vec<(&'static str, String)>) -> Self {
        Self::of("faregate", data, env)
    }

    pub fn of(program: &'static str, data: &Path, env: Vec<(&'static str, String)>) -> Self {
        Self {
            program,
            data: data.to_owned(),
            env,
            listener: None,
            upgraded: false,
            files_bounded: false,
            programs: None,
        }
    }

    fn command(&self) -> Command {
        let program = match std::env::var(PREVIOUS) {
            Ok(previous) if self.upgraded => Path::new(&previous).join(self.program),
            Ok(_) | Err(_) => self
                .programs
                .as_ref()
                .map_or_else(|| binary(self.program), |folder| folder.join(self.program)),
        };
        let is_wrapped = self.listener.is_some() || self.files_bounded;
        let mut command = if is_wrapped { Command::new("sh") } else { Command::new(&program) };
        // The environment of the test run must not affect the process.
        command.env_clear().current_dir(&self.data);
        command.envs(LISTENERS.map(|(_, variable)| (variable, format!("127.0.0.1:{}", free_port()))));
        command.env("FAREGATE_DATA_DIR", self.data.join("data")).env("UPSTREAM_KEY", UPSTREAM_KEY);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        match &self.listener {
            None if self.files_bounded => command.args(["-c", FILES_BOUNDED]).arg(program),
            None => command.stdin(Stdio::null()),
            Some(listener) => {
                command.args(["-c", HAND_OVER]).arg(program);
                command.stdin(OwnedFd::from(listener.try_clone().unwrap()))
            }
        };
        command
    }

    /// Writes a script that runs the program's commands into a folder. The script has the name that people use.
    pub fn install(&self, folder: &Path) {
        let quoted = |text: &OsStr| format!("'{}'", text.to_str().unwrap().replace('\'', "'\\''"));
        let command = self.command();
        let variables = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        let exports =
            variables.map(|(name, value)| format!("export {}={}\n", name.to_str().unwrap(), quoted(value)));
        let exports: String = exports.collect();
        let script = format!("#!/bin/sh\n{exports}exec {} \"$@\"\n", quoted(command.get_program()));
        let file = folder.join("faregate");
        fs::write(&file, script).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs a command, which must succeed, and returns its output.
    pub fn cli(&self, arguments: &[&str]) -> String {
        let (status, printed, error) = self.try_cli(arguments);
        assert!(status.success(), "`{} {}` fails: {error}", self.program, arguments.join(" "));
        printed
    }

    /// Starts a command, and kills it after this time as a power failure would.
    pub async fn kill_cli(&self, arguments: &[&str], after: Duration) {
        let mut command = self.command();
        let mut child = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        tokio::time::sleep(after).await;
        // If the command has ended, it need not be killed.
        let _ = child.kill();
        child.wait().unwrap();
    }

    /// Runs a command and returns its exit status, its standard output and its standard error.
    pub fn try_cli(&self, arguments: &[&str]) -> (ExitStatus, String, String) {
        // Only a serving process limits its files and needs a reader for its log.
        let free = Self { files_bounded: false, ..self.clone() };
        let output = run_to_end(free.command().args(arguments));
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status, text(output.stdout), text(output.stderr))
    }
}

/// A running program, killed when dropped.
pub struct Server {
    settings: Settings,
    child: Mutex<Child>,
    /// Addresses by the listener's name. They stay the same across restarts.
    addresses: HashMap<String, String>,
}

impl Server {
    /// Starts a process and waits until it listens.
    pub async fn start(settings: &Settings) -> Self {
        let mut server = Self::spawn(settings);
        server.ready().await;
        server.addresses = server.listeners();
        server
    }

    /// Starts a process without waiting for it.
    pub fn launched(settings: &Settings) -> Self {
        Self::spawn(settings)
    }

    /// Starts a process with settings that it must refuse, and returns its error output.
    pub async fn refuses(settings: &Settings) -> String {
        let server = Self::spawn(settings);
        let status = server.ended().await;
        assert!(!status.success(), "a refusal is no success");
        server.log()
    }

    /// Starts the process again at the same addresses. If it still runs, it is killed first.
    pub async fn restart(&self) {
        self.kill();
        *self.child.lock().unwrap() = launch(&self.in_place());
        self.ready().await;
    }

    /// Starts the process again at the same addresses, with this additional environment and without some variables.
    pub async fn restart_with(&mut self, env: Vec<(&'static str, String)>, without: &[&str]) {
        self.settings.env.retain(|(name, _)| !without.contains(name));
        self.settings.env.extend(env);
        self.restart().await;
    }

    /// Starts the process again at the same addresses without waiting for it, since what it depends on may not be
    /// available yet.
    pub fn launch_again(&self) {
        self.kill();
        *self.child.lock().unwrap() = launch(&self.in_place());
    }

    /// Waits until a process that was launched again serves requests.
    pub async fn served_again(&self) {
        self.ready().await;
    }

    /// Starts the process again. If it exits at once because its store is unavailable, repeats that as a supervisor
    /// would.
    pub async fn restart_supervised(&self) {
        self.kill();
        let deadline = Instant::now() + SERVER_PATIENCE;
        loop {
            *self.child.lock().unwrap() = launch(&self.in_place());
            if self.serves().await {
                return;
            }
            assert!(Instant::now() < deadline, "the server ends at every start\n{}", self.last_words());
        }
    }

    /// Returns settings that start the process at the same addresses.
    fn in_place(&self) -> Settings {
        let mut settings = Settings { upgraded: false, ..self.settings.clone() };
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

    /// Waits until the process prints the address of its probes, which means that it serves. Returns false if it exits
    /// first.
    async fn serves(&self) -> bool {
        let deadline = Instant::now() + SERVER_PATIENCE;
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

    /// Returns the settings that the process was started with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the address of the public listener.
    pub fn public(&self) -> &str {
        self.address("public")
    }

    /// Returns the address of probes and metrics.
    pub fn admin(&self) -> &str {
        self.address("admin")
    }

    pub fn address(&self, listener: &str) -> &str {
        &self.addresses[listener]
    }

    pub fn pid(&self) -> u32 {
        self.child.lock().unwrap().id()
    }

    /// Returns the standard output since the last start.
    pub fn stdout(&self) -> String {
        read(&self.settings.data.join(OUTPUT))
    }

    /// Returns the standard output once it contains this text. A program may serve before it has written its first
    /// screen.
    pub async fn printed(&self, text: &str) -> String {
        until(text, async || self.stdout().contains(text)).await;
        self.stdout()
    }

    /// Returns the log of this process and of its predecessors on the same data. Waits until no more lines arrive,
    /// since a process buffers lines for a moment.
    #[expect(clippy::disallowed_methods, reason = "tests print logs where nothing can be awaited")]
    pub fn log(&self) -> String {
        let path = self.settings.data.join(LOG);
        let (mut log, deadline) = (read(&path), Instant::now() + LOG_GROWS);
        loop {
            thread::sleep(LOG_SETTLED);
            let later = read(&path);
            if later.len() == log.len() || Instant::now() > deadline {
                return later;
            }
            log = later;
        }
    }

    /// Returns whether the process runs.
    pub fn is_running(&self) -> bool {
        is_running(self.pid())
    }

    /// Limits the size of the process's files, so that a larger write fails as on a full disk.
    pub fn bound_files(&self, bytes: Option<u64>) {
        let most = bytes.map_or("unlimited".to_owned(), |bytes| bytes.to_string());
        let pid = self.pid().to_string();
        let bounded = Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={most}:")]).status();
        assert!(bounded.unwrap().success());
    }

    /// Ends the process as a power failure would.
    pub fn kill(&self) {
        let mut child = self.child.lock().unwrap();
        // The process may have ended already.
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Asks the process to end, as Ctrl-C does.
    pub fn interrupt(&self) {
        signal(self.pid(), "INT");
    }

    /// Asks the process to end, as a supervisor does.
    pub fn terminate(&self) {
        signal(self.pid(), "TERM");
    }

    /// Asks the process to read its catalogue again, as an operator does.
    pub fn reload(&self) {
        signal(self.pid(), "HUP");
    }

    /// Stops the process with a signal: its connections stay open, but nothing is answered until it is resumed.
    pub fn hang(&self) {
        signal(self.pid(), "STOP");
    }

    /// Resumes a stopped process.
    pub fn resume(&self) {
        signal(self.pid(), "CONT");
    }

    /// Returns the process's peak resident memory in bytes.
    pub fn peak_memory(&self) -> u64 {
        let status = read(Path::new(&format!("/proc/{}/status", self.pid())));
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.expect("Linux reports it in /proc") * 1024
    }

    /// Waits until the process ends, and returns its exit status.
    pub async fn ended(&self) -> ExitStatus {
        let deadline = Instant::now() + SERVER_PATIENCE;
        loop {
            let ended = self.child.lock().unwrap().try_wait().unwrap();
            if let Some(status) = ended {
                return status;
            }
            assert!(Instant::now() < deadline, "the server does not end\n{}", self.last_words());
            sleep(LOOK_EVERY).await;
        }
    }

    /// Returns the end of the log, for failed tests.
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

/// Returns whether a process runs. A process that has ended but that nobody has waited for is a zombie, in state `Z`.
pub(crate) fn is_running(pid: u32) -> bool {
    let stat = read(Path::new(&format!("/proc/{pid}/stat")));
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// Returns the path of a binary of this workspace. It is next to the running executable.
pub fn binary(name: &str) -> PathBuf {
    let here = std::env::current_exe().expect("an executable has a path");
    // Tests are in `deps`, one folder below the binaries.
    here.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.is_file()).unwrap_or_else(
        || {
            panic!(
                "there is no `{name}` beside {}: run `make test`, or `cargo build --workspace` with the same profile",
                here.display()
            )
        },
    )
}

/// Reads a file. Reading anything else could block forever.
fn read(path: &Path) -> String {
    if !path.is_file() {
        return String::new();
    }
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}
