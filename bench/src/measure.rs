//! Measures the real programs' CPU time per request, compared with a bare proxy in the same run.
//!
//! CPU time is counted per process, so no figure includes the load generator or the upstream. Rounds alternate between
//! the systems, so that a machine that becomes slower affects all of them.

use std::time::{Duration, Instant};

use tests::harness::Dialect;
use tokio::time::sleep;

pub use extent::Plan;
use extent::{
    CONCURRENCIES, IDLE, KEYS, MANY, OTHER_DIALECTS, SHARED, SLOW_PACE, SMALL_JOURNAL, STREAMED_EACH, WARM_UP,
};
use installation::{Installation, Setup};
use load::{Held, PACE, Work};
use process::Process;
pub use report::Report;
use system::{HeldOpen, System, Wear, measure, upstream};

pub mod beside;
mod extent;
mod installation;
mod load;
pub(crate) mod process;
pub mod prompts;
pub mod proxy;
mod redis;
pub mod replicas;
mod report;
mod system;
pub mod train;

/// Measures everything. The processes are started here, and end when this returns.
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
    // This comes first, because later the streams would fit into memory that the processes already have.
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

/// Opens slow streams, and measures CPU time and memory while they are open.
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

/// Serves many requests and streams, and then measures the gateway's memory when it is idle again.
async fn wear(system: &System, before: u64, plan: &Plan) -> Wear {
    let mut served = 0;
    while served < plan.requests {
        let work = Work::Whole { at_once: CONCURRENCIES[3] };
        served += load::run(&system.target, work, Duration::from_secs(1)).await.pieces;
    }
    let held = Held::open(&system.target, plan.held, PACE * 10).await;
    sleep(IDLE).await;
    drop(held);
    // An idle allocator pauses longer before it collects than a busy one.
    sleep(IDLE * 2).await;
    Wear { requests: served, before, after: system.memory() }
}
