//! Measured processes: their CPU time and memory, as the operating system reports them.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tests::harness::binary;

/// Ticks per second in `/proc/PID/stat`: a constant of Linux's user interface, independent of the kernel's own timer.
const TICKS_PER_SECOND: u64 = 100;

/// A server in its own process, killed when dropped.
pub(crate) struct Process {
    child: Child,
    /// Address that it listens on.
    pub(crate) address: SocketAddr,
}

impl Process {
    /// Starts a binary of this workspace. The first line that it prints contains its address.
    pub(crate) async fn start(name: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(binary(name))
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("`{name}` can be started: {e}"));
        let mut printed = BufReader::new(child.stdout.take().expect("it is piped"));
        let read = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            printed.read_line(&mut line).map(|_| line)
        });
        let line = read.await.unwrap().unwrap();
        let address =
            line.trim().rsplit("http://").next().and_then(|url| url.split('/').next()?.parse().ok());
        let address = address.unwrap_or_else(|| panic!("`{name}` prints where it listens, not {line:?}"));
        Self { child, address }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the CPU time of a process since its start, in user and in kernel mode.
pub(super) fn cpu(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .unwrap_or_else(|e| panic!("CPU times are read from Linux's /proc: {e}"));
    // The second field, a name in parentheses, may contain anything. The fourteenth and fifteenth are the times.
    let (_, rest) = stat.rsplit_once(')').expect("the name is in brackets");
    let ticks = rest.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().unwrap());
    Duration::from_millis(ticks.sum::<u64>() * 1_000 / TICKS_PER_SECOND)
}

/// CPU time of the machine since its start, in ticks.
pub(super) struct MachineTime {
    all: u64,
    stolen: u64,
}

impl MachineTime {
    pub(super) fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/stat").expect("CPU times are read from Linux's /proc");
        let line = stat.lines().next().expect("the first line adds up all cores");
        // User, nice, system, idle, I/O wait, two kinds of interrupts, stolen. The first two include guests' time.
        let ticks: Vec<u64> =
            line.split_whitespace().skip(1).take(8).map(|field| field.parse().unwrap()).collect();
        Self { all: ticks.iter().sum(), stolen: ticks.get(7).copied().unwrap_or_default() }
    }

    /// Returns the share of the time since this reading that other machines on the host took.
    #[expect(clippy::cast_precision_loss, reason = "one digit is shown")]
    pub(super) fn stolen_since(&self) -> f64 {
        let now = Self::now();
        (now.stolen - self.stolen) as f64 / (now.all - self.all).max(1) as f64
    }
}

/// Returns a process's resident memory in bytes.
pub(crate) fn memory(pid: u32) -> u64 {
    status(pid, "VmRSS:")
}

/// Returns a process's peak resident memory since [`forget_peak`], in bytes.
pub(crate) fn peak_memory(pid: u32) -> u64 {
    status(pid, "VmHWM:")
}

/// Resets the peak memory of a process.
pub(super) fn forget_peak(pid: u32) {
    // "5" resets the peak: see proc(5).
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("the peak of a child can be reset");
}

fn status(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs, on Linux");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("Linux shows its memory");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("in kB");
    kib << 10
}
