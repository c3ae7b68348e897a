//! Resources that the process uses, read from `/proc` for every scrape.
//!
//! The crate `metrics-process` counts CPU time in whole seconds, which is too coarse for a rate over a minute, and
//! takes ten seconds of CPU time to compile.

use std::{
    fmt::Write,
    fs::{read_dir, read_to_string},
};

use rlimit::Resource;

/// Ticks per second in `/proc`: `USER_HZ`, which is 100 on every platform that the programs are built for.
const TICKS_PER_SECOND: f64 = 100.0;
/// Positions of fields in `/proc/self/stat` after the name of the program, counted from 0.
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;
const THREADS: usize = 17;
const START_TICKS: usize = 19;

/// Adds the metrics of the process to a text, as far as the system reports them.
pub(super) fn render(text: &mut String) {
    let stat = read_to_string("/proc/self/stat").unwrap_or_default();
    let status = read_to_string("/proc/self/status").unwrap_or_default();
    let field = |place| field(&stat, place);
    let seconds = |ticks: f64| ticks / TICKS_PER_SECOND;
    let cpu = field(USER_TICKS).zip(field(SYSTEM_TICKS)).map(|(user, system)| seconds(user + system));
    let started = booted().zip(field(START_TICKS)).map(|(booted, ticks)| booted + seconds(ticks));
    // One of them is the folder itself, open while it is read.
    let open = read_dir("/proc/self/fd").ok().map(|files| precise(files.count().saturating_sub(1)));
    let most = Resource::NOFILE.get_soft().ok().and_then(|most| usize::try_from(most).ok()).map(precise);
    let mut add = |name: &str, kind: &str, help: &str, value: Option<f64>| {
        // Writing to a text cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        if let Some(value) = value {
            let _ = writeln!(text, "{name} {value}");
        }
    };
    add("process_cpu_seconds_total", "counter", "processor time used by the process", cpu);
    add("process_threads", "gauge", "threads of the process", field(THREADS));
    add("process_start_time_seconds", "gauge", "time at which the process started", started);
    add("process_open_fds", "gauge", "open files of the process, including connections", open);
    add("process_max_fds", "gauge", "limit of open files", most);
    add("process_resident_memory_bytes", "gauge", "memory of the process", memory(&status, "VmRSS:"));
    add("process_virtual_memory_bytes", "gauge", "address space of the process", memory(&status, "VmSize:"));
}

/// Reads a number from `/proc/self/stat`. The program's name is in parentheses and may contain blanks.
fn field(stat: &str, place: usize) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split_ascii_whitespace().nth(place)?.parse().ok()
}

/// Returns the bytes in a line of `/proc/self/status`, which gives kibibytes.
fn memory(status: &str, label: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(label))?;
    let kibibytes: f64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024.0)
}

/// Returns when the machine started, in seconds since 1970.
fn booted() -> Option<f64> {
    let stat = read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[expect(clippy::cast_precision_loss, reason = "a metric")]
fn precise(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_tells_is_read_whatever_the_program_is_called() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 3 0 1000 8192 99";
        assert_eq!(
            [USER_TICKS, SYSTEM_TICKS, THREADS, START_TICKS].map(|place| field(stat, place)),
            [150.0, 50.0, 3.0, 1000.0].map(Some)
        );
        assert_eq!(memory("Name:\tx\nVmRSS:\t  2048 kB\n", "VmRSS:"), Some(2_097_152.0));
        let mut text = String::new();
        render(&mut text);
        let values = text.lines().filter(|line| !line.starts_with('#'));
        for (name, value) in values.map(|line| line.split_once(' ').unwrap()) {
            let least = if name == "process_cpu_seconds_total" { 0.0 } else { 1.0 };
            assert!(value.parse::<f64>().unwrap() >= least, "{name} {value}");
        }
        assert_eq!(text.lines().count(), 3 * 7, "everything is told: {text}");
    }
}
