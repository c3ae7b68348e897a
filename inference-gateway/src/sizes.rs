//! Sizes of a gateway's budgets, as configured or derived from the limits of the process.

use admission::AdmissionSizes;
use shared_config::ConfigError;
use shared_door::{limits::Limits, serve::Bounds};
use shared_rpc::MAX_FRAME_CALLS;

use crate::config::Options;

/// Maximum number of chat requests in flight. The limit of open files may allow fewer.
const MOST_IN_FLIGHT: usize = 4096;
/// Maximum size of all prompts in memory, in bytes. The process's memory limit may allow less.
const MOST_PROMPTS_BYTES: u64 = 1 << 30;
/// Maximum size of all answers in memory, in bytes: two of the largest answers, with their copies. The memory limit may
/// allow less.
const MOST_ANSWERS_BYTES: u64 = 1 << 30;
/// Minimum and maximum memory for bodies of unauthenticated callers: enough for hundreds of small bodies, and little
/// compared with the budget for prompts.
const UNAUTHENTICATED_BYTES: (u64, u64) = (2 << 20, 16 << 20);
/// Maximum number of management requests in flight. Each has a connection to a key-service.
pub(crate) const MANAGEMENT_IN_FLIGHT: usize = 256;
/// Minimum number of large bodies parsed at once, so that one account leaves room for others.
const LEAST_PARSED_AT_ONCE: usize = 2;
/// An account leaves one in this many of the requests in flight to other accounts.
const LEFT_TO_OTHERS: usize = 4;

/// Sizes of a gateway's budgets.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Bounds on connections of the public port.
    pub bounds: Bounds,
    pub(crate) admission: AdmissionSizes,
}

impl Sizes {
    /// Derives and logs the sizes of a gateway. The process has `ports` ports of the public port's size and
    /// `other_files` other files.
    pub fn of(
        options: &Options,
        limits: &Limits,
        ports: usize,
        other_files: usize,
    ) -> Result<Self, ConfigError> {
        let in_flight =
            options.max_in_flight.map_or(MOST_IN_FLIGHT.min(limits.files / 4), |most| most as usize);
        // Each request in flight has a connection to an upstream.
        let connections =
            limits.connections(ports, in_flight.saturating_add(MANAGEMENT_IN_FLIGHT + other_files))?;
        let all_but_a_quarter = || in_flight - in_flight / LEFT_TO_OTHERS;
        let (least, most) = UNAUTHENTICATED_BYTES;
        let prompts_bytes = prompts_bytes(options, limits.memory)?;
        let answers_bytes = answers_bytes(options, limits.memory)?;
        let admission = AdmissionSizes {
            in_flight,
            in_flight_per_account: options
                .max_in_flight_per_account
                .map_or_else(all_but_a_quarter, |most| most as usize),
            checked_at_once: MAX_FRAME_CALLS,
            prompts_bytes,
            prompts_bytes_per_account: (prompts_bytes / 2).max(2 * options.max_body_bytes()),
            answers_bytes,
            answers_bytes_per_account: answers_bytes / 2,
            unauthenticated_bytes: usize::try_from((limits.memory / 64).clamp(least, most))
                .unwrap_or(usize::MAX),
            parsed_at_once: (options.workers() / 2).max(LEAST_PARSED_AT_ONCE),
        };
        let bounds = Bounds { requests: in_flight, ..limits.connections.bounds(connections) };
        let sizes = Self { bounds, admission };
        sizes.log();
        Ok(sizes)
    }

    fn log(&self) {
        let Self { bounds, admission } = self;
        tracing::info!(
            connections = bounds.connections,
            unauthenticated_connections = bounds.unauthenticated,
            in_flight = admission.in_flight,
            in_flight_per_account = admission.in_flight_per_account,
            prompts_mib = admission.prompts_bytes >> 20,
            answers_mib = admission.answers_bytes >> 20,
            unauthenticated_kib = admission.unauthenticated_bytes >> 10,
            "sizes of the gateway"
        );
    }
}

/// Returns the budget for prompts in bytes: the configured number, or half of the process's memory. The largest body
/// must fit twice.
fn prompts_bytes(options: &Options, memory: u64) -> Result<usize, ConfigError> {
    const SETTING: &str = "FAREGATE_MAX_PROMPTS_MIB";
    let derived = MOST_PROMPTS_BYTES.min(memory / 2);
    let bytes = options.max_prompts_mib.map_or(derived, |mib| u64::from(mib) << 20);
    let mib = bytes >> 20;
    fits(SETTING, bytes, memory)?;
    if mib < 2 * u64::from(options.max_body_mib) {
        let derived = if options.max_prompts_mib.is_none() { ", half of the process's memory," } else { "" };
        let reason = format!(
            "{mib} MiB{derived} is less than twice FAREGATE_MAX_BODY_MIB, so the largest body would never fit"
        );
        return Err(ConfigError::new(SETTING, reason));
    }
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Returns the budget for answers in bytes: the configured number, or a quarter of the process's memory.
fn answers_bytes(options: &Options, memory: u64) -> Result<usize, ConfigError> {
    let derived = MOST_ANSWERS_BYTES.min(memory / 4);
    let bytes = options.max_answers_mib.map_or(derived, |mib| u64::from(mib) << 20);
    fits("FAREGATE_MAX_ANSWERS_MIB", bytes, memory)?;
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Refuses a budget that is larger than the process's memory.
fn fits(setting: &'static str, bytes: u64, memory: u64) -> Result<(), ConfigError> {
    if bytes <= memory {
        return Ok(());
    }
    let (mib, memory) = (bytes >> 20, memory >> 20);
    let reason = format!("{mib} MiB do not fit into the process's {memory} MiB of memory");
    Err(ConfigError::new(setting, reason))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use shared_door::limits::LimitOptions;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        gateway: Options,
        #[command(flatten)]
        limits: LimitOptions,
    }

    fn sizes(files: usize, mib: u64, arguments: &[&str]) -> Result<Sizes, String> {
        let program = Program::parse_from(["program"].iter().chain(arguments));
        let limits =
            Limits { files, memory: mib << 20, connections: program.limits.connections, over_tls: false };
        Sizes::of(&program.gateway, &limits, 1, 0).map_err(|e| e.to_string())
    }

    #[test]
    fn budgets_follow_files_and_memory() {
        let roomy = sizes(1 << 20, 1 << 14, &[]).unwrap().admission;
        assert_eq!((roomy.in_flight, roomy.in_flight_per_account), (4096, 3072));
        assert_eq!((roomy.prompts_bytes, roomy.unauthenticated_bytes), (1 << 30, 16 << 20));
        assert_eq!((roomy.answers_bytes, roomy.answers_bytes_per_account), (1 << 30, 1 << 29));
        let Sizes { bounds, admission: narrow } = sizes(1024, 512, &[]).unwrap();
        assert_eq!((narrow.in_flight, narrow.in_flight_per_account), (256, 192));
        assert_eq!((narrow.prompts_bytes, narrow.unauthenticated_bytes), (256 << 20, 8 << 20));
        assert_eq!((narrow.answers_bytes, narrow.answers_bytes_per_account), (128 << 20, 64 << 20));
        assert!(narrow.in_flight + bounds.connections + MANAGEMENT_IN_FLIGHT < 1024);
        let told = sizes(1 << 20, 1024, &["--max-in-flight-per-account", "7"]).unwrap();
        assert_eq!(told.admission.in_flight_per_account, 7);
    }

    #[test]
    fn what_cannot_work_is_refused_by_name() {
        for (refused, setting) in [
            (sizes(1 << 20, 100, &[]), "FAREGATE_MAX_PROMPTS_MIB: 50 MiB, half of the process's memory,"),
            (
                sizes(1 << 20, 1024, &["--max-prompts-mib", "127"]),
                "FAREGATE_MAX_PROMPTS_MIB: 127 MiB is less",
            ),
            (
                sizes(1 << 20, 1024, &["--max-prompts-mib", "2000"]),
                "FAREGATE_MAX_PROMPTS_MIB: 2000 MiB do not fit",
            ),
            (
                sizes(1 << 20, 1024, &["--max-answers-mib", "2000"]),
                "FAREGATE_MAX_ANSWERS_MIB: 2000 MiB do not fit",
            ),
            (sizes(1024, 1024, &["--max-in-flight", "1000"]), "FAREGATE_MAX_CONNECTIONS: 64 connections"),
        ] {
            assert!(refused.clone().err().unwrap_or_default().starts_with(setting), "{refused:?}");
        }
    }
}
