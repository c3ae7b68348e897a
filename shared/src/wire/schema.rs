//! Schemas of the objects in the management API. They are made from the table of fields.

use std::{borrow::Cow, marker::PhantomData};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use super::{
    bounds::MAX_GRACE_SECONDS,
    event::EventObject,
    field::{AlertField, Field, Fields, GroupField, KeyField, Kind, WebhookField},
    kind::{described, properties},
    noun::Noun,
    operator::{AccountObject, ManagementKeyObject, MemberObject},
    reading::{BillObject, OwnGroup, PaymentObject, RefusalObject},
};
use crate::{
    ids::{
        AccountId, AlertId, DepositId, EventId, GenerationId, GroupId, KeyId, ManagementKeyId, MemberId,
        RefusalId, WebhookId,
    },
    timing::time::Timestamp,
};

/// An object of the management API: its fields, and the members that come before them.
pub trait Object {
    type Fields: Fields;
    type Id: JsonSchema;
    const NAME: &'static str;
    const OBJECT: &'static str;
    const NOUN: Noun;
    /// A member that is only in answers that show a new plaintext or secret, and its description.
    const ONCE: Option<(&'static str, &'static str)>;
}

pub struct KeyObject;

impl Object for KeyObject {
    type Fields = KeyField;
    type Id = KeyId;
    const NAME: &'static str = "ApiKey";
    const OBJECT: &'static str = "api_key";
    const NOUN: Noun = Noun::Key;
    const ONCE: Option<(&'static str, &'static str)> =
        Some(("key", "The plaintext, only when the key is created or rotated."));
}

/// A group of API keys, which share limits.
pub struct GroupObject;

impl Object for GroupObject {
    type Fields = GroupField;
    type Id = GroupId;
    const NAME: &'static str = "Group";
    const OBJECT: &'static str = "group";
    const NOUN: Noun = Noun::Group;
    const ONCE: Option<(&'static str, &'static str)> = None;
}

/// An address to which events are sent.
pub struct WebhookObject;

impl Object for WebhookObject {
    type Fields = WebhookField;
    type Id = WebhookId;
    const NAME: &'static str = "Webhook";
    const OBJECT: &'static str = "webhook";
    const NOUN: Noun = Noun::Webhook;
    const ONCE: Option<(&'static str, &'static str)> =
        Some(("secret", "The secret that signs deliveries, only when the webhook is created."));
}

pub struct AlertObject;

impl Object for AlertObject {
    type Fields = AlertField;
    type Id = AlertId;
    const NAME: &'static str = "Alert";
    const OBJECT: &'static str = "alert";
    const NOUN: Noun = Noun::Alert;
    const ONCE: Option<(&'static str, &'static str)> = None;
}

crate::schema!(KeyObject, KeyObject::NAME, answered::<KeyObject>);
crate::schema!(GroupObject, GroupObject::NAME, answered::<GroupObject>);
crate::schema!(WebhookObject, WebhookObject::NAME, answered::<WebhookObject>);
crate::schema!(AlertObject, AlertObject::NAME, answered::<AlertObject>);

/// Returns the schema that an object has in answers.
fn answered<O: Object>(schemas: &mut SchemaGenerator) -> Schema {
    let id = described(schemas.subschema_for::<O::Id>(), "Permanent identifier.");
    let (fields, names) = properties(schemas, O::Fields::all(), Kind::answered);
    let mut members = Map::from_iter([
        ("id".to_owned(), id),
        ("object".to_owned(), json!({"type": "string", "const": O::OBJECT})),
    ]);
    members.extend(fields);
    let required: Vec<&str> = ["id", "object"].into_iter().chain(names).collect();
    if let Some((name, description)) = O::ONCE {
        members.insert(name.into(), json!({"type": "string", "description": description}));
    }
    json_schema!({"type": "object", "properties": members, "required": required})
}

/// An API key as its holder sees it.
pub(super) struct OwnKey;

crate::schema!(OwnKey, "OwnApiKey", own_key_schema);

fn own_key_schema(schemas: &mut SchemaGenerator) -> Schema {
    let group = schemas.subschema_for::<Option<OwnGroup>>();
    json_schema!({"allOf": [
        schemas.subschema_for::<KeyObject>(),
        {"type": "object", "properties": {"group": group}, "required": ["group"]},
    ]})
}

pub(super) trait Listable: JsonSchema {
    /// Type of the ids that the list uses as cursors.
    type Id: JsonSchema;
    /// True if the oldest objects are dropped after some time. Lists of such objects have `complete_since`.
    const IS_DROPPED: bool = false;
}

impl Listable for KeyObject {
    type Id = KeyId;
}

impl Listable for GroupObject {
    type Id = GroupId;
}

impl Listable for WebhookObject {
    type Id = WebhookId;
}

impl Listable for AccountObject<'_> {
    type Id = AccountId;
}

impl Listable for ManagementKeyObject<'_> {
    type Id = ManagementKeyId;
}

impl Listable for MemberObject<'_> {
    type Id = MemberId;
}

impl Listable for PaymentObject<'_> {
    type Id = DepositId;
}

impl Listable for AlertObject {
    type Id = AlertId;
}

impl Listable for BillObject<'_> {
    type Id = GenerationId;
}

impl Listable for RefusalObject<'_> {
    type Id = RefusalId;
    const IS_DROPPED: bool = true;
}

impl Listable for EventObject {
    type Id = EventId;
    const IS_DROPPED: bool = true;
}

pub(super) struct List<O>(PhantomData<O>);

impl<O: Listable> JsonSchema for List<O> {
    fn schema_name() -> Cow<'static, str> {
        format!("{}List", O::schema_name()).into()
    }

    fn json_schema(schemas: &mut SchemaGenerator) -> Schema {
        let id = schemas.subschema_for::<Option<O::Id>>();
        let mut list = json_schema!({
            "type": "object",
            "description": "A listing.",
            "properties": {
                "object": {"type": "string", "const": "list"},
                "data": schemas.subschema_for::<Vec<O>>(),
                "first_id": id,
                "last_id": id,
                "has_more": {"type": "boolean"},
            },
            "required": ["object", "data", "first_id", "last_id", "has_more"],
        });
        if O::IS_DROPPED {
            let mut since = schemas.subschema_for::<Option<Timestamp>>();
            let told =
                "The list is complete since this time; older objects were dropped. Null if none was dropped.";
            since.insert("description".to_owned(), told.into());
            if let Some(properties) = list.get_mut("properties").and_then(serde_json::Value::as_object_mut) {
                properties.insert("complete_since".to_owned(), since.into());
            }
            if let Some(required) = list.get_mut("required").and_then(serde_json::Value::as_array_mut) {
                required.push("complete_since".into());
            }
        }
        list
    }
}

/// The body of a request that rotates a key.
pub(super) struct Rotation;

crate::schema!(Rotation, "ApiKeyRotation", rotation_schema);

fn rotation_schema(_: &mut SchemaGenerator) -> Schema {
    let grace = "Seconds for which the previous plaintext keeps working.";
    let force = "Rotate even if the plaintext from before the last rotation still works. It then stops working at \
                 once.";
    json_schema!({"type": "object", "additionalProperties": false, "properties": {
        "grace_seconds": {
            "type": "integer", "minimum": 0, "maximum": MAX_GRACE_SECONDS, "default": 0, "description": grace,
        },
        "force": {"type": "boolean", "default": false, "description": force},
    }})
}

/// The body of a request that creates an object (`NEW`) or changes one.
pub(super) struct Body<O, const NEW: bool>(PhantomData<O>);

impl<O: Object, const NEW: bool> JsonSchema for Body<O, NEW> {
    fn schema_name() -> Cow<'static, str> {
        if NEW { format!("New{}", O::NAME) } else { format!("{}Change", O::NAME) }.into()
    }

    fn json_schema(schemas: &mut SchemaGenerator) -> Schema {
        settable::<O::Fields>(schemas, NEW)
    }
}

/// Schema of a body with the settings of an object that is new, or that exists.
pub(super) fn settable<F: Fields>(schemas: &mut SchemaGenerator, is_new: bool) -> Schema {
    let rows = || F::settings().map(Fields::row).filter(|row| is_new || !row.is_fixed);
    let schema = |row: Field| (row.name.to_owned(), described(row.kind.requested(schemas), row.description));
    let properties: Map<String, Value> = rows().map(schema).collect();
    let required: Vec<_> = rows().filter(|row| is_new && row.is_required).map(|row| row.name).collect();
    json_schema!({
        "type": "object", "additionalProperties": false, "properties": properties, "required": required,
    })
}
