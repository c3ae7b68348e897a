//! Groups of API keys over HTTP: filters for their lists, and operations on all keys of a group.

use axum::{
    extract::{Request, State},
    response::Response,
};
use shared::{error::ApiError, ids::GroupId, wire::RevokedKeys};
use shared_door::http::ok;

use crate::{
    api::Api,
    listing,
    parts::{Caller, PathId},
    query::{self, Filtered, Query, external_id},
    reach::HttpNoun,
};
use domain::{group::Group, key::ApiKey};
use key_service_management::listing::GroupFilter;

impl Filtered for Group {
    fn filter(query: &Query<'_>) -> Result<GroupFilter, ApiError> {
        Ok(GroupFilter {
            external_id: external_id(query)?,
            within: None,
            parent: None,
            metadata: query.metadata()?,
        })
    }
}

impl HttpNoun for Group {}

/// Lists the keys of a group, without its child groups' keys.
pub(crate) async fn keys(
    State(api): State<Api>,
    Caller(caller): Caller,
    path: PathId<GroupId>,
    request: Request,
) -> Result<Response, ApiError> {
    let mut query = query::read::<ApiKey>(request.uri().query())?.asked_by(&caller);
    let id = api.keys_of_group_in_reach(&caller, &path).await?;
    let group = api.management.group(caller.account, id).await?;
    query.filter.group = Some(group.id);
    query.filter.within = caller.access.group;
    listing::respond(api, caller.account, query).await
}

pub(crate) async fn revoke_keys(
    State(api): State<Api>,
    Caller(caller): Caller,
    path: PathId<GroupId>,
) -> Result<Response, ApiError> {
    let id = api.keys_of_group_in_reach(&caller, &path).await?;
    let revoked = api.by(caller).revoke_keys(id).await?;
    Ok(ok(&RevokedKeys { id, object: "group.revoked_keys", revoked }))
}
