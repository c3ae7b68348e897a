//! Memory available to a process: the cgroup's limit, or else the machine's available memory.

use std::{
    fs,
    path::{Path, PathBuf},
};

const CGROUPS: &str = "/sys/fs/cgroup";
/// Number of bytes above which a limit means no limit. For no limit, cgroups v1 reports a number near 2^63.
const UNBOUNDED: u64 = 1 << 50;
/// Memory to assume if the system gives no figure.
const UNKNOWN: u64 = 1 << 30;

/// Returns the bytes that this process may use, and where the figure comes from.
pub(super) fn of_process() -> (u64, &'static str) {
    let read = |path: &Path| fs::read_to_string(path).ok();
    if let Some(bound) = bound_of_cgroup(read) {
        return (bound, "cgroup");
    }
    match available(&read(Path::new("/proc/meminfo")).unwrap_or_default()) {
        Some(available) => (available, "available"),
        None => (UNKNOWN, "assumed"),
    }
}

/// Returns the smallest limit of the process's cgroup and its parents.
fn bound_of_cgroup(read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let memberships = read(Path::new("/proc/self/cgroup"))?;
    let mut smallest: Option<u64> = None;
    for line in memberships.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let (root, file) = if controllers.is_empty() {
            (PathBuf::from(CGROUPS), "memory.max")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            (Path::new(CGROUPS).join("memory"), "memory.limit_in_bytes")
        } else {
            continue;
        };
        let folder = root.join(path.trim_start_matches('/'));
        // In a container the path may be the host's. Then only the root can be read.
        let folders = folder.ancestors().take_while(|folder| folder.starts_with(&root));
        let bounds = folders.filter_map(|folder| read(&folder.join(file))?.trim().parse::<u64>().ok());
        smallest = bounds.chain(smallest).filter(|bound| *bound < UNBOUNDED).min();
    }
    smallest
}

fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(files: &[(&str, &str)]) -> Option<u64> {
        bound_of_cgroup(|path| {
            let (_, content) = files.iter().find(|(name, _)| Path::new(name) == path)?;
            Some((*content).to_owned())
        })
    }

    #[test]
    fn the_smallest_bound_on_the_way_up_counts() {
        let own = ("/proc/self/cgroup", "0::/a/b\n");
        let nested = [
            own,
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "1073741824\n"),
        ];
        assert_eq!(bound(&nested), Some(1 << 30));
        assert_eq!(bound(&[own, ("/sys/fs/cgroup/memory.max", "536870912\n")]), Some(1 << 29));
        assert_eq!(bound(&[own, ("/sys/fs/cgroup/a/b/memory.max", "max\n")]), None);
        assert_eq!(bound(&[own]), None);
        assert_eq!(bound(&[]), None);
    }

    #[test]
    fn the_first_version_of_cgroups_is_understood() {
        let own = ("/proc/self/cgroup", "5:cpu:/x\n4:memory:/docker/1\n0::/\n");
        let bounded = [
            own,
            ("/sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "268435456\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(bound(&bounded), Some(1 << 28));
        assert_eq!(bound(&bounded[..1]), None);
        let unbounded = [own, bounded[2]];
        assert_eq!(bound(&unbounded), None);
    }

    #[test]
    fn what_the_machine_has_available_is_read() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:   2048 kB\n"), Some(2 << 20));
        assert_eq!(available(""), None);
    }
}
