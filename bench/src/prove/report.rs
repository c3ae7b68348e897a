//! What a run found, as one table.

use std::{collections::BTreeMap, fmt, time::Duration};

use super::faults::Kind;

/// How often a promise was broken, and by how much in total.
#[derive(Clone, Debug, Default)]
pub(super) struct Difference {
    pub(super) count: u64,
    /// Total amount in nano-USD.
    pub(super) amount: i64,
    /// Descriptions of the first few cases in which the promise was broken.
    pub(super) shown: Vec<String>,
}

impl Difference {
    /// Maximum number of cases that are described.
    pub(super) const SHOWN: usize = 8;

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.amount += other.amount;
        self.shown.extend(other.shown.iter().take(Self::SHOWN).cloned());
    }
}

/// Numbers and amounts, in nano-USD, that the report shows but that break no promise.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    pub(super) requests: u64,
    pub(super) complete: u64,
    pub(super) after_revocation: u64,
    pub(super) revocations: u64,
    pub(super) garbage: u64,
    pub(super) our_5xx: u64,
    pub(super) our_5xx_without_a_fault: u64,
    pub(super) caps: u64,
    pub(super) used_up: u64,
    pub(super) generated: i64,
    pub(super) charged: i64,
    pub(super) told: i64,
    pub(super) shortfall: i64,
    pub(super) cut_by_faults: i64,
    pub(super) on_their_way: i64,
    pub(super) served_in_vain: i64,
    pub(super) estimated_above: i64,
    pub(super) generated_beyond: i64,
    /// Amount that was lost because the replica that took over was one that no process had waited for.
    pub(super) lost_with_masters: i64,
    pub(super) lost_charges: u64,
    pub(super) revocations_lost: u64,
}

/// What one round found, or all rounds together.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) sums: Sums,
    pub(super) faults: BTreeMap<Kind, u64>,
    pub(super) overshoot: Difference,
    pub(super) lost: Difference,
    pub(super) doubled: Difference,
    pub(super) told_otherwise: Difference,
    pub(super) phantom_holds: Difference,
    pub(super) after_revocation: Difference,
    pub(super) unbalanced: Difference,
    pub(super) unexpected: Difference,
    pub(super) garbage_wrong: Difference,
    /// Rounds that did not finish, or whose books failed the audit.
    pub(super) failed: Difference,
}

impl Found {
    /// Returns the promises, each with its description.
    fn promises(&self) -> [(&'static str, &Difference); 10] {
        [
            ("overshoot: billed, or answered whole, beyond a cap", &self.overshoot),
            ("lost: answered and not billed", &self.lost),
            ("doubled: billed and not generated", &self.doubled),
            ("answers that reported another cost than was billed", &self.told_otherwise),
            ("phantom holds", &self.phantom_holds),
            ("served after a revocation's answer", &self.after_revocation),
            ("accounts whose credit and journal differ", &self.unbalanced),
            ("answers of an unknown kind", &self.unexpected),
            ("garbage that broke a rule of answers, without a fault", &self.garbage_wrong),
            ("rounds that did not finish, or failed `audit`", &self.failed),
        ]
    }

    /// Returns whether no promise was broken.
    pub(super) fn holds(&self) -> bool {
        self.promises().iter().all(|(_, difference)| difference.count == 0)
    }

    /// Adds what a round found.
    pub(super) fn merge(&mut self, seed: u64, other: &Self) {
        self.sums.merge(&other.sums);
        for (kind, count) in &other.faults {
            *self.faults.entry(*kind).or_default() += count;
        }
        let mine = [
            &mut self.overshoot,
            &mut self.lost,
            &mut self.doubled,
            &mut self.told_otherwise,
            &mut self.phantom_holds,
            &mut self.after_revocation,
            &mut self.unbalanced,
            &mut self.unexpected,
            &mut self.garbage_wrong,
            &mut self.failed,
        ];
        for (mine, (_, theirs)) in mine.into_iter().zip(other.promises()) {
            let shown = theirs.shown.iter().map(|what| format!("PROVE_SEED={seed}: {what}")).collect();
            mine.merge(&Difference { shown, ..theirs.clone() });
        }
    }
}

impl Sums {
    fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.complete += other.complete;
        self.after_revocation += other.after_revocation;
        self.revocations += other.revocations;
        self.garbage += other.garbage;
        self.our_5xx += other.our_5xx;
        self.our_5xx_without_a_fault += other.our_5xx_without_a_fault;
        self.caps += other.caps;
        self.used_up += other.used_up;
        self.generated += other.generated;
        self.charged += other.charged;
        self.told += other.told;
        self.shortfall += other.shortfall;
        self.cut_by_faults += other.cut_by_faults;
        self.on_their_way += other.on_their_way;
        self.served_in_vain += other.served_in_vain;
        self.estimated_above += other.estimated_above;
        self.generated_beyond += other.generated_beyond;
        self.lost_with_masters += other.lost_with_masters;
        self.lost_charges += other.lost_charges;
        self.revocations_lost += other.revocations_lost;
    }
}

/// The report on a run of several rounds.
pub struct Report {
    pub(super) found: Found,
    pub(super) seed: u64,
    pub(super) rounds: u32,
    pub(super) lasted: Duration,
    /// CPU time of all processes in the run.
    pub(super) cpu: Duration,
}

impl Report {
    /// Returns whether no promise was broken.
    pub fn holds(&self) -> bool {
        self.found.holds()
    }
}

/// Formats an amount of nano-USD in dollars.
fn dollars(nanos: i64) -> String {
    format!("${}.{:09}", nanos / 1_000_000_000, (nanos % 1_000_000_000).abs())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sums { requests, complete, after_revocation, revocations, garbage, .. } = self.found.sums;
        let sums = &self.found.sums;
        writeln!(f, "| what | how many |\n|---|---|")?;
        writeln!(f, "| requests; answered completely | {requests}; {complete} |")?;
        writeln!(
            f,
            "| caps of keys, groups, parents and accounts; at least nine tenths used | {}; {} |",
            sums.caps, sums.used_up
        )?;
        writeln!(f, "| garbage requests | {garbage} |")?;
        writeln!(
            f,
            "| revocations; requests after a revocation's answer | {revocations}; {after_revocation} |"
        )?;
        let kills: u64 =
            self.found.faults.iter().filter(|(kind, _)| kind.is_kill()).map(|(_, count)| count).sum();
        writeln!(f, "| total kills | {kills} |")?;
        for (kind, count) in &self.found.faults {
            writeln!(f, "| {} | {count} |", kind.words())?;
        }
        for (words, difference) in self.found.promises() {
            let amount = if difference.amount == 0 {
                String::new()
            } else {
                format!("; {}", dollars(difference.amount))
            };
            writeln!(f, "| **{words}** | **{}**{amount} |", difference.count)?;
        }
        writeln!(
            f,
            "| generated by the upstream's count; billed; reported to clients | {}; {}; {} |",
            dollars(sums.generated),
            dollars(sums.charged),
            dollars(sums.told)
        )?;
        writeln!(
            f,
            "| generated and not billed: cut off by a fault of their own gateway | {} |",
            dollars(sums.cut_by_faults)
        )?;
        writeln!(f, "| the same: on their way when a stream was ended | {} |", dollars(sums.on_their_way))?;
        writeln!(f, "| the same: answered with an error or not at all | {} |", dollars(sums.served_in_vain))?;
        writeln!(f, "| the same: recorded as shortfall | {} |", dollars(sums.shortfall))?;
        writeln!(
            f,
            "| not received by a replica that took over without being waited for; complete answers among them; requests served after a lost revocation | {}; {}; {} |",
            dollars(sums.lost_with_masters),
            sums.lost_charges,
            sums.revocations_lost
        )?;
        writeln!(
            f,
            "| estimated above what was generated, for answers that were cut | {} |",
            dollars(sums.estimated_above)
        )?;
        writeln!(f, "| generated beyond a cap, in such answers | {} |", dollars(sums.generated_beyond))?;
        writeln!(
            f,
            "| our 5xx; those that no fault explains | {}; {} |",
            sums.our_5xx, sums.our_5xx_without_a_fault
        )?;
        writeln!(
            f,
            "| seed; rounds; minutes | {}; {}; {:.1} |",
            self.seed,
            self.rounds,
            self.lasted.as_secs_f64() / 60.0
        )?;
        writeln!(f, "| CPU-hours | {:.3} |", self.cpu.as_secs_f64() / 3600.0)?;
        let broken = self.found.promises().into_iter().filter(|(_, difference)| difference.count > 0);
        for (words, difference) in broken {
            writeln!(f, "\nBROKEN: {words}")?;
            for what in &difference.shown {
                writeln!(f, "  {what}")?;
            }
        }
        Ok(())
    }
}
