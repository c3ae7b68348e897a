//! The routes of the management API. The key-service's router and `/openapi.json` are made from this list.

use http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::{
    bounds::{MAX_EXTERNAL_ID_CHARS, STATUSES},
    event::{EVENT_TYPES, EventObject},
    money::{GroupPaymentBody, GroupRefundBody},
    noun::{Noun, Reach},
    operator::{OperatorEndpoint, OperatorScope},
    path::{ACCOUNT, CREDITS, EVENTS, GENERATIONS, OWN_KEY, REFUSALS, USAGE},
    reading::{
        AttemptList, BillObject, Credits, MessageList, PaymentObject, RefusalObject, RevokedKeys, UsageList,
    },
    schema::{
        AlertObject, Body, GroupObject, KeyObject, List, Listable, Object, OwnKey, Rotation, WebhookObject,
        settable,
    },
};
use crate::{
    error::Code,
    ids::{GenerationId, GroupId, KeyId, RequestId},
};
use Endpoint::Of;

/// What a route does. The key-service has a handler for each of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// An act that exists for every noun.
    Of(Noun, NounAct),
    RotateKey,
    KeysOfGroup,
    RevokeKeysOfGroup,
    /// Pays into a group's wallet, out of the credit that the account has.
    PayGroup,
    RefundGroup,
    Deliveries,
    TestWebhook,
    AlertMessages,
    TestAlert,
    Credits,
    Usage,
    Generations,
    Generation,
    Refusals,
    Events,
    OwnKey,
    /// A route that only the operator API has.
    Operator(OperatorEndpoint),
}

/// An act that exists for every noun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NounAct {
    List,
    Create,
    Fetch,
    Update,
    /// Revokes a key, archives a group, or removes a webhook or an alert.
    Delete,
}

/// Beginning of the management API's paths.
const MANAGEMENT_ROOT: &str = "/v1/management";

/// A function that makes the schema of a type.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// A route: its method, and its description in the API's reference.
#[derive(Clone, Copy)]
pub struct Route {
    pub endpoint: Endpoint,
    /// Name that the operation has in generated clients.
    pub id: &'static str,
    /// Sentence for developers that describes the route in the API's reference.
    pub summary: &'static str,
    /// The part of the account that the route is about.
    pub reach: Reach,
    /// Path of the noun's objects, with which the route's path begins.
    pub of: &'static str,
    /// If an id follows: the type of the id, the error if no object has it, and the rest of the path after it.
    pub named: Option<(SchemaOf, Code, &'static str)>,
    /// Query parameters, in addition to those for paging.
    pub query: &'static [Parameter],
    /// Type of the cursor if the answer is a page.
    pub cursor: Option<SchemaOf>,
    /// Type of the body, if the route takes one.
    pub body: Option<SchemaOf>,
    /// Type of the answer.
    pub answer: SchemaOf,
    /// Status of the answer, and its headers in addition to the request's id.
    pub statuses: &'static [(u16, &'static [&'static str])],
    /// Errors, in addition to those that follow from the other members.
    pub refuses: &'static [Code],
}

/// A parameter of a query.
#[derive(Clone, Copy)]
pub struct Parameter {
    pub name: &'static str,
    pub schema: SchemaOf,
}

pub(super) const fn parameter(name: &'static str, schema: SchemaOf) -> Parameter {
    Parameter { name, schema }
}

const STATUS: Parameter = parameter("status", |_| json_schema!({"enum": STATUSES}));
const KEY_ID: Parameter = parameter("key_id", SchemaGenerator::subschema_for::<KeyId>);
const GROUP_ID: Parameter = parameter("group_id", SchemaGenerator::subschema_for::<GroupId>);
pub(super) const EXTERNAL_ID: Parameter =
    parameter("external_id", |_| json_schema!({"type": "string", "maxLength": MAX_EXTERNAL_ID_CHARS}));
/// Filters of the form `metadata[name]=value`.
pub(super) const METADATA: Parameter =
    parameter("metadata", |_| json_schema!({"type": "object", "additionalProperties": {"type": "string"}}));
const MODEL: Parameter = parameter("model", |_| json_schema!({"type": "string"}));
const USER: Parameter = parameter("user", |_| json_schema!({"type": "string"}));
const REQUEST_ID: Parameter = parameter("request_id", SchemaGenerator::subschema_for::<RequestId>);
const UPSTREAM: Parameter = parameter("upstream", |_| json_schema!({"type": "string"}));
const ENDING: Parameter = parameter("ending", |_| json_schema!({"enum": ["captured", "expired"]}));
const REASON: Parameter = parameter("reason", |_| json_schema!({"type": "string"}));
const TYPE: Parameter = parameter("type", |_| json_schema!({"enum": EVENT_TYPES}));
const START: Parameter = parameter("start", time);
const END: Parameter = parameter("end", time);
const GROUP_BY: Parameter = parameter("group_by", |_| {
    let description = "What to group the sums by; without this parameter, there is one sum. `hour` covers at most 31 \
        days. Sums by `user` or by `upstream` cover the whole account, and can be grouped further only by `day`.";
    let pattern = "^(day|hour|key|group|top_group|model|user|upstream)\
        (,(day|hour|key|group|top_group|model|user|upstream))*$";
    json_schema!({"type": "string", "pattern": pattern, "description": description})
});

const TOP: Parameter = parameter("top", |_| {
    let description = "Lists only this number of sums, those with the largest cost first, and combines the rest into \
                       one more sum with `others`.";
    json_schema!({"type": "integer", "minimum": 1, "maximum": MAX_TOP, "description": description})
});

/// Maximum number of sums that a request may ask for if it asks for the largest sums.
pub const MAX_TOP: usize = 1_000;

fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "description": "A date, or a date and time."})
}

impl Route {
    pub const fn method(&self) -> Method {
        match self.endpoint {
            Endpoint::Operator(endpoint) => endpoint.method(),
            Of(_, NounAct::Create)
            | Endpoint::RotateKey
            | Endpoint::RevokeKeysOfGroup
            | Endpoint::PayGroup
            | Endpoint::RefundGroup
            | Endpoint::TestWebhook
            | Endpoint::TestAlert => Method::POST,
            Of(_, NounAct::Update) => Method::PATCH,
            Of(_, NounAct::Delete) => Method::DELETE,
            Of(_, NounAct::List | NounAct::Fetch)
            | Endpoint::KeysOfGroup
            | Endpoint::Deliveries
            | Endpoint::AlertMessages
            | Endpoint::Credits
            | Endpoint::Usage
            | Endpoint::Generations
            | Endpoint::Generation
            | Endpoint::Refusals
            | Endpoint::Events
            | Endpoint::OwnKey => Method::GET,
        }
    }

    /// Returns whether requests to the route may carry an idempotency key.
    pub const fn is_idempotent(&self) -> bool {
        matches!(
            self.endpoint,
            Of(_, NounAct::Create)
                | Endpoint::RotateKey
                | Endpoint::Operator(OperatorEndpoint::CreateManagementKey | OperatorEndpoint::InviteMember)
        )
    }

    /// Scopes of operator keys that may use the route. Any of them suffices.
    pub fn scopes(&self) -> &'static [OperatorScope] {
        match self.endpoint {
            Endpoint::Operator(endpoint) => endpoint.scopes(),
            _ if self.method().is_safe() => &[OperatorScope::Read, OperatorScope::Accounts],
            _ => &[OperatorScope::Accounts],
        }
    }

    /// Path at which operators use the route for any account. `None` for the holder's route and for payments into a
    /// group's wallet and refunds from it: operators have their own routes for payments and refunds.
    pub fn operator_path(&self) -> Option<String> {
        match self.endpoint {
            Endpoint::OwnKey | Endpoint::PayGroup | Endpoint::RefundGroup => None,
            Endpoint::Operator(_) => Some(self.path()),
            _ => self.path().strip_prefix(MANAGEMENT_ROOT).map(|rest| format!("{ACCOUNT}{rest}")),
        }
    }

    pub fn path(&self) -> String {
        let Self { of, named, .. } = self;
        named.map_or_else(|| (*of).to_owned(), |(_, _, rest)| format!("{of}/{{id}}{rest}"))
    }

    /// Makes a route that answers 200 with a value of this type.
    pub(super) const fn new<A: JsonSchema>(
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
            answer: SchemaGenerator::subschema_for::<A>,
            statuses: &[(200, &[])],
            refuses: &[],
        }
    }

    pub(super) const fn at(self, of: &'static str, reach: Reach) -> Self {
        Self { reach, of, ..self }
    }

    const fn on(self, noun: Noun) -> Self {
        self.at(noun.row().path, noun.row().reach)
    }

    /// Adds the id of an object of this noun and the rest of the path to the route's path.
    const fn below<O: Object>(self, rest: &'static str) -> Self {
        let named: (SchemaOf, _, _) =
            (SchemaGenerator::subschema_for::<O::Id>, O::NOUN.row().unknown.0, rest);
        Self { named: Some(named), ..self.on(O::NOUN) }
    }

    pub(super) const fn by(self, query: &'static [Parameter]) -> Self {
        Self { query, ..self }
    }

    /// Makes the route answer with pages. The cursors of the pages are ids of objects of this type.
    pub(super) const fn paged<O: Listable>(self) -> Self {
        Self { cursor: Some(SchemaGenerator::subschema_for::<O::Id>), ..self }
    }

    pub(super) const fn refusing(self, refuses: &'static [Code]) -> Self {
        Self { refuses, ..self }
    }

    pub(super) const fn taking<B: JsonSchema>(self) -> Self {
        Self { body: Some(SchemaGenerator::subschema_for::<B>), ..self }
    }
}

const fn list<O: Object + Listable>(id: &'static str, summary: &'static str) -> Route {
    Route::new::<List<O>>(Of(O::NOUN, NounAct::List), id, summary).on(O::NOUN).paged::<O>()
}

const fn create<O: Object + JsonSchema>(id: &'static str, summary: &'static str) -> Route {
    let route = Route::new::<O>(Of(O::NOUN, NounAct::Create), id, summary).on(O::NOUN);
    let statuses = &[(201, &["Location", "Cache-Control", "Idempotent-Replayed"] as &[_])];
    Route { statuses, ..route.taking::<Body<O, true>>() }
}

const fn fetch<O: Object + JsonSchema>(id: &'static str, summary: &'static str) -> Route {
    Route::new::<O>(Of(O::NOUN, NounAct::Fetch), id, summary).below::<O>("")
}

const fn update<O: Object + JsonSchema>(id: &'static str, summary: &'static str) -> Route {
    let route = Route::new::<O>(Of(O::NOUN, NounAct::Update), id, summary).below::<O>("");
    route.taking::<Body<O, false>>()
}

const fn delete<O: Object + JsonSchema>(id: &'static str, summary: &'static str) -> Route {
    Route::new::<O>(Of(O::NOUN, NounAct::Delete), id, summary).below::<O>("")
}

/// Statuses of a payment or refund: 201 when it takes effect, and 200 when it is repeated.
pub(super) const PAID: &[(u16, &[&str])] = &[(200, &[]), (201, &["Cache-Control"])];

struct GroupPaymentRequest;

crate::schema!(GroupPaymentRequest, "NewGroupPayment", |schemas| settable::<GroupPaymentBody>(schemas, true));

struct GroupRefundRequest;

crate::schema!(GroupRefundRequest, "NewGroupRefund", |schemas| settable::<GroupRefundBody>(schemas, true));

pub static ROUTES: [Route; 36] = [
    list::<KeyObject>("listApiKeys", "Lists the API keys, including revoked ones.")
        .by(&[STATUS, GROUP_ID, METADATA]),
    create::<KeyObject>("createApiKey", "Creates an API key. Its plaintext is shown only in this answer.")
        .refusing(&[Code::TooManyKeys, Code::ArchivedGroup]),
    fetch::<KeyObject>("retrieveApiKey", "Retrieves an API key."),
    update::<KeyObject>("updateApiKey", "Changes an API key: absent members stay unchanged, null clears (RFC 7396). `group_id` moves the key.")
        .refusing(&[Code::GroupKeyNotAllowed, Code::KeyRevoked, Code::ArchivedGroup]),
    delete::<KeyObject>("revokeApiKey", "Revokes an API key permanently."),
    Route {
        statuses: &[(200, &["Cache-Control", "Idempotent-Replayed"])],
        refuses: &[Code::KeyRevoked, Code::ExpiredKey, Code::RotationInProgress, Code::InvalidType,
            Code::IntegerBelowMinValue, Code::IntegerAboveMaxValue, Code::UnknownParameter],
        ..Route::new::<KeyObject>(Endpoint::RotateKey, "rotateApiKey",
            "Gives an API key a new plaintext, shown only in this answer. The previous plaintext works for another \
             `grace_seconds`.")
            .below::<KeyObject>("/rotate").taking::<Rotation>()
    },
    list::<GroupObject>("listGroups", "Lists the groups, including archived ones.")
        .by(&[EXTERNAL_ID, METADATA]).refusing(&[Code::StringAboveMaxLength]),
    Route {
        statuses: &[(200, &["Location"]), (201, &["Location", "Idempotent-Replayed"])],
        refuses: &[Code::TooManyGroups, Code::ArchivedGroup],
        ..create::<GroupObject>("createGroup",
            "Creates a group. If the `external_id` exists already, answers 200 with that group, unchanged.")
    },
    fetch::<GroupObject>("retrieveGroup", "Retrieves a group."),
    update::<GroupObject>("updateGroup", "Changes a group: absent members stay unchanged, null clears (RFC 7396).")
        .refusing(&[Code::ArchivedGroup, Code::GroupLimitIsPaid]),
    delete::<GroupObject>("archiveGroup",
        "Archives a group permanently: its keys and its child groups' keys are refused."),
    Route {
        reach: Reach::Keys,
        ..Route::new::<List<KeyObject>>(Endpoint::KeysOfGroup, "listKeysOfGroup",
            "Lists the API keys in a group, but not in its child groups.")
            .below::<GroupObject>("/keys").paged::<KeyObject>().by(&[STATUS, METADATA])
    },
    Route {
        reach: Reach::Keys,
        ..Route::new::<RevokedKeys>(Endpoint::RevokeKeysOfGroup, "revokeKeysOfGroup",
            "Revokes all API keys of a group permanently.")
            .below::<GroupObject>("/revoke_keys")
    },
    Route {
        statuses: PAID,
        refuses: &[Code::PaymentDiffers, Code::GroupHasNoLimit, Code::ArchivedGroup],
        ..Route::new::<PaymentObject<'_>>(Endpoint::PayGroup, "payGroup",
            "Raises a group's limit by a payment, out of the account's credit. Sent again, it answers 200 with the same payment.")
            .below::<GroupObject>("/payments").taking::<GroupPaymentRequest>()
    },
    Route {
        statuses: PAID,
        refuses: &[Code::PaymentDiffers, Code::GroupHasNoLimit, Code::CreditTooLow, Code::PaymentNotFound],
        ..Route::new::<PaymentObject<'_>>(Endpoint::RefundGroup, "refundGroup",
            "Lowers a group's limit by what is neither used nor held. Sent again, it answers 200 with the same refund.")
            .below::<GroupObject>("/refunds").taking::<GroupRefundRequest>()
    },
    list::<WebhookObject>("listWebhooks", "Lists the webhooks."),
    // If the webhook has been removed in the meantime, a repeated request is answered `not found`.
    create::<WebhookObject>("createWebhook",
        "Creates a webhook, which gets all later events. The secret that signs them is shown only in this answer.")
        .refusing(&[Code::WebhookNotFound, Code::TooManyWebhooks]),
    fetch::<WebhookObject>("retrieveWebhook", "Retrieves a webhook."),
    update::<WebhookObject>("updateWebhook", "Changes a webhook: absent members stay unchanged, null clears (RFC 7396)."),
    delete::<WebhookObject>("deleteWebhook", "Removes a webhook and its pending deliveries."),
    Route::new::<AttemptList<'_>>(Endpoint::Deliveries, "listWebhookDeliveries",
        "Lists the last attempts to deliver events, newest first.")
        .below::<WebhookObject>("/deliveries"),
    Route::new::<EventObject>(Endpoint::TestWebhook, "testWebhook",
        "Sends a `webhook.test` event once, and answers with it.")
        .below::<WebhookObject>("/test").refusing(&[Code::StoreFull]),
    list::<AlertObject>("listAlerts", "Lists the alerts."),
    // If the alert has been removed in the meantime, a repeated request is answered `not found`.
    create::<AlertObject>("createAlert", "Creates an alert, which reports what happens from now on.")
        .refusing(&[Code::AlertNotFound, Code::TooManyAlerts]),
    fetch::<AlertObject>("retrieveAlert", "Retrieves an alert."),
    update::<AlertObject>("updateAlert", "Changes an alert: absent members stay unchanged, null clears (RFC 7396)."),
    delete::<AlertObject>("deleteAlert", "Removes an alert and its pending messages."),
    Route::new::<MessageList<'_>>(Endpoint::AlertMessages, "listAlertMessages",
        "Lists the last attempts to send messages, newest first. The status is HTTP's, or SMTP's for mails.")
        .below::<AlertObject>("/messages"),
    Route::new::<AlertObject>(Endpoint::TestAlert, "testAlert",
        "Sends a test message once, and answers with the alert. An account can test one alert a minute.")
        .below::<AlertObject>("/test").refusing(&[Code::RateLimitExceeded, Code::StoreFull]),
    Route::new::<Credits>(Endpoint::Credits, "retrieveCredits", "Retrieves the account's credit and totals.")
        .at(CREDITS, Reach::Account),
    Route::new::<UsageList<'_>>(Endpoint::Usage, "listUsage",
        "Sums usage over at most 400 days; without `start`, over the last 30 days.")
        .at(USAGE, Reach::Keys).by(&[START, END, GROUP_BY, TOP, KEY_ID, GROUP_ID]).refusing(&[Code::InvalidValue]),
    Route::new::<List<BillObject<'_>>>(Endpoint::Generations, "listGenerations",
        "Lists the bills of generations, in billing order.")
        .at(GENERATIONS, Reach::Keys).paged::<BillObject<'_>>()
        .by(&[KEY_ID, GROUP_ID, MODEL, USER, REQUEST_ID, UPSTREAM, ENDING, START, END]),
    Route {
        named: Some((SchemaGenerator::subschema_for::<GenerationId>, Code::GenerationNotFound, "")),
        ..Route::new::<BillObject<'_>>(Endpoint::Generation, "retrieveGeneration", "Retrieves the bill of a generation.")
            .at(GENERATIONS, Reach::Keys)
    },
    Route::new::<List<RefusalObject<'_>>>(Endpoint::Refusals, "listRefusals",
        "Lists the last 1,000 refused calls with known keys.")
        .at(REFUSALS, Reach::Keys).paged::<RefusalObject<'_>>()
        .by(&[KEY_ID, GROUP_ID, REASON, MODEL, USER, REQUEST_ID, START, END]),
    Route::new::<List<EventObject>>(Endpoint::Events, "listEvents",
        "Lists who changed what, and which thresholds were crossed.")
        .at(EVENTS, Reach::Account).paged::<EventObject>().by(&[TYPE, KEY_ID, GROUP_ID]),
    Route::new::<OwnKey>(Endpoint::OwnKey, "retrieveOwnApiKey",
        "Retrieves the API key that makes the request, with its group. This does not count as using the key, and works \
         even if no money is left.")
        .at(OWN_KEY, Reach::Holder),
];
