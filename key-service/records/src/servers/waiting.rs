use std::{
    fs,
    time::{Duration, Instant},
};

/// Longest wait for servers. Only a wait for a server that hangs takes this long. On a busy machine, servers start
/// late, and a Sentinel that was stopped for two seconds promotes no replica for half a minute.
pub const PATIENCE: Duration = Duration::from_mins(5);
/// Interval at which servers are polled.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Waits until a condition holds. Fails if one of these servers has ended, because the condition may then never hold.
#[expect(clippy::disallowed_methods, reason = "servers are started outside of any runtime")]
pub(super) fn until(what: &str, servers: &[u32], mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(servers.iter().all(|pid| is_running(*pid)), "a server ended during the wait for {what}");
        assert!(started.elapsed() < PATIENCE, "waited too long for {what}");
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Returns whether a process is still running. A zombie is not.
fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}
