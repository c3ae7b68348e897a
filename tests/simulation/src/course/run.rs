//! Runs one seed: setup, a busy time with faults, and a quiet time, after which the run is judged.

use std::{sync::Arc, time::Duration};

use shared::money::NanoUsd;
use tokio::{
    runtime::Builder,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    course::{faults, judge, load},
    services::gateway::LEASE,
    world::{BUSY, GATEWAYS, KEY_SERVICES, World},
};

/// Time within which requests end, restarts finish and sessions open again.
const SETTLING: Duration = Duration::from_secs(6);
/// Time within which an unused hold is resolved: a whole answer continues for 15 seconds without a client, and the hold
/// of a lost gateway lasts 7/6 of a lease plus one second.
const RESOLVED: Duration = Duration::from_secs(15 + LEASE.as_secs() + LEASE.as_secs() / 6 + 1);
/// Time within which a late copy of an authorization arrives, and its release.
const LATE: Duration = Duration::from_secs(8);

/// The result of a run.
pub(crate) struct RunEnd {
    pub(crate) hash: String,
    /// Broken promises; empty if all were kept.
    pub(crate) broken: Vec<String>,
    /// The events, one per line.
    pub(crate) text: String,
    /// Number of requests with a complete answer.
    pub(crate) served: usize,
    pub(crate) faults: usize,
}

/// Runs a seed in its own runtime.
pub(crate) fn run(seed: u64) -> RunEnd {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let world = begin(seed).await;
        let faults = live(&world).await;
        judge::at_the_end(&world, faults).await;
        let outcomes = world.outcomes.lock();
        let served = outcomes.iter().filter(|outcome| outcome.is_complete).count();
        let broken = world.trace.broken();
        RunEnd { hash: world.trace.hash(), broken, text: world.trace.text(), served, faults }
    })
}

/// Creates the world of a run, before the first request.
async fn begin(seed: u64) -> Arc<World> {
    let world = Arc::new(World::new(seed).await);
    judge::after_every_commit(&world);
    for place in KEY_SERVICES {
        world.start_key_service(place);
    }
    for place in GATEWAYS {
        world.start_gateway(place);
    }
    world
}

/// Lets clients send requests while faults happen, and waits until everything is quiet. Returns the number of faults.
async fn live(world: &Arc<World>) -> usize {
    let (load, faults) = (world.fork(), world.fork());
    // Gives sessions time to open.
    sleep(Duration::from_millis(200)).await;
    let clients = load::start(world, load);
    let faults = faults::happen(world, faults).await;
    sleep_until(world.began + BUSY + SETTLING).await;
    load::last_requests(world).await;
    for client in clients {
        client.await.unwrap();
    }
    let until = Instant::now() + RESOLVED;
    sleep(LATE).await;
    while Instant::now() < until && is_holding(world).await {
        sleep(Duration::from_secs(1)).await;
    }
    faults
}

async fn is_holding(world: &World) -> bool {
    world.present.funds(world.account).await.unwrap().unwrap().held != NanoUsd::ZERO
}
