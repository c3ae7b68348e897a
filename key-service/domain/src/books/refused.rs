//! An account's latest refused calls, and filters for them.

use std::sync::Arc;

use minicbor::{Decode, Encode};
use serde::Serialize;
use shared::{
    generation::Origin,
    ids::{KeyId, RefusalId, RequestId},
    time::Timestamp,
};

/// A refused call of a known key. The log `refused calls` keeps the latest thousand.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct RefusedCall {
    /// Id, which starts with the time of the call.
    #[n(0)]
    pub id: RefusalId,
    #[n(1)]
    pub key: KeyId,
    /// Error code in the public API.
    #[n(2)]
    pub reason: String,
    /// The requested model; `None` if the key may not make calls at all, which is checked first.
    #[n(3)]
    pub model: Option<String>,
    /// How the caller sent the request; `None` if no model is known, or if the gateway did not report it.
    #[cbor(n(4), with = "shared::stored::shared_value", has_nil)]
    pub origin: Option<Arc<Origin>>,
}

impl RefusedCall {
    pub fn at(&self) -> Timestamp {
        self.id.created_at()
    }

    /// Returns the user that the caller sent, if it is known.
    pub fn user(&self) -> Option<&str> {
        self.origin.as_ref()?.user.as_deref()
    }

    /// Returns the request that was refused, if it is known.
    pub fn request(&self) -> Option<RequestId> {
        self.origin.as_ref()?.request
    }
}

/// Filter for refused calls; `None` matches any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedSearch {
    pub key: Option<KeyId>,
    /// Error code in the public API.
    pub reason: Option<String>,
    pub model: Option<String>,
    /// The user that the caller sent.
    pub user: Option<String>,
    pub request: Option<RequestId>,
    /// Refused at or after this instant.
    pub begins: Option<Timestamp>,
    /// Refused before this instant.
    pub ends: Option<Timestamp>,
}

impl RefusedSearch {
    /// Returns whether a call matches.
    pub fn matches(&self, call: &RefusedCall) -> bool {
        self.key.is_none_or(|key| key == call.key)
            && self.reason.as_ref().is_none_or(|reason| *reason == call.reason)
            && self.model.as_ref().is_none_or(|model| Some(model) == call.model.as_ref())
            && self.user.as_deref().is_none_or(|user| Some(user) == call.user())
            && self.request.is_none_or(|request| Some(request) == call.request())
            && self.begins.is_none_or(|begins| begins <= call.at())
            && self.ends.is_none_or(|ends| call.at() < ends)
    }
}
