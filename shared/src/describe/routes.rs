//! Descriptions of the management API, of the route that shows an API key to its holder, and of the operator API, built
//! from the lists of routes.

use http::Method;
use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

use super::{
    codes::{BODY, NO_CREDENTIAL, OURS},
    operation::{JSON, Operation},
};
use crate::{
    error::Code,
    wire::{
        Endpoint, MAX_IDEMPOTENCY_KEY_CHARS, MAX_PAGE, OPERATOR_PAGE, OPERATOR_ROUTES, ORDERS,
        OperatorEndpoint, ROUTES, Reach, Route,
    },
};

/// The API that a route is described for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ApiOf {
    Management,
    Operator,
}

/// Errors for a management key that may not make this call.
const MANAGEMENT_KEY: [Code; 5] = [
    Code::InvalidManagementKey,
    Code::KeyExpired,
    Code::AccountClosed,
    Code::ManagementKeyRequired,
    Code::OperatorKeyNotAllowed,
];
/// Errors for an operator key that may not make this call.
const OPERATOR_KEY: [Code; 5] = [
    Code::InvalidOperatorKey,
    Code::KeyExpired,
    Code::OperatorKeyRequired,
    Code::OperatorScopeMissing,
    Code::OperatorNetworkNotAllowed,
];
/// Errors for the holder of an API key who asks about the key.
const HOLDER: [Code; 8] = [
    Code::InvalidApiKey,
    Code::AccountSuspended,
    Code::AccountClosed,
    Code::KeyDisabled,
    Code::KeyExpired,
    Code::GroupArchived,
    Code::ManagementKeyNotAllowed,
    Code::OperatorKeyNotAllowed,
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

/// Describes the management API, and the route that shows an API key to its holder.
pub fn add_management(paths: &mut Map<String, Value>, schemas: &mut SchemaGenerator) {
    for route in &ROUTES {
        add(paths, route.path(), (route, ApiOf::Management), schemas);
    }
}

/// Describes the routes of the operator API, by path.
pub(super) fn operator_paths(schemas: &mut SchemaGenerator) -> Map<String, Value> {
    let mut paths = Map::new();
    for route in OPERATOR_ROUTES.iter().chain(&ROUTES) {
        if let Some(path) = route.operator_path() {
            add(&mut paths, path, (route, ApiOf::Operator), schemas);
        }
    }
    paths
}

fn add(
    paths: &mut Map<String, Value>,
    path: String,
    (route, api): (&Route, ApiOf),
    schemas: &mut SchemaGenerator,
) {
    let of_account = path.contains("{account}");
    let operations = paths.entry(path).or_insert_with(|| json!({}));
    let mut parameters = Vec::new();
    if of_account {
        let says = "Id of the account, or `external:` and its percent-encoded external id.";
        let account = json!({"type": "string", "minLength": 1, "description": says});
        parameters.push(json!({"name": "account", "in": "path", "required": true, "schema": account}));
    }
    if let Some((id, ..)) = route.named {
        parameters.push(json!({"name": "id", "in": "path", "required": true, "schema": id(schemas)}));
    }
    if !parameters.is_empty() {
        operations["parameters"] = parameters.into();
    }
    operations[route.method().as_str().to_lowercase()] = operation(route, api, schemas);
}

fn operation(route: &Route, api: ApiOf, schemas: &mut SchemaGenerator) -> Value {
    let scheme = match (api, route.reach) {
        (ApiOf::Operator, _) | (ApiOf::Management, Reach::Installation) => "operatorKey",
        (ApiOf::Management, Reach::Holder) => "apiKey",
        (ApiOf::Management, Reach::Keys | Reach::Account) => "managementKey",
    };
    // Both documents may be given to one generator of clients, so their operations have different names.
    let is_of_account = api == ApiOf::Operator && route.reach != Reach::Installation;
    let id = if is_of_account { format!("{}OfAccount", route.id) } else { route.id.to_owned() };
    let mut operation = Operation::new(&id, route.summary).secured(scheme);
    let parameters = parameters(route, api, schemas);
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
    operation.refuses(&codes(route, api)).into_value()
}

fn parameters(route: &Route, api: ApiOf, schemas: &mut SchemaGenerator) -> Vec<Value> {
    let query = |name: &str, schema: Value| json!({"name": name, "in": "query", "schema": schema});
    let mut parameters = Vec::new();
    if let Some(cursor) = route.cursor {
        let size = match api {
            ApiOf::Management => {
                let all =
                    "Maximum number of items on a page. Without this parameter, the answer has all items.";
                json!({"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "description": all})
            }
            ApiOf::Operator => json!({"type": "integer", "minimum": 1, "maximum": MAX_PAGE,
                "default": OPERATOR_PAGE, "description": "Maximum number of items on a page."}),
        };
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
fn codes(route: &Route, api: ApiOf) -> Vec<Code> {
    let credential: &[Code] = match (api, route.reach) {
        (ApiOf::Operator, _) | (ApiOf::Management, Reach::Installation) => &OPERATOR_KEY,
        (ApiOf::Management, Reach::Holder) => &HOLDER,
        (ApiOf::Management, Reach::Keys | Reach::Account) => &MANAGEMENT_KEY,
    };
    let mut codes = [&NO_CREDENTIAL[..], credential, &OURS, route.refuses].concat();
    match api {
        ApiOf::Operator => {
            if route.operator_path().is_some_and(|path| path.contains("{account}")) {
                codes.push(Code::AccountNotFound);
                let serves_closed = matches!(
                    route.endpoint,
                    Endpoint::Operator(OperatorEndpoint::CloseAccount | OperatorEndpoint::Refund)
                );
                if !route.method().is_safe() && !serves_closed {
                    codes.push(Code::AccountEnded);
                }
            }
        }
        ApiOf::Management => {
            if route.reach == Reach::Account {
                codes.push(Code::GroupKeyNotAllowed);
            }
            if !route.method().is_safe() {
                codes.extend([Code::ReadOnlyKey, Code::AccountReadOnly]);
            }
        }
    }
    codes.extend(route.named.map(|(_, unknown, _)| unknown));
    if route.cursor.is_some() {
        codes.extend(PAGE);
    }
    if route.body.is_some() {
        codes.extend(BODY);
        // While the store is full, refunds and suspensions still work.
        let needs_room = !matches!(
            route.endpoint,
            Endpoint::RefundGroup
                | Endpoint::Operator(OperatorEndpoint::Refund | OperatorEndpoint::SuspendAccount)
        );
        codes.extend(needs_room.then_some(Code::StoreFull));
        let reads_settings = matches!(
            route.endpoint,
            Endpoint::Of(..) | Endpoint::Operator(_) | Endpoint::PayGroup | Endpoint::RefundGroup
        );
        if reads_settings {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_store_refuses_neither_refunds_nor_suspensions() {
        let full = |route: &&Route| codes(route, ApiOf::Operator).contains(&Code::StoreFull);
        let refused: Vec<Endpoint> =
            ROUTES.iter().chain(&OPERATOR_ROUTES).filter(full).map(|route| route.endpoint).collect();
        for endpoint in [
            Endpoint::RefundGroup,
            Endpoint::Operator(OperatorEndpoint::Refund),
            Endpoint::Operator(OperatorEndpoint::SuspendAccount),
        ] {
            assert!(!refused.contains(&endpoint), "{endpoint:?}");
        }
        for endpoint in [Endpoint::PayGroup, Endpoint::Operator(OperatorEndpoint::Pay)] {
            assert!(refused.contains(&endpoint), "{endpoint:?}");
        }
    }
}
