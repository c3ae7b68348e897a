//! Descriptions of APIs in OpenAPI 3.1. The gateway describes its routes and the management API, and the key-service
//! describes the operator API.

mod codes;
mod operation;
mod routes;

use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Value, json};

use crate::error::ErrorBody;
pub use codes::{BODY, NO_CREDENTIAL, OURS};
pub use operation::{JSON, Operation};
pub use routes::add_management;

/// Makes the schemas of a description.
pub fn schemas() -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings.with(|settings| settings.definitions_path = "/components/schemas".into()).into_generator()
}

/// Describes a security scheme with bearer tokens.
pub fn bearer(description: &str) -> Value {
    json!({"type": "http", "scheme": "bearer", "description": description})
}

pub fn operator_api(version: &str) -> Value {
    let mut schemas = schemas();
    let paths = routes::operator_paths(&mut schemas);
    schemas.subschema_for::<ErrorBody<'_>>();
    let key = bearer("An operator key governs the installation.");
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Faregate for operators", "version": version},
        "paths": paths,
        "components": {"schemas": schemas.take_definitions(true), "securitySchemes": {"operatorKey": key}},
    })
}
