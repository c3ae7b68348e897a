//! Groups of API keys over HTTP: filters for their lists, and operations on all keys of a group.

use axum::{
    extract::{Request, State},
    response::Response,
};
use shared::{
    error::{ApiError, Code},
    ids::GroupId,
    wire::{MAX_EXTERNAL_ID_CHARS, RevokedKeys},
};
use shared_door::http::ok;

use crate::{
    api::Api,
    listing,
    parts::{Caller, PathId},
    query::{self, Filtered, Query},
    reach::HttpNoun,
};
use domain::{group::Group, key::ApiKey};
use key_service_management::listing::GroupFilter;

impl Filtered for Group {
    fn filter(query: &Query<'_>) -> Result<GroupFilter, ApiError> {
        let external_id = query.one("external_id")?.map(str::to_owned);
        if external_id.as_ref().is_some_and(|id| id.chars().count() > MAX_EXTERNAL_ID_CHARS) {
            let message = format!("`external_id` has more than {MAX_EXTERNAL_ID_CHARS} characters.");
            return Err(ApiError::at(Code::StringAboveMaxLength, "external_id", message));
        }
        Ok(GroupFilter { external_id, within: None, parent: None, metadata: query.metadata()? })
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
    let mut query = query::read::<ApiKey>(request.uri().query())?;
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
