//! Building blocks for the description of a route.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::error::Code;

/// Media type of most bodies.
pub const JSON: &str = "application/json";

/// Description of a route and method.
pub struct Operation(Map<String, Value>);

impl Operation {
    /// Starts the description of an operation that has no request and no responses yet. Generated clients use `id` as
    /// its name.
    pub fn new(id: &str, summary: &str) -> Self {
        let Value::Object(members) =
            json!({"operationId": id, "summary": summary, "security": [], "responses": {}})
        else {
            return Self(Map::new());
        };
        Self(members)
    }

    #[must_use]
    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.0.insert(name.into(), value);
        self
    }

    /// Requires a credential of this security scheme.
    #[must_use]
    pub fn secured(self, scheme: &str) -> Self {
        self.with("security", json!([{ scheme: [] }]))
    }

    /// Accepts a body of this type.
    #[must_use]
    pub fn takes<T: JsonSchema>(self, schemas: &mut SchemaGenerator) -> Self {
        self.takes_body(&schemas.subschema_for::<T>(), &["application/json"], true)
    }

    /// Accepts a body of this schema, in any of these media types.
    #[must_use]
    pub fn takes_body(self, schema: &Schema, media_types: &[&str], is_required: bool) -> Self {
        let content: Map<String, Value> =
            media_types.iter().map(|name| ((*name).to_owned(), json!({"schema": schema}))).collect();
        self.with("requestBody", json!({"required": is_required, "content": content}))
    }

    /// Responds with this type and status.
    #[must_use]
    pub fn answers<T: JsonSchema>(
        self,
        schemas: &mut SchemaGenerator,
        status: u16,
        headers: &[&str],
    ) -> Self {
        let schema = schemas.subschema_for::<T>();
        self.responds(status, "The result.", &json!({"application/json": {"schema": schema}}), headers)
    }

    /// Responds with this content and status, and these headers in addition to the request id.
    #[must_use]
    pub fn responds(mut self, status: u16, description: &str, content: &Value, headers: &[&str]) -> Self {
        let headers: Map<String, Value> =
            ["x-request-id"].iter().chain(headers).map(|name| header(name)).collect();
        let response = json!({"description": description, "headers": headers, "content": content});
        if let Some(responses) = self.0.get_mut("responses").and_then(Value::as_object_mut) {
            responses.insert(status.to_string(), response);
        }
        self
    }

    /// Responds with these errors: one response for each status.
    #[must_use]
    pub fn refuses(mut self, codes: &[Code]) -> Self {
        let mut statuses: Vec<u16> = codes.iter().map(|code| code.status().as_u16()).collect();
        statuses.sort_unstable();
        statuses.dedup();
        for status in statuses {
            let of_status = || codes.iter().filter(move |code| code.status().as_u16() == status);
            let names: Vec<&str> = of_status().map(|code| code.as_str()).collect();
            let headers: &[&str] = match status {
                401 | 403 => &["WWW-Authenticate"],
                409 => &["x-should-retry"],
                _ if of_status().any(|code| code.retry_after().is_some()) => &["Retry-After"],
                _ => &[],
            };
            let schema = json!({"allOf": [
                {"$ref": "#/components/schemas/Error"},
                {"properties": {"error": {"properties": {"code": {"enum": names}}}}},
            ]});
            let content = json!({"application/json": {"schema": schema}});
            self = self.responds(status, &names.join(", "), &content, headers);
        }
        self
    }

    /// Returns the JSON value for this path and method.
    pub fn into_value(self) -> Value {
        Value::Object(self.0)
    }
}

/// Returns a response header's name with its description. Only the request id is in every response.
fn header(name: &str) -> (String, Value) {
    let schema = match name {
        "x-request-id" => {
            json!({"required": true, "schema": {"type": "string", "pattern": "^req_[0-9a-f]{32}$"}})
        }
        "Retry-After" | "x-max-tokens" => json!({"schema": {"type": "integer", "minimum": 1}}),
        _ if name.starts_with("x-ratelimit-") && !name.contains("reset") => {
            json!({"schema": {"type": "integer", "minimum": 0}})
        }
        "x-generation-id" => json!({"schema": {"type": "string", "pattern": "^gen_[0-9a-f]{32}$"}}),
        _ => json!({"schema": {"type": "string"}}),
    };
    (name.to_owned(), schema)
}
