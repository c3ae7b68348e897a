//! Extractors for the parts of a request's head.

use std::{convert::Infallible, str::FromStr};

use axum::extract::{FromRequestParts, Path};
use http::request::Parts;
use shared::{
    error::ApiError,
    wire::{Reach, Route},
};
use shared_door::{admission::Owner, http::bearer, serve::ConnectionTrust};
use tracing::{Span, field::display};

use super::{api::Api, error::forbidden};
use domain::{
    access::{Effect, Subject},
    event::Actor,
};
use key_service_management::{OwnKey, governor::Governor};
use key_service_store::store::ManagementKey;

/// The caller's management key, which is allowed to use this route. The handler still checks whether the key may reach
/// the objects. This is the first argument of every handler. So a missing credential is reported first, then a missing
/// right, and then other errors.
pub(super) struct Caller(pub(super) Governor);

impl FromRequestParts<Api> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let (account, key) = api.management.authenticate(bearer(&parts.headers)?).await?;
        // The current span is the request's: its fields appear in the request's log line.
        let span = Span::current();
        span.record("account", display(account)).record("management_key", display(key.id));
        ConnectionTrust::of(&parts.extensions).grant(Owner::Account(account));
        let effect = if parts.method.is_safe() { Effect::Read } else { Effect::Write };
        let subject = match parts.extensions.get::<&Route>().map(|route| route.reach) {
            Some(Reach::Keys) => Subject::Keys,
            Some(Reach::Account | Reach::Holder) | None => Subject::Account,
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

/// The object named in the path.
pub(super) struct PathId<I>(Option<I>);

impl<I: Copy> PathId<I> {
    /// Returns the object's id. A malformed id is reported like an unknown object. Handlers call this last, because a
    /// request's other errors are reported before an unknown object.
    pub(super) fn or(&self, unknown: impl Into<ApiError>) -> Result<I, ApiError> {
        self.0.ok_or_else(|| unknown.into())
    }
}

impl<I: FromStr + Send> FromRequestParts<Api> for PathId<I> {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Infallible> {
        let path = Path::<String>::from_request_parts(parts, api).await;
        Ok(Self(path.ok().and_then(|Path(text)| text.parse().ok())))
    }
}
