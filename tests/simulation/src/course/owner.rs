//! The owner, who changes keys and groups while they spend.

use std::time::Duration;

use domain::{
    event::Actor,
    group::{Group, GroupPatch},
    key::{ApiKey, KeyPatch},
    ledger::BoundsPatch,
};
use key_service_management::governed::Governed as _;
use shared::{clock::Clock as _, money::NanoUsd, wire::Raise};
use tokio::time::Instant;

use crate::{account::REQUEST, trace::tell, world::World};

/// The key or group whose limit the owner changes. A key is identified by its index in the run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OwnLimit {
    Key(usize),
    Group(usize),
}

/// Lowers a key's limit to the cost of this many requests, through one of the key-services.
pub(crate) async fn lower(world: &World, place: &'static str, key: usize, requests: u64) {
    let limit = cost_of(requests);
    tell!(world.trace, "the owner lowers the limit of key {key} to {limit} at {place}");
    bound(world, place, OwnLimit::Key(key), BoundsPatch::of_limit(Some(limit))).await;
}

/// Permanently raises a limit by the cost of this many requests, through one of the key-services.
pub(crate) async fn raise(world: &World, place: &'static str, of: OwnLimit, requests: u64) {
    let Some(limit) = limit_above(world, of, requests).await else { return };
    tell!(world.trace, "the owner raises the limit of {of:?} to {limit} at {place}");
    bound(world, place, of, BoundsPatch::of_limit(Some(limit))).await;
}

/// Temporarily raises a limit by the cost of this many requests, through one of the key-services. The end is set by the
/// owner's own clock, which is right; a key-service whose clock is past the end refuses the raise.
pub(crate) async fn raise_for(
    world: &World,
    place: &'static str,
    of: OwnLimit,
    requests: u64,
    time: Duration,
) {
    let Some(amount) = limit_above(world, of, requests).await else { return };
    let until = world.clock("owner").now().plus(time);
    tell!(world.trace, "the owner raises the limit of {of:?} to {amount} until {until} at {place}");
    let limit_raised = Some(Some(Raise { amount, until }));
    bound(world, place, of, BoundsPatch { limit_raised, ..BoundsPatch::default() }).await;
}

/// Returns the rough cost of this many small requests.
fn cost_of(requests: u64) -> NanoUsd {
    NanoUsd::from_nanos(REQUEST / 4 * i64::try_from(requests).unwrap())
}

/// Returns a limit above the current one.
async fn limit_above(world: &World, of: OwnLimit, requests: u64) -> Option<NanoUsd> {
    let budget = match of {
        OwnLimit::Key(number) => {
            let id = world.keys.lock()[number].id;
            world.present.key(world.account, id).await.unwrap()?.spend.budget
        }
        OwnLimit::Group(number) => {
            world.present.group(world.account, world.groups[number]).await.unwrap()?.spend.budget
        }
    };
    budget.limit?.checked_add(cost_of(requests))
}

/// Changes limits through a key-service, and waits for the answer, if there is one.
async fn bound(world: &World, place: &'static str, of: OwnLimit, bounds: BoundsPatch) {
    let Some(key_service) = world.key_services.lock().get(place).cloned() else { return };
    let by = || key_service.management.by(world.account, Actor::System);
    let changing = async {
        match of {
            OwnLimit::Key(number) => {
                let id = world.keys.lock()[number].id;
                ApiKey::update(by(), id, KeyPatch { bounds, ..KeyPatch::default() }).await.is_ok()
            }
            OwnLimit::Group(number) => {
                let patch = GroupPatch { bounds, ..GroupPatch::default() };
                Group::update(by(), world.groups[number], patch).await.is_ok()
            }
        }
    };
    let is_changed = tokio::select! {
        biased;
        () = key_service.process.ended() => return,
        is_changed = changing => is_changed,
    };
    tell!(world.trace, "the new limit of {of:?} is answered: {is_changed}");
}

/// Revokes a key through a key-service. The revocation takes effect when it is answered.
pub(crate) async fn revoke(world: &World, place: &'static str, key: usize) {
    let Some(key_service) = world.key_services.lock().get(place).cloned() else { return };
    let id = world.keys.lock()[key].id;
    tell!(world.trace, "the owner revokes key {key} at {place}");
    let by = || key_service.management.by(world.account, Actor::System);
    let revoked = tokio::select! {
        biased;
        () = key_service.process.ended() => return,
        revoked = ApiKey::end(by(), id) => revoked,
    };
    tell!(world.trace, "the revocation of key {key} is answered: {}", revoked.is_ok());
    if revoked.is_ok() {
        world.keys.lock()[key].revoked.get_or_insert_with(Instant::now);
    }
}
