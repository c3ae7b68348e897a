//! API keys over HTTP: filters for their lists, which keys a group's management key may reach, and rotation.

use axum::{
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use shared::{error::ApiError, ids::KeyId};
use shared_door::http::ok;

use crate::{
    api::Api,
    body::{self, IDEMPOTENT_REPLAYED},
    error::forbidden,
    parts::{Caller, PathId},
    query::{Filtered, Query, invalid},
    reach::HttpNoun,
};
use domain::{
    access::Forbidden,
    group::BadGroup,
    key::{ApiKey, KeyPatch, Status},
};
use key_service_management::{
    Error, Refused,
    governed::{Issued, Made},
    governor::Governor,
    listing::KeyFilter,
};
use key_service_objects::{Shown as _, with_secret};

impl Filtered for ApiKey {
    fn filter(query: &Query<'_>) -> Result<KeyFilter, ApiError> {
        let status = query.one("status")?;
        let status = status.map(|text| Status::parse(text).ok_or_else(|| invalid("status", BAD_STATUS)));
        Ok(KeyFilter {
            status: status.transpose()?,
            group: query.group()?,
            within: None,
            metadata: query.metadata()?,
        })
    }
}

const BAD_STATUS: &str = "`status` must be `active`, `disabled`, `expired` or `revoked`.";

impl HttpNoun for ApiKey {
    fn narrow(filter: &mut KeyFilter, caller: &Governor) {
        filter.within = caller.access.group;
    }

    async fn judge(api: &Api, caller: &Governor, id: KeyId) -> Result<(), Error<Forbidden>> {
        api.management.judge_key(caller, id).await
    }

    async fn place(
        api: &Api,
        caller: &Governor,
        settings: &mut KeyPatch,
        is_new: bool,
    ) -> Result<(), ApiError> {
        let judged = api.management.place_key(caller, settings, is_new).await;
        judged.map_err(|error| forbidden(error, Refused::BadGroup("group_id", BadGroup::Unknown)))
    }
}

/// Gives a key a new plaintext, which only this response shows.
pub(crate) async fn rotate(
    State(api): State<Api>,
    Caller(caller): Caller,
    path: PathId<KeyId>,
    request: Request,
) -> Result<Response, ApiError> {
    let idempotency_key = body::idempotency_key(request.headers(), &caller)?;
    let terms = body::read_rotation(request).await?;
    let id = api.in_reach::<ApiKey>(&caller, &path).await?;
    let Issued { made, secret } = api.by(caller).rotate(id, terms, idempotency_key).await?;
    let now = api.clock.now();
    Ok(match (made, secret) {
        (Made::New(key), Some(secret)) => ok(&with_secret(&key, &secret, now)),
        (Made::New(key) | Made::Existing(key), _) => ok(&key.shown(now)),
        (Made::Replayed(key), _) => ([IDEMPOTENT_REPLAYED], ok(&key.shown(now))).into_response(),
    })
}
