//! The management API on the wire: types that the key-service reads and writes, and the gateway describes.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, json};

use crate::{ids::KeyId, money::NanoUsd};

mod field;
mod value;

pub use field::{Field, Input, KeyField, Kind};
pub use value::{Kept, Value};

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

/// Schema of an API key in answers.
pub struct KeySchema;

impl JsonSchema for KeySchema {
    fn schema_name() -> Cow<'static, str> {
        "ApiKey".into()
    }

    fn json_schema(schemas: &mut SchemaGenerator) -> Schema {
        let (mut properties, mut required) = (Map::new(), vec!["id", "object"]);
        let id = schemas.subschema_for::<KeyId>();
        properties.insert("id".into(), described(id, "Names the key for good."));
        properties.insert("object".into(), json!({"type": "string", "const": "api_key"}));
        for field in KeyField::ALL.iter().map(|field| field.row()) {
            properties.insert(field.name.into(), described(field.kind.answered(schemas), field.description));
            required.push(field.name);
        }
        let plaintext = json!({"type": "string", "description": "The plaintext, where the key is made."});
        properties.insert("key".into(), plaintext);
        let description =
            "An API key. Every member but `key` is always present, null where there is nothing to say.";
        json_schema!({"type": "object", "description": description, "properties": properties, "required": required})
    }
}

/// A listing of API keys.
#[derive(JsonSchema)]
#[schemars(rename = "ApiKeyList")]
#[expect(
    dead_code,
    reason = "a listing is described as a whole, and written piece by piece in constant memory"
)]
pub struct KeyList {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    data: Vec<KeySchema>,
    first_id: Option<KeyId>,
    last_id: Option<KeyId>,
    has_more: bool,
}

/// Schema of a body that makes an API key (`NEW`) or changes one.
pub struct KeyBody<const NEW: bool>;

impl<const NEW: bool> JsonSchema for KeyBody<NEW> {
    fn schema_name() -> Cow<'static, str> {
        if NEW { "NewApiKey" } else { "ApiKeyChange" }.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let settings = KeyField::ALL.iter().filter_map(|field| {
            let field = field.row();
            Some((field.name.to_owned(), described(field.kind.requested()?, field.description)))
        });
        let properties: Map<String, serde_json::Value> = settings.collect();
        json_schema!({"type": "object", "additionalProperties": false, "properties": properties})
    }
}

fn described(mut schema: Schema, description: &str) -> serde_json::Value {
    schema.insert("description".into(), description.into());
    schema.to_value()
}
