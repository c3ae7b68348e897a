//! Faregate under the load: three gateways and three key-services over one Redis, and a key with a limit for each
//! tenant.

use std::time::{Duration, Instant};

use tests::{
    harness::{Deployment, Form, Options, Stack, usd},
    upstream::{Keep, Upstream},
};
use tokio::time::sleep;

use super::{
    outcome::{Outcome, outcome},
    setting::{Gateway, KILL_EVERY, REPLICAS, System, caps},
};
use crate::overshoot::drive::drive;

/// Lease of holds, after which a killed gateway's holds are released.
const LEASE: Duration = Duration::from_secs(3);

pub(super) async fn run(with_kills: bool, seed: u64) -> Outcome {
    let deployment = Deployment::Services { gateways: REPLICAS, key_services: REPLICAS, redis: Form::Alone };
    let mut stack =
        Stack::with(Options { deployment, lease: LEASE, keep: Keep::Counts, ..Options::default() }).await;
    stack.others_spend();
    stack.add_credit(&stack.account, usd("10"), "");
    let mut keys = Vec::new();
    for cap in caps() {
        keys.push(stack.key_limited(cap).await.secret);
    }
    let addresses = crate::prove::load::addresses(&stack);
    let upstream = std::mem::replace(&mut stack.upstream, Upstream::keeping(Keep::Counts));
    let system = System { upstream, addresses, keys };
    let began = Instant::now();
    let (answers, kills) = if with_kills {
        let mut kills = 0;
        let answers = tokio::select! {
            answers = drive(&system, seed) => answers,
            () = kill(&stack, &mut kills) => unreachable!("kills go on"),
        };
        (answers, kills)
    } else {
        (drive(&system, seed).await, 0)
    };
    for server in stack.gateways.iter().chain(&stack.key_services).filter(|server| !server.is_running()) {
        server.restart_supervised().await;
    }
    stack.redis().restart().await;
    outcome(Gateway::Faregate, &system.upstream, kills, answers, began)
}

/// Kills one process after the other, gateways and key-services in turn, and restarts it.
async fn kill(stack: &Stack, kills: &mut u32) {
    loop {
        sleep(KILL_EVERY).await;
        let turn = *kills as usize;
        *kills += 1;
        match turn % 3 {
            0 => stack.gateways[turn / 3 % REPLICAS].restart_supervised().await,
            1 => stack.key_services[turn / 3 % REPLICAS].restart_supervised().await,
            _ => stack.redis().restart().await,
        }
    }
}
