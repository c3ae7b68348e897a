//! Measures what a request costs: of the real programs, beside a bare proxy and the upstream alone, in one run.
//!
//! Seconds of CPU are told by the system for each process, so neither the load generator nor the upstream counts for
//! what stands between them. Rounds alternate between the systems, so that a machine that gets slower meanwhile does
//! so for all of them.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use installation::{Installation, Setup};
use load::{Load, Work};
use process::{Cpu, Process};
use redis::Counters;
pub use report::Report;

mod installation;
pub mod keys;
mod load;
pub mod memory;
mod process;
pub mod proxy;
mod redis;
mod report;

/// Whole requests under way at once.
const CONCURRENCIES: [u32; 4] = [1, 16, 64, 256];
/// Before each measurement, so that connections and caches are warm.
const WARM_UP: Duration = Duration::from_millis(500);
/// Tokens of each answer: some 0.7 kB of JSON.
const TOKENS: u32 = 75;
/// Milliseconds between two tokens of a stream.
const PACE_MS: u32 = 20;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Seconds of each measurement.
    pub seconds: u64,
    /// Measurements of each kind and system.
    pub rounds: u32,
    /// Streams open at once.
    pub streams: u32,
}

/// What is measured: processes that together answer at one address.
struct System {
    name: &'static str,
    address: SocketAddr,
    /// The credentials that are sent in turn; some systems ignore them.
    keys: Vec<String>,
    parts: Vec<Part>,
    /// Where its Redis counts, if it has one.
    redis: Option<redis::Teller>,
}

/// A process of a system.
struct Part {
    name: &'static str,
    pid: u32,
}

impl System {
    fn single(name: &'static str, process: &Process) -> Self {
        let parts = vec![Part { name, pid: process.pid() }];
        Self { name, address: process.address, keys: vec!["none".to_owned()], parts, redis: None }
    }

    fn installed(name: &'static str, installation: &Installation) -> Self {
        Self {
            name,
            address: installation.address(),
            keys: vec![installation.key.clone()],
            parts: installation.parts(),
            redis: installation.redis(),
        }
    }
}

/// Measures everything. The processes are started here and end with it.
pub async fn run(plan: &Plan) -> Report {
    let upstream = upstream().await;
    let proxy = Process::start("bench", &["proxy", &upstream.address.to_string()]).await;
    let together = Installation::start(Setup::AllInOne, upstream.address).await;
    let apart = Installation::start(Setup::Services, upstream.address).await;
    let systems = [
        System::single("the upstream alone", &upstream),
        System::single("a bare axum proxy", &proxy),
        System::installed("faregate", &together),
        System::installed("services on Redis", &apart),
    ];
    let mut report = Report::new(&systems, plan);
    for _ in 0..plan.rounds {
        for work in report.works() {
            for (row, system) in systems.iter().enumerate() {
                let measured = measure(system, work, Duration::from_secs(plan.seconds)).await;
                report.add(row, work, measured);
            }
        }
    }
    report
}

/// The model server behind all of them.
async fn upstream() -> Process {
    let (tokens, pace) = (TOKENS.to_string(), PACE_MS.to_string());
    Process::start("scripted-upstream", &["--listen", "127.0.0.1:0", "--tokens", &tokens, "--pace-ms", &pace])
        .await
}

async fn measure(system: &System, work: Work, duration: Duration) -> Measured {
    load::run(system.address, &system.keys, work, WARM_UP).await;
    let (cpu, redis) = (system.cpu(), system.redis.as_ref().map(redis::Teller::ask));
    let started = Instant::now();
    let load = load::run(system.address, &system.keys, work, duration).await;
    let elapsed = started.elapsed();
    let cpu = system.cpu().into_iter().zip(cpu).map(|(after, before)| after.since(before)).collect();
    let redis = system.redis.as_ref().zip(redis).map(|(teller, before)| teller.ask().since(before));
    Measured { load, cpu, elapsed, redis }
}

impl System {
    fn cpu(&self) -> Vec<Cpu> {
        self.parts.iter().map(|part| Cpu::of(part.pid)).collect()
    }
}

/// One measurement, or several of a kind together.
#[derive(Default)]
struct Measured {
    load: Load,
    /// By process.
    cpu: Vec<Duration>,
    elapsed: Duration,
    redis: Option<Counters>,
}

impl Measured {
    fn add(&mut self, other: Self) {
        self.load.add(other.load);
        self.cpu.resize(other.cpu.len(), Duration::ZERO);
        for (sum, cpu) in self.cpu.iter_mut().zip(other.cpu) {
            *sum += cpu;
        }
        self.elapsed += other.elapsed;
        if let Some(counters) = other.redis {
            self.redis.get_or_insert_default().add(counters);
        }
    }

    /// CPU microseconds per piece of work, by process.
    fn micros_by_part(&self) -> Vec<f64> {
        self.cpu.iter().map(|cpu| self.per_piece(cpu.as_secs_f64() * 1e6)).collect()
    }

    /// CPU microseconds per piece of work.
    fn micros(&self) -> f64 {
        self.micros_by_part().iter().sum()
    }

    fn per_piece(&self, sum: f64) -> f64 {
        sum / f64::from(self.load.pieces.max(1))
    }

    fn per_second(&self) -> f64 {
        f64::from(self.load.pieces) / self.elapsed.as_secs_f64()
    }
}
