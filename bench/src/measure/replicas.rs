//! Measures the cost of waiting for a replica: the same installation with and without waiting, in turn.

use std::{fmt, time::Duration};

use super::{
    extent::MANY,
    installation::{Installation, Setup},
    load::Work,
    system::{Measured, System, measure, upstream},
};

/// Numbers of concurrent whole requests.
const AT_ONCE: [u32; 3] = [1, 16, MANY];
/// Number of measurements of each kind.
const ROUNDS: u32 = 5;
/// Duration of each measurement.
const SECONDS: Duration = Duration::from_secs(2);
/// Number of replicas to wait for, for each installation.
const AWAITED: [u32; 2] = [0, 1];
const PARTS: [&str; 3] = ["gateway", "key-service", "redis"];

/// A line for each combination of the numbers of requests and of replicas.
pub struct Report(Vec<(u32, u32, Measured, Vec<&'static str>)>);

/// Measures services on the loopback, over a master with a replica.
pub async fn run() -> Report {
    let upstream = upstream().await;
    let mut report = Report(Vec::new());
    let mut installations = Vec::new();
    for awaited in AWAITED {
        installations.push(Installation::start(Setup::Replicated { awaited }, upstream.address).await);
    }
    let systems: Vec<_> = installations.iter().map(|it| System::installed("services", it)).collect();
    for at_once in AT_ONCE {
        let mut sums: Vec<Measured> = systems.iter().map(|_| Measured::default()).collect();
        for _ in 0..ROUNDS {
            for (system, sum) in systems.iter().zip(&mut sums) {
                sum.add(&measure(system, Work::Whole { at_once }, SECONDS).await);
            }
        }
        for ((system, sum), awaited) in systems.iter().zip(sums).zip(AWAITED) {
            report.0.push((at_once, awaited, sum, system.parts.iter().map(|part| part.name).collect()));
        }
    }
    report
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| at once | replicas awaited | p50, p99 | requests a second | CPU, µs ({}) |",
            PARTS.join(" · ")
        )?;
        writeln!(f, "|---|---|---|---|---|")?;
        for (at_once, awaited, sum, parts) in &self.0 {
            let [median, late] =
                [50, 99].map(|percent| format!("{:.2} ms", sum.load.percentile(percent).as_secs_f64() * 1e3));
            let by_part = PARTS.map(|part| format!("{:.0}", sum.micros_of(part, parts))).join(" · ");
            let (rate, micros) = (sum.per_second(), sum.micros());
            writeln!(
                f,
                "| {at_once} | {awaited} | {median}, {late} | {rate:.0} | {micros:.0} ({by_part}) |"
            )?;
        }
        Ok(())
    }
}
