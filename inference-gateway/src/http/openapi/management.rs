//! Description of the management API, and of the route that shows an API key to its holder.

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};
use shared::{
    error::Code,
    ids::{EventId, GenerationId, GroupId, KeyId, WebhookId},
    wire::{
        AttemptList, BillObject, Body, CREDITS, Credits, EVENT_TYPES, EVENTS, EventObject, GENERATIONS,
        GROUPS, GroupObject, KEYS, KeyObject, List, MAX_EXTERNAL_ID_CHARS, MAX_IDEMPOTENCY_KEY_CHARS,
        MAX_PAGE, ORDERS, OWN_KEY, OwnKey, RevokedKeys, Rotation, STATUSES, USAGE, UsageList, WEBHOOKS,
        WebhookObject,
    },
};

use super::{BODY, JSON, NO_CREDENTIAL, OURS, Operation};

/// Errors of a management key that may not call.
const MANAGEMENT_KEY: [Code; 3] = [Code::InvalidManagementKey, Code::KeyExpired, Code::ManagementKeyRequired];
/// Errors of an API key whose holder asks for the key.
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
/// Errors of a listing's query.
const QUERY: [Code; 3] = [Code::InvalidValue, Code::IntegerBelowMinValue, Code::IntegerAboveMaxValue];

const MERGE_PATCH: &str = "application/merge-patch+json";

/// The routes, each with its operations.
pub(super) fn paths(schemas: &mut SchemaGenerator) -> [(String, Value); 16] {
    let of = |path: &str, below: &str| format!("{path}/{{id}}{below}");
    [
        (KEYS.into(), json!({"get": list_keys(schemas), "post": create_key(schemas)})),
        (of(KEYS, ""), key(schemas)),
        (of(KEYS, "/rotate"), below::<KeyId>(schemas, "post", rotate_key)),
        (GROUPS.into(), json!({"get": list_groups(schemas), "post": create_group(schemas)})),
        (of(GROUPS, ""), group(schemas)),
        (of(GROUPS, "/keys"), below::<GroupId>(schemas, "get", keys_of_group)),
        (of(GROUPS, "/revoke_keys"), below::<GroupId>(schemas, "post", revoke_keys)),
        (WEBHOOKS.into(), json!({"get": list_webhooks(schemas), "post": create_webhook(schemas)})),
        (of(WEBHOOKS, ""), webhook(schemas)),
        (of(WEBHOOKS, "/deliveries"), below::<WebhookId>(schemas, "get", deliveries)),
        (of(WEBHOOKS, "/test"), below::<WebhookId>(schemas, "post", test_webhook)),
        (CREDITS.into(), json!({"get": credits(schemas)})),
        (USAGE.into(), json!({"get": usage(schemas)})),
        (GENERATIONS.into(), json!({"get": list_generations(schemas)})),
        (EVENTS.into(), json!({"get": list_events(schemas)})),
        (of(GENERATIONS, ""), below::<GenerationId>(schemas, "get", generation)),
    ]
}

/// The route that shows an API key to its holder.
pub(super) fn own_key(schemas: &mut SchemaGenerator) -> (&'static str, Value) {
    let summary =
        "The API key that asks, with its group. No use of the key, and answered when no money is left, too.";
    let operation = Operation::new("retrieveOwnApiKey", summary).secured("apiKey");
    let operation = operation.answers::<OwnKey>(schemas, 200, &[]);
    let codes = [&NO_CREDENTIAL[..], &HOLDER, &OURS].concat();
    (OWN_KEY, json!({"get": operation.refuses(&codes).into_value()}))
}

/// Operations on the object that the path names.
fn below<I: JsonSchema>(
    schemas: &mut SchemaGenerator,
    method: &str,
    operation: fn(&mut SchemaGenerator) -> Value,
) -> Value {
    json!({"parameters": named::<I>(schemas), method: operation(schemas)})
}

fn named<I: JsonSchema>(schemas: &mut SchemaGenerator) -> Value {
    json!([{"name": "id", "in": "path", "required": true, "schema": schemas.subschema_for::<I>()}])
}

fn query(name: &str, schema: &Value) -> Value {
    json!({"name": name, "in": "query", "schema": schema})
}

/// Parameters of every listing, and `more`.
fn paged<I: JsonSchema>(schemas: &mut SchemaGenerator, more: impl IntoIterator<Item = Value>) -> Value {
    let size = json!({"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "description": "Without it, all of them."});
    let common = [
        query("limit", &size),
        query("after", schemas.subschema_for::<I>().as_value()),
        query("order", &json!({"enum": ORDERS, "default": ORDERS[0]})),
    ];
    common.into_iter().chain(more).collect()
}

/// Filter by the caller's own texts: `metadata[name]=value`.
fn metadata() -> Value {
    json!({
        "name": "metadata",
        "in": "query",
        "style": "deepObject",
        "explode": true,
        "schema": {"type": "object", "additionalProperties": {"type": "string"}},
    })
}

/// Filter by a key or a group.
fn by<I: JsonSchema>(schemas: &mut SchemaGenerator, name: &str) -> Value {
    query(name, schemas.subschema_for::<I>().as_value())
}

/// First and last time: a date means the whole day.
fn times() -> [Value; 2] {
    ["start", "end"]
        .map(|name| query(name, &json!({"type": "string", "description": "A date, or a date and time."})))
}

fn list_keys(schemas: &mut SchemaGenerator) -> Value {
    let filters =
        [query("status", &json!({"enum": STATUSES})), by::<GroupId>(schemas, "group_id"), metadata()];
    let parameters = paged::<KeyId>(schemas, filters);
    let operation = governs("listApiKeys", "The API keys, revoked ones included.");
    let operation = operation.with("parameters", parameters).answers::<List<KeyObject>>(schemas, 200, &[]);
    operation.refuses(&reading(&QUERY)).into_value()
}

/// Header of a request that is carried out once.
fn idempotency_key() -> Value {
    json!({
        "name": "Idempotency-Key",
        "in": "header",
        "schema": {"type": "string", "pattern": format!("^[!-~]{{1,{MAX_IDEMPOTENCY_KEY_CHARS}}}$")},
        "description": "A request with the same key and body makes nothing a second time.",
    })
}

fn create_key(schemas: &mut SchemaGenerator) -> Value {
    let operation = governs("createApiKey", "A new API key; its plaintext is shown this once.");
    let operation = operation
        .with("parameters", json!([idempotency_key()]))
        .takes::<Body<KeyObject, true>>(schemas, &[JSON]);
    let headers = ["Location", "Cache-Control", "Idempotent-Replayed"];
    let operation = operation.answers::<KeyObject>(schemas, 201, &headers);
    let own = [Code::IdempotencyKeyReuse, Code::TooManyKeys, Code::ArchivedGroup, Code::StoreFull];
    operation.refuses(&writing(&[&BODY[..], &SETTINGS, &own].concat())).into_value()
}

fn key(schemas: &mut SchemaGenerator) -> Value {
    let fetch = governs("retrieveApiKey", "An API key.").answers::<KeyObject>(schemas, 200, &[]);
    let summary =
        "Changes an API key: what is absent stays, null clears (RFC 7396). `group_id` moves the key.";
    let update = governs("updateApiKey", summary);
    let update = update.takes::<Body<KeyObject, false>>(schemas, &[JSON, MERGE_PATCH]);
    let own =
        [Code::GroupKeyNotAllowed, Code::KeyNotFound, Code::KeyRevoked, Code::ArchivedGroup, Code::StoreFull];
    let revoke =
        governs("revokeApiKey", "Revokes an API key for good.").answers::<KeyObject>(schemas, 200, &[]);
    json!({
        "parameters": named::<KeyId>(schemas),
        "get": fetch.refuses(&reading(&[Code::KeyNotFound])).into_value(),
        "patch": update
            .answers::<KeyObject>(schemas, 200, &[])
            .refuses(&writing(&[&BODY[..], &SETTINGS, &own].concat()))
            .into_value(),
        "delete": revoke.refuses(&writing(&[Code::KeyNotFound])).into_value(),
    })
}

fn rotate_key(schemas: &mut SchemaGenerator) -> Value {
    let summary =
        "Gives an API key a new plaintext, shown this once; the one before works for `grace_seconds` more.";
    let operation = governs("rotateApiKey", summary).with("parameters", json!([idempotency_key()]));
    let operation = operation.takes::<Rotation>(schemas, &[JSON]).whose_body_may_be_absent();
    let operation = operation.answers::<KeyObject>(schemas, 200, &["Cache-Control", "Idempotent-Replayed"]);
    let of_body =
        [Code::InvalidType, Code::IntegerBelowMinValue, Code::IntegerAboveMaxValue, Code::UnknownParameter];
    let of_header = [Code::InvalidValue, Code::EmptyString, Code::StringAboveMaxLength];
    let own = [
        Code::KeyNotFound,
        Code::KeyRevoked,
        Code::ExpiredKey,
        Code::RotationInProgress,
        Code::IdempotencyKeyReuse,
        Code::StoreFull,
    ];
    operation.refuses(&writing(&[&BODY[..], &of_body, &of_header, &own].concat())).into_value()
}

fn list_groups(schemas: &mut SchemaGenerator) -> Value {
    let external_id = json!({"type": "string", "maxLength": MAX_EXTERNAL_ID_CHARS});
    let parameters = paged::<GroupId>(schemas, [query("external_id", &external_id), metadata()]);
    let operation = governs("listGroups", "The groups, archived ones included.");
    let operation = operation.with("parameters", parameters).answers::<List<GroupObject>>(schemas, 200, &[]);
    operation
        .refuses(&reading(&[&QUERY[..], &[Code::StringAboveMaxLength, Code::GroupKeyNotAllowed]].concat()))
        .into_value()
}

fn create_group(schemas: &mut SchemaGenerator) -> Value {
    let summary =
        "A new group. A group with the `external_id` that exists is answered with 200, and stays as it is.";
    let operation = governs("createGroup", summary).with("parameters", json!([idempotency_key()]));
    let operation = operation.takes::<Body<GroupObject, true>>(schemas, &[JSON]);
    let operation = operation.answers::<GroupObject>(schemas, 200, &["Location"]);
    let operation = operation.answers::<GroupObject>(schemas, 201, &["Location", "Idempotent-Replayed"]);
    let own = [
        Code::GroupKeyNotAllowed,
        Code::IdempotencyKeyReuse,
        Code::TooManyGroups,
        Code::ArchivedGroup,
        Code::StoreFull,
    ];
    operation.refuses(&writing(&[&BODY[..], &SETTINGS, &own].concat())).into_value()
}

fn group(schemas: &mut SchemaGenerator) -> Value {
    let fetch = governs("retrieveGroup", "A group.").answers::<GroupObject>(schemas, 200, &[]);
    let update = governs("updateGroup", "Changes a group: what is absent stays, null clears (RFC 7396).");
    let update = update.takes::<Body<GroupObject, false>>(schemas, &[JSON, MERGE_PATCH]);
    let unreached = [Code::GroupKeyNotAllowed, Code::GroupNotFound];
    let own = [&unreached[..], &[Code::ArchivedGroup, Code::StoreFull]].concat();
    let summary = "Archives a group for good: its keys and those of its child groups are refused.";
    let archive = governs("archiveGroup", summary).answers::<GroupObject>(schemas, 200, &[]);
    json!({
        "parameters": named::<GroupId>(schemas),
        "get": fetch.refuses(&reading(&unreached)).into_value(),
        "patch": update
            .answers::<GroupObject>(schemas, 200, &[])
            .refuses(&writing(&[&BODY[..], &SETTINGS, &own].concat()))
            .into_value(),
        "delete": archive.refuses(&writing(&unreached)).into_value(),
    })
}

fn keys_of_group(schemas: &mut SchemaGenerator) -> Value {
    let parameters = paged::<KeyId>(schemas, [query("status", &json!({"enum": STATUSES})), metadata()]);
    let operation =
        governs("listKeysOfGroup", "The API keys of a group; those of child groups are not among them.");
    let operation = operation.with("parameters", parameters).answers::<List<KeyObject>>(schemas, 200, &[]);
    operation.refuses(&reading(&[&QUERY[..], &[Code::GroupNotFound]].concat())).into_value()
}

fn revoke_keys(schemas: &mut SchemaGenerator) -> Value {
    let operation = governs("revokeKeysOfGroup", "Revokes all API keys of a group for good.");
    let operation = operation.answers::<RevokedKeys>(schemas, 200, &[]);
    operation.refuses(&writing(&[Code::GroupNotFound])).into_value()
}

fn list_webhooks(schemas: &mut SchemaGenerator) -> Value {
    let parameters = paged::<WebhookId>(schemas, []);
    let operation = governs("listWebhooks", "The webhooks.").with("parameters", parameters);
    let operation = operation.answers::<List<WebhookObject>>(schemas, 200, &[]);
    operation.refuses(&reading(&[&QUERY[..], &[Code::GroupKeyNotAllowed]].concat())).into_value()
}

fn create_webhook(schemas: &mut SchemaGenerator) -> Value {
    let summary = "A new webhook, which gets later events; the secret that signs them is shown this once.";
    let operation = governs("createWebhook", summary).with("parameters", json!([idempotency_key()]));
    let operation = operation.takes::<Body<WebhookObject, true>>(schemas, &[JSON]);
    let headers = ["Location", "Cache-Control", "Idempotent-Replayed"];
    let operation = operation.answers::<WebhookObject>(schemas, 201, &headers);
    // Not found is a repetition whose webhook was removed since.
    let own = [
        Code::GroupKeyNotAllowed,
        Code::WebhookNotFound,
        Code::IdempotencyKeyReuse,
        Code::TooManyWebhooks,
        Code::StoreFull,
    ];
    operation.refuses(&writing(&[&BODY[..], &SETTINGS, &own].concat())).into_value()
}

fn webhook(schemas: &mut SchemaGenerator) -> Value {
    let fetch = governs("retrieveWebhook", "A webhook.").answers::<WebhookObject>(schemas, 200, &[]);
    let update = governs("updateWebhook", "Changes a webhook: what is absent stays, null clears (RFC 7396).");
    let update = update.takes::<Body<WebhookObject, false>>(schemas, &[JSON, MERGE_PATCH]);
    let summary = "Removes a webhook, with the deliveries on their way.";
    let delete = governs("deleteWebhook", summary).answers::<WebhookObject>(schemas, 200, &[]);
    let unreached = [Code::GroupKeyNotAllowed, Code::WebhookNotFound];
    json!({
        "parameters": named::<WebhookId>(schemas),
        "get": fetch.refuses(&reading(&unreached)).into_value(),
        "patch": update
            .answers::<WebhookObject>(schemas, 200, &[])
            .refuses(&writing(&[&BODY[..], &SETTINGS, &unreached, &[Code::StoreFull]].concat()))
            .into_value(),
        "delete": delete.refuses(&writing(&unreached)).into_value(),
    })
}

fn deliveries(schemas: &mut SchemaGenerator) -> Value {
    let operation = governs("listWebhookDeliveries", "The last attempts to deliver events, newest first.");
    let operation = operation.answers::<AttemptList<'_>>(schemas, 200, &[]);
    operation.refuses(&reading(&[Code::GroupKeyNotAllowed, Code::WebhookNotFound])).into_value()
}

fn test_webhook(schemas: &mut SchemaGenerator) -> Value {
    let summary = "Sends an event of type `webhook.test`, once, and answers with it.";
    let operation = governs("testWebhook", summary).answers::<EventObject>(schemas, 200, &[]);
    let own = [Code::GroupKeyNotAllowed, Code::WebhookNotFound, Code::StoreFull];
    operation.refuses(&writing(&own)).into_value()
}

fn credits(schemas: &mut SchemaGenerator) -> Value {
    let operation = governs("retrieveCredits", "The account's money.").answers::<Credits>(schemas, 200, &[]);
    operation.refuses(&reading(&[Code::GroupKeyNotAllowed])).into_value()
}

fn usage(schemas: &mut SchemaGenerator) -> Value {
    let group_by = json!({
        "type": "string",
        "pattern": "^(day|key|group|model)(,(day|key|group|model))*$",
        "description": "Sums are apart by these; without it, one sum.",
    });
    let filters =
        [query("group_by", &group_by), by::<KeyId>(schemas, "key_id"), by::<GroupId>(schemas, "group_id")];
    let parameters: Value = times().into_iter().chain(filters).collect();
    let operation =
        governs("listUsage", "Sums of usage, of the last 30 days without `start`; at most 400 days.");
    let operation = operation.with("parameters", parameters).answers::<UsageList<'_>>(schemas, 200, &[]);
    operation.refuses(&reading(&[Code::InvalidValue])).into_value()
}

fn list_generations(schemas: &mut SchemaGenerator) -> Value {
    let filters = [
        by::<KeyId>(schemas, "key_id"),
        by::<GroupId>(schemas, "group_id"),
        query("model", &json!({"type": "string"})),
    ];
    let parameters = paged::<GenerationId>(schemas, filters.into_iter().chain(times()));
    let operation = governs("listGenerations", "The bills of generations, in the order of the bills.");
    let operation =
        operation.with("parameters", parameters).answers::<List<BillObject<'_>>>(schemas, 200, &[]);
    operation.refuses(&reading(&QUERY)).into_value()
}

fn list_events(schemas: &mut SchemaGenerator) -> Value {
    let filters = [
        query("type", &json!({"enum": EVENT_TYPES})),
        by::<KeyId>(schemas, "key_id"),
        by::<GroupId>(schemas, "group_id"),
    ];
    let parameters = paged::<EventId>(schemas, filters);
    let operation = governs("listEvents", "Who governed what, and which thresholds were passed.");
    let operation = operation.with("parameters", parameters).answers::<List<EventObject>>(schemas, 200, &[]);
    operation.refuses(&reading(&[&QUERY[..], &[Code::GroupKeyNotAllowed]].concat())).into_value()
}

fn generation(schemas: &mut SchemaGenerator) -> Value {
    let operation = governs("retrieveGeneration", "The bill of a generation.");
    let operation = operation.answers::<BillObject<'_>>(schemas, 200, &[]);
    operation.refuses(&reading(&[Code::GenerationNotFound])).into_value()
}

fn governs(id: &str, summary: &str) -> Operation {
    Operation::new(id, summary).secured("managementKey")
}

/// Errors of an operation that changes something.
fn writing(more: &[Code]) -> Vec<Code> {
    reading(&[&[Code::ReadOnlyKey], more].concat())
}

/// Errors of an operation that only reads.
fn reading(more: &[Code]) -> Vec<Code> {
    [&NO_CREDENTIAL[..], &MANAGEMENT_KEY, &OURS, more].concat()
}
