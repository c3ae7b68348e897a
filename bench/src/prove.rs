//! Hundreds of faults under load, and books that must agree to the nano-dollar after each round.
//!
//! The seed decides the installations, the faults and their times, the requests and the garbage. Which process acts
//! first is up to the machine, so a seed that broke something breaks it again often but not always.

use std::{
    panic::AssertUnwindSafe,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use futures_util::{FutureExt, future::join_all};
use tests::{
    garbage::{Keys, Rng},
    harness::{PATIENCE, Stack},
};
use tokio::time::sleep;

pub use report::Report;
pub use stage::Stage;

use books::{Round, balances, compare, compare_lists};
use faults::{Happened, fail};
use governor::{GOVERNORS, Governed, govern, pay};
use load::{Clients, Garbage, addresses, client, garbage};
use population::Population;
use report::Found;

mod books;
mod caps;
mod faults;
mod governor;
pub(crate) mod load;
mod population;
mod report;
mod stage;
pub(crate) mod wire;

/// Duration of the load in a round: long enough for a hundred faults, and short enough to hold an installation's
/// records in memory for the comparison.
const ROUND: Duration = Duration::from_mins(1);
/// Minimum duration of the load in a round.
const LEAST_ROUND: Duration = Duration::from_secs(8);
/// Time that a round takes in addition to its load: to start, settle and compare.
const BESIDE: Duration = Duration::from_secs(12);
/// Time within which all charges must be delivered and all holds resolved, once everything runs again.
const SETTLED: Duration = Duration::from_secs(45);
/// Number of clients that send garbage.
const GARBAGE_CLIENTS: usize = 20;

#[derive(Clone, Debug)]
pub struct Plan {
    pub lasts: Duration,
    /// Seed of the first round; each further round uses the next number.
    pub seed: u64,
    /// Clients that send one request after the other.
    pub clients: usize,
    /// Directory with another version of the programs, which every second process runs.
    pub beside: Option<PathBuf>,
    /// Stages to use for the rounds; empty for all stages.
    pub stages: Vec<Stage>,
}

/// Runs rounds, at least one, until the time is over. Passes a line about each to `show`.
pub async fn run(plan: &Plan, mut show: impl FnMut(&str)) -> Report {
    let began = Instant::now();
    let (mut found, mut rounds) = (Found::default(), 0);
    loop {
        let left = plan.lasts.saturating_sub(began.elapsed()).saturating_sub(BESIDE);
        if rounds > 0 && left < LEAST_ROUND {
            break;
        }
        let seed = plan.seed.wrapping_add(u64::from(rounds));
        let lasts = left.clamp(LEAST_ROUND, ROUND.min((plan.lasts / 3).max(LEAST_ROUND)));
        let stage = Stage::of(seed, &plan.stages);
        let started = Instant::now();
        let of_round = AssertUnwindSafe(round(plan, seed, stage, lasts)).catch_unwind().await;
        let of_round = of_round.unwrap_or_else(|_panic| {
            let mut found = Found::default();
            found.failed.add(0, || format!("{stage:?}: panicked; see standard error"));
            found
        });
        let (sums, faults) = (&of_round.sums, of_round.faults.values().sum::<u64>());
        show(&format!(
            "round {rounds}, seed {seed}, {stage:?}: {} requests, {} garbage, {faults} faults in {lasts:.0?} of {:.0?}: {}",
            sums.requests,
            sums.garbage,
            started.elapsed(),
            if of_round.holds() { "agrees" } else { "DIFFERS" },
        ));
        found.merge(seed, &of_round);
        rounds += 1;
    }
    Report { found, seed: plan.seed, rounds, lasted: began.elapsed(), cpu: cpu_with_children() }
}

/// Returns the CPU time of this process and of its children that have ended.
fn cpu_with_children() -> Duration {
    /// Ticks per second in `/proc/PID/stat`.
    const TICKS: u64 = 100;
    let stat = std::fs::read_to_string("/proc/self/stat").expect("CPU times are read from Linux's /proc");
    let (_, fields) = stat.rsplit_once(')').expect("a name in brackets comes first");
    let ticks: u64 = fields.split_whitespace().skip(11).take(4).map(|field| field.parse().unwrap_or(0)).sum();
    Duration::from_millis(ticks * 1_000 / TICKS)
}

async fn round(plan: &Plan, seed: u64, stage: Stage, lasts: Duration) -> Found {
    let stack = Stack::with(stage.options(plan.beside.clone())).await;
    stack.others_spend();
    let population = Population::make(&stack, &mut Rng::new(seed, 0)).await;
    let account = stack.open_account("garbage", Stage::garbage_credit());
    let keys = Keys::make(&stack, &account).await;
    let gateways = addresses(&stack);
    let (over, clients, governed, of_garbage) =
        (AtomicBool::new(false), Clients::default(), Governed::default(), Garbage::default());
    let until = Instant::now() + lasts;
    let faults = async {
        let happened = fail(&stack, stage, Rng::new(seed, 1), until).await;
        over.store(true, Ordering::Relaxed);
        happened
    };
    let requests =
        (0..plan.clients).map(|number| client(number, seed, (&gateways, &population), (&over, &clients)));
    let governors = (0..GOVERNORS).map(|number| {
        let rng = Rng::new(seed, 2 + number as u64);
        govern(&stack, &population, (number, rng), (&over, &governed))
    });
    let garbage = (0..GARBAGE_CLIENTS).map(|_| garbage(seed, (&gateways, &keys), (&over, &of_garbage)));
    let (happened, _, _, _, ()) = tokio::join!(
        faults,
        join_all(requests),
        join_all(governors),
        join_all(garbage),
        pay(&stack, &population, Rng::new(seed, 99), &over),
    );
    let sent = clients.sent.into_inner().unwrap();
    settle(&stack).await;
    let round = Round {
        stack: &stack,
        stage,
        population: &population,
        sent: &sent,
        happened: &happened,
        garbage: &account,
    };
    let mut found = balanced(&round);
    // Even if no hold is open, the capture of an expired hold may still be on its way.
    let deadline = Instant::now() + SETTLED;
    while !found.holds() && Instant::now() < deadline {
        sleep(Duration::from_secs(2)).await;
        found = balanced(&round);
    }
    compare_lists(&stack, &population, &mut found).await;
    found.faults = faults::counts(&happened);
    found.sums.garbage = of_garbage.sent.into_inner();
    found.sums.revocations = governed.revocations.into_inner();
    count_failures(&round, &of_garbage.wrong.into_inner().unwrap(), &mut found);
    let (status, printed, error) = stack.operator().try_cli(&["audit"]);
    if !status.success() {
        found.failed.add(0, || format!("audit: {printed}{error}"));
    }
    found
}

/// Waits until no hold is open and all spools are empty, or until [`SETTLED`] has passed.
async fn settle(stack: &Stack) {
    let deadline = Instant::now() + SETTLED;
    while Instant::now() < deadline {
        let held = balances(stack);
        let resolved = !held.is_empty() && held.values().all(|(_, held)| held.nanos() == 0);
        if resolved && spools_are_empty(stack).await {
            return;
        }
        sleep(Duration::from_millis(200)).await;
    }
}

async fn spools_are_empty(stack: &Stack) -> bool {
    for gateway in &stack.gateways {
        let metrics = stack.http.try_get(&format!("{}/metrics", gateway.admin())).await;
        let Some(metrics) = metrics else { return false };
        let waiting = |line: &str| {
            let value = ["gateway_spool_captures ", "gateway_captures_in_memory_alone "]
                .iter()
                .find_map(|name| line.strip_prefix(name));
            value.is_some_and(|value| value.trim() != "0")
        };
        if metrics.text().lines().any(waiting) {
            return false;
        }
    }
    true
}

/// Counts 500s, and errors that no fault explains.
fn count_failures(round: &Round<'_>, wrong: &[(String, Instant, usize)], found: &mut Found) {
    let explained = |gateway: usize, from: Instant, to: Instant| {
        round.happened.iter().any(|fault: &Happened| fault.explains(gateway, from, to))
    };
    for sent in round.sent.iter().filter(|sent| sent.got.status >= 500) {
        found.sums.our_5xx += 1;
        if !explained(sent.gateway, sent.from, sent.to) {
            found.sums.our_5xx_without_a_fault += 1;
        }
    }
    for (what, from, gateway) in wrong {
        if !explained(*gateway, *from, *from + PATIENCE) {
            found.garbage_wrong.add(0, || what.clone());
        }
    }
}

/// Compares a round's books, and checks the sums below every cap.
fn balanced(round: &Round<'_>) -> Found {
    let (mut found, lines) = compare(round);
    caps::compare(round, &lines, &mut found);
    found
}
