//! The systems that are measured, and how a measurement is taken.

use std::time::{Duration, Instant};

use crate::measure::{
    extent::{Part, QUIET, TOKENS, WARM_UP},
    installation::Installation,
    load::{self, Load, PACE, Target, Work},
    process::{MachineTime, Process, cpu, memory},
    redis::{self, Counters},
};

/// A system: the processes that together serve requests at some addresses.
pub(super) struct System {
    pub(super) name: &'static str,
    pub(super) target: Target,
    pub(super) parts: Vec<Part>,
    pub(super) redis: Option<redis::Teller>,
}

impl System {
    pub(super) fn single(name: &'static str, process: &Process) -> Self {
        let target = Target::new(vec![process.address], vec!["none".to_owned()]);
        Self { name, target, parts: vec![Part { name: "proxy", pid: process.pid() }], redis: None }
    }

    pub(super) fn installed(name: &'static str, installation: &Installation) -> Self {
        Self::with_keys(name, installation, vec![installation.key.clone()])
    }

    pub(super) fn with_keys(name: &'static str, installation: &Installation, keys: Vec<String>) -> Self {
        let target = Target::new(installation.addresses(), keys);
        Self { name, target, parts: installation.parts(), redis: installation.redis() }
    }

    pub(super) fn cpu(&self) -> Vec<Duration> {
        self.parts.iter().map(|part| cpu(part.pid)).collect()
    }

    /// Resident memory of the processes that accept client connections.
    pub(super) fn memory(&self) -> u64 {
        let first = self.parts[0].name;
        self.parts.iter().filter(|part| part.name == first).map(|part| memory(part.pid)).sum()
    }
}

/// Starts the scripted model server behind all systems.
pub(super) async fn upstream() -> Process {
    let (tokens, pace) = (TOKENS.to_string(), PACE.as_millis().to_string());
    Process::start("scripted-upstream", &["--listen", "127.0.0.1:0", "--tokens", &tokens, "--pace-ms", &pace])
        .await
}

pub(crate) async fn measure(system: &System, work: Work, duration: Duration) -> Measured {
    load::run(&system.target, work.warming_up(), WARM_UP).await;
    let machine = MachineTime::now();
    let (cpu, redis) = (system.cpu(), system.redis.as_ref().map(redis::Teller::ask));
    let started = Instant::now();
    let load = load::run(&system.target, work, duration).await;
    let elapsed = started.elapsed();
    let cpu = system.cpu().into_iter().zip(cpu).map(|(after, before)| after.saturating_sub(before)).collect();
    let redis = system.redis.as_ref().zip(redis).map(|(teller, before)| teller.ask().since(before));
    Measured { load, cpu, elapsed, redis, stolen: machine.stolen_since() }
}

/// What was measured while slow streams were open.
pub(super) struct HeldOpen {
    /// CPU time of all processes together, in milliseconds per second.
    pub(super) ms_per_second: f64,
    /// Growth of the memory per stream, in bytes, in the processes that accept client connections.
    pub(super) bytes_each: u64,
}

/// Resident memory of an idle gateway, before and after it served a number of requests.
pub(super) struct Wear {
    pub(super) requests: u32,
    pub(super) before: u64,
    pub(super) after: u64,
}

/// One measurement, or the sum of several of the same kind and system.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) load: Load,
    /// CPU time of each process.
    pub(super) cpu: Vec<Duration>,
    pub(super) elapsed: Duration,
    pub(super) redis: Option<Counters>,
    /// Share of the machine's CPU time that went to other machines on the same host during the measurement.
    pub(super) stolen: f64,
}

impl Measured {
    pub(super) fn add(&mut self, other: &Self) {
        self.load.add(&other.load);
        self.cpu.resize(other.cpu.len(), Duration::ZERO);
        for (sum, cpu) in self.cpu.iter_mut().zip(&other.cpu) {
            *sum += *cpu;
        }
        self.elapsed += other.elapsed;
        if let Some(counters) = other.redis {
            self.redis.get_or_insert_default().add(counters);
        }
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.stolen <= QUIET
    }

    /// Returns the CPU time per piece of work, in microseconds.
    pub(super) fn micros(&self) -> f64 {
        self.per_piece(self.cpu.iter().sum::<Duration>().as_secs_f64() * 1e6)
    }

    /// Returns the CPU time per piece of work that all processes with this name used together, in microseconds.
    pub(super) fn micros_of(&self, part: &str, parts: &[&str]) -> f64 {
        let of_name = parts.iter().zip(&self.cpu).filter(|(name, _)| **name == part);
        self.per_piece(of_name.map(|(_, cpu)| cpu.as_secs_f64() * 1e6).sum())
    }

    pub(super) fn per_piece(&self, sum: f64) -> f64 {
        sum / f64::from(self.load.pieces.max(1))
    }

    pub(super) fn per_second(&self) -> f64 {
        f64::from(self.load.pieces) / self.elapsed.as_secs_f64()
    }
}
