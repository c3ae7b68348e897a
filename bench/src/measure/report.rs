//! Shows the figures of a run in tables: CPU time by system and kind of work, and ratios with their targets.

use std::fmt::{self, Display, Formatter};

use tests::harness::Dialect;

use super::{
    extent::{CONCURRENCIES, ENOUGH_QUIET, MANY, OTHER_DIALECTS, Plan, QUIET, SHARED, SLOW_PACE},
    load::{self, PACE, Work},
    system::{HeldOpen, Measured, System, Wear},
};

/// The system that all others are compared with.
pub(super) const BARE: &str = "bare axum proxy";
/// `faregate` with SQLite.
pub(super) const FAREGATE: &str = "faregate, SQLite";
/// `faregate` with a Redis.
pub(super) const FAREGATE_REDIS: &str = "faregate, Redis";
/// A gateway, a key-service and a Redis.
pub(super) const SERVICES: &str = "services, Redis";
/// Two gateways, two key-services and a Redis.
pub(super) const TWO: &str = "two of each";
/// The services, with many keys. Each request takes one of them at random.
pub(super) const MANY_KEYS: &str = "1,000 keys";
/// The services, with a key that has every kind of limit. The key's group and the group's parent have every kind of
/// limit too.
pub(super) const BOUNDED: &str = "bounded key";
/// The services, with a full journal.
pub(super) const FULL_JOURNAL: &str = "full journal";

/// What was measured for every system and every kind of work.
pub struct Report {
    plan: Plan,
    cells: Vec<Cell>,
    pub(super) held: Vec<(&'static str, HeldOpen)>,
    pub(super) memory: Option<Wear>,
}

/// One system's measurements for one kind of work.
struct Cell {
    system: &'static str,
    work: Work,
    /// Names of the system's processes.
    parts: Vec<&'static str>,
    rounds: Vec<Measured>,
}

/// A figure from several rounds: from the quiet rounds if there are enough of them, otherwise from all rounds.
#[derive(Clone, Copy)]
struct Spread {
    least: f64,
    median: f64,
    most: f64,
    rounds: usize,
}

impl Spread {
    /// Summarises figures. Each is given together with whether its measurement was quiet.
    fn of(figures: impl Iterator<Item = (f64, bool)> + Clone) -> Option<Self> {
        let mut sorted: Vec<f64> =
            figures.clone().filter(|(_, quiet)| *quiet).map(|(figure, _)| figure).collect();
        if sorted.len() < ENOUGH_QUIET {
            sorted = figures.map(|(figure, _)| figure).collect();
        }
        sorted.sort_by(f64::total_cmp);
        let (least, most, rounds) = (*sorted.first()?, *sorted.last()?, sorted.len());
        Some(Self { least, median: sorted[rounds / 2], most, rounds })
    }

    /// Makes a spread of a figure that was measured only once.
    fn once(figure: f64) -> Self {
        Self { least: figure, median: figure, most: figure, rounds: 1 }
    }
}

impl Report {
    pub(super) fn new(plan: &Plan) -> Self {
        Self { plan: *plan, cells: Vec::new(), held: Vec::new(), memory: None }
    }

    /// Adds a measurement to the others for the same system and work.
    pub(super) fn add(&mut self, system: &System, work: Work, measured: Measured) {
        if let Some(cell) = self.cells.iter_mut().find(|cell| cell.system == system.name && cell.work == work)
        {
            cell.rounds.push(measured);
        } else {
            let parts = system.parts.iter().map(|part| part.name).collect();
            self.cells.push(Cell { system: system.name, work, parts, rounds: vec![measured] });
        }
    }

    fn cell(&self, system: &str, work: Work) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.system == system && cell.work == work)
    }

    /// Returns the CPU time as a multiple of the bare proxy's CPU time in the same round. If the bare proxy is not
    /// measured with this work, the most similar work with which it is measured is used.
    fn ratio(&self, system: &str, work: Work) -> Option<Spread> {
        self.compare(system, work, Measured::micros)
    }

    /// Returns the same ratio for the CPU time of one kind of process.
    fn ratio_of(&self, system: &str, part: &str, work: Work) -> Option<Spread> {
        let parts = &self.cell(system, work)?.parts;
        self.compare(system, work, |measured| measured.micros_of(part, parts))
    }

    /// Returns the CPU time per streamed chunk in another dialect, as a multiple of the time that the same system needs
    /// for a chunk in chat.
    fn beside_chat(&self, system: &str, dialect: Dialect) -> Option<Spread> {
        let of = |dialect| self.cell(system, self.plan.streamed(dialect));
        Self::quotient(of(dialect)?, of(Dialect::Chat)?, Measured::micros)
    }

    /// Returns the CPU time per request with a key that has all limits, as a multiple of the time with a key that has
    /// none.
    fn beside_unbounded(&self, work: Work) -> Option<Spread> {
        Self::quotient(self.cell(BOUNDED, work)?, self.cell(SERVICES, work)?, Measured::micros)
    }

    fn compare(&self, system: &str, work: Work, micros: impl Fn(&Measured) -> f64) -> Option<Spread> {
        let base = match work {
            Work::Shared { at_once, .. } => Work::Whole { at_once },
            Work::Streamed { .. } => self.plan.streamed(Dialect::Chat),
            Work::Whole { .. } => work,
        };
        Self::quotient(self.cell(system, work)?, self.cell(BARE, base)?, micros)
    }

    fn quotient(cell: &Cell, base: &Cell, micros: impl Fn(&Measured) -> f64) -> Option<Spread> {
        let rounds = cell.rounds.iter().zip(&base.rounds);
        let ratio = |(measured, base): (&Measured, &Measured)| {
            (micros(measured) / base.micros(), measured.is_quiet() && base.is_quiet())
        };
        Spread::of(rounds.map(ratio))
    }

    fn held(&self, system: &str) -> Option<&HeldOpen> {
        self.held.iter().find(|(name, _)| *name == system).map(|(_, held)| held)
    }

    /// Returns how many milliseconds of latency the system adds to the bare proxy's, with one request at a time.
    fn added_latency(&self, system: &str) -> Option<Spread> {
        let one = Work::Whole { at_once: 1 };
        let median = |measured: &Measured| measured.load.percentile(50).as_secs_f64() * 1e3;
        let rounds = self.cell(system, one)?.rounds.iter().zip(&self.cell(BARE, one)?.rounds);
        Spread::of(rounds.map(|(measured, base)| {
            (median(measured) - median(base), measured.is_quiet() && base.is_quiet())
        }))
    }

    /// Returns all figures that have a target. Each comes with its name and its target.
    fn targets(&self) -> Vec<(String, Option<Spread>, f64)> {
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
        let bounded = self.beside_unbounded(at_many);
        rows.push((format!("{BOUNDED}, {MANY} at once (× of the services)"), bounded, 1.25));
        for connections in SHARED {
            let ratio = self.ratio(SERVICES, Work::Shared { at_once: MANY, connections });
            rows.push((format!("{SERVICES}, {MANY} over {connections} HTTP/2 (×)"), ratio, 2.5));
        }
        rows.push(("added latency p50, one at a time (ms)".into(), self.added_latency(SERVICES), 0.45));
        let chat = self.plan.streamed(Dialect::Chat);
        rows.push(("a streamed chunk (×)".into(), self.ratio(SERVICES, chat), 1.3));
        for dialect in OTHER_DIALECTS {
            let name = format!("a chunk of {dialect:?} compared with chat (×)");
            rows.push((name, self.beside_chat(SERVICES, dialect), 1.15));
        }
        let held = self.held(SERVICES);
        rows.push((
            format!("{} slow streams (ms/s)", self.plan.held),
            held.map(|held| Spread::once(held.ms_per_second)),
            15.0,
        ));
        rows.push(("memory of each (kB)".into(), held.map(|held| Spread::once(held.kilobytes_each())), 36.0));
        let wear = self.memory.as_ref().map(|wear| Spread::once(wear.ratio()));
        rows.push(("memory of the gateway, idle again (×)".into(), wear, 1.3));
        rows
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Plan { seconds, rounds, .. } = self.plan;
        let stolen = self.cells.iter().flat_map(|cell| cell.rounds.iter().map(|round| round.stolen * 100.0));
        let most = stolen.clone().fold(0.0, f64::max);
        let count = self.cells.iter().map(|cell| cell.rounds.len()).sum::<usize>().max(1);
        #[expect(clippy::cast_precision_loss, reason = "one digit is shown")]
        let mean = stolen.sum::<f64>() / count as f64;
        writeln!(
            f,
            "CPU is user + system of the system's processes, without load generator and upstream; medians of {rounds} \
             rounds\nof {seconds} s, which alternate between the systems; requests of {} bytes, answers of some 0.7 \
             kB.\nOther machines on the host took {mean:.1} % of the CPU time, {most:.1} % at most. Where {ENOUGH_QUIET} \
             measurements lost no more\nthan {:.0} %, the others are left out.\n",
            load::request_bytes(),
            QUIET * 100.0
        )?;
        let mut works: Vec<Work> = CONCURRENCIES.map(|at_once| Work::Whole { at_once }).into();
        works.extend(SHARED.map(|connections| Work::Shared { at_once: MANY, connections }));
        works.extend(Dialect::ALL.map(|dialect| self.plan.streamed(dialect)));
        works.iter().try_for_each(|work| self.section(f, *work))?;
        self.memory(f)?;
        writeln!(
            f,
            "{:<48} {:>9} {:>15} {:>9}",
            "× is CPU relative to the bare proxy", "measured", "range, rounds", "target"
        )?;
        for (name, measured, target) in self.targets() {
            let figure = measured.map_or_else(|| "-".to_owned(), |spread| format!("{:.2}", spread.median));
            let range = measured.map_or_else(String::new, |spread| spread.to_string());
            writeln!(f, "{name:<48} {figure:>9} {range:>21} {:>9}", format!("≤ {target}"))?;
        }
        Ok(())
    }
}

impl Report {
    /// Writes the table of all systems for one kind of work.
    fn section(&self, f: &mut Formatter<'_>, work: Work) -> fmt::Result {
        writeln!(
            f,
            "{:<34} {:>8} {:>7} {:>21} {:>9} {:>8} {:>8}",
            work.to_string(),
            "CPU µs",
            "×",
            "range, rounds",
            "a second",
            "p50 ms",
            "p99 ms"
        )?;
        for cell in self.cells.iter().filter(|cell| cell.work == work) {
            let (Some(micros), Some(ratio)) = (
                Spread::of(cell.rounds.iter().map(|round| (round.micros(), round.is_quiet()))),
                self.ratio(cell.system, work),
            ) else {
                continue;
            };
            let all = cell.sum();
            writeln!(
                f,
                "  {:<32} {:>8.1} {:>7.2} {:>21} {:>9.0} {:>8.2} {:>8.2}  {}",
                cell.system,
                micros.median,
                ratio.median,
                ratio.to_string(),
                all.per_second(),
                all.load.percentile(50).as_secs_f64() * 1e3,
                all.load.percentile(99).as_secs_f64() * 1e3,
                cell.anatomy(&all),
            )?;
            if all.load.failed > 0 {
                writeln!(f, "  {:<32} {:>8} failed", "", all.load.failed)?;
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

impl Display for Spread {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { least, most, rounds, .. } = self;
        if *rounds > 1 { write!(f, "{least:.2} to {most:.2}, {rounds}") } else { Ok(()) }
    }
}

impl Cell {
    /// Returns the sum of the rounds that a [`Spread`] would use: the quiet rounds, or all.
    fn sum(&self) -> Measured {
        let all = self.rounds.iter().filter(|round| round.is_quiet()).count() < ENOUGH_QUIET;
        let mut sum = Measured::default();
        self.rounds.iter().filter(|round| all || round.is_quiet()).for_each(|round| sum.add(round));
        sum
    }

    /// Describes how much of the CPU time each kind of process used on average, and how many scripts ran in the
    /// system's Redis.
    fn anatomy(&self, all: &Measured) -> String {
        let mut names = self.parts.clone();
        names.dedup();
        if names.len() == 1 {
            return String::new();
        }
        let shares: Vec<String> =
            names.iter().map(|part| format!("{part} {:.1}", all.micros_of(part, &self.parts))).collect();
        let shares = shares.join(" · ");
        let Some(redis) = &all.redis else { return shares };
        let (scripts, micros) = (all.per_piece(redis.scripts), all.per_piece(redis.micros));
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
            Self::Streamed { dialect, at_once, .. } => {
                write!(f, "{dialect:?} chunks, {at_once} streams, {} ms", PACE.as_millis())
            }
        }
    }
}
