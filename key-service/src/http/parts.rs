//! The parts of a request's head that are read before its body.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, Path};
use http::request::Parts;
use shared::{
    error::ApiError,
    http::bearer,
    ids::{AccountId, KeyId},
    serve::ConnectionTrust,
};
use tracing::{Span, field::display};

use super::Api;
use crate::management::KeyRefused;

/// The account whose management key came with the request. First among a handler's arguments: a caller who may not
/// call always hears that first.
pub(super) struct Caller(pub(super) AccountId);

impl FromRequestParts<Api> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let (account, key) = api.management.authenticate(bearer(&parts.headers)?).await?;
        // The request's own, which its log line is written in.
        let span = Span::current();
        span.record("account", display(account)).record("management_key", display(key));
        ConnectionTrust::of(&parts.extensions).grant();
        Ok(Self(account))
    }
}

/// The key that the path names.
pub(super) struct KeyPath(Option<KeyId>);

impl KeyPath {
    /// Its id; text that is no id names no key. Asked for last, since whether the key exists is checked last.
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
