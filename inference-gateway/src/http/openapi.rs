//! `GET /openapi.json`: every public route, described by the types that are read and written.

use answer::schema::{
    ChunkSchema, CompletionSchema, EmbeddingsObject, MessageErrorSchema, MessageObject, ResponseObject,
};
use request::{
    chat::ChatRequest,
    embeddings::EmbeddingsRequest,
    messages::{CountRequest, MessagesRequest},
    responses::ResponsesRequest,
};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};
use shared::error::{Code, ErrorBody};

mod codes;
mod management;
mod operation;

use super::{
    count_tokens::TokenCount,
    describe::{About, Health, Models},
    model_pages::{CodexModels, ModelObject, ModelPage, PagedModel},
    rate_headers,
};
use codes::{BODY, NO_CREDENTIAL, OURS};
pub(super) use operation::JSON;
use operation::Operation;

/// Errors for an API key that cannot make calls at present.
const KEY: [Code; 8] = [
    Code::InvalidApiKey,
    Code::KeyDisabled,
    Code::KeyExpired,
    Code::GroupArchived,
    Code::ManagementKeyNotAllowed,
    Code::KeyLimitReached,
    Code::GroupLimitReached,
    Code::InsufficientCredits,
];
/// Errors in the content of a chat request.
const CHAT: [Code; 21] = [
    Code::MissingRequiredParameter,
    Code::InvalidType,
    Code::InvalidValue,
    Code::IntegerBelowMinValue,
    Code::IntegerAboveMaxValue,
    Code::DecimalBelowMinValue,
    Code::DecimalAboveMaxValue,
    Code::StringAboveMaxLength,
    Code::ArrayAboveMaxLength,
    Code::EmptyArray,
    Code::EmptyString,
    Code::UnsupportedParameter,
    Code::UnsupportedValue,
    Code::ContextLengthExceeded,
    Code::ModelNotFound,
    Code::ModelNotAllowed,
    Code::SpendReserved,
    Code::RateLimitExceeded,
    Code::UpstreamError,
    Code::UpstreamUnavailable,
    Code::UpstreamTimeout,
];
/// Errors of a model call.
const MODEL_CALL: [&[Code]; 5] = [&NO_CREDENTIAL, &KEY, &BODY, &CHAT, &OURS];

pub(super) type Describe = fn(&mut SchemaGenerator) -> Value;

/// Builds the description of these routes (path, method and operation) and of the management API.
pub(super) fn document(routes: impl Iterator<Item = (&'static str, &'static str, Describe)>) -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schemas = settings.with(|s| s.definitions_path = "/components/schemas".into()).into_generator();
    let mut paths = Map::new();
    for (path, method, describe) in routes {
        paths.insert(path.to_owned(), json!({method: describe(&mut schemas)}));
    }
    management::add(&mut paths, &mut schemas);
    schemas.subschema_for::<ErrorBody<'_>>();
    // Schema of each event of a stream. OpenAPI 3.1 has no place for it in the description of the stream.
    schemas.subschema_for::<ChunkSchema>();
    let bearer = |description: &str| json!({"type": "http", "scheme": "bearer", "description": description});
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Faregate", "version": env!("CARGO_PKG_VERSION")},
        "paths": paths,
        "components": {
            "schemas": schemas.take_definitions(true),
            "securitySchemes": {
                "apiKey": bearer("An API key makes model calls."),
                "managementKey": bearer("A management key manages API keys."),
            },
        },
    })
}

/// Describes a route that returns information about the service.
pub(super) fn about(schemas: &mut SchemaGenerator, id: &str) -> Value {
    let operation = Operation::new(id, "About this service.").answers::<About<'_>>(schemas, 200, &[]);
    operation.refuses(&[Code::InternalError, Code::Overloaded]).into_value()
}

pub(super) fn health(schemas: &mut SchemaGenerator) -> Value {
    let operation = Operation::new("health", "Health of this gateway.").answers::<Health>(schemas, 200, &[]);
    // This 503 is not an error: a stopping gateway reports this health.
    operation.answers::<Health>(schemas, 503, &[]).refuses(&[Code::InternalError]).into_value()
}

pub(super) fn description(_: &mut SchemaGenerator) -> Value {
    let content = json!({JSON: {"schema": {"type": "object"}}});
    let operation =
        Operation::new("openapi", "This description.").responds(200, "The description.", &content, &[]);
    operation.refuses(&[Code::InternalError, Code::Overloaded]).into_value()
}

pub(super) fn models(schemas: &mut SchemaGenerator) -> Value {
    let operation = Operation::new("listModels", "All models that the key may use.").secured("apiKey");
    let version = "Version of Codex. With this parameter, the list has the format that Codex reads.";
    let parameters = json!([{"name": "client_version", "in": "query", "schema": {"type": "string"}, "description": version}]);
    let operation = operation.with("parameters", parameters);
    let content = json!({JSON: {"schema": {"anyOf": [
        schemas.subschema_for::<Models<'_>>(), schemas.subschema_for::<ModelPage<'_>>(),
        schemas.subschema_for::<CodexModels<'_>>(),
    ]}}});
    let operation = operation.responds(
        200,
        "All models; with the header `anthropic-version`, one page of them.",
        &content,
        &[],
    );
    operation.refuses(&[&NO_CREDENTIAL[..], &KEY, &OURS].concat()).into_value()
}

pub(super) fn model(schemas: &mut SchemaGenerator) -> Value {
    let parameters =
        json!([{"name": "id", "in": "path", "required": true, "schema": {"type": "string", "minLength": 1}}]);
    let operation = Operation::new("retrieveModel", "One model.").secured("apiKey");
    let operation = operation.with("parameters", parameters);
    let content = json!({JSON: {"schema": {"anyOf": [
        schemas.subschema_for::<ModelObject<'_>>(), schemas.subschema_for::<PagedModel<'_>>(),
    ]}}});
    let operation = operation.responds(
        200,
        "The model; with the header `anthropic-version`, it has more members.",
        &content,
        &[],
    );
    let codes = [&NO_CREDENTIAL[..], &KEY, &[Code::ModelNotFound, Code::UnknownUrl], &OURS].concat();
    operation.refuses(&codes).into_value()
}

pub(super) fn chat(schemas: &mut SchemaGenerator) -> Value {
    let events = "With `stream`: events, each with a ChatCompletionChunk as data, and finally `[DONE]`. A failure is \
        an event with an Error, without `[DONE]`.";
    let operation = call::<ChatRequest, CompletionSchema>(schemas, "createChatCompletion", events);
    let plain = "A `Content-Encoding` other than `identity` is refused with 415.";
    operation.with("description", plain.into()).refuses(&MODEL_CALL.concat()).into_value()
}

pub(super) fn response(schemas: &mut SchemaGenerator) -> Value {
    let events = "With `stream`: events of the Responses API, each with a `sequence_number`; the last is one of \
        `response.completed`, `response.incomplete` and `response.failed`, with the whole response.";
    let operation = call::<ResponsesRequest, ResponseObject>(schemas, "createResponse", events);
    operation.refuses(&MODEL_CALL.concat()).into_value()
}

pub(super) fn message(schemas: &mut SchemaGenerator) -> Value {
    let events = "With `stream`: events of the Messages API, ending with `message_stop`. A failure is an `error` event.";
    let operation = call::<MessagesRequest, MessageObject>(schemas, "createMessage", events);
    refuses_in_messages(operation, schemas).into_value()
}

pub(super) fn embeddings(schemas: &mut SchemaGenerator) -> Value {
    let operation = Operation::new("createEmbeddings", "Embed texts.").secured("apiKey");
    let operation = operation.takes::<EmbeddingsRequest>(schemas);
    let content = json!({JSON: {"schema": schemas.subschema_for::<EmbeddingsObject<'_>>()}});
    let operation = operation.responds(200, "The vectors.", &content, &call_headers());
    operation.refuses(&MODEL_CALL.concat()).into_value()
}

pub(super) fn count_tokens(schemas: &mut SchemaGenerator) -> Value {
    let operation = Operation::new("countMessageTokens", "Count the tokens of a prompt.").secured("apiKey");
    let operation =
        operation.takes::<CountRequest>(schemas).answers::<TokenCount>(schemas, 200, &["request-id"]);
    refuses_in_messages(operation, schemas).into_value()
}

/// Lists the headers of the answer to a model call.
fn call_headers() -> Vec<&'static str> {
    let own = ["x-generation-id", "x-max-tokens", "x-dropped-tools", "x-dropped-members"];
    own.into_iter().chain(rate_headers::NAMES).collect()
}

/// Describes a model call whose answer may be a stream.
fn call<Q: JsonSchema, A: JsonSchema>(schemas: &mut SchemaGenerator, id: &str, events: &str) -> Operation {
    let content = json!({
        JSON: {"schema": schemas.subschema_for::<A>()},
        "text/event-stream": {"schema": {"type": "string", "description": events}},
    });
    let operation = Operation::new(id, "The model's answer.").secured("apiKey").takes::<Q>(schemas);
    operation.responds(200, "The answer.", &content, &call_headers())
}

/// Adds the errors of model calls in the form of the Messages API.
fn refuses_in_messages(operation: Operation, schemas: &mut SchemaGenerator) -> Operation {
    let schema = schemas.subschema_for::<MessageErrorSchema>();
    let content = json!({JSON: {"schema": schema}});
    [400, 401, 402, 403, 404, 413, 415, 429, 500, 502, 504, 529]
        .into_iter()
        .fold(operation, |operation, status| {
            operation.responds(status, "An error.", &content, &["request-id"])
        })
}
