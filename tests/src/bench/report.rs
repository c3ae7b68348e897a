//! Figures of a run as tables: CPU by system and kind of work, and ratios beside their targets.

use std::fmt::{self, Display, Formatter};

use super::{
    CONCURRENCIES, HeldOpen, MANY, Measured, PACE, Plan, SHARED, SLOW_PACE, System, Wear,
    load::{self, Work},
};

/// Baseline: the system with which the others are compared.
pub(super) const BARE: &str = "bare axum proxy";
/// `faregate` with SQLite.
pub(super) const FAREGATE: &str = "faregate, SQLite";
/// A gateway, a key-service and a Redis.
pub(super) const SERVICES: &str = "services, Redis";
/// Two gateways, two key-services and a Redis.
pub(super) const TWO: &str = "two of each";
/// The services, with many keys drawn at random.
pub(super) const MANY_KEYS: &str = "1,000 keys";
/// The services, with a journal that is full.
pub(super) const FULL_JOURNAL: &str = "full journal";

/// The figures of every system, for every kind of work.
pub struct Report {
    plan: Plan,
    cells: Vec<Cell>,
    pub(super) held: Vec<(&'static str, HeldOpen)>,
    pub(super) memory: Option<Wear>,
}

/// The measurements of one system at one kind of work.
struct Cell {
    system: &'static str,
    work: Work,
    /// Names of the system's processes.
    parts: Vec<&'static str>,
    measured: Measured,
}

impl Report {
    pub(super) fn new(plan: &Plan) -> Self {
        Self { plan: *plan, cells: Vec::new(), held: Vec::new(), memory: None }
    }

    /// Adds a measurement to those of its kind.
    pub(super) fn add(&mut self, system: &System, work: Work, measured: Measured) {
        if let Some(cell) = self.cells.iter_mut().find(|cell| cell.system == system.name && cell.work == work)
        {
            cell.measured.add(measured);
        } else {
            let parts = system.parts.iter().map(|part| part.name).collect();
            self.cells.push(Cell { system: system.name, work, parts, measured });
        }
    }

    fn cell(&self, system: &str, work: Work) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.system == system && cell.work == work)
    }

    /// CPU as a multiple of the bare proxy's: at the same work, or at the same number of concurrent whole requests.
    fn ratio(&self, system: &str, work: Work) -> Option<f64> {
        Some(self.cell(system, work)?.measured.micros() / self.base(work)?)
    }

    /// CPU of one kind of process as a multiple of the bare proxy's.
    fn ratio_of(&self, system: &str, part: &str, work: Work) -> Option<f64> {
        Some(self.cell(system, work)?.micros_of(part) / self.base(work)?)
    }

    fn base(&self, work: Work) -> Option<f64> {
        let work = match work {
            Work::Shared { at_once, .. } => Work::Whole { at_once },
            Work::Whole { .. } | Work::Streamed { .. } => work,
        };
        Some(self.cell(BARE, work)?.measured.micros())
    }

    fn streamed(&self) -> Work {
        Work::Streamed { at_once: MANY, chunks: self.plan.chunks }
    }

    fn held(&self, system: &str) -> Option<&HeldOpen> {
        self.held.iter().find(|(name, _)| *name == system).map(|(_, held)| held)
    }

    /// Latency added to the bare proxy's, with one request at a time, in milliseconds.
    fn added_latency(&self, system: &str) -> Option<f64> {
        let median = |system| {
            let cell = self.cell(system, Work::Whole { at_once: 1 })?;
            Some(cell.measured.load.percentile(50).as_secs_f64() * 1e3)
        };
        Some(median(system)? - median(BARE)?)
    }

    /// All figures that have a target: name, figure, and target.
    fn targets(&self) -> Vec<(String, Option<f64>, f64)> {
        let mut rows = Vec::new();
        for system in [SERVICES, TWO] {
            for (at_once, target) in [(64, 2.5), (16, 4.5), (1, 10.0)] {
                let ratio = self.ratio(system, Work::Whole { at_once });
                rows.push((format!("{system}, {at_once} at once (×)"), ratio, target));
            }
        }
        let at_many = Work::Whole { at_once: MANY };
        for (part, target) in [("gateway", 1.7), ("redis", 0.6)] {
            let ratio = self.ratio_of(SERVICES, part, at_many);
            rows.push((format!("{SERVICES}, {MANY} at once, of that {part} (×)"), ratio, target));
        }
        for (system, target) in [(FAREGATE, 2.2), (FULL_JOURNAL, 2.5), (MANY_KEYS, 2.5)] {
            rows.push((format!("{system}, {MANY} at once (×)"), self.ratio(system, at_many), target));
        }
        for connections in SHARED {
            let ratio = self.ratio(SERVICES, Work::Shared { at_once: MANY, connections });
            rows.push((format!("{SERVICES}, {MANY} over {connections} HTTP/2 (×)"), ratio, 2.5));
        }
        rows.push(("added latency p50, one at a time (ms)".into(), self.added_latency(SERVICES), 0.45));
        rows.push(("a streamed chunk (×)".into(), self.ratio(SERVICES, self.streamed()), 1.3));
        let held = self.held(SERVICES);
        rows.push((
            format!("{} slow streams (ms/s)", self.plan.held),
            held.map(|held| held.ms_per_second),
            15.0,
        ));
        rows.push(("memory of each (kB)".into(), held.map(HeldOpen::kilobytes_each), 36.0));
        let wear = self.memory.as_ref().map(Wear::ratio);
        rows.push(("memory of the gateway, idle again (×)".into(), wear, 1.3));
        rows
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Plan { seconds, rounds, .. } = self.plan;
        writeln!(
            f,
            "CPU is user + system of the system's processes, without load generator and upstream;\n{rounds} rounds of \
             {seconds} s each, alternating; requests of {} bytes, answers of some 0.7 kB.\n",
            load::request_bytes()
        )?;
        let mut works: Vec<Work> = CONCURRENCIES.map(|at_once| Work::Whole { at_once }).into();
        works.extend(SHARED.map(|connections| Work::Shared { at_once: MANY, connections }));
        works.push(self.streamed());
        works.iter().try_for_each(|work| self.section(f, *work))?;
        self.memory(f)?;
        writeln!(f, "{:<48} {:>9} {:>9}", "× is CPU beside the bare proxy's", "measured", "target")?;
        for (name, measured, target) in self.targets() {
            let measured = measured.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.2}"));
            writeln!(f, "{name:<48} {measured:>9} {:>9}", format!("≤ {target}"))?;
        }
        Ok(())
    }
}

impl Report {
    /// Writes the table of all systems at one kind of work.
    fn section(&self, f: &mut Formatter<'_>, work: Work) -> fmt::Result {
        writeln!(
            f,
            "{:<34} {:>8} {:>7} {:>9} {:>8} {:>8}",
            work.to_string(),
            "CPU µs",
            "×",
            "a second",
            "p50 ms",
            "p99 ms"
        )?;
        for cell in self.cells.iter().filter(|cell| cell.work == work) {
            let measured = &cell.measured;
            let (median, slowest) = (measured.load.percentile(50), measured.load.percentile(99));
            writeln!(
                f,
                "  {:<32} {:>8.1} {:>7.2} {:>9.0} {:>8.2} {:>8.2}  {}",
                cell.system,
                measured.micros(),
                self.ratio(cell.system, work).unwrap_or_default(),
                measured.per_second(),
                median.as_secs_f64() * 1e3,
                slowest.as_secs_f64() * 1e3,
                cell.anatomy(),
            )?;
            if measured.load.failed > 0 {
                writeln!(f, "  {:<32} {:>8} failed", "", measured.load.failed)?;
            }
        }
        writeln!(f)
    }

    fn memory(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} open streams, a token each {} s", self.plan.held, SLOW_PACE.as_secs())?;
        for (system, held) in &self.held {
            writeln!(
                f,
                "  {system:<32} {:>8.1} ms/s {:>7.1} kB each",
                held.ms_per_second,
                held.kilobytes_each()
            )?;
        }
        if let Some(Wear { requests, before, after }) = &self.memory {
            let mib = |bytes: &u64| bytes / (1 << 20);
            let (before, after) = (mib(before), mib(after));
            writeln!(
                f,
                "  the gateway, idle: {before} MiB, and {after} MiB after {requests} requests and as many streams"
            )?;
        }
        writeln!(f)
    }
}

impl Cell {
    /// CPU microseconds per piece of work, of all processes with this name.
    fn micros_of(&self, part: &str) -> f64 {
        let of_name = self.parts.iter().zip(&self.measured.cpu).filter(|(name, _)| **name == part);
        let sum: f64 = of_name.map(|(_, cpu)| cpu.as_secs_f64() * 1e6).sum();
        self.measured.per_piece(sum)
    }

    /// The shares of the system's processes, and the scripts of its Redis.
    fn anatomy(&self) -> String {
        let mut names = self.parts.clone();
        names.dedup();
        if names.len() == 1 {
            return String::new();
        }
        let shares: Vec<String> =
            names.iter().map(|part| format!("{part} {:.1}", self.micros_of(part))).collect();
        let shares = shares.join(" · ");
        let Some(redis) = &self.measured.redis else { return shares };
        let scripts = self.measured.per_piece(redis.scripts);
        let micros = self.measured.per_piece(redis.micros);
        format!("{shares}; {scripts:.2} scripts and {micros:.1} µs of script a piece")
    }
}

impl HeldOpen {
    #[expect(clippy::cast_precision_loss, reason = "one digit is shown")]
    fn kilobytes_each(&self) -> f64 {
        self.bytes_each as f64 / 1e3
    }
}

impl Wear {
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    fn ratio(&self) -> f64 {
        self.after as f64 / self.before as f64
    }
}

impl Display for Work {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole { at_once } => write!(f, "whole, {at_once} at once"),
            Self::Shared { at_once, connections } => {
                write!(f, "whole, {at_once} at once over {connections} HTTP/2")
            }
            Self::Streamed { at_once, .. } => {
                write!(f, "chunks, {at_once} streams, {} ms", PACE.as_millis())
            }
        }
    }
}
