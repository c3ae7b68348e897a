//! Groups of API keys over HTTP.

use axum::{
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};
use shared::{
    error::ApiError,
    ids::GroupId,
    process::http::ok,
    wire::{GROUPS, RevokedKeys},
};

use super::{
    Api, body, listing,
    object::Shown,
    parts::{Caller, PathId},
    query,
};
use crate::management::groups::{GroupRefused, MadeGroup};
use domain::{
    group::{Group, GroupPatch},
    key::ApiKey,
};

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
    Caller { account, .. }: Caller,
    request: Request,
) -> Result<Response, ApiError> {
    let query = query::read::<Group>(request.uri().query())?;
    listing::respond(api, account, query).await
}

pub(super) async fn create(
    State(api): State<Api>,
    Caller { account, actor }: Caller,
    request: Request,
) -> Result<Response, ApiError> {
    let settings = api.named_by_id(body::read_draft(request).await?);
    let made = api.management.create_group(account, settings, actor).await?;
    let (status, group) = match &made {
        MadeGroup::New(group) => (StatusCode::CREATED, group),
        MadeGroup::Existing(group) => (StatusCode::OK, group),
    };
    let location = format!("{GROUPS}/{}", group.id);
    Ok((status, [(header::LOCATION, location)], ok(&group.shown(api.clock.now()))).into_response())
}

pub(super) async fn fetch(
    State(api): State<Api>,
    Caller { account, .. }: Caller,
    path: PathId<GroupId>,
) -> Result<Response, ApiError> {
    let group = api.management.group(account, path.or(GroupRefused::NotFound)?).await?;
    Ok(ok(&group.shown(api.clock.now())))
}

pub(super) async fn update(
    State(api): State<Api>,
    Caller { account, actor }: Caller,
    path: PathId<GroupId>,
    request: Request,
) -> Result<Response, ApiError> {
    let change = api.named_by_id(body::read_patch(request).await?);
    let group = api.management.update_group(account, path.or(GroupRefused::NotFound)?, change, actor).await?;
    Ok(ok(&group.shown(api.clock.now())))
}

pub(super) async fn archive(
    State(api): State<Api>,
    Caller { account, actor }: Caller,
    path: PathId<GroupId>,
) -> Result<Response, ApiError> {
    let group = api.management.archive_group(account, path.or(GroupRefused::NotFound)?, actor).await?;
    Ok(ok(&group.shown(api.clock.now())))
}

/// Lists the keys of a group; those of child groups are listed with the child groups.
pub(super) async fn keys(
    State(api): State<Api>,
    Caller { account, .. }: Caller,
    path: PathId<GroupId>,
    request: Request,
) -> Result<Response, ApiError> {
    let mut query = query::read::<ApiKey>(request.uri().query())?;
    let group = api.management.group(account, path.or(GroupRefused::NotFound)?).await?;
    query.filter.group = Some(group.id);
    listing::respond(api, account, query).await
}

pub(super) async fn revoke_keys(
    State(api): State<Api>,
    Caller { account, actor }: Caller,
    path: PathId<GroupId>,
) -> Result<Response, ApiError> {
    let id = path.or(GroupRefused::NotFound)?;
    let revoked = api.management.revoke_keys(account, id, actor).await?;
    Ok(ok(&RevokedKeys { id, object: "group.revoked_keys", revoked }))
}
