//! The limits of a process, and how many connections they allow.

mod memory;

use clap::Args;
use rlimit::Resource;
use shared_config::ConfigError;

use crate::serve::{ConnectionOptions, LEAST_CONNECTIONS};

/// Number of open files that are reserved for the store, for logs, and for connections between the services.
const RESERVED_FILES: usize = 192;
/// Maximum number of bytes that a silent connection occupies, including half a head of the largest size. All
/// connections together may take a quarter of the process's memory.
const CONNECTION_BYTES: u64 = 32 << 10;
/// Maximum number of bytes that TLS adds to a connection: an incomplete handshake message of the largest size, and as
/// much again for keys and buffers.
const TLS_BYTES: u64 = 128 << 10;
/// Maximum number of connections to the main port. The number is smaller if open files or memory do not suffice.
const MOST_CONNECTIONS: usize = 16_384;

/// Settings from which the limits of a process follow.
#[derive(Args, Clone, Debug)]
#[group(id = "process")]
pub struct LimitOptions {
    /// MiB of memory that the process may use; other budgets are derived from it [default: the limit of the cgroup, or
    /// the memory available at the start]
    #[arg(long, env = "FAREGATE_MEMORY_MIB", value_name = "MIB",
          value_parser = clap::value_parser!(u32).range(64..=1 << 24))]
    pub memory_mib: Option<u32>,

    /// Settings of every port.
    #[command(flatten)]
    pub connections: ConnectionOptions,
}

/// Limits of a process. The limits that the system sets are raised as far as the system allows.
#[derive(Clone, Debug)]
pub struct Limits {
    pub files: usize,
    /// Number of bytes of memory that the process may use.
    pub memory: u64,
    pub connections: ConnectionOptions,
    pub over_tls: bool,
}

impl LimitOptions {
    /// Raises the limit of open files, and turns off core dumps, which would contain keys and prompts. Logs the limits
    /// that then apply.
    pub fn raise(&self) -> Limits {
        if let Err(e) = Resource::CORE.set(0, 0) {
            tracing::warn!(error = %e, "cannot turn off core dumps, which would contain keys and prompts");
        }
        let files = rlimit::increase_nofile_limit(u64::MAX).unwrap_or_else(|e| {
            tracing::warn!(error = %e, "cannot raise the limit of open files");
            Resource::NOFILE.get_soft().unwrap_or(1024)
        });
        let (memory, source) = match self.memory_mib {
            Some(mib) => (u64::from(mib) << 20, "FAREGATE_MEMORY_MIB"),
            None => memory::of_process(),
        };
        tracing::info!(files, memory_mib = memory >> 20, memory_source = source, "limits of the process");
        let files = usize::try_from(files).unwrap_or(usize::MAX);
        Limits { files, memory, connections: self.connections.clone(), over_tls: false }
    }
}

impl Limits {
    /// Returns the number of connections that each of `ports` ports may have: the configured number, or as many as open
    /// files and memory allow. `other_files` is the number of files that the process needs for other purposes.
    pub fn connections(&self, ports: usize, other_files: usize) -> Result<usize, ConfigError> {
        const SETTING: &str = "FAREGATE_MAX_CONNECTIONS";
        let files = self.files.saturating_sub(RESERVED_FILES + other_files) / ports;
        let bytes = CONNECTION_BYTES + if self.over_tls { TLS_BYTES } else { 0 };
        let memory = usize::try_from(self.memory / 4 / bytes).unwrap_or(usize::MAX) / ports;
        let refuse = |connections: usize| {
            let reason = format!(
                "{connections} connections on each of {ports} ports do not fit: {} open files (ulimit -n) and {} MiB \
                 of memory leave files for {} and memory for {} connections on each port",
                self.files,
                self.memory >> 20,
                files,
                memory
            );
            Err(ConfigError::new(SETTING, reason))
        };
        match self.connections.max_connections {
            Some(connections) if connections as usize > files.min(memory.saturating_mul(4)) => {
                refuse(connections as usize)
            }
            Some(connections) => Ok(connections as usize),
            None if files.min(memory) < LEAST_CONNECTIONS => refuse(LEAST_CONNECTIONS),
            None => Ok(MOST_CONNECTIONS.min(files).min(memory)),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        options: LimitOptions,
    }

    fn sized(files: usize, mib: u64, arguments: &[&str]) -> Result<usize, String> {
        sized_over(false, files, mib, arguments)
    }

    fn sized_over(over_tls: bool, files: usize, mib: u64, arguments: &[&str]) -> Result<usize, String> {
        let arguments = ["program"].iter().chain(arguments);
        let connections = Program::parse_from(arguments).options.connections;
        let limits = Limits { files, memory: mib << 20, connections, over_tls };
        limits.connections(1, 100).map_err(|e| e.to_string())
    }

    #[test]
    fn connections_fit_open_files_and_memory() {
        assert_eq!(sized(1 << 20, 1 << 14, &[]), Ok(16_384));
        assert_eq!(sized(1024, 1 << 14, &[]), Ok(1024 - 292));
        assert_eq!(sized(1 << 20, 256, &[]), Ok(2048));
        assert_eq!(sized_over(true, 1 << 20, 256, &[]), Ok(409));
        assert_eq!(sized(1 << 20, 256, &["--max-connections", "5000"]), Ok(5000));
    }

    #[test]
    fn what_cannot_work_is_refused_by_name() {
        for refused in
            [sized(300, 1024, &[]), sized(1024, 1024, &["--max-connections", "1000"]), sized(1 << 20, 1, &[])]
        {
            assert!(refused.clone().unwrap_err().starts_with("FAREGATE_MAX_CONNECTIONS: "), "{refused:?}");
        }
    }
}
