//! Measures the CPU time per request of the real programs, beside a bare proxy, in one run.
//!
//! CPU time is counted by process, so that neither the load generator nor the upstream is part of a figure. Rounds
//! alternate between the systems, so that a machine which becomes slower in the meantime affects all of them.

use std::time::{Duration, Instant};

use tests::harness::Dialect;
use tokio::time::sleep;

use installation::{Installation, Setup};
use load::{Held, Load, Target, Work};
use process::{MachineTime, Process, cpu, memory};
use redis::Counters;
pub use report::Report;

pub mod beside;
mod installation;
mod load;
pub(crate) mod process;
pub mod prompts;
pub mod proxy;
mod redis;
pub mod replicas;
mod report;
pub mod train;

/// Numbers of whole requests in flight at once.
const CONCURRENCIES: [u32; 4] = [1, 16, 64, 256];
/// The concurrency for which most figures are reported.
const MANY: u32 = 64;
/// HTTP/2 connections that carry all load.
const SHARED: [u32; 2] = [1, 2];
/// Load before each measurement, so that connections and caches are warm.
const WARM_UP: Duration = Duration::from_millis(500);
/// Tokens of each whole answer: some 0.7 kB of JSON.
const TOKENS: u32 = 75;
/// Streams take longer than whole answers and vary less, so they are measured each third round.
const STREAMED_EACH: u32 = 3;
/// A measurement is quiet if other machines on the host took no larger share of the CPU time.
const QUIET: f64 = 0.03;
/// Number of quiet rounds from which the others are left out.
const ENOUGH_QUIET: usize = 3;
/// Dialects whose streams are measured beside chat's.
const OTHER_DIALECTS: [Dialect; 2] = [Dialect::Responses, Dialect::Messages];
/// Time between two tokens of a stream.
const PACE: Duration = Duration::from_millis(20);
/// Time between two tokens of a slow stream.
const SLOW_PACE: Duration = Duration::from_secs(5);
/// Entries of a journal that fills up quickly: the lowest setting allowed.
const SMALL_JOURNAL: u32 = 1_000;
/// API keys from which requests draw at random.
const KEYS: usize = 1_000;
/// Time for the allocator to return memory and for holds to be settled.
const IDLE: Duration = Duration::from_secs(5);

/// Extent of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Seconds of each measurement.
    pub seconds: u32,
    /// Measurements of each kind and system.
    pub rounds: u32,
    /// Chunks of each stream.
    pub chunks: u32,
    /// Slow streams that are kept open at once.
    pub held: usize,
    /// Requests that a gateway serves before its memory is measured.
    pub requests: u32,
}

impl Plan {
    /// The full extent, which takes some ten minutes.
    pub const FULL: Self = Self { seconds: 1, rounds: 9, chunks: 200, held: 1_000, requests: 100_000 };
    /// A short extent of about a minute, with rough figures.
    pub const QUICK: Self = Self { seconds: 1, rounds: 1, chunks: 50, held: 200, requests: 5_000 };

    const fn streamed(&self, dialect: Dialect) -> Work {
        Work::Streamed { dialect, at_once: MANY, chunks: self.chunks }
    }
}

/// Processes that together serve requests at some addresses.
struct System {
    name: &'static str,
    target: Target,
    parts: Vec<Part>,
    redis: Option<redis::Teller>,
}

/// A process of a system.
struct Part {
    name: &'static str,
    pid: u32,
}

impl System {
    fn single(name: &'static str, process: &Process) -> Self {
        let target = Target::new(vec![process.address], vec!["none".to_owned()]);
        Self { name, target, parts: vec![Part { name: "proxy", pid: process.pid() }], redis: None }
    }

    fn installed(name: &'static str, installation: &Installation) -> Self {
        Self::with_keys(name, installation, vec![installation.key.clone()])
    }

    fn with_keys(name: &'static str, installation: &Installation, keys: Vec<String>) -> Self {
        let target = Target::new(installation.addresses(), keys);
        Self { name, target, parts: installation.parts(), redis: installation.redis() }
    }

    fn cpu(&self) -> Vec<Duration> {
        self.parts.iter().map(|part| cpu(part.pid)).collect()
    }

    /// Resident memory of the processes that accept client connections.
    fn memory(&self) -> u64 {
        let first = self.parts[0].name;
        self.parts.iter().filter(|part| part.name == first).map(|part| memory(part.pid)).sum()
    }
}

/// Measures everything. The processes are started here and end with it.
pub async fn run(plan: &Plan) -> Report {
    let upstream = upstream().await;
    let address = upstream.address.to_string();
    let bare = Process::start("bench", &["proxy", &address]).await;
    let metering = Process::start("bench", &["proxy", &address, "--metering"]).await;
    let together = Installation::start(Setup::AllInOne, upstream.address).await;
    let over_redis = Installation::start(Setup::AllInOneOverRedis, upstream.address).await;
    let services = Installation::start(Setup::SERVICES, upstream.address).await;
    let two = Installation::start(Setup::Services { each: 2, journal: None }, upstream.address).await;
    let full = Setup::Services { each: 1, journal: Some(SMALL_JOURNAL) };
    let full = Installation::start(full, upstream.address).await;
    let bare = System::single(report::BARE, &bare);
    let metering = System::single("metering proxy", &metering);
    let together = System::installed(report::FAREGATE, &together);
    let over_redis = System::installed(report::FAREGATE_REDIS, &over_redis);
    let many_keys = System::with_keys(report::MANY_KEYS, &services, services.make_keys(KEYS).await);
    let bounded = System::with_keys(report::BOUNDED, &services, vec![services.make_bounded_key().await]);
    let services = System::installed(report::SERVICES, &services);
    let two = System::installed(report::TWO, &two);
    let full = System::installed(report::FULL_JOURNAL, &full);

    let mut cells: Vec<(&System, Work)> = Vec::new();
    let compared = [&bare, &metering, &together, &services, &two];
    for at_once in CONCURRENCIES {
        cells.extend(compared.map(|system| (system, Work::Whole { at_once })));
        cells.push((&over_redis, Work::Whole { at_once }));
    }
    cells.extend([&many_keys, &bounded, &full].map(|system| (system, Work::Whole { at_once: MANY })));
    for connections in SHARED {
        cells.extend([&services, &two].map(|system| (system, Work::Shared { at_once: MANY, connections })));
    }
    cells.extend(compared.map(|system| (system, plan.streamed(Dialect::Chat))));
    cells.extend(OTHER_DIALECTS.map(|dialect| (&services, plan.streamed(dialect))));

    let mut report = Report::new(plan);
    // This comes first: later, the streams would fit into memory that the processes already have.
    for system in [&bare, &metering, &together, &services] {
        load::run(&system.target, Work::Whole { at_once: MANY }, WARM_UP).await;
    }
    sleep(IDLE).await;
    let before = services.memory();
    for system in [&bare, &metering, &together, &services] {
        report.held.push((system.name, hold(system, plan).await));
    }
    for round in 0..plan.rounds {
        for (system, work) in &cells {
            if matches!(work, Work::Streamed { .. }) && round % STREAMED_EACH != 0 {
                continue;
            }
            report.add(system, *work, measure(system, *work, Duration::from_secs(plan.seconds.into())).await);
        }
    }
    report.memory = Some(wear(&services, before, plan).await);
    report
}

/// The scripted model server behind all systems.
async fn upstream() -> Process {
    let (tokens, pace) = (TOKENS.to_string(), PACE.as_millis().to_string());
    Process::start("scripted-upstream", &["--listen", "127.0.0.1:0", "--tokens", &tokens, "--pace-ms", &pace])
        .await
}

async fn measure(system: &System, work: Work, duration: Duration) -> Measured {
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

/// Opens slow streams and measures CPU and memory while they are open.
async fn hold(system: &System, plan: &Plan) -> HeldOpen {
    let before = system.memory();
    let held = Held::open(&system.target, plan.held, SLOW_PACE).await;
    let duration = SLOW_PACE * plan.rounds.min(3);
    let cpu = system.cpu();
    let started = Instant::now();
    sleep(duration).await;
    let elapsed = started.elapsed();
    let used: Duration =
        system.cpu().iter().zip(&cpu).map(|(after, before)| after.saturating_sub(*before)).sum();
    let grown = system.memory().saturating_sub(before);
    drop(held);
    sleep(IDLE).await;
    HeldOpen {
        ms_per_second: used.as_secs_f64() * 1e3 / elapsed.as_secs_f64(),
        bytes_each: grown / plan.held as u64,
    }
}

/// Serves many requests and streams, and measures the memory of the gateway when it is idle again.
async fn wear(system: &System, before: u64, plan: &Plan) -> Wear {
    let mut served = 0;
    while served < plan.requests {
        let work = Work::Whole { at_once: CONCURRENCIES[3] };
        served += load::run(&system.target, work, Duration::from_secs(1)).await.pieces;
    }
    let held = Held::open(&system.target, plan.held, PACE * 10).await;
    sleep(IDLE).await;
    drop(held);
    // The pauses between collections of an idle allocator are longer than those between requests.
    sleep(IDLE * 2).await;
    Wear { requests: served, before, after: system.memory() }
}

/// Measurements of a system with slow streams open.
struct HeldOpen {
    /// CPU of all processes.
    ms_per_second: f64,
    /// Growth per stream of the processes that accept client connections.
    bytes_each: u64,
}

/// Resident memory of an idle gateway before and after a number of requests.
struct Wear {
    requests: u32,
    before: u64,
    after: u64,
}

/// One measurement, or the sum of several of the same kind and system.
#[derive(Default)]
struct Measured {
    load: Load,
    /// CPU time by process.
    cpu: Vec<Duration>,
    elapsed: Duration,
    redis: Option<Counters>,
    /// Share of the machine's CPU time that other machines on its host took meanwhile.
    stolen: f64,
}

impl Measured {
    fn add(&mut self, other: &Self) {
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

    fn is_quiet(&self) -> bool {
        self.stolen <= QUIET
    }

    /// CPU microseconds per piece of work.
    fn micros(&self) -> f64 {
        self.per_piece(self.cpu.iter().sum::<Duration>().as_secs_f64() * 1e6)
    }

    /// CPU microseconds per piece of work, of all processes with this name.
    fn micros_of(&self, part: &str, parts: &[&str]) -> f64 {
        let of_name = parts.iter().zip(&self.cpu).filter(|(name, _)| **name == part);
        self.per_piece(of_name.map(|(_, cpu)| cpu.as_secs_f64() * 1e6).sum())
    }

    fn per_piece(&self, sum: f64) -> f64 {
        sum / f64::from(self.load.pieces.max(1))
    }

    fn per_second(&self) -> f64 {
        f64::from(self.load.pieces) / self.elapsed.as_secs_f64()
    }
}
