//! Faults, one after another: each is over before the next begins, so that a hold whose gateway lives is always renewed in time.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    dice::Dice,
    owner, tell,
    upstream::UPSTREAMS,
    world::{BUSY, GATEWAYS, KEY_SERVICES, World},
};

/// A fault of the surroundings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Nothing arrives, one way or both.
    Cut,
    /// Connections break, and may be made anew.
    Break,
    KillKeyService,
    KillGateway,
    /// The store takes long.
    Stall,
    /// Some answers of the store are lost.
    LoseAnswers,
    /// A wall clock is moved.
    StepClock,
    /// The owner revokes a key.
    Revoke,
    /// The owner lowers the limit of a key.
    Lower,
}

impl Fault {
    const ALL: [Self; 9] = [
        Self::Cut,
        Self::Break,
        Self::KillKeyService,
        Self::KillGateway,
        Self::Stall,
        Self::LoseAnswers,
        Self::StepClock,
        Self::Revoke,
        Self::Lower,
    ];
}

/// One seed in so many has no faults.
const CALM: u64 = 6;

/// Lets faults happen until the run is no longer busy. Returns their number.
pub(crate) async fn happen(world: &Arc<World>, mut dice: Dice) -> usize {
    let until = Instant::now() + BUSY;
    let mut faults = 0;
    if dice.one_in(CALM) {
        return faults;
    }
    loop {
        sleep(dice.millis(100..=1_000)).await;
        if Instant::now() >= until {
            return faults;
        }
        let fault = *dice.pick(&Fault::ALL);
        carry_out(world, fault, &mut dice).await;
        faults += 1;
    }
}

async fn carry_out(world: &Arc<World>, fault: Fault, dice: &mut Dice) {
    let (gateway, key_service) = (*dice.pick(&GATEWAYS), *dice.pick(&KEY_SERVICES));
    match fault {
        Fault::Cut => cut(world, gateway, dice).await,
        Fault::Break => {
            let peer = if dice.one_in(3) { *dice.pick(&UPSTREAMS) } else { key_service };
            tell!(world.trace, "connections of {gateway} with {peer} break");
            world.network.break_between(gateway, peer);
        }
        Fault::KillKeyService => {
            let is_heard = !dice.one_in(3);
            tell!(world.trace, "{key_service} is killed, heard by its peers: {is_heard}");
            let killed = world.key_services.lock().remove(key_service);
            if let Some(killed) = killed {
                world.network.kill(&killed.process, is_heard);
            }
            sleep(dice.millis(10..=4_000)).await;
            world.start_key_service(key_service);
        }
        Fault::KillGateway => {
            tell!(world.trace, "{gateway} is killed");
            world.crashes.lock().push(Instant::now());
            let killed = world.gateways.lock().remove(gateway);
            if let Some(killed) = killed {
                world.network.kill(&killed.process, !dice.one_in(3));
                killed.gateway.crash();
            }
            sleep(dice.millis(10..=6_000)).await;
            world.start_gateway(gateway);
        }
        Fault::Stall => {
            let time = dice.millis(50..=2_500);
            tell!(world.trace, "the store takes {time:?}");
            world.maps.stall(time);
            sleep(time).await;
        }
        Fault::LoseAnswers => {
            tell!(world.trace, "the store loses answers");
            world.maps.lose_answers(true);
            sleep(dice.millis(200..=3_000)).await;
            world.maps.lose_answers(false);
            tell!(world.trace, "the store answers again");
        }
        Fault::StepClock => {
            let place = *dice.pick(&[GATEWAYS, KEY_SERVICES].concat());
            let step = i64::try_from(dice.within(0..=20_000)).unwrap() * 60 - 600_000;
            tell!(world.trace, "the clock of {place} moves by {step} ms");
            world.clock(place).step(step);
        }
        Fault::Revoke => owner::revoke(world, key_service, own_key(dice)).await,
        Fault::Lower => owner::lower(world, key_service, own_key(dice), dice.within(1..=3)).await,
    }
}

/// A key other than the one with which the last requests are made.
fn own_key(dice: &mut Dice) -> usize {
    usize::try_from(dice.within(0..=2)).unwrap()
}

/// Cuts a gateway off from some of its peers, one way or both.
async fn cut(world: &World, gateway: &str, dice: &mut Dice) {
    let peers: &[&str] = match dice.within(0..=3) {
        0 => &UPSTREAMS[..1],
        1 => &KEY_SERVICES[..1],
        2 => &KEY_SERVICES[1..],
        _ => &KEY_SERVICES,
    };
    // From all key-services only for so long that a lease is renewed behind it.
    let most = if peers.len() == KEY_SERVICES.len() { 4_000 } else { 9_000 };
    let (time, ways) = (dice.millis(100..=most), dice.within(0..=2));
    tell!(world.trace, "{gateway} and {peers:?} are apart for {time:?}, ways {ways}");
    for peer in peers {
        if ways != 0 {
            world.network.cut(gateway, peer, time);
        }
        if ways != 1 {
            world.network.cut(peer, gateway, time);
        }
    }
    sleep_until(Instant::now() + time + Duration::from_millis(500)).await;
}
