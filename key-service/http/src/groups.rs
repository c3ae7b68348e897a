//! Groups of API keys over HTTP.

use axum::{
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};
use shared::{
    error::ApiError,
    ids::GroupId,
    wire::{GROUPS, RevokedKeys},
};
use shared_door::http::ok;

use crate::{
    Api, IDEMPOTENT_REPLAYED, body, listing,
    parts::{Caller, KeysCaller, PathId},
    query,
};
use domain::{
    group::{Group, GroupPatch},
    key::ApiKey,
};
use key_service_management::groups::{GroupRefused, MadeGroup};
use key_service_objects::Shown;

impl Api {
    /// The settings of a group and of the keys that are made in the group, with models by their ids.
    fn named_by_id(&self, mut settings: GroupPatch) -> GroupPatch {
        self.name_models_by_id(&mut settings.bounds);
        self.name_models_by_id(&mut settings.key_defaults.bounds);
        settings
    }
}

pub(super) async fn list(
    State(api): State<Api>,
    Caller(caller): Caller,
    request: Request,
) -> Result<Response, ApiError> {
    let query = query::read::<Group>(request.uri().query())?;
    listing::respond(api, caller.account, query).await
}

pub(super) async fn create(
    State(api): State<Api>,
    Caller(caller): Caller,
    request: Request,
) -> Result<Response, ApiError> {
    let idempotency_key = body::idempotency_key(request.headers(), &caller)?;
    let settings = api.named_by_id(body::read_draft(request).await?);
    let made = api.management.create_group(caller.account, settings, idempotency_key, caller.actor).await?;
    let (MadeGroup::New(group) | MadeGroup::Existing(group) | MadeGroup::Replayed(group)) = &made;
    let location = [(header::LOCATION, format!("{GROUPS}/{}", group.id))];
    let shown = (location, ok(&group.shown(api.clock.now())));
    Ok(match made {
        MadeGroup::New(_) => (StatusCode::CREATED, shown).into_response(),
        MadeGroup::Existing(_) => (StatusCode::OK, shown).into_response(),
        MadeGroup::Replayed(_) => (StatusCode::CREATED, [IDEMPOTENT_REPLAYED], shown).into_response(),
    })
}

pub(super) async fn fetch(
    State(api): State<Api>,
    Caller(caller): Caller,
    path: PathId<GroupId>,
) -> Result<Response, ApiError> {
    let group = api.management.group(caller.account, path.or(GroupRefused::NotFound)?).await?;
    Ok(ok(&group.shown(api.clock.now())))
}

pub(super) async fn update(
    State(api): State<Api>,
    Caller(caller): Caller,
    path: PathId<GroupId>,
    request: Request,
) -> Result<Response, ApiError> {
    let change = api.named_by_id(body::read_patch(request).await?);
    let group = api
        .management
        .update_group(caller.account, path.or(GroupRefused::NotFound)?, change, caller.actor)
        .await?;
    Ok(ok(&group.shown(api.clock.now())))
}

pub(super) async fn archive(
    State(api): State<Api>,
    Caller(caller): Caller,
    path: PathId<GroupId>,
) -> Result<Response, ApiError> {
    let group =
        api.management.archive_group(caller.account, path.or(GroupRefused::NotFound)?, caller.actor).await?;
    Ok(ok(&group.shown(api.clock.now())))
}

/// Lists the keys of a group; those of child groups are listed with the child groups.
pub(super) async fn keys(
    State(api): State<Api>,
    KeysCaller(caller): KeysCaller,
    path: PathId<GroupId>,
    request: Request,
) -> Result<Response, ApiError> {
    let mut query = query::read::<ApiKey>(request.uri().query())?;
    let id = api.keys_of_group_in_reach(&caller, &path).await?;
    let group = api.management.group(caller.account, id).await?;
    query.filter.group = Some(group.id);
    query.filter.within = caller.access.group;
    listing::respond(api, caller.account, query).await
}

pub(super) async fn revoke_keys(
    State(api): State<Api>,
    KeysCaller(caller): KeysCaller,
    path: PathId<GroupId>,
) -> Result<Response, ApiError> {
    let id = api.keys_of_group_in_reach(&caller, &path).await?;
    let revoked = api.management.revoke_keys(caller.account, id, caller.actor).await?;
    Ok(ok(&RevokedKeys { id, object: "group.revoked_keys", revoked }))
}
