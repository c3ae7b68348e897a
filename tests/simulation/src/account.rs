//! The account of a run. It is created before anything can fail.

use std::sync::Arc;

use domain::{
    event::Actor,
    group::{Group, GroupPatch},
    key::{ApiKey, KeyPatch},
    ledger::BoundsPatch,
};
use key_service_management::governed::Governed as _;
use key_service_store::store::Store;
use shared::{
    ids::{AccountId, GroupId},
    money::NanoUsd,
    secret::ExposeSecret,
};
use tokio::time::Instant;

use crate::{
    chance::{clock::ProcessClock, dice::Dice},
    keys::RunKey,
    services::{
        key_service::UseCases,
        store::{Direct, SharedMaps},
    },
};

/// Rough cost of a request: it holds 100 output tokens and about a hundred bytes of prompt.
pub(crate) const REQUEST: i64 = 80_000;

/// An account with four keys.
pub(crate) struct Account {
    pub(crate) id: AccountId,
    pub(crate) groups: Vec<GroupId>,
    pub(crate) keys: Vec<RunKey>,
    /// The store, accessed directly.
    pub(crate) store: Arc<Store>,
}

/// Opens an account that contains a group in a parent, and four keys: two in the group, one alone, and one that may
/// spend all of the account's money.
pub(crate) async fn open_account(maps: &Arc<SharedMaps>, began: Instant, dice: &mut Dice) -> Account {
    let clock = Arc::new(ProcessClock::new(began, dice.fork()));
    let use_cases = UseCases::over(Arc::new(Direct(maps.clone())), clock);
    let management = &use_cases.management;
    let credit = NanoUsd::from_nanos(REQUEST * 40);
    let id = management.create_account("acme", credit, Actor::System).await.unwrap();
    let mut limit = |requests: u64| {
        let requests = i64::try_from(dice.within(1..=requests)).unwrap();
        BoundsPatch::of_limit(Some(NanoUsd::from_nanos(REQUEST * requests + 777)))
    };
    let mut groups: Vec<GroupId> = Vec::new();
    for (name, requests) in [("parent", 8), ("child", 6)] {
        let (name, parent) = (Some(name.to_owned()), groups.last().map(|parent| Some(*parent)));
        let patch = GroupPatch { name, parent, bounds: limit(requests), ..GroupPatch::default() };
        let made = Group::create(management.by(id, Actor::System), patch, None).await.unwrap();
        groups.push(made.made.into_inner().id);
    }
    let (parent, child) = (groups[0], groups[1]);
    let mut keys = Vec::new();
    for (group, bounds) in
        [(Some(child), limit(4)), (Some(parent), limit(6)), (None, limit(5)), (None, BoundsPatch::default())]
    {
        let patch = KeyPatch { group: Some(group), bounds, ..KeyPatch::default() };
        let made = ApiKey::create(management.by(id, Actor::System), patch, None).await.unwrap();
        let credential = made.secret.unwrap().expose_secret().to_owned();
        keys.push(RunKey { id: made.made.into_inner().id, credential, revoked: None });
    }
    Account { id, groups, keys, store: use_cases.store }
}
