//! Extractors for the parts of a request's head.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, Path};
use http::request::Parts;
use shared::{
    admission::Owner,
    error::ApiError,
    ids::{AccountId, KeyId},
    process::{http::bearer, serve::ConnectionTrust},
};
use tracing::{Span, field::display};

use super::Api;
use crate::management::KeyRefused;

/// Account of the management key in the request. The first argument of every handler, so that a missing credential is
/// the first error reported.
pub(super) struct Caller(pub(super) AccountId);

impl FromRequestParts<Api> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let (account, key) = api.management.authenticate(bearer(&parts.headers)?).await?;
        // The span of the request, which is also that of the log line.
        let span = Span::current();
        span.record("account", display(account)).record("management_key", display(key));
        ConnectionTrust::of(&parts.extensions).grant(Owner::Account(account));
        Ok(Self(account))
    }
}

/// The key named in the path.
pub(super) struct KeyPath(Option<KeyId>);

impl KeyPath {
    /// The key's id; a malformed id is reported as an unknown key. Called last, since the existence of the key is
    /// checked last.
    pub(super) fn id(&self) -> Result<KeyId, ApiError> {
        self.0.ok_or_else(|| KeyRefused::NotFound.into())
    }
}

impl FromRequestParts<Api> for KeyPath {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Infallible> {
        let path = Path::<String>::from_request_parts(parts, api).await;
        Ok(Self(path.ok().and_then(|Path(text)| text.parse().ok())))
    }
}
