//! A process that is tested. It can be started, called, sent signals, killed and started again.

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

/// Maximum number of log lines that a failed test shows.
const LAST_WORDS: usize = 60;

/// Files with the output of a process: its standard output since the last start, and its log since the first start.
const OUTPUT: &str = "stdout.txt";
const LOG: &str = "stderr.txt";

/// Listeners whose addresses the programs print, and the environment variables that set these addresses.
const LISTENERS: [(&str, &str); 4] = [
    ("public", "FAREGATE_LISTEN"),
    ("admin", "FAREGATE_ADMIN_LISTEN"),
    ("key-http", "FAREGATE_KEY_HTTP_LISTEN"),
    ("key-grpc", "FAREGATE_KEY_GRPC_LISTEN"),
];

/// If a log has no new line for this time, it counts as complete. The time is several times as long as a process
/// buffers lines.
const LOG_SETTLED: Duration = Duration::from_millis(100);

/// After this time, a log is read as it is, even if it still grows. A process that has lost its store may write new
/// lines forever.
const LOG_GROWS: Duration = Duration::from_secs(5);

/// Script that passes its standard input to the program as a socket, as systemd does. It then becomes the program.
const HAND_OVER: &str = r#"exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec "$0" "$@""#;

/// Script that becomes the program. A write that exceeds the limit on file sizes fails, and does not kill the program.
/// The log is a pipe, to which the limit does not apply.
const FILES_BOUNDED: &str = r#"trap '' XFSZ; [ -p log ] || mkfifo log; cat log >&2 & exec "$0" "$@" 2>log"#;

/// Environment variable with the folder that contains the programs of the last release.
pub const PREVIOUS: &str = "FAREGATE_TEST_PREVIOUS";

/// How a process is started.
#[derive(Clone)]
pub struct Settings {
    /// Name of the binary in this workspace.
    pub program: &'static str,
    /// Working directory. It also contains the data directory and the output.
    pub data: PathBuf,
    /// Environment variables in addition to those for the addresses and the data directory.
    pub env: Vec<(&'static str, String)>,
    /// Socket that is passed to the process for its public port.
    pub listener: Option<Arc<TcpListener>>,
    /// Whether the process is first started with the program of the last release. This happens only if
    /// `FAREGATE_TEST_PREVIOUS` names a folder that contains it.
    pub upgraded: bool,
    /// Whether the test limits the sizes of the process's files while the process runs, with [`Server::bound_files`].
    pub files_bounded: bool,
    /// Folder that contains the program, unless it is the folder of the running executable.
    pub programs: Option<PathBuf>,
}

impl Settings {
    /// Returns the settings of `faregate`, which contains both services.
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

    /// Writes a script into a folder. It runs the program's commands, and has the name that people type.
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

    /// Runs a command and returns what it printed. The command must succeed.
    pub fn cli(&self, arguments: &[&str]) -> String {
        let (status, printed, error) = self.try_cli(arguments);
        assert!(status.success(), "`{} {}` fails: {error}", self.program, arguments.join(" "));
        printed
    }

    /// Starts a command and, after this time, kills it as a power failure would.
    pub async fn kill_cli(&self, arguments: &[&str], after: Duration) {
        let mut command = self.command();
        let mut child = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        tokio::time::sleep(after).await;
        // If the command has ended already, it need not be killed.
        let _ = child.kill();
        child.wait().unwrap();
    }

    /// Runs a command. Returns its exit status, its standard output and its standard error.
    pub fn try_cli(&self, arguments: &[&str]) -> (ExitStatus, String, String) {
        // Only a process that serves limits its files, and needs a reader for its log.
        let free = Self { files_bounded: false, ..self.clone() };
        let output = run_to_end(free.command().args(arguments));
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status, text(output.stdout), text(output.stderr))
    }
}

/// A running program. It is killed when this is dropped.
pub struct Server {
    settings: Settings,
    child: Mutex<Child>,
    /// Address of each listener, by the listener's name. They are the same after a restart.
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

    /// Starts a process and does not wait for it.
    pub fn launched(settings: &Settings) -> Self {
        Self::spawn(settings)
    }

    /// Starts a process with settings that it must refuse. Returns what it wrote to standard error.
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

    /// Starts the process again at the same addresses, with these additional environment variables, and without some
    /// others.
    pub async fn restart_with(&mut self, env: Vec<(&'static str, String)>, without: &[&str]) {
        self.settings.env.retain(|(name, _)| !without.contains(name));
        self.settings.env.extend(env);
        self.restart().await;
    }

    /// Starts the process again at the same addresses and does not wait for it: what it depends on may not be available
    /// yet.
    pub fn launch_again(&self) {
        self.kill();
        *self.child.lock().unwrap() = launch(&self.in_place());
    }

    /// Waits until a process that was launched again serves requests.
    pub async fn served_again(&self) {
        self.ready().await;
    }

    /// Starts the process again. If it ends at once because its store is unavailable, starts it again and again, as a
    /// supervisor would.
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

    /// Returns settings with which the process starts at the same addresses.
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

    /// Waits until the process prints the address for probes: then it serves. Returns false if the process ends first.
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

    /// Returns the addresses in the lines `listening NAME ADDRESS`, by their names.
    fn listeners(&self) -> HashMap<String, String> {
        let printed = self.stdout();
        let complete = printed.rfind('\n').map_or("", |end| &printed[..end]);
        complete
            .lines()
            .filter_map(|line| line.strip_prefix("listening ")?.split_once(' '))
            .map(|(name, address)| (name.to_owned(), address.to_owned()))
            .collect()
    }

    /// Returns the settings with which the process was started.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the address of the public listener.
    pub fn public(&self) -> &str {
        self.address("public")
    }

    /// Returns the address for probes and metrics.
    pub fn admin(&self) -> &str {
        self.address("admin")
    }

    pub fn address(&self, listener: &str) -> &str {
        &self.addresses[listener]
    }

    pub fn pid(&self) -> u32 {
        self.child.lock().unwrap().id()
    }

    /// Returns what the process has written to standard output since the last start.
    pub fn stdout(&self) -> String {
        read(&self.settings.data.join(OUTPUT))
    }

    /// Waits until the standard output contains this text, and returns it. A program may serve before it has printed
    /// everything.
    pub async fn printed(&self, text: &str) -> String {
        until(text, async || self.stdout().contains(text)).await;
        self.stdout()
    }

    /// Returns the log of this process and of its predecessors on the same data. Waits until no more lines arrive,
    /// because a process buffers lines for a moment.
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

    /// Limits the size of the process's files, so that a write to a larger file fails as on a full disk.
    pub fn bound_files(&self, bytes: Option<u64>) {
        let most = bytes.map_or("unlimited".to_owned(), |bytes| bytes.to_string());
        let pid = self.pid().to_string();
        let bounded = Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={most}:")]).status();
        assert!(bounded.unwrap().success());
    }

    /// Ends the process, as a power failure would.
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

    /// Stops the process with a signal. Its connections stay open, but nothing is answered until the process is
    /// resumed.
    pub fn hang(&self) {
        signal(self.pid(), "STOP");
    }

    /// Resumes a stopped process.
    pub fn resume(&self) {
        signal(self.pid(), "CONT");
    }

    /// Returns the highest resident memory that the process has had, in bytes.
    pub fn peak_memory(&self) -> u64 {
        let status = read(Path::new(&format!("/proc/{}/status", self.pid())));
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.expect("Linux reports it in /proc") * 1024
    }

    /// Waits until the process has ended. Returns its exit status.
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

    /// Returns the end of the log. Failed tests show it.
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

/// Returns whether a process runs. If a process has ended but nobody has waited for it, it is a zombie, whose state is
/// `Z`.
pub(crate) fn is_running(pid: u32) -> bool {
    let stat = read(Path::new(&format!("/proc/{pid}/stat")));
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// Returns the path of a binary of this workspace. It is in the same folder as the running executable, or one folder
/// above.
pub fn binary(name: &str) -> PathBuf {
    let here = std::env::current_exe().expect("an executable has a path");
    // Tests are in `deps`, which is one folder below the programs.
    here.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.is_file()).unwrap_or_else(
        || {
            panic!(
                "there is no `{name}` beside {}: run `make test`, or `cargo build --workspace` with the same profile",
                here.display()
            )
        },
    )
}

/// Reads a file. If the path is not a file, reading it could block forever.
fn read(path: &Path) -> String {
    if !path.is_file() {
        return String::new();
    }
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}
