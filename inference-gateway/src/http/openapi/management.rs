//! Descriptions of the management API, and of the route that shows an API key to its holder, built from the list of
//! routes.

use axum::http::Method;
use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};
use shared::{
    error::Code,
    wire::{Endpoint, MAX_IDEMPOTENCY_KEY_CHARS, MAX_PAGE, ORDERS, ROUTES, Reach, Route},
};

use super::{
    codes::{BODY, NO_CREDENTIAL, OURS},
    operation::{JSON, Operation},
};

/// Errors for a management key that may not make this call.
const MANAGEMENT_KEY: [Code; 3] = [Code::InvalidManagementKey, Code::KeyExpired, Code::ManagementKeyRequired];
/// Errors for the holder of an API key who asks about the key.
const HOLDER: [Code; 5] = [
    Code::InvalidApiKey,
    Code::KeyDisabled,
    Code::KeyExpired,
    Code::GroupArchived,
    Code::ManagementKeyNotAllowed,
];
/// Errors of settings in a body.
const SETTINGS: [Code; 13] = [
    Code::MissingRequiredParameter,
    Code::InvalidType,
    Code::InvalidValue,
    Code::IntegerBelowMinValue,
    Code::IntegerAboveMaxValue,
    Code::DecimalBelowMinValue,
    Code::DecimalAboveMaxValue,
    Code::StringAboveMaxLength,
    Code::ArrayAboveMaxLength,
    Code::ObjectAboveMaxProperties,
    Code::EmptyArray,
    Code::EmptyString,
    Code::UnknownParameter,
];
/// Errors of a page's query.
const PAGE: [Code; 3] = [Code::InvalidValue, Code::IntegerBelowMinValue, Code::IntegerAboveMaxValue];
/// Errors of an idempotency key.
const IDEMPOTENCY_KEY: [Code; 4] =
    [Code::IdempotencyKeyReuse, Code::InvalidValue, Code::EmptyString, Code::StringAboveMaxLength];

const MERGE_PATCH: &str = "application/merge-patch+json";

pub(super) fn add(paths: &mut Map<String, Value>, schemas: &mut SchemaGenerator) {
    for route in &ROUTES {
        let operations = paths.entry(route.path()).or_insert_with(|| json!({}));
        if let Some((id, ..)) = route.named {
            let id = id(schemas);
            operations["parameters"] = json!([{"name": "id", "in": "path", "required": true, "schema": id}]);
        }
        operations[route.method().as_str().to_lowercase()] = operation(route, schemas);
    }
}

fn operation(route: &Route, schemas: &mut SchemaGenerator) -> Value {
    let scheme = if route.reach == Reach::Holder { "apiKey" } else { "managementKey" };
    let mut operation = Operation::new(route.id, route.summary).secured(scheme);
    let parameters = parameters(route, schemas);
    if !parameters.is_empty() {
        operation = operation.with("parameters", parameters.into());
    }
    if let Some(body) = route.body {
        let types: &[&str] = if route.method() == Method::PATCH { &[JSON, MERGE_PATCH] } else { &[JSON] };
        // A rotation without a body uses the defaults.
        let is_required = route.endpoint != Endpoint::RotateKey;
        operation = operation.takes_body(&body(schemas), types, is_required);
    }
    for (status, headers) in route.statuses {
        let content = json!({JSON: {"schema": (route.answer)(schemas)}});
        operation = operation.responds(*status, "The result.", &content, headers);
    }
    operation.refuses(&codes(route)).into_value()
}

fn parameters(route: &Route, schemas: &mut SchemaGenerator) -> Vec<Value> {
    let query = |name: &str, schema: Value| json!({"name": name, "in": "query", "schema": schema});
    let mut parameters = Vec::new();
    if let Some(cursor) = route.cursor {
        let all = "Maximum number of items on a page. Without this parameter, the answer has all items.";
        let size = json!({"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "description": all});
        parameters.push(query("limit", size));
        parameters.push(query("after", cursor(schemas).to_value()));
        parameters.push(query("order", json!({"enum": ORDERS, "default": ORDERS[0]})));
    }
    for parameter in route.query {
        let mut described = query(parameter.name, (parameter.schema)(schemas).to_value());
        if parameter.name == "metadata" {
            described["style"] = "deepObject".into();
            described["explode"] = true.into();
        }
        parameters.push(described);
    }
    if route.is_idempotent() {
        parameters.push(json!({
            "name": "Idempotency-Key",
            "in": "header",
            "schema": {"type": "string", "pattern": format!("^[!-~]{{1,{MAX_IDEMPOTENCY_KEY_CHARS}}}$")},
            "description": "Makes a retry safe: repeating a request with the same key and body creates nothing twice.",
        }));
    }
    parameters
}

/// Returns the errors of a route, each once.
fn codes(route: &Route) -> Vec<Code> {
    let credential: &[Code] = match route.reach {
        Reach::Holder => &HOLDER,
        Reach::Keys | Reach::Account => &MANAGEMENT_KEY,
    };
    let mut codes = [&NO_CREDENTIAL[..], credential, &OURS, route.refuses].concat();
    if route.reach == Reach::Account {
        codes.push(Code::GroupKeyNotAllowed);
    }
    if !route.method().is_safe() {
        codes.push(Code::ReadOnlyKey);
    }
    codes.extend(route.named.map(|(_, unknown, _)| unknown));
    if route.cursor.is_some() {
        codes.extend(PAGE);
    }
    if route.body.is_some() {
        codes.extend(BODY.iter().chain(&[Code::StoreFull]));
        if matches!(route.endpoint, Endpoint::Of(..)) {
            codes.extend(SETTINGS);
        }
    }
    if route.is_idempotent() {
        codes.extend(IDEMPOTENCY_KEY);
    }
    let mut once = Vec::new();
    for code in codes {
        if !once.contains(&code) {
            once.push(code);
        }
    }
    once
}
