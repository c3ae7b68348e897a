//! Runs commands to their end.

use std::{
    ffi::OsStr,
    process::{Command, Output, Stdio},
    sync::mpsc,
    thread,
};

use super::patience::SERVER_PATIENCE;

/// Runs a command to its end and returns what it printed. A command that hangs is killed, and the test fails.
pub fn run_to_end(command: &mut Command) -> Output {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words = words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ");
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap_or_else(|e| panic!("`{words}` cannot be run: {e}"));
    let (pid, (sender, ended)) = (child.id(), mpsc::channel());
    thread::spawn(move || sender.send(child.wait_with_output()));
    if let Ok(output) = ended.recv_timeout(SERVER_PATIENCE) {
        return output.expect("its output is read");
    }
    signal(pid, "KILL");
    let printed = ended.recv_timeout(SERVER_PATIENCE);
    panic!("`{words}` does not end in {SERVER_PATIENCE:?}: {printed:?}");
}

/// Sends a signal with the shell's built-in `kill`, since the separate program may be missing.
pub(crate) fn signal(pid: u32, name: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status();
    assert!(sent.is_ok_and(|status| status.success()), "the signal can be sent");
}
