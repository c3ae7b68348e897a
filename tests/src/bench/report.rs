//! What was measured, as tables.

use std::fmt;

use super::{
    CONCURRENCIES, Measured, PACE_MS, Plan, System,
    load::{self, Work},
};

/// What was measured of every system, for every kind of work.
pub struct Report {
    plan: Plan,
    rows: Vec<Row>,
    works: Vec<Work>,
}

/// A system.
struct Row {
    name: &'static str,
    parts: Vec<&'static str>,
    /// By work.
    measured: Vec<Measured>,
}

impl Report {
    /// The row that the others are compared with: the bare proxy.
    const BASE: usize = 1;

    pub(super) fn new(systems: &[System], plan: &Plan) -> Self {
        let mut works: Vec<Work> = CONCURRENCIES.map(|at_once| Work::Whole { at_once }).into();
        works.push(Work::Streamed { at_once: plan.streams });
        let row = |system: &System| Row {
            name: system.name,
            parts: system.parts.iter().map(|part| part.name).collect(),
            measured: works.iter().map(|_| Measured::default()).collect(),
        };
        Self { plan: *plan, rows: systems.iter().map(row).collect(), works: works.clone() }
    }

    /// Everything to be measured.
    pub(super) fn works(&self) -> Vec<Work> {
        self.works.clone()
    }

    pub(super) fn add(&mut self, row: usize, work: Work, measured: Measured) {
        let column = self.works.iter().position(|known| *known == work);
        self.rows[row].measured[column.expect("the work is one of the report's")].add(measured);
    }

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
            "  {:<20} {:>12} {:>10} {:>12} {:>16} {:>10}",
            "",
            "CPU µs each",
            "of a proxy",
            "a second",
            format!("{latency} p50"),
            "p99, ms"
        )?;
        let base = self.rows[Self::BASE].measured[column].micros();
        for row in &self.rows {
            let measured = &row.measured[column];
            let (median, slowest) = (measured.load.percentile(50), measured.load.percentile(99));
            writeln!(
                f,
                "  {:<20} {:>12.1} {:>10.2} {:>12.0} {:>16.2} {:>10.2}",
                row.name,
                measured.micros(),
                measured.micros() / base,
                measured.per_second(),
                median.as_secs_f64() * 1e3,
                slowest.as_secs_f64() * 1e3,
            )?;
            if row.parts.len() > 1 {
                writeln!(f, "  {:<20} {}", "", measured.anatomy(&row.parts))?;
            }
        }
        Ok(())
    }
}

impl Measured {
    /// What each process took of it, and what Redis counted.
    pub(super) fn anatomy(&self, parts: &[&str]) -> String {
        let shares = parts.iter().zip(self.micros_by_part());
        let shares: Vec<String> = shares.map(|(part, micros)| format!("{part} {micros:.1}")).collect();
        let shares = shares.join(" · ");
        let Some(redis) = &self.redis else { return shares };
        format!(
            "{shares}; {:.2} scripts a piece, {:.1} pieces a script, {:.1} µs of script a piece",
            self.per_piece(f64::from(redis.scripts)),
            f64::from(self.load.pieces) / f64::from(redis.scripts.max(1)),
            self.per_piece(redis.script_micros),
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { seconds, rounds, .. } = self.plan;
        writeln!(
            f,
            "CPU is user + system of the processes named, load generator and (but for its own row) upstream not \
             counted;\n{rounds} rounds of {seconds} s each, alternating; requests of {} bytes, answers of some 0.7 kB.",
            load::request_bytes()
        )?;
        (0..self.works.len()).try_for_each(|column| self.section(f, column))
    }
}
