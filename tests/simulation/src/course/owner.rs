//! The owner, who governs the keys while they spend.

use domain::{
    event::Actor,
    key::{ApiKey, KeyPatch},
    ledger::BoundsPatch,
};
use key_service_management::governed::Governed as _;
use shared::money::NanoUsd;
use tokio::time::Instant;

use crate::{account::REQUEST, trace::tell, world::World};

/// Lowers the limit of a key at a key-service, to what this many requests cost.
pub(crate) async fn lower(world: &World, place: &'static str, key: usize, requests: u64) {
    let Some(key_service) = world.key_services.lock().get(place).cloned() else { return };
    let id = world.keys.lock()[key].id;
    let limit = NanoUsd::from_nanos(REQUEST / 4 * i64::try_from(requests).unwrap());
    tell!(world.trace, "the owner lowers the limit of key {key} to {limit} at {place}");
    let patch = KeyPatch { bounds: BoundsPatch::of_limit(Some(limit)), ..KeyPatch::default() };
    let by = || key_service.management.by(world.account, Actor::System);
    let lowered = tokio::select! {
        biased;
        () = key_service.process.ended() => return,
        lowered = ApiKey::update(by(), id, patch) => lowered,
    };
    tell!(world.trace, "the new limit of key {key} is answered: {}", lowered.is_ok());
}

/// Revokes a key at a key-service. The time of the answer counts, if one comes.
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
