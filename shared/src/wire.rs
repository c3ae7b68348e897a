//! The management API on the wire: types that the key-service reads and writes, and the gateway describes.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;

use crate::{ids::KeyId, money::NanoUsd, time::Timestamp};

/// Path of an account's API keys.
pub const KEYS: &str = "/v1/management/keys";
/// Longest label in Unicode code points.
pub const MAX_LABEL_CHARS: usize = 80;
/// Largest limit of a key.
pub const MAX_LIMIT: NanoUsd = NanoUsd::from_usd(MAX_LIMIT_USD);
const MAX_LIMIT_USD: i64 = 1_000_000;
/// Longest idempotency key in characters; clients send UUIDs.
pub const MAX_IDEMPOTENCY_KEY_CHARS: usize = 255;
/// Largest page of a listing.
pub const MAX_PAGE: usize = 1000;
/// Statuses of a key, computed on read.
pub const STATUSES: [&str; 3] = ["active", "expired", "revoked"];
/// Orders of a listing, by the end that comes first; the default is first.
pub const ORDERS: [&str; 2] = ["desc", "asc"];

/// An API key. Every member is always present, null where there is nothing to say; `key` alone appears once, when the key
/// is made.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ApiKey")]
pub struct KeyObject<'a> {
    /// Names the key for good.
    pub id: KeyId,
    /// `api_key`
    #[schemars(extend("const" = "api_key"))]
    pub object: &'static str,
    /// Name chosen by the owner.
    #[schemars(length(max = MAX_LABEL_CHARS))]
    pub label: &'a str,
    /// First and last characters of the plaintext.
    pub key_hint: &'a str,
    /// `revoked`, else `expired`, else `active`.
    #[schemars(extend("enum" = STATUSES))]
    pub status: &'static str,
    /// Most that the key may ever spend; null is no limit.
    pub limit: Option<NanoUsd>,
    /// Amount spent so far.
    pub used: NanoUsd,
    /// `limit - used`, below zero if the limit was lowered below `used`.
    pub limit_remaining: Option<NanoUsd>,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of expiry; null is never.
    pub expires_at: Option<Timestamp>,
    /// Time of the last billed request.
    pub last_used_at: Option<Timestamp>,
    /// Time of the revocation.
    pub revoked_at: Option<Timestamp>,
    /// The plaintext.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<&'a str>,
}

/// A listing of API keys, written piece by piece.
#[derive(JsonSchema)]
#[schemars(rename = "ApiKeyList")]
#[expect(
    dead_code,
    reason = "it is described as a whole and never made: a listing is streamed in constant memory"
)]
pub struct KeyList<'a> {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    data: Vec<KeyObject<'a>>,
    first_id: Option<KeyId>,
    last_id: Option<KeyId>,
    has_more: bool,
}

/// Fields for making or changing a key, checked by the key-service.
pub struct KeyFields<const NEW: bool>;

impl<const NEW: bool> JsonSchema for KeyFields<NEW> {
    fn schema_name() -> Cow<'static, str> {
        if NEW { "NewApiKey" } else { "ApiKeyChange" }.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "label": {"type": "string", "maxLength": MAX_LABEL_CHARS, "pattern": r"^[^\x00-\x1f\x7f-\x9f]*$"},
                "limit": {"type": ["number", "null"], "minimum": 0, "maximum": MAX_LIMIT_USD, "description": "US dollars."},
                "expires_at": {"type": ["string", "null"], "format": "date-time"},
            },
        })
    }
}
