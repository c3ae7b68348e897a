//! Operations that keys, groups, webhooks and alerts share.

pub(crate) mod alerts;
pub(crate) mod groups;
pub(crate) mod keys;
pub(crate) mod payments;
pub(crate) mod webhooks;

use axum::{
    extract::{Request, State},
    response::{IntoResponse, Response},
    routing::{MethodFilter, MethodRouter, on},
};
use http::{StatusCode, header};
use shared::{error::ApiError, wire::NounAct};
use shared_door::http::ok;

use crate::{
    api::Api,
    body::{self, IDEMPOTENT_REPLAYED},
    error::forbidden,
    listing,
    parts::{Caller, PathId},
    query,
    reach::HttpNoun,
};
use key_service_management::{
    Refused,
    governed::{Acting, Issued, Made},
    governor::Governor,
};
use key_service_objects::with_secret;

/// Returns the handler of an operation.
pub(super) fn handler<T: HttpNoun>(act: NounAct, method: MethodFilter) -> MethodRouter<Api> {
    match act {
        NounAct::List => on(method, list::<T>),
        NounAct::Create => on(method, create::<T>),
        NounAct::Fetch => on(method, fetch::<T>),
        NounAct::Update => on(method, update::<T>),
        NounAct::Delete => on(method, end::<T>),
    }
}

impl Api {
    fn by(&self, caller: Governor) -> Acting<'_> {
        self.management.by(caller.account, caller.actor)
    }
}

async fn list<T: HttpNoun>(
    State(api): State<Api>,
    Caller(caller): Caller,
    request: Request,
) -> Result<Response, ApiError> {
    let mut query = query::read::<T>(request.uri().query())?.asked_by(&caller);
    T::narrow(&mut query.filter, &caller);
    listing::respond(api, caller.account, query).await
}

async fn create<T: HttpNoun>(
    State(api): State<Api>,
    Caller(caller): Caller,
    request: Request,
) -> Result<Response, ApiError> {
    let path = body::collection_path(&request);
    let idempotency_key = body::idempotency_key(request.headers(), &caller)?;
    let mut settings: T::Settings = body::read_draft(request).await?;
    T::place(&api, &caller, &mut settings, true).await?;
    let Issued { made, secret } = T::create(api.by(caller.clone()), settings, idempotency_key).await?;
    if let Made::Replayed(object) = &made {
        // The object may have been moved out of the caller's reach after it was created.
        let judged = T::judge(&api, &caller, object.id()).await;
        judged.map_err(|error| forbidden(error, Refused::IdempotencyKeyReused))?;
    }
    let (status, replayed) = match made {
        Made::New(_) => (StatusCode::CREATED, None),
        Made::Existing(_) => (StatusCode::OK, None),
        Made::Replayed(_) => (StatusCode::CREATED, Some([IDEMPOTENT_REPLAYED])),
    };
    let (object, now) = (made.into_inner(), api.clock.now());
    let location = [(header::LOCATION, format!("{path}/{}", object.id()))];
    let body = match secret {
        Some(secret) => ok(&with_secret(&object, &secret, now)),
        None => ok(&object.shown(now)),
    };
    Ok((status, location, replayed, body).into_response())
}

async fn fetch<T: HttpNoun>(
    State(api): State<Api>,
    Caller(caller): Caller,
    path: PathId<T::Id>,
) -> Result<Response, ApiError> {
    let id = api.in_reach::<T>(&caller, &path).await?;
    Ok(ok(&T::fetch(api.by(caller), id).await?.shown(api.clock.now())))
}

async fn update<T: HttpNoun>(
    State(api): State<Api>,
    Caller(caller): Caller,
    path: PathId<T::Id>,
    request: Request,
) -> Result<Response, ApiError> {
    let mut change: T::Settings = body::read_patch(request).await?;
    let id = api.in_reach::<T>(&caller, &path).await?;
    T::place(&api, &caller, &mut change, false).await?;
    Ok(ok(&T::update(api.by(caller), id, change).await?.shown(api.clock.now())))
}

async fn end<T: HttpNoun>(
    State(api): State<Api>,
    Caller(caller): Caller,
    path: PathId<T::Id>,
) -> Result<Response, ApiError> {
    let id = api.in_reach::<T>(&caller, &path).await?;
    Ok(ok(&T::end(api.by(caller), id).await?.shown(api.clock.now())))
}
