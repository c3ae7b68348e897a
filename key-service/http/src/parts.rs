//! Extractors for the parts of a request's head.

use std::{convert::Infallible, str::FromStr};

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;
use shared::{error::ApiError, wire::Reach};
use shared_door::{admission::Owner, http::bearer, serve::ConnectionTrust};
use tracing::{Span, field::display};

use super::{
    api::Api,
    error::{forbidden, read_only},
    operator_caller::account_and_governor,
    served_route::{Door, ServedRoute},
};
use domain::{
    access::{Effect, Subject},
    event::Actor,
};
use key_service_management::{OwnKey, governor::Governor};
use key_service_store::store::ManagementKey;

/// The caller's management key, or the operator key that governs the account in the path. The key is allowed to use this
/// route. The handler still checks whether the key may reach the objects. This is the first argument of every handler. So
/// a missing credential is reported first, then a missing right, and then other errors.
pub(super) struct Caller(pub(super) Governor);

impl FromRequestParts<Api> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let served = parts.extensions.get::<ServedRoute>().copied();
        if served.is_some_and(|served| served.door == Door::Operator) {
            let (_, governor) = account_and_governor(parts, api).await?;
            return Ok(Self(governor));
        }
        let (account, key, standing) = api.management.authenticate(bearer(&parts.headers)?).await?;
        // The current span is the request's: its fields appear in the request's log line.
        let span = Span::current();
        span.record("account", display(account)).record("management_key", display(key.id));
        ConnectionTrust::of(&parts.extensions).grant(Owner::Account(account));
        let effect = if parts.method.is_safe() { Effect::Read } else { Effect::Write };
        if standing.is_some() && effect == Effect::Write {
            return Err(read_only());
        }
        let subject = match served.map(|served| served.route.reach) {
            Some(Reach::Keys) => Subject::Keys,
            Some(Reach::Account | Reach::Holder | Reach::Installation) | None => Subject::Account,
        };
        let ManagementKey { id, name, access, .. } = key;
        let actor = Actor::ManagementKey { id, name };
        let governor = Governor { account, actor, access, effect };
        governor.may(subject).map_err(|error| forbidden(error, ApiError::internal()))?;
        Ok(Self(governor))
    }
}

/// The request's API key, with its group and the group's parent.
pub(super) struct Holder(pub(super) OwnKey);

impl FromRequestParts<Api> for Holder {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let own = api.management.own_key(bearer(&parts.headers)?).await?;
        Span::current().record("account", display(own.account));
        ConnectionTrust::of(&parts.extensions).grant(Owner::Account(own.account));
        Ok(Self(own))
    }
}

/// The object that `{id}` in the path names.
pub(super) struct PathId<I>(Option<I>);

impl<I: Clone> PathId<I> {
    /// Returns the object's id. A malformed id is reported like an unknown object. Handlers call this last, because a
    /// request's other errors are reported before an unknown object.
    pub(super) fn or(&self, unknown: impl Into<ApiError>) -> Result<I, ApiError> {
        self.0.clone().ok_or_else(|| unknown.into())
    }
}

impl<I: FromStr + Send> FromRequestParts<Api> for PathId<I> {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Infallible> {
        let params = RawPathParams::from_request_parts(parts, api).await;
        let id = params.as_ref().ok().and_then(|params| params.iter().find(|(name, _)| *name == "id"));
        Ok(Self(id.and_then(|(_, text)| text.parse().ok())))
    }
}
