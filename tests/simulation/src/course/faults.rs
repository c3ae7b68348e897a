//! Causes faults one after the other. Each fault ends before the next begins. So a hold is always renewed in time while
//! its gateway is alive.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    chance::dice::Dice,
    course::owner::{self, OwnLimit},
    services::upstream::UPSTREAMS,
    trace::tell,
    world::{BUSY, GATEWAYS, KEY_SERVICES, World},
};

/// A fault outside the services, or something that the owner does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A gateway is cut off from some of its peers, in one direction or in both.
    Cut,
    /// The connections between two places break. New connections can be opened.
    Break,
    KillKeyService,
    KillGateway,
    /// A gateway is cut off from all key-services until its bills are in its spool. Then it is killed.
    KillGatewayApart,
    /// The store answers slowly.
    Stall,
    /// Some answers of the store get lost.
    LoseAnswers,
    /// The store is killed in the middle of a commit and restarted, and then the same happens again.
    TearFile,
    /// The wall clock of a process is moved.
    StepClock,
    /// The owner revokes a key.
    Revoke,
    /// The owner lowers the limit of a key.
    Lower,
    /// The owner permanently raises the limit of a key or a group.
    Raise,
    /// The owner temporarily raises the limit of a key or a group.
    RaiseForATime,
}

impl Fault {
    const ALL: [Self; 13] = [
        Self::Cut,
        Self::Break,
        Self::KillKeyService,
        Self::KillGateway,
        Self::KillGatewayApart,
        Self::Stall,
        Self::LoseAnswers,
        Self::TearFile,
        Self::StepClock,
        Self::Revoke,
        Self::Lower,
        Self::Raise,
        Self::RaiseForATime,
    ];
}

/// Maximum time in milliseconds for which a gateway is cut off from all key-services. It is so short that leases can be
/// renewed afterwards.
const MOST_APART: u64 = 4_000;
/// A clock that is wrong is corrected after this time.
const WRONG_FOR: Duration = Duration::from_secs(2);
/// One of this many seeds has no faults.
const CALM: u64 = 6;

/// Causes faults until the busy time of the run is over. Returns the number of faults.
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
        Fault::KillGateway => kill_gateway(world, gateway, dice.millis(10..=6_000), dice).await,
        Fault::KillGatewayApart => {
            let time = dice.millis(2_100..=MOST_APART);
            tell!(world.trace, "{gateway} is apart from all key-services for {time:?}");
            apart(world, (gateway, &KEY_SERVICES), time, 2);
            sleep(time).await;
            // Sometimes, the gateway is away until its holds have expired.
            kill_gateway(world, gateway, dice.millis(10..=16_000), dice).await;
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
        Fault::TearFile => {
            for _ in 0..2 {
                let away = dice.millis(50..=1_000);
                tell!(world.trace, "the store is killed in its next commit, and is away for {away:?}");
                world.maps.kill_in_next_commit(away);
                sleep(away + dice.millis(200..=1_000)).await;
            }
        }
        Fault::StepClock => {
            let place = *dice.pick(&[GATEWAYS, KEY_SERVICES].concat());
            let drawn = i64::try_from(dice.within(0..=20_000)).unwrap();
            // In one case of four, the clock moves by up to three days. Half of these steps are reversed after two
            // seconds.
            let hours = if drawn % 4 == 0 { drawn % 145 - 72 } else { 0 };
            let step = drawn * 60 - 600_000 + hours * 60 * 60 * 1_000;
            tell!(world.trace, "the clock of {place} moves by {step} ms");
            world.clock(place).step(step);
            if drawn % 8 == 0 {
                sleep(WRONG_FOR).await;
                tell!(world.trace, "the clock of {place} is set right");
                world.clock(place).step(-step);
            }
        }
        Fault::Revoke => owner::revoke(world, key_service, own_key(dice)).await,
        Fault::Lower => owner::lower(world, key_service, own_key(dice), dice.within(1..=3)).await,
        Fault::Raise => owner::raise(world, key_service, own_limit(dice), dice.within(1..=12)).await,
        Fault::RaiseForATime => {
            let (of, requests, time) = (own_limit(dice), dice.within(1..=12), dice.millis(100..=4_000));
            owner::raise_for(world, key_service, of, requests, time).await;
        }
    }
}

/// Chooses a key. It is not the key that the last requests use.
fn own_key(dice: &mut Dice) -> usize {
    usize::try_from(dice.within(0..=2)).unwrap()
}

/// Chooses the limit of a key, which is not the key that the last requests use, or the limit of a group.
fn own_limit(dice: &mut Dice) -> OwnLimit {
    if dice.one_in(2) {
        OwnLimit::Group(usize::try_from(dice.within(0..=1)).unwrap())
    } else {
        OwnLimit::Key(own_key(dice))
    }
}

/// Cuts a gateway off from some of its peers, in one direction or in both.
async fn cut(world: &World, gateway: &str, dice: &mut Dice) {
    let peers: &[&str] = match dice.within(0..=3) {
        0 => &UPSTREAMS[..1],
        1 => &KEY_SERVICES[..1],
        2 => &KEY_SERVICES[1..],
        _ => &KEY_SERVICES,
    };
    let most = if peers.len() == KEY_SERVICES.len() { MOST_APART } else { 9_000 };
    let (time, ways) = (dice.millis(100..=most), dice.within(0..=2));
    tell!(world.trace, "{gateway} and {peers:?} are apart for {time:?}, ways {ways}");
    apart(world, (gateway, peers), time, ways);
    sleep_until(Instant::now() + time + Duration::from_millis(500)).await;
}

/// Blocks what a gateway and its peers send to each other: in one direction if `ways` is 0 or 1, and in both if it is
/// 2.
fn apart(world: &World, (gateway, peers): (&str, &[&str]), time: Duration, ways: u64) {
    for peer in peers {
        if ways != 0 {
            world.network.cut(gateway, peer, time);
        }
        if ways != 1 {
            world.network.cut(peer, gateway, time);
        }
    }
}

async fn kill_gateway(world: &Arc<World>, gateway: &'static str, away: Duration, dice: &mut Dice) {
    tell!(world.trace, "{gateway} is killed");
    world.crashes.lock().push(Instant::now());
    let killed = world.gateways.lock().remove(gateway);
    if let Some(killed) = killed {
        world.network.kill(&killed.process, !dice.one_in(3));
        killed.gateway.crash();
    }
    sleep(away).await;
    world.start_gateway(gateway);
}
