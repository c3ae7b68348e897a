//! The list of routes of the management API. The key-service's router and the description in `/openapi.json` are made from it.

use http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::{
    AttemptList, BillObject, CREDITS, Credits, EVENT_TYPES, EVENTS, EventObject, GENERATIONS, GroupObject,
    KeyObject, MAX_EXTERNAL_ID_CHARS, OWN_KEY, RevokedKeys, STATUSES, USAGE, UsageList, WebhookObject,
    noun::{Noun, Reach},
    schema::{Body, List, Listable, Object, OwnKey, Rotation},
};
use crate::{
    error::Code,
    ids::{GenerationId, GroupId, KeyId},
};
use Endpoint::Of;
use Parameter::{End, ExternalId, GroupBy, InGroup, Metadata, Model, OfKey, Start, Status, Type};
use Verb::{Delete, Get, Patch, Post};

/// What a route does. A key-service has a handler for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the list describes each")]
pub enum Endpoint {
    /// An act that nouns have in common.
    Of(Noun, NounAct),
    RotateKey,
    KeysOfGroup,
    RevokeKeysOfGroup,
    Deliveries,
    TestWebhook,
    Credits,
    Usage,
    Generations,
    Generation,
    Events,
    OwnKey,
}

/// An act that nouns have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is a word of HTTP APIs")]
pub enum NounAct {
    List,
    Create,
    Fetch,
    Update,
    /// Revokes, archives or removes.
    Delete,
}

/// Makes the schema of a type.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// A route and method.
#[derive(Clone, Copy)]
pub struct Route {
    /// What it does.
    pub endpoint: Endpoint,
    /// Name of the operation in generated clients.
    pub id: &'static str,
    /// Sentence for developers.
    pub summary: &'static str,
    /// Part of the account that it concerns.
    pub reach: Reach,
    /// Path of the noun.
    pub of: &'static str,
    /// The object that the path goes on with, and the rest of the path.
    pub named: Option<(NamedObject, &'static str)>,
    /// Parameters of the query, beside those of a page.
    pub query: &'static [Parameter],
    /// Type of the cursor, where the answer is a page.
    pub cursor: Option<SchemaOf>,
    /// The body, if it has one.
    pub body: Option<RequestBody>,
    /// Is carried out once for each idempotency key.
    pub is_idempotent: bool,
    /// Type of the answer.
    pub answer: SchemaOf,
    /// Status of the answer, and headers beside the request's id.
    pub statuses: &'static [(u16, &'static [&'static str])],
    /// Its errors beside those that follow from the rest of the row.
    pub refuses: &'static [Code],
    verb: Verb,
}

/// An object in a path.
#[derive(Clone, Copy)]
pub struct NamedObject {
    /// Type of the id.
    pub id: SchemaOf,
    /// Error for what the account does not have.
    pub unknown: Code,
}

/// A request's body.
#[derive(Clone, Copy)]
pub struct RequestBody {
    /// Type of the body.
    pub schema: SchemaOf,
    /// It may be sent as a merge patch (RFC 7396), too.
    pub merges: bool,
    /// It may be left out.
    pub is_optional: bool,
    /// Errors of its members.
    pub refuses: &'static [Code],
}

#[derive(Clone, Copy)]
enum Verb {
    Get,
    Post,
    Patch,
    Delete,
}

/// A parameter of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named as in the query, and described by its schema")]
pub enum Parameter {
    Status,
    OfKey,
    InGroup,
    ExternalId,
    Metadata,
    Model,
    Type,
    Start,
    End,
    GroupBy,
}

impl Parameter {
    /// Every parameter.
    pub const ALL: [Self; 10] =
        [Status, OfKey, InGroup, ExternalId, Metadata, Model, Type, Start, End, GroupBy];

    /// Its name, and the type of its values. Metadata are filtered by `metadata[name]=value`.
    pub const fn row(self) -> (&'static str, SchemaOf) {
        const TIME: SchemaOf =
            |_| json_schema!({"type": "string", "description": "A date, or a date and time."});
        match self {
            Status => ("status", |_| json_schema!({"enum": STATUSES})),
            OfKey => ("key_id", SchemaGenerator::subschema_for::<KeyId>),
            InGroup => ("group_id", SchemaGenerator::subschema_for::<GroupId>),
            ExternalId => {
                ("external_id", |_| json_schema!({"type": "string", "maxLength": MAX_EXTERNAL_ID_CHARS}))
            }
            Metadata => {
                ("metadata", |_| json_schema!({"type": "object", "additionalProperties": {"type": "string"}}))
            }
            Model => ("model", |_| json_schema!({"type": "string"})),
            Type => ("type", |_| json_schema!({"enum": EVENT_TYPES})),
            Start => ("start", TIME),
            End => ("end", TIME),
            GroupBy => ("group_by", |_| {
                json_schema!({
                    "type": "string",
                    "pattern": "^(day|key|group|model)(,(day|key|group|model))*$",
                    "description": "Sums are apart by these; without it, one sum.",
                })
            }),
        }
    }
}

impl Route {
    /// Method of the route.
    pub const fn method(&self) -> Method {
        match self.verb {
            Verb::Get => Method::GET,
            Verb::Post => Method::POST,
            Verb::Patch => Method::PATCH,
            Verb::Delete => Method::DELETE,
        }
    }

    /// Path of the route.
    pub fn path(&self) -> String {
        let Self { of, named, .. } = self;
        named.map_or_else(|| (*of).to_owned(), |(_, rest)| format!("{of}/{{id}}{rest}"))
    }

    /// A route that is answered 200 with this type.
    const fn new<A: JsonSchema>(
        verb: Verb,
        endpoint: Endpoint,
        id: &'static str,
        summary: &'static str,
    ) -> Self {
        Self {
            endpoint,
            id,
            summary,
            reach: Reach::Account,
            of: "",
            named: None,
            query: &[],
            cursor: None,
            body: None,
            is_idempotent: false,
            answer: SchemaGenerator::subschema_for::<A>,
            statuses: &[(200, &[])],
            refuses: &[],
            verb,
        }
    }

    const fn at(self, of: &'static str, reach: Reach) -> Self {
        Self { of, reach, ..self }
    }

    const fn on(self, noun: Noun) -> Self {
        self.at(noun.row().path, noun.row().reach)
    }

    /// Puts the route below an object of this noun.
    const fn below<O: Object>(self, rest: &'static str) -> Self {
        let named =
            NamedObject { id: SchemaGenerator::subschema_for::<O::Id>, unknown: O::NOUN.row().unknown.0 };
        Self { named: Some((named, rest)), ..self.on(O::NOUN) }
    }

    const fn by(self, query: &'static [Parameter]) -> Self {
        Self { query, ..self }
    }

    /// Answers with pages, which go on behind an object of this type.
    const fn paged<O: Listable>(self) -> Self {
        Self { cursor: Some(SchemaGenerator::subschema_for::<O::Id>), ..self }
    }

    const fn refusing(self, refuses: &'static [Code]) -> Self {
        Self { refuses, ..self }
    }

    const fn taking<B: JsonSchema>(self, merges: bool, is_optional: bool, refuses: &'static [Code]) -> Self {
        let schema = SchemaGenerator::subschema_for::<B>;
        Self { body: Some(RequestBody { schema, merges, is_optional, refuses }), ..self }
    }
}

const fn list<O: Object + Listable>(id: &'static str, summary: &'static str) -> Route {
    Route::new::<List<O>>(Get, Of(O::NOUN, NounAct::List), id, summary).on(O::NOUN).paged::<O>()
}

const fn create<O: Object + JsonSchema>(id: &'static str, summary: &'static str) -> Route {
    let route = Route::new::<O>(Post, Of(O::NOUN, NounAct::Create), id, summary).on(O::NOUN);
    Route {
        is_idempotent: true,
        statuses: &[(201, &["Location", "Cache-Control", "Idempotent-Replayed"])],
        ..route.taking::<Body<O, true>>(false, false, &SETTINGS)
    }
}

const fn fetch<O: Object + JsonSchema>(id: &'static str, summary: &'static str) -> Route {
    Route::new::<O>(Get, Of(O::NOUN, NounAct::Fetch), id, summary).below::<O>("")
}

const fn update<O: Object + JsonSchema>(id: &'static str, summary: &'static str) -> Route {
    let route = Route::new::<O>(Patch, Of(O::NOUN, NounAct::Update), id, summary).below::<O>("");
    route.taking::<Body<O, false>>(true, false, &SETTINGS)
}

const fn delete<O: Object + JsonSchema>(id: &'static str, summary: &'static str) -> Route {
    Route::new::<O>(Delete, Of(O::NOUN, NounAct::Delete), id, summary).below::<O>("")
}

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

/// Errors of the terms of a rotation.
const TERMS: [Code; 4] =
    [Code::InvalidType, Code::IntegerBelowMinValue, Code::IntegerAboveMaxValue, Code::UnknownParameter];

/// Every route.
pub static ROUTES: [Route; 26] = [
    list::<KeyObject>("listApiKeys", "The API keys, revoked ones included.")
        .by(&[Status, InGroup, Metadata]),
    create::<KeyObject>("createApiKey", "A new API key; its plaintext is shown this once.")
        .refusing(&[Code::TooManyKeys, Code::ArchivedGroup]),
    fetch::<KeyObject>("retrieveApiKey", "An API key."),
    update::<KeyObject>("updateApiKey", "Changes an API key: what is absent stays, null clears (RFC 7396). `group_id` moves the key.")
        .refusing(&[Code::GroupKeyNotAllowed, Code::KeyRevoked, Code::ArchivedGroup]),
    delete::<KeyObject>("revokeApiKey", "Revokes an API key for good."),
    Route {
        is_idempotent: true,
        statuses: &[(200, &["Cache-Control", "Idempotent-Replayed"])],
        refuses: &[Code::KeyRevoked, Code::ExpiredKey, Code::RotationInProgress],
        ..Route::new::<KeyObject>(Post, Endpoint::RotateKey, "rotateApiKey",
            "Gives an API key a new plaintext, shown this once; the one before works for `grace_seconds` more.")
            .below::<KeyObject>("/rotate").taking::<Rotation>(false, true, &TERMS)
    },
    list::<GroupObject>("listGroups", "The groups, archived ones included.")
        .by(&[ExternalId, Metadata]).refusing(&[Code::StringAboveMaxLength]),
    Route {
        statuses: &[(200, &["Location"]), (201, &["Location", "Idempotent-Replayed"])],
        refuses: &[Code::TooManyGroups, Code::ArchivedGroup],
        ..create::<GroupObject>("createGroup",
            "A new group. A group with the `external_id` that exists is answered with 200, and stays as it is.")
    },
    fetch::<GroupObject>("retrieveGroup", "A group."),
    update::<GroupObject>("updateGroup", "Changes a group: what is absent stays, null clears (RFC 7396).")
        .refusing(&[Code::ArchivedGroup]),
    delete::<GroupObject>("archiveGroup",
        "Archives a group for good: its keys and those of its child groups are refused."),
    Route {
        reach: Reach::Keys,
        ..Route::new::<List<KeyObject>>(Get, Endpoint::KeysOfGroup, "listKeysOfGroup",
            "The API keys of a group; those of child groups are not among them.")
            .below::<GroupObject>("/keys").paged::<KeyObject>().by(&[Status, Metadata])
    },
    Route {
        reach: Reach::Keys,
        ..Route::new::<RevokedKeys>(Post, Endpoint::RevokeKeysOfGroup, "revokeKeysOfGroup",
            "Revokes all API keys of a group for good.")
            .below::<GroupObject>("/revoke_keys")
    },
    list::<WebhookObject>("listWebhooks", "The webhooks."),
    // Not found is a repetition whose webhook was removed since.
    create::<WebhookObject>("createWebhook",
        "A new webhook, which gets later events; the secret that signs them is shown this once.")
        .refusing(&[Code::WebhookNotFound, Code::TooManyWebhooks]),
    fetch::<WebhookObject>("retrieveWebhook", "A webhook."),
    update::<WebhookObject>("updateWebhook", "Changes a webhook: what is absent stays, null clears (RFC 7396)."),
    delete::<WebhookObject>("deleteWebhook", "Removes a webhook, with the deliveries on their way."),
    Route::new::<AttemptList<'_>>(Get, Endpoint::Deliveries, "listWebhookDeliveries",
        "The last attempts to deliver events, newest first.")
        .below::<WebhookObject>("/deliveries"),
    Route::new::<EventObject>(Post, Endpoint::TestWebhook, "testWebhook",
        "Sends an event of type `webhook.test`, once, and answers with it.")
        .below::<WebhookObject>("/test").refusing(&[Code::StoreFull]),
    Route::new::<Credits>(Get, Endpoint::Credits, "retrieveCredits", "The account's money.")
        .at(CREDITS, Reach::Account),
    Route::new::<UsageList<'_>>(Get, Endpoint::Usage, "listUsage",
        "Sums of usage, of the last 30 days without `start`; at most 400 days.")
        .at(USAGE, Reach::Keys).by(&[Start, End, GroupBy, OfKey, InGroup]).refusing(&[Code::InvalidValue]),
    Route::new::<List<BillObject<'_>>>(Get, Endpoint::Generations, "listGenerations",
        "The bills of generations, in the order of the bills.")
        .at(GENERATIONS, Reach::Keys).paged::<BillObject<'_>>().by(&[OfKey, InGroup, Model, Start, End]),
    Route {
        named: Some((NamedObject { id: SchemaGenerator::subschema_for::<GenerationId>, unknown: Code::GenerationNotFound }, "")),
        ..Route::new::<BillObject<'_>>(Get, Endpoint::Generation, "retrieveGeneration", "The bill of a generation.")
            .at(GENERATIONS, Reach::Keys)
    },
    Route::new::<List<EventObject>>(Get, Endpoint::Events, "listEvents",
        "Who governed what, and which thresholds were passed.")
        .at(EVENTS, Reach::Account).paged::<EventObject>().by(&[Type, OfKey, InGroup]),
    Route::new::<OwnKey>(Get, Endpoint::OwnKey, "retrieveOwnApiKey",
        "The API key that asks, with its group. No use of the key, and answered when no money is left, too.")
        .at(OWN_KEY, Reach::Holder),
];
