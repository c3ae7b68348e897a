//! What a request costs, and what a key weighs, with one key and with a million of them.

use std::{fmt, time::Duration};

use futures_util::future::join_all;

use super::{
    Measured, System,
    installation::{Installation, Setup},
    load::Work,
    measure, upstream,
};
use crate::harness::Http;

/// Requests under way at once, with keys at random.
const AT_ONCE: u32 = 64;
/// Clients that make keys.
const MAKERS: usize = 32;
/// Keys at each step, as many of them as are wanted.
const STEPS: [usize; 7] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000];

/// A line for every step.
pub struct Report {
    parts: Vec<&'static str>,
    steps: Vec<Step>,
}

struct Step {
    keys: usize,
    /// Bytes that Redis needed for each key made since the step before.
    bytes_per_key: Option<u64>,
    measured: Measured,
}

/// Measures the services on Redis with more and more keys of one account, up to so many.
pub async fn run(most: usize, seconds: u64) -> Report {
    let upstream = upstream().await;
    let installation = Installation::start(Setup::Services, upstream.address).await;
    let mut system = System::installed("services on Redis", &installation);
    let teller = installation.redis().expect("it is on Redis");
    let parts = system.parts.iter().map(|part| part.name).collect();
    let mut report = Report { parts, steps: Vec::new() };
    for keys in STEPS.into_iter().filter(|keys| *keys <= most) {
        let (made, before) = (keys - system.keys.len(), teller.memory());
        make(&installation, &mut system.keys, keys).await;
        let grown = teller.memory().saturating_sub(before);
        let bytes_per_key = (made > 0).then(|| grown / made as u64);
        let work = Work::Whole { at_once: AT_ONCE };
        let measured = measure(&system, work, Duration::from_secs(seconds)).await;
        report.steps.push(Step { keys, bytes_per_key, measured });
    }
    report
}

async fn make(installation: &Installation, keys: &mut Vec<String>, wanted: usize) {
    let http = Http::new();
    let missing = wanted - keys.len();
    let makers = (0..MAKERS).map(|maker| {
        let (http, share) = (http.clone(), missing / MAKERS + usize::from(maker < missing % MAKERS));
        async move {
            let mut made = Vec::with_capacity(share);
            for _ in 0..share {
                made.push(installation.make_key(&http).await);
            }
            made
        }
    });
    keys.extend(join_all(makers).await.into_iter().flatten());
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "services on Redis, {AT_ONCE} whole requests at once, each with a key at random of one account"
        )?;
        writeln!(f, "  {:>9} {:>12} {:>12} {:>12}", "keys", "CPU µs each", "a second", "bytes a key")?;
        for Step { keys, bytes_per_key, measured } in &self.steps {
            let bytes = bytes_per_key.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
            let (micros, rate) = (measured.micros(), measured.per_second());
            writeln!(f, "  {keys:>9} {micros:>12.1} {rate:>12.0} {bytes:>12}")?;
            writeln!(f, "  {:>9} {}", "", measured.anatomy(&self.parts))?;
        }
        Ok(())
    }
}
