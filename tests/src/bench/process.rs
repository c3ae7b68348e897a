//! Processes that are measured, and what the system says of their CPU.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::harness::binary;

/// Ticks of `/proc/PID/stat` in a second: Linux tells all programs the same, whatever it counts in itself.
const TICKS_PER_SECOND: u64 = 100;

/// A server in a process of its own, killed when dropped.
pub(super) struct Process {
    child: Child,
    /// Where it listens.
    pub(super) address: SocketAddr,
}

impl Process {
    /// Starts a binary of this workspace, which prints `listening NAME ADDRESS` first.
    pub(super) async fn start(name: &str, arguments: &[&str]) -> Self {
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
        let address = line.trim().rsplit("http://").next().and_then(|address| address.parse().ok());
        let address = address.unwrap_or_else(|| panic!("`{name}` prints where it listens, not {line:?}"));
        Self { child, address }
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The CPU time that a process has used so far, user and system.
#[derive(Clone, Copy)]
pub(super) struct Cpu(u64);

impl Cpu {
    /// What this process has used by now.
    pub(super) fn of(pid: u32) -> Self {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .unwrap_or_else(|e| panic!("CPU times are read from Linux's /proc: {e}"));
        // The second field, a name in brackets, may hold anything; the fourteenth and fifteenth are the times.
        let (_, rest) = stat.rsplit_once(')').expect("the name is in brackets");
        let ticks = rest.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().unwrap());
        Self(ticks.sum())
    }

    /// What was used since then.
    pub(super) fn since(self, before: Self) -> Duration {
        Duration::from_millis((self.0 - before.0) * 1_000 / TICKS_PER_SECOND)
    }
}
