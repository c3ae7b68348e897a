//! The load: a few requests in every dialect, to upstreams that are slow, break off or report falsely.

use std::{sync::Arc, time::Duration};

use tests::{
    harness::Dialect,
    upstream::{Fault, Script, Shape, Told, Usage},
};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{
    chance::dice::Dice,
    client::{self, Plan},
    services::upstream::MODELS,
    world::{BUSY, GATEWAYS, World},
};

/// Number of requests in a run.
const REQUESTS: u64 = 7;
/// Index of a key that nobody revokes and that has enough money.
pub(crate) const RICH: usize = 3;
/// Maximum time for a request after all faults.
const LAST_REQUEST: Duration = Duration::from_secs(5);

/// Starts each client at its time.
pub(crate) fn start(world: &Arc<World>, mut dice: Dice) -> Vec<JoinHandle<()>> {
    let client = |number: u64| {
        let (at, gateway) = (dice.millis(0..=BUSY.as_secs() * 1_000 * 2 / 3), *dice.pick(&GATEWAYS));
        let (plan, world) = (plan(number, &mut dice), world.clone());
        tokio::spawn(async move {
            sleep(at).await;
            ask(&world, gateway, plan).await;
        })
    };
    (0..REQUESTS).map(client).collect()
}

/// Checks that every gateway serves again after all faults.
pub(crate) async fn last_requests(world: &Arc<World>) {
    for (number, gateway) in (100..).zip(GATEWAYS) {
        let script = Script { tag: format!("last-{number}"), ..Script::tokens(5, 4) };
        let plan = Plan {
            key: RICH,
            model: MODELS[0],
            dialect: Dialect::Chat,
            is_stream: true,
            max_tokens: 10,
            script,
            leaves_after: None,
            tells_length: true,
        };
        if timeout(LAST_REQUEST, ask(world, gateway, plan)).await.is_err() {
            world.trace.break_promise(format!("{gateway} does not answer after all faults"));
        }
        let outcomes = world.outcomes.lock();
        let last = outcomes.last().map(|last| (last.status, last.is_complete));
        drop(outcomes);
        if last != Some((Some(200), true)) {
            world.trace.break_promise(format!("{gateway} does not serve after all faults: {last:?}"));
        }
    }
}

async fn ask(world: &Arc<World>, place: &'static str, plan: Plan) {
    let Some(gateway) = world.gateways.lock().get(place).cloned() else { return };
    if gateway.process.is_dead() {
        return;
    }
    let credential = world.keys.lock()[plan.key].credential.clone();
    let outcome = client::ask(&gateway, &credential, plan, world.trace.clone()).await;
    world.outcomes.lock().push(outcome);
}

fn plan(number: u64, dice: &mut Dice) -> Plan {
    let (model, dialect) = (*dice.pick(&MODELS), *dice.pick(&Dialect::ALL));
    let (prompt, completion) = (dice.within(1..=60), dice.within(1..=90));
    let script = Script {
        tag: format!("{number}"),
        pace_ms: *dice.pick(&[0, 0, 5, 40, 150]),
        head_after_ms: *dice.pick(&[0, 0, 3, 200, 2_500]),
        told: told(dice, completion),
        fault: fault(dice, completion),
        ..Script::tokens(prompt, completion)
    };
    Plan {
        key: usize::try_from(dice.within(0..=3)).unwrap(),
        model,
        dialect,
        is_stream: !dice.one_in(3),
        tells_length: !dice.one_in(3),
        max_tokens: 100,
        leaves_after: dice.one_in(6).then(|| dice.millis(0..=4_000)),
        script,
    }
}

/// Returns a false report that could be true, since impossible reports are not believed.
fn told(dice: &mut Dice, completion: u64) -> Told {
    match dice.within(0..=11) {
        0 => Told::Nothing,
        1 => Told::Lie(Usage {
            prompt: dice.within(1..=60),
            cached: 0,
            completion: (completion + dice.within(0..=5)).min(100),
        }),
        _ => Told::Truth,
    }
}

fn fault(dice: &mut Dice, completion: u64) -> Fault {
    let after = dice.within(0..=completion);
    match dice.within(0..=19) {
        0 => Fault::Error { status: *dice.pick(&[400, 429, 500, 503]), shape: Shape::Nested },
        1 => Fault::CutBeforeHead,
        2 => Fault::StallBeforeHead,
        3 => Fault::Stall { after },
        4 => Fault::Cut { after },
        5 => Fault::End { after },
        6 => Fault::ErrorEvent { after, shape: Shape::Nested },
        7 => Fault::CutBeforeUsage,
        8 => Fault::NoDone,
        _ => Fault::None,
    }
}
