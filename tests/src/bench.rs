//! Measures what a request costs: of the real binary, beside a bare proxy and the upstream alone, in one run.
//!
//! Seconds of CPU are told by the system for each process, so neither the load generator nor the upstream counts for
//! what stands between them. Rounds alternate between the systems, so that a machine that gets slower meanwhile does
//! so for all of them.

use std::{
    fmt,
    net::SocketAddr,
    time::{Duration, Instant},
};

use load::{Load, Work};
use process::{Cpu, Process};

mod installation;
mod load;
mod process;
pub mod proxy;

/// Whole requests under way at once.
const CONCURRENCIES: [u32; 3] = [1, 16, 64];
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

/// A server that is measured.
struct System {
    name: &'static str,
    address: SocketAddr,
    /// The credential it wants; the others ignore it.
    key: String,
    pid: u32,
}

/// Measures everything. The processes are started here and end with it.
pub async fn run(plan: &Plan) -> Report {
    let tokens = TOKENS.to_string();
    let pace = PACE_MS.to_string();
    let upstream = Process::start(
        "scripted-upstream",
        &["--listen", "127.0.0.1:0", "--tokens", &tokens, "--pace-ms", &pace],
    )
    .await;
    let proxy = Process::start("bench", &["proxy", &upstream.address.to_string()]).await;
    let faregate = installation::Installation::start(upstream.address).await;
    let key = faregate.key.clone();
    let system = |name, address, pid| System { name, address, key: key.clone(), pid };
    let systems = [
        system("the upstream alone", upstream.address, upstream.pid()),
        system("a bare axum proxy", proxy.address, proxy.pid()),
        system("faregate", faregate.address, faregate.pid()),
    ];
    let mut report = Report::new(&systems, plan);
    for _ in 0..plan.rounds {
        for work in report.works.clone() {
            for (row, system) in systems.iter().enumerate() {
                let measured = measure(system, work, Duration::from_secs(plan.seconds)).await;
                report.add(row, work, measured);
            }
        }
    }
    report
}

async fn measure(system: &System, work: Work, duration: Duration) -> Measured {
    load::run(system.address, &system.key, work, WARM_UP).await;
    let (before, started) = (Cpu::of(system.pid), Instant::now());
    let load = load::run(system.address, &system.key, work, duration).await;
    Measured { load, cpu: Cpu::of(system.pid).since(before), elapsed: started.elapsed() }
}

/// One measurement, or several of a kind together.
#[derive(Default)]
struct Measured {
    load: Load,
    cpu: Duration,
    elapsed: Duration,
}

impl Measured {
    fn add(&mut self, other: Self) {
        self.load.add(other.load);
        self.cpu += other.cpu;
        self.elapsed += other.elapsed;
    }

    /// CPU microseconds per piece of work.
    fn micros(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / f64::from(self.load.pieces.max(1))
    }

    fn per_second(&self) -> f64 {
        f64::from(self.load.pieces) / self.elapsed.as_secs_f64()
    }
}

/// What was measured, as a table.
pub struct Report {
    plan: Plan,
    names: Vec<&'static str>,
    works: Vec<Work>,
    /// By system, then by work.
    measured: Vec<Vec<Measured>>,
}

impl Report {
    fn new(systems: &[System], plan: &Plan) -> Self {
        let mut works: Vec<Work> = CONCURRENCIES.map(|at_once| Work::Whole { at_once }).into();
        works.push(Work::Streamed { at_once: plan.streams });
        let row = || works.iter().map(|_| Measured::default()).collect();
        Self {
            plan: *plan,
            names: systems.iter().map(|system| system.name).collect(),
            measured: systems.iter().map(|_| row()).collect(),
            works,
        }
    }

    fn add(&mut self, row: usize, work: Work, measured: Measured) {
        let column = self.works.iter().position(|known| *known == work);
        self.measured[row][column.expect("the work is one of the report's")].add(measured);
    }

    /// The row that the others are compared with.
    const BASE: usize = 1;

    fn section(&self, f: &mut fmt::Formatter<'_>, column: usize) -> fmt::Result {
        let (what, latency) = match self.works[column] {
            Work::Whole { at_once } => (format!("whole requests, {at_once} at once"), "answer"),
            Work::Streamed { at_once } => {
                (format!("streamed chunks, {at_once} streams, one chunk each {PACE_MS} ms"), "first token")
            }
        };
        writeln!(f, "\n{what}")?;
        writeln!(
            f,
            "  {:<20} {:>12} {:>10} {:>12} {:>12} {:>12}",
            "",
            "CPU µs each",
            "of a proxy",
            "a second",
            format!("{latency} p50"),
            "p99, ms"
        )?;
        let base = self.measured[Self::BASE][column].micros();
        for (name, row) in self.names.iter().zip(&self.measured) {
            let measured = &row[column];
            let (median, slowest) = (measured.load.percentile(50), measured.load.percentile(99));
            writeln!(
                f,
                "  {name:<20} {:>12.1} {:>10.2} {:>12.0} {:>12.2} {:>12.2}",
                measured.micros(),
                measured.micros() / base,
                measured.per_second(),
                median.as_secs_f64() * 1e3,
                slowest.as_secs_f64() * 1e3,
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { seconds, rounds, .. } = self.plan;
        writeln!(
            f,
            "CPU is user + system of the one process named, load generator and (but for its own row) upstream not \
             counted;\n{rounds} rounds of {seconds} s each, alternating; requests of {} bytes, answers of some 0.7 kB.",
            load::request_bytes()
        )?;
        (0..self.works.len()).try_for_each(|column| self.section(f, column))
    }
}
