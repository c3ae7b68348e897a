//! Routes that only the operator API has. Below the path of an account it also has the routes of the management API.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::{
    bounds::{ACCOUNT_STATUSES, MAX_LABEL_CHARS, MAX_PAYMENT_ID_CHARS},
    event::{EVENT_TYPES, EventObject, OPERATOR_EVENT_TYPES},
    field::{AccountField, ManagementKeyField, MemberField, SuspensionField},
    money::{PaymentBody, RefundBody},
    noun::Reach,
    operator::{AccountObject, AccountTotals, ManagementKeyObject, MemberObject, OperatorEndpoint},
    path::{
        ACCOUNT, ACCOUNTS, CLOSE, MANAGEMENT_KEYS, MEMBERS, OPERATOR_DESCRIPTION, OPERATOR_EVENTS, PAYMENTS,
        REFUNDS, RESTORE, SUSPEND,
    },
    reading::PaymentObject,
    route::{EXTERNAL_ID, Endpoint, METADATA, PAID, Parameter, Route, SchemaOf, parameter},
    schema::{List, settable},
};
use crate::{
    error::Code,
    ids::{ManagementKeyId, MemberId},
};

struct AccountBody;

crate::schema!(AccountBody, "NewAccount", |schemas| settable::<AccountField>(schemas, true));

struct AccountChange;

crate::schema!(AccountChange, "AccountChange", |schemas| settable::<AccountField>(schemas, false));

struct SuspensionBody;

crate::schema!(SuspensionBody, "Suspension", |schemas| settable::<SuspensionField>(schemas, true));

struct ManagementKeyBody;

crate::schema!(ManagementKeyBody, "NewManagementKey", |schemas| settable::<ManagementKeyField>(
    schemas, true
));

struct NewMember;

crate::schema!(NewMember, "NewMember", |schemas| settable::<MemberField>(schemas, true));

struct PaymentRequest;

crate::schema!(PaymentRequest, "NewPayment", |schemas| settable::<PaymentBody>(schemas, true));

struct RefundRequest;

crate::schema!(RefundRequest, "NewRefund", |schemas| settable::<RefundBody>(schemas, true));

/// The description of the operator API.
struct Description;

crate::schema!(Description, "Description", |_| json_schema!({"type": "object"}));

const NAME: Parameter = parameter("name", |_| json_schema!({"type": "string", "maxLength": MAX_LABEL_CHARS}));
const STATUS: Parameter = parameter("status", |_| json_schema!({"enum": ACCOUNT_STATUSES}));
const TYPE: Parameter = parameter("type", |_| {
    let types: Vec<&str> = EVENT_TYPES.into_iter().chain(OPERATOR_EVENT_TYPES).collect();
    json_schema!({"enum": types})
});

const fn route<A: JsonSchema>(
    endpoint: OperatorEndpoint,
    of: &'static str,
    id: &'static str,
    summary: &'static str,
) -> Route {
    Route::new::<A>(Endpoint::Operator(endpoint), id, summary).at(of, Reach::Installation)
}

const CREATED: &[(u16, &[&str])] = &[(201, &["Location", "Cache-Control", "Idempotent-Replayed"])];
const MANAGEMENT_KEY: (SchemaOf, Code) =
    (SchemaGenerator::subschema_for::<ManagementKeyId>, Code::ManagementKeyNotFound);
const MEMBER: (SchemaOf, Code) = (SchemaGenerator::subschema_for::<MemberId>, Code::MemberNotFound);

const PAYMENT: (SchemaOf, Code) = (payment_id, Code::PaymentNotFound);

fn payment_id(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": MAX_PAYMENT_ID_CHARS})
}

/// Puts the route below an object of this kind.
const fn below(route: Route, (id, unknown): (SchemaOf, Code), rest: &'static str) -> Route {
    Route { named: Some((id, unknown, rest)), ..route }
}

pub static OPERATOR_ROUTES: [Route; 21] = [
    route::<List<AccountObject<'_>>>(OperatorEndpoint::ListAccounts, ACCOUNTS, "listAccounts", "Lists the accounts.")
        .paged::<AccountObject<'_>>().by(&[STATUS, EXTERNAL_ID, NAME, METADATA]),
    Route {
        statuses: &[(200, &["Location"]), (201, &["Location", "Cache-Control"])],
        ..route::<AccountObject<'_>>(OperatorEndpoint::CreateAccount, ACCOUNTS, "createAccount",
            "Creates an account without credit. If the `external_id` exists already, answers 200 with that account, unchanged.")
            .taking::<AccountBody>().refusing(&[Code::AccountNameTaken])
    },
    route::<AccountTotals<'_>>(OperatorEndpoint::FetchAccount, ACCOUNT, "retrieveAccount",
        "Retrieves an account with its totals."),
    route::<AccountObject<'_>>(OperatorEndpoint::UpdateAccount, ACCOUNT, "updateAccount",
        "Changes an account: absent members stay, null clears (RFC 7396). The `external_id` can be set once.")
        .taking::<AccountChange>().refusing(&[Code::ExternalIdTaken]),
    route::<AccountObject<'_>>(OperatorEndpoint::SuspendAccount, SUSPEND, "suspendAccount",
        "Suspends an account: its API keys are refused from the next request on, and only operators change it.")
        .taking::<SuspensionBody>(),
    route::<AccountObject<'_>>(OperatorEndpoint::RestoreAccount, RESTORE, "restoreAccount",
        "Makes a suspended account active again."),
    route::<AccountObject<'_>>(OperatorEndpoint::CloseAccount, CLOSE, "closeAccount",
        "Closes a suspended account permanently. Its credit and what is held must be 0.")
        .refusing(&[Code::AccountHasMoney, Code::AccountNotSuspended]),
    route::<List<ManagementKeyObject<'_>>>(OperatorEndpoint::ListManagementKeys, MANAGEMENT_KEYS,
        "listManagementKeys", "Lists the management keys of an account, including revoked ones.")
        .paged::<ManagementKeyObject<'_>>(),
    Route {
        statuses: CREATED,
        ..route::<ManagementKeyObject<'_>>(OperatorEndpoint::CreateManagementKey, MANAGEMENT_KEYS,
            "createManagementKey", "Creates a management key. Its plaintext is shown only in this answer.")
            .taking::<ManagementKeyBody>().refusing(&[Code::TooManyKeys])
    },
    below(route::<ManagementKeyObject<'_>>(OperatorEndpoint::FetchManagementKey, MANAGEMENT_KEYS,
        "retrieveManagementKey", "Retrieves a management key."), MANAGEMENT_KEY, ""),
    below(route::<ManagementKeyObject<'_>>(OperatorEndpoint::RevokeManagementKey, MANAGEMENT_KEYS,
        "revokeManagementKey", "Revokes a management key permanently."), MANAGEMENT_KEY, ""),
    route::<List<MemberObject<'_>>>(OperatorEndpoint::ListMembers, MEMBERS, "listMembers",
        "Lists the members of an account.").paged::<MemberObject<'_>>(),
    Route {
        statuses: CREATED,
        ..route::<MemberObject<'_>>(OperatorEndpoint::InviteMember, MEMBERS, "inviteMember",
            "Creates a member. The answer has a link that signs the member in once, within 72 hours.")
            .taking::<NewMember>().refusing(&[Code::TooManyMembers, Code::MemberNameTaken])
    },
    below(route::<MemberObject<'_>>(OperatorEndpoint::RemoveMember, MEMBERS, "removeMember",
        "Removes a member, whose sessions end at once."), MEMBER, "").refusing(&[Code::LastOwner]),
    below(route::<MemberObject<'_>>(OperatorEndpoint::LinkMember, MEMBERS, "createSignInLink",
        "Makes a link that signs the member in once, within 15 minutes. The member's earlier links stop working."),
        MEMBER, "/link").refusing(&[Code::StoreFull]),
    route::<List<PaymentObject<'_>>>(OperatorEndpoint::ListPayments, PAYMENTS, "listPayments",
        "Lists the payments and refunds of an account.").paged::<PaymentObject<'_>>(),
    Route {
        statuses: PAID,
        ..route::<PaymentObject<'_>>(OperatorEndpoint::Pay, PAYMENTS, "pay",
            "Adds a payment to the account's credit, and to a group's limit if one is named. Sent again, it answers 200 with the same payment.")
            .taking::<PaymentRequest>()
            .refusing(&[Code::PaymentDiffers, Code::PaymentAboveMaximum, Code::GroupNotFound, Code::GroupHasNoLimit,
                Code::ArchivedGroup])
    },
    below(route::<PaymentObject<'_>>(OperatorEndpoint::FetchPayment, PAYMENTS, "retrievePayment",
        "Retrieves a payment or a refund by your own id."), PAYMENT, ""),
    Route {
        statuses: PAID,
        ..route::<PaymentObject<'_>>(OperatorEndpoint::Refund, REFUNDS, "refund",
            "Takes back credit that is neither used nor held. Sent again, it answers 200 with the same refund.")
            .taking::<RefundRequest>()
            .refusing(&[Code::PaymentDiffers, Code::CreditTooLow, Code::PaymentNotFound, Code::GroupNotFound,
                Code::GroupHasNoLimit])
    },
    route::<List<EventObject>>(OperatorEndpoint::Events, OPERATOR_EVENTS, "listOperatorEvents",
        "Lists events of the installation: operators and operator keys.")
        .paged::<EventObject>().by(&[TYPE]),
    route::<Description>(OperatorEndpoint::Description, OPERATOR_DESCRIPTION, "describeOperatorApi",
        "This description."),
];
